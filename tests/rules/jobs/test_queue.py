"""The queue of a job: one from lists, lines, files and templates, and each mistake by its own sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bot.rules.grammar.parser import GrammarError, parse
from bot.rules.jobs.checks import check, facts_of
from bot.rules.jobs.document import JobDocument
from bot.rules.jobs.job import JobRequest
from bot.rules.policy.model_profiles import ModelProfile
from bot.rules.policy.policy import Policy
from bot.services.plans.job_file import BadJob, read_job
from bot.wire.queue import MOST_COMMANDS

POLICY = Policy()
JOB: dict[str, Any] = {"resources": {"gpu": "4090:4"}, "hours": 2}
BOTH = ("python a.py", "python b.py")


def read(queue: Any, policy: Policy = POLICY, **more: Any) -> JobRequest:
    return read_job(JobDocument.model_validate({**JOB, "queue": queue, **more}), policy)


@pytest.mark.parametrize("queue", [list(BOTH), "python a.py\n\n# a comment\n  python b.py\n"])
def test_a_list_and_lines_are_the_same_queue(queue: Any) -> None:
    job = read(queue)
    assert job.queue == BOTH
    assert job.run is None
    assert JobRequest.from_json(job.to_json()) == job


def test_a_line_of_the_language_says_the_same() -> None:
    words = [("queue", '["python a.py", "python b.py"]')]
    parsed = parse("provision 4x4090 2h", POLICY, words)
    assert not isinstance(parsed, GrammarError)
    assert parsed.job is not None
    assert parsed.job.queue == BOTH


@pytest.mark.parametrize("command", ["python a.py", "[ -e done ] || python a.py"])
def test_a_word_may_be_one_command(command: str) -> None:
    parsed = parse("provision 4x4090 2h", POLICY, [("queue", command)])
    assert not isinstance(parsed, GrammarError)
    assert parsed.job is not None
    assert parsed.job.queue == (command,)


def test_a_command_may_begin_with_a_bracket() -> None:
    assert read("[ -e done ] || python a.py").queue == ("[ -e done ] || python a.py",)


def test_a_template_is_filled_with_each_combination_of_its_values() -> None:
    matrix = {
        "run": "python t.py --lr {lr} --name {name} ${HOME}",
        "values": {"lr": ["1e-4", 0.5], "name": ["a b", "c"]},
    }
    with pytest.raises(BadJob, match="HOME"):
        read(matrix)
    matrix["run"] = "python t.py --lr {lr} --name {name} $HOME"
    assert read(matrix).queue == (
        "python t.py --lr 1e-4 --name 'a b' $HOME",
        "python t.py --lr 1e-4 --name c $HOME",
        "python t.py --lr 0.5 --name 'a b' $HOME",
        "python t.py --lr 0.5 --name c $HOME",
    )


@pytest.mark.parametrize(
    ("queue", "sentence"),
    [
        ([], "A queue needs commands, and none of them may be empty."),
        (["a", " "], "A queue needs commands, and none of them may be empty."),
        ("# nothing\n", "A queue needs commands"),
        ("x\n" * (MOST_COMMANDS + 1), "1,001 commands are above the limit of 1,000."),
        (["a\nb"], "Command 1 is not one line of at most 1,000 printable characters."),
        ("a" * 1001, "Command 1 is not one line of at most 1,000 printable characters."),
        ([f"{'a' * 900} {number}" for number in range(80)], "The commands have more than 64,000 characters."),
        ({"run": "a {x}", "values": {}}, "{x} is in the queue's run and has no values."),
        ({"run": "a {x}", "values": {"x": []}}, "“x” needs a list of values, such as [1, 2]."),
        ({"run": "a", "values": {"x": [1]}}, "“x” has values, but {x} is not in the queue's run."),
        (
            {"run": "a {x} {y}", "values": {"x": list(range(100)), "y": list(range(11))}},
            "1,100 commands are above the limit of 1,000.",
        ),
    ],
)
def test_a_wrong_queue_is_refused(queue: Any, sentence: str) -> None:
    with pytest.raises(BadJob) as found:
        read(queue)
    assert sentence in str(found.value)
    assert found.value.field == "queue"


def test_a_word_with_a_template_needs_both_parts() -> None:
    wrong = parse("provision 4x4090 2h", POLICY, [("queue", '{"run": "a"}')])
    assert isinstance(wrong, GrammarError)
    assert "A queue as a matrix has run" in wrong.message


def test_a_command_and_a_queue_exclude_each_other() -> None:
    with pytest.raises(BadJob, match="run= and queue= exclude each other"):
        read(list(BOTH), run="python c.py")


def test_a_queue_may_have_attempts_and_mounts() -> None:
    job = read(list(BOTH), attempts=2, file_mounts={"/data": "s3://bucket/data"})
    assert job.attempts == 2
    assert (job.run, job.mounts) == (None, ("COPY /data s3://bucket/data",))


PROFILED = Policy(instance_profiles={"moe": ModelProfile("4x4090", configs=("small.yaml",))})


def test_each_command_of_a_queue_has_a_config_that_its_profile_allows() -> None:
    job = read(["t --config small.yaml", "t --config small.yaml --run-dir own"], PROFILED, profile="moe")
    assert job.queue == ("t --config small.yaml --run-dir runs/small-1", "t --config small.yaml --run-dir own")
    assert check(job, facts_of(job, PROFILED, {}, agent_reaches=True)) is None
    other = replace(job, queue=("t --config large.yaml",))
    wrong = check(other, facts_of(other, PROFILED, {}, agent_reaches=True))
    assert wrong is not None
    assert wrong.code == "bad_config"
    with pytest.raises(BadJob, match=r"Command 2 of the queue: The profile moe doesn't allow the config “large.yaml”"):
        read(["t --config small.yaml", "t --config large.yaml"], PROFILED, profile="moe")
    with pytest.raises(BadJob, match="Each command of a queue has its own --config and --run-dir"):
        read(["t"], config="small.yaml")
    assert read(["t"]).queue == ("t",)
