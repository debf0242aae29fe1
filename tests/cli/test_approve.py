"""A person at a terminal approves: the offer with its total is shown, and nothing is approved without a yes."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest

from bot.rules.values.phrases import usd
from ledger.kernel.states import RequestState, SessionState
from tests.cli.test_doors import Terminal, elsewhere, terminal
from tests.cli.test_terminal import Person

__all__ = ["elsewhere", "terminal"]


@pytest.mark.slow
async def test_a_person_is_shown_the_offer_with_its_total_and_asked(terminal: Terminal) -> None:
    t = terminal
    env = {"GPU_SHOPPER_URL": t.url, "GPU_SHOPPER_API_KEY": t.key}
    request_id = str((await t.w.ask()).data["request_id"])
    await t.w.settle()
    first, second, *_ = (await t.w.view(request_id)).options

    def says(answer: str, *arguments: str, picks: str = "") -> tuple[int, str]:
        person = Person("approve", request_id, *arguments, env=env)
        if picks:
            person.sees("Which offer? A number [1]")
            person.types(f"{picks}\r")
        person.sees("? [y/N]")
        shown = " ".join(person.seen.split())
        person.types(answer)
        return person.ends(), shown + person.seen

    code, said = await asyncio.to_thread(says, "\r", picks="2")
    assert (code, "Nothing was approved." in said) == (1, True)
    assert f"Approve #2, 1x {second.offer['gpu']} at {second.cloud} for $" in said
    assert f"about {usd(second.expected_usd)}, never more than {usd(second.worst_usd)}?" in said
    assert (await t.w.view(request_id)).request.state is RequestState.PENDING

    def leaves() -> int:
        person = Person("approve", request_id, "1", env=env)
        person.sees("? [y/N]")
        person.interrupts()
        return person.ends()

    assert await asyncio.to_thread(leaves) == 130
    assert (await t.w.view(request_id)).request.state is RequestState.PENDING

    code, said = await asyncio.to_thread(says, "y\r", "1")
    assert (code, "Traceback" in said) == (0, False), said
    view = await t.w.view(request_id)
    assert (view.request.state, view.request.chosen_option_id) == (RequestState.APPROVED, first.id)


@pytest.mark.slow
async def test_a_quote_that_changed_after_it_was_shown_is_refused(terminal: Terminal) -> None:
    t = terminal
    env = {"GPU_SHOPPER_URL": t.url, "GPU_SHOPPER_API_KEY": t.key}
    request_id = str((await t.w.ask(candidates=("vast",))).data["request_id"])
    await t.w.settle()
    person = await asyncio.to_thread(Person, "approve", request_id, "1", env=env)
    await asyncio.to_thread(person.sees, "? [y/N]")
    # Somebody else approves; then the price rises above what was approved, and the request has a new quote.
    offer = (await t.w.view(request_id)).options[0].offer_key
    assert (await t.w.decide(request_id)).ok
    t.w.clouds["vast"].reprice(offer, Decimal(3))
    await t.w.settle()
    assert (await t.w.view(request_id)).request.quote_version == 2
    person.types("y\r")
    code = await asyncio.to_thread(person.ends)
    said = " ".join(person.seen.split())
    assert (code, "changed since you looked, so nothing was approved. Look again: `gpu-shopper" in said) == (1, True)
    assert t.w.engine.creates == []


@pytest.mark.slow
async def test_a_person_is_asked_before_the_end_of_work_deletes_the_disk(terminal: Terminal) -> None:
    t = terminal
    env = {"GPU_SHOPPER_URL": t.url, "GPU_SHOPPER_API_KEY": t.key}
    request_id = await t.w.running()

    def says(answer: str) -> tuple[int, str]:
        person = Person("done", request_id, env=env)
        person.sees("? Everything in / and /workspace will be deleted. [y/N]")
        person.types(answer)
        return person.ends(), person.seen

    code, said = await asyncio.to_thread(says, "\r")
    assert (code, "Nothing has changed." in said) == (1, True)
    assert (await t.w.books()).sessions[0].state is SessionState.RUNNING
    code, said = await asyncio.to_thread(says, "y\r")
    assert code == 0, said
