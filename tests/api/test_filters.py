"""Every filter of the inventory bites, at the route and in the language behind every door, on the merged market."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from decimal import Decimal

from bot.api.schemas.market import InventoryQuery
from bot.cli.commands.inventory import inventory as on_the_command_line
from bot.rules.grammar.job import everything
from bot.rules.grammar.parser import ParsedCommand, parse
from bot.rules.jobs.facet_table import WORD_OF
from bot.rules.jobs.job import JobRequest
from bot.rules.policy.policy import Policy
from bot.rules.viability.compatibility import capability
from bot.services.market.catalog import MarketListing
from ledger.engine.db import Database
from providers.contract import Offer
from tests.api.door import opened
from tests.support.clock import SteppedClock
from tests.support.world import BOB, checked_world

#: Field of the query, its value, and what every offer that answers must be.
FILTERS: tuple[tuple[str, str, Callable[[Offer], bool]], ...] = (
    ("gpu", "rtx-4090,A100 80GB", lambda o: o.gpu in {"RTX4090", "A100-PCIE-80GB", "A100-SXM-80GB"}),
    ("count", "2-4", lambda o: 2 <= o.gpu_count <= 4),
    ("memory", "40-80GB", lambda o: 40 <= o.memory_gb <= 80),
    ("min_vram", "80", lambda o: o.memory_gb >= 80),
    ("max_price", "0.5", lambda o: (o.price_usd_h or 0) <= Decimal("0.5")),
    ("provider", "vast,runpod", lambda o: o.cloud in {"vast", "runpod"}),
    ("region", "US", lambda o: o.country == "US" or "US" in o.region.upper()),
    ("spot", "yes", lambda o: o.spot),
    ("disk", "900GB", lambda o: o.disk_gb_max is None or o.disk_gb_max >= 900),
    ("reliability", "0.99", lambda o: (o.reliability or 0) >= Decimal("0.99")),
    ("total", "160GB", lambda o: o.memory_gb * o.gpu_count >= 160),
    ("verified", "yes", lambda o: o.verified is True),
    ("cuda", "12.8", lambda o: (o.cuda_max or 0) >= Decimal("12.8")),
    ("capability", "8.9", lambda o: (capability(o) or 0) >= Decimal("8.9")),
    ("available", "10d", lambda o: (o.available_for_s or 0) >= 10 * 86_400),
)


async def test_every_filter_bites_at_the_route_and_in_the_language(sqlite_db: Database, clock: SteppedClock) -> None:
    policy = Policy(approvers=(BOB.id,))
    async with checked_world(sqlite_db, clock, policy=policy) as w, opened(w) as door:
        key = await door.key()
        wide = {"count": "1-8", "spot": "any"}
        unfiltered = {"sort", "limit", "cursor", "words"}
        assert set(InventoryQuery.model_fields) == {name for name, _, _ in FILTERS} | unfiltered
        everything = await w.ctx.catalog.inventory(_job("inventory count=1-8 spot=any", policy), policy)
        for field, value, keeps in FILTERS:
            asked = {**wide, field: value}
            line = " ".join(f'{_word(name)}="{_said(name, what)}"' for name, what in asked.items())
            job = _job(f"inventory {line}", policy)
            await w.ctx.catalog.inventory(job, policy)
            answer = await door.call("GET", "/inventory", key, params={**asked, "limit": 1_000})
            assert answer.status_code == 200, (field, answer.text)
            shown = {place["offer_id"] for one in answer.json()["items"] for place in one["regions"]}
            told = _offers(await w.ctx.catalog.inventory(job, policy))
            assert {one.id for one in told} == shown, field
            assert shown, field
            assert [one.id for one in told if not keeps(one)] == [], field
            assert [one.id for one in _offers(everything) if not keeps(one)], f"{field} bites nothing"


def _offers(found: MarketListing) -> list[Offer]:
    return [one for row in found.rows for one in row]


def _word(field: str) -> str:
    """The word of the language that a field of the query says."""
    return WORD_OF["memory" if field == "min_vram" else field].key


def _said(field: str, value: str) -> str:
    return f"{value}GB+" if field == "min_vram" else value


def _job(line: str, policy: Policy) -> JobRequest:
    parsed = parse(line, policy)
    assert isinstance(parsed, ParsedCommand), parsed
    return parsed.job or everything(policy)


def test_the_route_and_the_command_line_have_the_same_filters() -> None:
    typed = set(inspect.signature(on_the_command_line).parameters)
    assert typed == (set(InventoryQuery.model_fields) - {"memory", "cursor", "words"}) | {
        *("gpu_ram", "columns", "as_json", "said")
    }
