"""The aims for estimates as users get them, where the published measurements are at hand."""

from __future__ import annotations

import pytest

from tests.bench.throughput_accept import report
from tests.bench.throughput_data import at_hand, folder


@pytest.mark.slow
@pytest.mark.skipif(not at_hand(), reason="the published measurements are not at hand")
def test_every_aim_is_met() -> None:
    lines = list(report(folder()))
    assert lines[-1] == "  aims met", "\n".join(lines)
