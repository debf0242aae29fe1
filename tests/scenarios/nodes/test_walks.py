"""From a request to a machine that is ready, and to its end, with a machine that is real."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterator

import pytest

from ledger.kernel.states import SessionState
from providers.sandbox.nodes import openssh
from tests.scenarios.nodes.conftest import Build, NodeTown
from tests.support.stack import CALLS

pytestmark = pytest.mark.slow
#: Bubblewrap is used where it is installed.
CONFINED = [False, pytest.param(True, marks=pytest.mark.skipif(not shutil.which("bwrap"), reason="no bubblewrap here"))]
#: Seconds from the request to ready at the median, less what the sandbox takes to boot.
READY_S = 5.0


async def to_ready(here: NodeTown) -> float:
    """Ask, approve and wait. Returns the seconds from the request to ready, less the sandbox's boot."""
    place = here.town
    began = place.clock.now()
    await place.ask()
    await place.approve()
    await place.ready()
    (row,) = (await place.books()).instances
    assert row.reachable_at is not None
    boot_s = place.timing.boot_s + place.timing.reachable_s
    return (row.reachable_at - began).total_seconds() - boot_s


@pytest.fixture(scope="module")
def times_s() -> Iterator[list[float]]:
    """What each walk took until its machine was ready; `-s` shows them beside the aim for their median."""
    found: list[float] = []
    yield found
    if found:
        shown = ", ".join(f"{one:.1f}" for one in sorted(found))
        median = statistics.median(found)
        print(f"\nFrom the request to ready, less the boot: {shown} s; median {median:.1f}, aim < {READY_S:g} s")


@pytest.mark.parametrize("confined", CONFINED)
@pytest.mark.parametrize("cloud", CALLS)
async def test_a_machine_boots_reports_shows_its_gpus_and_leaves_nothing(
    build: Build, times_s: list[float], cloud: str, confined: bool
) -> None:
    async with build(cloud, confined=confined) as here:
        place = here.town
        took_s = await to_ready(here)
        times_s.append(took_s)
        (row,) = (await place.books()).instances
        assert row.gpu_check is not None
        assert [gpu["gpu"] for gpu in row.gpu_check["gpus"]] == [place.clouds[cloud].STAPLE]
        assert len(row.gpu_check["tflops"]) == 1
        key = here.read("etc/ssh/ssh_host_ed25519_key.pub").split()
        assert row.host_key == " ".join(key[:2])

        said = await here.reported(lambda said: bool(said.get("gpus")))
        assert (said["driver"], said["startup_step"], said["exit_code"]) == ("580.65.06", "proxy", 0)
        assert said["host_key"] == row.host_key
        await place.finish()
        assert (await place.books()).sessions[-1].state is SessionState.TERMINATED
        await here.nothing_left()


@pytest.mark.skipif(bool(openssh.missing()), reason=openssh.missing() or "it is there")
async def test_openssh_s_own_server_lets_the_bot_in(build: Build) -> None:
    async with build("vast", openssh=True) as here:
        await to_ready(here)
        (row,) = (await here.town.books()).instances
        assert row.gpu_check is not None
        assert len(row.gpu_check["tflops"]) == 1
        await here.on_node("sh -c 'echo $SSH_CONNECTION'")
        await here.until(lambda: here.read("root/out").startswith("127.0.0.1 "))
        await here.town.finish()
        await here.nothing_left()
