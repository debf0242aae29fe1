"""Keep a copy of what must end beside the data, so that an unreachable database keeps no instance alive."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from bot.rules.instances.ledger_age import EpochEntry
from bot.rules.policy.policy import Policy
from bot.services.runtime.whole_file import replace_file
from ledger.kernel.must_end import MustEnd

NAME = "ends.json"
#: The settings of the policy that say what was granted on top of an end.
ON_TOP = ("checkpoint_unverified", "checkpoint_save_s", "checkpoint_hold_s", "checkpoint_disk_s")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sent:
    """An order that a cloud took without the ledger: what, when, and how it was decided.

    `ref` is the cloud's id of an instance whose create's reply was not stored, "" of every other.
    """

    instance_id: str
    session_id: str
    order: str
    at: datetime
    #: Whether it was decided from the copy, because the ledger could not be read.
    from_copy: bool
    ref: str = ""


@dataclass(frozen=True, slots=True)
class EndsCopy:
    """What must end as of `read_at`, how many other replicas wrote then, and what was sent and is not yet recorded."""

    read_at: datetime | None = None
    rows: tuple[MustEnd, ...] = ()
    others: int = 0
    policy: Mapping[str, str | int] = field(default_factory=dict)
    sent: tuple[Sent, ...] = ()
    #: How far the journal went then; None in a copy that an older release wrote.
    epoch: EpochEntry | None = None
    #: Which replica made it; "" in a copy that an older release wrote.
    replica: str = ""
    #: Beside an older ledger: the rows from before it counted as older, less the ends that it has taken since.
    records: tuple[MustEnd, ...] | None = None

    def records_beside(self, *, is_noted: bool) -> tuple[MustEnd, ...]:
        """Return the rows that are records of what an older ledger lacks.

        Once it `is_noted` that the ledger is older, the rows have its own ends, too. Such an end is no record: a job
        may have shortened it since.
        """
        return self.rows if self.records is None or not is_noted else self.records

    def policy_on_top(self) -> Policy:
        """Return the defaults with the last good values of what is granted on top of an end."""
        return replace(Policy(), **{key: value for key, value in self.policy.items() if key in ON_TOP})  # type: ignore[arg-type] # The file has the types that were written.


_ADAPTER: TypeAdapter[EndsCopy] = TypeAdapter(EndsCopy)


def on_top_of(policy: Policy) -> dict[str, str | int]:
    """Return the part of the policy that the copy keeps."""
    return {key: getattr(policy, key) for key in ON_TOP}


def load(path: Path) -> EndsCopy:
    """Read the copy; an empty one where there is none or it cannot be read."""
    try:
        return _ADAPTER.validate_json(path.read_bytes())
    except FileNotFoundError:
        return EndsCopy()
    except (OSError, ValidationError) as error:
        log.warning("the copy of what must end cannot be read: %s", type(error).__name__)
        return EndsCopy()


def save(path: Path, copy: EndsCopy) -> bool:
    """Replace the copy whole, with mode 0600. False when it cannot be written; what is in memory still counts."""
    try:
        replace_file(path, _ADAPTER.dump_json(copy))
    except OSError as error:
        log.warning("the copy of what must end was not written: %s", error.strerror)
        return False
    return True
