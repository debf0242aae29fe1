"""The ranking benchmark measures what it says: everything costs money, and every offer is looked at."""

from __future__ import annotations

import pytest

from bot.rules.market.ranking import rank
from bot.rules.policy.policy import Policy
from tests.bench.market import Shelf
from tests.bench.ranking import CLOUDS, EARLIER_RUN, JOB, MISSED, MOST_TIMES, RUN, market, ours_ms, verdict
from tests.providers.read_offers import WHOLE

SMALL = 400


@pytest.mark.slow
def test_every_offer_is_looked_at_and_none_is_free() -> None:
    every = market(SMALL)
    able = {cloud: Shelf(cloud, ()).capabilities for cloud in CLOUDS}
    assert len(every) == SMALL
    assert all(one.price_usd_h and one.price_usd_h > 0 for one in every)
    for job in (JOB, RUN):
        found = rank(every, job, Policy(), able, proof=WHOLE)
        assert found.answered + sum(one.count for one in found.excluded) == SMALL
        assert found.options
    assert ours_ms(every, JOB) > 0


def test_the_verdict_is_about_the_ratio_to_gpuhunt_in_the_same_run() -> None:
    bound_ms = 40 * EARLIER_RUN * MOST_TIMES
    said, met = verdict(bound_ms * 0.999, 40, EARLIER_RUN)
    assert met
    assert "1.30 x before; aim <= 1.3: met" in said
    said, met = verdict(bound_ms * 1.01, 40, EARLIER_RUN)
    assert not met
    assert said.endswith(MISSED)
