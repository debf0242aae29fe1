"""The golden bodies: what the wire writes, what it reads, and what an independent decoder makes of an answer.

A change of a golden file is a change of what agents and services that run already send and expect.
"""

from __future__ import annotations

import base64
import json
from dataclasses import fields
from datetime import timedelta

import pytest
from pydantic import TypeAdapter

from bot.api.schemas.agent import CheckinIn
from bot.wire.checkin import Checkpoint
from bot.wire.codec import from_json, to_json
from providers.sandbox.agents import KEY, SandboxAgent
from tests.agent.signing import PUBLIC
from tests.wire.bodies import ANSWER, AT, BODIES, CHECKIN, GOLDEN, MACHINE


@pytest.mark.parametrize("name", BODIES)
def test_the_wire_writes_and_reads_the_golden_body(name: str) -> None:
    body, golden = BODIES[name], json.loads((GOLDEN / f"{name}.json").read_text())
    assert to_json(body) == golden
    assert from_json(type(body), golden) == body
    assert from_json(type(body), {**golden, "of_a_later_release": 1}) == body
    assert from_json(type(body), to_json(body, is_whole=True)) == body


@pytest.mark.parametrize("body", [CHECKIN, MACHINE, ANSWER], ids=lambda body: type(body).__name__)
def test_the_golden_bodies_leave_no_field_out(body: object) -> None:
    assert [one.name for one in fields(body) if getattr(body, one.name) == one.default] == []  # type: ignore[arg-type] # All are dataclasses.


def test_the_api_takes_the_golden_check_in() -> None:
    taken = TypeAdapter(CheckinIn).validate_json((GOLDEN / "checkin.json").read_text())
    assert to_json(taken) == to_json(CHECKIN)


def test_a_sandbox_reads_the_golden_answer_by_itself() -> None:
    agent = SandboxAgent({KEY: base64.b64encode(PUBLIC).decode()}, AT)
    agent.obey(json.loads((GOLDEN / "answer.json").read_text()), AT)
    assert (agent.asks, agent.token, agent.commands) == (ANSWER.asks, ANSWER.token, dict(ANSWER.commands or ()))
    assert (agent.api_problem, agent.believed) == (ANSWER.api_problem, ANSWER.seq)
    assert agent.deadline is not None


def test_the_api_takes_what_a_sandbox_writes_by_itself() -> None:
    agent = SandboxAgent({}, AT, target_step=9, idle_since=AT, saved_step=7, saved_at=AT, job_exit_code=3)
    agent.machine, agent.more = to_json(MACHINE), {"wants_startup": True}
    agent.work(AT)
    agent.work(AT + timedelta(seconds=60))
    read = from_json(type(CHECKIN), agent.report())
    assert (read.v, read.step, read.machine, read.wants_startup) == (2, 120, MACHINE, True)
    assert (read.checkpoint, read.job_exit_code) == (Checkpoint(7, AT), 3)
