"""The software stack that a machine installs before it starts the command: `install=train`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bot.rules.jobs.facet import Detail, Fields, JobFacet, Key, Text, Word
from bot.rules.policy.policy import Policy
from bot.rules.stacks.stack import STACKS
from bot.rules.values.bad_word import BadWord, near, show


@dataclass(frozen=True, kw_only=True)
class InstallFields:
    """Which software stack is installed before the command starts."""

    #: As `bot.rules.stacks` names it.
    install: str | None = None


def read_install(text: str, _policy: Policy) -> Fields:
    """Read the name of the software stack that is installed."""
    name = text.lower()
    if name not in STACKS:
        known = " and ".join(STACKS)
        raise BadWord(f"{show(text)} can't be installed by name; there are {known}.{near(name, STACKS)}")
    return {"install": name}


def _details(job: InstallFields) -> Iterator[Detail]:
    if job.install:
        yield Detail("installs", job.install)


INSTALL = JobFacet(
    fields=InstallFields,
    words=(
        Word("install", "NAME", "The Python packages to install first.", "install=train", read_install, ("software",)),
    ),
    keys=(
        Key(
            "install",
            Text | None,
            "The Python packages to install before `run` starts: train (torch, transformers, peft) or serve "
            "(vLLM), in versions that work together.",
            examples=["train"],
        ),
    ),
    details=_details,
)
