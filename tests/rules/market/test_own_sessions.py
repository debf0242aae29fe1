"""A host's reliability after own sessions on it: failures lower it, good hours raise it, and the reason says which."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rules.market.estimate import estimate
from bot.rules.market.own_sessions import PRIOR_WINDOWS, blended, record_said
from bot.rules.market.parts import loss_chance, reliability
from bot.rules.market.ranking import rank
from bot.rules.policy.policy import Policy
from providers.contract import HostRecord
from tests.providers.read_offers import WHOLE
from tests.rules.builders import CLOUDS, SHARES, job, offer

DAY = Decimal(24)
RECORDS = st.builds(
    lambda good, failed, slow, hours: HostRecord(good + failed + slow, failed, slow, hours),
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(0, 9),
    st.decimals(min_value=0, max_value=5000, places=2),
)


@pytest.mark.parametrize(
    ("record", "blend"),
    [
        (HostRecord(1), "0.95"),
        (HostRecord(1, failed=1), "0.8636"),
        (HostRecord(3, failed=2, hours=Decimal(6)), "0.7959"),
        (HostRecord(1, slow=1), "0.9048"),
        (HostRecord(4, hours=Decimal(480)), "0.9833"),
    ],
)
def test_the_mean_of_the_posterior(record: HostRecord, blend: str) -> None:
    assert f"{blended(Decimal('0.95'), record, DAY):.4f}".rstrip("0") == blend.rstrip("0")


@given(prior=SHARES, record=RECORDS)
def test_it_stays_a_share_and_moves_with_what_was_seen(prior: Decimal, record: HostRecord) -> None:
    found = blended(prior, record, DAY)
    assert 0 <= found <= 1
    failed = HostRecord(record.sessions + 1, record.failed + 1, record.slow, record.hours)
    slow = HostRecord(record.sessions + 1, record.failed, record.slow + 1, record.hours)
    longer = HostRecord(record.sessions, record.failed, record.slow, record.hours + 24)
    assert blended(prior, failed, DAY) <= blended(prior, slow, DAY) <= found <= blended(prior, longer, DAY)


def test_as_many_good_windows_as_the_prior_has_weigh_the_same() -> None:
    assert blended(Decimal("0.5"), HostRecord(1, hours=PRIOR_WINDOWS * DAY), DAY) == Decimal("0.75")


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (HostRecord(3, failed=2, slow=1), "2 of 3 sessions on this host failed"),
        (HostRecord(1, failed=1), "1 of 1 session on this host failed"),
        (HostRecord(3, slow=1), "1 of 3 sessions on this host was slow"),
        (HostRecord(3, slow=2), "2 of 3 sessions on this host were slow"),
        (HostRecord(4, hours=Decimal(120)), "4 sessions on this host ran 120 h in all"),
    ],
)
def test_what_was_seen_is_said(record: HostRecord, said: str) -> None:
    assert record_said(record) == said


def test_an_offer_of_a_known_host_has_the_blend_whatever_its_cloud_reports() -> None:
    policy, bad = Policy(), HostRecord(1, failed=1)
    for said in (Decimal("0.99"), None, Decimal("NaN")):
        plain, known = offer(reliability=said), offer(reliability=said, own=bad)
        assert reliability(known, policy) == blended(reliability(plain, policy), bad, policy.loss_window_h)
        assert loss_chance(known, policy) > loss_chance(plain, policy)


def test_of_two_hosts_at_one_price_the_one_that_failed_ranks_below_and_says_why() -> None:
    failed = offer("1", own=HostRecord(3, failed=2))
    ranked = rank([failed, offer("2")], job(), Policy(), CLOUDS, proof=WHOLE)
    assert [one.offer.key for one in ranked.options] == ["2", "1"]
    assert "82.5% reliability (2 of 3 sessions on this host failed)." in ranked.options[1].why
    assert "99.0% reliability (reported)." in ranked.options[0].why


def test_the_assumptions_say_that_the_reliability_was_observed() -> None:
    said = estimate(offer(own=HostRecord(3, failed=2)), job(), Policy(), CLOUDS["vast"]).assumptions
    assert any("with a reported and observed reliability of 82.5%" in one for one in said)
