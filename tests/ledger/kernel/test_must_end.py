"""Instances that must end, as a copy outside the database has them."""

from __future__ import annotations

import pytest

from ledger.kernel.must_end import MustEnd
from ledger.kernel.states import InstanceState


def must_end(state: InstanceState, request_id: str = "") -> MustEnd:
    """An instance of a session of ADA."""
    return MustEnd(
        instance_id="ins_1",
        session_id="ses_1",
        owner="slack:T1/UADA",
        cloud="vast",
        account="acct-1",
        ref="7",
        label="gs-1",
        name="gs-1",
        state=state,
        status="",
        request_id=request_id,
    )


@pytest.mark.parametrize(("request_id", "rental_id"), [("req_1", "req_1"), ("", "ses_1")])
def test_people_read_the_id_of_the_request_where_the_copy_has_it(request_id: str, rental_id: str) -> None:
    assert must_end(InstanceState.LIVE, request_id).rental_id == rental_id


@pytest.mark.parametrize("state", InstanceState)
def test_an_end_is_ordered_when_the_instance_is_terminating(state: InstanceState) -> None:
    assert must_end(state).ending is (state is InstanceState.TERMINATING)
