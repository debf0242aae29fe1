"""Define the job document of YAML and JSON: one model for files, REST bodies and everything that is generated.

It only names the words of the `/gpu` language, and that language reads them: a file, a REST body and a Slack command
that say the same become the same `JobRequest`, and are refused with the same sentence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field, create_model

from bot.rules.jobs.facet import DocumentPart, Key
from bot.rules.jobs.facet_table import DOCUMENT_KEYS

_WORDS = Key(
    "words",
    Annotated[str, Field(max_length=4000)] | None,
    "The job in one line of the /gpu language, to which other fields may add: 8xA100 6h max=$50.",
    word="",
)
_KEYS = (_WORDS, *DOCUMENT_KEYS)


def _field(key: Key) -> Any:
    examples = list(key.examples) if key.examples is not None else None
    return key.type, Field(default=key.default, description=key.description, examples=examples)


_Keys: type[BaseModel] = create_model("_Keys", __base__=DocumentPart, **{key.name: _field(key) for key in _KEYS})


class JobDocument(_Keys):
    """A portable job request. Money is dollars, times are written 6h, 90m or 2d; a bare number is hours."""

    if TYPE_CHECKING:  # Its fields are made of the facets' keys.

        def __init__(self, **values: Any) -> None: ...

        def __getattr__(self, name: str) -> Any: ...


def pairs(document: JobDocument) -> Iterator[tuple[str, str, str]]:
    """Yield `(field of the document, word of the language, value)` for everything that was said."""
    for key in sorted(_KEYS, key=lambda key: key.name == "work"):  # The words of a run come last.
        yield from key.words(getattr(document, key.name))
