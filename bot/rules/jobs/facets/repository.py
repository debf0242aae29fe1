"""The git repository that a machine fetches before it starts the command: `repo=https://github.com/org/project`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bot.rules.jobs.facet import Detail, Fields, JobFacet, Key, Text, Word
from bot.rules.policy.policy import Policy
from bot.rules.values.bad_word import BadWord
from bot.rules.values.repository import BadRepositoryError, Repository

_EXAMPLE = "https://github.com/org/project@main"


@dataclass(frozen=True, kw_only=True)
class RepositoryFields:
    """Which repository is fetched before the command starts."""

    #: As `bot.rules.values.repository` reads it.
    repo: str | None = None


def _read_repo(text: str, _policy: Policy) -> Fields:
    """Read the git repository that is fetched before the command starts."""
    try:
        Repository.read(text)
    except BadRepositoryError as error:
        raise BadWord(str(error)) from error
    return {"repo": text}


def _details(job: RepositoryFields) -> Iterator[Detail]:
    if job.repo:
        yield Detail("repository", job.repo)


REPOSITORY = JobFacet(
    fields=RepositoryFields,
    words=(
        Word("repo", "ADDRESS", "The git repository to fetch first.", f"repo={_EXAMPLE}", _read_repo, ("repository",)),
    ),
    keys=(
        Key(
            "repo",
            Text | None,
            "The git repository to fetch before `run` starts: https, with a branch, tag or commit behind @.",
            examples=[_EXAMPLE],
        ),
    ),
    details=_details,
)
