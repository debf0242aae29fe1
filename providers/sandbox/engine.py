"""What all sandboxes share: the engine that they run in, and the truth about what was really rented.

How a cloud plugs in
--------------------
1. Subclass `ApiSandbox` (`providers/sandbox/api.py`) in `providers/sandbox/<name>`; set `name`, `API_KEY`, `FAULTS`
   (a `FaultTable`) and `DISTURBANCES`. The base counts calls, refuses keys, and bites with the faults of the table.
2. `routes()` returns Starlette routes with the cloud's own paths. `build_app` mounts them under `/<name>`, records
   every call in `engine.calls`, and ticks the cloud before each request.
3. State is computed from `engine.clock.now()` when somebody asks: an instance has a `Timeline` of status words
   and its `BilledTime`, never a timer. The account holds the instances and says which of them the API shows; both are
   in `providers/sandbox/account.py`.
4. `ordered()` tells the name and the offer of a create call, which is noted whatever happens then; `committed()` tells
   what it made. So a test can prove that one adapter call became one request.
5. A fault without an answer of its own is asked for where it bites: `params = self.fault("never_boots")`; a mapping
   when it is armed for this call (its use is counted), None otherwise.
6. SSH: `ssh_ports.reserve(key)` gives the port to report; `reachable()` names the keys that must answer now. `tick`
   opens and closes the listeners to match, on every request and a few times a second while the app runs. `inside()`
   says which GPUs a machine has and which keys log in to it.
7. `instances()` tells the truth about every instance ever made, dead ones included, with billed seconds and dollars.
8. Market data come from `engine.random(name)`, a generator seeded by the engine's seed and the cloud's name.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar

from starlette.routing import BaseRoute

from ledger.kernel.clock import Clock
from providers.sandbox.agents import Nodes
from providers.sandbox.clock import SandboxClock, SandboxTiming
from providers.sandbox.faults import Faults, FaultTable
from providers.sandbox.machines import Flaw, SandboxMachine
from providers.sandbox.nodes.boot import NodeBoot
from providers.sandbox.nodes.process_nodes import ProcessNodes
from providers.sandbox.ssh import SshPorts

CALLS_KEPT = 20_000


@dataclass(slots=True)
class CreateCall:
    """One create request that reached a sandbox. `outcome`: refused, committed, or pending (lands later)."""

    cloud: str
    at: datetime
    name: str | None
    offer: str
    outcome: str = "refused"
    ref: str | None = None
    #: The HTTP status that the cloud answered, and after how many seconds it asked to come again; 0: it did not say.
    status: int = 0
    retry_after_s: float = 0.0


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

    def __init__(
        self,
        clock: Clock,
        timing: SandboxTiming | None = None,
        seed: int = 7,
        *,
        bad_rows: bool = False,
        processes: ProcessNodes | None = None,
    ) -> None:
        """`bad_rows` puts offers without a usable price on the markets, as real ones have had them.

        With `processes` machines are real processes; without, this process answers for them and runs nothing.
        """
        self.clock = SandboxClock(clock)
        self.timing = timing or SandboxTiming()
        self.seed = seed
        self.bad_rows = bad_rows
        self.faults = Faults()
        self.ssh_ports = SshPorts()
        self.nodes = Nodes(self.clock)
        self.processes = processes
        self.creates: list[CreateCall] = []
        self.calls: deque[Call] = deque(maxlen=CALLS_KEPT)

    def random(self, name: str) -> random.Random:
        """A generator that gives the same market for the same seed and name."""
        return random.Random(f"{self.seed}:{name}")

    def note_create(self, cloud: str, name: str | None, offer: str) -> CreateCall:
        """Record a create request before anything is decided about it; it counts as refused until something is made."""
        call = CreateCall(cloud, self.clock.now(), name, offer)
        self.creates.append(call)
        return call

    def note_call(self, cloud: str, method: str, path: str) -> None:
        self.calls.append(Call(cloud, self.clock.now(), method, path))


class SandboxCloud(ABC):
    """One cloud's HTTP API, served locally. See the module's page for how to write one."""

    name: ClassVar[str]
    #: Every fault that it has.
    FAULTS: ClassVar[FaultTable]
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
        engine.faults.declare(self.name, self.FAULTS)
        self.reset()

    @property
    def now(self) -> datetime:
        return self.engine.clock.now()

    def fault(self, name: str) -> dict[str, Any] | None:
        """The parameters of an armed fault, used up by one, or None. KeyError when this cloud never declared it.

        A common fault may be asked for by its common name.
        """
        own = self.FAULTS.own_name(name)
        return self.engine.faults.take(self.name, self.FAULTS[own].name)

    def fault_value(self, name: str, parameter: str, usual: Any) -> Any:
        """A parameter of an armed fault, used up by one, or its usual value there; None when it is not armed."""
        params = self.fault(name)
        return None if params is None else params.get(parameter, usual)

    def port_key(self, ref: str) -> str:
        """The key of an instance's SSH port in `engine.ssh_ports`."""
        return f"{self.name}/{ref}"

    async def tick(self) -> None:
        """Make the SSH ports and the agents agree with what is reachable now."""
        if self.engine.processes is not None:
            await self.engine.processes.match(f"{self.name}/", self._powered, self.engine.ssh_ports)
            return
        up = self.reachable()
        machines = {self.port_key(ref): partial(self.machine, ref) for ref in up}
        await self.engine.ssh_ports.match(f"{self.name}/", machines)
        ports = {self.port_key(ref): self.engine.ssh_ports.machine(self.port_key(ref)) for ref in up}
        other = {key for key, inside in ports.items() if inside and Flaw.OTHER_HOST_KEY in inside.flaws}
        variables = {self.port_key(ref): self.variables(ref) for ref in up}
        await self.engine.nodes.match(f"{self.name}/", variables, other)

    def _powered(self) -> tuple[dict[str, Callable[[], NodeBoot | None]], set[str]]:
        """What boots each machine that has power, and the keys of all that still exist."""
        boots = {self.port_key(ref): partial(self.boot, ref) for ref in self.reachable()}
        return dict(boots), {self.port_key(one.ref) for one in self.instances() if one.alive}

    def boot(self, ref: str) -> NodeBoot | None:  # Clouds whose machines have some say so.
        """What an instance that just became reachable boots with, as its create call gave it; None: nothing runs."""
        return None

    def machine(self, ref: str) -> SandboxMachine | None:
        """The inside of an instance that just became reachable, with the armed flaws; None: nobody can log in."""
        inside = self.inside(ref)
        found = {flaw: params for flaw in Flaw if inside and (params := self.fault(flaw)) is not None}
        if inside is None or not found:
            return inside
        other = found.get(Flaw.WRONG_GPU, {}).get("gpu", inside.other_gpu)
        return replace(inside, flaws=frozenset(found), other_gpu=str(other))

    def inside(self, ref: str) -> SandboxMachine | None:  # Clouds whose machines have some say so.
        """What is in a reachable machine, as it was really made, and the keys that its create call brought."""
        return None

    def variables(self, ref: str) -> Mapping[str, str]:  # Clouds whose machines have some say so.
        """The environment of a machine that is reachable, as its create call gave it."""
        return {}

    def injected(self, ref: str) -> Mapping[str, str]:
        """What the cloud itself adds to a machine's environment: its id, and a key for itself where it gives one."""
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
