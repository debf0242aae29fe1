"""The page in a real browser: what it draws, what it refuses to run, and how people act on it."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest
from playwright.async_api import Page, async_playwright, expect
from slack_sdk.web.async_client import AsyncWebClient

from bot.blockkit import mrkdwn, quote_block
from bot.practice.app import Practice
from bot.practice.driver import Driver
from tests.practice.echo_app import BOT_TOKEN, EchoApp, plain

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
HOSTILE = "<img src=x onerror=alert(1)> <script>alert(2)</script> <javascript:alert(3)|link> <!channel>"


@pytest.fixture
async def page(practice: Practice, echo: EchoApp) -> AsyncIterator[Page]:
    """A page acting as alice in #gpu; the test fails for any error in the browser's console."""
    problems: list[str] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--no-proxy-server"])
        page = await browser.new_page(viewport={"width": 1280, "height": 800})
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda r: None if r.url.startswith(practice.workspace.base_url) else problems.append(r.url))
        await page.goto(f"{practice.workspace.base_url}/#as=alice&c=C0GPU")
        await expect(page.get_by_role("heading", name="gpu", exact=True)).to_be_visible()
        yield page
        await browser.close()
    assert [p for p in problems if "unknown block type: hologram" not in p] == []


@pytest.fixture
def client(practice: Practice) -> AsyncWebClient:
    return AsyncWebClient(token=BOT_TOKEN, base_url=practice.api_url)


async def test_a_person_asks_and_another_approves(page: Page, ws: Driver) -> None:
    composer = page.get_by_role("textbox", name="Message #gpu")
    await composer.press_sequentially("/gpu p")
    await expect(page.get_by_role("option").first).to_contain_text("/gpu provision 1xH100 2h")
    await composer.fill("/gpu offer")
    await composer.press("Enter")
    await page.get_by_role("radio", name="Dave").click()
    await page.get_by_role("button", name="Reject").click()
    await expect(page.get_by_text("Only visible to you")).to_be_visible()
    await expect(page.get_by_text("You may not decide this")).to_be_visible()
    await page.get_by_role("radio", name="Bob").click()
    await expect(page.get_by_text("You may not decide this")).to_have_count(0)
    await page.get_by_role("button", name="Approve").click()
    await expect(page.get_by_text("(edited)")).to_be_visible()
    await expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    await page.get_by_role("button", name="1 reply").click()
    await expect(page.get_by_role("complementary", name="Thread").get_by_text("Placing it")).to_be_visible()
    await expect(page.get_by_label("1 new")).to_be_visible()
    await page.get_by_role("button", name="GPU Echo").click()
    await expect(page.get_by_text("You approved it")).to_be_visible()
    assert ws.duplicates() == []


async def test_a_dialog_by_keyboard_alone(page: Page, ws: Driver, echo: EchoApp) -> None:
    await page.get_by_role("textbox", name="Message #gpu").fill("/gpu ask")
    await page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_label("Reason")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(dialog.get_by_role("alert")).to_have_text("Please complete this required field.")
    await page.keyboard.type("training")
    await dialog.get_by_role("button", name="More").click()
    await expect(dialog.get_by_role("heading", name="Two")).to_be_visible()
    await expect(dialog.get_by_label("Reason")).to_have_value("training")
    await dialog.get_by_label("Hours").select_option("2")
    await dialog.get_by_label("Reason").press("Enter")
    await expect(dialog).to_have_count(0)
    state = echo.seen[-1][1]["view"]["state"]["values"]
    assert state["reason"]["reason"]["value"] == "training"
    assert state["hours"]["hours"]["selected_option"]["value"] == "2"
    await page.get_by_role("textbox", name="Message #gpu").fill("/gpu ask")
    await page.keyboard.press("Enter")
    await expect(dialog).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)


async def test_hostile_words_are_only_words(page: Page, client: AsyncWebClient) -> None:
    table = {"type": "table", "rows": [[{"type": "raw_text", "text": HOSTILE}]]}
    blocks: list[dict[str, Any]] = [{"type": "section", "text": mrkdwn(HOSTILE)}, quote_block(HOSTILE), table]
    await client.chat_postMessage(channel="C0GPU", text=HOSTILE)
    await client.chat_postMessage(channel="C0GPU", text="x", blocks=blocks)
    await expect(page.get_by_role("columnheader", name="<script>alert(2)</script>")).to_be_visible()
    assert await page.locator(".messages img:not(.app-face img), .messages script").count() == 0
    assert await page.locator(".messages a").count() == 0


async def test_every_block_type_is_drawn(page: Page, client: AsyncWebClient) -> None:
    series = [{"name": "s", "data": [{"label": "Mon", "value": 3}, {"label": "Tue", "value": -1}]}]
    axis = {"categories": ["Mon", "Tue"], "x_label": "day", "y_label": "USD"}
    option = {"text": plain("One"), "value": "1", "description": plain("the first")}
    cells = [[{"type": "raw_text", "text": f"{n} h"}] for n in range(13)]
    for kind in ("bar", "line", "area"):
        chart = {"type": kind, "series": series, "axis_config": axis}
        block = {"type": "data_visualization", "title": f"A {kind}", "chart": chart}
        await client.chat_postMessage(channel="C0GPU", text="x", blocks=[block])
    pie = {"type": "pie", "segments": [{"label": "all of it", "value": 1}]}
    date = "<!date^1760000000^{date_long_pretty} {time} {ago} {nothing}|then>"
    picture = {"type": "image", "slack_file": {"id": "F"}, "alt_text": "i"}
    mentions = "<https://x.example|there> <@U0BOB> <#C0GPU> <!here>"
    words = f"*b* _i_ ~s~ `c` :rocket: :no_such: {date} {mentions}\n&gt; q\n```p```"
    elements = [
        {"type": "overflow", "action_id": "o", "options": [option]},
        {"type": "radio_buttons", "action_id": "r", "options": [option]},
        {"type": "checkboxes", "action_id": "c", "options": [option]},
        {"type": "datepicker", "action_id": "d", "initial_date": "2026-11-21"},
        {"type": "timepicker", "action_id": "t"},
        {"type": "users_select", "action_id": "u"},
        {"type": "channels_select", "action_id": "h"},
    ]
    blocks: list[dict[str, Any]] = [
        {"type": "data_visualization", "title": "A pie", "chart": pie},
        {"type": "section", "text": {"type": "mrkdwn", "text": words}},
        {"type": "section", "fields": [plain(":rocket: field")]},
        {"type": "context", "elements": [plain("small"), picture]},
        {"type": "image", "image_url": "https://x.example/i.png", "alt_text": "elsewhere", "title": plain("Picture")},
        {"type": "data_table", "caption": "Hours", "page_size": 5, "rows": cells},
        {"type": "actions", "elements": elements},
        {"type": "markdown", "text": "## **bold**"},
        {"type": "divider"},
        {"type": "container", "title": plain("C"), "subtitle": plain("sub"), "child_blocks": [{"type": "divider"}]},
    ]
    await client.chat_postMessage(channel="C0GPU", text="x", blocks=blocks)
    await expect(page.locator("figure.chart")).to_have_count(4)
    await expect(page.get_by_text("Picture: elsewhere")).to_be_visible()
    await page.get_by_role("button", name="Next page").click()
    await expect(page.get_by_text("2 of 3")).to_be_visible()
    await expect(page.locator(".broken")).to_have_count(0)
    await expect(page.locator("blockquote")).to_have_text("q")
    await expect(page.get_by_role("link", name="there")).to_have_attribute("rel", "noopener noreferrer")


async def test_a_block_that_cannot_be_drawn_says_so(page: Page, practice: Practice, client: AsyncWebClient) -> None:
    await client.chat_postMessage(channel="C0GPU", text="x", blocks=[{"type": "divider"}])
    practice.workspace.messages[-1].blocks[0]["type"] = "hologram"
    practice.workspace.messages[-1].version += 1
    practice.workspace.changed()
    await expect(page.get_by_role("alert")).to_have_text("This block cannot be shown (unknown block type: hologram).")


async def test_a_question_before_the_click(page: Page, ws: Driver, echo: EchoApp, client: AsyncWebClient) -> None:
    ask = {"title": plain("Sure?"), "text": plain("This ends it."), "confirm": plain("End it"), "deny": plain("Keep")}
    button = {"type": "button", "action_id": "reject", "text": plain("Terminate"), "confirm": ask}
    await client.chat_postMessage(channel="C0GPU", text="x", blocks=[{"type": "actions", "elements": [button]}])
    await page.get_by_role("button", name="Terminate").click()
    await page.get_by_role("button", name="Keep").click()
    assert echo.seen == []
    await page.get_by_role("button", name="Terminate").click()
    await page.get_by_role("button", name="End it").click()
    await ws.until(lambda: [kind for kind, _ in echo.seen] == ["reject"])


async def test_home_tab_time_travel_and_raw_json(page: Page, practice: Practice, client: AsyncWebClient) -> None:
    await page.get_by_role("button", name="GPU Echo").click()
    await page.get_by_role("tab", name="Home").click()
    await expect(page.get_by_text("Nothing is running")).to_be_visible()
    await page.get_by_role("button", name="+12 h").click()
    await expect(page.get_by_role("status")).to_contain_text("It is now")
    assert getattr(practice.workspace.clock, "ahead_s", 0) == 12 * 3600
    await page.get_by_role("button", name="Raw JSON").click()
    drawer = page.get_by_role("complementary", name="Raw JSON")
    await drawer.get_by_text("views.publish").first.click()
    await expect(drawer.get_by_text('"user_id": "U0ALICE"').first).to_be_visible()


async def test_a_narrow_window_keeps_everything_in_reach(page: Page, client: AsyncWebClient) -> None:
    await page.set_viewport_size({"width": 400, "height": 760})
    await page.get_by_role("button", name="Channels and people").click()
    await page.get_by_role("button", name="general").click()
    await expect(page.get_by_role("heading", name="general", exact=True)).to_be_visible()
    overflow = await page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
    assert overflow is False


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_phone_shows_the_whole_page_in_the_colours_it_prefers(page: Page, scheme: str) -> None:
    await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    await page.set_viewport_size({"width": 390, "height": 844})
    await page.get_by_role("button", name="+10 min").click()
    await expect(page.get_by_text("(travelled)")).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth") == 390
    day = await page.get_by_role("button", name="+1 day").bounding_box()
    assert day is not None
    assert day["x"] + day["width"] <= 390
    paper = await page.evaluate("getComputedStyle(document.querySelector('.app')).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")


async def test_progress_is_shown_while_time_travels(page: Page, practice: Practice) -> None:
    arrived = asyncio.Event()

    async def wait(_passed_s: float) -> None:
        await arrived.wait()

    practice.workspace.on_travel.append(wait)
    await page.get_by_role("button", name="+1 day").click()
    await expect(page.get_by_role("progressbar", name="Time travels")).to_be_visible()
    await expect(page.get_by_role("button", name="+1 h")).to_be_disabled()
    arrived.set()
    await expect(page.get_by_role("progressbar")).to_have_count(0)
    await expect(page.get_by_role("button", name="+1 h")).to_be_enabled()


async def test_a_button_is_called_by_its_text(page: Page, client: AsyncWebClient) -> None:
    button = {"type": "button", "action_id": "a", "text": plain("End it now"), "accessibility_label": "End ses_1"}
    await client.chat_postMessage(channel="C0GPU", text="x", blocks=[{"type": "actions", "elements": [button]}])
    named = page.get_by_role("button", name="End it now", exact=True)
    await expect(named).to_have_attribute("aria-description", "End ses_1")


async def test_an_uploaded_picture_is_drawn_in_its_message(page: Page, client: AsyncWebClient) -> None:
    """One pixel of PNG: it is drawn only when the browser has fetched and decoded it."""
    dot = bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000"
        "050001a5f645400000000049454e44ae426082"
    )
    await client.files_upload_v2(channel="C0GPU", filename="chart.png", content=dot, title="Chart", alt_txt="Cost")
    picture = page.get_by_role("img", name="Cost")
    await expect(picture).to_be_visible()
    await expect(picture).to_have_js_property("naturalWidth", 1)
    await expect(page.get_by_role("link", name="Chart")).to_be_visible()
