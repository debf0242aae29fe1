"""Approve small spends by policy, within the limits that somebody signed for.

An auto-approval is an approval like any other, recorded with its amounts. It covers small spends only, up to a total in
any 24 hours and until a day, and it names the version of the policy that gave it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from bot.rules.approvals.authority import NOTHING, Authority, plan
from bot.rules.policy.consumers import of
from bot.rules.policy.policy import Policy
from bot.rules.values.phrases import Verdict, deny, usd
from bot.rules.values.reply_code import ReplyCode
from ledger.kernel.actor import Actor, ActorKind

PERIOD: Final = timedelta(hours=24)
_PREFIX: Final = "policy-"
#: What the `approver` of every auto-approval begins with.
AUTO_APPROVAL_PREFIX: Final = f"{ActorKind.SYSTEM}:{_PREFIX}"


def fingerprint(policy: Policy) -> str:
    """Return twelve hex digits that change with any setting of the policy."""
    settings = sorted((item.name, _plain(getattr(policy, item.name))) for item in fields(policy))
    return hashlib.sha256(repr(settings).encode()).hexdigest()[:12]


def _plain(value: Any) -> str:
    return repr(sorted(value.items())) if isinstance(value, Mapping) else repr(value)


def signer(policy: Policy, program: str = "") -> Actor:
    """Return the actor of an auto-approval: this version of the policy, and the program if it has its own terms."""
    return Actor(ActorKind.SYSTEM, _PREFIX + (f"{program}-" if program else "") + fingerprint(policy))


def applied(policy: Policy, asker: Actor, *, by_agent: bool = False) -> tuple[Policy, str]:
    """Return the policy with a requester's auto-approval terms, and the program's name when they are its own.

    An AI agent has none, under its own name or with a person's key: a person approves whatever it requests.
    """
    if by_agent or asker.kind is ActorKind.AGENT:
        return replace(policy, auto_approve_below_usd=None), ""
    limits = of(policy.consumers, asker)
    if limits is None:
        return policy, ""
    return replace(
        policy,
        auto_approve_below_usd=limits.auto_approve_below_usd,
        auto_approve_daily_usd=limits.auto_approve_daily_usd,
        auto_approve_until=limits.auto_approve_until,
        auto_approve_signed_by=limits.auto_approve_signed_by,
    ), asker.id


def auto_approval(
    policy: Policy,
    spend: Authority,
    earlier: Authority = NOTHING,
    *,
    approved_usd: Decimal,
    asked_before: bool,
    now: datetime,
) -> Verdict:
    """Whether the policy auto-approves this spend, on top of what was approved `earlier` for the same run.

    `approved_usd` is what it approved in the last 24 hours. A request that was quoted before had an approval which did
    not lead to an instance, so a person looks at it.
    """
    needed = plan(policy, spend, earlier)
    if policy.auto_approve_below_usd is None or needed.required > 0:
        return deny(ReplyCode.NOT_COVERED, "")
    if asked_before:
        return deny(ReplyCode.EARLIER_ATTEMPT, "An earlier approval led to no instance, so a person must approve this.")
    if policy.auto_approve_until is None or now.date() > policy.auto_approve_until:
        return deny(
            ReplyCode.AUTO_APPROVAL_EXPIRED, "The policy's auto-approval has expired, so a person must approve this."
        )
    limit = policy.auto_approve_daily_usd
    if approved_usd + spend.worst_usd > limit:
        sentence = (
            f"The policy auto-approved {usd(approved_usd)} in the last 24 hours, of at most {usd(limit)}. "
            "So a person must approve this."
        )
        return deny(ReplyCode.AUTO_APPROVAL_USED_UP, sentence)
    sentence = (
        f"{needed.rule} {policy.auto_approve_signed_by} signed for that until {policy.auto_approve_until:%Y-%m-%d} "
        f"(policy {fingerprint(policy)})."
    )
    return Verdict(True, ReplyCode.APPROVED, sentence)
