"""Browsing the market in Slack: *Next 5* goes on at the same prices, and a filter asks again with one word changed."""

from __future__ import annotations

import re

import pytest

from bot.practice.model import ChatMessage
from bot.practice.reader import all_text, buttons
from bot.services.market.snapshots import PINNED_S
from bot.slack.blocks.inventory import SHOWN
from bot.slack.browsing import READ_AGAIN, changed
from tests.slack.conftest import Stage

OFFER = re.compile(r"^`(\w+:\S+)`$", re.MULTILINE)


def newest(stage: Stage, who: str = "alice") -> ChatMessage:
    return stage.ws.ephemerals(who)[-1]


def shown(message: ChatMessage) -> list[str]:
    """The ids of the offers that a message shows."""
    return OFFER.findall(all_text(message))


def action(message: ChatMessage, name: str) -> str:
    """The action id of one of the buttons and menus, by the name in it."""
    (row,) = (block["elements"] for block in message.blocks if block["type"] == "actions")
    (found,) = (one["action_id"] for one in row if one["action_id"].split(":")[1] == name)
    return str(found)


async def choose(stage: Stage, message: ChatMessage, name: str, word: str) -> ChatMessage:
    """Choose in one of the menus, and return the answer."""
    await stage.as_("alice").click(message, action(message, name), word)
    await stage.settle()
    return newest(stage)


async def test_next_5_shows_every_offer_once_at_the_prices_of_the_first_answer(stage: Stage) -> None:
    await stage.command("alice", "/gpu inventory 4090 sort=price")
    message = newest(stage)
    total = int(re.search(r"1–5 of ([\d,]+) offers\.", all_text(message))[1].replace(",", ""))  # type: ignore[index]
    seen = shown(message)
    assert len(seen) == SHOWN < total
    while any(one["action_id"].startswith("browse:next:") for one in buttons(message)):
        stage.w.clock.advance(20)
        await stage.click("alice", message, "Next 5")
        message = newest(stage)
        assert READ_AGAIN not in all_text(message)
        seen += shown(message)
    assert len(seen) == len(set(seen)) == total
    assert f"of {total:,} offers." in all_text(message)


async def test_after_ten_minutes_next_5_reads_the_prices_again_and_says_so(stage: Stage) -> None:
    await stage.command("alice", "/gpu inventory 4090")
    message = newest(stage)
    stage.w.clock.advance(PINNED_S + 1)
    await stage.click("alice", message, "Next 5")
    told = all_text(newest(stage))
    assert READ_AGAIN in told
    assert "6–10 of " in told


async def test_menus_filter_and_sort_what_was_typed(stage: Stage) -> None:
    await stage.command("alice", "/gpu inventory 4090 clouds=vast")
    everywhere = newest(stage)
    found = await choose(stage, everywhere, "sort", "sort=reliability")
    assert action(found, "sort") == "browse:sort:4090 clouds=vast sort=reliability"
    shares = [float(share) for share in re.findall(r"([\d.]+)% reliable", found.text)]
    assert len(shares) == len(shown(found)) == SHOWN
    assert shares == sorted(shares, reverse=True)
    assert set(shown(found)) != set(shown(everywhere))
    american = await choose(stage, found, "region", "region=US")
    assert {offer.partition(":")[0] for offer in shown(american)} == {"vast"}
    assert american.text.count("· US ·") == len(shown(american)) > 0
    all_clouds = await choose(stage, american, "clouds", "clouds=")
    assert action(all_clouds, "sort") == "browse:sort:4090 sort=reliability region=US"
    assert set(shown(american)) < set(shown(all_clouds))


async def test_a_filter_that_leaves_nothing_keeps_the_menus_and_advises(stage: Stage) -> None:
    await stage.command("alice", "/gpu inventory 4090 region=Atlantis")
    message = newest(stage)
    told = all_text(message)
    assert "No offer fits now" in told
    assert "No offer is in “Atlantis” now; there are offers in " in told
    assert "With region=" in told
    assert shown(await choose(stage, message, "region", "region="))


@pytest.mark.parametrize(
    ("typed", "word", "said"),
    [
        ("", "region=SE", "region=SE"),
        ("4090 region=US", "region=SE", "4090 region=SE"),
        ("4090 --regions=US", "region=", "4090"),
        ("4090 vast,runpod", "clouds=lambda", "4090 clouds=lambda"),
        ("4090 provider=vast", "clouds=", "4090"),
        ('4090 region="US East" sort=price', "sort=memory", '4090 region="US East" sort=memory'),
        ("4090", 'region="US East"', '4090 region="US East"'),
    ],
)
def test_one_word_is_changed_and_the_others_stay(typed: str, word: str, said: str) -> None:
    assert changed(typed, word) == said
