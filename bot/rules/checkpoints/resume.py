"""Choose the checkpoint from which lost work continues: the newest one that is complete, and never a damaged one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from bot.rules.checkpoints.verification import SLACK, STEP_IN_PATH, Newest, StoreLocation
from bot.rules.values.phrases import plural, usd
from ledger.kernel import money

#: A checkpoint with less than this share of the size of the one before was cut off. Compression changes a size less.
LEAST_SHARE: Final = Decimal("0.9")


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """One checkpoint in a store: all files of one step, or one file where no step is named."""

    path: str
    step: int | None
    size: int
    files: int
    #: The size of its smallest file, and the time of its newest one.
    smallest: int
    at: datetime
    #: The hashes of its files in order; empty where the store does not give each of them.
    digests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VerifiedCheckpoint:
    """The newest complete checkpoint, with the newer ones that were passed over and why, newest first."""

    checkpoint: SavedCheckpoint
    damaged: tuple[str, ...] = ()


def checkpoints_in(files: Sequence[Newest]) -> list[SavedCheckpoint]:
    """Group the files of a place into checkpoints, the newest first: by step where a path names one."""
    groups: dict[str, list[Newest]] = {}
    for one in files:
        groups.setdefault(checkpoint_path(one.path), []).append(one)
    found = [
        SavedCheckpoint(
            path,
            Newest(path, 0, each[0].at).step,
            sum(one.size for one in each),
            len(each),
            min(one.size for one in each),
            max(one.at for one in each),
            tuple(sorted(one.digest for one in each)) if all(one.digest for one in each) else (),
        )
        for path, each in groups.items()
    ]
    return sorted(found, key=lambda one: (one.at, one.step or 0), reverse=True)


def last_verified(files: Sequence[Newest], now: datetime) -> VerifiedCheckpoint | None:
    """Return the newest checkpoint that is complete; None where there is none.

    One is damaged that has an empty file, is dated in the future, or has fewer files or bytes than the one before it.
    So is one whose files all have the hashes of the one before: an older save was uploaded again under a new step.
    """
    found, damaged = checkpoints_in(files), list[str]()
    for place, one in enumerate(found):
        before = next((other for other in found[place + 1 :] if other.smallest > 0), None)
        problem = _problem(one, before, now)
        if not problem:
            return VerifiedCheckpoint(one, tuple(damaged))
        damaged.append(f"{one.path} {problem}")
    return None


def address(where: StoreLocation, path: str) -> str:
    """Write where a checkpoint lies, as a job reads it from RESUME_FROM."""
    return where.root if where.scheme == "https" else f"{where.scheme}://{where.root}/{path}"


@dataclass(frozen=True, slots=True)
class LostWork:
    """Hold what is computed again: from the checkpoint, or from the start where there is none, until the loss."""

    seconds: int
    usd: Decimal

    @classmethod
    def between(cls, saved_at: datetime, lost_at: datetime, price_usd_h: Decimal) -> LostWork:
        """Count the time between both, at the price of the machine that was lost."""
        seconds = max(int((lost_at - saved_at) / timedelta(seconds=1)), 0)
        return cls(seconds, money.amount(price_usd_h * seconds / 3600))

    @property
    def words(self) -> str:
        """Say how much it is: `7 minutes of work (about $0.32)`."""
        took = plural(self.seconds // 60, "minute") if self.seconds >= 60 else plural(self.seconds, "second")
        return f"{took} of work (about {usd(self.usd)})"


def checkpoint_path(path: str) -> str:
    """Return what names a file's checkpoint: its path up to the last part with a step, or all of it."""
    parts = path.split("/")
    for place in range(len(parts) - 1, -1, -1):
        if STEP_IN_PATH.search(parts[place]):
            return "/".join(parts[: place + 1])
    return path


def _problem(one: SavedCheckpoint, before: SavedCheckpoint | None, now: datetime) -> str:
    """Say why a checkpoint is no good; "" for one that is."""
    if one.smallest <= 0:
        return "is empty" if one.files == 1 else "has an empty file"
    if one.at - now > SLACK:
        return "is dated in the future"
    if before is not None and one.step is not None and before.step is not None:
        if one.files < before.files:
            return f"has {plural(one.files, 'file')} of {before.files}"
        if one.size < before.size * LEAST_SHARE:
            return f"has {one.size:,} bytes of about {before.size:,}"
        if one.digests and one.digests == before.digests:
            return f"has the bytes of {before.path}"
    return ""
