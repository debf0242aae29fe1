"""`gpu-shopper sessions`, `session`, and the commands that change one session: `extend`, `stop` and others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from bot.api.schemas.base import Page
from bot.api.schemas.queue import QueueResultsOut
from bot.api.schemas.sessions import SessionOut
from bot.cli.access.api_client import ApiClient, spoken
from bot.cli.commands.requests import until_it_runs
from bot.cli.terminal.options import Columns, IdempotencyKey, Json, Named, Reason, Words, in_words, plain_id
from bot.cli.terminal.queue_view import queue_list
from bot.cli.terminal.screen import agreed, at_terminal, fail, say
from bot.cli.terminal.terminal_tables import show as print_answer
from bot.cli.terminal.terminal_tables import show_once, show_result
from bot.cli.terminal.views import end_question, session_details, session_history, session_list, stop_question
from bot.rules.grammar.commands import DONE_WORDS
from bot.rules.values.text_table import TextReport
from ledger.kernel.states import ENDABLE_SESSION, SessionState
from ledger.kernel.steps.grace import GraceChoice


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

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the question; a program is never asked.")]
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
def show(
    session: Named,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Print each change until it runs or failed.")] = False,
    as_json: Json = False,
) -> None:
    """Show a session and how to connect."""
    if watch:
        ended = spoken(lambda api: until_it_runs(api, plain_id(session, "sessions"), as_json=as_json))
        raise typer.Exit(ended)
    found = spoken(lambda api: api.get(f"/sessions/{plain_id(session, 'sessions')}"))
    print_answer(found if as_json else session_details(SessionOut.model_validate(found)))


@app.command()
def commands(session: Named, columns: Columns = "", as_json: Json = False) -> None:
    """Show the commands of a session's queue: how each ended, and what it cost of the bill."""
    found = spoken(lambda api: api.get(f"/sessions/{plain_id(session, 'sessions')}/commands"))
    print_answer(found if as_json else queue_list(QueueResultsOut.model_validate(found)), columns)


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
def migrate(
    session: Named,
    to: Annotated[
        list[str] | None, typer.Argument(help="An offer's id, a cloud, or cheaper; without it, whatever fits.")
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Show how far the move is, and CONTINUATION_CONTEXT.md once it is done.")
    ] = False,
    idempotency_key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Move the session's run to another machine, after an approval. The old one ends once the run continues there."""
    named, words = plain_id(session, "sessions"), list(to or ())
    if words[:1] == ["to"]:
        words = words[1:]
    if len(words) > 1:
        fail(f"Name one place, such as `gpu-shopper migrate {named} to cheaper`.", 2)
    if show:
        found = SessionOut.model_validate(spoken(lambda api: api.get(f"/sessions/{named}"))).migration
        if found is None:
            fail(f"The run of session {named} never moved. To move it: `gpu-shopper migrate {named}`.")
        text = TextReport(sentences=tuple((found.context or found.line).splitlines()))
        print_answer(found.model_dump(mode="json") if as_json else text)
        return
    _done(f"/sessions/{named}/migrate", {"to": "".join(words)}, idempotency_key, as_json=as_json)


@app.command()
def done(
    session: Named,
    how: Annotated[
        list[str] | None, typer.Argument(help="success or failed; destroy or preserve.", metavar="HOW")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="The work failed.")] = False,
    preserve: Annotated[
        bool, typer.Option("--preserve", help="Stop the machine instead, and retain its disk until the end.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Report that the work is done, which ends the session and deletes its disk. On a terminal it asks first."""
    said = {"action": "failed" if failed else "success", "text": "preserve" if preserve else "destroy"}
    for word in how or ():
        if word not in DONE_WORDS:
            fail(f'"{word[:40]}" is not success, failed, destroy or preserve.', 2)
        field, value = DONE_WORDS[word]
        said[field] = value
    body = {"succeeded": said["action"] == "success", "storage": said["text"]}
    named, question = plain_id(session, "sessions"), stop_question if body["storage"] == "preserve" else end_question
    _asked(
        named, question, ENDABLE_SESSION, lambda api: api.post(f"/sessions/{named}/done", body), yes, as_json=as_json
    )


@app.command()
def stop(session: Named, yes: Yes = False, as_json: Json = False) -> None:
    """Stop the session's machine, where that saves money. Where a stop deletes files, a terminal asks first."""
    named = plain_id(session, "sessions")
    stops = {SessionState.RUNNING}
    _asked(named, stop_question, stops, lambda api: api.post(f"/sessions/{named}/stop", {}), yes, as_json=as_json)


@app.command()
def start(session: Named, idempotency_key: IdempotencyKey = "", as_json: Json = False) -> None:
    """Start the session's stopped machine."""
    _done(f"/sessions/{plain_id(session, 'sessions')}/start", {}, idempotency_key, as_json=as_json)


@app.command()
def restart(session: Named, idempotency_key: IdempotencyKey = "", as_json: Json = False) -> None:
    """Restart the session's machine in place."""
    _done(f"/sessions/{plain_id(session, 'sessions')}/restart", {}, idempotency_key, as_json=as_json)


@app.command()
def grace(
    session: Named,
    choice: Annotated[str, typer.Argument(help="wait, replace (its disk stays) or give-up.")],
    yes: Yes = False,
    idempotency_key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Decide about a machine that stopped working and is kept: wait for it, replace it, or give it up."""
    named, said = plain_id(session, "sessions"), choice.lower().replace("-", "_")
    if said not in set(GraceChoice):
        fail(f'"{choice[:40]}" is not a choice. Write wait, replace or give-up.', 2)
    question = end_question if said == GraceChoice.GIVE_UP else _no_question
    body = {"choice": said}
    path = f"/sessions/{named}/grace"
    _asked(named, question, ENDABLE_SESSION, lambda api: api.post(path, body, idempotency_key), yes, as_json=as_json)


def _no_question(_one: SessionOut) -> str:
    return ""


@app.command()
def token(session: Named, as_json: Json = False) -> None:
    """Create the token for the API of the machine. It is shown once and replaces the one before."""
    made = spoken(lambda api: api.post(f"/sessions/{plain_id(session, 'sessions')}/token", {}))
    if not as_json:
        say(f"{made['url']}, certificate SHA-256 {made['certificate_sha256']}", stderr=True)
    show_once(made, "token", as_json=as_json)


@app.command("terminate")
def shutdown(
    session: Ended,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """End the session now; confirmed when its cloud no longer lists the machine. It never touches other machines."""
    named = plain_id(session, "sessions")
    _asked(named, end_question, ENDABLE_SESSION, lambda api: api.delete(f"/sessions/{named}"), yes, as_json=as_json)


def _asked(
    named: str,
    question: Callable[[SessionOut], str],
    states: Collection[str],
    step: Callable[[ApiClient], Awaitable[Any]],
    yes: bool,
    *,
    as_json: bool,
) -> None:
    """Do what ends or stops a session; a person at the terminal is asked first, where there is something to ask."""

    async def within(api: ApiClient) -> Any:
        if at_terminal() and not (yes or as_json):
            found = SessionOut.model_validate(await api.get(f"/sessions/{named}"))
            text = question(found) if found.state in states else ""
            if text and not agreed(text):
                typer.echo("Nothing has changed.")
                raise typer.Exit(1)
        return await step(api)

    show_result(spoken(within), as_json=as_json)


def _done(path: str, body: dict[str, Any], key: str = "", *, as_json: bool) -> None:
    show_result(spoken(lambda api: api.post(path, body, key)), as_json=as_json)
