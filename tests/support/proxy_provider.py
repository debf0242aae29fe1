"""An adapter with something in front of one of its calls: a process that dies, or a call that takes its time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from ledger.kernel.grant import Grant
from providers.capabilities import Capabilities
from providers.contract import InstanceSpec, Listing, ObservedInstance, Provider


class InFront:
    """Everything that is not replaced goes to the real adapter."""

    def __init__(self, inner: Provider) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Hiding(InFront):
    """A cloud whose listings leave everything out."""

    async def list(self) -> Listing:
        return replace(await self.inner.list(), items=())


class Silent(InFront):
    """A cloud that never says what it charged."""

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.inner.capabilities, charges=False)


class _Dying(InFront):
    def __init__(self, inner: Provider, *, after: bool) -> None:
        super().__init__(inner)
        self._after = after

    async def create(self, spec: InstanceSpec, grant: Grant) -> ObservedInstance:
        if self._after:
            await self.inner.create(spec, grant)
        raise asyncio.CancelledError


class Gate(InFront):
    """Creates wait at `entered` until `go` is set, before anything is sent."""

    def __init__(self, inner: Provider) -> None:
        super().__init__(inner)
        self.entered = asyncio.Event()
        self.go = asyncio.Event()

    async def create(self, spec: InstanceSpec, grant: Grant) -> ObservedInstance:
        self.entered.set()
        await self.go.wait()
        return await self.inner.create(spec, grant)


class Noting(InFront):
    """Keeps what was sent with each create."""

    def __init__(self, inner: Provider) -> None:
        super().__init__(inner)
        self.specs: list[InstanceSpec] = []

    async def create(self, spec: InstanceSpec, grant: Grant) -> ObservedInstance:
        self.specs.append(spec)
        return await self.inner.create(spec, grant)


def noting(provider: Provider) -> Provider:
    """Put a `Noting` in front of an adapter."""
    return cast("Provider", Noting(provider))


def dying(*, after: bool) -> Callable[[Provider], Provider]:
    """The process ends at the create: before its request leaves, or `after` the cloud has done the work."""
    return lambda inner: cast("Provider", _Dying(inner, after=after))


def alive(provider: Provider) -> Provider:
    """The adapter itself again, as a restarted process has it."""
    return cast("InFront", provider).inner


def gated(provider: Provider) -> Provider:
    """Put a `Gate` in front of an adapter."""
    return cast("Provider", Gate(provider))
