"""Fixed vocabularies: every word has a label, and every reason of an end its group and grace."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.kernel.end_reason import APPROVED, EARLY, WENT_WELL, WENT_WRONG, EndGroup, EndReason, Grace, reasons
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.states import NotificationKind
from ledger.models import Session


def test_every_reason_of_an_end_is_in_one_group_and_fits_its_column() -> None:
    groups = [reasons(group) for group in EndGroup]
    assert sorted(reason for group in groups for reason in group) == sorted(EndReason)
    assert all(groups)
    assert {
        EndReason.RESERVATION_OVER,
        EndReason.BUDGET_CAP,
        EndReason.HOURS_CAP,
        EndReason.OVERSPEND_UNCONFIRMED,
    } == APPROVED
    assert {EndReason.COMPLETED, EndReason.RUN_COMPLETED} == WENT_WELL
    assert {EndReason.WORK_FAILED, EndReason.RUN_FAILED, EndReason.RUN_TIMEOUT} == WENT_WRONG
    column: Any = Session.end_code.type
    assert max(map(len, EndReason)) <= column.length


def test_what_is_announced_with_a_grace_ends_early() -> None:
    assert {reason: reason.grace for reason in EARLY} == {
        EndReason.COMPLETED: Grace.DONE,
        EndReason.WORK_FAILED: Grace.DONE,
        EndReason.NO_HEARTBEAT: Grace.SILENT,
        EndReason.IDLE: Grace.IDLE,
    }
    assert not EARLY & APPROVED


@pytest.mark.parametrize("vocabulary", [EntryKind, EndReason, NotificationKind])
def test_a_word_without_its_label_is_refused(vocabulary: Any) -> None:
    with pytest.raises(TypeError, match=r"word (has no|needs a) label"):
        vocabulary._new_member_(vocabulary, "word")
