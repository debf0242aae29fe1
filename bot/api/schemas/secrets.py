"""The secrets of the caller for jobs: a value goes in, and only names and dates come out."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field, SecretStr

from bot.api.schemas.base import CommandOut, In, Out
from bot.api.schemas.fields import CreatedAt


class SecretIn(In):
    """The value of a secret."""

    value: SecretStr = Field(description="The secret: text of at most 8,192 bytes. No answer ever has it.")


class SecretOut(Out):
    """One secret, without its value."""

    name: str = Field(description="Its name, which is the variable that a job gets.", examples=["HF_TOKEN"])
    created_at: CreatedAt
    updated_at: datetime = Field(description="When its value was stored last.")


class SecretDone(CommandOut):
    """A secret was stored or deleted."""

    name: str = Field(description="The name of the secret.", examples=["HF_TOKEN"])
