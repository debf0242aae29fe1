"""Define tables and sentences for people, apart from the surface that shows them. Light to import."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class TextTable(BaseModel):
    """A table for people."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = Field(default="", description="What it is, in a few words.")
    head: tuple[str, ...] = Field(default=(), description="The names of the columns.")
    rows: tuple[tuple[str, ...], ...] = Field(default=(), description="The cells of each row.")


class TextReport(BaseModel):
    """What people read: a line above, tables, and the sentences under them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    lead: str = Field(default="", description="The line above the tables.")
    tables: tuple[TextTable, ...] = Field(default=(), description="The tables for people.")
    sentences: tuple[str, ...] = Field(default=(), description="What is said below the tables.")
