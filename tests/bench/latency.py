"""How long people wait: from a click on Approve to the create at the cloud, and for a search over all clouds."""

from __future__ import annotations

import asyncio
import time
from decimal import Decimal
from statistics import median

from bot.cli.demo.demo_stack import Playground, playground
from bot.practice.reader import button_texts
from bot.rules.jobs.job import JobRequest
from providers.contract import Provider
from providers.gpus.constraint import GpuConstraint

ROUNDS = 10
JOB = JobRequest(GpuConstraint(("RTX4090",), 1, 1), Decimal(2))


async def measure() -> list[tuple[str, str, str]]:
    """Lines of `(what, figure, aim)`, on a whole service in one process with its sandboxes."""
    async with playground(port=0, seed=7, boot_s=1.0) as running:
        clicks = [await _click_to_create(running) for _ in range(ROUNDS)]
        searches = [await _search(running) for _ in range(ROUNDS)]
    over = median(ours - slowest for ours, slowest in searches)
    return [
        ("Approve click to create at the cloud, median", f"{median(clicks) * 1000:.0f} ms", "aim < 1000 ms"),
        ("slowest cloud alone, median", f"{median(slowest for _, slowest in searches) * 1000:.0f} ms", ""),
        ("search over all clouds beyond the slowest", f"{over * 1000:.0f} ms", "aim < 50 ms"),
    ]


async def _click_to_create(running: Playground) -> float:
    """Seconds from one click until the sandbox has the create request."""
    driver, creates = running.practice.driver, next(iter(running.clouds.values())).engine.creates
    before = len(creates)
    shown = {message.ts for message in driver.channel_messages("#gpu")}
    await driver.as_("alice").command("/gpu provision 1x4090 1h for=bench")
    offers = await driver.until(
        lambda: next(
            (m for m in driver.channel_messages("#gpu") if m.ts not in shown and "Reject" in str(button_texts(m))), None
        )
    )
    assert offers is not None
    approve = next(text for text in button_texts(offers) if text.startswith("Approve"))
    began = running.clock.now()
    await driver.as_("bob").click(offers, approve)
    while len(creates) == before:  # noqa: ASYNC110 # The sandbox tells nobody; it is looked at.
        await asyncio.sleep(0.002)
    return (creates[before].at - began).total_seconds()


async def _search(running: Playground) -> tuple[float, float]:
    """Seconds of one fresh search over the market, and of the slowest cloud when it is asked alone."""
    alone = [await _timed(provider) for provider in running.ctx.providers.values()]
    began = time.perf_counter()
    await running.ctx.catalog.market(JOB, JOB.disk_gb, fresh=True)
    return time.perf_counter() - began, max(alone)


async def _timed(provider: Provider) -> float:
    began = time.perf_counter()
    await provider.offers(JOB.gpu, disk_gb=JOB.disk_gb, spot=False)
    return time.perf_counter() - began
