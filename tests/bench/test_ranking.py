"""The ranking benchmark measures what it says: everything costs money, and every offer is looked at."""

from __future__ import annotations

import pytest

from bot.rules.market.ranking import rank
from bot.rules.policy.policy import Policy
from tests.bench.market import Shelf
from tests.bench.ranking import CLOUDS, JOB, RUN, market, ours_ms

SMALL = 400


@pytest.mark.slow
def test_every_offer_is_looked_at_and_none_is_free() -> None:
    every = market(SMALL)
    able = {cloud: Shelf(cloud, ()).capabilities for cloud in CLOUDS}
    assert len(every) == SMALL
    assert all(one.price_usd_h and one.price_usd_h > 0 for one in every)
    for job in (JOB, RUN):
        found = rank(every, job, Policy(), able)
        assert found.answered + sum(one.count for one in found.excluded) == SMALL
        assert found.options
    assert ours_ms(every, JOB) > 0
