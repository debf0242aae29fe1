"""Kaggle's adapter against its sandbox: quota, push, watch, find, and the verbs that a batch cloud does not have."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bot.rules.instances import file_mounts
from bot.rules.values.mounts import Mount, MountMode
from ledger.kernel.network_guard import NetworkInTransaction, transaction_open
from ledger.kernel.proof import ProofKind, ProofOfEnd
from providers.clouds.kaggle.instances import push_body, script
from providers.contract import InstanceStatus, NotSeen, Provider, Stock
from providers.errors import (
    InvalidSpec,
    OutcomeUnknown,
    ProviderError,
    QuotaExceeded,
)
from providers.gpus.constraint import GpuConstraint
from providers.sandbox.kaggle.faults import FAULTS
from tests.providers.clouds.kaggle.served import NAME, SECRET, TWO, Served, create, get, grant, running, spec
from tests.support.clock import START

CLASSES = {cls.__name__: cls for cls in ProviderError.__subclasses__()}


@pytest_asyncio.fixture
async def kaggle() -> AsyncIterator[Served]:
    async with running() as served:
        yield served


# ── offers ───────────────────────────────────────────────────────────────────────────────────────


async def test_the_offer_is_the_quota_that_is_left(kaggle: Served) -> None:
    (offer,) = await kaggle.provider.offers(TWO, disk_gb=50, spot=False)

    assert isinstance(kaggle.provider, Provider)
    assert (offer.id, offer.gpu, offer.gpu_count, offer.memory_gb) == ("kaggle:t4x2", "T4", 2, Decimal(16))
    assert (offer.price_usd_h, offer.stock, offer.available_for_s) == (Decimal(0), Stock.HIGH, 9 * 3600)
    assert offer.fetched_at == kaggle.clock.now()


@pytest.mark.parametrize(
    "constraint",
    [
        GpuConstraint(names=("RTX4090",), count_max=8),
        GpuConstraint(names=("T4",)),
        GpuConstraint(count_min=3, count_max=8),
        GpuConstraint(count_max=2, memory_gb_min=Decimal(24)),
        GpuConstraint(count_max=2, memory_gb_max=Decimal(8)),
    ],
)
async def test_what_two_t4_do_not_satisfy_gives_nothing_without_a_call(
    kaggle: Served, constraint: GpuConstraint
) -> None:
    assert (await kaggle.provider.offers(constraint, disk_gb=50, spot=None)).items == ()
    assert (await kaggle.provider.offers(TWO, disk_gb=50, spot=True)).items == ()
    assert list(kaggle.engine.calls) == []


async def test_few_hours_left_are_shown_and_none_left_is_no_offer(kaggle: Served) -> None:
    kaggle.arm("quota_reserved", seconds=28 * 3600)
    (offer,) = await kaggle.provider.offers(TWO, disk_gb=50, spot=False)
    assert (offer.stock, offer.available_for_s) == (Stock.LOW, 2 * 3600)

    assert kaggle.cloud.withdraw(offer.key) == 1
    assert (await kaggle.provider.offers(TWO, disk_gb=50, spot=False)).items == ()


async def test_an_unknown_quota_is_not_taken_for_an_empty_one(kaggle: Served) -> None:
    kaggle.arm("quota_missing")
    (offer,) = await kaggle.provider.offers(TWO, disk_gb=50, spot=False)

    assert (offer.stock, offer.available_for_s) == (None, 9 * 3600)


async def test_two_active_runs_leave_no_offer(kaggle: Served) -> None:
    await kaggle.push("other-one")
    await kaggle.push("other-two")
    assert await kaggle.provider.active() == 2
    assert (await kaggle.provider.offers(TWO, disk_gb=50, spot=False)).items == ()

    kaggle.step(3600)
    assert await kaggle.provider.active() == 0
    assert len(await kaggle.provider.offers(TWO, disk_gb=50, spot=False)) == 1


# ── the push ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_push_runs_to_its_end(kaggle: Served) -> None:
    made = await create(kaggle)
    assert (made.ref, made.name, made.status) == (f"simuser/{NAME}/1", NAME, InstanceStatus.PENDING)
    assert made.price_usd_h == 0

    kaggle.step(10)
    assert (await get(kaggle, made.ref)).status is InstanceStatus.RUNNING
    kaggle.step(1200)
    over = await get(kaggle, made.ref)
    assert (over.status, over.status_text) == (InstanceStatus.TERMINATED, "COMPLETE")
    proof = ProofOfEnd.from_final_status(kaggle.provider.account, kaggle.clock.now())
    assert proof.kind is ProofKind.FINAL_STATUS
    quota = await kaggle.provider.quota()
    assert quota is not None
    assert quota.used_s == Decimal(600)


@pytest.mark.parametrize(("hours", "sent_s"), [("4", 14400), ("0.5", 1800), ("12", 32400)])
async def test_the_timeout_is_always_set_and_never_above_the_hours_granted(
    kaggle: Served, hours: str, sent_s: int
) -> None:
    kaggle.arm("runs_over")
    made = await create(kaggle, hours=hours)

    source = kaggle.cloud.account.runs[0].source
    assert source["sessionTimeoutSeconds"] == sent_s <= float(hours) * 3600
    assert (source["isPrivate"], source["machineShape"], source["enableTpu"]) == (True, "NvidiaTeslaT4", False)
    kaggle.step(sent_s + 10)
    assert (await get(kaggle, made.ref)).status is InstanceStatus.TERMINATED


async def test_hours_beyond_the_quota_are_refused_before_the_push(kaggle: Served) -> None:
    kaggle.arm("quota_reserved", seconds=28 * 3600)
    with pytest.raises(QuotaExceeded, match=r"2 GPU hours left this week, and the run may take 4\.0"):
        await create(kaggle)
    assert kaggle.engine.creates == []


async def test_active_runs_are_counted_before_the_push(kaggle: Served) -> None:
    await kaggle.push("other-one")
    await kaggle.push("other-two")
    with pytest.raises(QuotaExceeded, match="2 GPU sessions"):
        await create(kaggle)
    assert len(kaggle.engine.creates) == 2


async def test_a_run_without_a_gpu_takes_no_gpu_session(kaggle: Served) -> None:
    for slug in ("cpu-one", "cpu-two"):
        await kaggle.push(slug, enableGpu=False, machineShape="")
    assert (await create(kaggle)).ref


@pytest.mark.parametrize(("fault", "expected"), list(FAULTS.creates.items()))
async def test_every_fault_of_a_push_has_its_class(kaggle: Served, fault: str, expected: str) -> None:
    kaggle.arm(fault, times=None)
    if expected == "ok":
        assert (await create(kaggle)).status is InstanceStatus.PENDING
    else:
        with pytest.raises(CLASSES[expected]) as caught:
            await create(kaggle)
        assert SECRET not in caught.value.message
    made = [call for call in kaggle.engine.creates if call.outcome != "refused"]
    definite_no = expected != "ok" and CLASSES[expected].definite_no
    assert len(kaggle.engine.creates) <= 1
    assert not (definite_no and made)


async def test_a_lost_push_is_found_by_its_name_and_never_sent_again(kaggle: Served) -> None:
    kaggle.arm("lost_reply")
    with pytest.raises(OutcomeUnknown):
        await create(kaggle)

    found = await kaggle.provider.find(NAME[-20:])
    assert not isinstance(found, NotSeen)
    assert [item.ref for item in found] == [f"simuser/{NAME}/1"]
    with pytest.raises(OutcomeUnknown, match="already"):
        await create(kaggle)
    assert len(kaggle.cloud.account.runs) == 1


async def test_a_lost_push_keeps_its_doubt_when_both_sessions_are_taken(kaggle: Served) -> None:
    await kaggle.push("other-one")
    kaggle.arm("lost_reply")
    with pytest.raises(OutcomeUnknown):
        await create(kaggle)
    with pytest.raises(OutcomeUnknown, match="already"):
        await create(kaggle)


async def test_a_push_that_lands_late_is_found_later(kaggle: Served) -> None:
    kaggle.arm("late_push", after_s=100)
    with pytest.raises(OutcomeUnknown):
        await create(kaggle)
    assert isinstance(await kaggle.provider.find(NAME), NotSeen)

    kaggle.step(101)
    assert not isinstance(await kaggle.provider.find(NAME), NotSeen)


async def test_another_slug_than_asked_for_is_kept(kaggle: Served) -> None:
    kaggle.arm("other_slug")
    assert (await create(kaggle)).ref == f"simuser/k-{NAME}/1"
    assert not isinstance(await kaggle.provider.find(NAME), NotSeen)


async def test_a_name_keeps_its_case_although_a_slug_has_none(kaggle: Served) -> None:
    made = await create(kaggle, "Ada-run-7f3c")
    assert (made.ref, made.name) == ("simuser/ada-run-7f3c/1", "Ada-run-7f3c")
    found = await kaggle.provider.find("Ada-run-7f3c")
    assert not isinstance(found, NotSeen)
    assert [(item.ref, item.name) for item in found] == [(made.ref, made.name)]
    with pytest.raises(OutcomeUnknown, match="already"):
        await create(kaggle, "Ada-run-7f3c")


async def test_nothing_is_pushed_inside_a_transaction(kaggle: Served) -> None:
    with transaction_open(), pytest.raises(NetworkInTransaction):
        await create(kaggle)
    assert kaggle.engine.creates == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "under_score"}, "letters, digits"),
        ({"name": "abc"}, "5 to 50"),
        ({"name": "a" * 51}, "5 to 50"),
        ({"name": "two--hyphens"}, "single hyphens"),
        ({"onstart": "  "}, "commands"),
        ({"bid_usd_h": Decimal(1)}, "interruptible"),
    ],
)
async def test_a_bad_push_is_explained_and_not_sent(kaggle: Served, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSpec, match=said):
        await kaggle.provider.create(spec(**changes), grant())
    assert kaggle.engine.creates == []


async def test_minutes_are_too_few(kaggle: Served) -> None:
    with pytest.raises(InvalidSpec, match="too short"):
        await create(kaggle, hours="0.01")


# ── the program ──────────────────────────────────────────────────────────────────────────────────


def run_script(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=30, check=False)


def test_the_program_runs_the_commands_with_their_environment() -> None:
    text = script(spec(onstart='echo "$TOKEN"; exit 3'), START.replace(year=2100))
    done = run_script(text)

    assert (done.stdout, done.returncode) == (f"{SECRET}\n", 3)


def test_the_program_fetches_its_files_first_or_says_what_the_image_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, data = tmp_path / "bin", tmp_path / "data"
    tools.mkdir()
    for name in ("bash", "mkdir", "cat"):
        (tools / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(tools))
    run = file_mounts.before((Mount(MountMode.COPY, str(data), "s3://bucket/data"),), f"cat {data}/a.txt")
    text = script(spec(onstart=run), START.replace(year=2100))
    lacking = run_script(text)
    assert (lacking.stdout, lacking.returncode) == ("", 69)
    assert lacking.stderr == "file_mounts: this image has no aws, which s3:// needs\n"

    (tools / "aws").write_text(f'#!/bin/sh\necho "$5 $6" > {data}/a.txt\n')
    (tools / "aws").chmod(0o755)
    done = run_script(text)
    assert (done.stdout, done.returncode) == (f"s3://bucket/data {data}\n", 0)


def test_a_program_that_waited_too_long_in_the_queue_does_nothing() -> None:
    done = run_script(script(spec(onstart="echo started"), START - timedelta(days=365)))

    assert (done.stdout, done.returncode) == ("", 1)
    assert "queue" in done.stderr


def test_the_deadline_leaves_the_queue_its_time_and_ends_before_the_proof_by_timeout() -> None:
    body = push_body(spec(), "ada", 3600, START)
    found = re.search(r"^DEADLINE = (\d+)$", body["text"], re.MULTILINE)
    assert found is not None
    over_s = int(found[1]) - START.timestamp()
    assert 3600 < over_s < 3600 + 30 * 60
    given = re.search(r'b64decode\("(.+?)"\)', body["text"])
    assert given is not None
    assert json.loads(base64.b64decode(given[1])) == {"run": "python train.py", "env": {"TOKEN": SECRET}}
