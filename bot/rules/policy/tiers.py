"""Define approval tiers: which group approves which spend, how many of its people, and to whom it escalates."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from bot.rules.policy.bounds import is_person
from bot.rules.values.phrases import hours, plural, usd
from providers.gpus.table import lookup

#: The group that `approvers` and `approver_groups` are: it approves where no tier names another one.
EVERY: Final = "approvers"
MOST_APPROVALS: Final = 5
_NAME: Final = re.compile(r"[A-Za-z][\w-]{0,39}")
_SLACK_GROUP: Final = re.compile(r"S[A-Z0-9]{1,20}")


@dataclass(frozen=True, slots=True)
class ApprovalTier:
    """Define one row of the policy's table: it is for a spend that meets all of its conditions.

    A row without conditions is for every spend. `group` names an entry of `approval_groups` (empty: the approvers of
    everything), `approvals` how many different people of it must approve. `above_usd` looks at the worst case,
    `above_hours` at the time in all; `then` are the groups to which an undecided request escalates.
    """

    name: str
    group: str = ""
    approvals: int = 1
    above_usd: Decimal | None = None
    above_hours: Decimal | None = None
    above_gpus: int | None = None
    gpus: tuple[str, ...] = ()
    team: str = ""
    then: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Weighed:
    """Hold what a tier looks at: the worst case in dollars, hours in all, GPUs of the options, requester's teams."""

    worst_usd: Decimal
    hours: Decimal
    gpu_count: int = 0
    gpus: frozenset[str] = frozenset()
    teams: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ApproverGroup:
    """Say who approves one request: its tier (None: the approvers of everything) and why.

    `steps` further groups were asked since.
    """

    tier: ApprovalTier | None = None
    because: str = ""
    steps: int = 0


def tier_of(tiers: Collection[ApprovalTier], spend: Weighed) -> ApprovalTier | None:
    """Return the first row of the table that a spend belongs to; None when it belongs to none."""
    return next((tier for tier in tiers if reasons(tier, spend) is not None), None)


def reasons(tier: ApprovalTier, spend: Weighed) -> tuple[str, ...] | None:
    """Say why a spend belongs to a tier, a few words for each condition; None when it does not."""
    found = sorted(_names(tier) & spend.gpus)
    if (
        (tier.above_usd is not None and spend.worst_usd <= tier.above_usd)
        or (tier.above_hours is not None and spend.hours <= tier.above_hours)
        or (tier.above_gpus is not None and spend.gpu_count <= tier.above_gpus)
        or (tier.gpus and not found)
        or (tier.team and tier.team not in spend.teams)
    ):
        return None
    said = (
        (tier.above_usd is not None, f"up to {usd(spend.worst_usd)} is above {usd(tier.above_usd or Decimal(0))}"),
        (tier.above_hours is not None, f"{hours(spend.hours)} is above {hours(tier.above_hours or Decimal(0))}"),
        (tier.above_gpus is not None, f"{plural(spend.gpu_count, 'GPU')} is above {tier.above_gpus}"),
        (bool(tier.gpus), f"it may be on {', '.join(found)}"),
        (bool(tier.team), f"the team {tier.team} asks"),
    )
    return tuple(sentence for applies, sentence in said if applies)


def _names(tier: ApprovalTier) -> set[str]:
    """Return the canonical names of a tier's GPUs."""
    return {name for gpu in tier.gpus for name in lookup(gpu)}


def because(tier: ApprovalTier, spend: Weighed) -> str:
    """Join the reasons as the end of a sentence; empty for a tier of every spend."""
    return ", and ".join(reasons(tier, spend) or ())


def group_of(tier: ApprovalTier | None) -> str:
    """Return the name of the group that is asked first."""
    return tier.group if tier is not None and tier.group else EVERY


def chain(tier: ApprovalTier | None, otherwise: tuple[str, ...]) -> tuple[str, ...]:
    """Return the groups to which an undecided request escalates, in order: the tier's own, or the policy's."""
    return tier.then if tier is not None and tier.then else otherwise


def steps(groups: int, opened_at: datetime, now: datetime, after_s: float) -> int:
    """Count the further groups that may approve by now: one more after each `after_s` since the offers were shown."""
    waited_s = (now - opened_at).total_seconds()
    return max(0, min(groups, int(waited_s // after_s)))


def next_step(groups: int, opened_at: datetime, now: datetime, after_s: float) -> datetime | None:
    """Return when the next group is asked; None when there is none left."""
    number = steps(groups, opened_at, now, after_s) + 1
    return opened_at + timedelta(seconds=after_s * number) if number <= groups else None


def problems(
    tiers: Collection[ApprovalTier],
    groups: Mapping[str, tuple[str, ...]],
    onwards: tuple[str, ...],
    teams: Collection[str],
) -> Iterator[str]:
    """Say what is wrong with the tiers and groups of a policy: one sentence each."""
    for name, people in groups.items():
        if not _NAME.fullmatch(name) or name == EVERY:
            yield f"approval_groups: {name!r} is not a name for a group, for example finance"
        if not people:
            yield f"approval_groups: {name} needs ids, for example [U012AB3CD, operator:ada, S0614TZR7]"
        for one in people:
            if not (is_person(one) or _SLACK_GROUP.fullmatch(one)):
                yield f"approval_groups: {name}: {one!r} is no id; for example U012AB3CD, operator:ada or S0614TZR7"
    yield from (
        f"escalate_to: {name!r} is not one of approval_groups" for name in onwards if name not in {*groups, EVERY}
    )
    seen: list[ApprovalTier] = []
    for tier in tiers:
        yield from _wrong(tier, groups, teams)
        for before in seen:
            if before.name == tier.name:
                yield f"approval_tiers: {tier.name} is there twice"
            elif _covers(before, tier):
                yield f"approval_tiers: {tier.name} is never reached, because {before.name} comes first; swap them"
        seen.append(tier)


def _wrong(tier: ApprovalTier, groups: Mapping[str, tuple[str, ...]], teams: Collection[str]) -> Iterator[str]:
    lead = f"approval_tiers: {tier.name}"
    if not _NAME.fullmatch(tier.name):
        yield f"approval_tiers: {tier.name!r} is not a name for a tier, for example large"
    if not 1 <= tier.approvals <= MOST_APPROVALS:
        yield f"{lead}: approvals must lie between 1 and {MOST_APPROVALS}, for example 2"
    for group in (*([tier.group] if tier.group else []), *tier.then):
        if group not in {*groups, EVERY}:
            yield f"{lead}: {group!r} is not one of approval_groups"
    for limit in (tier.above_usd, tier.above_hours, tier.above_gpus):
        if limit is not None and not (Decimal(limit).is_finite() and limit >= 0):
            yield f"{lead}: a limit must be 0 or more, for example above_usd: 200"
    for gpu in tier.gpus:
        if not lookup(gpu):
            yield f"{lead}: {gpu!r} is not a GPU, for example H100-SXM"
    if tier.team and tier.team not in teams:
        yield f"{lead}: `teams` does not list {tier.team}"


def _covers(above: ApprovalTier, below: ApprovalTier) -> bool:
    """Whether every spend of one row belongs to the row above it already."""
    limits = (
        (above.above_usd, below.above_usd),
        (above.above_hours, below.above_hours),
        (above.above_gpus, below.above_gpus),
    )
    wider = all(a is None or (b is not None and b >= a) for a, b in limits)
    gpus = not above.gpus or (bool(below.gpus) and _names(below) <= _names(above))
    return wider and gpus and above.team in ("", below.team)
