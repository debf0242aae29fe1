"""List instances, handle orphans, check clouds and show the audit log: commands for operators."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from operator import itemgetter
from typing import Annotated, Any

import typer

from bot.cli.access.api_client import ApiClient, spoken
from bot.cli.terminal.listing import ListColumns, ListView, listing
from bot.cli.terminal.options import Columns, IdempotencyKey, Json, Named, plain_id
from bot.cli.terminal.screen import UNAVAILABLE, agreed, at_terminal, fail, group, say
from bot.cli.terminal.terminal_tables import show, show_result
from bot.cli.terminal.views import name_of, time_cell
from bot.rules.audit.event_text import LATE, happened, whole
from bot.rules.values.phrases import plural, rate, usd
from bot.rules.values.state_text import words_of
from ledger.kernel.ids import short_id
from ledger.kernel.states import InstanceState, OrphanState
from providers.cloud_names import machines_of

orphans_app = group("Orphans: list them, or terminate a quarantined one.")

Orphan = Annotated[str, typer.Argument(help="The id of a quarantined orphan.")]
Why = Annotated[str, typer.Option(help="Why, for the audit log.")]


def instances(
    orphans: Annotated[bool, typer.Option("--orphans", help="List orphans instead.")] = False,
    over: Annotated[bool, typer.Option("--all", help="Ended ones, too.")] = False,
    most: Annotated[int, typer.Option(min=1, max=100, help="How many at most.")] = 50,
    columns: Columns = "",
    as_json: Json = False,
) -> None:
    """List the instances behind the sessions that you may see."""
    if orphans:
        _orphans(columns, as_json=as_json)
        return
    found = spoken(lambda api: api.get("/instances", live="false" if over else "true", limit=most))
    cells: ListColumns[Any] = (
        ("session", lambda one: short_id(one["request_id"])),
        ("state", lambda one: words_of(InstanceState, one["state"])),
        ("cloud", itemgetter("cloud")),
        ("id there", lambda one: one["ref"] or "-"),
        ("per hour", _rate),
        ("name", itemgetter("name")),
        ("instance", itemgetter("id")),
    )
    show(
        found if as_json else listing("There are no instances.", cells, found, extra=("name", "instance", "id there")),
        columns,
    )


@orphans_app.command("list")
def list_(columns: Columns = "", as_json: Json = False) -> None:
    """List every orphan, the quarantined ones first."""
    _orphans(columns, as_json=as_json)


@orphans_app.command()
def condemn(orphan: Orphan, reason: Why = "", as_json: Json = False) -> None:
    """Terminate a quarantined orphan. Recovery mode ends when none is quarantined any more."""
    done = spoken(lambda api: api.post(f"/orphans/{plain_id(orphan, 'orphans')}/condemn", {"reason": reason}))
    show_result(done, as_json=as_json)


def adopt(
    orphan: Orphan,
    hours: Annotated[str, typer.Option(help="How long to keep it, from now: 2h, 90m.")],
    owner: Annotated[str, typer.Option(help="The owner: a Slack id or operator:ada; you by default.")] = "",
    reason: Why = "",
    amount: Annotated[str, typer.Option(help="The expected total, to confirm it.")] = "",
    idempotency_key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Adopt a quarantined orphan as somebody's session, with your approval. Its hours count from now."""
    body = {"hours": hours, "owner": owner, "reason": reason, "amount": amount or None}
    named = plain_id(orphan, "orphans")
    adopted = spoken(lambda api: api.post(f"/orphans/{named}/adopt", body, idempotency_key))
    show_result(adopted, as_json=as_json)


def recover(
    accept: Annotated[bool, typer.Option("--accept", help="Accept a ledger that is older than its records.")] = False,
    keep_approvals: Annotated[
        bool, typer.Option("--keep-approvals", help="With --accept: earlier approvals still buy.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List orphans, and what an older ledger lacks. Exits with 69 when a cloud did not answer, or none is set up."""
    if accept:
        show_result(
            spoken(lambda api: api.post("/recover/accept", {"keep_approvals": keep_approvals})), as_json=as_json
        )
        return
    found = spoken(lambda api: api.post("/recover", {}))
    failed = [f"{one['cloud']}: {one['problem']}" for one in found["clouds"] if one["problem"]]
    if as_json:
        show(found)
    else:
        show(_orphan_list(found["waiting"], "No orphan waits for you."))
        looked = sum(one["listed"] for one in found["clouds"])
        unknown = len(found["waiting"])
        clouds = {machines_of(one["cloud"]) for one in found["clouds"]}
        where = f"{plural(looked, 'instance')} at {plural(len(clouds), 'cloud')}"
        for sentence in found["older"]:
            say(sentence, stderr=True)
        said = f"{where}; {unknown} of ours {'is' if unknown == 1 else 'are'} unknown here."
        say(f"{said} {found['paused']}".strip(), stderr=True)
    if not found["clouds"]:
        fail("No cloud is set up here, so nothing was looked at. Run `gpu-shopper doctor`.",
             UNAVAILABLE)  # fmt: skip
    if failed:
        fail("; ".join(failed), UNAVAILABLE)


def preflight(columns: Columns = "", as_json: Json = False) -> None:
    """Check whether each cloud can be bought from now; exits with 1 when one that has a key cannot, or none has one."""
    found = spoken(lambda api: api.get("/preflight"))
    cells: ListColumns[Any] = (
        ("cloud", itemgetter("cloud")),
        ("state", lambda one: "ok" if one["ok"] else "failed" if one["configured"] else "not set"),
        ("credit", lambda one: usd(Decimal(one["credit_usd"])) if one["credit_usd"] else "-"),
        ("what to do", lambda one: f"{one['problem']} {one['where'] if not one['ok'] else ''}".strip() or "-"),
    )
    show(found if as_json else listing("GPU Shopper knows no cloud.", cells, found), columns)
    used = [one["ok"] for one in found if one["configured"]]
    if not used or not all(used):
        raise typer.Exit(1)


def audit(
    subject: Named,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Each event as a line of JSON, then the newest hashes.")
    ] = False,
    columns: Columns = "",
    as_json: Json = False,
) -> None:
    """Show what happened, in order, and verify the hash chain. Exits with 1 when the journal was changed."""
    found = spoken(lambda api: api.get(f"/audit/{plain_id(subject)}"))
    if jsonl:
        for event in found["events"]:
            typer.echo(json.dumps(event, ensure_ascii=False))
        typer.echo(json.dumps({"heads": found["heads"], "late": found["late"]}))
    elif not as_json:
        late = set(found["late"])
        cells: ListColumns[Any] = (
            ("when", lambda event: time_cell(datetime.fromisoformat(event["at"]))),
            ("what", lambda event: _happened(event, is_late=event["id"] in late)),
            ("by", lambda event: event["actor_name"] or name_of(event["actor"])),
            ("reason", itemgetter("reason")),
        )
        show(listing("Nothing happened yet.", cells, found["events"]), columns)
    if as_json:
        show(found)
    if found["broken"]:
        fail(f"The journal was changed: {'; '.join(found['broken'])}.")
    typer.echo(whole(len(found["events"]), found["hashed"]), err=True)


def _happened(event: Any, *, is_late: bool) -> str:
    what = happened(event["kind"], event["before"], event["after"])
    return f"{what} ({LATE})" if is_late else what


def _rate(one: Any) -> str:
    return rate(Decimal(one["price_usd_h"]))


def _orphans(columns: str, *, as_json: bool) -> None:
    found = spoken(lambda api: api.get("/orphans"))
    show(found if as_json else _orphan_list(found, "There are no orphans."), columns)


def _orphan_list(found: Any, none: str) -> ListView:
    columns: ListColumns[Any] = (
        ("orphan", itemgetter("id")),
        ("state", lambda one: words_of(OrphanState, one["state"])),
        ("cloud", itemgetter("cloud")),
        ("id there", itemgetter("ref")),
        ("per hour", _rate),
        ("first seen", lambda one: time_cell(datetime.fromisoformat(one["first_seen_at"]))),
        ("reason", itemgetter("reason")),
    )
    return listing(none, columns, found)


unreachable_app = group("Open instances in accounts without a key: list, gone.")


@unreachable_app.command("list")
def list_unreachable(columns: Columns = "", as_json: Json = False) -> None:
    """List what nothing here can see or terminate, with its account."""
    found = spoken(lambda api: api.get("/unreachable"))
    show(found if as_json else _unreachable_list(found), columns)


@unreachable_app.command()
def gone(
    named: Annotated[list[str], typer.Argument(help="Ids from the list, or accounts such as vast/5d41402abc4b.")],
    reason: Why = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the question; a program is never asked.")] = False,
    as_json: Json = False,
) -> None:
    """Write off instances that no longer exist. Refused while a cloud lists one of them or its agent checks in."""
    asks = at_terminal() and not (yes or as_json)
    show_result(spoken(lambda api: _gone(api, named, reason, asks=asks)), as_json=as_json)


async def _gone(api: ApiClient, named: list[str], reason: str, *, asks: bool) -> Any:
    found = await api.get("/unreachable")
    ids = []
    for text in named:
        there = [one["id"] for one in found if text in (one["id"], f"{one['cloud']}/{one['account']}")]
        if not there and "/" in text:
            fail(f"Nothing is open in {text[:60]}. Run `gpu-shopper unreachable list`.")
        ids += there or [text]
    if asks and reason.strip():
        show(_unreachable_list([one for one in found if one["id"] in ids]))
        what = plural(len(set(ids)), "instance")
        if not agreed(
            f"Close {what} as gone? What still runs there keeps costing money, and GPU Shopper cannot see it."
        ):
            typer.echo("Nothing was closed.")
            raise typer.Exit(1)
    return await api.post("/unreachable/gone", {"ids": ids, "reason": reason})


def _state_there(state: str) -> str:
    orphan = state.removeprefix("orphan, ")
    return words_of(InstanceState, state) if orphan == state else f"orphan, {words_of(OrphanState, orphan)}"


def _unreachable_list(found: Any) -> ListView:
    columns: ListColumns[Any] = (
        ("id", itemgetter("id")),
        ("state", lambda one: _state_there(one["state"])),
        ("account", lambda one: f"{one['cloud']}/{one['account']}"),
        ("id there", lambda one: one["ref"] or "-"),
        ("per hour", _rate),
        ("since", lambda one: time_cell(datetime.fromisoformat(one["since"]))),
        ("owner", lambda one: one["owner_name"] or name_of(one["owner"] or "-")),
    )
    return listing("Every open instance is in an account that can be reached.", columns, found)
