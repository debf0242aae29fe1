"""`gpu-shopper sessions`, `session`, and the commands that change one session: `extend`, `stop` and others."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from bot.api.schemas.base import Page
from bot.api.schemas.sessions import SessionOut
from bot.cli.access.api_client import ApiClient, spoken
from bot.cli.terminal.options import Columns, IdempotencyKey, Json, Named, Reason, Words, in_words, plain_id
from bot.cli.terminal.screen import agreed, at_terminal, fail
from bot.cli.terminal.terminal_tables import show as print_answer
from bot.cli.terminal.terminal_tables import show_result
from bot.cli.terminal.views import end_question, session_details, session_history, session_list
from bot.rules.grammar.commands import DONE_WORDS
from bot.rules.values.text_table import TextReport
from ledger.kernel.states import ENDABLE_SESSION


class _ShowsByDefault(TyperGroup):
    """Treat `session ID` as `session show ID`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the named subcommand, or `show`."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["show", *args]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_ShowsByDefault, no_args_is_help=True, add_completion=False, help="Show one session, or change it."
)

Ended = Annotated[str, typer.Argument(help="The id, as a list shows it; or an instance, by its id or as vast:123.")]


def sessions(
    everything: Annotated[bool, typer.Option("--all", help="Ended ones, too.")] = False,
    most: Annotated[int, typer.Option(min=1, max=10_000, help="How many at most.")] = 50,
    columns: Columns = "",
    as_json: Json = False,
) -> None:
    """List sessions, the newest first."""
    found = spoken(lambda api: api.pages("/sessions", most, live="false" if everything else "true"))
    print_answer(found if as_json else session_list(Page[SessionOut].model_validate(found).items), columns)


def history(
    most: Annotated[int, typer.Option(min=1, max=10_000, help="How many at most.")] = 50,
    columns: Columns = "",
    as_json: Json = False,
) -> None:
    """List sessions that ended, the newest first: how long they ran, their total, and why they ended."""
    found = spoken(lambda api: api.pages("/sessions", most, ended="true"))
    print_answer(found if as_json else session_history(Page[SessionOut].model_validate(found).items), columns)


@app.command()
def show(session: Named, as_json: Json = False) -> None:
    """Show a session and how to connect."""
    found = spoken(lambda api: api.get(f"/sessions/{plain_id(session, 'sessions')}"))
    print_answer(found if as_json else session_details(SessionOut.model_validate(found)))


@app.command()
def extend(
    session: Named,
    more: Annotated[str, typer.Argument(help="How much more: 2h, 90m.")] = "",
    words: Words = None,
    hours: Annotated[str, typer.Option(help="How much more, as an option.")] = "",
    reason: Reason = "",
    idempotency_key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Request more time. Time that is approved already is used at once; the rest needs an approver."""
    if more and hours:
        words, more = [more, *(words or ())], ""
    named = plain_id(session, "sessions")
    if not more and not hours:
        fail(f"Say how much more time, such as `gpu-shopper extend {named} 2h`.", 2)
    body = {"hours": more or hours, "reason": in_words(reason, words)}
    _done(f"/sessions/{named}/extend", body, idempotency_key, as_json=as_json)


@app.command()
def done(
    session: Named,
    how: Annotated[
        list[str] | None, typer.Argument(help="success or failed; destroy or preserve.", metavar="[HOW]...")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="The work did not succeed.")] = False,
    preserve: Annotated[
        bool, typer.Option("--preserve", help="Stop the machine instead, and retain its disk until the end.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Report that the work is done, which ends the session."""
    said = {"action": "failed" if failed else "success", "text": "preserve" if preserve else "destroy"}
    for word in how or ():
        if word not in DONE_WORDS:
            fail(f'"{word[:40]}" is not success, failed, destroy or preserve.', 2)
        field, value = DONE_WORDS[word]
        said[field] = value
    body = {"succeeded": said["action"] == "success", "storage": said["text"]}
    _done(f"/sessions/{plain_id(session, 'sessions')}/done", body, as_json=as_json)


@app.command()
def stop(session: Named, as_json: Json = False) -> None:
    """Stop the session's machine, where that saves money; its disk stays."""
    _done(f"/sessions/{plain_id(session, 'sessions')}/stop", {}, as_json=as_json)


@app.command()
def start(session: Named, idempotency_key: IdempotencyKey = "", as_json: Json = False) -> None:
    """Start the session's stopped machine."""
    _done(f"/sessions/{plain_id(session, 'sessions')}/start", {}, idempotency_key, as_json=as_json)


@app.command()
def restart(session: Named, idempotency_key: IdempotencyKey = "", as_json: Json = False) -> None:
    """Restart the session's machine in place."""
    _done(f"/sessions/{plain_id(session, 'sessions')}/restart", {}, idempotency_key, as_json=as_json)


@app.command()
def token(session: Named, as_json: Json = False) -> None:
    """Create the token for the API of the machine. It is shown once and replaces the one before."""
    made = spoken(lambda api: api.post(f"/sessions/{plain_id(session, 'sessions')}/token", {}))
    if as_json:
        print_answer(made)
        return
    lines = (made["token"], f"{made['url']}, certificate SHA-256 {made['certificate_sha256']}")
    print_answer(TextReport(sentences=(*lines, made["sentence"])))


@app.command("terminate")
def shutdown(
    session: Ended,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the question; a program is never asked.")] = False,
    as_json: Json = False,
) -> None:
    """End the session now; confirmed when its cloud no longer lists the machine. It never touches other machines."""
    asks = at_terminal() and not (yes or as_json)
    show_result(spoken(lambda api: _shut_down(api, plain_id(session, "sessions"), asks=asks)), as_json=as_json)


async def _shut_down(api: ApiClient, named: str, *, asks: bool) -> Any:
    if asks:
        found = SessionOut.model_validate(await api.get(f"/sessions/{named}"))
        if found.state in ENDABLE_SESSION and not agreed(end_question(found)):
            typer.echo("Nothing has ended.")
            raise typer.Exit(1)
    return await api.delete(f"/sessions/{named}")


def _done(path: str, body: dict[str, Any], key: str = "", *, as_json: bool) -> None:
    show_result(spoken(lambda api: api.post(path, body, key)), as_json=as_json)
