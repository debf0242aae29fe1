"""What stands in the journal, in words: a row's kind is a noun and a verb, such as `instance.moved`."""

from __future__ import annotations

from bot.rules.values.phrases import plural

#: Kinds whose own words would say little.
WORDS = {
    "instance.intended": "instance written down, to be bought",
    "instance.not_switched": "instance not stopped or started",
    "request.unquoted": "request got no offers",
    "request.vote": "request got a vote",
    "request.in_place": "request decided in somebody's place",
    "request.break_glass": "request started without an approval",
    "session.cut": "session's end brought forward",
    "session.uncut": "session's end back where it was",
    "session.trued_up": "session's costs set to the cloud's bill",
    "session.last_call": "session's owner had the last warning",
    "session.ends_early": "session's earlier end announced",
    "spend.drift": "spend left its course",
    "stray.seen": "instance without a row seen",
    "stray.moved": "instance without a row",
}


def happened(kind: str, before: str, after: str) -> str:
    """One event in words: `session queued → provisioning`, `request made (quoting)`."""
    noun, _, verb = kind.partition(".")
    said = WORDS.get(kind, f"{noun} {verb}".strip()).replace("_", " ")
    if before and after:
        return f"{said.removesuffix(' moved')} {before} → {after}"
    state = before or after
    return f"{said} ({state})" if state else said


def whole(events: int, sealed: int) -> str:
    """That nothing was changed, and how much of it is sealed by now."""
    if sealed >= events:
        return f"{plural(events, 'event')}, all sealed; nothing was changed since."
    return f"{plural(events, 'event')}, {sealed} sealed so far; the rest is within minutes. Nothing was changed."
