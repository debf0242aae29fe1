"""The request card in a real browser, in each state, at 1280 and at 390 pixels; `make pictures` keeps them in docs/."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.scenarios.processes.test_browser import LIMIT_MS, Window, browser, click, in_town, soon, town

pytestmark = [pytest.mark.browser, pytest.mark.slow]
#: Fixtures of the page's own tests.
__all__ = ["browser", "in_town", "town"]

PHONE, DESK = (390, 844), (1280, 860)
TERMINAL_PX = 920
#: Where the pictures are kept; without it they go to the test's own folder.
FOLDER = "PICTURES"


class Camera:
    """Take the card's picture at both widths."""

    def __init__(self, window: Window, folder: Path) -> None:
        self._window, self._folder = window, folder

    def take(self, card: Locator, name: str) -> None:
        """Keep a picture of the card at each width, and check that nothing of it is off the screen."""
        for width, height in (PHONE, DESK):
            self._window.page.set_viewport_size({"width": width, "height": height})
            card.evaluate("shown => shown.scrollIntoView({block: 'nearest'})")
            wide = self._window.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"{name}: the page is {wide} pixels wide at {width}"
            # The message is drawn anew whenever it changes, so the picture is of its place on the page.
            box: Any = card.bounding_box()
            path = self._folder / f"{name}-{width}.png"
            self._window.page.screenshot(path=path, clip=box, animations="disabled")

    def page(self, html: str, name: str) -> None:
        """Keep a picture of a page of its own, as high as what it shows."""
        browser = self._window.page.context.browser
        assert browser is not None
        page = browser.new_page(viewport={"width": TERMINAL_PX, "height": 1})
        page.set_content(html)
        page.screenshot(path=self._folder / f"{name}.png", full_page=True)
        page.close()


@pytest.fixture
def camera(in_town: Window, tmp_path: Path) -> Camera:
    folder = Path(os.environ.get(FOLDER) or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return Camera(in_town, folder)


def test_a_card_through_its_life(in_town: Window, camera: Camera) -> None:
    card = in_town.ask('/gpu provision 4xA100-80GB 6h for="fine-tune the reranker"')
    in_town.page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    box, price = card.bounding_box(), card.get_by_text("never more than").bounding_box()
    assert box is not None
    assert price is not None
    assert price["y"] + price["height"] - box["y"] < PHONE[1] / 2  # The price is on the first screen of a phone.
    camera.take(card, "card-1-waiting")

    in_town.become("bob")
    click(card, "Other offers")
    dialog = in_town.dialog("Other offers")
    expect(dialog).to_be_visible(timeout=LIMIT_MS)
    dialog.locator("input[type=radio]").first.check()
    camera.take(dialog, "card-2-other-offers")
    dialog.get_by_role("button", name="Cancel").click()
    card.locator("button.replies").click()
    soon(in_town.page.locator("#thread"), "How each total is made")
    camera.take(in_town.page.locator("#thread"), "card-3-details")
    # On a phone the thread covers the channel, and with it the card of the next pictures.
    in_town.page.locator("#thread").get_by_role("button", name="Close").click()
    expect(in_town.page.locator("#thread")).to_be_hidden()

    click(card, "Approve $")
    soon(card, "Approved by @bob")
    camera.take(card, "card-4-approved")
    in_town.page.get_by_role("button", name="+10 min").click()
    soon(card, "Ready")
    camera.take(card, "card-5-running")
    in_town.type(f"/gpu terminate {card.locator('code').first.inner_text()} now")
    soon(card, "Total: $")
    camera.take(card, "card-6-ended")


def test_a_card_above_twelve_hours(in_town: Window, camera: Camera) -> None:
    card = in_town.ask('/gpu provision 4090 20h for="sweep"')
    soon(card, "is above the 12-hour limit")
    camera.take(card, "card-7-above-12-hours")
    in_town.become("bob")
    click(card, "Approve 20 h ($")
    soon(card, "Approved by @bob")
    assert isinstance(in_town, Window)
