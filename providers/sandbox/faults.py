"""Faults that a test or the demo arms, and the reply that gets lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

#: Faults that every sandbox has, under this name or as an alias, so that one test can run on all of
#: them. A cloud adds its own beside these. Parameters are in brackets.
COMMON_FAULTS: Mapping[str, str] = {
    "create_lost_reply": "the instance is made and the reply never arrives",
    "create_503_after": "the instance is made and the answer is 503",
    "create_lands_late": "the reply is lost and the instance appears only `after_s` later [after_s=200]",
    "create_stale_offer": "the offer is gone",
    "create_429": "a documented refusal for calling too often [retry_after]",
    "create_no_credit": "the account cannot pay",
    "create_auth": "the key is refused",
    "create_list_lag": "the new instance stays out of listings for a while [after_s=60]",
    "search_503": "a search answers 503",
    "get_503": "reading one instance answers 503",
    "list_503": "a page of the listing answers 503",
    "price_higher_than_quoted": "the new instance bills more than the offer said [factor=1.5]",
    "never_boots": "the new instance stays in its first status for ever",
    "running_before_reachable": "the new instance says running long before SSH answers [after_s=120]",
    "destroy_429": "a destroy is refused for calling too often",
    "destroy_not_done": "a destroy is acknowledged and does not happen",
}

#: Common faults that exist only where there is SSH, and only where something is paid.
SSH_FAULTS = frozenset({"running_before_reachable"})
PRICE_FAULTS = frozenset({"price_higher_than_quoted"})


@dataclass(slots=True)
class ArmedFault:
    """A fault that will bite `times` calls (None: every call) after letting `skip` calls pass."""

    name: str
    times: int | None = 1
    skip: int = 0
    params: dict[str, Any] = field(default_factory=dict)


class Faults:
    """Named faults per cloud, switchable per call."""

    def __init__(self) -> None:
        self._known: dict[str, Mapping[str, str]] = {}
        self._aliases: dict[str, Mapping[str, str]] = {}
        self._armed: dict[str, list[ArmedFault]] = {}
        self.bitten: list[tuple[str, str]] = []

    def declare(self, cloud: str, known: Mapping[str, str], aliases: Mapping[str, str]) -> None:
        """The faults a cloud has (name → one sentence), and its own words for common ones (common name → name)."""
        self._known[cloud] = known
        self._aliases[cloud] = aliases

    def known(self, cloud: str) -> Mapping[str, str]:
        """Name → sentence; empty for a cloud that is not here."""
        return self._known.get(cloud, {})

    def arm(self, cloud: str, name: str, times: int | None = 1, *, skip: int = 0, **params: Any) -> None:
        """Let `name` bite the next `times` calls it applies to. ValueError names the known ones when it is unknown."""
        name = self._aliases.get(cloud, {}).get(name, name)
        if name not in self.known(cloud):
            known = ", ".join(sorted(self.known(cloud))) or "none: no such cloud"
            raise ValueError(f"{cloud!r} has no fault {name!r}; it has: {known}")
        self._armed.setdefault(cloud, []).append(ArmedFault(name, times, skip, params))

    def disarm(self, cloud: str | None = None) -> None:
        """Forget what is armed, for one cloud or for all."""
        if cloud is None:
            self._armed.clear()
        else:
            self._armed.pop(cloud, None)

    def take(self, cloud: str, name: str) -> dict[str, Any] | None:
        """The parameters of an armed fault, using it up by one; None when this call is to go well."""
        for fault in self._armed.get(cloud, []):
            if fault.name != name:
                continue
            if fault.skip > 0:
                fault.skip -= 1
                return None
            if fault.times is not None:
                fault.times -= 1
                if fault.times <= 0:
                    self._armed[cloud].remove(fault)
            self.bitten.append((cloud, name))
            return fault.params
        return None

    def armed(self, cloud: str) -> tuple[ArmedFault, ...]:
        """What is still waiting."""
        return tuple(self._armed.get(cloud, []))


class LostReply(Response):
    """The work is done and the reply never arrives whole: headers, half a body, then the socket is closed."""

    def __init__(self, status_code: int = 200) -> None:
        super().__init__(b"", status_code)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Promise 512 bytes, send one, and return: the server has to close the connection."""
        headers = [(b"content-type", b"application/json"), (b"content-length", b"512")]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": b"{", "more_body": True})
