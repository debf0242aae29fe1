"""Build the sandboxes of the clouds: one line a cloud."""

from __future__ import annotations

from collections.abc import Iterable

from ledger.kernel.clock import Clock
from providers.sandbox.clock import SandboxTiming
from providers.sandbox.engine import Engine, SandboxCloud
from providers.sandbox.kaggle.sandbox import KaggleSandbox
from providers.sandbox.lambda_cloud.sandbox import LambdaSandbox
from providers.sandbox.nodes.process_nodes import ProcessNodes
from providers.sandbox.runpod.sandbox import RunPodSandbox
from providers.sandbox.tensordock.sandbox import TensorDockSandbox
from providers.sandbox.vast.sandbox import VastSandbox

#: name → class, in the order of the registry, which knows nothing of them.
SANDBOXES: dict[str, type[SandboxCloud]] = {
    cloud.name: cloud for cloud in (VastSandbox, RunPodSandbox, LambdaSandbox, TensorDockSandbox, KaggleSandbox)
}


def sandboxes(
    clock: Clock,
    timing: SandboxTiming | None = None,
    seed: int = 7,
    names: Iterable[str] = (),
    *,
    bad_rows: bool = False,
    processes: ProcessNodes | None = None,
) -> dict[str, SandboxCloud]:
    """A sandbox per cloud (all of them, or `names`), on one engine: what `build_app` takes."""
    engine = Engine(clock, timing, seed, bad_rows=bad_rows, processes=processes)
    return {name: SANDBOXES[name](engine) for name in (tuple(names) or tuple(SANDBOXES))}
