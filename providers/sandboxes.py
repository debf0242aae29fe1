"""Build the sandboxes of the registered clouds; only what runs them imports this module."""

from __future__ import annotations

from collections.abc import Iterable

from ledger.kernel.clock import Clock
from providers.registry import REGISTRY
from providers.sandbox.clock import SandboxTiming
from providers.sandbox.engine import Engine, SandboxCloud
from providers.sandbox.nodes.process_nodes import ProcessNodes


def sandboxes(
    clock: Clock,
    timing: SandboxTiming | None = None,
    seed: int = 7,
    names: Iterable[str] = (),
    *,
    bad_rows: bool = False,
    processes: ProcessNodes | None = None,
) -> dict[str, SandboxCloud]:
    """A sandbox per cloud (all of the registry, or `names`), on one engine: what `build_app` takes."""
    engine = Engine(clock, timing, seed, bad_rows=bad_rows, processes=processes)
    return {name: REGISTRY[name].sandbox(engine) for name in (tuple(names) or tuple(REGISTRY))}
