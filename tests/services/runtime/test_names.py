"""People are named in text outside of Slack, from one reading of the ledger a minute."""

from __future__ import annotations

import pytest

from bot.rules.policy.policy import Policy
from bot.services.runtime.names import FRESH_S, NAME_MAX, KnownNames
from ledger.engine.db import Database
from ledger.queries.access import keep_name
from tests.support.builders import asked
from tests.support.clock import START, SteppedClock

POLICY = Policy(same_person=(("slack:T1/U0ADA", "operator:ada"),))


async def names(db: Database, clock: SteppedClock, **known: str) -> KnownNames:
    made = KnownNames()
    for user, name in known.items():
        await made.keep(db, clock, user, name)
    return made


async def test_a_sentence_names_people_and_an_id_for_programs_stays(sqlite_db: Database, clock: SteppedClock) -> None:
    known = await names(sqlite_db, clock, U0BOB="bob", U0EVE="eve")
    for text, said in (
        ("Only slack:T1/U0BOB, slack:U0EVE.", "Only bob, eve."),
        ("Ask <@U0BOB> or <@U0EVE|eve>.", "Ask bob or eve."),
        ("The budget of user:U0BOB and of user:slack:T1/U0EVE.", "The budget of bob and of eve."),
        ("slack:T1/U0NEW and slack:T1/U0ADA agree.", "U0NEW and ada agree."),
        ("Name U0BOB or operator:ada.", "Name U0BOB or operator:ada."),
    ):
        assert known.in_text(POLICY, text) == said
    answer = {"owner": "slack:T1/U0BOB", "say": ["by slack:T1/U0BOB", 1, None], "slack:U0BOB": {"key": "user:U0BOB"}}
    assert known.in_answer(POLICY, answer) == {**answer, "say": ["by bob", 1, None]}


async def test_the_policys_name_comes_first_and_two_of_one_name_have_their_ids(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    known = await names(sqlite_db, clock, U0ADA="countess", U0BOB="bob", U1BOB="Bob", U0LONG="x" * 200, U0BAD="a|<b>`c")
    refs = ("U0ADA", "slack:T1/U0BOB", "U1BOB", "U0LONG", "U0BAD", "operator:root", "system:ticker", "U0NEW", "?:", "")
    assert [known.of(POLICY, ref) for ref in refs] == [
        "ada", "bob (U0BOB)", "Bob (U1BOB)", "x" * NAME_MAX, "a b c", "root", "", "", "", "",
    ]  # fmt: skip
    assert known.of(POLICY, None) == ""


async def test_names_are_read_once_a_minute_and_written_when_they_change(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    reader, writer = KnownNames(), KnownNames()
    await writer.keep(sqlite_db, clock, "U0BOB", "bob")
    with asked() as tables:
        for _ in range(9):
            await reader.refresh(sqlite_db, clock)
            await writer.keep(sqlite_db, clock, "U0BOB", "bob")
            await writer.keep(sqlite_db, clock, "U0BOB", " ")
    assert tables == ["marks"]
    assert reader.of(POLICY, "U0BOB") == "bob"
    async with sqlite_db.write() as tx:
        await keep_name(tx, "U0BOB", "robert", START)
    await reader.refresh(sqlite_db, clock)
    assert reader.of(POLICY, "U0BOB") == "bob"
    clock.advance(FRESH_S)
    await reader.refresh(sqlite_db, clock)
    assert reader.of(POLICY, "U0BOB") == "robert"


class Unreachable:
    """A ledger that gives no answer."""

    def read(self) -> None:
        """Fail as a driver does."""
        raise OSError("no route to the database")

    write = read


async def test_a_ledger_without_an_answer_delays_only_the_names(
    clock: SteppedClock, caplog: pytest.LogCaptureFixture
) -> None:
    known, away = KnownNames(), Unreachable()
    await known.refresh(away, clock)  # type: ignore[arg-type] # It only has to fail.
    await known.keep(away, clock, "U0BOB", "bob")  # type: ignore[arg-type] # The same.
    assert known.of(POLICY, "U0BOB") == ""
    assert "were not read" in caplog.text
    assert "was not stored" in caplog.text
