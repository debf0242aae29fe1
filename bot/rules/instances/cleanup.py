"""Judge what a create left at a cloud besides its instance: remove it, keep it, or leave it as not ours."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from bot.rules.values.labels import LabelKind

#: A create that was given up without a proof may still be on its way, with the key that it names.
GRACE = timedelta(minutes=10)


class Fate(StrEnum):
    #: Its instance ended.
    REMOVE = "remove"
    #: Its instance has not ended, or ended only just now.
    KEEP = "keep"
    #: A valid label of an instance that the ledger does not know: the ledger may have lost something.
    UNKNOWN = "unknown"
    #: A label that only looks like ours.
    FORGED = "forged"
    #: It carries no label, or one of another deployment or of another cloud's instance.
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Owner:
    """Name the instance whose label a leftover carries.

    `proved`: its end was proved; `over_at`: since when its row is closed.
    """

    cloud: str
    is_open: bool
    proved: bool
    over_at: datetime


def fate(kind: LabelKind, cloud: str, owner: Owner | None, now: datetime) -> Fate:
    """Decide the fate of a leftover at `cloud`; `owner` is None without a row. Only REMOVE deletes anything."""
    if kind is LabelKind.FORGED:
        return Fate.FORGED
    if kind is not LabelKind.OURS:
        return Fate.FOREIGN
    if owner is None:
        return Fate.UNKNOWN
    if owner.cloud != cloud:
        return Fate.FOREIGN
    if owner.is_open or not (owner.proved or now - owner.over_at >= GRACE):
        return Fate.KEEP
    return Fate.REMOVE
