"""Each trouble that a cloud brings by itself is over again when its time is, and when the run ends meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from providers.sandbox.clock import SandboxTiming
from providers.sandbox.sandboxes import sandboxes
from providers.sandbox.vast.sandbox import VastSandbox
from tests.scenarios.chaos.machine import Machine
from tests.scenarios.chaos.place import CLOUDS, Place
from tests.scenarios.chaos.proxy import FaultProxy, halved
from tests.scenarios.chaos.trouble import OFFLINE_S, Trouble
from tests.scenarios.simulation.loop import SimulatedClock, VirtualLoop
from tests.scenarios.simulation.reach import NumberedPorts

pytestmark = pytest.mark.quick
NOTHING: Any = None


class Scene:
    """The clouds of a run without processes, in virtual time, with one machine at Vast."""

    def __init__(self, folder: Path) -> None:
        self.clock = SimulatedClock()
        made = sandboxes(self.clock, SandboxTiming.quick(), names=CLOUDS)
        vast = made["vast"]
        assert isinstance(vast, VastSandbox)
        self.vast = vast
        self.vast.engine.ssh_ports = NumberedPorts()
        self.contract = vast.account.rent(next(iter(vast.account.market.slices())), {"image": "pytorch"})
        self.clock.advance(600)
        random, machine = Random(5), Machine(folder, has_disk=False, has_names=False)
        self.place = Place(NOTHING, dict(made), FaultProxy(NOTHING, random, 0.0), NOTHING, random, machine)
        self.trouble = Trouble(self.place, "sqlite://", random, NOTHING)

    def runs(self, *work: Coroutine[Any, Any, None], for_s: float = 600.0) -> None:
        """Let it go on for so long, and end it then."""

        async def bounded() -> None:
            async with asyncio.timeout(for_s):
                await asyncio.gather(*work)

        with asyncio.Runner(loop_factory=lambda: VirtualLoop(self.clock)) as runner, suppress(TimeoutError):
            runner.run(bounded())


def test_credit_comes_back_and_a_host_too_even_when_the_run_ends_meanwhile(tmp_path: Path) -> None:
    for for_s in (1.0, 600.0):
        scene = Scene(tmp_path)
        assert scene.vast.reachable() == [str(scene.contract.ref)]
        scene.runs(scene.trouble.lose_contact(), *(scene.trouble.break_credit() for _ in range(9)), for_s=for_s)
        assert scene.place.counts["host offline"] == 1
        assert scene.place.counts["account unable to pay"] == 9
        for cloud in scene.place.clouds.values():
            account: Any = getattr(cloud, "account", None)
            assert account.left_usd() > 0 or cloud.name == "lambda"
            assert not getattr(account, "inactive", False)
        assert not scene.contract.offline


def test_a_machine_whose_host_is_offline_answers_nobody_and_costs_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    before = scene.contract.usd(scene.clock.now())

    async def looked() -> None:
        await asyncio.sleep(OFFLINE_S[0] / 2)
        assert scene.vast.reachable() == []
        assert scene.contract.usd(scene.clock.now()) == before

    scene.runs(scene.trouble.lose_contact(), looked())
    assert scene.vast.reachable() == [str(scene.contract.ref)]


def test_creates_are_taken_again_afterwards(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.runs(*(scene.trouble.refuse_creates() for _ in range(9)), for_s=1.0)
    assert scene.place.counts["create refused for calling too often"] == 9
    assert not any(scene.vast.engine.faults.armed(name) for name in CLOUDS)


@pytest.mark.parametrize(
    ("answer", "half"),
    [
        ({"offers": [1, 2, 3, 4]}, {"offers": [1, 2]}),
        ({"data": {"a": {}, "b": {}}}, {"data": {"a": {}}}),
        ({"data": {"hostnodes": [1, 2]}}, {"data": {"hostnodes": [1]}}),
        ([1, 2], [1]),
    ],
)
def test_a_short_answer_has_half_of_its_rows(answer: object, half: object) -> None:
    assert json.loads(halved(json.dumps(answer).encode())) == half
    assert halved(b"<html>") == b"<html>"
