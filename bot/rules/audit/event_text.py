"""Put events of the journal into words: a row's kind is a noun and a verb, such as `instance.moved`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bot.rules.values.phrases import plural
from bot.rules.values.state_text import words_of
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import GrantState, InstanceState, OrphanState, RequestState, SessionState, State

#: What every audit says at an event that was numbered more than an hour after its own time.
LATE = "recorded late"

_LABELS: dict[str, str] = {kind: kind.label for kind in EventKind}
#: The noun of a kind → whose states its rows hold.
_MACHINES: Final[Mapping[str, type[State]]] = {
    "request": RequestState,
    "grant": GrantState,
    "session": SessionState,
    "instance": InstanceState,
    "stray": OrphanState,
}


def happened(kind: str, before: str, after: str) -> str:
    """Write one event in words: `session launching soon → launching`, `request made (getting offers)`."""
    # An older release may have written a kind that is not used any more.
    said = _LABELS.get(kind, kind.replace(".", " ").replace("_", " "))
    machine = _MACHINES.get(kind.partition(".")[0])
    if machine is not None:
        before, after = (words_of(machine, state) for state in (before, after))
    if before and after:
        return f"{said.removesuffix(' moved')} {before} → {after}"
    state = before or after
    return f"{said} ({state})" if state else said


def whole(events: int, sealed: int) -> str:
    """Say that no event was changed, and how many of them have their hash by now."""
    if sealed >= events:
        return f"{plural(events, 'event')}, all in the hash chain. Nothing was changed."
    return (
        f"{plural(events, 'event')}, {sealed} in the hash chain so far, the rest within minutes. Nothing was changed."
    )
