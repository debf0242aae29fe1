"""Decide whether a person is a request's requester, one of its approvers, or neither."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from bot.rules.policy import tiers
from bot.rules.policy.policy import Policy
from bot.rules.policy.tiers import EVERY, ApproverGroup
from bot.rules.values.phrases import Verdict, deny
from bot.rules.values.reply_code import ReplyCode
from ledger.kernel.actor import Actor, ActorKind

#: Who is asked about a request that no tier covers: the approvers of everything.
ANYBODY = ApproverGroup()


@dataclass(frozen=True, slots=True)
class DeciderFacts:
    """Hold the facts about the person who makes a decision.

    `known` is false when the look-up failed, which refuses. `behalf` are those in whose place they may approve now.
    """

    actor: Actor
    team_ok: bool = True
    is_bot: bool = False
    is_deleted: bool = False
    is_guest: bool = False
    groups: tuple[str, ...] = ()
    known: bool = True
    behalf: tuple[DeciderFacts, ...] = ()


class Deed(StrEnum):
    """Name what only an eligible person may do, in the words of its refusal."""

    APPROVE = "approve or reject a request"
    READ = "use GPU Shopper"
    REQUEST = "request GPUs"
    EXTEND = "extend a session"
    START = "start a session"
    WITHDRAW = "withdraw a request"
    AUTO_APPROVAL = "spend without an approver"
    KEY = "use an API key"


#: What needs a certain answer of Slack, because it decides. All else is possible while Slack does not answer.
_CERTAIN = frozenset({Deed.APPROVE, Deed.WITHDRAW, Deed.AUTO_APPROVAL})
#: What the policy may allow to guests.
_FOR_GUESTS = frozenset({Deed.READ, Deed.REQUEST, Deed.EXTEND, Deed.START, Deed.KEY})


def ineligible(policy: Policy, person: DeciderFacts, deed: Deed) -> Verdict | None:
    """Return why a bot, a deactivated account, a guest or somebody of another workspace may not do this."""
    if not person.known:
        sentence = f"Slack did not say who you are, so you can't {deed} now. Try again in a moment."
        return deny(ReplyCode.LOOKUP_FAILED, sentence) if deed in _CERTAIN else None
    allowed = deed is Deed.WITHDRAW or (policy.guests_may_request and deed in _FOR_GUESTS)
    guest = person.is_guest and not allowed
    for holds, code, sentence in (
        (person.is_bot, ReplyCode.BOT, f"A bot can't {deed}."),
        (person.is_deleted, ReplyCode.DELETED, f"A deactivated account can't {deed}."),
        (
            not person.team_ok,
            ReplyCode.OTHER_TEAM,
            f"Only members of this workspace can {deed}. You belong to another one.",
        ),
        (guest, ReplyCode.GUEST, f"Guests can't {deed}. A full member can."),
    ):
        if holds:
            return deny(code, sentence)
    return None


def is_approver(policy: Policy, decider: DeciderFacts) -> bool:
    """Whether the policy names this person, or a group they are in now, for any spend. `never_approve` wins."""
    return _listed(policy, decider, tuple(policy.approval_groups))


def is_approver_of(policy: Policy, decider: DeciderFacts, mandate: ApproverGroup) -> bool:
    """Whether this person is an approver of a request, or may approve it without being mentioned."""
    return _listed(policy, decider, groups(policy, mandate), everything=False)


def eligible_delegators(
    policy: Policy, decider: DeciderFacts, mandate: ApproverGroup, not_for: Collection[Actor] = ()
) -> tuple[Actor, ...]:
    """Return the approvers of a request for whom this delegate may approve, under the current policy.

    A delegation is never passed on, and it does not cover requests of the person who delegated (`not_for`).
    """
    if never(policy, decider.actor):
        return ()
    return tuple(
        one.actor
        for one in decider.behalf
        if ineligible(policy, one, Deed.APPROVE) is None
        and is_approver_of(policy, one, mandate)
        and not any(is_same(mine, other) for mine in (one.actor, *linked(policy, one.actor)) for other in not_for)
    )


def groups(policy: Policy, mandate: ApproverGroup) -> tuple[str, ...]:
    """Return the approver groups of a request now, in the order of escalation."""
    further = tiers.chain(mandate.tier, policy.escalate_to)[: mandate.steps]
    return (tiers.group_of(mandate.tier), *further)


def members(policy: Policy, group: str) -> tuple[str, ...]:
    """Return the names in a group: people and Slack user groups."""
    return (*policy.approvers, *policy.approver_groups) if group == EVERY else policy.approval_groups.get(group, ())


def mentioned_approvers(policy: Policy, mandate: ApproverGroup, not_them: Collection[Actor] = ()) -> tuple[str, ...]:
    """Return the people and Slack user groups that a request mentions now, without `may_approve_not_pinged`.

    Nobody of `not_them`, such as its requester, is mentioned under any name, nor who never approves.
    """
    names = dict.fromkeys(name for group in groups(policy, mandate) for name in members(policy, group))
    out = [same for one in not_them for same in (one, *linked(policy, one))]
    free = (
        name
        for name in names
        if name not in policy.may_approve_not_pinged and (is_slack_group(name) or _is_free(policy, name, out))
    )
    return _once_each(policy, free)


def _once_each(policy: Policy, names: Iterable[str]) -> tuple[str, ...]:
    """Return each person once, under the name in Slack where the list has one, and each user group."""
    found: dict[str, str] = {}
    for name in names:
        try:
            key = name if is_slack_group(name) else person_key(policy, named(name))
        except ValueError:  # A name that is no reference names nobody else.
            key = name
        if key not in found or (named(found[key]).kind is not ActorKind.SLACK and named(name).kind is ActorKind.SLACK):
            found[key] = name
    return tuple(found.values())


def _is_free(policy: Policy, name: str, out: Collection[Actor]) -> bool:
    """Whether nothing keeps a named person from approving; a name that is no reference names nobody else."""
    try:
        actor = named(name)
    except ValueError:
        return True
    return not never(policy, actor) and not any(is_same(actor, one) for one in out)


def references(names: Iterable[str]) -> str:
    """Write names for a sentence: `slack:U012AB3CD`, of which Slack makes a mention; operators by their own names."""
    return ", ".join(map(name_of, names))


def name_of(name: str) -> str:
    """Write one name for a sentence."""
    reference = name if ":" in name or is_slack_group(name) else f"{ActorKind.SLACK}:{name}"
    return reference.removeprefix(f"{ActorKind.OPERATOR}:")


def with_steps(policy: Policy, mandate: ApproverGroup, opened_at: datetime, now: datetime) -> ApproverGroup:
    """Return the current approver group of an undecided request, with its escalations until now."""
    further = len(tiers.chain(mandate.tier, policy.escalate_to))
    count = tiers.steps(further, opened_at, now, policy.escalate_after_s)
    return ApproverGroup(mandate.tier, mandate.because, count)


def is_slack_group(name: str) -> bool:
    """Whether a name in the policy is a Slack user group, not a person."""
    return name.startswith("S") and ":" not in name


def _listed(policy: Policy, decider: DeciderFacts, of: tuple[str, ...], *, everything: bool = True) -> bool:
    if never(policy, decider.actor):
        return False
    listed = {*policy.may_approve_not_pinged, *(name for group in of for name in members(policy, group))}
    listed |= set(members(policy, EVERY)) if everything else set()
    return bool(listed & (names_of(policy, decider.actor) | set(decider.groups)))


def never(policy: Policy, actor: Actor) -> bool:
    """Whether the policy bars this person from approving, under any of their names."""
    denied = set(policy.never_approve)
    return any(_written(one) & denied for one in (actor, *linked(policy, actor)))


def names_of(policy: Policy, actor: Actor) -> set[str]:
    """Return every name under which the policy may list a person, so that each of them has the rights of all.

    A program has its own rights only: it is not the person with whom the policy links it.
    """
    people = (actor,) if actor.is_program else (actor, *linked(policy, actor))
    return {name for one in people if one == actor or not one.is_program for name in _written(one)}


def _written(actor: Actor) -> set[str]:
    return {actor.ref} | ({actor.id} if actor.kind is ActorKind.SLACK else set())


def person_key(policy: Policy, actor: Actor) -> str:
    """Return one key for a person, whichever of their names they use, with or without a team."""
    return min(person_keys(policy, actor))


def person_keys(policy: Policy, actor: Actor) -> tuple[str, ...]:
    """Return a key for each name of a person, the same with or without a team."""
    return tuple(dict.fromkeys(f"{one.kind}:{one.id}" for one in (actor, *linked(policy, actor))))


def linked(policy: Policy, actor: Actor) -> tuple[Actor, ...]:
    """Return the other identities of one person, as the policy names them.

    Where two entries share a name, both are about one person.
    """
    people = [[named(name) for name in names] for names in policy.same_person]
    found = [actor]
    for known in found:
        for names in people:
            if any(is_same(known, one) for one in names):
                found += [one for one in names if one not in found]
    return tuple(found[1:])


def display_name(policy: Policy, name: str) -> str:
    """Return the name that a terminal shows for a person whom the policy links to an operator; empty for others.

    `U012AB3CD` says nothing to a reader; where `same_person` links it to `operator:ada`, they are `ada`.
    """
    actor = named(name)
    return next((one.id for one in (actor, *linked(policy, actor)) if one.kind is ActorKind.OPERATOR), "")


def slack_account(policy: Policy, person: Actor) -> str | None:
    """Return a person's Slack user: themselves, or the first Slack account that the policy names as the same person."""
    people = (person, *linked(policy, person))
    return next((one.id for one in people if one.kind is ActorKind.SLACK), None)


def slack_accounts(policy: Policy, names: Iterable[str]) -> tuple[str, ...]:
    """Return the Slack users of the people among these names, each once, without user groups and who has no account."""
    found = (slack_account(policy, named(name)) for name in names if not is_slack_group(name))
    return tuple(dict.fromkeys(one for one in found if one is not None))


def named(name: str) -> Actor:
    """Return the actor that a policy names: by a reference, or by a Slack id alone."""
    return Actor.from_ref(name) if ":" in name else Actor(ActorKind.SLACK, name)


def is_same(one: Actor, other: Actor) -> bool:
    """Whether two actors are the same person; an actor without a known team matches any team."""
    # This refuses more approvals, never fewer.
    same_team = one.team == other.team or not (one.team and other.team)
    return (one.kind, one.id) == (other.kind, other.id) and same_team
