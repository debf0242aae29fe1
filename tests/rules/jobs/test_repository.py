"""The word `repo` in a line and in a job file."""

from __future__ import annotations

from bot.rules.grammar.parser import GrammarError, parse
from bot.rules.jobs.document import JobDocument
from bot.rules.policy.policy import Policy
from bot.services.plans.job_file import read_job


def test_a_line_and_a_file_ask_for_the_same_repository() -> None:
    address = "https://github.com/org/project@main"
    parsed = parse(f"provision 1x4090 2h repo={address}", Policy())
    assert not isinstance(parsed, GrammarError)
    assert parsed.job is not None
    assert parsed.job.repo == address
    document = JobDocument.model_validate({"resources": {"gpu": "4090"}, "hours": 2, "repo": address})
    assert read_job(document, Policy()) == parsed.job
    wrong = parse("provision 1x4090 2h repo=https://ada:canary@github.com/org/project", Policy())
    assert isinstance(wrong, GrammarError)
    assert "has no user name or password; write repo=https://" in wrong.message
    assert "canary" not in wrong.message
    wrong = parse("provision 1x4090 2h repo=ftp://github.com/org/project", Policy())
    assert isinstance(wrong, GrammarError)
    assert "not the https address of a git repository" in wrong.message
