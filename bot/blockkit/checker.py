"""Collect the errors of all checks, and check the small composition objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from bot.blockkit.text import escape, measure

PLAIN: Final = "plain_text"
MRKDWN: Final = "mrkdwn"
ID_MAX: Final = 255
URL_MAX: Final = 3000
CONFIRM_LIMITS: Final = (("title", 100), ("text", 300), ("confirm", 30), ("deny", 30))


class Checker:
    """Collect errors in Slack's wording: `no more than 50 items allowed [json-pointer:/blocks]`."""

    def __init__(self, surface: str) -> None:
        self.surface = surface
        self.errors: list[str] = []
        self.block_ids: set[str] = set()
        self.charts = 0
        self.has_input = False

    def fail(self, what: str, pointer: str) -> None:
        """Add one error."""
        self.errors.append(f"{what} [json-pointer:{pointer}]")

    def mapping(self, value: Any, pointer: str) -> Mapping[str, Any] | None:
        """Return `value` when it is an object; else add an error and return None."""
        if isinstance(value, Mapping):
            return value
        self.fail("must be an object", pointer)
        return None

    def items(self, value: Any, pointer: str, low: int, high: int) -> Iterator[tuple[Any, str]]:
        """Check a list and its length, and return its items with their pointers."""
        if not isinstance(value, list | tuple):
            self.fail("must be an array" if value is not None else "missing required field", pointer)
            return
        if len(value) < low:
            self.fail(f"no fewer than {low} items allowed", pointer)
        if len(value) > high:
            self.fail(f"no more than {high} items allowed", pointer)
        for index, item in enumerate(value):
            yield item, f"{pointer}/{index}"

    def string(self, value: Any, pointer: str, high: int, *, low: int = 1, required: bool = False) -> None:
        """Check a string of `low` to `high` characters; it may be absent unless `required`."""
        if value is None:
            if required:
                self.fail("missing required field", pointer)
            return
        if not isinstance(value, str):
            self.fail("must be a string", pointer)
            return
        length = measure(value)
        if length < low:
            self.fail(f"must be more than {low - 1} characters", pointer)
        if length > high:
            self.fail(f"must be less than {high + 1} characters", pointer)
        if any(0xD800 <= ord(character) <= 0xDFFF for character in value):
            self.fail("must be valid text, without lone surrogates", pointer)

    def choice(self, value: Any, pointer: str, allowed: tuple[str, ...]) -> None:
        """Check that a value is one of a few words; it may be absent."""
        if value is not None and value not in allowed:
            self.fail(f"must be one of {', '.join(allowed)}", pointer)

    def number(self, value: Any, pointer: str, low: int, high: int) -> None:
        """Check an integer within a range; it may be absent."""
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.fail(f"must be an integer from {low} to {high}", pointer)

    def text(
        self, value: Any, pointer: str, high: int, *, only: str | None = None, low: int = 1, required: bool = True
    ) -> None:
        """Check a text object. Slack escapes plain_text itself and counts afterwards, and so does this check."""
        if value is None:
            if required:
                self.fail("missing required field", pointer)
            return
        found = self.mapping(value, pointer)
        if found is None:
            return
        kind = found.get("type")
        if kind not in {PLAIN, MRKDWN} or (only is not None and kind != only):
            self.fail(f"must be a {only or 'plain_text or mrkdwn'} object", f"{pointer}/type")
            return
        words = found.get("text")
        if kind == PLAIN and isinstance(words, str):
            words = escape(_unescaped(words))
        self.string(words, f"{pointer}/text", high, low=low, required=True)

    def confirm(self, value: Any, pointer: str) -> None:
        """Check a confirmation dialog; it may be absent."""
        if value is None or (found := self.mapping(value, pointer)) is None:
            return
        for key, high in CONFIRM_LIMITS:
            only = None if key == "text" else PLAIN
            self.text(found.get(key), f"{pointer}/{key}", high, only=only, required=key in {"title", "text"})

    def url(self, value: Any, pointer: str, *, required: bool = False) -> None:
        """Check an http or https address of at most 3000 characters."""
        self.string(value, pointer, URL_MAX, required=required)
        if isinstance(value, str) and not value.startswith(("http://", "https://")):
            self.fail("must be an http or https URL", pointer)


def _unescaped(text: str) -> str:
    # A sender may already have escaped plain text; counting `&amp;` as `&amp;amp;` would refuse what Slack accepts.
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
