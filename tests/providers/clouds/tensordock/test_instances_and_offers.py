"""TensorDock's JSON into the contract's types and back."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from ledger.kernel.ports import Port
from providers.clouds.tensordock import billing, instances
from providers.clouds.tensordock import offers as tensordock_offers
from providers.contract import InstanceSpec, InstanceStatus, Offer, OpenPort, SshEndpoint
from providers.errors import InvalidSpec, UnexpectedResponse
from providers.gpus.constraint import GpuConstraint

AT = datetime(2026, 11, 21, 10, tzinfo=UTC)
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ3c0ntr4ct ada@example"
ONE = GpuConstraint()


def gpu(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "v0Name": "geforcertx5090-pcie-32gb",
        "displayName": "NVIDIA GeForce RTX 5090 PCIe 32GB",
        "max_count": 2,
        "price_per_hr": 0.56,
        "resources": {"max_vcpus": 24, "max_ram_gb": 96, "max_storage_gb": 1000},
        "pricing": {"per_vcpu_hr": 0.003, "per_gb_ram_hr": 0.002, "per_gb_storage_hr": 0.00005},
        "network_features": {"dedicated_ip_available": True},
    }
    return base | changes


def offers(*gpus: Any, constraint: GpuConstraint = ONE, disk_gb: int = 50, **place: Any) -> tuple[Offer, ...]:
    base = {"id": "1a77", "city": "Chubbuck", "stateprovince": "Idaho", "country": "United States", "tier": 2}
    body = {"data": {"locations": [base | {"gpus": list(gpus)} | place, "odd", {"id": "2b88", "gpus": None}]}}
    return tensordock_offers.offers(body, constraint, disk_gb=disk_gb, at=AT)


def spec(**changes: Any) -> InstanceSpec:
    return replace(InstanceSpec("run-7f3c", offers(gpu())[0], "pytorch/pytorch:2.8.0", 50, (KEY,)), **changes)


def attributes(one: InstanceSpec, secret: str = "") -> dict[str, Any]:
    found: dict[str, Any] = instances.create_body(one, "ubuntu2404_nvidia_570", secret)["data"]["attributes"]
    return found


# ── offers ───────────────────────────────────────────────────────────────────────────────────────


def test_the_price_is_the_sum_of_all_parts() -> None:
    (offer,) = offers(gpu())

    # 0.56 + 8 × 0.003 + 32 × 0.002 + 100 × 0.00005, for the smallest disk that there is.
    assert offer.price_usd_h == Decimal("0.653")
    assert offer.storage_usd_h == offer.storage_stopped_usd_h == Decimal("0.005")
    assert offer.id == "tensordock:1a77/geforcertx5090-pcie-32gbx1"
    assert (offer.gpu, offer.memory_gb, offer.compute_capability) == ("RTX5090", Decimal(32), Decimal("12.0"))
    assert (offer.region, offer.country) == ("Chubbuck, Idaho, US", "US")
    assert (offer.vcpus, offer.ram_gb, offer.disk_gb_max) == (8, Decimal(32), 1000)
    assert (offer.stock, offer.reliability, offer.machine_id) == (None, None, None)


def test_one_offer_per_count_that_fits_into_one_machine() -> None:
    found = offers(gpu(max_count=3), constraint=GpuConstraint(count_min=2, count_max=8))

    assert [o.gpu_count for o in found] == [2, 3]
    assert [o.vcpus for o in found] == [16, 24]
    assert offers(gpu(max_count=0)) == ()
    many = offers(gpu(max_count=10**9), constraint=GpuConstraint(count_max=10**9))
    assert len(many) == tensordock_offers.COUNT_MAX


def test_large_gpus_get_more_around_them_and_scarce_places_give_less() -> None:
    (large,) = offers(gpu(v0Name="a100-sxm4-80gb", displayName=None))
    (scarce,) = offers(gpu(resources={"max_vcpus": 5, "max_ram_gb": 12, "max_storage_gb": 200}))
    (unknown,) = offers(gpu(resources=None))

    assert (large.gpu, large.vcpus, large.ram_gb) == ("A100-SXM-80GB", 12, Decimal(64))
    assert (scarce.vcpus, scarce.ram_gb) == (4, Decimal(12))
    assert (unknown.vcpus, unknown.disk_gb_max) == (8, None)


@pytest.mark.parametrize("changes", [{"price_per_hr": None}, {"price_per_hr": "x"}, {"pricing": None}, {"pricing": {}}])
def test_a_missing_price_is_unknown(changes: dict[str, Any]) -> None:
    assert offers(gpu(**changes))[0].price_usd_h is None


@pytest.mark.parametrize("price", [0, -1])
def test_a_bad_price_does_not_look_like_a_bargain(price: int) -> None:
    assert offers(gpu(price_per_hr=price))[0].price_usd_h == price


@pytest.mark.parametrize(
    "changes",
    [
        {"v0Name": None},
        {"v0Name": "two words 24gb"},
        {"v0Name": "mystery", "displayName": None},
        {"max_count": None},
        {"resources": {"max_storage_gb": 99}},
    ],
)
def test_what_cannot_be_rented_is_no_offer(changes: dict[str, Any]) -> None:
    assert offers(gpu(**changes)) == ()


@pytest.mark.parametrize(
    "constraint",
    [
        GpuConstraint(names=("RTX4090",)),
        GpuConstraint(memory_gb_min=Decimal(33)),
        GpuConstraint(memory_gb_max=Decimal(31)),
    ],
)
def test_the_constraint_is_kept(constraint: GpuConstraint) -> None:
    assert offers(gpu(), constraint=constraint) == ()


def test_names_are_read_in_every_spelling() -> None:
    assert tensordock_offers.gpu_of("l40s-48gb") == ("L40S", Decimal(48))
    assert tensordock_offers.gpu_of("odd", "NVIDIA GeForce RTX 5090 PCIe 32GB") == ("RTX5090", Decimal(32))
    assert tensordock_offers.gpu_of("hyperx-pcie-200gb") == ("hyperx-pcie-200gb", Decimal(200))
    assert offers(gpu(), country="Atlantis")[0].country is None
    assert offers(gpu(), country="Atlantis")[0].region == "Chubbuck, Idaho, Atlantis"


@pytest.mark.parametrize("body", [None, [], {}, {"data": []}, {"data": {"locations": None}}])
def test_an_answer_without_locations_is_an_error(body: Any) -> None:
    with pytest.raises(UnexpectedResponse):
        tensordock_offers.offers(body, ONE, disk_gb=50, at=AT)


# ── create ───────────────────────────────────────────────────────────────────────────────────────


def test_a_create_says_everything_at_once() -> None:
    sent = attributes(spec())

    assert (sent["name"], sent["location_id"], sent["image"]) == ("run-7f3c", "1a77", "ubuntu2404_nvidia_570")
    assert sent["resources"] == {
        "vcpu_count": 8,
        "ram_gb": 32,
        "storage_gb": 100,
        "gpus": {"geforcertx5090-pcie-32gb": {"count": 1}},
    }
    assert sent["useDedicatedIp"] is True
    assert "port_forwards" not in sent
    assert sent["ssh_key"] == KEY.removesuffix(" ada@example")


def test_without_addresses_to_give_port_22_is_forwarded() -> None:
    sent = attributes(spec(offer=offers(gpu(network_features=None))[0]))

    assert "useDedicatedIp" not in sent
    assert [forward["internal_port"] for forward in sent["port_forwards"]] == [22]


def test_further_ports_are_forwarded_beside_ssh() -> None:
    sent = attributes(spec(offer=offers(gpu(network_features=None))[0], ports=(Port(8888), Port(6006))))
    outer = [(one["internal_port"], one["external_port"]) for one in sent["port_forwards"]]
    assert outer == [(22, 20022), (8888, 20023), (6006, 20024)]
    assert "port_forwards" not in attributes(spec(ports=(Port(8888),)))


def test_a_machine_image_is_sent_and_a_container_is_pulled() -> None:
    machine, container = attributes(spec(image="debian12")), attributes(spec())

    assert machine["image"] == "debian12"
    assert not any("docker" in command for command in machine["cloud_init"]["runcmd"])
    assert any("docker pull" in command for command in container["cloud_init"]["runcmd"])


def test_keys_variables_and_script_reach_the_machine() -> None:
    script = 'echo "it\'s" $HOME\n'
    start = attributes(spec(env={"TOKEN": "it's"}, onstart=script))["cloud_init"]

    env, file = start["write_files"]
    assert (env["permissions"], file["content"]) == ("0600", script)
    assert "export TOKEN='it'\"'\"'s'\n" in env["content"]
    assert all("encoding" not in one for one in start["write_files"])
    assert sum("authorized_keys" in command for command in start["runcmd"]) == 2
    assert {"/root/.ssh", "/home/user/.ssh"} <= set(" ".join(start["runcmd"]).split())


def test_the_accounts_secret_stands_in_for_a_key() -> None:
    sent = attributes(spec(public_keys=()), "5ec")

    assert sent["ssh_key_id"] == "5ec"
    assert "ssh_key" not in sent
    assert not any("authorized_keys" in command for command in sent["cloud_init"]["runcmd"])


@pytest.mark.parametrize(
    "changes",
    [
        {"name": ""},
        {"name": "n" * 61},
        {"name": "a_b"},
        {"disk_gb": 1001},
        {"public_keys": ()},
        {"public_keys": ("not a key",)},
        {"env": {"A B": "1"}},
        {"offer": replace(offers(gpu())[0], ticket={})},
        {"offer": replace(offers(gpu())[0], ticket={"gpu": "a", "location": "b", "vcpus": "x", "ram_gb": "1"})},
    ],
)
def test_what_tensordock_would_refuse_is_not_sent(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec):
        attributes(spec(**changes))


# ── machines ─────────────────────────────────────────────────────────────────────────────────────


def full(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "type": "virtualmachine",
        "id": "468b716a",
        "name": "run-7f3c",
        "status": "running",
        "ipAddress": "198.51.100.7",
        "portForwards": [{"internal_port": 22, "external_port": 20456}],
        "resources": {"gpus": {"geforcertx5090-pcie-32gb": {"count": 1}}},
        "rateHourly": 0.272999,
    }
    return base | changes


@pytest.mark.parametrize("wrap", [lambda row: row, lambda row: {"data": row}])
def test_a_machine_read_by_id(wrap: Any) -> None:
    seen = instances.observed(wrap(full()))

    assert (seen.ref, seen.name, seen.status) == ("468b716a", "run-7f3c", InstanceStatus.RUNNING)
    assert (seen.gpu, seen.gpu_count, seen.price_usd_h) == ("RTX5090", 1, Decimal("0.272999"))
    assert seen.ssh == SshEndpoint("198.51.100.7", 20456, "user")
    assert seen.created_at is None


@pytest.mark.parametrize(
    ("changes", "ssh"),
    [
        ({"portForwards": []}, SshEndpoint("198.51.100.7", 22, "user")),
        ({"portForwards": None}, None),
        ({"portForwards": [{"internal_port": 80, "external_port": 8080}]}, None),
        ({"portForwards": [{"internal_port": 22, "external_port": 0}]}, None),
        ({"portForwards": ["odd"]}, None),
        ({"ipAddress": ""}, None),
        ({"status": "stopped"}, None),
    ],
)
def test_where_ssh_answers(changes: dict[str, Any], ssh: SshEndpoint | None) -> None:
    assert instances.observed(full(**changes)).ssh == ssh


def test_forwarded_ports_are_read_and_odd_ones_are_not() -> None:
    rows = [(22, 20456), (8888, 41000), (6006, 0), ("x", 1), (None, None)]
    forwards = [*({"internal_port": inner, "external_port": outer} for inner, outer in rows), "odd"]
    assert instances.observed(full(portForwards=forwards)).ports == (OpenPort(8888, "198.51.100.7:41000"),)
    assert instances.observed(full(portForwards=forwards, status="stopped")).ports == ()
    assert instances.observed(full(portForwards=forwards, ipAddress=None)).ports == ()


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("queued", InstanceStatus.PENDING),
        ("creating", InstanceStatus.BOOTING),
        ("Starting", InstanceStatus.BOOTING),
        ("Running", InstanceStatus.RUNNING),
        ("stopping", InstanceStatus.STOPPED),
        ("StoppedDisassociated", InstanceStatus.STOPPED),
        ("stopped_disassociated", InstanceStatus.STOPPED),
        ("relocating", InstanceStatus.OFFLINE),
        ("deleting", InstanceStatus.OFFLINE),
        ("error", InstanceStatus.ERROR),
        ("deleted", InstanceStatus.TERMINATED),
        ("something new", InstanceStatus.BOOTING),
    ],
)
def test_status_words(word: str, status: InstanceStatus) -> None:
    assert instances.observed(full(status=word)).status is status


@pytest.mark.parametrize(
    "body",
    [
        [{"id": "a", "status": "running"}],
        {"data": [{"id": "a", "status": "running"}]},
        {"data": {"instances": [{"type": "VM", "id": "a", "attributes": {"name": "n", "status": "running"}}]}},
        {"data": {"type": "list", "attributes": {"instances": [{"id": "a", "status": "running"}]}}},
    ],
)
def test_every_shape_of_a_listing_is_read(body: Any) -> None:
    assert [instances.observed(row).ref for row in instances.rows(body)] == ["a"]


@pytest.mark.parametrize(
    "body",
    [None, "x", {}, {"data": {}}, {"data": {"attributes": {}}}, {"data": None}, ["odd"], {"data": {"instances": {}}}],
)
def test_anything_else_is_never_an_empty_account(body: Any) -> None:
    with pytest.raises(UnexpectedResponse):
        instances.rows(body)


def test_a_flat_row_of_a_listing() -> None:
    seen = instances.observed(
        {
            "id": "a",
            "status": "running",
            "gpu_model": "l40s-48gb",
            "gpu_count": 2,
            "price_per_hour": "1.5",
            "created_at": "2026-11-21T10:00:00Z",
            "ipAddress": "198.51.100.7",
        }
    )

    assert (seen.gpu, seen.gpu_count, seen.price_usd_h, seen.created_at) == ("L40S", 2, Decimal("1.5"), AT)
    assert seen.ssh is None, "a listing does not tell the port"
    bare = instances.observed({"id": "a", "status": "running", "created_at": "2026-11-21T10:00:00"})
    assert (bare.created_at, bare.gpu, bare.price_usd_h) == (AT, None, None)
    assert instances.observed({"id": "a", "status": "x", "created_at": "soon", "gpu_model": "new"}).gpu == "new"


@pytest.mark.parametrize("odd", [None, [], {}, {"id": "", "status": "x"}, {"id": 7, "status": "x"}, {"id": "a"}])
def test_a_row_without_id_or_status_is_an_error(odd: Any) -> None:
    with pytest.raises(UnexpectedResponse):
        instances.observed(odd)


# ── the older API's bill ─────────────────────────────────────────────────────────────────────────


def test_the_months_of_a_time() -> None:
    def names(since: datetime, until: datetime) -> list[str]:
        return [name for name, _, _ in billing.periods(since, until)]

    assert names(AT, AT) == ["2026-11"]
    assert names(AT, datetime(2027, 1, 1, tzinfo=UTC)) == ["2026-11", "2026-12"]
    assert names(AT, datetime(2027, 1, 1, 0, 0, 1, tzinfo=UTC)) == ["2026-11", "2026-12", "2027-01"]


def test_one_line_per_machine_and_kind() -> None:
    row = {"virtual_machine_id": "a", "rate_hourly": 1, "total_amount": "2.5"}
    lines = billing.charges({"vm_expenses": [row], "storage_expenses": [row]}, "2026-11", AT, AT)

    assert [(line.component, line.amount_usd) for line in lines] == [
        ("gpu", Decimal("2.5")),
        ("storage", Decimal("2.5")),
    ]
    assert len({line.line_id for line in lines}) == 2


@pytest.mark.parametrize("body", [{}, {"vm_expenses": ["x"]}, {"vm_expenses": [{"virtual_machine_id": "a"}]}])
def test_an_unreadable_bill_is_an_error(body: Any) -> None:
    with pytest.raises(UnexpectedResponse):
        billing.charges(body, "2026-11", AT, AT)
    with pytest.raises(UnexpectedResponse):
        billing.credit(body)
