"""RunPod's JSON into the contract's types and back."""

from __future__ import annotations

import base64
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from providers.adapter_helpers import number
from providers.clouds.runpod import instances
from providers.clouds.runpod import offers as runpod_offers
from providers.contract import InstanceSpec, InstanceStatus, Offer, SshEndpoint, Stock
from providers.errors import InvalidSpec, UnexpectedResponse
from providers.gpus.constraint import GpuConstraint
from providers.sandbox.nodes.folders import moved
from providers.sandbox.runpod.validation import read_create

AT = datetime(2026, 11, 21, 10, tzinfo=UTC)
ANY = GpuConstraint()


def row(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "id": "NVIDIA GeForce RTX 4090",
        "memory": 24,
        "secure": True,
        "community": True,
        "price": {"secure": 0.74, "community": 0.34},
        "maxCount": {"secure": 8, "community": 4},
        "availability": "LOW",
        "cudaVersions": [{"version": "12.8", "available": True}, {"version": "13.0", "available": False}],
    }
    return base | changes


def offers(
    *rows: dict[str, Any], tier: str = "COMMUNITY", count: int = 1, constraint: GpuConstraint = ANY
) -> tuple[Offer, ...]:
    return runpod_offers.offers({"gpus": list(rows)}, runpod_offers.CatalogPage(tier, count, 60, AT), constraint)


def spec(offer: Offer | None = None, **changes: Any) -> InstanceSpec:
    base = InstanceSpec("run-7f3c", offer or offers(row())[0], "runpod/pytorch:1.0.2", 60, ("ssh-ed25519 AAAA a",))
    return replace(base, **changes)


# ── offers ───────────────────────────────────────────────────────────────────────────────────────


def test_price_is_per_gpu_times_count_plus_both_disks() -> None:
    (offer,) = offers(row(), count=2)
    assert offer.gpu_usd_h == Decimal("0.68")
    # 20 GB container and 60 GB volume at $0.10 per GB and 720 h; stopped, the volume alone at $0.20.
    assert offer.storage_usd_h == Decimal("0.011111")
    assert offer.storage_stopped_usd_h == Decimal("0.016667")
    assert offer.price_usd_h == Decimal("0.691111")


def test_the_volume_is_never_smaller_than_the_service_allows() -> None:
    assert runpod_offers.storage_usd_h(1) == runpod_offers.storage_usd_h(10)


@pytest.mark.parametrize(("price", "shown"), [(0, Decimal(0)), (-1, Decimal(-1)), (None, None), ("free", None)])
def test_a_bad_price_stays_bad(price: object, shown: Decimal | None) -> None:
    (offer,) = offers(row(price={"community": price}))
    assert offer.price_usd_h == shown


def test_an_offer_says_what_a_create_needs() -> None:
    (offer,) = offers(row())
    assert offer.key == f"community/{offer.gpu}x1"
    assert offer.ticket == {"gpu_id": "NVIDIA GeForce RTX 4090", "cloud": "COMMUNITY"}
    assert (offer.spot, offer.stock, offer.datacenter, offer.cuda_max) == (False, Stock.LOW, False, Decimal("12.8"))


def test_one_offer_per_datacenter_with_stock() -> None:
    centers = [
        {"id": "EU-RO-1", "availability": "HIGH"},
        {"id": "US-KS-2", "availability": "NONE"},
        {"id": "CA-MTL-1", "availability": "LOW"},
        {"availability": "HIGH"},
        "odd",
    ]
    found = offers(row(availability="NONE", dataCenters=centers), tier="SECURE")
    assert [(o.region, o.stock) for o in found] == [("EU-RO-1", Stock.HIGH), ("CA-MTL-1", Stock.LOW)]
    assert found[0].key.endswith("x1/EU-RO-1")
    assert found[0].ticket["data_center_id"] == "EU-RO-1"
    assert found[0].datacenter is True


def test_stock_without_details_is_one_offer_anywhere() -> None:
    (offer,) = offers(row(dataCenters=[{"id": "EU-RO-1", "availability": "NONE"}]), tier="SECURE")
    assert (offer.region, offer.stock) == ("any", Stock.LOW)
    (unknown,) = offers(row(availability=None))
    assert unknown.stock is None


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({"availability": "NONE"}, 1),
        ({"community": False}, 1),
        ({}, 5),
        ({"memory": None, "id": "Unheard Of"}, 1),
        ({"id": ""}, 1),
    ],
)
def test_what_is_not_for_rent_is_no_offer(changes: dict[str, Any], count: int) -> None:
    assert offers(row(**changes), count=count) == ()


def test_names_and_memory_filter() -> None:
    big = row(id="NVIDIA A100 80GB PCIe", memory=80)
    both = offers(row(), big)
    assert len(both) == 2
    assert offers(row(), big, constraint=GpuConstraint(names=(both[1].gpu,))) == both[1:]
    assert offers(row(), big, constraint=GpuConstraint(memory_gb_min=Decimal(40))) == both[1:]
    assert offers(row(), big, constraint=GpuConstraint(memory_gb_max=Decimal(40))) == both[:1]


def test_ids_are_never_tidied_and_keys_have_no_spaces() -> None:
    ids = ["NVIDIA RTX A4500", "NVIDIA  RTX A4500", "NVIDIA   RTX A4500", "Unheard Of"]
    found = offers(*(row(id=i, memory=20) for i in ids))
    assert [o.ticket["gpu_id"] for o in found] == ids
    assert len({o.key for o in found}) == len(ids)
    assert not any(" " in o.key for o in found)
    assert found[3].gpu == "Unheard Of"


def test_a_key_does_not_depend_on_what_is_filtered() -> None:
    rows = [row(id="NVIDIA RTX A4500", memory=20, availability="NONE"), row(id="NVIDIA  RTX A4500", memory=20)]
    (alone,) = offers(*rows)
    rows[0]["availability"] = "HIGH"
    assert offers(*rows)[1].key == alone.key


@pytest.mark.parametrize("body", [None, [], {}, {"gpus": {}}])
def test_a_catalogue_of_another_shape_is_an_error(body: object) -> None:
    with pytest.raises(UnexpectedResponse):
        runpod_offers.offers(body, runpod_offers.CatalogPage("SECURE", 1, 10, AT), ANY)


# ── create ───────────────────────────────────────────────────────────────────────────────────────


def test_the_body_of_a_create_passes_the_strict_schema() -> None:
    (offer,) = offers(row(dataCenters=[{"id": "EU-RO-1", "availability": "HIGH"}]), tier="SECURE", count=2)
    body = instances.create_body(spec(offer, env={"A": "b"}, onstart="echo hi"))
    order = read_create(body)
    assert (order.name, order.gpu_id, order.count, order.tier) == ("run-7f3c", "NVIDIA GeForce RTX 4090", 2, "SECURE")
    assert order.data_centers == ("EU-RO-1",)
    assert (order.disk_gb, order.volume_gb, order.volume_path) == (20, 60, "/workspace")
    assert order.ports == ("22/tcp",)
    assert order.env == {"A": "b", "PUBLIC_KEY": "ssh-ed25519 AAAA a"}
    assert order.start_ssh


def test_the_least_cuda_of_the_image_is_sent() -> None:
    assert "minCudaVersion" not in instances.create_body(spec())["gpu"]
    body = instances.create_body(spec(min_cuda=Decimal("12.8")))
    assert body["gpu"]["minCudaVersion"] == read_create(body).min_cuda == "12.8"


def test_community_offers_send_no_datacenter_and_always_the_tier() -> None:
    body = instances.create_body(spec())
    assert body["cloud"] == "COMMUNITY"
    assert "dataCenterIds" not in body
    assert "args" not in body


def test_keys_are_joined_by_lines_each_once() -> None:
    body = instances.create_body(spec(public_keys=("k1", "k2", "k1"), env={"PUBLIC_KEY": "k0\nk2"}))
    assert body["env"]["PUBLIC_KEY"] == "k0\nk2\nk1"
    assert instances.create_body(spec(public_keys=()))["env"] == {}


def test_the_login_key_stands_beside_peoples_keys_or_comes_by_the_script() -> None:
    ours = "ssh-ed25519 AAAAours"
    body = instances.create_body(spec(public_keys=("k1",), login_key=ours))
    assert body["env"]["PUBLIC_KEY"] == f"k1\n{ours}"
    # Keys in the environment would take the place of the account's own.
    body = instances.create_body(spec(public_keys=(), login_key=ours, onstart="echo started"))
    assert body["env"] == {}
    encoded = re.search(r"echo (\S+) \| base64", body["args"])
    assert encoded is not None
    script = base64.b64decode(encoded[1]).decode()
    assert ours in script
    assert script.endswith("\necho started")


def test_the_start_script_survives_any_quoting() -> None:
    script = "echo 'a' \"b\" $HOME\nsleep 1 # é\n"
    words = shlex.split(instances.create_body(spec(onstart=script))["args"])
    assert words[:2] == ["bash", "-c"]
    assert base64.b64decode(words[2].split()[1]).decode() == script
    assert words[2].endswith("exec bash /tmp/first_process.sh")


@pytest.mark.parametrize(
    "changes",
    [
        {"env": {f"V{i}": "x" for i in range(50)}},
        {"env": {"RUNPOD_API_KEY": "x"}},
        {"image": ""},
        {"name": ""},
        {"bid_usd_h": Decimal(1)},
        {"offer": replace(offers(row())[0], ticket={})},
        {"offer": replace(offers(row())[0], spot=True)},
    ],
)
def test_what_cannot_work_is_not_sent(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec):
        instances.create_body(spec(**changes))


# ── pods ─────────────────────────────────────────────────────────────────────────────────────────


def pod(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "id": "5xpma5eg46tqjq",
        "name": "run-7f3c",
        "status": "RUNNING",
        "gpu": {"id": "NVIDIA GeForce RTX 4090", "count": 2, "memory": 62},
        "dataCenterId": "EU-RO-1",
        "ssh": {"proxy": None, "direct": {"host": "195.26.233.3", "port": 34446, "username": "root"}},
        "cost": 0.68,
        "env": {"TOKEN": "hunter2"},
        "runtime": {"uptime": 3},
        "createdAt": "2026-11-21T10:00:00Z",
        "startedAt": "2026-11-21T12:00:00+02:00",
    }
    return base | changes


def test_a_running_pod() -> None:
    seen = instances.observed(pod())
    assert (seen.ref, seen.name, seen.status) == ("5xpma5eg46tqjq", "run-7f3c", InstanceStatus.RUNNING)
    assert (seen.gpu_count, seen.price_usd_h, seen.region) == (2, Decimal("0.68"), "EU-RO-1")
    assert seen.ssh == SshEndpoint("195.26.233.3", 34446, "root")
    assert seen.created_at == seen.started_at == AT
    assert "hunter2" not in repr(seen)


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("PROVISIONING", InstanceStatus.PENDING),
        ("STARTING", InstanceStatus.BOOTING),
        ("EXITED", InstanceStatus.STOPPED),
        ("ERROR", InstanceStatus.ERROR),
        ("TERMINATED", InstanceStatus.TERMINATED),
        ("MIGRATING", InstanceStatus.PENDING),
        (None, InstanceStatus.PENDING),
        (7, InstanceStatus.PENDING),
    ],
)
def test_status_words(word: object, status: InstanceStatus) -> None:
    seen = instances.observed(pod(status=word))
    assert seen.status is status
    # Only a running pod's address is its own, and only a live one's price is true.
    assert seen.ssh is None
    assert (seen.price_usd_h is None) is (status not in (InstanceStatus.PENDING, InstanceStatus.BOOTING))


def test_running_without_a_runtime_is_told_apart_in_words() -> None:
    assert instances.observed(pod(runtime=None)).status_text == "RUNNING, container not started yet"


@pytest.mark.parametrize(
    "ssh",
    [
        None,
        {},
        {"direct": None},
        {"direct": {"host": "", "port": 1}},
        {"direct": {"host": "h", "port": 0}},
        {"direct": {"host": "h", "port": 70000}},
        {"direct": {"host": "h", "port": "22"}},
    ],
)
def test_no_address_is_better_than_a_wrong_one(ssh: object) -> None:
    assert instances.observed(pod(ssh=ssh)).ssh is None


def test_missing_facts_stay_unknown() -> None:
    seen = instances.observed({"id": "x"})
    assert (seen.name, seen.gpu, seen.gpu_count, seen.price_usd_h, seen.created_at) == (None, None, None, None, None)
    assert instances.observed(pod(createdAt="soon", startedAt="2026-11-21T10:00:00")).started_at is None


@pytest.mark.parametrize("body", [None, [], {}, {"id": ""}, {"id": 5}])
def test_a_pod_without_an_id_is_an_error(body: object) -> None:
    with pytest.raises(UnexpectedResponse):
        instances.observed(body)


# ── bill ─────────────────────────────────────────────────────────────────────────────────────────


def record(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "podId": "p1",
        "startTime": "2026-11-21T10:00:00Z",
        "endTime": "2026-11-21T11:00:00Z",
        "totalAmount": 12.34,
        "gpuAmount": 11.1,
        "cpuAmount": 0,
        "diskAmount": 1.2,
    }
    return base | changes


def test_the_parts_of_a_record_add_up_to_its_total() -> None:
    lines = instances.charges({"records": [record()]})
    assert {line.component: line.amount_usd for line in lines} == {
        "gpu": Decimal("11.1"),
        "storage": Decimal("1.2"),
        "other": Decimal("0.04"),
    }
    assert len({line.line_id for line in lines}) == 3
    assert instances.charges({"records": [record(totalAmount=0, gpuAmount=0, diskAmount=0)]}) == ()


@pytest.mark.parametrize(
    "body",
    [None, {}, {"records": [5]}, {"records": [record(totalAmount=None)]}, {"records": [record(endTime="later")]}],
)
def test_a_bill_of_another_shape_is_an_error(body: object) -> None:
    with pytest.raises(UnexpectedResponse):
        instances.charges(body)


@pytest.mark.parametrize("value", [None, True, float("nan"), "Infinity", [], "x"])
def test_not_a_number(value: object) -> None:
    assert number(value) is None


def test_the_first_process_tells_the_agent_of_a_stop_and_never_ends(tmp_path: Path) -> None:
    """Real processes, with the machine's paths below a folder of the test."""
    for name in ("tmp", "opt/gpu-shopper/agent"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "start.sh").write_text(f"#!/bin/sh\necho began >{tmp_path}/began\n")
    (tmp_path / "start.sh").chmod(0o755)
    lock, notices = tmp_path / "opt/gpu-shopper/agent/lock", tmp_path / "notices"
    agent = f"trap 'echo stop >>{notices}' USR1; echo $$ >{lock}.new; mv {lock}.new {lock}\n"
    agent += "while :; do sleep 0.02; done\n"
    args = instances.create_body(spec(onstart=agent))["args"]
    process = subprocess.Popen(shlex.split(moved(args, tmp_path)), start_new_session=True)
    try:
        _until(lambda: lock.exists() and (tmp_path / "began").exists())
        process.terminate()
        _until(lambda: _lines(notices) == 1)
        process.terminate()
        _until(lambda: _lines(notices) == 2)
        assert process.poll() is None
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _lines(file: Path) -> int:
    return len(file.read_text().splitlines()) if file.exists() else 0


def _until(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.01)
