"""Clouds that are free, that run programs only, or whose machines have no agent: what each needs to be bought."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from bot.rules.market.ranking import FREE, rank
from bot.rules.policy.policy import Policy
from tests.providers.read_offers import WHOLE
from tests.rules.builders import CLOUDS, capabilities, job, offer

POLICY = Policy()


def test_a_free_option_is_marked_and_counted_in_hours() -> None:
    free = offer("f", cloud="kaggle", price_usd_h=Decimal(0), available_for_s=9 * 3600, warning="Only 9.0 are left.")
    first, second = rank([free, offer("p")], job("2"), POLICY, CLOUDS, proof=WHOLE).options
    assert (first.offer.key, first.marks[0]) == ("f", FREE)
    assert first.why == "Free: it uses up to 2 h of a quota (9 h left). Only 9.0 are left."
    assert FREE not in second.marks
    unknown = rank([replace(free, available_for_s=None, warning="")], job(), POLICY, CLOUDS, proof=WHOLE).options[0]
    assert unknown.why == "Free: it uses up to 6 h of a quota."


@pytest.mark.parametrize(("run", "to_run", "answered"), [("", True, 0), ("python x.py", True, 1), ("", False, 1)])
def test_a_cloud_that_runs_programs_only_needs_one_to_be_bought(run: str, to_run: bool, answered: int) -> None:
    clouds = {"kaggle": capabilities(free=True, batch=True)}
    found = rank([offer(cloud="kaggle")], job(run=run or None), POLICY, clouds, to_run=to_run, proof=WHOLE)
    assert found.answered == answered
    assert [one.reason_code for one in found.excluded] == ([] if answered else ["program"])


@pytest.mark.parametrize(
    ("able", "image", "answered"),
    [({"batch": True}, None, 0), ({"onstart_is_command": True}, "a/b:1", 0), ({"onstart_is_command": True}, None, 1)],
)
@pytest.mark.parametrize(
    ("needs", "code"),
    [
        ({"secrets": ("HF_TOKEN",)}, "secrets"),
        ({"attempts": 2}, "attempts"),
        ({"queue": ("python a.py", "python b.py"), "run": None}, "queue"),
    ],
)
def test_secrets_queues_and_attempts_need_a_machine_with_an_agent(
    able: dict[str, Any], image: str | None, answered: int, needs: dict[str, Any], code: str
) -> None:
    wanted = job(**{"run": "python x.py", "image": image, **needs})
    found = rank([offer(cloud="runpod")], wanted, POLICY, {"runpod": capabilities(**able)}, proof=WHOLE)
    assert found.answered == answered
    assert [one.reason_code for one in found.excluded] == ([] if answered else [code])


@pytest.mark.parametrize(
    ("mounts", "able", "code"),
    [
        (("COPY /data s3://bucket/set",), {}, None),
        (("COPY /data hf://org/model",), {}, None),
        (("MOUNT /data s3://bucket/set",), {}, "fuse"),
        (("COPY /a s3://bucket/a", "MOUNT_CACHED /b s3://bucket/b"), {}, "fuse"),
        (("MOUNT /data s3://bucket/set",), {"fuse": True}, None),
        (("COPY /data s3://bucket/set",), {"batch": True}, None),
        (("COPY /data hf://org/model",), {"batch": True}, "mounts"),
        (("COPY /data s3://bucket/set",), {"onstart_is_command": True}, "mounts"),
    ],
)
def test_files_need_an_agent_and_a_mount_needs_fuse(
    mounts: tuple[str, ...], able: dict[str, Any], code: str | None
) -> None:
    wanted = job(run="python x.py", image="a/b:1", mounts=mounts)
    found = rank([offer(cloud="runpod")], wanted, POLICY, {"runpod": capabilities(**able)}, proof=WHOLE)
    assert [one.reason_code for one in found.excluded] == ([] if code is None else [code])
    assert all("COPY works" in one.sentence for one in found.excluded if code == "fuse")
