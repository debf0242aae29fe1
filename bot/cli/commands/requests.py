"""`gpu-shopper provision`, `requests`, `request` and `cancel`: request GPUs, and show or change requests."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from bot.api.schemas.base import Page
from bot.api.schemas.requests import RequestOut, RequestSummary
from bot.api.schemas.sessions import SessionOut
from bot.cli.access.api_client import ApiClient, spoken
from bot.cli.access.job_file import job_in, least_memory, line_of, text_of
from bot.cli.terminal.busy import busy
from bot.cli.terminal.options import Columns, IdempotencyKey, Json, Named, plain_id
from bot.cli.terminal.screen import UNAVAILABLE, at_terminal, prompt, say
from bot.cli.terminal.terminal_tables import print_report, show, show_result
from bot.cli.terminal.views import request_details, request_list, session_details, situation
from bot.rules.values.text_table import TextReport
from bot.services.plans.columns import with_columns
from ledger.kernel.ids import short_id
from ledger.kernel.request_kind import RequestKind

POLL_S = 1.0
#: States of a request that is not finished.
#: Fields with which nobody chooses one of the offers of now.
CHOSEN_LATER = frozenset({"offer", "below", "retry", "at", "until"})
OPEN = frozenset({"waiting", "quoting", "pending", "approved"})


def provision(
    words: Annotated[list[str] | None, typer.Argument(help="The job in words: 8xA100-80GB 6h max=50.")] = None,
    job: Annotated[str, typer.Option(help="A job file (YAML or JSON; docs/schemas/job.json).")] = "",
    gpu: Annotated[str, typer.Option(help="GPU names in any spelling, with commas.")] = "",
    count: Annotated[str, typer.Option(help="How many: 2, 1-4 or 2+.")] = "",
    gpu_ram: Annotated[str, typer.Option(help="Memory per GPU: 24 or 24GB+ at least, 24GB exactly, 24-80GB.")] = "",
    hours: Annotated[str, typer.Option(help="For how long: 6h, 90m.")] = "",
    offer: Annotated[str, typer.Option(help="One offer of the inventory, by its id.")] = "",
    model: Annotated[str, typer.Option(help="The model, such as 7B.")] = "",
    provider: Annotated[str, typer.Option(help="Only these clouds: vast,runpod.")] = "",
    region: Annotated[str, typer.Option(help="Only these regions or countries: US,EU.")] = "",
    spot: Annotated[str, typer.Option(help="no (the default), yes or any.")] = "",
    disk: Annotated[str, typer.Option(help="The least disk: 200GB.")] = "",
    budget: Annotated[str, typer.Option(help="The most that it may cost in all.")] = "",
    max_price: Annotated[str, typer.Option(help="The most per hour.")] = "",
    below: Annotated[str, typer.Option(help="Wait for an offer at or below this price per hour.")] = "",
    retry: Annotated[bool, typer.Option("--retry", help="Wait while no offer fits.")] = False,
    at: Annotated[str, typer.Option(help="Begin to look for offers then: 20:00 (UTC), 6h.")] = "",
    until: Annotated[str, typer.Option(help="How long to wait: 20:00 (UTC), 2026-12-01, 6h.")] = "",
    preset: Annotated[str, typer.Option(help="A job of the policy; other options replace its own.")] = "",
    image: Annotated[str, typer.Option(help="The container image.")] = "",
    run: Annotated[str, typer.Option(help="The command to run.")] = "",
    reason: Annotated[str, typer.Option(help="Why; approvers read this.")] = "",
    consumer: Annotated[str, typer.Option(help="The program that it is for, when you answer for it.")] = "",
    ssh_key: Annotated[str, typer.Option(help="A public key file for this machine alone.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only plan; submit no request.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it runs, or will not.")] = False,
    idempotency_key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Request GPUs. An approver decides; on a terminal you can choose the offer to request."""
    given = {
        "resources": _given(gpu=_gpu(gpu, count, gpu_ram), disk=disk),
        "hours": hours,
        "offer": offer,
        "work": _given(model=model),
        "candidates": provider and provider.split(","),
        "candidates_order": provider and "cheapest",
        "regions": region and region.split(","),
        "spot": spot,
        "budget": budget,
        "max_price": max_price,
        "below": below,
        "retry": retry,
        "at": at,
        "until": until,
        "preset": preset,
        "image": image,
        "run": run,
        "reason": reason,
        "consumer": consumer,
        "ssh_public_key": ssh_key and text_of(ssh_key),
    }
    document = {**(job_in(job) if job else {}), **_given(words=line_of(words or ()), **given)}
    if dry_run:
        _only_plan(document, as_json=as_json)
        return
    ended = spoken(lambda api: _submit(api, document, idempotency_key, as_json=as_json, wait=wait))
    if ended is not None:
        raise typer.Exit(ended)


def _gpu(names: str, count: str, memory: str) -> dict[str, Any]:
    """Return the GPU of a job document."""
    return _given(name=names and names.split(","), count=count, memory=least_memory(memory))


def _only_plan(document: dict[str, Any], *, as_json: bool) -> None:
    """Show what the request would find; a market of which no cloud answered ends the program."""
    planned = spoken(lambda api: api.post("/plans", document))
    show(planned["estimate"] if as_json else with_columns(TextReport.model_validate(planned["report"])))
    if not any(cloud["ok"] for cloud in planned["estimate"]["clouds"]):
        raise typer.Exit(UNAVAILABLE)


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}


async def _submit(api: ApiClient, document: dict[str, Any], key: str, *, as_json: bool, wait: bool) -> int | None:
    if at_terminal() and not as_json and not document.keys() & CHOSEN_LATER:
        document = await _choose(api, document)
    made = await api.post("/sessions", document, key)
    say(made["sentence"], stderr=as_json)
    if not wait:
        if as_json:
            show(made)
        elif sys.stdout.isatty():
            say(f"Follow it: gpu-shopper request {short_id(str(made['request_id']))}")
        return None
    return await until_it_runs(api, str(made["request_id"]), as_json=as_json)


async def _choose(api: ApiClient, document: dict[str, Any]) -> dict[str, Any]:
    """Show the offers and let the person at the terminal choose one; without a choice the approver chooses."""
    planned = await api.post("/plans", document)
    print_report(with_columns(TextReport.model_validate(planned["report"])))
    offers = {str(one["rank"]): str(one["offer_id"]) for one in planned["estimate"]["options"]}
    if not offers:
        return document
    said = chosen_of(offers, "Which one? A number, or Enter to leave it to the approver", "")
    if not said:
        return document
    chosen = offers.get(said, said)
    return {**document, "offer": chosen}


def chosen_of(offers: Mapping[str, str], question: str, default: str) -> str:
    """Ask for a number of `offers`, the id of an offer, or the default, until the answer is one of them."""
    while True:
        said = prompt(question, default, show_default=bool(default))
        if said == default or said in offers or ":" in said:
            return said
        typer.echo(f"Say one of {', '.join(offers)}, or the id of an offer, such as {next(iter(offers.values()))}.")


async def until_it_runs(api: ApiClient, request_id: str, *, as_json: bool) -> int:
    """Poll until the session runs (0) or cannot run (1), and print every change on the way."""
    shown = ""
    while True:
        one = RequestOut.model_validate(await api.get(f"/requests/{request_id}"))
        session = None
        if one.session_id:
            session = SessionOut.model_validate(await api.get(f"/sessions/{one.session_id}"))
        now = situation(one, session)
        if now != shown:
            say(now, stderr=True)
            shown = now
        if session is not None and session.state not in ("queued", "provisioning"):
            show(session.model_dump(mode="json") if as_json else session_details(session))
            return 0 if session.state == "running" else 1
        if one.state not in OPEN:
            show(one.model_dump(mode="json") if as_json else request_details(one))
            return 1
        with busy("Waiting", delay_s=0):
            await asyncio.sleep(POLL_S)


def requests(
    waiting: Annotated[bool, typer.Option("--waiting", help="Only undecided ones.")] = False,
    most: Annotated[int, typer.Option(min=1, max=10_000, help="How many at most.")] = 50,
    columns: Columns = "",
    as_json: Json = False,
) -> None:
    """List requests, the newest first."""
    found = spoken(lambda api: api.pages("/requests", most, waiting=waiting))
    items = Page[RequestSummary].model_validate(found).items
    none = "No request is waiting for approval." if waiting else "There are no requests."
    listed = {one.id for one in items}  # An override is decided with the request that needs it.
    own = [one for one in items if one.kind != RequestKind.OVERRIDE_12H or one.parent_id not in listed]
    show(found if as_json else request_list(own, none), columns)


def request(
    request: Named,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also the offers' ids, their reasons, and what was left out.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show one request: its offers, and who must approve it, or how it ended."""
    found = spoken(lambda api: api.get(f"/requests/{plain_id(request)}"))
    show(found if as_json else request_details(RequestOut.model_validate(found), verbose=verbose))


def cancel(request: Named, reason: Annotated[str, typer.Option(help="Why.")] = "", as_json: Json = False) -> None:
    """Withdraw an undecided request."""
    done = spoken(lambda api: api.post(f"/requests/{plain_id(request)}/cancel", {"reason": reason}))
    show_result(done, as_json=as_json)


def again(
    request: Annotated[str, typer.Argument(help="The request, by its id; your newest by default.")] = "",
    idempotency_key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Repeat an earlier request, with the same words, as a new request of yours."""
    body = {"request": plain_id(request)} if request else {}
    show_result(spoken(lambda api: api.post("/requests/again", body, idempotency_key)), as_json=as_json)
