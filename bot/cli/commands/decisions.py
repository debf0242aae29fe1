"""`gpu-shopper approve`, `reject`, `why`, `break-glass` and `delegate`: decide by the same rules as in Slack."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

import typer

from bot.api.schemas.requests import OptionOut, RequestOut, WaitOut
from bot.cli.access.api_client import ApiClient, RefusedCall, elsewhere, spoken
from bot.cli.command_table import load
from bot.cli.commands.requests import chosen_of
from bot.cli.terminal.listing import ListColumns, listing
from bot.cli.terminal.options import Columns, IdempotencyKey, Json, Named, Words, in_words, plain_id
from bot.cli.terminal.screen import agreed, at_terminal, fail, group, prompt
from bot.cli.terminal.terminal_tables import print_report, show, show_result
from bot.cli.terminal.views import name_of, request_details
from bot.rules.jobs.job_text import machine
from bot.rules.values.phrases import rate, read_amount, usd
from bot.rules.values.reply_code import ReplyCode
from bot.rules.values.text_table import TextReport
from ledger.kernel import money
from ledger.kernel.ids import short_id
from ledger.kernel.request_kind import RENTS, RequestKind
from ledger.kernel.states import RequestState

#: Refusals after which the person is prompted for the amount (again).
AMOUNT = frozenset({ReplyCode.AMOUNT_NEEDED, ReplyCode.AMOUNT_MISMATCH})
#: Refusals of a request that is no longer as it was shown.
CHANGED = frozenset({ReplyCode.QUOTE_MOVED, ReplyCode.CHANGED_SINCE})
MOVED = "The request changed since you looked, so nothing was approved. Look again: `gpu-shopper request {id}`."


def approve(
    request: Named,
    offer: Annotated[
        str, typer.Argument(metavar="OPTION", help="The offer: its number or its id; the first one by default.")
    ] = "",
    option: Annotated[str, typer.Option("--option", "--offer", help="The offer, as an option.")] = "",
    quote: Annotated[
        int, typer.Option("--quote-version", min=0, help="In a script: the quote_version that you read.")
    ] = 0,
    max_usd: Annotated[str, typer.Option(help="Approve only what can't cost more than this.")] = "",
    amount: Annotated[str, typer.Option(help="The expected total, to confirm it.")] = "",
    cap: Annotated[str, typer.Option(help="A total below the worst case, in dollars.")] = "",
    hours: Annotated[str, typer.Option(help="A shorter time than requested, such as 4h.")] = "",
    reason: Annotated[str, typer.Option(help="Why.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the question.")] = False,
    idempotency_key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Approve an offer of a request. On a terminal it shows the offer with its total and asks.

    A script says which quote it read with --quote-version, or how much it may cost with --max-usd.
    """
    if option and offer and option != offer:
        fail(f'"{option}" and "{offer}" are two offers. Say one.', 2)
    most = read_amount(max_usd) if max_usd else None
    if max_usd and most is None:
        fail(f'--max-usd "{max_usd[:40]}" is no amount. Write 12.50.', 2)
    choice = _Choice(offer or option, quote, most, at_terminal() and not (yes or as_json), as_json)
    said: dict[str, Any] = {"amount": amount or None, "cap_usd": cap.lstrip("$") or None, "reason": reason}
    said["hours"] = hours or None
    done = spoken(lambda api: _approve(api, plain_id(request), choice, said, idempotency_key))
    show_result(done, as_json=as_json)


@dataclass(frozen=True, slots=True)
class _Choice:
    """What the approver named: an offer, the version of the quote that they read, and the most it may cost."""

    offer: str
    quote: int
    most_usd: Decimal | None
    #: Whether a person at the terminal is asked.
    asks: bool
    prints_json: bool


async def _approve(api: ApiClient, request_id: str, choice: _Choice, said: dict[str, Any], key: str) -> Any:
    one = RequestOut.model_validate(await api.get(f"/requests/{request_id}"))
    if choice.asks:
        print_report(request_details(one))
    option = _chosen(one, choice)
    if one.state == RequestState.WAITING and one.wait is not None:
        _in_advance(one.wait, choice, short_id(one.id))
    if choice.asks and one.state == RequestState.PENDING and not agreed(_question(one, option)):
        typer.echo("Nothing was approved.")
        raise typer.Exit(1)
    # The request is approved at the version that was shown: a quote that changed since is refused.
    body = {**said, "offer_id": option.offer_id if option else choice.offer or None}
    body |= {"quote_version": choice.quote or one.quote_version or None}
    body["digest"] = one.waiting.digest if one.waiting else None
    while True:
        try:
            done = await api.post(f"/requests/{one.id}/approve", body, key)
            return done if choice.prints_json else _with_terms(done, one, option, body)
        except RefusedCall as refused:
            if not choice.asks or refused.code not in AMOUNT:
                raise _explained(refused, short_id(one.id)) from refused
            body["amount"] = prompt(str(refused))
            key = key and f"{key}/{body['amount']}"  # Another call: what it says has changed.


def _in_advance(wait: WaitOut, choice: _Choice, named: str) -> None:
    """Ask, or check against --max-usd, before limits are approved for which there is no offer yet."""
    total, rate_h = wait.total_cap_usd, wait.price_cap_usd_h
    if total is None or rate_h is None:
        return  # The service refuses it, and says why.
    if choice.asks:
        if not agreed(f"Approve in advance at most {rate(rate_h)} and {usd(total)} in all?"):
            typer.echo("Nothing was approved.")
            raise typer.Exit(1)
    elif choice.most_usd is None or total > choice.most_usd:
        least = f"`gpu-shopper approve {named} --max-usd {money.cents_up(total)}`"
        fail(f"It may cost {usd(total)} and has no offer yet. Say that you approve that: {least}.", 2)


def _chosen(one: RequestOut, choice: _Choice) -> OptionOut | None:
    """Return the approved option; None for a 12-hour override, which has none. Ends the program for no such offer."""
    if not one.options:
        return None
    by_name = {name: option for option in one.options for name in (str(option.rank), option.offer_id)}
    named = choice.offer
    waits = one.state == RequestState.PENDING
    if not named and choice.asks and waits and len(one.options) > 1:
        ranks = {str(option.rank): option.offer_id for option in one.options}
        named = chosen_of(ranks, "Which offer? A number", "1")
    option = by_name.get(named or str(one.options[0].rank))
    command = f"gpu-shopper approve {short_id(one.id)}"
    if option is None:
        fail(f'No offer "{named[:80]}" in this request. Run `gpu-shopper request {short_id(one.id)}`.', 2)
    if not waits:
        return option  # The service says how it was decided; a repeated call gets its first answer.
    if not choice.asks and not choice.quote and choice.most_usd is None:
        example = f"`{command} --option {option.rank} --quote-version {one.quote_version}`"
        total = f"`--max-usd {money.cents_up(option.worst_usd)}`"
        fail(f"Say which offer you read, such as {example}, or the most that it may cost, such as {total}.", 2)
    if choice.quote not in (0, one.quote_version):
        fail(MOVED.format(id=short_id(one.id)))
    if choice.most_usd is not None and option.worst_usd > choice.most_usd:
        sentence = f"It can cost up to {usd(option.worst_usd)}, which is above --max-usd {usd(choice.most_usd)}."
        fail(f"{sentence} Nothing was approved. Look again: `gpu-shopper request {short_id(one.id)}`.")
    return option


def _question(one: RequestOut, option: OptionOut | None) -> str:
    if option is None:
        return f"Approve the {one.requested}?"
    gpus = machine(option.nodes, option.gpu_count, option.gpu, "x")
    what = f"#{option.rank}, {gpus} at {option.cloud} for {rate(option.price_usd_h)}"
    if one.kind != RequestKind.PROVISION:
        what = f"{one.requested} ({what})"
    return f"Approve {what}: about {usd(option.expected_usd)}, never more than {usd(option.worst_usd)}?"


def _with_terms(done: Any, one: RequestOut, option: OptionOut | None, body: Mapping[str, Any]) -> Any:
    """Add to the answer of an approval what was approved, and where to watch it."""
    if option is None or done["code"] != ReplyCode.APPROVED:
        return done
    is_new = one.kind in RENTS
    terms = f"{machine(option.nodes, option.gpu_count, option.gpu, 'x')} at {option.cloud}" if is_new else one.requested
    if not (body["cap_usd"] or body["hours"]):
        terms += f", about {usd(option.expected_usd)}, never more than {usd(option.worst_usd)}"
    named = short_id(one.id if is_new else one.parent_id or one.id)
    after = f"Follow it: `gpu-shopper session {named}{' --watch' if is_new else ''}`."
    return done | {"sentence": f"{done['sentence']} {terms}. {after}"}


def _explained(refused: RefusedCall, named: str) -> RefusedCall:
    """Add to a refusal what to do next."""
    if refused.code in CHANGED:
        return RefusedCall(refused.status, refused.code, MOVED.format(id=named))
    if refused.code == ReplyCode.NOT_AN_APPROVER:
        who = "the person of your API key" if elsewhere() else f"{load('access.settings').operator().ref}"
        sentence = f"{refused} Here you act as {who}. A Slack account counts as the same person only where the policy"
        return RefusedCall(refused.status, refused.code, f"{sentence} links both names under `same_person`.")
    return refused


def reject(
    request: Named,
    reason: Annotated[str, typer.Option(help="Why; the requester reads it.")] = "",
    idempotency_key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Reject a request, with a reason."""
    if not reason and sys.stdin.isatty() and not as_json:
        reason = prompt("Why? The requester reads it")
    done = spoken(lambda api: api.post(f"/requests/{plain_id(request)}/reject", {"reason": reason}, idempotency_key))
    show_result(done, as_json=as_json)


def revoke(request: Named, as_json: Json = False) -> None:
    """Revoke your approval in advance of a request that waits for an offer."""
    show_result(spoken(lambda api: api.post(f"/requests/{plain_id(request)}/revoke", {})), as_json=as_json)


def why(request: Named, as_json: Json = False) -> None:
    """Show which policy rule requires the approval of a request, who may approve it, and what was waived."""
    found = spoken(lambda api: api.get(f"/requests/{plain_id(request)}/why"))
    show(found if as_json else TextReport(sentences=tuple(found["sentences"])))


def break_glass(
    request: Named,
    words: Words = None,
    reason: Annotated[str, typer.Option(help="Why it can't wait; every approver reads it.")] = "",
    offer: Annotated[str, typer.Option(help="Which offer, by its id; without it, the first one.")] = "",
    idempotency_key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Start your own small, short request without an approval. Every approver receives a notification."""
    named, why_now = plain_id(request), in_words(reason, words)
    if not why_now:
        fail(f"Say why it can't wait, such as `gpu-shopper break-glass {named} the demo is down`.", 2)
    body = {"reason": why_now, "offer_id": offer or None}
    done = spoken(lambda api: api.post(f"/requests/{named}/break-glass", body, idempotency_key))
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
def list_(columns: Columns = "", as_json: Json = False) -> None:
    """List who approves for whom now."""
    found = spoken(lambda api: api.get("/delegations"))
    cells: ListColumns[Any] = (
        ("in the place of", lambda one: one["delegator_name"] or name_of(one["delegator"])),
        ("approves", lambda one: one["delegate_name"] or name_of(one["delegate"])),
        ("until", lambda one: one["until"]),
    )
    report = listing("Nobody approves for anybody else now.", cells, found)
    show(found if as_json else report, columns)


@delegate_app.command()
def off(as_json: Json = False) -> None:
    """End your delegation: from now on nobody approves in your place."""
    show_result(spoken(lambda api: api.delete("/delegations")), as_json=as_json)
