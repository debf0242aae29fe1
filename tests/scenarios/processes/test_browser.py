"""The practice page as a new user meets it: a real Chromium in front of `gpu-shopper demo`."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Coroutine, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Self, TypeVar

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from bot.cli.demo.demo_stack import Playground, playground
from ledger.queries.audit import read_books
from providers.sandbox.engine import SandboxCloud
from tests.scenarios.processes.processes import PROGRAM
from tests.support.debian_packages import find

pytestmark = [pytest.mark.browser, pytest.mark.slow]
LIMIT_MS = 25_000
END_S = 30
ASK = '/gpu provision 4090 2h for="fine-tune"'
SIZE: Any = {"width": 1280, "height": 860}
Result = TypeVar("Result")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the page, from the line that the program prints for people."""
    pipe = subprocess.PIPE
    folder = tmp_path_factory.mktemp("demo")
    with subprocess.Popen(
        [PROGRAM, "demo", "--empty", "--port", "0"], stdout=pipe, stderr=pipe, text=True, cwd=folder
    ) as process:
        assert process.stdout is not None
        said = ""
        while (found := re.search(r"Open (http://127\.0\.0\.1:\d+/)", said)) is None:
            line = process.stdout.readline()
            assert line, f"the demo ended:\n{said}"
            said += line
        yield found[1]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=END_S)
        assert process.returncode == 0
        assert "Traceback" not in errors


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The machine's own Chromium."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=find(), args=["--no-sandbox"])
        yield chromium
        chromium.close()


class Town:
    """The same page in this process, so that a test can move the market behind it; `options` are the playground's."""

    def __init__(self, **options: Any) -> None:
        self.running: Playground
        self._options = options
        self._ready, self._stop = threading.Event(), asyncio.Event()
        self._loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="town")

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(END_S), "the playground did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(END_S)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with playground(port=0, seed=7, boot_s=0.3, **self._options) as self.running:
            self._ready.set()
            await self._stop.wait()

    def reprice(self, factor: str) -> None:
        """Every offer of the newest quote costs so many times what is shown."""
        self._do(lambda cloud, key: cloud.reprice(key, Decimal(factor)))

    def withdraw(self) -> None:
        """Somebody else rents everything that the newest quote shows."""
        self._do(lambda cloud, key: cloud.withdraw(key))

    def _do(self, change: Callable[[SandboxCloud, str], int]) -> None:
        async def changed() -> int:
            books = await read_books(self.running.ctx.db)
            newest = books.quotes[-1].id
            shown = [option for option in books.options if option.quote_id == newest]
            return sum(change(self.running.clouds[option.cloud], option.offer_key) for option in shown)

        assert self.call(changed()) > 0

    def call(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Wait for a coroutine on the loop of the page."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(END_S)


@pytest.fixture(scope="module")
def town() -> Iterator[Town]:
    """A playground whose market the test moves."""
    with Town() as town:
        yield town


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """The page as Alice sees it first. Nothing in it may go wrong by itself."""
    yield from _shown(browser, address)


def _shown(browser: Browser, address: str) -> Iterator[Page]:
    wrong: list[str] = []
    page = browser.new_page(viewport=SIZE)
    page.set_default_timeout(LIMIT_MS)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.goto(address)
    expect(page.locator("#app")).not_to_have_attribute("aria-busy", "true", timeout=LIMIT_MS)
    yield page
    page.close()
    assert wrong == []


class Window:
    """What somebody does with the page."""

    def __init__(self, page: Page, pictures: Path) -> None:
        self.page = page
        self._pictures = pictures

    def become(self, who: str) -> None:
        """Act as somebody else."""
        self.page.locator(f"button[data-person={who}]").click()
        expect(self.page.locator(f"button[data-person={who}]")).to_have_attribute("aria-checked", "true")

    def go(self, place: str) -> None:
        """Look at another place of the sidebar."""
        self.page.locator("#sidebar button.place", has=self.page.get_by_text(place, exact=True)).click()

    def type(self, line: str) -> None:
        """Type a line and send it with the Enter key."""
        field = self.page.locator(".pane textarea.compose")
        field.click()
        field.press_sequentially(line)
        field.press("Enter")

    def ask(self, line: str = ASK) -> Locator:
        """Ask as Alice; the message with the offers."""
        shown = self.decidable().count()
        self.type(line)
        expect(self.decidable()).to_have_count(shown + 1, timeout=LIMIT_MS)
        stamp = self.decidable().last.get_attribute("data-ts")
        return self.page.locator(f'.pane article[data-ts="{stamp}"]')

    def decidable(self) -> Locator:
        """Messages with an Approve button."""
        approve = self.page.locator("button[data-action-id='approve:1']")
        return self.page.locator(".pane article.message", has=approve)

    def private(self, words: str) -> Locator:
        """A message that only this person sees."""
        return self.page.locator("article.ephemeral", has_text=words)

    def dialog(self, title: str) -> Locator:
        """An open dialog."""
        return self.page.get_by_role("dialog", name=title)

    def picture(self, name: str) -> None:
        """Keep what is on the screen now."""
        self.page.screenshot(path=self._pictures / f"{name}.png", animations="disabled")


@pytest.fixture
def window(page: Page, tmp_path: Path) -> Window:
    """The page in somebody's hands."""
    return Window(page, tmp_path)


@pytest.fixture
def in_town(browser: Browser, town: Town, tmp_path: Path) -> Iterator[Window]:
    """The page of that playground in somebody's hands."""
    for page in _shown(browser, town.running.url):
        yield Window(page, tmp_path)


def soon(locator: Locator, words: str) -> None:
    """Words that must appear."""
    expect(locator).to_contain_text(words, timeout=LIMIT_MS)


def click(message: Locator, words: str) -> None:
    """Press a button of a message."""
    message.locator("button", has_text=words).first.click()


def test_the_whole_walk(window: Window) -> None:
    offers = window.ask()
    expect(window.private("Asking")).to_be_visible()
    soon(offers, "1× RTX4090 for 2 hours")
    soon(offers, "fine-tune")
    soon(offers, "Needs 1 approval from @bob or @carol")
    window.picture("1-offers")

    click(offers, "Approve $")
    expect(window.private("You can't approve your own request")).to_be_visible(timeout=LIMIT_MS)
    window.become("dave")
    click(offers, "Approve $")
    expect(window.private("Only approvers can do this")).to_be_visible(timeout=LIMIT_MS)
    expect(window.private("You can't approve your own request")).to_have_count(0)
    window.picture("2-refused")

    window.become("bob")
    expect(window.private("Only approvers can do this")).to_have_count(0)
    click(offers, "Approve $")
    soon(offers, "Approved by @bob")
    expect(offers.locator("button[data-action-id]")).to_have_count(0)
    soon(offers, "Booting")
    window.picture("3-booting")
    window.page.get_by_role("button", name="+10 min").click()
    soon(offers, "Ready")
    offers.locator("button.replies").click()
    soon(window.page.locator("#thread"), "How each total is made")
    window.picture("4-ready")

    window.become("alice")
    window.go("GPU Shopper")
    ready = window.page.locator(".pane article.message", has_text="ssh -p").last
    expect(ready).to_be_visible(timeout=LIMIT_MS)
    window.picture("5-how-to-connect")
    click(ready, "End it now")
    question = window.page.get_by_role("alertdialog", name="End this session?")
    soon(question, "its disk is deleted")
    window.picture("6-question")
    question.get_by_role("button", name="End it").click()
    expect(window.page.locator(".pane article.message", has_text="ended.").last).to_be_visible(timeout=LIMIT_MS)
    window.go("gpu")
    soon(offers, "Terminated")
    soon(offers, "Ended")
    window.picture("7-gone")


def test_the_form_and_a_rejection(window: Window) -> None:
    window.type("/gpu provision")
    form = window.dialog("Request GPUs")
    expect(form).to_be_visible(timeout=LIMIT_MS)
    soon(form, "About $")
    window.picture("form")
    form.get_by_label("GPU", exact=True).select_option("RTX4090")
    soon(form, "for 2 hours · 1× RTX4090")
    form.get_by_label("Time", exact=True).select_option("90m")
    soon(form, "for 1.5 hours · 1× RTX4090")
    form.get_by_role("button", name="More options").click()
    form.get_by_label("Total cost").fill("free")
    form.get_by_role("button", name="Request", exact=True).click()
    soon(form, "not an amount")
    window.picture("form-refused")
    form.get_by_label("Total cost").fill("$5")
    form.get_by_label("What for?").fill("<b>evaluation</b>")
    form.get_by_role("button", name="Request", exact=True).click()
    expect(form).to_have_count(0, timeout=LIMIT_MS)
    offers = window.decidable().last
    soon(offers, "1× RTX4090 for 1.5 hours")
    soon(offers, "<b>evaluation</b>")
    stamp = offers.get_attribute("data-ts")
    message = window.page.locator(f'.pane article[data-ts="{stamp}"]')

    window.become("bob")
    click(message, "Reject…")
    dialog = window.dialog("Reject the request")
    dialog.get_by_label("Reason").fill("There is an idle A100: use that.")
    window.picture("reject")
    dialog.get_by_role("button", name="Reject").click()
    soon(message, "Rejected by @bob")
    soon(message, "There is an idle A100: use that.")
    expect(message.locator("button[data-action-id]")).to_have_count(0)
    window.picture("rejected")


def test_an_expensive_request_asks_for_the_amount(window: Window) -> None:
    offers = window.ask('/gpu provision 8xH100 12h for="pre-training"')
    window.become("bob")
    click(offers, "Approve $")
    dialog = window.dialog("Confirm the amount")
    expect(dialog).to_be_visible(timeout=LIMIT_MS)
    wanted = re.search(r"Type \$([\d,.]+) to confirm", dialog.inner_text())
    assert wanted is not None
    dialog.get_by_label("to confirm").fill("100")
    dialog.get_by_role("button", name="Approve").click()
    soon(dialog, "You typed $100.00")
    window.picture("amount-refused")
    dialog.get_by_label("to confirm").fill(wanted[1])
    dialog.get_by_role("button", name="Approve").click()
    soon(offers, "Approved by @bob")
    expect(dialog).to_have_count(0)


def test_a_wrong_word_is_pointed_at_and_nobody_decides_in_time(window: Window) -> None:
    window.type("/gpu provision 4090 2hh")
    answer = window.private("For example").last
    expect(answer).to_be_visible(timeout=LIMIT_MS)
    soon(answer, "^^^")
    window.picture("wrong-word")
    offers = window.ask()
    window.page.get_by_role("button", name="+12 h").click()
    soon(offers, "Expired")
    expect(offers.locator("button[data-action-id]")).to_have_count(0)
    window.page.get_by_role("button", name="Raw JSON", exact=True).click()
    soon(window.page.locator("#drawer"), "slash_commands")
    window.picture("expired")


def test_a_price_that_moved_asks_again(in_town: Window, town: Town) -> None:
    offers = in_town.ask()
    town.reprice("1.5")
    in_town.become("bob")
    click(offers, "Approve $")
    soon(offers, "Asked again")
    soon(offers, "above the approved")
    _asked_anew_and_approved(in_town, offers)


def test_offers_that_are_gone_ask_again(in_town: Window, town: Town) -> None:
    offers = in_town.ask()
    town.withdraw()
    in_town.become("bob")
    click(offers, "Approve $")
    soon(offers, "Asked again")
    soon(offers, "no longer for sale")
    _asked_anew_and_approved(in_town, offers)


def _asked_anew_and_approved(window: Window, offers: Locator) -> None:
    """The approvers are told in the thread, and the next approval leads to a machine."""
    offers.locator("button.replies").click()
    soon(window.page.locator("#thread"), "needs a new decision")
    soon(window.page.locator("#thread"), "@carol")
    window.picture("asked-again")
    window.become("carol")
    click(offers, "Approve $")
    soon(offers, "Approved by @carol")
    soon(offers, "Ready")
