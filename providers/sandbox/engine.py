"""What all sandboxes share: clock, faults, doors, meters and the truth about what was really rented.

How a cloud plugs in
--------------------
1. Subclass `SandboxCloud` in `providers/sandbox/<name>.py`; set `name`, `FAULTS`, `CREATE_FAULTS`, `API_KEY`.
2. `routes()` returns Starlette routes with the cloud's own paths. `build_app` mounts them under `/<name>`, records
   every call in `engine.calls`, and ticks the cloud before each request.
3. State is computed from `engine.clock.now()` when somebody asks: keep a `Timeline` of status words and a `Meter` of
   prices per instance (`providers/sandbox/timeline.py`), never a timer.
4. A create handler calls `engine.note_create(...)` first, whatever happens then, and sets `outcome` and `ref` on the
   returned record. So a test can prove that one adapter call became one request.
5. A fault is asked for where it bites: `params = self.fault("lost_reply")`; a mapping when it is armed for this call
   (its use is counted), None otherwise. To lose a reply after the commit return `LostReply()`.
6. SSH: `engine.doors.reserve(key)` gives the port to report; `reachable()` names the keys that must answer now. `tick`
   opens and closes the listeners to match, on every request and a few times a second while the app runs.
7. `instances()` tells the truth about every instance ever made, dead ones included, with billed seconds and dollars.
8. Market data come from `engine.random(name)`, a generator seeded by the engine's seed and the cloud's name.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar

from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from ledger.values import Clock
from providers.sandbox.doors import SshDoors
from providers.sandbox.nodes import Nodes

CALLS_KEPT = 20_000

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


class SandboxClock:
    """The injected clock plus the seconds that somebody travelled. It only ever goes forward."""

    def __init__(self, base: Clock) -> None:
        self._base = base
        self._offset_s = 0.0

    def now(self) -> datetime:
        """Aware UTC."""
        return self._base.now() + timedelta(seconds=self._offset_s)

    def monotonic(self) -> float:
        """Seconds."""
        return self._base.monotonic() + self._offset_s

    async def sleep(self, seconds: float) -> None:
        """Seconds of the base clock."""
        await self._base.sleep(seconds)

    def travel(self, seconds: float) -> None:
        """Move the sandbox ahead by `seconds`; ValueError when negative, because bills cannot be unwritten."""
        if seconds < 0:
            raise ValueError("the sandbox clock only goes forward: give zero or more seconds")
        self._offset_s += seconds


@dataclass(frozen=True, slots=True)
class SandboxTiming:
    """How slow the cloud is, in seconds of the sandbox clock. The defaults are realistic; `quick` is for a demo.

    `get_lag_s` and `list_lag_s`: from a create to the first sight by id and in a listing. `boot_s`: to *running*.
    `reachable_s`: from running to the first SSH answer. `destroy_s`: from the acknowledged destroy to absence.
    `charges_lag_s`: how late the cloud's own bill is.
    """

    get_lag_s: float = 2.0
    list_lag_s: float = 5.0
    boot_s: float = 120.0
    reachable_s: float = 8.0
    stop_s: float = 5.0
    start_s: float = 40.0
    destroy_s: float = 3.0
    charges_lag_s: float = 600.0
    enforce_rate_limits: bool = True

    @classmethod
    def quick(cls, **changes: Any) -> SandboxTiming:
        """Everything within a few seconds, without rate limits: for `demo` and for tests."""
        base = cls(
            get_lag_s=0.0,
            list_lag_s=0.0,
            boot_s=3.0,
            reachable_s=0.5,
            stop_s=0.5,
            start_s=1.5,
            destroy_s=0.5,
            charges_lag_s=0.0,
            enforce_rate_limits=False,
        )
        return replace(base, **changes)


# ── faults ───────────────────────────────────────────────────────────────────────────────────────


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


# ── the truth ────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class CreateCall:
    """One create request that reached a sandbox. `outcome`: received, refused, committed, or pending (lands later)."""

    cloud: str
    at: datetime
    name: str | None
    offer: str
    outcome: str = "received"
    ref: str | None = None


@dataclass(frozen=True, slots=True)
class TrueInstance:
    """What exists, or existed, whatever the API says. Money in dollars, `gpu_s` = billed GPU seconds."""

    cloud: str
    ref: str
    name: str | None
    status: str
    gpu: str
    gpu_count: int
    created_at: datetime
    ended_at: datetime | None
    gpu_s: Decimal
    gpu_usd: Decimal
    storage_usd: Decimal

    @property
    def total_usd(self) -> Decimal:
        """The whole bill of this instance so far."""
        return self.gpu_usd + self.storage_usd

    @property
    def alive(self) -> bool:
        """True while it can still cost money."""
        return self.ended_at is None


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request that reached a sandbox; `path` as it was sent, still percent-encoded."""

    cloud: str
    at: datetime
    method: str
    path: str


class Engine:
    """The common part of the sandboxes of one process. `timing` may be replaced while it runs."""

    def __init__(self, clock: Clock, timing: SandboxTiming | None = None, seed: int = 7) -> None:
        self.clock = SandboxClock(clock)
        self.timing = timing or SandboxTiming()
        self.seed = seed
        self.faults = Faults()
        self.doors = SshDoors()
        self.nodes = Nodes(self.clock)
        self.creates: list[CreateCall] = []
        self.calls: deque[Call] = deque(maxlen=CALLS_KEPT)

    def random(self, name: str) -> random.Random:
        """A generator that gives the same market for the same seed and name."""
        return random.Random(f"{self.seed}:{name}")

    def note_create(self, cloud: str, name: str | None, offer: str) -> CreateCall:
        """Record a create request before anything is decided about it."""
        call = CreateCall(cloud, self.clock.now(), name, offer)
        self.creates.append(call)
        return call

    def note_call(self, cloud: str, method: str, path: str) -> None:
        """Record any request."""
        self.calls.append(Call(cloud, self.clock.now(), method, path))


class SandboxCloud(ABC):
    """One cloud's HTTP API, served locally. See the module's page for how to write one."""

    name: ClassVar[str]
    #: Every fault: name → one sentence on what it does.
    FAULTS: ClassVar[Mapping[str, str]]
    #: Common fault name → this cloud's own, for those of `COMMON_FAULTS` that it calls differently.
    ALIASES: ClassVar[Mapping[str, str]] = {}
    #: Faults of the create call: name → the error class an adapter must raise, or "ok".
    CREATE_FAULTS: ClassVar[Mapping[str, str]]
    #: What `disturb` can do to an instance from outside: word → one sentence.
    DISTURBANCES: ClassVar[Mapping[str, str]]
    #: The only credential this sandbox accepts.
    API_KEY: ClassVar[str]
    #: A GPU (canonical name) that the seeded market always has alone, at two places or more.
    STAPLE: ClassVar[str] = "RTX4090"
    #: How many of them such an offer holds, and every count that the market ever sells.
    STAPLE_COUNT: ClassVar[int] = 1
    COUNTS: ClassVar[tuple[int, ...]] = (1, 2, 4, 8)
    #: Whether the market has many kinds of GPU, several of them alone.
    VARIED: ClassVar[bool] = True
    #: Whether calling too often is refused while rate limits are enforced.
    PACED: ClassVar[bool] = True
    #: Whether one answer may hold only a part of the market or of the account, so that an adapter has to page.
    PAGED: ClassVar[bool] = True

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        engine.faults.declare(self.name, self.FAULTS, self.ALIASES)
        self.reset()

    @property
    def now(self) -> datetime:
        """The sandbox's time."""
        return self.engine.clock.now()

    def fault(self, name: str) -> dict[str, Any] | None:
        """The parameters of an armed fault, used up by one, or None. KeyError when this cloud never declared it."""
        if name not in self.FAULTS:
            raise KeyError(name)
        return self.engine.faults.take(self.name, name)

    def door(self, ref: str) -> str:
        """The key of an instance's SSH port in `engine.doors`."""
        return f"{self.name}/{ref}"

    async def tick(self) -> None:
        """Make the SSH ports and the agents agree with what is reachable now."""
        up = self.reachable()
        await self.engine.doors.match(f"{self.name}/", [self.door(ref) for ref in up])
        await self.engine.nodes.match(f"{self.name}/", {self.door(ref): self.variables(ref) for ref in up})

    def variables(self, ref: str) -> Mapping[str, str]:  # Clouds whose machines have some say so.
        """The environment of a machine that is reachable, as its create call gave it."""
        return {}

    @abstractmethod
    def environment(self, url: str) -> dict[str, str]:
        """The environment variables that point the adapter and the official client at `url` (this cloud's prefix)."""

    @abstractmethod
    def routes(self) -> list[BaseRoute]:
        """The cloud's own paths."""

    @abstractmethod
    def reachable(self) -> list[str]:
        """The ids of instances whose SSH port must answer now."""

    @abstractmethod
    def instances(self) -> list[TrueInstance]:
        """Everything that was ever made, oldest first, with its bill up to now."""

    @abstractmethod
    def reset(self) -> None:
        """Back to the seeded market and an empty account. Also called once at the start."""

    @abstractmethod
    def reprice(self, key: str, factor: Decimal) -> int:
        """Multiply the price of the offer with the adapter's `key` ("*": all). Returns how many changed."""

    @abstractmethod
    def withdraw(self, key: str) -> int:
        """Take an offer off the market as if somebody else had rented it. Returns how many went."""

    @abstractmethod
    def disturb(self, ref: str, what: str) -> None:
        """Do one of `DISTURBANCES` to an instance. KeyError for an unknown instance or word."""


def truth(engine: Engine, clouds: Iterable[SandboxCloud]) -> dict[str, Any]:
    """Everything a test or a bill comparison needs, as plain JSON; money and seconds are strings."""
    instances = [i for cloud in clouds for i in cloud.instances()]
    return {
        "now": engine.clock.now().isoformat(),
        "instances": [{**_plain(asdict(i)), "alive": i.alive, "total_usd": str(i.total_usd)} for i in instances],
        "creates": [_plain(asdict(c)) for c in engine.creates],
        "alive": sum(i.alive for i in instances),
        "total_usd": str(sum((i.total_usd for i in instances), Decimal(0))),
    }


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _plain_value(v) for k, v in row.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value
