"""`profile=`, `config=` and `run-dir=`: the machine of a model, and a command that names its config and its folder."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.rules.grammar.job import check_profiles
from bot.rules.grammar.parser import GrammarError, parse
from bot.rules.jobs.job import JobRequest
from bot.rules.policy.model_profiles import ModelProfile
from bot.rules.policy.policy import Policy

POLICY = Policy(
    instance_profiles={
        "moe": ModelProfile("8xRTX3090", "70GB", ("mosaic_small_resume.yaml",)),
        "free": ModelProfile("A100"),
    },
    presets={"night": 'profile=moe 6h run="python train.py"'},
)


def read(line: str) -> JobRequest:
    found = parse(f"provision {line}", POLICY)
    assert not isinstance(found, GrammarError), found.message
    assert found.job is not None
    return found.job


def refused(line: str) -> str:
    found = parse(f"provision {line}", POLICY)
    assert isinstance(found, GrammarError), found
    return found.message


def test_a_profile_gives_the_machine_and_other_words_replace_it() -> None:
    job = read('profile=MoE 6h config=configs/mosaic_small_resume.yaml run="python train.py"')
    assert (job.profile, job.gpu.names, job.gpu.count_min, job.disk_gb) == ("moe", ("RTX3090",), 8, 70)
    assert job.run == ("python train.py --config configs/mosaic_small_resume.yaml --run-dir runs/mosaic_small_resume")
    other = read("profile=moe 4xA100-80GB disk=10 6h")
    assert (other.gpu.count_min, other.gpu.names[0][:4], other.disk_gb, other.run) == (4, "A100", 70, None)
    assert read("profile=free 6h disk=300").disk_gb == 300


def test_the_config_and_the_folder_stand_in_the_command_once() -> None:
    said = 'run="python train.py --config mosaic_small_resume.yaml --run-dir runs/a"'
    job = read(f"profile=moe 6h {said}")
    assert (job.run, job.config, job.run_dir) == (said[5:-1], "mosaic_small_resume.yaml", "runs/a")
    assert read(f"profile=moe 6h {said} config=mosaic_small_resume.yaml run-dir=runs/a").run == said[5:-1]
    free = read('4090 6h run="python train.py" run_dir=runs/b')
    assert (free.run, free.config) == ("python train.py --run-dir runs/b", None)
    assert read('4090 6h run="python train.py" config=a.yaml').run == (
        "python train.py --config a.yaml --run-dir runs/a"
    )
    assert read('4090 6h run="python train.py"').run == "python train.py"
    assert "runs/mosaic_small_resume" in (read("preset=night config=mosaic_small_resume.yaml").run or "")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('profile=moe 6h config=mosaic_small.yaml run="x"', "The profile moe doesn't allow the config"),
        ('model=moe 4090 6h run="x --config mosaic_small.yaml"', "Allowed: mosaic_small_resume.yaml."),
        (
            'profile=moe 6h config=mosaic_small_resume.yaml run="x --config mosaic_small_resume.yaml; y --config b"',
            "and config= says mosaic_small_resume.yaml. Keep one of the two.",
        ),
        ('profile=moe 6h run="x"', "The profile moe needs a config; write config=mosaic_small_resume.yaml."),
        ("preset=night", "The profile moe needs a config"),
        ('profile=mow 6h run="x"', "“mow” is not a profile; there are moe, free. Did you mean moe?"),
        ("profile=moe 6h config=a.yaml", 'are for a command; add one, such as run="python train.py".'),
        ("profile=moe 6h run-dir=runs/a", 'are for a command; add one, such as run="python train.py".'),
        ('4090 6h config=../a.yaml run="x"', "“../a.yaml” is not a path; write config=configs/small.yaml"),
        ('4090 6h config="a b" run="x"', "“a b” is not a path"),
        ('4090 6h run="x --run-dir a" run-dir=b', "run= has --run-dir a, and run-dir= says b. Keep one of the two."),
    ],
)
def test_a_wrong_profile_or_config_is_refused_with_a_right_one(line: str, sentence: str) -> None:
    assert sentence in refused(line)


def test_a_team_without_profiles_is_told_where_they_are_named() -> None:
    found = parse("provision profile=moe 6h", Policy())
    assert isinstance(found, GrammarError)
    assert "there are none; the policy names their file under instance_profiles." in found.message


def test_the_machine_of_a_profile_is_checked_with_the_policy() -> None:
    assert check_profiles(POLICY) is POLICY
    for profile, wrong in ((ModelProfile("9xRTX9999"), "not a GPU"), (ModelProfile("A100", "big"), "not a disk size")):
        with pytest.raises(ValueError, match=f"instance_profiles.x: .*{wrong}"):
            check_profiles(replace(POLICY, instance_profiles={"x": profile}))
