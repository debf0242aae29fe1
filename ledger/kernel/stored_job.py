"""Hold a job as it is stored: as JSON, whose fields the ledger doesn't know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class StoredJob:
    """Hold the JSON of a job. Two are equal where their JSON is. Nobody changes one: another job is another value."""

    json: Mapping[str, Any]
    #: What read it last, and what came of that. Set as one value, because threads read a job, too.
    _last_read: tuple[Callable[[Mapping[str, Any]], Any], Any] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def read(self, reader: Callable[[Mapping[str, Any]], T]) -> T:
        """Return what `reader` makes of the JSON. It is kept, so that the same reader reads a row once."""
        last_read = self._last_read
        if last_read is None or last_read[0] is not reader:
            last_read = self._last_read = reader, reader(self.json)
        value: T = last_read[1]
        return value
