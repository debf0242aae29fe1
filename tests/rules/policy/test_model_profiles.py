"""The profiles of models: which configs they allow, and what is wrong with them."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from bot.rules.jobs.checks import check, facts_of
from bot.rules.jobs.job import JobRequest
from bot.rules.policy.model_profiles import (
    CONFIG_OPTION,
    FOLDER_OPTION,
    ModelProfile,
    problems,
    values_of,
)
from bot.rules.policy.policy import Policy
from bot.rules.values.reply_code import ReplyCode
from providers.gpus.constraint import GpuConstraint

MOE = ModelProfile("8xRTX3090", "64GB", ("mosaic_small_resume.yaml",))
JOB = JobRequest(GpuConstraint(), Decimal(1), run="python train.py --config configs/mosaic_small_resume.yaml")


@pytest.mark.parametrize(
    ("configs", "config", "allowed"),
    [
        ((), "anything.yaml", True),
        (("a.yaml",), "a.yaml", True),
        (("a.yaml",), "configs/a.yaml", True),
        (("a.yaml",), "configs/b.yaml", False),
        (("configs/a.yaml",), "configs/a.yaml", True),
        (("configs/a.yaml",), "other/a.yaml", False),
    ],
)
def test_a_config_is_allowed_by_its_name_or_by_its_path(configs: tuple[str, ...], config: str, allowed: bool) -> None:
    assert ModelProfile("RTX3090", configs=configs).allows(config) is allowed


@pytest.mark.parametrize(
    ("command", "values"),
    [
        ("python train.py --config a.yaml", ("a.yaml",)),
        ("python train.py --config=a.yaml --config 'b c.yaml'", ("a.yaml", "b c.yaml")),
        ("python train.py --config-name a --no-config b", ()),
        ('python a.py --config "a.yaml"; python b.py --config b.yaml&&ls', ("a.yaml", "b.yaml")),
    ],
)
def test_every_config_of_a_command_is_found(command: str, values: tuple[str, ...]) -> None:
    assert values_of(CONFIG_OPTION, command) == values
    folders = command.replace("--config ", "--run_dir ").replace("--config=", "--run-dir=")
    assert values_of(FOLDER_OPTION, folders) == values


def refusal(asked: JobRequest, profiles: dict[str, ModelProfile]) -> str:
    wrong = check(asked, facts_of(asked, Policy(instance_profiles=profiles), {}, agent_reaches=True))
    assert wrong is None or wrong.code == ReplyCode.BAD_CONFIG
    return "" if wrong is None else wrong.sentence


def test_a_job_is_held_to_the_profile_that_it_names_or_that_its_model_has() -> None:
    profiles = {"moe": MOE}
    assert refusal(replace(JOB, profile="moe"), profiles) == ""
    assert refusal(replace(JOB, profile="moe", run=None), profiles) == ""  # Nothing runs with a config.
    assert refusal(replace(JOB, model="7B", run="x --config b.yaml"), profiles) == ""
    wrong = "The profile moe doesn't allow the config “configs/mosaic_small.yaml”. Allowed: mosaic_small_resume.yaml."
    other = replace(JOB, run="python train.py --config configs/mosaic_small.yaml")
    assert refusal(replace(other, profile="moe"), profiles) == refusal(replace(other, model="MoE"), profiles) == wrong
    without = replace(JOB, profile="moe", run="python train.py")
    assert refusal(without, profiles) == "The profile moe needs a config; write config=mosaic_small_resume.yaml."
    assert refusal(replace(JOB, profile="moe"), {}) == "There is no profile moe. There are none."


def test_a_profile_needs_a_name_and_paths() -> None:
    assert list(problems({"moe": MOE})) == []
    (name,) = problems({"My Model": MOE})
    assert name == "instance_profiles: `My Model` is not a name; use small letters, digits, -, _ and ."
    (config,) = problems({"moe": replace(MOE, configs=("a b.yaml",))})
    assert config == "instance_profiles.moe: `a b.yaml` is not a config; write it like configs/small.yaml"
