"""List instances, handle orphans, check clouds and show the audit log: commands for operators."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Annotated, Any

import typer

from bot import logs
from bot.cli.access.api_client import ApiClient, spoken
from bot.cli.commands.requests import Again, Json, Named, plain_id
from bot.cli.terminal.screen import UNAVAILABLE, agreed, at_terminal, fail, group
from bot.cli.terminal.terminal_tables import show, show_result, table_or
from bot.rules.audit.event_text import LATE, happened, whole
from bot.rules.values.phrases import plural, rate
from bot.rules.values.text_table import TextReport

orphans_app = group("Orphans: list them, or terminate a quarantined one.")

Orphan = Annotated[str, typer.Argument(help="The id of a quarantined orphan.")]
Why = Annotated[str, typer.Option(help="Why, for the audit log.")]


def instances(
    orphans: Annotated[bool, typer.Option("--orphans", help="List orphans instead.")] = False,
    over: Annotated[bool, typer.Option("--all", help="Ended ones, too.")] = False,
    most: Annotated[int, typer.Option(min=1, max=100, help="How many at most.")] = 50,
    as_json: Json = False,
) -> None:
    """List the instances behind the sessions that you may see."""
    if orphans:
        _orphans(as_json=as_json)
        return
    found = spoken(lambda api: api.get("/instances", live="false" if over else "true", limit=most))
    head = ("instance", "state", "cloud", "there", "per hour", "session", "name")
    rows = (
        (one["id"], one["state"], one["cloud"], one["ref"] or "-", _rate(one), one["session_id"], one["name"])
        for one in found
    )
    show(found if as_json else table_or("There are no instances.", head, rows))


@orphans_app.command("list")
def list_(as_json: Json = False) -> None:
    """List every orphan, the quarantined ones first."""
    _orphans(as_json=as_json)


@orphans_app.command()
def condemn(orphan: Orphan, reason: Why = "", as_json: Json = False) -> None:
    """Terminate a quarantined orphan. Recovery mode ends when none is quarantined any more."""
    done = spoken(lambda api: api.post(f"/orphans/{plain_id(orphan)}/condemn", {"reason": reason}))
    show_result(done, as_json=as_json)


def adopt(
    orphan: Orphan,
    hours: Annotated[str, typer.Option(help="How long to keep it, from now: 2h, 90m.")],
    owner: Annotated[str, typer.Option(help="The owner: a Slack id or operator:ada; you by default.")] = "",
    reason: Why = "",
    amount: Annotated[str, typer.Option(help="The expected total, to confirm it.")] = "",
    again: Again = "",
    as_json: Json = False,
) -> None:
    """Adopt a quarantined orphan as somebody's session, with your approval. Its hours count from now."""
    body = {"hours": hours, "owner": owner, "reason": reason, "amount": amount or None}
    show_result(spoken(lambda api: api.post(f"/orphans/{plain_id(orphan)}/adopt", body, again)), as_json=as_json)


def recover(as_json: Json = False) -> None:
    """List the orphans at every cloud. Exits with 69 when a cloud did not answer, or none is set up."""
    found = spoken(lambda api: api.post("/recover", {}))
    failed = [f"{one['cloud']}: {one['problem']}" for one in found["clouds"] if one["problem"]]
    if as_json:
        show(found)
    else:
        for one in found["waiting"]:
            typer.echo(_line(one))
        looked = sum(one["listed"] for one in found["clouds"])
        where = f"{plural(looked, 'instance')} at {plural(len(found['clouds']), 'cloud')}"
        said = f"{where}; {len(found['waiting'])} of ours are unknown here."
        typer.echo(f"{said} {found['held']}".strip(), err=True)
    if not found["clouds"]:
        fail("No cloud is set up here, so nothing was looked at; gpu-shopper doctor says which settings are missing.",
             UNAVAILABLE)  # fmt: skip
    if failed:
        fail("; ".join(failed), UNAVAILABLE)


def preflight(as_json: Json = False) -> None:
    """Check whether every cloud can be bought from now; exits with 1 when one cannot."""
    found = spoken(lambda api: api.get("/preflight"))
    head = ("cloud", "", "credit", "what to do")
    rows = (
        (
            one["cloud"],
            "ok" if one["ok"] else one["code"] or "no",
            one["credit_usd"] or "-",
            f"{one['problem']} {one['where']}".strip(),
        )
        for one in found
    )
    show(found if as_json else table_or("No cloud is set up.", head, rows))
    if not all(one["ok"] for one in found):
        raise typer.Exit(1)


def audit(
    subject: Named,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Each event as a line of JSON, then the newest hashes.")
    ] = False,
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
        rows = (_event(event, is_late=event["id"] in late) for event in found["events"])
        show(table_or("Nothing happened yet.", ("when (UTC)", "what", "by", "reason"), rows))
    if as_json:
        show(found)
    if found["broken"]:
        fail(f"The journal was changed: {'; '.join(found['broken'])}.")
    typer.echo(whole(len(found["events"]), found["sealed"]), err=True)


def _event(event: Any, *, is_late: bool) -> tuple[str, ...]:
    at, what = event["at"].replace("T", " ")[:19], happened(event["kind"], event["before"], event["after"])
    return at, f"{what} ({LATE})" if is_late else what, event["actor"], event["reason"]


def _rate(one: Any) -> str:
    return rate(Decimal(one["price_usd_h"]))


def _orphans(*, as_json: bool) -> None:
    found = spoken(lambda api: api.get("/orphans"))
    if as_json:
        show(found)
    else:
        typer.echo("\n".join(map(_line, found)) or "There are no orphans.")


def _line(one: Any) -> str:
    """Describe an orphan on one line, with its id for an operator to copy."""
    since = one["first_seen_at"].replace("T", " ")[:16]
    where = f"{one['cloud']} {one['ref']}  {_rate(one)}  first seen {since} UTC"
    return logs.visible(f"{one['id']}  {one['state']:<11}  {where}  {one['reason']}")


unreachable_app = group("Open instances in accounts without a key: list, gone.")


@unreachable_app.command("list")
def list_unreachable(as_json: Json = False) -> None:
    """List what nothing here can see or terminate, with its account."""
    found = spoken(lambda api: api.get("/unreachable"))
    lines = tuple(map(_open_line, found)) or ("Everything that is open can be looked at.",)
    show(found if as_json else TextReport(sentences=lines))


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
            fail(f"Nothing is open in {logs.visible(text[:60])}; gpu-shopper unreachable list shows where it is.")
        ids += there or [text]
    if asks and reason.strip():
        for one in found:
            if one["id"] in ids:
                typer.echo(_open_line(one))
        what = plural(len(set(ids)), "instance")
        if not agreed(
            f"Close {what} as gone? What still runs there keeps costing money, and GPU Shopper cannot see it."
        ):
            typer.echo("Nothing was closed.")
            raise typer.Exit(1)
    return await api.post("/unreachable/gone", {"ids": ids, "reason": reason})


def _open_line(one: Any) -> str:
    where = f"{one['cloud']}/{one['account']} {one['ref'] or '-'}  {rate(Decimal(one['price_usd_h']))}"
    since = one["since"].replace("T", " ")[:16]
    return logs.visible(f"{one['id']}  {one['state']:<11}  {where}  since {since} UTC  {one['owner'] or '-'}")
