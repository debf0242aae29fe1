"""What a card and its thread say of an offer: why it is recommended, and what its amounts are made of."""

from __future__ import annotations

import re

from bot.practice.model import ChatMessage
from bot.practice.reader import all_text
from ledger.kernel.money import cents
from tests.slack.conftest import Stage, words_before_the_buttons


async def details(stage: Stage, card: ChatMessage) -> str:
    await stage.w.run(60)
    (found,) = [one for one in stage.ws.thread(card) if one.text.startswith("How each total is made")]
    return all_text(found)


async def test_the_card_says_why_its_offer_is_recommended_and_the_thread_what_its_amounts_hold(stage: Stage) -> None:
    card = await stage.ask()
    said = all_text(card)
    assert " · *cheapest*\n" in said
    assert words_before_the_buttons(card) <= 60
    await stage.click("alice", card, "offers")
    compared = stage.ws.view("alice")
    assert compared is not None
    dialog = all_text(compared)
    # An offer that is cheaper by the hour and dearer in all says what else it costs.
    dear = re.search(r"\$0\.284/h · about \$0\.(\d\d) with \$0\.(\d\d) transfer", dialog)
    assert dear is not None
    assert int(dear[1]) - int(dear[2]) in (55, 56)  # Two hours at that price, without three minutes of its boot.
    thread = await details(stage, card)
    made_of = re.findall(r"Never more than \$(\d+\.\d\d): (.*)", thread)
    (request,) = (await stage.w.books()).requests
    options = (await stage.w.view(request.id)).options
    assert [amount for amount, _ in made_of] == [f"{cents(one.worst_usd):.2f}" for one in options]
    for amount, parts in made_of:
        assert "compute at a price up to 10% higher" in parts
        assert "retries (failed launches, failover)" in parts
        cents_of_parts = [int(one.replace(".", "")) for one in re.findall(r"\$(\d+\.\d\d) ", parts)]
        assert sum(cents_of_parts) == int(amount.replace(".", ""))


async def test_a_limit_is_what_the_thread_names_too(stage: Stage) -> None:
    card = await stage.ask("/gpu provision 1x4090 2h max=$0.90")
    assert "never more than $0.90" in all_text(card)
    thread = await details(stage, card)
    assert "Never more than $0.90: the limit that was set" in thread


async def test_offers_of_other_gpus_name_them(stage: Stage) -> None:
    card = await stage.ask("/gpu provision H100 model=7B tokens=2B")
    assert words_before_the_buttons(card) <= 60
    assert re.search(r"about \$\d+\.\d\d\* with \$\d+\.\d\d extras · never more than", all_text(card))
    await stage.click("bob", card, "offers")
    dialog = stage.ws.view("bob")
    assert dialog is not None
    shown = [one["text"]["text"] for one in dialog.blocks[0]["element"]["options"]]
    assert all(re.match(r"\d+× H100", one) and len(one) <= 75 for one in shown)


async def test_a_card_with_everything_to_say_keeps_to_its_sixty_words(stage: Stage) -> None:
    why = " ".join(["the whole sweep"] * 6)
    card = await stage.ask(f'/gpu provision 8xH100 20h for="{why}"')
    said = all_text(card)
    assert words_before_the_buttons(card) <= 60
    assert "Most reliable" not in said  # The dialog of offers names it.
    assert "ends by itself" in said
    assert "*Above the 12-hour limit*: approving includes the override." in said  # The title says the time.
    assert "“the whole sweep" in said
    assert why in await details(stage, card)
