"""Who shares a session, and whether their keys are on its machine."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from bot.api.schemas.base import In, Out


class PersonIn(In):
    """A person, as people name one."""

    person: str = Field(
        max_length=90, description="A Slack id, operator:ada, or a name that the policy links.", examples=["U012AB3CD"]
    )


class SharerOut(Out):
    """One person who may log in to the machine of a session."""

    person: str = Field(description="Who it is: slack:U012AB3CD, or operator:ada.")
    person_name: str = Field(description="Their name; a reference where none is known.")
    is_owner: bool = Field(description="Whether the session is theirs.")
    keys: int = Field(description="How many of their SSH keys belong on the machine.")
    placed_at: datetime | None = Field(description="When the machine had all of them; null: not yet.")
    problem: str = Field(description="Why the last attempt to write their keys failed; empty where it worked.")
