"""`gpu-shopper demo`: try everything on this machine, without a cloud's key."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bot import logs
from bot.cli.access.api_client import KEY, URL
from bot.cli.access.settings import console, explained, fail, private_umask
from bot.cli.demo import history
from bot.cli.demo.demo_script import walk
from bot.cli.demo.demo_stack import ADMIN, ALICE, BOB, POLICY, demo_policy, playground
from bot.main import stop_on_signals
from bot.rules.policy.policy import Policy
from bot.services.access.api_keys import NewKey, issue
from bot.services.runtime.context import Context
from bot.settings.policy_file import read_policy_file
from ledger.kernel.actor import Actor, ActorKind
from providers.sandbox.nodes.process_nodes import WARNING

PORT = 8077
#: Long enough to watch a machine boot; nobody watches the headless demo.
BOOT_S, HEADLESS_BOOT_S = 8.0, 2.0
HEADLESS_LIMIT_S = 55.0
#: What a shell says of a program that Ctrl-C ended.
STOPPED = 130
#: The people whose keys are printed: who each is, and what each may try after the export.
WHO: Mapping[str, tuple[str, ...]] = {
    ALICE: ("Alice, who requests:", 'provision 1x4090 2h --reason "from a terminal"'),
    BOB: ("Bob, an approver:", "requests --waiting", "approve ID"),
    ADMIN: ("An administrator, who approves nothing:", "keys list", "orphans list"),
}


def demo(
    headless: bool = typer.Option(
        False, "--headless", help="Play the whole demo by itself; exits with 0 when every step worked."
    ),
    port: int | None = typer.Option(None, help=f"Port of the page on 127.0.0.1 ({PORT}); 0 takes a free one."),
    seed: int = typer.Option(7, help="The same seed gives the same market."),
    empty: bool = typer.Option(False, "--empty", help="Start without the team's two weeks of history."),
    real_nodes: bool = typer.Option(False, "--real-nodes", help=f"Run machines as real processes. {WARNING}"),
    policy: Annotated[
        Path | None, typer.Option(help="A policy file to try; its approvers become Bob and Carol.")
    ] = None,
) -> None:
    """Start a practice workspace, sandbox clouds and the bot in one process; nothing is kept."""
    private_umask()
    logs.configure(level="error", json=False)
    with explained():
        tried = demo_policy(read_policy_file(policy, practice=True, spends=False).policy) if policy else None
    if headless:
        raise typer.Exit(asyncio.run(_headless(seed, tried or POLICY, real_nodes=real_nodes)))
    try:
        asyncio.run(_interactive(port, seed, tried, with_history=not empty, real_nodes=real_nodes))
    except OSError as error:
        fail(f"The page cannot be served: {error}. Try another port: gpu-shopper demo --port 0")


async def _interactive(port: int | None, seed: int, policy: Policy | None, **options: bool) -> None:
    stopping = stop_on_signals()
    try:
        await serve_until(stopping, PORT if port is None else port, seed, policy, **options)
    except OSError:
        if port is not None:
            raise
        await serve_until(stopping, 0, seed, policy, **options)


async def serve_until(
    stopping: asyncio.Event,
    port: int,
    seed: int,
    policy: Policy | None = None,
    *,
    with_history: bool = False,
    real_nodes: bool = False,
) -> None:
    """Serve the page until the event is set; raises OSError when the port is taken.

    `policy` is somebody's own. Without one, the demo has its own, which with a history has a budget and a tier.
    """
    tried = policy or (history.team_policy(POLICY) if with_history else POLICY)
    options = {"with_history": with_history, "real_nodes": real_nodes}
    async with playground(port=port, seed=seed, boot_s=BOOT_S, policy=tried, **options) as running:
        keys = {name: await _key(running.ctx, name, *scopes) for name, *scopes in ((ALICE,), (BOB,), (ADMIN, "admin"))}
        # Copied lines stay in one piece, however narrow the terminal is.
        out = partial(console().print, soft_wrap=True, markup=False, highlight=False)
        if running.explained:
            out(f"\n  {running.explained}")
        out(f"\n  Open {running.url}/\n", style="bold")
        out('  You are Alice. Type:  /gpu provision 1x4090 2h for="a first try"')
        out("  Then become Bob, an approver, and press Approve. Dave can't; the clock can be moved.")
        if with_history:
            out("  The team has two weeks behind it. Try:  /gpu costs   /gpu budget   /gpu list")
        out("")
        out(
            "  The same at other terminals, with keys of this run alone. There operator:alice is the Alice of the page,"
        )
        out("  because the policy links both names (same_person).\n")
        for name, (who, *commands) in WHO.items():
            out(f"  {who}\n")
            out("\n".join([f"export {URL}={running.ctx.node_url} {KEY}={keys[name]}", *map(_program, commands), ""]))
        out(f"  {running.ctx.node_url}/docs  shows the REST API. After one of the exports above:\n")
        out(f'curl -H "Authorization: Bearer ${KEY}" "${URL}/api/v1/inventory?words=4090+US&limit=3"\n')
        out("  Practice only: no credentials, no money, nothing is kept. Ctrl-C ends it.\n")
        renting = asyncio.create_task(history.rent(running.practice.driver)) if with_history else None
        await stopping.wait()
        out("  Stopping.")
        if renting is not None:
            renting.cancel()
            await asyncio.wait({renting})
            if not renting.cancelled() and (problem := renting.exception()) is not None:
                out(f"  Carol's session was not started: {problem}")


async def _key(ctx: Context, name: str, *scopes: str) -> str:
    """Create an API key of one person that outlives every move of the demo's clock."""
    maker = Actor(ActorKind.OPERATOR, "demo")
    made = await issue(ctx, NewKey(name, scopes=scopes), maker)
    return str(made.data["token"])


async def _headless(seed: int, policy: Policy, *, real_nodes: bool) -> int:
    """Play the walk; 130 when a signal stopped it before its end."""
    stopping = stop_on_signals()
    try:
        async with (
            asyncio.timeout(HEADLESS_LIMIT_S),
            playground(port=0, seed=seed, boot_s=HEADLESS_BOOT_S, policy=policy, real_nodes=real_nodes) as running,
        ):
            walking, stop = asyncio.ensure_future(walk(running, console())), asyncio.ensure_future(stopping.wait())
            try:
                await asyncio.wait({walking, stop}, return_when=asyncio.FIRST_COMPLETED)
                if walking.done():
                    return walking.result()
            finally:
                walking.cancel()
                stop.cancel()
                await asyncio.wait({walking, stop})
            console(stderr=True).print("Stopped before the end of the walk.")
            return STOPPED
    except TimeoutError as error:
        console(stderr=True).print(f"The walk did not end in time: {error}", style="red", markup=False)
        return 1


def _program(command: str) -> str:
    """Return a command as it is typed at another terminal: with the program's name, where the shell finds that."""
    name = "gpu-shopper" if shutil.which("gpu-shopper") else str(Path(sys.argv[0]).resolve())
    return f"{name} {command}"
