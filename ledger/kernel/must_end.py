"""Describe an instance that must end, with every fact that decides when, so that a copy outlives the database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ledger.kernel.checkpoint_step import CheckpointStep
from ledger.kernel.states import InstanceState


@dataclass(frozen=True, slots=True)
class MustEnd:
    """One instance that a cloud may bill, and what was approved for it. Times are aware UTC.

    `owner` is who answers for it: for a program's session the person whose program it is. `ref` is "" while the reply
    of its create is not stored; then `name` finds it in a listing. `deadline` is the approved end with its extensions.
    `session_end` is the code of an end that was ordered for the whole session, "" while none is. `hold_s` is what the
    approval reserved for a checkpoint hold, in seconds.
    """

    instance_id: str
    session_id: str
    owner: str
    cloud: str
    account: str
    ref: str
    label: str
    name: str
    state: InstanceState
    status: str
    deadline: datetime | None = None
    warned_at: datetime | None = None
    ordered_at: datetime | None = None
    accepted_at: datetime | None = None
    session_end: str = ""
    step: CheckpointStep | None = None
    step_until: datetime | None = None
    hold_s: int | None = None
    #: Where its checkpoints are; None where its job names no place.
    checkpoint: str | None = None
    keep_disk: bool = False
    #: Somebody could reach it, so there may be work to save.
    used: bool = False
    #: When recovery mode began; None while it is off.
    recovery_since: datetime | None = None
    #: The request whose session it is, whose short id people read; "" in a copy that an older release wrote.
    request_id: str = ""

    @property
    def rental_id(self) -> str:
        """Return the id that names the rental to people."""
        return self.request_id or self.session_id

    @property
    def ending(self) -> bool:
        """Whether its end is ordered already."""
        return self.state is InstanceState.TERMINATING
