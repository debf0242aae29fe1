"""List instances, handle orphans, check clouds and show the audit log: commands for operators."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Annotated, Any

import typer

from bot import logs
from bot.cli.access.api_client import spoken
from bot.cli.commands.requests import Again, Json, Named, plain_id
from bot.cli.terminal.screen import UNAVAILABLE, fail, group
from bot.cli.terminal.terminal_tables import show, show_result, table_or
from bot.rules.audit.event_text import happened, whole
from bot.rules.values.phrases import plural, rate

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
    amount: Annotated[str, typer.Option(help="The expected total, typed to confirm it.")] = "",
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
        typer.echo(json.dumps({"heads": found["heads"]}))
    elif not as_json:
        rows = map(_event, found["events"])
        show(table_or("Nothing happened yet.", ("when (UTC)", "what", "by", "reason"), rows))
    if as_json:
        show(found)
    if found["broken"]:
        fail(f"The journal was changed: {'; '.join(found['broken'])}.")
    typer.echo(whole(len(found["events"]), found["sealed"]), err=True)


def _event(event: Any) -> tuple[str, ...]:
    at = event["at"].replace("T", " ")[:19]
    return at, happened(event["kind"], event["before"], event["after"]), event["actor"], event["reason"]


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
