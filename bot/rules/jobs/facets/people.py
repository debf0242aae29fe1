"""What is asked of people with a job, and never stored with it: who logs in, their key, their secrets, whose it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from bot.rules.access.scopes import BadHolder, known_person
from bot.rules.jobs.facet import Detail, Fields, JobFacet, Key, Text, Word
from bot.rules.policy import job_bounds
from bot.rules.policy.policy import Policy
from bot.rules.values.bad_word import BadWord
from bot.rules.values.private_keys import LONGEST_KEY
from bot.rules.values.secret_names import names_problem


@dataclass(frozen=True, kw_only=True)
class PeopleFields:
    """What a person asks for. It becomes rows, so no copy of a job brings it along (`ledger.queries.people`)."""

    #: The one SSH key for this machine; None takes the requester's registered one.
    public_key: str | None = None
    #: References of the people with whom the machine is shared.
    share: tuple[str, ...] = ()
    #: Names of the requester's secrets that the job gets as variables. Their values are never part of a job.
    secrets: tuple[str, ...] = ()


def _read_secrets(text: str, _policy: Policy) -> Fields:
    """Read `HF_TOKEN,WANDB_API_KEY`: names of the requester's secrets, never a value. Raises `BadWord`."""
    names = tuple(part.strip() for part in text.split(","))
    if wrong := names_problem(names):
        raise BadWord(wrong)
    return {"secrets": names}


def _read_share(text: str, policy: Policy) -> Fields:
    """Read `@carol,U012AB3CD`: people, each once; a bare name is one that the policy links. Raises `BadWord`."""
    people: dict[str, None] = {}
    for part in text.split(","):
        try:
            people[known_person(part, policy.same_person).ref] = None
        except BadHolder:
            raise BadWord(
                f"“{part.strip()[:40]}” is nobody known here; mention them (share=@carol) or name operator:ada."
            ) from None
    if len(people) > job_bounds.MOST_SHARED:
        raise BadWord(f"A machine is shared with {job_bounds.MOST_SHARED} people at most.")
    return {"share": tuple(people)}


def _details(job: PeopleFields) -> Iterator[Detail]:
    if job.secrets:
        yield Detail("secrets", ", ".join(job.secrets))


PEOPLE = JobFacet(
    fields=PeopleFields,
    words=(
        Word(
            "secrets",
            "NAME[,NAME]",
            "Your stored secrets that the command gets as variables.",
            "secrets=HF_TOKEN",
            _read_secrets,
            ("secret",),
        ),
        Word("share", "PERSON[,PERSON]", "Who else logs in.", "share=U012AB3CD", _read_share),
    ),
    keys=(
        Key(
            "share",
            Annotated[list[Text], Field(max_length=10)],
            "Who else logs in: Slack ids, operator:ada, or names that the policy links.",
            [],
            [["U012AB3CD"]],
        ),
        Key(
            "secrets",
            Annotated[list[Text], Field(max_length=16)],
            "Names of secrets that you stored, never values: `run` gets them as variables of its environment.",
            [],
            [["HF_TOKEN"]],
        ),
        Key(
            "consumer",
            Annotated[str, Field(max_length=40)] | None,
            "The program that it is for, by its owner. The program's budgets count.",
            word="",
        ),
        Key(
            "ssh_public_key",
            Annotated[str, Field(max_length=LONGEST_KEY)] | None,
            "The key of this machine; without it, the one that is registered.",
            word="",
        ),
    ),
    details=_details,
)
