"""The short status of a session, with the rest behind *Details*."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from bot.rules.access.sight import Sight
from bot.rules.policy.policy import Policy
from bot.services.sessions.service import Status
from bot.slack.blocks.request import CardFacts
from bot.slack.blocks.session import status
from ledger.kernel.states import InstanceState, RequestState, SessionState
from ledger.models import Node
from ledger.queries.views import SessionView
from tests.slack.blocks.test_blocks import instance, labels, session, view
from tests.support.clock import START


def status_text(
    state: SessionState = SessionState.RUNNING, target_step: int | None = None, **columns: Any
) -> tuple[str, list[str]]:
    """The words and buttons of a session's status for its owner; with a target, its agent is at step 100 after 1 h."""
    checked = {
        "at": START.isoformat(),
        "gpus": [{"gpu": "A100-SXM-80GB", "memory_gb": "80"}] * 4,
        "driver": "570.124.06",
    }
    row = instance(InstanceState.LIVE, ssh_host="ssh4.example.com", ssh_port=2222, ssh_user="root", gpu_check=checked)
    steps = {"step": 100, "step_from": 0, "step_from_at": (START - timedelta(hours=1)).isoformat()}
    report = {**steps, "target_step": target_step}
    node = Node(instance_id=row.id, seq=1, at=START, work="running", report=report) if target_step else None
    asked = view(RequestState.APPROVED)
    one = session(state, **{"deadline": START + timedelta(hours=1), **columns})
    found = SessionView(one, asked.request, row, None, Decimal(0), None, node=node)
    facts = CardFacts(cost_usd=Decimal("0.12"))
    shown = status.status(Status(asked, found), Policy(), facts, START, Sight.OWN, mine=True)
    return re.sub(r"<!date[^>]*>", "today 8:58PM", str(shown.blocks[0]["text"]["text"])), labels(shown)


@pytest.mark.parametrize("state", SessionState)
def test_a_status_is_short_in_every_state(state: SessionState) -> None:
    ended = START if state in (SessionState.TERMINATED, SessionState.FAILED) else None
    read, buttons = status_text(state, ended_at=ended, end_reason="The approved 6 hours are over." if ended else "")
    assert len([word for word in read.split() if any(one.isalnum() for one in word)]) <= 40, read
    assert "$0.12" in read
    assert ("Details" in buttons) == (ended is None)


def test_a_status_says_when_the_approved_end_comes_before_the_job_is_done() -> None:
    for target_step, columns, said in ((150, {}, False), (1_000, {}, True), (1_000, {"ended_at": START}, False)):
        state = SessionState.TERMINATED if columns else SessionState.RUNNING
        read, _ = status_text(state, target_step, **columns)
        assert ("Ends before its job" in read) == said, read
        assert ("`/gpu extend ymabv2 1h`" in read) == said
