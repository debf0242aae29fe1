"""Asking: one request per inbound message, and every refusal in a sentence that says what would be right."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.stored import job_of
from bot.services.access import job_secrets
from bot.services.access.job_secrets import StoreSecret
from bot.services.requests import submit
from bot.services.runtime.commands import Provision
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.ids import short_id
from ledger.kernel.states import RequestState
from providers.gpus.constraint import GpuConstraint
from tests.support.world import ALICE, BOB, CHANNEL, World

GPU = GpuConstraint(("RTX4090",), 1, 1)


def provision(key: str = "k1", **changes: Any) -> Provision:
    asked: dict[str, Any] = {"gpu": GPU, "hours": Decimal(2)} | changes
    return Provision(key, ALICE, CHANNEL, JobRequest(**asked))


@pytest.mark.parametrize(
    ("clouds", "mode", "refused"),
    [
        (("vast",), "MOUNT", True),
        (("vast", "runpod"), "MOUNT_CACHED", True),
        (("vast", "lambda"), "MOUNT", False),
        ((), "MOUNT", False),
        (("vast",), "COPY", False),
    ],
)
async def test_a_mount_where_no_cloud_has_fuse_is_refused_before_it_is_posted(
    w: World, clouds: tuple[str, ...], mode: str, *, refused: bool
) -> None:
    w.ctx = replace(w.ctx, node_url="https://bot.example")
    reply = await submit.submit(w.ctx, provision(candidates=clouds, mounts=(f"{mode} /data s3://bucket/set",)))
    assert (reply.ok, reply.code) == (not refused, "bad_mount" if refused else "submitted")
    assert len((await w.books()).requests) == (0 if refused else 1)
    if refused:
        assert reply.sentence == (
            f"{mode} needs FUSE, which no machine at {', '.join(clouds)} has. For /data, write mode: "
            "COPY. To keep what the job writes, set checkpoint=."
        )


async def test_files_without_any_agent_are_for_programs_with_the_tools_of_their_image(w: World) -> None:
    mounts: dict[str, Any] = {"run": "python a.py", "mounts": ("COPY /data s3://bucket/set",)}
    refused = await submit.submit(w.ctx, provision(candidates=("vast",), **mounts))
    assert (refused.code, "until GPU_SHOPPER_NODE_URL is set" in refused.sentence) == ("bad_mount", True)
    hub = await submit.submit(w.ctx, provision(candidates=("kaggle",), **mounts | {"mounts": ("COPY /a hf://org/a",)}))
    assert hub.code == "bad_mount"
    assert (await submit.submit(w.ctx, provision(candidates=("kaggle",), **mounts))).ok


@pytest.mark.both_databases
async def test_the_same_message_asks_once(w: World) -> None:
    first = await submit.submit(w.ctx, provision())
    again = await submit.submit(w.ctx, provision())
    assert (first.ok, first.code, again) == (True, "submitted", first)
    assert f"getting offers from {', '.join(w.clouds)}" in first.sentence
    assert len((await w.books()).requests) == 1


@pytest.mark.both_databases
async def test_the_same_message_at_two_replicas_at_once_asks_once(w: World) -> None:
    other = w.replica()
    both = [submit.submit(one.ctx, provision()) for one in (w, other) for _ in range(4)]
    replies = await asyncio.gather(*both)
    await other.ctx.db.close()
    assert {reply.code for reply in replies} == {"submitted"}
    assert {reply.data["request_id"] for reply in replies} == {row.id for row in (await w.books()).requests}


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"candidates": ("nowhere",)}, "unknown_cloud", "Use vast"),
    ({"gpu": GpuConstraint(("RTX4090",), 0, 1)}, "gpu_count", "At least one GPU"),
    ({"gpu": GpuConstraint(("RTX4090",), 4, 2)}, "gpu_count", "smaller number first"),
    ({"gpu": GpuConstraint(("RTX4090",), 17, 17)}, "gpu_count", "limit of 16"),
    ({"hours": Decimal(0)}, "not_positive", "6h or 90m"),
    ({"hours": Decimal(-3)}, "not_positive", "6h or 90m"),
    ({"hours": Decimal("NaN")}, "not_a_number", "6h or 90m"),
    ({"hours": Decimal(10000)}, "too_long", "720 hours"),
    ({"reason": "x" * 3000}, "reason_too_long", "3,000 characters; 500 is the most"),
    ({"budget_cap_usd": Decimal(-1)}, "bad_amount", "cannot be negative"),
    ({"budget_cap_usd": Decimal("NaN")}, "bad_amount", "above zero"),
    ({"max_price_usd_h": Decimal(0)}, "bad_amount", "above zero"),
    ({"max_price_usd_h": Decimal("Infinity")}, "bad_amount", "is not believed; write $50"),
    ({"min_reliability": Decimal("1.5")}, "bad_reliability", "0.98"),
]


async def test_what_can_be_refused_at_once_is_refused_with_an_example(w: World) -> None:
    for changes, code, says in REFUSED:
        reply = await submit.submit(w.ctx, provision(**changes))
        assert (reply.ok, reply.code) == (False, code), changes
        assert says in reply.sentence
    assert (await w.books()).requests == ()


async def test_without_any_cloud_the_answer_names_the_doctor(w: World) -> None:
    w.use({})
    reply = await submit.submit(w.ctx, provision())
    assert (reply.ok, reply.code) == (False, "no_clouds")
    assert "gpu-shopper doctor" in reply.sentence


async def test_a_person_may_have_so_many_undecided_requests(w: World) -> None:
    w.tune(max_open_requests_per_user=2)
    assert (await w.ask()).ok
    assert (await w.ask()).ok
    refused = await w.ask()
    assert (refused.ok, refused.code) == (False, "too_many_open")
    assert "2 open requests" in refused.sentence
    assert (await w.ask(BOB)).ok
    await w.settle()
    books = await w.books()
    assert {request.state for request in books.requests} == {RequestState.PENDING}


async def test_a_request_that_waits_already_is_named_when_it_is_sent_again(w: World) -> None:
    first = await w.ask()
    assert "same request" not in first.sentence
    assert "same request" not in (await w.ask(disk_gb=80)).sentence
    assert "same request" not in (await w.ask(BOB)).sentence
    again = await w.ask()
    assert (again.ok, again.data["request_id"] != first.data["request_id"]) == (True, True)
    short = short_id(str(first.data["request_id"]))
    assert f"You already have the same request waiting: {short}." in again.sentence


async def test_the_disk_is_at_least_what_the_workload_needs(w: World) -> None:
    await w.ask(workload="moe", disk_gb=10)
    await w.ask(disk_gb=200)
    assert [job_of(row.job).disk_gb for row in (await w.books()).requests] == [64, 200]


@pytest.mark.both_databases
async def test_the_most_open_requests_hold_however_many_ask_at_once(w: World) -> None:
    replies = await asyncio.gather(*(w.ask() for _ in range(12)))
    assert sum(reply.ok for reply in replies) == w.ctx.policy.max_open_requests_per_user
    assert {reply.code for reply in replies} == {"submitted", "too_many_open"}


async def test_a_secret_that_the_requester_has_not_stored_is_refused_before_anything_is_posted(w: World) -> None:
    names = ("HF_TOKEN", "WANDB_API_KEY")
    refused = await submit.submit(w.ctx, provision(secrets=names))
    assert (refused.code, "GPU_SHOPPER_NODE_URL" in refused.sentence) == ("secrets_not_sent", True)
    w.ctx = replace(w.ctx, node_url="https://bot.example")
    refused = await submit.submit(w.ctx, provision(secrets=names))
    assert (refused.code, refused.sentence) == (
        "no_secret", "You have no secret HF_TOKEN. Store it first: `gpu-shopper secret set HF_TOKEN`."
    )  # fmt: skip
    for name, actor in (("HF_TOKEN", ALICE), ("WANDB_API_KEY", BOB)):
        assert (await job_secrets.store(w.ctx, StoreSecret(actor, name, "value"))).ok
    refused = await submit.submit(w.ctx, provision(secrets=names))
    assert (refused.code, "no secret WANDB_API_KEY" in refused.sentence) == ("no_secret", True)
    assert (await submit.submit(w.ctx, provision(secrets=("PATH",)))).code == "bad_secret"
    assert not (await w.books()).requests
    assert (await submit.submit(w.ctx, provision(secrets=("HF_TOKEN",)))).code == "submitted"


async def test_a_person_with_two_names_has_one_number_of_open_requests(w: World) -> None:
    alice = Actor(ActorKind.OPERATOR, "alice")
    w.tune(max_open_requests_per_user=2, same_person=((ALICE.id, alice.ref),))
    assert (await submit.submit(w.ctx, provision("k1"))).ok
    assert (await submit.submit(w.ctx, replace(provision("k2"), actor=alice))).ok
    for actor in (ALICE, alice):
        assert (await submit.submit(w.ctx, replace(provision("k3"), actor=actor))).code == "too_many_open"
