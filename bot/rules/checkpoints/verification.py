"""Verify checkpoints outside the machine: where they are, whether the newest is complete, and what follows if not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Final

from bot.rules.policy.policy import Policy
from bot.rules.values.phrases import Verdict, deny, plural, usd
from bot.rules.values.phrases import hours as say_hours
from bot.rules.values.reply_code import ReplyCode
from providers.capabilities import Capabilities

_PLACE: Final = re.compile(r"(hf|s3|gs)://([^/\s]+)(?:/(\S*))?", re.IGNORECASE)
_URL: Final = re.compile(r"https://[^/\s?#]+/[^\s#]+", re.IGNORECASE)
#: How a part of a path names the step of a checkpoint.
STEP_IN_PATH: Final = re.compile(r"(?:step|checkpoint|ckpt|iter|epoch)[-_=]?(\d{1,15})", re.IGNORECASE)
#: Clocks differ, and an upload takes a while.
SLACK: Final = timedelta(minutes=5)
#: Before data is deleted at the end of a hold the operators get this long to answer, as far as the time is paid for.
ANSWER: Final = timedelta(minutes=5)
#: The cap must pay for this as well: from the order to the moment that the cloud stops billing.
END_TAKES_S: Final = 60
#: What a person reads where a request names no place for its checkpoints.
NOTHING_PROTECTS: Final = "Nothing protects its data: there is no `checkpoint=`, and its end deletes the machine."


class Unverified(StrEnum):
    """Say what happens to data without a verified checkpoint when nobody answers."""

    KEEP = "keep"
    DESTROY = "destroy"


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """Name where to look: `root` is a bucket, a repository or (https) the URL of a file, `path` what is below."""

    scheme: str
    root: str
    path: str


@dataclass(frozen=True, slots=True)
class Newest:
    """Describe the newest file of a location, by its store's own time."""

    path: str
    size: int
    at: datetime
    #: The hash of its bytes, as its store gives it; "" where it gives none.
    digest: str = ""

    @property
    def step(self) -> int | None:
        """Return the step in the checkpoint's path, such as `step-1200/model.pt`."""
        found = STEP_IN_PATH.findall(self.path)
        return int(found[-1]) if found else None


@dataclass(frozen=True, slots=True)
class Reported:
    """Hold the agent's last report: until when it worked, and its newest checkpoint; None where it reported none."""

    worked_until: datetime | None = None
    step: int | None = None
    at: datetime | None = None


def place(location: str | None) -> StoreLocation | None:
    """Return where to look; None for no location, a host alone, and a path that only the machine itself knows."""
    if _URL.fullmatch(location or ""):
        return StoreLocation("https", location or "", "")
    found = _PLACE.fullmatch(location or "")
    if found is None:
        return None
    scheme, root, path = found[1].lower(), found[2], (found[3] or "").strip("/")
    if scheme == "hf":
        name, _, path = path.partition("/")
        return StoreLocation(scheme, f"{root}/{name}", path) if name else None
    return StoreLocation(scheme, root, path)


def judge(newest: Newest | None, reported: Reported, max_age_s: int, now: datetime) -> Verdict:
    """Whether the newest checkpoint exists, is complete and recent, and is no older than what the agent reported."""
    if newest is None:
        return deny(ReplyCode.MISSING, "There is no checkpoint.")
    if newest.size <= 0:
        return deny(ReplyCode.EMPTY, f"The newest checkpoint, {newest.path}, is empty.")
    if newest.at - now > SLACK:
        said = f"The newest checkpoint, {newest.path}, is dated in the future, so its age is unknown."
        return deny(ReplyCode.FUTURE, said)
    worked_until = min(reported.worked_until or now, now)
    if worked_until - newest.at > timedelta(seconds=max_age_s) + SLACK:
        age = plural(int((worked_until - newest.at) / timedelta(minutes=1)), "minute")
        return deny(ReplyCode.OLD, f"The newest checkpoint, {newest.path}, lacks the last {age} of work.")
    behind = reported.step is not None and newest.step is not None and newest.step < reported.step
    if behind or (newest.step is None and reported.at is not None and reported.at - newest.at > SLACK):
        return deny(ReplyCode.BEHIND, f"The newest checkpoint, {newest.path}, is older than what its agent reported.")
    return Verdict(True, ReplyCode.VERIFIED, f"Its checkpoint {newest.path} is verified ({newest.size:,} bytes).")


@dataclass(frozen=True, slots=True)
class CheckpointHold:
    """Hold what an approval reserves for a checkpoint hold: hours of the machine, then hours of its disk alone."""

    run_h: Decimal = Decimal(0)
    disk_h: Decimal = Decimal(0)


def reserve(policy: Policy, location: str | None, able: Capabilities) -> CheckpointHold:
    """Return the hold that a job with this location may need at its end, on a cloud with these capabilities.

    Everywhere its agent is given time to save. Where the disk cannot be kept without the GPU, the machine keeps
    running.
    """
    if place(location) is None or not able.terminate:
        return CheckpointHold()
    run_h = Decimal(_run_s(policy, keeps_disk=able.keeps_disk)) / 3600
    kept = able.keeps_disk and policy.checkpoint_unverified != Unverified.DESTROY
    return CheckpointHold(run_h, Decimal(policy.checkpoint_disk_s) / 3600 if kept else Decimal(0))


def _run_s(policy: Policy, *, keeps_disk: bool) -> int:
    """Return for how many seconds a machine keeps running at its end, where its checkpoint is verified."""
    if keeps_disk or policy.checkpoint_unverified == Unverified.DESTROY:
        return policy.checkpoint_save_s
    return max(policy.checkpoint_hold_s, policy.checkpoint_save_s)


@dataclass(frozen=True, slots=True)
class Reserved:
    """Hold what was reserved for the end of one instance when it was approved, in dollars and in seconds.

    `seconds` None is an instance of which nothing was reserved: one of a release before there were holds, or one that
    was adopted. It adds no hours to those that were granted and sets no money aside. At its end it is held all the
    same, as long as today's policy would reserve, out of what was approved and not spent.
    """

    usd: Decimal
    seconds: int | None

    @classmethod
    def of(cls, hold_usd: Decimal | None, hold_s: int | None) -> Reserved:
        """Read the two columns of the instance's row; a missing amount is 0."""
        return cls(hold_usd or Decimal(0), hold_s)

    @property
    def granted_h(self) -> Decimal:
        """Return the hours that the approval grants in addition to those of the session."""
        return Decimal(self.seconds or 0) / 3600

    def longest_s(self, policy: Policy, *, keeps_disk: bool) -> int:
        """Return for how many seconds from its ordered end the instance may be held."""
        return _run_s(policy, keeps_disk=keeps_disk) if self.seconds is None else self.seconds


def reserved_usd(hold_usd: Decimal, total_cap_usd: Decimal, run_usd: Decimal) -> Decimal:
    """Return the part of a total cap that is reserved for the hold: a lower cap shortens the hold before the run."""
    return min(hold_usd, max(total_cap_usd - run_usd, Decimal(0)))


def said_of(hold_usd: Decimal, run_h: Decimal, disk_h: Decimal) -> str:
    """Write the line under an option's price: the part of its worst case for its checkpoint hold; empty if none."""
    if not run_h:
        return ""
    disk = f" and {say_hours(disk_h)} of disk" if disk_h else ""
    return f"includes {usd(hold_usd)} to save checkpoints: up to {say_hours(run_h)} more{disk}"


def choice(policy: Policy, location: str | None) -> str:
    """Say on a request what happens to data that cannot be verified; empty if nothing can be checked."""
    if not location:
        return NOTHING_PROTECTS
    if place(location) is None:
        return ""
    wait = say_hours(Decimal(policy.checkpoint_save_s) / 3600)
    # The query part of a URL may be its signature.
    shown = (location or "").partition("?")[0]
    said = f"At its end, the newest checkpoint at {shown} is verified. If there is none, its agent gets {wait} to save."
    if policy.checkpoint_unverified == Unverified.DESTROY:
        return f"{said} Then the session ends and its disk is deleted, as the policy allows."
    disk, hold = (say_hours(Decimal(one) / 3600) for one in (policy.checkpoint_disk_s, policy.checkpoint_hold_s))
    return (
        f"{said} Then it stops and its disk stays for {disk}. Where a stop would delete the disk, it keeps running for "
        f"{hold} at most. The price includes that. If nobody answers until then, it ends and its disk is deleted."
    )


def hold_ends_at(now: datetime, left_usd: Decimal, rate_usd_h: Decimal, most: timedelta) -> datetime:
    """Return until when the approved amount pays for an instance on hold and its end, at most `most` from now."""
    if rate_usd_h <= 0:
        return now + most
    paid_s = float(max(left_usd, Decimal(0)) / rate_usd_h) * 3600 - END_TAKES_S
    return now + timedelta(seconds=int(min(max(paid_s, 0), most.total_seconds())))
