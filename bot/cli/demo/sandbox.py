"""`gpu-shopper sandbox`: serve a copy of every cloud's API on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import nullcontext

import typer

from bot import logs
from bot.cli.access.settings import console, fail
from bot.cli.demo.scratch_folder import scratch_folder
from bot.clock import SystemClock
from bot.http_server import http
from bot.main import CannotServe, listen, stop_on_signals
from providers.sandbox.clock import SandboxTiming
from providers.sandbox.engine import SandboxCloud
from providers.sandbox.nodes.process_nodes import WARNING, ProcessNodes
from providers.sandbox.sandboxes import sandboxes
from providers.sandbox.server import build_app


def sandbox(
    port: int = typer.Option(8090, help="Port on 127.0.0.1; 0 takes a free one."),
    quick: bool = typer.Option(False, "--quick", help="Boot within seconds and without rate limits."),
    seed: int = typer.Option(7, help="The same seed gives the same market."),
    bad_rows: bool = typer.Option(False, "--bad-rows", help="Add offers without a usable price, as markets have had."),
    real_nodes: bool = typer.Option(False, "--real-nodes", help=f"Run machines as real processes. {WARNING}"),
) -> None:
    """Serve all sandbox clouds on one port, each under its own prefix, until Ctrl-C."""
    logs.configure(level="info", json=False)
    try:
        timing = SandboxTiming.quick() if quick else SandboxTiming()
        with scratch_folder() if real_nodes else nullcontext() as folder:
            processes = ProcessNodes(folder / "nodes") if folder is not None else None
            asyncio.run(serve_until(None, port, seed, timing, bad_rows=bad_rows, processes=processes))
    except CannotServe as error:
        fail(f"{error} or give --port 0")


async def serve_until(
    stopping: asyncio.Event | None,
    port: int,
    seed: int,
    timing: SandboxTiming,
    *,
    bad_rows: bool = False,
    processes: ProcessNodes | None = None,
) -> None:
    """Serve until the event is set, or without one until Ctrl-C; raises `CannotServe` when the port is taken."""
    stopping = stopping or stop_on_signals()
    clouds = sandboxes(SystemClock(), timing, seed, bad_rows=bad_rows, processes=processes)
    with listen("127.0.0.1", port) as listening:
        async with http(build_app(clouds), listening, lifespan="on", date_header=False):
            _explain(f"http://127.0.0.1:{listening.getsockname()[1]}", clouds, processes)
            await stopping.wait()


def _explain(base: str, clouds: Mapping[str, SandboxCloud], processes: ProcessNodes | None) -> None:
    out = console()
    if processes is not None:
        out.print(f"{processes.explained()}\n", markup=False, highlight=False)
    out.print(f"Sandbox clouds on {base}; controls (faults, clock, truth) under {base}/_sandbox/\n")
    out.print("Point GPU Shopper and the clouds' own clients at it with:")
    for name, cloud in clouds.items():
        out.print(f"\n# {name}")
        for variable, value in cloud.environment(f"{base}/{name}").items():
            out.print(f"export {variable}={value}")
    out.print("\nCtrl-C stops it; everything in it is forgotten then.")
