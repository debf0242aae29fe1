"""`gpu-shopper approve`, `reject`, `why`, `break-glass` and `delegate`: decide by the same rules as in Slack."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from bot.api.schemas.requests import RequestOut
from bot.cli.access.api_client import ApiClient, RefusedCall, spoken
from bot.cli.commands.requests import Again, Json, Named, chosen_of, plain_id
from bot.cli.terminal.screen import fail, group, prompt
from bot.cli.terminal.terminal_tables import print_report, show, show_result, table_or
from bot.cli.terminal.views import request_details
from bot.rules.values.reply_code import ReplyCode
from bot.rules.values.text_table import TextReport
from ledger.kernel import money

#: Refusals after which the person is prompted for the amount (again).
AMOUNT = frozenset({ReplyCode.AMOUNT_NEEDED, ReplyCode.AMOUNT_MISMATCH})


def approve(
    request: Named,
    option: Annotated[str, typer.Argument(help="Which option: its number or its offer id, as with --offer.")] = "",
    offer: Annotated[str, typer.Option(help="Which option: its number or its offer id.")] = "",
    amount: Annotated[str, typer.Option(help="The expected total, to confirm it.")] = "",
    cap: Annotated[str, typer.Option(help="A total below the worst case, in dollars.")] = "",
    hours: Annotated[str, typer.Option(help="A shorter time than requested, such as 4h.")] = "",
    reason: Annotated[str, typer.Option(help="Why.")] = "",
    again: Again = "",
    as_json: Json = False,
) -> None:
    """Approve one option. On a terminal it shows the options and asks for your choice and the amount."""
    if option and offer and option != offer:
        fail(f"{option!r} and --offer {offer!r} are two choices; say one.", 2)
    said: dict[str, Any] = {"amount": amount or None, "cap_usd": cap.lstrip("$") or None, "reason": reason}
    said["hours"] = hours or None
    done = spoken(lambda api: _approve(api, plain_id(request), offer or option, said, again, as_json=as_json))
    show_result(done, as_json=as_json)


async def _approve(
    api: ApiClient, request_id: str, offer: str, said: dict[str, Any], again: str, *, as_json: bool
) -> Any:
    one = RequestOut.model_validate(await api.get(f"/requests/{request_id}"))
    asks = sys.stdin.isatty() and not as_json
    if asks:
        print_report(request_details(one))
    body = {**said, "offer_id": _offer(one, offer, asks=asks), "quote_version": one.quote_version or None}
    body["digest"] = one.waiting.digest if one.waiting else None
    path = f"/requests/{one.id}/approve"
    while True:
        try:
            return await api.post(path, body, again)
        except RefusedCall as refused:
            if not asks or refused.code not in AMOUNT:
                raise
            body["amount"] = prompt(str(refused))
            again = again and f"{again}/{body['amount']}"  # Another call: what it says has changed.


def _offer(one: RequestOut, offer: str, *, asks: bool) -> str | None:
    """Return the id of the approved option; None for an override, which has no options."""
    if not one.options:
        return offer or None
    by_rank = {str(option.rank): option.offer_id for option in one.options}
    if not offer and asks:
        offer = chosen_of(by_rank, "Which option? A number", "1")
    if not offer:
        first = one.options[0]
        example = f"--offer {first.offer_id} (expected ${money.cents_even(first.expected_usd)})"
        fail(f"Say which option is approved, such as {example}.", 2)
    return by_rank.get(offer, offer)


def reject(
    request: Named,
    reason: Annotated[str, typer.Option(help="Why; the requester reads it.")] = "",
    again: Again = "",
    as_json: Json = False,
) -> None:
    """Reject a request, with a reason."""
    if not reason and sys.stdin.isatty() and not as_json:
        reason = prompt("Why? The requester reads it")
    done = spoken(lambda api: api.post(f"/requests/{plain_id(request)}/reject", {"reason": reason}, again))
    show_result(done, as_json=as_json)


def why(request: Named, as_json: Json = False) -> None:
    """Show which policy rule requires the approval of a request, who may approve it, and what was waived."""
    found = spoken(lambda api: api.get(f"/requests/{plain_id(request)}/why"))
    show(found if as_json else TextReport(sentences=tuple(found["sentences"])))


def break_glass(
    request: Named,
    reason: Annotated[str, typer.Option(help="Why it cannot wait; every approver reads it.")],
    offer: Annotated[str, typer.Option(help="Which option, by its offer id; without it, the first one.")] = "",
    again: Again = "",
    as_json: Json = False,
) -> None:
    """Start your own small, short request without an approval. Every approver receives a notification."""
    body = {"reason": reason, "offer_id": offer or None}
    done = spoken(lambda api: api.post(f"/requests/{plain_id(request)}/break-glass", body, again))
    show_result(done, as_json=as_json)


delegate_app = group("Let one person approve in your place: set, list, off.")


@delegate_app.command("set")
def set_(
    person: Annotated[str, typer.Argument(help="A Slack id such as U012AB3CD, or operator:ada.")],
    until: Annotated[str, typer.Argument(help="The last day in UTC, such as 2026-12-01.")],
    as_json: Json = False,
) -> None:
    """Let one person approve in your place; this replaces your last delegation. They cannot pass it on."""
    show_result(spoken(lambda api: api.put("/delegations", {"delegate": person, "until": until})), as_json=as_json)


@delegate_app.command("list")
def list_(as_json: Json = False) -> None:
    """List who approves for whom now."""
    found = spoken(lambda api: api.get("/delegations"))
    rows = [(one["delegator"], one["delegate"], one["until"]) for one in found]
    report = table_or("There are no delegates.", ("in the place of", "decides", "until"), rows)
    show(found if as_json else report)


@delegate_app.command()
def off(as_json: Json = False) -> None:
    """End your delegation: from now on nobody approves in your place."""
    show_result(spoken(lambda api: api.delete("/delegations")), as_json=as_json)
