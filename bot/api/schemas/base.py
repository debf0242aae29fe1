"""The base of every body and answer, and the answers that several subjects share."""

from __future__ import annotations

from typing import Any, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from bot.api.schemas.fields import ReasonText
from bot.services.market.offer_fields import Code, Sentence

Item = TypeVar("Item")


def optional(description: str, default: Any = None, **more: Any) -> Any:
    """Describe a field that need not be there."""
    return Field(default=default, description=description, **more)


class In(BaseModel):
    """A body; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class Out(BaseModel):
    """An answer."""

    model_config = ConfigDict(from_attributes=True)

    @classmethod
    def of(cls, row: object, **more: Any) -> Self:
        """Build it from `more`, and every other field from the attribute of the same name, where `row` has one."""
        same = {name: getattr(row, name) for name in cls.model_fields if name not in more and hasattr(row, name)}
        return cls(**same, **more)


class Page(Out, Generic[Item]):
    """One page of a list, the newest first; `next_cursor` fetches the rest, and is null at the end."""

    items: list[Item] = Field(description="The rows of this page.")
    next_cursor: str | None = optional("What to send as `cursor` for the next page; null on the last one.")


class CommandOut(Out):
    """The result of a command: a stable code, and the same sentence as in Slack."""

    code: Code
    sentence: Sentence


class Done(CommandOut):
    """A command that was carried out: a stable code, and the same sentence as in Slack."""

    request_id: str | None = optional("The id of the request.")
    session_id: str | None = optional("The id of the session.")
    url: str | None = optional("Where to see its progress.")


class ReasonIn(In):
    """The reason; a rejection needs it."""

    reason: ReasonText = ""
