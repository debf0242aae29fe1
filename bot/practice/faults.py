"""Faults that a test or the demo can order: the ways in which the real platform and the network misbehave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

API_KINDS: Final = ("lose_reply", "http_500", "rate_limited", "error", "delay")
DELIVERY_KINDS: Final = ("duplicate", "late", "reorder", "lose")


@dataclass(slots=True)
class SlackFault:
    """One ordered fault.

    `where` is `api` or `delivery`; `name` is a Web API method, a kind of delivery (`slash_commands`, `block_actions`,
    `view_submission`, `view_closed`, `event`), or `*`. `kind` is one of:
    api: `lose_reply` (the effect happens, the reply never arrives), `http_500` (no effect), `rate_limited` (429 with
    `seconds` as Retry-After), `error` (answers `error`), `delay` (waits `seconds` first);
    delivery: `duplicate` (sent twice), `late` (sent after `seconds`), `reorder` (sent after the next one),
    `lose` (never sent; the person sees a time-out).
    """

    where: str
    name: str
    kind: str
    times: int = 1
    seconds: float = 1.0
    error: str = "internal_error"

    def __post_init__(self) -> None:
        allowed = {"api": API_KINDS, "delivery": DELIVERY_KINDS}.get(self.where)
        if allowed is None:
            raise ValueError(f"a fault happens at api or delivery, not at {self.where!r}")
        if self.kind not in allowed:
            raise ValueError(f"no {self.where} fault is called {self.kind!r}: use one of {', '.join(allowed)}")


class FaultPlan:
    """The ordered faults that have not happened yet."""

    def __init__(self) -> None:
        self._faults: list[SlackFault] = []

    def add(self, fault: SlackFault) -> None:
        """Order a fault; it happens `times` times."""
        self._faults.append(fault)

    def clear(self) -> None:
        """Forget every fault that has not happened."""
        self._faults.clear()

    def take(self, where: str, name: str) -> SlackFault | None:
        """The fault that happens to this call, used up by one."""
        for fault in self._faults:
            if fault.where == where and fault.name in {name, "*"} and fault.times > 0:
                fault.times -= 1
                return fault
        return None
