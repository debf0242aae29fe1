"""A machine with a card of AMD: it is checked with AMD's tool, and its agent reports how busy the card is."""

from __future__ import annotations

import pytest

from providers.sandbox.machines import MIB_PER_GB
from tests.scenarios.nodes.conftest import Build
from tests.scenarios.nodes.test_jobs import SPEED

pytestmark = pytest.mark.slow
IMAGES = {"default": "ubuntu:22.04", "runpod": "rocm/pytorch:rocm6.2"}


async def test_an_mi300x_is_checked_and_its_work_is_seen(build: Build) -> None:
    async with build("runpod", {"default_image": IMAGES}, clock_speed=SPEED) as here:
        place = here.town
        await place.acked(place.ws.as_("alice").command('/gpu provision 1xMI300X 2h clouds=runpod for="a walk"'))
        await place.approve()
        await place.ready()
        (row,) = (await place.books()).instances
        assert row.gpu_check is not None
        assert [gpu["gpu"] for gpu in row.gpu_check["gpus"]] == ["MI300X"]
        seen = await here.reported(lambda machine: bool(machine.get("gpus")))
        assert [(gpu["model"], gpu["memory_mb"]) for gpu in seen["gpus"]] == [
            ("AMD Instinct MI300X OAM", 192 * MIB_PER_GB)
        ]
        idle = await here.row_where(lambda node: node.idle_since)
        assert idle.report["utilisation"] == ["0.0"]
        await here.on_node("train-stub --step-s 0.1 --steps 100000")
        busy = await here.row_where(lambda node: node.report["utilisation"] == ["96.0"])
        assert busy.idle_since is None
        await place.finish()
        await here.nothing_left()
