"""`gpu-shopper session`: what can be done with one session, judged and recorded as at every other door."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Awaitable, Callable

import typer

from bot.cli.shared import explained, fail, private_umask, settings
from bot.clock import SystemClock
from bot.rules.approval import DeciderFacts
from bot.rules.grammar_words import KEYS, BadWord
from bot.rules.switching import Order
from bot.services import extending, sessions, switching
from bot.services.commands import Done, Extend, Reply, Switch, Terminate
from bot.services.context import Context
from bot.wiring import build_context, close
from ledger.values import Actor, ActorKind, new_id

app = typer.Typer(no_args_is_help=True, add_completion=False, help="One session: extend, done, terminate.")

SESSION = typer.Argument(help="The id of a session or of its request, or the end of one.")
REASON = typer.Option("", help="Why, for those who decide and for the journal.")


def _operator() -> DeciderFacts:
    """Whoever is logged in here. What they may do is up to the policy, as for everybody."""
    return DeciderFacts(Actor(ActorKind.OPERATOR, getpass.getuser()))


def _answered(step: Callable[[Context], Awaitable[Reply]]) -> None:
    """Run one use-case on the ledger and print its sentence; a refusal ends the program with 1."""
    private_umask()

    async def within() -> Reply:
        ctx = build_context(settings(), SystemClock())
        try:
            return await step(ctx)
        finally:
            await close(ctx)

    with explained():
        reply = asyncio.run(within())
    if not reply.ok:
        fail(reply.sentence)
    typer.echo(reply.sentence)


@app.command()
def extend(
    session: str = SESSION, more: str = typer.Argument(help="How much more: 2h, 90m."), reason: str = REASON
) -> None:
    """Ask for more time. What was approved already is taken at once; the rest is decided like every spend."""

    async def step(ctx: Context) -> Reply:
        try:
            hours = KEYS["hours"].read(more, ctx.policy)["hours"]
        except BadWord as error:
            return Reply(False, "bad_word", str(error))
        key = f"cli/{new_id('req', ctx.clock.now())}"
        return await extending.extend(ctx, Extend(key, session, hours, _operator(), reason))

    _answered(step)


@app.command()
def done(
    session: str = SESSION,
    failed: bool = typer.Option(False, "--failed", help="The work did not succeed."),
    preserve: bool = typer.Option(False, "--preserve", help="Stop it instead, and keep its disk until its end."),
) -> None:
    """Say that the work is done, which ends the session."""
    _answered(lambda ctx: sessions.done(ctx, Done(session, _operator(), succeeded=not failed, preserve=preserve)))


@app.command()
def stop(session: str = SESSION) -> None:
    """Stop its machine, where that saves money; the disk stays."""
    _answered(lambda ctx: switching.switch(ctx, Switch(session, _operator(), Order.STOP)))


@app.command()
def start(session: str = SESSION) -> None:
    """Start its stopped machine."""
    _answered(lambda ctx: switching.switch(ctx, Switch(session, _operator(), Order.START)))


@app.command()
def restart(session: str = SESSION) -> None:
    """Restart its machine in place."""
    _answered(lambda ctx: switching.switch(ctx, Switch(session, _operator(), Order.RESTART)))


@app.command()
def terminate(session: str = SESSION, reason: str = REASON) -> None:
    """End the session now."""
    _answered(lambda ctx: sessions.terminate(ctx, Terminate(session, _operator(), reason)))
