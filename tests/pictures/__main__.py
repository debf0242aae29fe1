"""Record the README's animated walk: a request, its approval, the ready machine and its end, in about 20 seconds.

`make picture` runs it: the real practice page in Chromium, the real bot and the sandbox clouds. Each step is one
screenshot with a caption; Pillow joins them to an animated WebP.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from PIL import Image, ImageDraw, ImageFont
from playwright.async_api import Page, async_playwright, expect

from bot.cli.demo.demo_stack import Playground, playground
from bot.practice.remote import RemoteDriver
from tests.support import debian_packages

WALK: Final = Path("docs/walk.webp")
WIDTH, HEIGHT, CAPTION_PX = 1120, 700, 44
TEXT_PX = 19
BACKGROUND, INK = "#1d1c1d", "#ffffff"
#: How much of the picture's detail is kept, from 0 to 100, and the size that a README may load.
QUALITY, MAX_BYTES = 70, 1_500_000
REQUEST: Final = '/gpu provision 1x4090 2h for="fine-tune the reranker"'
#: A public key that opens nothing: its private half was never stored.
KEY: Final = "/gpu key add ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEJmYk0mS1VxZ0hUb2p0c2p5dXBrVXh3c2Z0d3B5a3Rk alice"
STEP_MS: Final = 25_000
TWO_HOURS_S: Final = 2 * 3600 + 60


@dataclass
class Film:
    """Collect screenshots with a caption and a duration."""

    page: Page
    frames: list[Image.Image] = field(default_factory=list)
    durations_ms: list[int] = field(default_factory=list)

    async def shot(self, caption: str, seconds: float) -> None:
        """Take one screenshot that is shown for `seconds`."""
        await self.page.wait_for_timeout(250)
        png = await self.page.screenshot()
        frame = Image.new("RGB", (WIDTH, HEIGHT + CAPTION_PX), BACKGROUND)
        frame.paste(Image.open(io.BytesIO(png)), (0, 0))
        font = ImageFont.load_default(TEXT_PX)
        ImageDraw.Draw(frame).text((20, HEIGHT + (CAPTION_PX - TEXT_PX) // 2 - 2), caption, INK, font)
        self.frames.append(frame)
        self.durations_ms.append(int(seconds * 1000))

    def save(self, path: Path) -> None:
        """Write the animation."""
        first, *others = self.frames
        first.save(
            path, save_all=True, append_images=others, duration=self.durations_ms, loop=0, quality=QUALITY, method=6
        )


async def record(running: Playground, page: Page) -> Film:
    """Play the walk on the page and return its frames."""
    film = Film(page)
    async with RemoteDriver(running.url) as ws:
        await ws.as_("alice").command(KEY)
        await page.goto(f"{running.url}/#as=alice&c=C0GPU")
        composer = page.get_by_role("textbox", name="Message #gpu")
        await expect(composer).to_be_visible()
        for end in (0, 20, len(REQUEST)):
            await composer.fill(REQUEST[:end])
            await film.shot("1  Alice asks for a GPU in Slack.", 0.9)
        await page.keyboard.press("Escape")
        await composer.press("Enter")
        approve = page.get_by_role("button", name=re.compile("^Approve"))
        await expect(approve.first).to_be_visible(timeout=STEP_MS)
        await film.shot("2  The bot ranks what five clouds sell right now.", 3.2)
        await page.get_by_role("radio", name="Bob").click()
        await approve.first.hover()
        await film.shot("3  Bob, an approver, reads the price and presses Approve.", 2.2)
        await approve.first.click()
        await expect(approve).to_have_count(0, timeout=STEP_MS)
        await film.shot("4  The bot launches the instance. It sends one create call, never two.", 2.4)
        ready = await ws.until(lambda: [m for m in ws.dm_messages("alice") if "ssh " in m.text], STEP_MS / 1000)
        assert ready
        await page.get_by_role("radio", name="Alice").click()
        await page.get_by_role("navigation").get_by_role("button", name=re.compile("GPU Shopper")).click()
        await expect(page.get_by_text(re.compile("ssh -p")).last).to_be_visible(timeout=STEP_MS)
        await film.shot("5  Alice gets a direct message that says how to connect.", 3.6)
        await ws.travel(TWO_HOURS_S)
        await ws.until(lambda: [s for s in running.truth()["instances"] if not s["alive"]], STEP_MS / 1000)
        await page.wait_for_timeout(1500)
        await film.shot("6  At the approved end the instance is terminated and proved gone. Nothing is left.", 4.2)
    return film


async def film_of(path: str) -> Film:
    """Start the demo, play the walk in the Chromium at `path`, and return its film."""
    async with playground(port=0, seed=7, boot_s=4.0) as running, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--no-proxy-server"])
        page = await browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, reduced_motion="reduce")
        film = await record(running, page)
        await browser.close()
    return film


def main(out: Path) -> int:
    """Write the walk to `out`; 1 when there is no Chromium or the picture is too large."""
    path = debian_packages.find()
    if path is None:
        sys.stderr.write("This needs a Chromium: apt-get install chromium, or CHROMIUM=path.\n")
        return 1
    film = asyncio.run(film_of(path))
    film.save(out)
    size = out.stat().st_size
    sys.stdout.write(f"{out}: {len(film.frames)} pictures, {sum(film.durations_ms) / 1000:.0f} s, {size} bytes.\n")
    if size > MAX_BYTES:
        sys.stderr.write(f"That is too large for a README; the limit is {MAX_BYTES} bytes.\n")
    return int(size > MAX_BYTES)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=WALK)
    sys.exit(main(parser.parse_args().out))
