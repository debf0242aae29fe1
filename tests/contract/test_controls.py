"""The sandboxes' controls: faults, time, market, disturbances, truth and the start and stop of the app."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from email.utils import format_datetime
from typing import Any

import httpx
import pytest
import pytest_asyncio

from providers.contract import InstanceStatus
from providers.gpus.constraint import GpuConstraint
from providers.registry import REGISTRY
from providers.sandbox.clock import SandboxTiming
from providers.sandbox.sandboxes import SANDBOXES, sandboxes
from providers.sandbox.server import build_app
from tests.contract.recorder import Recorder
from tests.contract.served import NAME, Bench, Clouds, banner, serving, unpaced
from tests.providers.read_offers import every_offer
from tests.support.clock import SteppedClock
from tests.support.serving import serving as served

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def http(clouds: Clouds) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"{clouds.url}/_sandbox", trust_env=False) as client:
        await client.post("/reset")
        yield client


async def test_the_overview_names_every_cloud_and_its_faults(http: httpx.AsyncClient) -> None:
    body = (await http.get("/")).json()

    assert set(body["clouds"]) == set(SANDBOXES)
    for name, sandbox in SANDBOXES.items():
        assert set(body["clouds"][name]["faults"]) == set(sandbox.FAULTS)
        assert body["clouds"][name]["armed"] == []


async def test_a_fault_is_armed_shown_and_disarmed(http: httpx.AsyncClient) -> None:
    order = {"cloud": "vast", "name": "create_lands_late", "times": 2, "skip": 1, "params": {"after_s": 9}}
    assert (await http.post("/faults", json=order)).json() == {"armed": True}
    armed = (await http.get("/")).json()["clouds"]["vast"]["armed"]
    assert armed == [{"name": "create_lands_late", "times": 2, "skip": 1, "params": {"after_s": 9}}]

    await http.delete("/faults", params={"cloud": "runpod"})
    assert (await http.get("/")).json()["clouds"]["vast"]["armed"] == armed
    await http.delete("/faults", params={"cloud": "vast"})
    assert (await http.get("/")).json()["clouds"]["vast"]["armed"] == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:8090"}, 200),
        ({"Origin": "http://127.0.0.1:8080"}, 200),
        ({"Host": "attacker.example"}, 403),
        ({"Host": "127.0.0.1.attacker.example:8090"}, 403),
        ({"Host": ""}, 403),
        ({"Host": "[broken"}, 403),
        ({"Origin": "https://attacker.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
async def test_only_this_machine_steers(http: httpx.AsyncClient, headers: dict[str, str], status: int) -> None:
    for method, path in (("GET", "/truth"), ("POST", "/reset")):
        answer = await http.request(method, path, headers=headers)
        assert answer.status_code == status, answer.text


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/faults", {"cloud": "vast", "name": "meteor"}, "create_lost_reply"),
        ("/faults", {"cloud": "nimbus", "name": "create_429"}, "no such cloud"),
        ("/faults", {"cloud": "vast"}, "name"),
        ("/faults", [], "JSON object"),
        ("/clock", {"advance_s": -1}, "forward"),
        ("/clock", {}, "advance_s"),
        ("/market", {"cloud": "vast", "action": "burn"}, "withdraw"),
        ("/market", {"cloud": "vast", "action": "reprice", "factor": "much"}, "not a number"),
        ("/market", {"cloud": "nimbus", "action": "withdraw"}, "nimbus"),
        ("/disturb", {"cloud": "vast", "ref": "7", "what": "offline"}, "7"),
    ],
)
async def test_a_bad_order_is_explained(http: httpx.AsyncClient, path: str, body: Any, said: str) -> None:
    reply = await http.post(path, json=body)

    assert reply.status_code == 400
    assert said in reply.json()["error"]


async def test_text_that_is_not_json_is_explained(http: httpx.AsyncClient) -> None:
    assert (await http.post("/clock", content=b"{")).status_code == 400


async def test_time_travel_moves_the_sandbox_and_its_bill(http: httpx.AsyncClient, bench: Bench) -> None:
    made = await bench.create()
    before = bench.engine.clock.now()
    await http.post("/clock", json={"advance_s": 3600})

    assert (bench.engine.clock.now() - before).total_seconds() == 3600
    # A program may be over within the hour; an instance is not.
    over = InstanceStatus.TERMINATED if bench.able.batch else InstanceStatus.RUNNING
    assert (await bench.seen(made.ref)).status is over
    assert bench.truth()[0].gpu_s > 0
    assert (bench.truth()[0].total_usd > 0) is not bench.able.free


@pytest.mark.needs(terminate=True)
async def test_the_truth_tells_the_dead_from_the_living(http: httpx.AsyncClient, bench: Bench) -> None:
    dead, living = await bench.running(), await bench.running()
    await bench.provider.terminate(dead.ref)
    bench.step(600)
    body = (await http.get("/truth")).json()

    by_ref = {row["ref"]: row for row in body["instances"]}
    assert (by_ref[dead.ref]["alive"], by_ref[living.ref]["alive"]) == (False, True)
    assert body["alive"] == 1
    assert float(by_ref[living.ref]["gpu_s"]) > float(by_ref[dead.ref]["gpu_s"]) > 0
    assert float(body["total_usd"]) == pytest.approx(sum(float(row["total_usd"]) for row in body["instances"]))
    assert [(c["name"], c["outcome"]) for c in body["creates"]] == [(NAME, "committed")] * 2


async def test_the_market_is_moved(http: httpx.AsyncClient, bench: Bench) -> None:
    cloud = bench.entry.name
    offer = await bench.offer()
    moved = await http.post("/market", json={"cloud": cloud, "action": "reprice", "key": offer.key, "factor": "3"})
    assert moved.json()["changed"] >= 1
    gone = await http.post("/market", json={"cloud": cloud, "action": "withdraw", "key": offer.key})
    assert gone.json()["changed"] == 1
    again = await http.post("/market", json={"cloud": cloud, "action": "withdraw", "key": "0"})
    assert again.json()["changed"] == 0


async def test_an_instance_is_made_to_vanish(http: httpx.AsyncClient, bench: Bench) -> None:
    running = await bench.running()
    assert (running.ssh is not None) is bench.able.ssh
    reply = await http.post("/disturb", json={"cloud": bench.entry.name, "ref": running.ref, "what": "vanish"})

    assert reply.status_code == 200
    assert bench.alive() == []
    assert running.ssh is None or await banner(running.ssh.host, running.ssh.port) == b""


async def test_a_reset_forgets_everything(http: httpx.AsyncClient, bench: Bench) -> None:
    running = await bench.running()
    await http.post("/faults", json={"cloud": bench.entry.name, "name": "create_429"})
    await http.post("/reset")

    assert bench.truth() == []
    assert bench.creates() == []
    assert bench.engine.faults.armed(bench.entry.name) == ()
    assert running.ssh is None or await banner(running.ssh.host, running.ssh.port) == b""
    assert (await bench.create()).name == NAME


@pytest.mark.needs(ssh=True)
async def test_a_tick_opens_the_port_without_any_read(http: httpx.AsyncClient, bench: Bench) -> None:
    await bench.create()
    bench.step()
    answering = (await http.post("/tick")).json()["answering"]

    assert len(answering) == 1
    assert answering[0].startswith(f"{bench.entry.name}/")


async def test_clouds_on_two_engines_are_refused() -> None:
    clock = SteppedClock()
    one, two = sandboxes(clock, names=("vast",)), sandboxes(clock, names=("runpod",))
    with pytest.raises(ValueError, match="one Engine"):
        build_app({**one, **two})
    with pytest.raises(ValueError, match="at least one"):
        build_app({})


async def test_the_app_opens_ports_by_itself_and_closes_all_when_it_stops() -> None:
    clock = SteppedClock()
    clouds = sandboxes(clock, SandboxTiming.quick(), names=("vast",))
    engine = clouds["vast"].engine
    recorder = Recorder(build_app(clouds, tick_s=0.001), engine)
    async with served(recorder) as url:
        provider = REGISTRY["vast"].connect(clouds["vast"].environment(f"{url}/vast"), clock)
        bench = Bench(REGISTRY["vast"], Clouds(url, clock, engine, clouds, recorder), provider, clouds["vast"])
        try:
            await bench.create()
            clock.advance(60)
            async with asyncio.timeout(10):
                while not engine.ssh_ports.answering:  # noqa: ASYNC110 # The ticker sets no event; ten seconds end it.
                    await asyncio.sleep(0.001)
            port = engine.ssh_ports.reserve(next(iter(engine.ssh_ports.answering)))
            assert (await banner("127.0.0.1", port)).startswith(b"SSH-2.0-")
        finally:
            await provider.close()
    assert engine.ssh_ports.answering == frozenset()
    assert await banner("127.0.0.1", port) == b""


async def test_the_bench_serves_on_loopback_only() -> None:
    async with serving() as running:
        assert running.url.startswith("http://127.0.0.1:")


async def test_every_answer_shows_the_practice_clock_and_not_what_a_cloud_alone_travelled(
    http: httpx.AsyncClient, clouds: Clouds
) -> None:
    for name in clouds.sandboxes:
        clouds.clock.advance(3600)
        await http.post("/clock", json={"advance_s": 7200})
        answer = await http.get(f"{clouds.url}/{name}/nothing")
        assert answer.headers.get_list("date") == [format_datetime(clouds.clock.now(), usegmt=True)]


@pytest.mark.parametrize("bad_rows", [False, True])
async def test_offers_without_a_usable_price_are_on_the_market_only_when_they_are_asked_for(bad_rows: bool) -> None:
    clock = SteppedClock()
    clouds = sandboxes(clock, SandboxTiming.quick(), names=("vast", "runpod", "tensordock"), bad_rows=bad_rows)
    async with served(build_app(clouds, tick_s=None)) as url:
        for name, cloud in clouds.items():
            provider = REGISTRY[name].connect(cloud.environment(f"{url}/{name}"), clock, unpaced(clock))
            found = await every_offer(provider, GpuConstraint(count_max=8), disk_gb=50, spot=False)
            await provider.close()
            assert any(one.price_usd_h is None or one.price_usd_h <= 0 for one in found) is bad_rows, name
