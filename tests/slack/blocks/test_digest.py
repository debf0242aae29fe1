"""The digest: at most ten lines whatever happened, what needs somebody first, and a chart only of two bars or more."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from bot.services.reports.digest_types import DigestDocument, FoundOrphan, RunningSession
from bot.slack.blocks.digest import LINES, digest
from bot.slack.blocks.elements import Message

DAY = date(2026, 3, 7)


def document(**more: Any) -> DigestDocument:
    """A quiet day, with what a test is about."""
    quiet: dict[str, Any] = {
        "weekly": False, "first": DAY, "last": DAY, "zone": "UTC", "spent_usd": 40, "before_usd": 1, "month_usd": 45,
        "forecast_usd": None, "budgets": (), "groups": {}, "days": (), "running": (), "running_in_all": 0,
        "running_usd_h": 0, "ended_by": {}, "saved_usd": 0, "orphans": (),
        "orphans_in_all": 0, "anomalies": (),
    }  # fmt: skip
    return DigestDocument.model_validate({**quiet, **more})


def lines(message: Message) -> list[str]:
    """The lines below the title, the last one among them."""
    texts = [block["text"]["text"] for block in message.blocks if block["type"] == "section"]
    small = [one["text"] for block in message.blocks if block["type"] == "context" for one in block["elements"]]
    return "\n".join([*texts, *small]).splitlines()


def test_the_busiest_day_has_ten_lines_and_what_needs_somebody_is_among_them() -> None:
    shares = tuple((f"name{n}", Decimal(n)) for n in range(9, 0, -1))
    running = RunningSession(
        owner="slack:T1/U0ALICE", gpu="H100", gpu_count=8, request_id="req_01abcdef",
    )  # fmt: skip
    found = document(
        budgets=tuple(f"label:{n}: 1 %" for n in range(9)), anomalies=("in all: $40.00, usually $1.00 a day",) * 9,
        groups=dict.fromkeys(("cloud", "owner", "gpu"), shares), running=(running,) * 9, running_in_all=60,
        ended_by={"completed": 3, "idle": 2, "lost": 1, "outbid": 1, "asked": 1}, saved_usd=Decimal(9),
        orphans=(FoundOrphan(id="stray_x1", cloud="vast", state="found", price_usd_h=Decimal(1)),) * 9,
        orphans_in_all=11, disks_in_all=2, unreconciled=("4k7m2p at kaggle: between $0.00 and $1.00",) * 9,
        broken_glass=("the demo is down",) * 9,
    )  # fmt: skip
    told = lines(digest(found, "/gpu"))
    assert len(told) == LINES == 10
    for part in ("Started without an approval", "Orphans found* (11)", "8 more", "Unusual", "bill*:"):
        assert any(part in line for line in told), part
    assert "60 sessions for free: `abcdef` 8× H100 of <@U0ALICE>; " in told[6]
    assert told[6].endswith("57 more. 2 retained disks.")
    calmer = lines(digest(document(groups={"owner": shares}), "/gpu"))
    assert "*By owner*: name9 $9.00, name8 $8.00, name7 $7.00, others $21.00" in calmer
    assert "8 sessions (completed ×3, idle ×2, lost at its cloud ×1, 2 more)" in told[7]


def test_a_forecast_is_shown_only_where_there_is_one() -> None:
    assert "heading for" not in " ".join(lines(digest(document(), "/gpu")))
    assert "*March so far: $45.00*, heading for $93.00." in lines(digest(document(forecast_usd=Decimal(93)), "/gpu"))[1]


def test_a_chart_begins_with_the_first_cost_and_has_two_bars_or_more() -> None:
    def drawn(*amounts: int) -> list[dict[str, Any]]:
        days = tuple((DAY + timedelta(days=n), Decimal(amount)) for n, amount in enumerate(amounts))
        return [one for one in digest(document(days=days), "/gpu").blocks if one["type"] == "data_visualization"]

    assert (drawn(), drawn(0, 0, 0), drawn(0, 0, 4)) == ([], [], [])
    (block,) = drawn(0, 3, 0, 4)
    axes = block["chart"]["axis_config"]
    assert axes == {"categories": ["Mar 8", "Mar 9", "Mar 10"], "x_label": "day", "y_label": "US dollars"}
    assert [one["value"] for one in block["chart"]["series"][0]["data"]] == [3.0, 0.0, 4.0]


def test_a_cheaper_reservation_stands_among_what_needs_somebody() -> None:
    said = lines(digest(document(reservations=("H100-SXM at lambda: <5 GPU-hours>",)), "/gpu"))
    assert any(line.startswith(":bulb: *Reserved GPUs would be cheaper*: H100-SXM at lambda: &lt;5") for line in said)
    assert not any("Reserved" in line for line in lines(digest(document(), "/gpu")))
