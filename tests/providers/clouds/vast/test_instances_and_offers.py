"""Vast.ai's rows in our words, and our requests in its words."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.clouds.vast import instances, offers
from providers.contract import InstanceSpec, InstanceStatus, Offer, SshEndpoint
from providers.errors import InvalidSpec, UnexpectedResponse
from providers.gpus.constraint import GpuConstraint

NOW = datetime(2026, 11, 21, 10, tzinfo=UTC)
ROW: dict[str, Any] = {
    "id": 30406190, "ask_contract_id": 30406190, "machine_id": 51234, "host_id": 77421, "num_gpus": 1,
    "gpu_name": "RTX 5090", "gpu_ram": 32607, "gpu_total_ram": 32607, "compute_cap": 1200, "cuda_max_good": 13.0,
    "cpu_cores": 128, "cpu_cores_effective": 16.0, "cpu_ram": 515000, "disk_space": 505.5, "inet_up": 780.2,
    "inet_down": 905.1, "inet_up_cost": 0.003, "inet_down_cost": 0.002, "dph_base": 0.36, "dph_total": 0.368333,
    "min_bid": 0.21, "storage_cost": 0.15, "storage_total_cost": 0.008333, "reliability": 0.9941,
    "reliability2": 0.9941, "verification": "verified", "hosting_type": 0, "geolocation": "Texas, US",
    "duration": 1814400.0,
}  # fmt: skip
INSTANCE: dict[str, Any] = {
    "id": 26500123, "label": "rk-7f3c-a1", "actual_status": "running", "intended_status": "running",
    "cur_state": "running", "next_state": "running", "status_msg": "success, running x/ssh", "is_bid": False,
    "dph_base": 0.36, "dph_total": 0.368333, "storage_total_cost": 0.008333, "machine_id": 51234, "num_gpus": 1,
    "instance": {"gpuCostPerHour": 0.36, "diskHour": 0.008333, "totalHour": 0.368333},
    "gpu_name": "RTX 5090", "gpu_totalram": 32607, "public_ipaddr": "203.0.113.42 \n",
    "ports": {"22/tcp": [{"HostIp": "203.0.113.42", "HostPort": "41022"}]}, "start_date": 1760001000.5,
    "geolocation": "Texas, US", "jupyter_token": "swordfish",
}  # fmt: skip
STOPPED = {
    "actual_status": "exited", "intended_status": "stopped", "cur_state": "stopped", "next_state": "stopped",
    "ports": None, "instance": {"gpuCostPerHour": 0, "diskHour": 0.008333, "totalHour": 0.008333},
}  # fmt: skip


def translated(*rows: dict[str, Any], want: GpuConstraint | None = None, kind: str = offers.ON_DEMAND) -> list[Offer]:
    return list(offers.translate(list(rows), want or GpuConstraint(count_max=8), disk_gb=40, kind=kind, at=NOW))


def test_an_offer_keeps_every_known_fact() -> None:
    (offer,) = translated({**ROW, "pcie_bw": 52.1, "bw_nvlink": 0, "gpu_max_power": 575.0})

    assert offer.id == "vast:30406190"
    assert (offer.gpu, offer.gpu_count, offer.memory_gb) == ("RTX5090", 1, Decimal(32))
    assert (offer.region, offer.country) == ("Texas, US", "US")
    assert (offer.price_usd_h, offer.gpu_usd_h) == (Decimal("0.368333"), Decimal("0.36"))
    assert offer.storage_usd_h == offer.storage_stopped_usd_h == Decimal("0.008333")
    assert (offer.egress_usd_gb, offer.ingress_usd_gb) == (Decimal("0.003"), Decimal("0.002"))
    assert (offer.reliability, offer.verified, offer.datacenter) == (Decimal("0.9941"), True, False)
    assert (offer.machine_id, offer.host_id) == ("51234", "77421")
    assert (offer.cuda_max, offer.compute_capability) == (Decimal("13.0"), Decimal(12))
    assert (offer.vcpus, offer.ram_gb, offer.disk_gb_max) == (16, Decimal("64.4"), 505)
    assert (offer.available_for_s, offer.download_mbps, offer.min_bid_usd_h) == (
        1814400,
        Decimal("905.1"),
        Decimal("0.21"),
    )
    links = offer.upload_mbps, offer.pcie_gb_s, offer.nvlink_gb_s, offer.power_limit_w
    assert links == (Decimal("780.2"), Decimal("52.1"), Decimal(0), Decimal("575.0"))
    assert not offer.spot
    assert offer.fetched_at == NOW


def test_a_bid_row_is_priced_by_its_lowest_bid() -> None:
    (offer,) = translated({**ROW, "dph_total": 0.218333}, kind=offers.BID)

    assert offer.spot
    assert (offer.price_usd_h, offer.gpu_usd_h) == (Decimal("0.218333"), Decimal("0.21"))


@pytest.mark.parametrize("price", [0, None, -0.1])
def test_a_bad_price_is_passed_on(price: float | None) -> None:
    (offer,) = translated({**ROW, "dph_total": price})

    assert offer.price_usd_h == (None if price is None else Decimal(str(price)))


def test_what_is_missing_stays_unknown() -> None:
    bare = {"id": 1, "num_gpus": 2, "gpu_name": "Quantum 9000", "gpu_ram": 12000, "storage_cost": 0.72}
    (offer,) = translated(bare)

    assert (offer.gpu, offer.memory_gb) == ("Quantum 9000", Decimal(12))
    assert offer.storage_usd_h == Decimal("0.04")
    unknown = (offer.price_usd_h, offer.reliability, offer.verified, offer.datacenter, offer.vcpus, offer.ram_gb)
    assert unknown == (None,) * 6
    assert (offer.region, offer.country, offer.available_for_s, offer.machine_id) == ("", None, None, None)


@pytest.mark.parametrize("broken", [{"id": None}, {"id": "7"}, {"num_gpus": 0}, {"num_gpus": None}, {"gpu_name": None}])
def test_a_row_that_cannot_be_rented_is_left_out(broken: dict[str, Any]) -> None:
    assert translated({**ROW, **broken}) == []


@pytest.mark.parametrize(
    "want",
    [
        GpuConstraint(count_min=2, count_max=8),
        GpuConstraint(names=("RTX4090",)),
        GpuConstraint(memory_gb_min=Decimal(33)),
        GpuConstraint(memory_gb_max=Decimal(31)),
    ],
)
def test_limits_that_the_service_did_not_apply_are_applied_here(want: GpuConstraint) -> None:
    assert translated(ROW, want=want) == []
    assert translated({**ROW, "disk_space": 39.9}) == []


def test_the_query_is_in_the_services_units_and_spellings() -> None:
    want = GpuConstraint(("RTX4090", "A100-SXM-80GB"), 2, 4, Decimal(24), Decimal(80))
    body = offers.query(want, disk_gb=60, kind="bid", verified_only=True, above_usd_h=0.5)

    assert body["gpu_name"] == {"in": ["RTX 4090", "A100 SXM4"]}
    assert body["num_gpus"] == {"gte": 2, "lte": 4}
    assert body["gpu_ram"]["gte"] <= 24564 * 24 // 24
    assert body["gpu_ram"]["lte"] >= 81920
    assert body["allocated_storage"] == 60.0
    assert body["disk_space"] == {"gte": 60}
    assert body["type"] == "bid"
    assert body["dph_total"] == {"gte": 0.5}
    assert body["verified"] == {"eq": True}
    plain = offers.query(GpuConstraint(), disk_gb=60, kind="on-demand", verified_only=False)
    assert plain["num_gpus"] == {"eq": 1}
    assert not {"gpu_name", "gpu_ram", "dph_total", "verified"} & set(plain)


@pytest.mark.parametrize("body", [None, [], {}, {"offers": None}, {"offers": [1]}])
def test_an_answer_without_offers_is_unexpected(body: Any) -> None:
    with pytest.raises(UnexpectedResponse):
        offers.rows(body)


@given(st.dictionaries(st.sampled_from(sorted(ROW)), st.none() | st.booleans() | st.floats() | st.text(max_size=4)))
def test_no_row_breaks_the_translation(broken: dict[str, Any]) -> None:
    for offer in translated({**ROW, **broken}):
        assert offer.price_usd_h is None or offer.price_usd_h.is_finite()


#: When the instance was read: half an hour after it was made.
AT = datetime(2025, 10, 9, 9, 40, tzinfo=UTC)

# ── instances ────────────────────────────────────────────────────────────────────────────────────


def test_a_running_instance() -> None:
    seen = instances.observed(INSTANCE, AT)

    assert (seen.ref, seen.name, seen.status) == ("26500123", "rk-7f3c-a1", InstanceStatus.RUNNING)
    assert seen.ssh == SshEndpoint("203.0.113.42", 41022, "root")
    assert (seen.price_usd_h, seen.storage_usd_h) == (Decimal("0.368333"), Decimal("0.008333"))
    assert (seen.gpu, seen.gpu_count, seen.machine_id) == ("RTX5090", 1, "51234")
    assert seen.created_at == datetime(2025, 10, 9, 9, 10, 0, 500000, tzinfo=UTC)
    assert "swordfish" not in repr(seen)


@pytest.mark.parametrize(
    ("fields", "minutes"),
    [
        ({"uptime_mins": 12.5}, 12.5),
        ({"uptime_mins": 0}, 0),
        ({"uptime_mins": None}, None),
        ({"uptime_mins": "soon"}, None),
        ({"uptime_mins": -3}, None),
        ({"uptime_mins": 1e300}, None),
        ({"uptime_mins": 60 * 24 * 30}, None),  # Longer than the contract exists: the host's own.
        ({"uptime_mins": 5, "start_date": None}, None),
        ({"uptime_mins": 5, "actual_status": "loading"}, None),
    ],
)
def test_since_when_it_runs(fields: dict[str, Any], minutes: float | None) -> None:
    seen = instances.observed({**INSTANCE, **fields}, AT)
    assert seen.started_at == (None if minutes is None else AT - timedelta(minutes=minutes))


def test_a_stopped_instance_costs_its_disk() -> None:
    seen = instances.observed({**INSTANCE, **STOPPED}, AT)

    assert seen.status is InstanceStatus.STOPPED
    assert seen.price_usd_h == Decimal("0.008333")
    assert seen.ssh is None


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"actual_status": None}, InstanceStatus.PENDING),
        ({"actual_status": "created"}, InstanceStatus.PENDING),
        ({"actual_status": "loading"}, InstanceStatus.BOOTING),
        ({"actual_status": "rebooting"}, InstanceStatus.BOOTING),
        ({"actual_status": "restarting"}, InstanceStatus.BOOTING),
        ({"actual_status": "frozen"}, InstanceStatus.ERROR),
        ({"actual_status": "unknown"}, InstanceStatus.OFFLINE),
        ({"actual_status": "offline"}, InstanceStatus.OFFLINE),
        ({"actual_status": "teleporting"}, InstanceStatus.BOOTING),
        ({"actual_status": "exited"}, InstanceStatus.BOOTING),
        ({"actual_status": "stopped", "intended_status": "stopped"}, InstanceStatus.STOPPED),
        ({"actual_status": "exited", "cur_state": "stopped"}, InstanceStatus.STOPPED),
        ({"actual_status": None, "intended_status": "stopped"}, InstanceStatus.STOPPED),
        ({"actual_status": "created", "status_msg": "x: OCI runtime create failed: y"}, InstanceStatus.ERROR),
        ({"actual_status": "loading", "status_msg": "manifest unknown"}, InstanceStatus.ERROR),
        ({"actual_status": "loading", "status_msg": "pull access denied for x"}, InstanceStatus.ERROR),
        ({"actual_status": "running", "status_msg": "unauthorized is in my log"}, InstanceStatus.RUNNING),
        ({"actual_status": "loading", "status_msg": None}, InstanceStatus.BOOTING),
    ],
)
def test_status_words(fields: dict[str, Any], expected: InstanceStatus) -> None:
    assert instances.observed({**INSTANCE, **fields}, AT).status is expected


@pytest.mark.parametrize(
    "fields",
    [
        {"ports": None},
        {"ports": {}},
        {"ports": {"22/tcp": []}},
        {"ports": {"22/tcp": [{"HostPort": "x"}]}},
        {"ports": {"22/tcp": [{"HostPort": "0"}]}},
        {"ports": {"22/tcp": [{"HostPort": "70000"}]}},
        {"ports": [22]},
        {"public_ipaddr": None},
        {"public_ipaddr": "  "},
    ],
)
def test_without_a_direct_port_there_is_no_endpoint(fields: dict[str, Any]) -> None:
    assert instances.observed({**INSTANCE, **fields}, AT).ssh is None


@pytest.mark.parametrize("row", [None, [], {}, {"id": None}, {"id": "7"}])
def test_an_instance_without_an_id_is_unexpected(row: Any) -> None:
    with pytest.raises(UnexpectedResponse):
        instances.observed(row, AT)


def test_a_sparse_instance_is_read_with_unknowns() -> None:
    seen = instances.observed({"id": 7}, AT)

    assert (seen.name, seen.gpu, seen.gpu_count, seen.price_usd_h, seen.created_at) == (None,) * 5
    assert seen.status is InstanceStatus.PENDING
    assert (
        instances.observed({"id": 7, "intended_status": "stopped", "actual_status": "exited"}, AT).price_usd_h is None
    )


# ── what is sent ─────────────────────────────────────────────────────────────────────────────────


def spec(**changes: Any) -> InstanceSpec:
    (offer,) = translated(ROW)
    return replace(InstanceSpec("name-1", offer, "pytorch/pytorch:x", 40), **changes)


def test_the_body_of_a_create() -> None:
    body = instances.create_body(spec(env={"A": "1"}, onstart="echo hi"))

    assert body["label"] == "name-1"
    assert body["cancel_unavail"] is True
    assert body["disk"] == 40
    assert body["env"] == {"A": "1"}
    assert body["onstart"] == "echo hi"
    assert "price" not in body


def test_a_spot_offer_sends_its_bid_and_an_on_demand_offer_never_does() -> None:
    (offer,) = translated(ROW, kind=offers.BID)
    assert instances.create_body(spec(offer=offer, bid_usd_h=Decimal("0.25")))["price"] == 0.25
    assert "price" not in instances.create_body(spec(bid_usd_h=Decimal("0.25")))
    with pytest.raises(InvalidSpec, match="bid"):
        instances.create_body(spec(offer=offer))


def test_what_vast_would_cut_off_is_refused_before_it_is_sent() -> None:
    with pytest.raises(InvalidSpec, match="4000"):
        instances.create_body(spec(onstart="x" * 4001))
    with pytest.raises(InvalidSpec, match="8 GB"):
        instances.create_body(spec(disk_gb=7))


def test_keys_reach_the_file_whatever_they_contain(tmp_path: Any) -> None:
    keys = ("ssh-ed25519 AAAA ada@x", 'ssh-ed25519 BBBB it\'s $(touch pwned) `id` "quoted"')
    script = instances.onstart(spec(public_keys=keys, onstart="echo started"))
    script = script.replace("/root/.ssh", str(tmp_path / "ssh"))
    ran = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert ran.stdout == "started\n"
    assert (tmp_path / "ssh" / "authorized_keys").read_text().splitlines() == list(keys)
    assert not (tmp_path / "pwned").exists()


SCALARS: st.SearchStrategy[Any] = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=4)
ANYTHING: st.SearchStrategy[Any] = SCALARS | st.just([]) | st.just({})


@given(st.dictionaries(st.sampled_from(sorted(INSTANCE)), ANYTHING))
def test_no_instance_breaks_the_translation(broken: dict[str, Any]) -> None:
    try:
        seen = instances.observed({**INSTANCE, **broken}, AT)
    except UnexpectedResponse:
        return
    assert seen.ref.isdigit()
