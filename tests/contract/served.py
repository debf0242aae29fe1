"""Every registered cloud's sandbox behind one real uvicorn, and an adapter that speaks HTTP to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from ledger.kernel.grant import Grant, GrantKind
from providers.capabilities import Capabilities
from providers.contract import InstanceSpec, InstanceStatus, NotSeen, ObservedInstance, Offer, Provider
from providers.gpus.constraint import GpuConstraint
from providers.rate_limits import LocalPacer, Pacer
from providers.registry import ProviderEntry
from providers.sandbox.clock import SandboxTiming
from providers.sandbox.engine import CreateCall, Engine, SandboxCloud, TrueInstance
from providers.sandbox.sandboxes import SANDBOXES, sandboxes
from providers.sandbox.server import build_app
from tests.contract.recorder import Recorder
from tests.support.clock import SteppedClock
from tests.support.serving import serving as served

DISK_GB = 40
LABEL = "ab12-0123456789abcdef-01-mac0mac0ma"
NAME = f"contract-{LABEL}"
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ3c0ntr4ctSu1teKeyAAAAAAAAAAAAAAAAAAAAA ada@example"
ENV_SECRET = "swordfish-env-secret"
#: Longer than any lag, boot or stop of the quick timing.
SETTLE_S = 30.0
#: Longer than the sandboxes' programs work.
PROGRAM_S = 1000.0
#: A second name under the same label.
OTHER = f"other-{LABEL}"


@dataclass(frozen=True, slots=True)
class Clouds:
    """The running server: its URL, the clock that everything reads, and the sandboxes."""

    url: str
    clock: SteppedClock
    engine: Engine
    sandboxes: dict[str, SandboxCloud]
    recorder: Recorder


@asynccontextmanager
async def serving() -> AsyncIterator[Clouds]:
    """All sandboxes of the registry on one port of 127.0.0.1."""
    clock = SteppedClock()
    clouds = sandboxes(clock, SandboxTiming.quick(), bad_rows=True)
    engine = next(iter(clouds.values())).engine
    recorder = Recorder(build_app(clouds, tick_s=None), engine)
    async with served(recorder) as url:
        yield Clouds(url, clock, engine, clouds, recorder)


def unpaced(clock: SteppedClock) -> LocalPacer:
    """Turns without waiting: the sandboxes count no calls unless a test says so, and waiting would move their time."""
    return LocalPacer(clock, 0)


@dataclass(frozen=True, slots=True)
class Bench:
    """One cloud on the bench: the adapter under test and what only a test may know."""

    entry: ProviderEntry
    clouds: Clouds
    provider: Provider
    sandbox: SandboxCloud

    @property
    def engine(self) -> Engine:
        return self.clouds.engine

    @property
    def clock(self) -> SteppedClock:
        return self.clouds.clock

    @property
    def environment(self) -> dict[str, str]:
        return self.sandbox.environment(f"{self.clouds.url}/{self.entry.name}")

    @property
    def one(self) -> GpuConstraint:
        """What this cloud always sells: one GPU of a common kind, or its only size."""
        return GpuConstraint((self.sandbox.STAPLE,), self.sandbox.STAPLE_COUNT, self.sandbox.STAPLE_COUNT)

    @property
    def able(self) -> Capabilities:
        return self.provider.capabilities

    def replica(self, pacer: Pacer | None = None) -> Provider:
        """Another adapter on the same account, as a deployment has it: one that keeps the cloud's limits."""
        return self.entry.connect(self.environment, self.clock, pacer)

    def usable(self, offer: Offer) -> bool:
        """Whether its price is one: zero is a price only where nothing is paid."""
        return offer.price_usd_h is not None and (offer.price_usd_h > 0 or self.able.free)

    def arm(self, fault: str, times: int | None = 1, **params: Any) -> None:
        self.engine.faults.arm(self.entry.name, fault, times, **params)

    def timing(self, **changes: Any) -> None:
        """Another timing for the rest of this test."""
        self.engine.timing = SandboxTiming.quick(**changes)

    def step(self, seconds: float = SETTLE_S) -> None:
        """Let sandbox and adapter time pass."""
        self.clock.advance(seconds)

    def truth(self) -> list[TrueInstance]:
        return self.sandbox.instances()

    def alive(self) -> list[TrueInstance]:
        return [i for i in self.truth() if i.alive]

    def besides(self) -> dict[str, list[Any]]:
        """What the account holds besides instances, of every kind that these clouds have."""
        account = getattr(self.sandbox, "account", None)
        kinds = ("ssh_keys", "secrets", "network_volumes", "file_systems")
        return {kind: list(held) for kind in kinds if (held := getattr(account, kind, None)) is not None}

    def creates(self) -> list[CreateCall]:
        return [c for c in self.engine.creates if c.cloud == self.entry.name]

    async def offer(self) -> Offer:
        """The cheapest on-demand offer of such a GPU with a usable price."""
        found = await self.provider.offers(self.one, disk_gb=DISK_GB, spot=False)
        return min(filter(self.usable, found), key=lambda o: o.price_usd_h or Decimal(0))

    def spec(self, offer: Offer, name: str = NAME) -> InstanceSpec:
        return InstanceSpec(
            name=name,
            offer=offer,
            image="pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime",
            disk_gb=DISK_GB,
            public_keys=(PUBLIC_KEY,),
            env={"TOKEN": ENV_SECRET},
            onstart="echo started",
            min_cuda=Decimal("12.8"),
        )

    def grant(self, name: str = NAME) -> Grant:
        now = self.clock.now()
        return Grant(
            id="gr_1",
            request_id="rq_1",
            kind=GrantKind.CREATE,
            label=name,
            price_cap_usd_h=Decimal(10),
            total_cap_usd=Decimal(40),
            hours=Decimal(4),
            until=now + timedelta(hours=4),
        )

    async def create(self, name: str = NAME) -> ObservedInstance:
        return await self.provider.create(self.spec(await self.offer(), name), self.grant(name))

    async def end(self, ref: str) -> None:
        """Bring it to its end: by a call, or where there is none by waiting for the program's own."""
        if self.able.terminate:
            await self.provider.terminate(ref)
        else:
            self.step(PROGRAM_S)

    async def seen(self, ref: str) -> ObservedInstance:
        """What `get` says; fails the test when it says nothing."""
        found = await self.provider.get(ref)
        assert not isinstance(found, NotSeen), f"{ref} is not seen"
        return found

    async def running(self, name: str = NAME) -> ObservedInstance:
        """A created instance that has come up."""
        made = await self.create(name)
        self.step()
        found = await self.seen(made.ref)
        assert found.status is InstanceStatus.RUNNING
        return found


async def banner(host: str, port: int) -> bytes:
    """The first line that answers there, or b"" when nothing listens."""
    try:
        reader, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return b""
    try:
        return await reader.readline()
    finally:
        writer.close()
        await writer.wait_closed()


def fault_cases() -> list[tuple[str, str, str]]:
    """(cloud, fault of a create, expected error class or "ok") for every cloud of the registry."""
    return [
        (name, fault, expected)
        for name, sandbox in SANDBOXES.items()
        for fault, expected in sandbox.FAULTS.creates.items()
    ]
