"""Refuse an unusable policy when it is loaded: single values, and settings that do not go together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from bot.rules.budgets import budget
from bot.rules.policy import bounds, consumers, model_profiles, tiers
from bot.rules.policy.images import read_cuda, read_range, read_vendor
from bot.rules.policy.policy import Policy
from bot.rules.reports import digest
from bot.rules.webhooks import webhooks

_PLACE: Final = re.compile(r"(?:hf|s3|gs)://[^/\s]+(?:/\S*)?", re.IGNORECASE)

#: Settings of earlier builds, and what they are called now. The reader of the policy file refuses the old name.
RENAMED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "drift_answer_s": "overspend_answer_s",
        "end_when_silent": "end_when_unresponsive",
        "silent_s": "unresponsive_s",
        "silent_grace_s": "unresponsive_grace_s",
        "stray_apart_s": "orphan_apart_s",
    }
)
#: Settings of earlier builds that another one covers now, and which. That one may have another form, such as a factor.
MERGED: Final[Mapping[str, str]] = MappingProxyType(
    {"drift_tolerance": "price_tolerance", "overspend_tolerance": "price_tolerance"}
)


def validated(policy: Policy) -> Policy:
    """Return this policy, or raise ValueError with a sentence that names the setting and a right value."""
    for sentence in _problems(policy):
        raise ValueError(f"The policy is not usable: {sentence}.")
    return policy


def _problems(policy: Policy) -> Iterator[str]:
    yield from bounds.problems(policy)
    rules = (*_about_decisions(policy), *_about_machines(policy))
    yield from (sentence for holds, sentence in rules if not holds)
    yield from budget.problems(policy.budgets, policy.teams)
    yield from consumers.problems(policy.consumers)
    yield from tiers.problems(policy.approval_tiers, policy.approval_groups, policy.escalate_to, policy.teams)
    yield from webhooks.problems(policy.webhook_networks, policy.webhook_ports)
    yield from _about_stores(policy)
    yield from model_profiles.problems(policy.instance_profiles)
    yield from digest.problems(policy.digest_at, policy.digest_timezone, policy.digest_weekly)


def _about_stores(policy: Policy) -> Iterator[str]:
    for text in policy.checkpoint_places:
        if not _PLACE.fullmatch(text) or ".." in text.split("/"):
            yield f"checkpoint_places: `{text}` is not a place, for example s3://bucket/runs or hf://org"


def _about_decisions(policy: Policy) -> Iterator[tuple[bool, str]]:
    """Check each rule about people, time and money, and say what to write where it does not hold."""
    yield (
        all(len(names) > 1 and all(map(bounds.is_person, names)) for names in policy.same_person),
        "same_person needs two or more names for each person, for example [U012AB3CD, operator:ada]",
    )
    yield 0 < policy.max_hours <= policy.max_hours_ever, "max_hours must be above 0 and at most max_hours_ever"
    yield (
        0 < policy.break_glass_hours <= policy.max_hours,
        "break_glass_hours must be above 0 and at most max_hours",
    )
    signed = bool(policy.auto_approve_signed_by.strip() and policy.auto_approve_until)
    yield (
        policy.auto_approve_below_usd is None or signed,
        "auto_approve_below_usd needs auto_approve_signed_by and auto_approve_until: a person is responsible",
    )
    yield (
        all(0 < share <= 1 for share in policy.budget_thresholds),
        "budget_thresholds must lie between 0 and 1",
    )
    yield (
        all(0 < share <= 1 for shares in policy.budget_own_thresholds.values() for share in shares),
        "budget_own_thresholds must lie between 0 and 1",
    )
    yield (
        policy.budget_own_thresholds.keys() <= policy.budgets.keys(),
        "budget_own_thresholds names a budget that `budgets` does not list",
    )


def _about_machines(policy: Policy) -> Iterator[tuple[bool, str]]:
    """Check each rule about what is rented, in the same way."""
    yield policy.checkpoint_unverified in ("keep", "destroy"), "checkpoint_unverified must be keep or destroy"
    yield "default" in policy.idle_s, "idle_s needs an entry `default`, for example 1800"
    yield (
        all(one in ("cpu", "network", "login") for needs in policy.idle_also_needs.values() for one in needs),
        "idle_also_needs lists cpu, network and login, for example notebook: [login, cpu]",
    )
    yield "default" in policy.min_disk_gb, "min_disk_gb needs an entry `default`, for example 50"
    yield "default" in policy.default_image, "default_image needs an entry `default`"
    yield (
        all(read_range(text) for text in policy.image_capabilities.values()),
        "image_capabilities needs a range for each image, for example 5.0-9.0",
    )
    yield (
        all(read_cuda(text) for text in policy.image_cuda.values()),
        "image_cuda needs a CUDA version for each image, for example 12.8",
    )
    yield (
        all(read_vendor(text) for text in policy.image_vendor.values()),
        "image_vendor needs NVIDIA or AMD for each image",
    )
    yield (
        all(read_cuda(text) for text in policy.gpu_capabilities.values()),
        "gpu_capabilities needs a compute capability for each GPU, for example 9.0",
    )
    yield (
        all(re.fullmatch(r"[a-z]+:\S+", host) for host in policy.blocked_hosts),
        "blocked_hosts needs the cloud and the id of each host, for example vast:51234",
    )
    yield (
        all(re.fullmatch(r"[A-Za-z]{2}", country) for country in policy.blocked_countries),
        "blocked_countries needs two letters for each, for example CN",
    )
