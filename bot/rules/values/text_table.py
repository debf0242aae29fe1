"""Tables and sentences for people, apart from the surface that shows them. Light to import."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class TextTable(BaseModel):
    """A table for people."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = ""
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


class Told(BaseModel):
    """What people read: a line above, tables, and the sentences under them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    lead: str = ""
    tables: tuple[TextTable, ...] = ()
    sentences: tuple[str, ...] = ()
