"""Who somebody is to a request: its requester, one of those who may decide about it, or neither."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from bot.rules import tiers
from bot.rules.policy import Policy
from bot.rules.tiers import EVERY, Mandate
from ledger.values import Actor, ActorKind

#: Everything that was ever asked of the approvers of everything.
ANYBODY = Mandate()


@dataclass(frozen=True, slots=True)
class DeciderFacts:
    """What was looked up about whoever decides. `known` is false when the look-up failed, which refuses."""

    actor: Actor
    team_ok: bool = True
    is_bot: bool = False
    is_deleted: bool = False
    is_guest: bool = False
    groups: tuple[str, ...] = ()
    known: bool = True


def is_approver(policy: Policy, decider: DeciderFacts) -> bool:
    """Whether the policy names this person, or a group they are in now, for any spend. `never_approve` wins."""
    return _listed(policy, decider, tuple(policy.approval_groups))


def may_decide(policy: Policy, decider: DeciderFacts, mandate: Mandate) -> bool:
    """Whether this person is one of those who are asked about a request, or may decide without being asked."""
    return _listed(policy, decider, groups(policy, mandate), everything=False)


def groups(policy: Policy, mandate: Mandate) -> tuple[str, ...]:
    """The groups that are asked about a request now, the first one first."""
    further = tiers.chain(mandate.tier, policy.escalate_to)[: mandate.steps]
    return (tiers.group_of(mandate.tier), *further)


def members(policy: Policy, group: str) -> tuple[str, ...]:
    """The names in a group: people and Slack user groups."""
    return (*policy.approvers, *policy.approver_groups) if group == EVERY else policy.approval_groups.get(group, ())


def asked(policy: Policy, mandate: Mandate) -> tuple[str, ...]:
    """The people and Slack user groups that are asked about a request now, without those who are not mentioned."""
    names = dict.fromkeys(name for group in groups(policy, mandate) for name in members(policy, group))
    return tuple(name for name in names if name not in policy.may_approve_not_pinged)


def with_steps(policy: Policy, mandate: Mandate, opened_at: datetime, now: datetime) -> Mandate:
    """The mandate as it is now, with the groups that an undecided request has gone on to."""
    further = len(tiers.chain(mandate.tier, policy.escalate_to))
    count = tiers.steps(further, opened_at, now, policy.escalate_after_s)
    return Mandate(mandate.tier, mandate.because, count)


def is_slack_group(name: str) -> bool:
    """Whether a name of the policy is a Slack user group, and no person."""
    return name.startswith("S") and ":" not in name


def _listed(policy: Policy, decider: DeciderFacts, of: tuple[str, ...], *, everything: bool = True) -> bool:
    names = {decider.actor.ref}
    if decider.actor.kind is ActorKind.SLACK:
        names.add(decider.actor.id)
    if names & set(policy.never_approve):
        return False
    listed = {*policy.may_approve_not_pinged, *(name for group in of for name in members(policy, group))}
    listed |= set(members(policy, EVERY)) if everything else set()
    return bool(listed & (names | set(decider.groups)))


def linked(policy: Policy, actor: Actor) -> tuple[Actor, ...]:
    """The other identities of one person, as the policy names them."""
    people = [[_named(name) for name in names] for names in policy.same_person]
    return tuple(one for names in people if any(is_same(actor, one) for one in names) for one in names if one != actor)


def _named(name: str) -> Actor:
    return Actor.from_ref(name) if ":" in name else Actor(ActorKind.SLACK, name)


def is_same(one: Actor, other: Actor) -> bool:
    """Whether two names of actors are one; a side that does not know its team is taken for the same person."""
    # That refuses more, never less.
    same_team = one.team == other.team or not (one.team and other.team)
    return (one.kind, one.id) == (other.kind, other.id) and same_team
