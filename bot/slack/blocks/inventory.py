"""Build the answer to `/gpu inventory`: five offers at a time, with the ids that `offer=ID` takes, and filters.

The buttons hold what was typed, so that a filter asks the same question with one word changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from bot.blockkit import clean, plain
from bot.rules.jobs import job_text
from bot.rules.jobs.facets.limits import REGION
from bot.rules.market.sort_key import SortKey
from bot.rules.values.phrases import plural, rate, reliability, short_hours
from bot.services.market.answers import lacking
from bot.services.market.catalog import MarketListing
from bot.services.market.document import MarketPage, MarketRow, cursor_after, market_page
from bot.services.market.market_table import places
from bot.slack.blocks.elements import SENTENCE_MAX, Block, Message, actions, button, clip, code, context, safe, section

#: So many offers are shown at a time.
SHOWN = 5
#: The verb of every button and menu below a list of offers.
BROWSE = "browse"
NEXT = "next"
#: Above this no menu is shown, because an action id, which holds what was typed, has 255 characters.
LONGEST_WORDS = 200
#: Slack shows at most so many choices in a menu.
CHOICES = 100


def inventory(found: MarketListing, words: str, command: str, start: int = 0, note: str = "") -> Message:
    """Show the offers from row `start`. Showing them reserves nothing. `words` are those that were typed."""
    start = min(start, max(len(found.rows) - 1, 0) // SHOWN * SHOWN)
    page = market_page(found, start, SHOWN)
    title = f"*{safe(job_text.gpus(found.job.gpu))}*"
    said = [*filter(None, (safe(one, SENTENCE_MAX) for one in page.notes))]
    notes = [context(*said)] if said else []
    if not page.items:
        nothing = f"{title}: {safe(page.summary)}"
        text = clip(" ".join((nothing, *said)), 3_900)
        return Message(text, (section(nothing), *notes, *_menus(found, page, words)))
    last = start + len(page.items)
    count = plural(len(found.rows), "offer")
    shown = f"{start + 1}–{last} of {count}" if len(found.rows) > SHOWN else count
    lead = " ".join(filter(None, (note, safe(lacking(page.clouds)), f"{title}: {shown}. {page.terms}")))
    lines = [f"{_line(row)}\n{code(row.offer_id)}" for row in page.items]
    example = f"{command} provision offer={page.items[0].offer_id} {short_hours(found.job.hours)}"
    hint = context(f"Request one with {code(example)}")
    blocks = (section(lead), section("\n".join(lines)), *_menus(found, page, words), *notes, hint)
    return Message(clip(f"{lead} {'; '.join(_line(row) for row in page.items)}", 3_900), blocks)


def _line(row: MarketRow) -> str:
    spot = " spot" if row.spot else ""
    parts = [f"{row.gpu_count}× {safe(row.gpu)}{spot}, {row.memory_gb.normalize():f} GB", safe(row.cloud)]
    parts += [safe(places(row))]
    parts += [f"{reliability(row.reliability)} reliable"] if row.reliability is not None else []
    return f"*{rate(row.price_usd_h)}* · {' · '.join(parts)}"


def _menus(found: MarketListing, page: MarketPage, words: str) -> list[Block]:
    """Build the row of *Next 5* and of the menus that ask again with one word changed."""
    if clean(words, LONGEST_WORDS) != words:
        return []
    after = cursor_after(found, page.items[-1].rank) if page.items else None
    made = [button(f"Next {SHOWN}", f"{BROWSE}:{NEXT}:{words}", after)] if after else []
    regions = sorted({one.country or one.region for one in found.market.offers} - {""})
    clouds = sorted({one.cloud for one in found.market.offers})
    sorts = [(f"sort={key}", f"Sort: {key.doc}") for key in SortKey]
    made.append(_menu("sort", words, "Sort by", sorts))
    made.append(_menu("region", words, "Region", [("region=", "Everywhere"), *_named("region", regions)]))
    made.append(_menu("clouds", words, "Cloud", [("clouds=", "All clouds"), *_named("clouds", clouds)]))
    return [actions(*made)]


def _named(word: str, values: Iterable[str]) -> list[tuple[str, str]]:
    typed = [value for value in values if value.strip() and re.fullmatch(REGION, value)]
    return [(f'{word}="{value}"' if " " in value else f"{word}={value}", value) for value in typed]


def _menu(name: str, words: str, title: str, choices: list[tuple[str, str]]) -> Block:
    """Build a menu; the value of a choice is the word that it sets, and a word without a value takes it away."""
    return {
        "type": "static_select",
        "action_id": f"{BROWSE}:{name}:{words}",
        "placeholder": plain(title, 150),
        "options": [{"text": plain(label, 75), "value": word} for word, label in choices][:CHOICES],
    }
