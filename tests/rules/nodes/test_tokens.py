"""Which token of an agent is accepted: one exchange at the start, one more after each restart."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from bot.rules.nodes.tokens import (
    NOTIFIED_AGAIN,
    RESTART_TAKES,
    START_MARGIN,
    ShownToken,
    StoredTokens,
    TokenKind,
    TokenVerdict,
    judge_token,
    restarted_since,
)
from tests.support.clock import START

BOOT, FIRST, SECOND = "b" * 64, "1" * 64, "2" * 64
MINUTE = timedelta(minutes=1)
FRESH = StoredTokens(BOOT)
USED = StoredTokens(BOOT, FIRST, None, "n1", START)
OPEN = replace(USED, open_since=START)


def boot(nonce: str | None, leads_to: str = SECOND, secret: str = BOOT) -> ShownToken:
    return ShownToken(TokenKind.BOOT, secret, nonce, leads_to)


def checkin(secret: str) -> ShownToken:
    return ShownToken(TokenKind.CHECKIN, secret)


@pytest.mark.parametrize(
    ("stored", "shown", "verdict", "after"),
    [
        (FRESH, boot("n1", FIRST), TokenVerdict.EXCHANGED, USED),
        (FRESH, boot(None), TokenVerdict.ACCEPTED, FRESH),
        (FRESH, boot("n1", secret=FIRST), TokenVerdict.UNKNOWN, FRESH),
        (FRESH, checkin(BOOT), TokenVerdict.UNKNOWN, FRESH),
        # The reply was lost: the same nonce leads to the same token.
        (USED, boot("n1", FIRST), TokenVerdict.EXCHANGED, USED),
        (USED, checkin(FIRST), TokenVerdict.ACCEPTED, USED),
        (USED, boot("n2"), TokenVerdict.REPLACED, replace(USED, notified_at=START)),
        (USED, boot(None), TokenVerdict.REPLACED, replace(USED, notified_at=START)),
        (USED, checkin(SECOND), TokenVerdict.UNKNOWN, USED),
        # A restart opens one more; until it is made, the earlier token works.
        (OPEN, checkin(FIRST), TokenVerdict.ACCEPTED, OPEN),
        (OPEN, boot("n2"), TokenVerdict.EXCHANGED, StoredTokens(BOOT, SECOND, FIRST, "n2", START)),
        (OPEN, boot(None), TokenVerdict.REPLACED, replace(OPEN, notified_at=START)),
    ],
)
def test_one_exchange_and_one_more_after_a_restart(
    stored: StoredTokens, shown: ShownToken, verdict: TokenVerdict, after: StoredTokens
) -> None:
    judged = judge_token(stored, shown, START)
    assert (judged.verdict, judged.tokens) == (verdict, after)
    assert judged.is_notified == (verdict is TokenVerdict.REPLACED)


def test_the_token_of_before_the_restart_is_refused_once_the_next_one_is_used() -> None:
    again = judge_token(OPEN, boot("n2"), START).tokens
    judged = judge_token(again, checkin(FIRST), START)
    assert (judged.verdict, judged.is_notified) == (TokenVerdict.REPLACED, True)
    assert judge_token(judged.tokens, checkin(SECOND), START).verdict is TokenVerdict.ACCEPTED


def test_people_are_notified_of_many_refusals_once_an_hour() -> None:
    once = judge_token(USED, boot("n2"), START).tokens
    soon, late = (START + NOTIFIED_AGAIN + by for by in (-MINUTE, timedelta()))
    assert judge_token(once, boot("n3"), soon) == (TokenVerdict.REPLACED, once, False)
    assert judge_token(once, boot("n3"), late).is_notified


def test_nothing_is_exchanged_while_the_instance_is_stopped() -> None:
    """A start at the cloud's console shows in the next listing, so nobody is notified yet."""
    assert judge_token(OPEN, boot("n2"), START, is_stopped=True) == (TokenVerdict.REPLACED, OPEN, False)


def test_an_agent_that_kept_its_memory_closes_the_exchange() -> None:
    used = judge_token(OPEN, checkin(FIRST), START + RESTART_TAKES).tokens
    assert used == USED
    assert judge_token(used, boot("n2"), START + RESTART_TAKES).verdict is TokenVerdict.REPLACED


@pytest.mark.parametrize(
    ("stored", "started_at", "restarted"),
    [
        (USED, START + START_MARGIN + MINUTE, True),
        (USED, START + START_MARGIN, False),
        (USED, START - MINUTE, False),
        (OPEN, START + START_MARGIN + MINUTE, False),
        (FRESH, START + START_MARGIN + MINUTE, False),
    ],
)
def test_a_start_well_after_the_exchange_is_a_restart(
    stored: StoredTokens, started_at: datetime, restarted: bool
) -> None:
    assert restarted_since(stored, started_at) is restarted
