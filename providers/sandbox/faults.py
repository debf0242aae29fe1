"""Faults that a test or the demo arms: what each does, which calls it refuses or spoils, and the reply that is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from providers.sandbox.machines import FLAWS

#: An answer, or what makes one from the parameters of an armed fault, `group` and `now` of the call, and a create's
#: `offer` or `ref`.
Answer = Response | Callable[[Mapping[str, Any]], Response]


class LostReply(Response):
    """The work is done and the reply never arrives whole: headers, half a body, then the socket is closed."""

    def __init__(self, status_code: int = 200) -> None:
        super().__init__(b"", status_code)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Promise 512 bytes, send one, and return: the server has to close the connection."""
        headers = [(b"content-type", b"application/json"), (b"content-length", b"512")]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": b"{", "more_body": True})


def answered(answer: Answer, **given: Any) -> Response:
    """The answer itself, or the one that is made of what is given."""
    return answer if isinstance(answer, Response) else answer(given)


def html(text: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A page where JSON is expected, as gateways send it."""
    return PlainTextResponse(f"<html>{text}</html>", status, headers, media_type="text/html")


def too_often(body: Any, page: str, default_s: int) -> Callable[[Mapping[str, Any]], Response]:
    """A 429 of which neither body nor headers are documented [form=json|html, retry_after (null: no such header)]."""

    def answer(given: Mapping[str, Any]) -> Response:
        after_s = given.get("retry_after", default_s)
        headers = {} if after_s is None else {"Retry-After": str(after_s)}
        return html(page, 429, headers) if given.get("form") == "html" else JSONResponse(body, 429, headers)

    return answer


#: What something in between says while the cloud is down, and what is no JSON at all.
UNAVAILABLE = html("503 Service Temporarily Unavailable", 503)
GARBAGE = PlainTextResponse("<html>hello</html>")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: its name, one sentence on what it does, and where it bites.

    `create` is the error class that an adapter's create must raise under it, or "ok"; "" where it concerns no create.
    With `refuses` a call is answered so before anything is done, with `spoils` after everything was done. Which calls:
    those of the group `calls`, which is the first word of the name unless given; "*" stands for every call. A fault
    without both is asked for by the cloud's own code.
    """

    name: str
    does: str
    create: str = ""
    refuses: Answer | None = None
    spoils: Answer | None = None
    calls: str = ""

    def bites(self, group: str) -> bool:
        """Whether it refuses or spoils the calls of this group."""
        return (self.calls or self.name.partition("_")[0]) in {"*", group}


def per_group(groups: Iterable[str], kind: str, does: str, refuses: Answer, create: str) -> tuple[Fault, ...]:
    """The same refusal for each group of calls: `get_503`, `list_503`. `create` is what it means for a create."""
    return tuple(
        Fault(f"{group}_{kind}", f"{group}: {does}", create if group == "create" else "", refuses) for group in groups
    )


#: Faults that every sandbox has, under this name or as an alias, so that one test can run on all of
#: them. A cloud adds its own beside these. Parameters are in brackets.
COMMON_FAULTS: Mapping[str, Fault] = {
    fault.name: fault
    for fault in (
        Fault(
            "create_lost_reply",
            "the instance is made and the reply never arrives",
            "OutcomeUnknown",
            spoils=LostReply(),
        ),
        Fault("create_503_after", "the instance is made and the answer is 503", "OutcomeUnknown"),
        Fault(
            "create_lands_late",
            "the reply is lost and the instance appears only `after_s` later [after_s=200]",
            "OutcomeUnknown",
        ),
        Fault("create_stale_offer", "the offer is gone", "NoCapacity"),
        Fault("create_429", "a documented refusal for calling too often [retry_after]", "RateLimited"),
        Fault("create_no_credit", "the account cannot pay", "InsufficientFunds"),
        Fault("create_auth", "the key is refused", "AuthFailed"),
        Fault("create_list_lag", "the new instance stays out of listings for a while [after_s=60]", "ok"),
        Fault("search_503", "a search answers 503"),
        Fault("get_503", "reading one instance answers 503"),
        Fault("list_503", "a page of the listing answers 503"),
        Fault("price_higher_than_quoted", "the new instance bills more than the offer said [factor=1.5]", "ok"),
        Fault("never_boots", "the new instance stays in its first status for ever", "ok"),
        Fault("running_before_reachable", "the new instance says running long before SSH answers [after_s=120]", "ok"),
        Fault("destroy_429", "a destroy is refused for calling too often"),
        Fault("destroy_not_done", "a destroy is acknowledged and does not happen"),
        *(Fault(flaw, does) for flaw, does in FLAWS.items()),
    )
}


#: Faults of several clouds: nothing is made, and an adapter that sends its create again makes two.
LOST_REQUEST = Fault(
    "create_lost_request", "the connection drops before anything is made", "OutcomeUnknown", LostReply()
)
REDIRECT = Fault(
    "create_redirect",
    "a 308 that nobody should follow with a create",
    "OutcomeUnknown",
    Response(status_code=308, headers={"Location": "/elsewhere"}),
)


def common(name: str, *, refuses: Answer | None = None, spoils: Answer | None = None) -> Fault:
    """A common fault with a cloud's own answer."""
    return replace(COMMON_FAULTS[name], refuses=refuses, spoils=spoils)


#: Disturbances of a price → what it is multiplied by.
DEARER: Mapping[str, Decimal] = {"dearer": Decimal("1.2"), "much_dearer": Decimal("1.6")}
#: Common faults that exist only where there is SSH, and only where something is paid.
SSH_FAULTS = frozenset({"running_before_reachable", *FLAWS})
PRICE_FAULTS = frozenset({"price_higher_than_quoted"})


class FaultTable(dict[str, Fault]):
    """A cloud's faults by name: the common ones, and its own, which take the place of a common one of the same name.

    `aliases` names the common faults that this cloud calls differently; `lacks` those that it cannot have.
    """

    def __init__(self, *faults: Fault, aliases: Mapping[str, str] | None = None, lacks: Iterable[str] = ()) -> None:
        self.aliases: Mapping[str, str] = aliases or {}
        absent = {*self.aliases, *lacks}
        super().__init__({name: fault for name, fault in COMMON_FAULTS.items() if name not in absent})
        self.update({fault.name: fault for fault in faults})

    @property
    def sentences(self) -> dict[str, str]:
        """Name → what it does."""
        return {name: fault.does for name, fault in self.items()}

    @property
    def creates(self) -> dict[str, str]:
        """Fault of the create call → the error class that an adapter must raise, or "ok"."""
        return {name: fault.create for name, fault in self.items() if fault.create}

    def answer(self, name: str, **given: Any) -> Response:
        """What a call is answered under a fault that refuses it. KeyError for a fault that does not."""
        refuses = self[name].refuses
        if refuses is None:
            raise KeyError(name)
        return answered(refuses, **given)

    def own_name(self, name: str) -> str:
        return self.aliases.get(name, name)


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
        self._tables: dict[str, FaultTable] = {}
        self._armed: dict[str, list[ArmedFault]] = {}
        self.bitten: list[tuple[str, str]] = []

    def declare(self, cloud: str, table: FaultTable) -> None:
        self._tables[cloud] = table

    def arm(self, cloud: str, name: str, times: int | None = 1, *, skip: int = 0, **params: Any) -> None:
        """Let `name` bite the next `times` calls it applies to. ValueError names the known ones when it is unknown."""
        table = self._tables.get(cloud)
        name = table.own_name(name) if table is not None else name
        if table is None or name not in table:
            known = ", ".join(sorted(table or ())) or "none: no such cloud"
            raise ValueError(f"{cloud!r} has no fault {name!r}; it has: {known}")
        self._armed.setdefault(cloud, []).append(ArmedFault(name, times, skip, params))

    def disarm(self, cloud: str | None = None, name: str | None = None) -> None:
        """Forget what is armed, for one cloud or for all; with `name`, that fault only."""
        if cloud is None:
            self._armed.clear()
            return
        armed = self._armed.pop(cloud, [])
        if name is not None:
            own = self._tables[cloud].own_name(name)
            self._armed[cloud] = [one for one in armed if one.name != own]

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
        return tuple(self._armed.get(cloud, []))
