"""A cloud's refusals as a table: status, error code or words of an answer, and the error that it becomes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from providers.errors import ProviderError, RateLimited


@dataclass(frozen=True, slots=True)
class Row:
    """An answer with one of `statuses`, this error code (None: any) and one of these texts (none: any) is `raises`."""

    statuses: frozenset[int]
    raises: type[ProviderError]
    says: str
    texts: tuple[str, ...] = ()
    code: str | None = None

    def error(self, cloud: str, retry_after_s: float | None, *, subject: str = "", detail: str = "") -> ProviderError:
        """The error of this row: its sentence, with a subject before it and the cloud's own text behind it."""
        message = (f"{subject} " if subject else "") + self.says + (f": {detail}" if detail else "")
        if issubclass(self.raises, RateLimited):
            return self.raises(cloud, message, retry_after_s)
        return self.raises(cloud, message)


def row(
    statuses: int | Iterable[int], raises: type[ProviderError], says: str, *texts: str, code: str | None = None
) -> Row:
    """One row of a table. `texts` are fragments in lower case, of which one must occur."""
    return Row(frozenset([statuses] if isinstance(statuses, int) else statuses), raises, says, texts, code)


def first(rows: Iterable[Row], status: int, *, code: str = "", text: str = "") -> Row | None:
    """The first row that an answer matches."""
    text = text.lower()
    for each in rows:
        said = not each.texts or any(part in text for part in each.texts)
        if status in each.statuses and each.code in {None, code} and said:
            return each
    return None
