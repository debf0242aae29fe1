"""Lambda's JSON into the contract's types and back."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from providers.cloud_init import key_material
from providers.clouds.lambda_cloud import billing, instances
from providers.clouds.lambda_cloud import offers as lambda_cloud_offers
from providers.contract import InstanceSpec, InstanceStatus, Offer, SshEndpoint
from providers.errors import InvalidSpec, UnexpectedResponse
from providers.gpus.constraint import GpuConstraint

AT = datetime(2026, 11, 21, 10, tzinfo=UTC)
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ3c0ntr4ct ada@example"
HOUR = timedelta(hours=1)


def kind(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "name": "gpu_8x_h100_sxm5gdr",
        "description": "8x H100 (80 GB SXM5)",
        "gpu_description": "H100 (80 GB SXM5)",
        "price_cents_per_hour": 3592,
        "specs": {"vcpus": 208, "memory_gib": 1800, "storage_gib": 24780, "gpus": 8},
    }
    return base | changes


def offers(
    *kinds: dict[str, Any],
    regions: tuple[Any, ...] = ({"name": "us-east-1", "description": "Virginia, USA"},),
    constraint: GpuConstraint = GpuConstraint(count_max=8),  # noqa: B008 # It is frozen.
    disk_gb: int = 100,
) -> tuple[Offer, ...]:
    rows = {str(n): {"instance_type": k, "regions_with_capacity_available": list(regions)} for n, k in enumerate(kinds)}
    return lambda_cloud_offers.offers({"data": rows}, constraint, disk_gb=disk_gb, at=AT)


def spec(**changes: Any) -> InstanceSpec:
    return replace(InstanceSpec("run-7f3c", offers(kind())[0], "pytorch/pytorch:2.8.0", 100, (KEY,)), **changes)


# ── offers ───────────────────────────────────────────────────────────────────────────────────────


def test_the_price_is_for_the_whole_machine_with_its_disk() -> None:
    (offer,) = offers(kind())

    assert offer.id == "lambda:gpu_8x_h100_sxm5gdr/us-east-1"
    assert (offer.gpu, offer.gpu_count, offer.memory_gb) == ("H100-SXM", 8, Decimal(80))
    assert (offer.price_usd_h, offer.storage_usd_h) == (Decimal("35.92"), Decimal(0))
    assert (offer.region, offer.country, offer.datacenter) == ("us-east-1", "US", True)
    assert (offer.vcpus, offer.ram_gb, offer.disk_gb_max) == (208, Decimal(1800), 24780)
    assert offer.compute_capability == 9
    assert (offer.stock, offer.reliability, offer.machine_id) == (None, None, None)
    assert offer.ticket == {"instance_type": "gpu_8x_h100_sxm5gdr", "region": "us-east-1"}


def test_one_offer_per_region_with_capacity() -> None:
    found = offers(
        kind(), regions=({"name": "us-east-1"}, {"name": "asia-south-1", "description": "India"}, "odd", {"name": 7})
    )

    assert [(o.region, o.country) for o in found] == [("us-east-1", None), ("asia-south-1", "IN")]
    assert offers(kind(), regions=()) == ()


@pytest.mark.parametrize(
    ("words", "gpu", "memory_gb"),
    [
        ("A10 (24 GB PCIe)", "A10", 24),
        ("8x A100 (40 GB SXM4)", "A100-SXM-40GB", 40),
        ("A100 (80 GB SXM4)", "A100-SXM-80GB", 80),
        ("1x A100 (40 GB PCIe)", "A100-PCIE-40GB", 40),
        ("Tesla V100 (16 GB)", "V100-16GB", 16),
        ("RTX 6000 (24 GB)", "QuadroRTX6000", 24),
        ("GH200 (96 GB)", "GH200", 96),
        ("B200 (180 GB SXM6)", "B200", 180),
        ("Hyper X1 (200 GB)", "Hyper X1 (200 GB)", 200),
    ],
)
def test_gpus_are_read_from_the_description(words: str, gpu: str, memory_gb: int) -> None:
    assert lambda_cloud_offers.gpu_of({"gpu_description": words}) == (gpu, Decimal(memory_gb))
    assert lambda_cloud_offers.gpu_of({"description": words}) == (gpu, Decimal(memory_gb))


@pytest.mark.parametrize(
    "odd",
    [
        {"gpu_description": "N/A", "specs": {"gpus": 0}},
        {"specs": {"gpus": 0}},
        {"specs": None},
        {"gpu_description": None, "description": None},
        {"name": "../x"},
        {"name": None},
    ],
)
def test_a_type_that_cannot_be_rented_is_left_out(odd: dict[str, Any]) -> None:
    assert [o.gpu_count for o in offers(kind(**odd), kind())] == [8]


@pytest.mark.parametrize(("cents", "usd"), [(None, None), ("x", None), (0, 0), (-5, Decimal("-0.05")), (True, None)])
def test_a_bad_price_stays_bad(cents: Any, usd: Any) -> None:
    (offer,) = offers(kind(price_cents_per_hour=cents))

    assert offer.price_usd_h == usd


@pytest.mark.parametrize(
    "constraint",
    [
        GpuConstraint(names=("A10",), count_max=8),
        GpuConstraint(count_max=4),
        GpuConstraint(count_max=8, memory_gb_min=Decimal(81)),
        GpuConstraint(count_max=8, memory_gb_max=Decimal(79)),
    ],
)
def test_the_constraint_is_kept(constraint: GpuConstraint) -> None:
    assert offers(kind(), constraint=constraint) == ()


def test_a_disk_that_is_too_small_is_no_offer() -> None:
    assert offers(kind(), disk_gb=24780)
    assert offers(kind(), disk_gb=24781) == ()


@pytest.mark.parametrize("body", [None, [], {}, {"data": []}, {"data": None}])
def test_an_answer_without_types_is_an_error(body: Any) -> None:
    with pytest.raises(UnexpectedResponse):
        lambda_cloud_offers.offers(body, GpuConstraint(), disk_gb=50, at=AT)


# ── launch ───────────────────────────────────────────────────────────────────────────────────────


def test_a_launch_names_type_region_and_time() -> None:
    body = instances.launch_body(spec(), AT)

    assert (body["instance_type_name"], body["region_name"]) == ("gpu_8x_h100_sxm5gdr", "us-east-1")
    assert body["name"] == "run-7f3c"
    assert body["tags"] == [{"key": "gpu-shopper-created", "value": "2026-11-21T10:00:00Z"}]
    assert not {"image", "quantity", "hostname"} & set(body)


@pytest.mark.parametrize(
    ("image", "sent"),
    [
        ("lambda-stack-22-04", {"family": "lambda-stack-22-04"}),
        ("01234567-89ab-cdef-0123-456789abcdef", {"id": "01234567-89ab-cdef-0123-456789abcdef"}),
        ("0123456789abcdef0123456789abcdef", {"id": "0123456789abcdef0123456789abcdef"}),
        ("ghcr.io/team/train", None),
        ("ubuntu:24.04", None),
    ],
)
def test_images_of_machines_and_of_containers(image: str, sent: dict[str, str] | None) -> None:
    body = instances.launch_body(spec(image=image), AT)

    assert body.get("image") == sent
    assert ("docker pull" in body["user_data"]) is (sent is None)


def config(one: InstanceSpec) -> dict[str, Any]:
    text = instances.user_data(one)
    assert text.startswith("#cloud-config\n{")
    loaded: dict[str, Any] = json.loads(text.removeprefix("#cloud-config\n"))
    return loaded


def test_the_machine_gets_keys_variables_and_script() -> None:
    other = KEY.replace("IJ3c", "IJ4d")
    script = "#!/bin/bash\necho \"it's\" 'done' $HOME ü\n"
    loaded = config(spec(env={"TOKEN": "it's a $ecret"}, onstart=script, public_keys=(KEY, other)))

    assert loaded["ssh_authorized_keys"] == [KEY.removesuffix(" ada@example"), other.removesuffix(" ada@example")]
    env, start = loaded["write_files"]
    assert env["permissions"] == "0600"
    assert "export TOKEN='it'\"'\"'s a $ecret'\n" in env["content"]
    assert "export IMAGE=pytorch/pytorch:2.8.0\n" in env["content"]
    assert start["content"] == script
    assert len(loaded["runcmd"]) == 2
    assert config(spec(image="ubuntu-lts"))["runcmd"] == []


@pytest.mark.parametrize(
    "changes",
    [
        {"name": ""},
        {"name": "n" * 65},
        {"disk_gb": 30_000},
        {"env": {"A B": "1"}},
        {"env": {"A;rm -rf /": "1"}},
        {"onstart": "x" * 1_000_001},
        {"public_keys": ("not a key",)},
        {"public_keys": ("ssh-ed25519",)},
        {"public_keys": ("ssh-ed25519 " + "A" * 5000,)},
    ],
)
def test_what_lambda_would_refuse_is_not_sent(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec) as caught:
        instances.launch_body(spec(**changes), AT)
    assert len(caught.value.message) < 200


def test_a_key_is_the_same_whatever_its_comment_and_its_name_ends_in_the_whole_label() -> None:
    assert len({key_material("lambda", f"  {KEY.rsplit(' ', 1)[0]}{end}") for end in ("", " a", " b\n")}) == 1
    for label in ("ab12-0123456789abcdef-01-mac0mac0ma", "x" * 40 + "-ab12-0123456789abcdef-01-mac0mac0ma"):
        name = instances.key_name(label)
        assert name.endswith("-ab12-0123456789abcdef-01-mac0mac0ma")
        assert len(name) <= 64


# ── instances ────────────────────────────────────────────────────────────────────────────────────


def row(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "id": "0920582c7ff041399e34823a0be62549",
        "name": "run-7f3c",
        "status": "active",
        "ip": "198.51.100.2",
        "region": {"name": "us-east-1", "description": "Virginia, USA"},
        "instance_type": kind(),
        "tags": [{"key": "gpu-shopper-created", "value": "2026-11-21T09:59:58Z"}],
        "jupyter_token": "s3cret",
        "jupyter_url": "https://x/?token=s3cret",
    }
    return base | changes


def test_an_active_instance() -> None:
    seen = instances.observed(row())

    assert (seen.status, seen.status_text) == (InstanceStatus.RUNNING, "active")
    assert (seen.gpu, seen.gpu_count, seen.price_usd_h) == ("H100-SXM", 8, Decimal("35.92"))
    assert seen.ssh == SshEndpoint("198.51.100.2", 22, "ubuntu")
    assert seen.created_at == AT - timedelta(seconds=2)
    assert seen.region == "us-east-1"
    assert "s3cret" not in repr(seen)


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("booting", InstanceStatus.BOOTING),
        ("unhealthy", InstanceStatus.OFFLINE),
        ("terminating", InstanceStatus.OFFLINE),
        ("terminated", InstanceStatus.TERMINATED),
        ("preempted", InstanceStatus.ERROR),
        ("something new", InstanceStatus.BOOTING),
    ],
)
def test_status_words(word: str, status: InstanceStatus) -> None:
    seen = instances.observed(row(status=word))

    assert seen.status is status
    assert seen.ssh is None


@pytest.mark.parametrize(
    ("changes", "ssh"),
    [
        ({"ip": None}, None),
        ({"ip": " "}, None),
        ({"tags": [{"key": "ssh-port", "value": "2222"}]}, SshEndpoint("198.51.100.2", 2222, "ubuntu")),
        ({"tags": [{"key": "ssh-port", "value": "99999"}]}, SshEndpoint("198.51.100.2", 22, "ubuntu")),
        ({"tags": [{"key": "ssh-port", "value": "x"}, "odd"]}, SshEndpoint("198.51.100.2", 22, "ubuntu")),
        ({"tags": None}, SshEndpoint("198.51.100.2", 22, "ubuntu")),
    ],
)
def test_where_ssh_answers(changes: dict[str, Any], ssh: SshEndpoint | None) -> None:
    assert instances.observed(row(**changes)).ssh == ssh


def test_missing_facts_are_unknown() -> None:
    seen = instances.observed({"id": "a", "status": "booting", "tags": [{"key": "gpu-shopper-created", "value": "x"}]})

    assert (seen.name, seen.gpu, seen.gpu_count, seen.price_usd_h) == (None, None, None, None)
    assert (seen.region, seen.created_at, seen.ssh) == (None, None, None)


@pytest.mark.parametrize("odd", [None, [], {}, {"id": ""}, {"id": 7, "status": "active"}, {"id": "a"}])
def test_a_row_without_id_or_status_is_an_error(odd: Any) -> None:
    with pytest.raises(UnexpectedResponse):
        instances.observed(odd)


# ── the derived bill ─────────────────────────────────────────────────────────────────────────────


def event(action: str, at: datetime, ref: str = "ab", **details: Any) -> dict[str, Any]:
    return {
        "action": action,
        "event_time": at.isoformat(),
        "resource_lrns": [f"lrn:cloud:instance:{ref}"],
        "additional_details": details,
    }


PRICES = {"gpu_1x_a10": Decimal("0.60")}


def test_every_begun_minute_is_paid() -> None:
    events = [
        event("terminated", AT + timedelta(seconds=61)),
        event("launched", AT, instance_type="gpu_1x_a10"),
        event("restarted", AT + timedelta(seconds=30)),
        event("launched", AT + timedelta(seconds=5), instance_type="gpu_1x_a10"),
    ]
    (line,) = billing.charges(billing.spans(events), PRICES, AT - HOUR, AT + HOUR)

    assert (line.ref, line.component, line.amount_usd) == ("ab", "gpu", Decimal("0.02"))
    assert (line.start, line.end) == (AT, AT + timedelta(seconds=61))


def test_one_minute_is_the_least() -> None:
    found = {"ab": billing.InstanceSpan("ab", AT, AT, "gpu_1x_a10")}

    assert billing.charges(found, PRICES, AT - HOUR, AT + HOUR)[0].amount_usd == Decimal("0.01")


def test_what_still_runs_is_billed_until_the_end_of_the_asked_time() -> None:
    events = [event("instance.created", AT, instance_type="gpu_1x_a10")]
    (line,) = billing.charges(billing.spans(events), PRICES, AT + HOUR, AT + 2 * HOUR)

    assert (line.end, line.amount_usd) == (AT + 2 * HOUR, Decimal("1.2"))


@pytest.mark.parametrize(
    "events",
    [
        [event("terminated", AT)],
        [event("launched", AT)],
        [event("launched", AT, instance_type="gpu_9x_new")],
        [event("launch_failed", AT, instance_type="gpu_1x_a10")],
        [event("renamed", AT, instance_type="gpu_1x_a10")],
        [event("launched", AT + 2 * HOUR, instance_type="gpu_1x_a10")],
        [event("launched", AT - 3 * HOUR, instance_type="gpu_1x_a10"), event("deleted", AT - 2 * HOUR)],
        [{"action": "created", "event_time": "x", "resource_lrns": ["lrn:cloud:ssh_key:ab"]}],
        [{"action": None, "resource_lrns": None, "additional_details": None}],
    ],
)
def test_what_the_log_does_not_prove_has_no_line(events: list[Any]) -> None:
    assert billing.charges(billing.spans(events), PRICES, AT - HOUR, AT + HOUR) == ()


def test_the_instance_may_stand_in_the_details_alone() -> None:
    events = [
        {
            "action": "launched",
            "event_time": "2026-11-21T10:00:00.123456Z",
            "resource_lrns": [],
            "additional_details": {"instance_lrn": "lrn:cloud:instance:cd", "instance_type": "gpu_1x_a10"},
        }
    ]
    assert billing.spans(events)["cd"].kind == "gpu_1x_a10"


@pytest.mark.parametrize("odd", [None, event("launched", AT) | {"event_time": "soon"}, "text"])
def test_an_unreadable_event_is_an_error(odd: Any) -> None:
    with pytest.raises(UnexpectedResponse):
        billing.spans([odd])
    with pytest.raises(UnexpectedResponse):
        billing.spans([event("launched", AT) | {"event_time": "2026-11-21T10:00:00"}])
