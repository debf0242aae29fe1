"""Column types: what goes in, what comes out, what is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import StatementError

from bot.rules.jobs.stored import job_of
from ledger.engine.db import Database
from ledger.kernel.columns import EnumText, Json, MicroUsd, SafeString, SafeText, UtcDateTime, storable, storable_json
from ledger.kernel.states import RequestState
from ledger.models import Instance, Mark, Request
from tests.support import rows
from tests.support.clock import START

SQLITE: Any = sqlite.dialect()
POSTGRESQL: Any = postgresql.dialect()  # type: ignore[no-untyped-call] # SQLAlchemy leaves it untyped.
DIALECTS = pytest.mark.parametrize("dialect", [SQLITE, POSTGRESQL], ids=["sqlite", "postgres"])


@DIALECTS
@pytest.mark.parametrize(
    ("usd", "micro"),
    [("1", 1_000_000), ("0.0000005", 1), ("0.00000049", 0), ("-2.5", -2_500_000), ("12345678.123456", 12345678123456)],
)
def test_money_is_whole_micro_dollars(dialect: Any, usd: str, micro: int) -> None:
    assert MicroUsd().process_bind_param(Decimal(usd), dialect) == micro
    assert MicroUsd().process_result_value(Decimal(micro), dialect) == Decimal(micro) / 1_000_000


@DIALECTS
@pytest.mark.parametrize("value", [1.5, 1, "1", True])
def test_money_is_never_a_float(dialect: Any, value: object) -> None:
    with pytest.raises(TypeError, match="money must be a Decimal, not"):
        MicroUsd().process_bind_param(value, dialect)


@pytest.mark.parametrize("value", [Decimal("NaN"), Decimal("Infinity")])
def test_money_is_finite(value: Decimal) -> None:
    with pytest.raises(ValueError, match="finite"):
        MicroUsd().process_bind_param(value, SQLITE)


@DIALECTS
def test_times_are_aware_utc(dialect: Any) -> None:
    kind = UtcDateTime()
    noon = datetime(2026, 3, 2, 12, tzinfo=timezone(timedelta(hours=2)))
    bound = kind.process_bind_param(noon, dialect)
    assert bound is not None
    assert kind.process_result_value(bound, dialect) == noon
    assert kind.process_result_value(bound, dialect) == datetime(2026, 3, 2, 10, tzinfo=UTC)
    with pytest.raises(TypeError, match="must be aware UTC"):
        kind.process_bind_param(datetime(2026, 3, 2, 12), dialect)  # noqa: DTZ001 # The naive one is the point.


@DIALECTS
def test_nothing_stays_nothing(dialect: Any) -> None:
    for kind in (MicroUsd(), UtcDateTime(), EnumText(RequestState), SafeText(), SafeString(5)):
        assert kind.process_bind_param(None, dialect) is None
    for reading in (MicroUsd(), UtcDateTime(), EnumText(RequestState)):
        assert reading.process_result_value(None, dialect) is None


@DIALECTS
def test_states_are_their_text(dialect: Any) -> None:
    kind = EnumText(RequestState)
    assert kind.process_bind_param(RequestState.PENDING, dialect) == "pending"
    assert kind.process_result_value("pending", dialect) is RequestState.PENDING
    with pytest.raises(ValueError, match="'live' is not a valid RequestState"):
        kind.process_result_value("live", dialect)


def test_json_is_jsonb_on_postgresql() -> None:
    assert Json().compile(POSTGRESQL) == "JSONB"
    assert Json().compile(SQLITE) == "JSON"


@given(st.text())
def test_storable_text_is_what_utf8_can_write(text: str) -> None:
    clean = storable(text)
    assert "\x00" not in clean
    clean.encode()
    assert storable(clean) == clean
    assert len(clean) == len(text)


def test_storable_json_keeps_everything_else() -> None:
    assert storable_json({"a": [1, 2.5, True, None, ("x",)], "b": {"c": "é"}, 3: float("inf")}) == {
        "a": [1, 2.5, True, None, ["x"]],
        "b": {"c": "é"},
        3: "inf",
    }


async def test_all_of_it_through_a_real_database(db: Database) -> None:
    odd = START.replace(microsecond=123_456)
    async with db.write() as tx:
        job = replace(rows.JOB, run="a\x00b", budget_cap_usd=Decimal("1.50"))
        request = await rows.request(tx, reason="a\x00b", job=job, failed_machines=["2", 10**20], due_at=odd)
        row = await rows.instance(tx, price_usd_h=Decimal("0.1234565"), storage_usd_h=Decimal("9999999.999999"))
        tx.add(Mark(name="m", value="\ud83d", at=odd))
    async with db.read() as tx:
        kept, kept_request = await tx.get_one(Instance, row.id), await tx.get_one(Request, request.id)
        assert (kept.price_usd_h, kept.storage_usd_h) == (Decimal("0.123457"), Decimal("9999999.999999"))
        assert (kept_request.reason, kept_request.failed_machines) == ("a\ufffdb", ["2", 10**20])
        assert job_of(kept_request.job) == replace(job, run="a\ufffdb")
        assert kept_request.due_at == odd
        assert (await tx.get_one(Mark, "m")).value == "\ufffd"
        latest = await tx.scalar(select(func.max(Request.due_at)))
        assert latest == odd
        assert latest.tzinfo is UTC
        assert await tx.scalar(select(func.sum(Instance.price_usd_h))) == Decimal("0.123457")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"price_usd_h": 0.4}, "must be a Decimal, not float"),
        ({"sent_at": datetime(2026, 3, 2)}, "must be aware UTC"),  # noqa: DTZ001 # The naive one is the point.
    ],
)
async def test_a_wrong_value_never_reaches_the_database(db: Database, values: dict[str, Any], said: str) -> None:
    with pytest.raises(StatementError, match=said):
        async with db.write() as tx:
            await rows.instance(tx, **values)
