"""How a sandbox answers: keys, armed faults, calls that come too often, and else the handler of the call."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, ClassVar, Generic, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from providers.sandbox.account import SandboxAccount
from providers.sandbox.engine import CreateCall, SandboxCloud, TrueInstance
from providers.sandbox.faults import Fault, LostReply, answered

A = TypeVar("A", bound=SandboxAccount[Any])
#: The credit of an account after somebody paid.
PAID_USD = Decimal(100_000)
Handler = Callable[[Request, dict[str, Any]], Awaitable[Response]]
Endpoint = Callable[[Request], Awaitable[Response]]


class Refused(Exception):
    """Ends a call: it is answered with `answer`, and nothing more is done."""

    def __init__(self, answer: Response) -> None:
        super().__init__(answer.status_code)
        self.answer = answer


class RateWindow:
    """At most `most` calls in any `seconds`. Times are seconds of the sandbox's clock."""

    def __init__(self, most: int, seconds: float, name: str = "") -> None:
        self.most, self.seconds, self.name = most, seconds, name
        self._at_s: list[float] = []

    def used(self, now_s: float) -> int:
        """Calls that still count."""
        self._at_s = [at_s for at_s in self._at_s if now_s - at_s < self.seconds]
        return len(self._at_s)

    def opens_s(self, now_s: float) -> float:
        """Seconds until the oldest call counts no more; zero when none does."""
        return self._at_s[0] + self.seconds - now_s if self.used(now_s) else 0.0

    def wait_s(self, now_s: float) -> float:
        """Seconds until the next call is taken; zero when it is taken now."""
        return self.opens_s(now_s) if self.used(now_s) >= self.most else 0.0

    def count(self, now_s: float) -> None:
        self._at_s.append(now_s)


class ApiSandbox(SandboxCloud, Generic[A]):
    """A sandbox whose account is an `A`. The cloud's class says how its account looks and how its answers do."""

    account: A
    #: How far below zero the credit is that is gone; 0 where what is unpaid ends at the moment of zero.
    BROKE_USD: ClassVar[Decimal] = Decimal("0.01")

    # ── what the cloud's own class says ──────────────────────────────────────────────────────────

    def key_refusal(self, request: Request, group: str) -> Response | None:
        """The answer to a missing or wrong key, which is that of the fault of the same kind; None for the right one."""
        right = request.headers.get("authorization") == f"Bearer {self.API_KEY}"
        return None if right else self.FAULTS.answer(f"{group}_auth", group=group)

    @abstractmethod
    def ordered(self, request: Request, body: Mapping[str, Any]) -> tuple[str | None, str]:
        """The name and the offer of a create call."""

    @abstractmethod
    def malformed(self) -> Response:
        """The answer to a body that is not a JSON object."""

    def too_often(self, group: str, window: RateWindow, wait_s: int) -> Response:
        """The answer to a call that comes too soon: that of the fault of the same kind."""
        return self.FAULTS.answer(f"{group}_429", group=group, retry_after=wait_s)

    async def body_of(self, request: Request) -> Any:
        """The parsed body; None when it is not JSON."""
        return await json_of(request)

    def rate_windows(self, group: str) -> Iterable[RateWindow]:
        """The limits that a call of this group counts against."""
        return ()

    def answer_late(self) -> Response:
        """The answer to a create that lands later."""
        return LostReply()

    # ── answering ────────────────────────────────────────────────────────────────────────────────

    def paths(self, table: Iterable[tuple[str, str, str, Handler]]) -> list[Route]:
        """Routes from rows of method, path, group of calls and handler."""
        return [Route(path, self.guarded(group, handler), methods=[method]) for method, path, group, handler in table]

    def guarded(self, group: str, handler: Handler) -> Endpoint:
        """A handler behind everything that may happen before it, and after it."""

        async def endpoint(request: Request) -> Response:
            body = await self.body_of(request)
            sent = body if isinstance(body, dict) else {}
            call = self.engine.note_create(self.name, *self.ordered(request, sent)) if group == "create" else None
            try:
                self.admit(request, group, call)
                if not isinstance(body, dict):
                    raise Refused(self.malformed())
                answer = await handler(request, body)
            except Refused as refused:
                answer = refused.answer
            if call is not None:
                call.status = answer.status_code
                asked = answer.headers.get("Retry-After", "")
                call.retry_after_s = float(asked) if asked.isdecimal() else 0.0
            return self.spoiled(group, answer, call)

        return endpoint

    def admit(self, request: Request, group: str, call: CreateCall | None = None) -> None:
        """Raise `Refused` for a wrong key, an armed fault that refuses the call, and a call too many."""
        if (refusal := self.key_refusal(request, group)) is not None:
            raise Refused(refusal)
        self.refuse(group, call.offer if call else "")
        self.count(group)

    def refuse(self, group: str, offer: str = "") -> None:
        """Raise `Refused` for an armed fault that refuses these calls."""
        for fault in self._armed(group):
            if fault.refuses and (params := self.fault(fault.name)) is not None:
                raise Refused(answered(fault.refuses, **{**params, "group": group, "now": self.now, "offer": offer}))

    def count(self, group: str) -> None:
        """Count a call; raises `Refused` for one too many."""
        if not self.engine.timing.enforce_rate_limits:
            return
        now_s, windows = self.engine.clock.monotonic(), tuple(self.rate_windows(group))
        for window in windows:
            if (wait_s := window.wait_s(now_s)) > 0:
                raise Refused(self.too_often(group, window, max(1, round(wait_s))))
        for window in windows:
            window.count(now_s)

    def spoiled(self, group: str, answer: Response, call: CreateCall | None = None) -> Response:
        """The answer of a handler, or another one while a fault is armed that spoils what was done."""
        done = answer.status_code < 400 if call is None else call.ref is not None
        if call is not None and call.outcome == "pending":
            return self.answer_late()
        for fault in self._armed(group) if done else ():
            if fault.spoils and (params := self.fault(fault.name)) is not None:
                return answered(fault.spoils, **{**params, "ref": call.ref if call else ""})
        return answer

    def _armed(self, group: str) -> list[Fault]:
        """The armed faults that concern these calls, each once."""
        names = dict.fromkeys(armed.name for armed in self.engine.faults.armed(self.name))
        return [self.FAULTS[name] for name in names if self.FAULTS[name].bites(group)]

    # ── creating ─────────────────────────────────────────────────────────────────────────────────

    def lands_in_s(self) -> float:
        """How much later a new instance appears; zero for at once."""
        return float(self.fault_value("create_lands_late", "after_s", 200) or 0)

    def committed(self, ref: Any, lands_in_s: float) -> None:
        """Record what the newest create call made."""
        call = self.engine.creates[-1]
        call.outcome, call.ref = "pending" if lands_in_s else "committed", str(ref)

    # ── the account from outside ─────────────────────────────────────────────────────────────────

    def reachable(self) -> list[str]:
        self.account.settle()
        return [str(one.ref) for one in self.account.living.at(self.now) if one.reachable(self.now)]

    def instances(self) -> list[TrueInstance]:
        self.account.settle()
        now = self.now
        return [one.truth(self.name, now) for one in self.account.instances.values() if one.created_at <= now]

    def disturb(self, ref: str, what: str) -> None:
        if what not in self.DISTURBANCES:
            raise KeyError(what)
        if what == "credit_gone":
            self.account.credit_usd = self.account.spent_usd() - self.BROKE_USD
            self.account.settle()
        elif what == "credit_back":
            self.account.credit_usd = self.account.spent_usd() + PAID_USD
            self.account.settle()
        else:
            self.happen(ref, what)

    @abstractmethod
    def happen(self, ref: str, what: str) -> None:
        """Do one of the cloud's own `DISTURBANCES`. KeyError for an unknown instance."""


def shows(read: Callable[[], Any]) -> Handler:
    """A handler that answers with what `read` gives by then, as JSON."""

    async def handler(_request: Request, _body: dict[str, Any]) -> Response:
        return JSONResponse(read())

    return handler


async def json_of(request: Request) -> Any:
    """The parsed body: empty when there is none, None when it is not JSON."""
    raw = await request.body()
    try:
        return json.loads(raw) if raw else {}
    except ValueError:
        return None
