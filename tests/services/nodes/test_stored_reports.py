"""What is stored of a check-in: read as it was, also by the release before, and also what that release wrote."""

from __future__ import annotations

import json

import pytest

from bot.rules.nodes.checkins import NodeStatus, after_checkin
from bot.rules.policy.policy import Policy
from bot.services.nodes import checkins
from bot.services.nodes.checkins import columns, node_status
from bot.wire.checkin import Checkin
from ledger.models import Node
from tests.wire.bodies import AT, CHECKIN

#: The report of a row as `d8cb0526` wrote it.
OF_BEFORE = """{"utilisation": ["93.5", "0"], "job_exit_code": null, "job_attempt": 2, "step": 12000,
 "target_step": 50000, "step_from": 12000, "step_from_at": "2026-03-02T09:40:00+00:00", "lowest_step": null,
 "tokens_per_s": "4200.5",
 "checkpoint_step": 11500, "checkpoint_at": "2026-03-02T09:40:00+00:00",
 "queue": {"waiting": 4, "running": 1, "done": 7, "failed": 2}, "results_taken": 1,
 "machine": {"gpus": [{"model": "NVIDIA GeForce RTX 4090", "memory_mb": 24564, "temperature_c": 61}],
  "driver": "570.86", "cuda": "12.8", "disk_free_gb": 80, "host_key": "ssh-ed25519 AAAA", "startup_step": "directories",
  "startup_s": 3, "exit_code": 1, "log_tail": "mkdir: no space", "interruption": "it shuts down"},
 "rates": [], "steps": [{"name": "run", "state": "failed", "seconds": 41, "exit_code": 128}], "quiet_since": {},
 "activity": {"cpu_percent": "3.4", "network_kb_s": 12, "logins": 1, "last_login_at": "2026-03-02T09:40:00+00:00"}}"""


def stored(status: NodeStatus) -> Node:
    """The row of a status, with its report as a database gives it back."""
    written = columns(status)
    return Node(**{**written, "report": json.loads(json.dumps(written["report"]))})


@pytest.mark.parametrize("checkin", [CHECKIN, Checkin(seq=1)], ids=["whole", "bare"])
def test_a_status_is_read_as_it_was_stored(checkin: Checkin) -> None:
    status = after_checkin(NodeStatus(), checkin, Policy(), AT)
    assert node_status(stored(status)) == status


def test_what_the_release_before_stored_is_read() -> None:
    status = after_checkin(NodeStatus(), CHECKIN, Policy(), AT)
    row = stored(status)
    row.report = json.loads(OF_BEFORE)
    assert node_status(row) == status


def test_the_release_before_finds_the_fields_that_it_knows_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    before, status = json.loads(OF_BEFORE), after_checkin(NodeStatus(), CHECKIN, Policy(), AT)
    report = stored(status).report
    assert before.keys() | {"more"} == report.keys()
    assert (before["machine"], before["activity"].keys()) == (report["machine"], report["activity"].keys())
    assert report["more"] == {}
    monkeypatch.setattr(checkins, "_MACHINE", checkins._MACHINE - {"cuda"})  # As a field that came later.
    row = stored(status)
    assert ("cuda" in row.report["machine"], row.report["more"]) == (False, {"cuda": "12.8"})
    assert node_status(row) == status
