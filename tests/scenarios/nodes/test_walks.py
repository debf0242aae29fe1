"""From a request to a machine that is ready, and to its end, with a machine that is real."""

from __future__ import annotations

import shutil

import pytest

from tests.scenarios.nodes.conftest import Build

pytestmark = pytest.mark.slow
#: Bubblewrap is used where it is installed.
CONFINED = [False, pytest.param(True, marks=pytest.mark.skipif(not shutil.which("bwrap"), reason="no bubblewrap here"))]


@pytest.mark.parametrize("confined", CONFINED)
async def test_a_real_machine_checks_in_is_ready_and_leaves_nothing(build: Build, confined: bool) -> None:
    async with build("vast", confined=confined) as here:
        place = here.town
        await place.ask()
        await place.approve()
        await place.ready()
        (row,) = (await place.books()).instances
        assert row.gpu_check is not None
        assert row.gpu_check["tflops"]
        await here.until(lambda: "The agent was fetched." in here.read("opt/gpu-shopper/agent.log"))
        await place.finish()
        await here.nothing_left()
