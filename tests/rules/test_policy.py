"""The policy's own checks, and the floors below which production refuses to run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
import yaml

from bot.rules.bounds import RANGES
from bot.rules.policy import Policy, Timing


def test_the_defaults_are_valid_and_documented() -> None:
    assert Policy().validated() == Policy()
    assert Timing().validated() == Timing()
    for kind in (Policy, Timing):
        assert all(item.metadata["doc"].strip().endswith((".", "}.")) for item in fields(kind))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"price_tolerance": Decimal("0.9")}, "price_tolerance"),
        ({"max_hours": Decimal(0)}, "max_hours"),
        ({"max_hours": Decimal(800)}, "max_hours_ever"),
        ({"confirm_above_usd": Decimal(-1)}, "confirm_above_usd"),
        ({"retry_buffer": Decimal(-1)}, "retry_buffer"),
        ({"egress_gb": Decimal(-1)}, "egress_gb"),
        ({"assumed_reliability": Decimal(2)}, "reliability"),
        ({"request_ttl_s": 0}, "request_ttl_s"),
        ({"remind_after_s": 0}, "remind_after_s"),
        ({"warn_before_end_s": (600, -1)}, "warn_before_end_s"),
        ({"fallback_contacts": ("ada",)}, "fallback_contacts"),
        ({"replacements": -1}, "replacements"),
        ({"options_shown": 0}, "options_shown"),
        ({"max_open_requests_per_user": 0}, "max_open_requests_per_user"),
        ({"max_reason_chars": 0}, "max_reason_chars"),
        ({"min_disk_gb": {"moe": 64}}, "min_disk_gb"),
        ({"default_image": {}}, "default_image"),
        ({"image_capabilities": {"x": "cu124"}}, "image_capabilities"),
        ({"image_capabilities": {"x": "9.0-5.0"}}, "image_capabilities"),
        ({"blocked_hosts": ("51234",)}, "blocked_hosts"),
        ({"blocked_countries": ("China",)}, "blocked_countries"),
        ({"same_person": (("U012AB3CD",),)}, "same_person"),
        ({"same_person": (("U012AB3CD", "ada"),)}, "same_person"),
        ({"name_template": "{bad}"}, r"name_template does not know \{bad\}.*for example \{project\}"),
        ({"approvers": ("<!channel>",)}, r"approvers .*'<!channel>'.*for example \[U012AB3CD"),
        ({"approvers": ("@bob",)}, "approvers"),
        ({"may_approve_not_pinged": ("U012AB3CD", "bob")}, "may_approve_not_pinged"),
        ({"never_approve": ("",)}, "never_approve"),
        ({"approver_groups": ("U012AB3CD",)}, "approver_groups"),
        ({"min_disk_gb": {"default": -5}}, "min_disk_gb .*for example 50"),
        ({"min_disk_gb": {"default": 50, "moe": 0}}, "min_disk_gb"),
        ({"price_tolerance": Decimal("NaN")}, "price_tolerance"),
        ({"retry_buffer": Decimal("Infinity")}, "retry_buffer"),
        ({"max_hours_ever": float("nan")}, "max_hours_ever"),
        ({"max_gpus": "8"}, "max_gpus"),
        ({"warn_before_end_s": (600, 99_999_999_999_999)}, r"warn_before_end_s .*for example \[3600, 600\]"),
    ],
)
def test_an_unusable_policy_names_the_setting(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        replace(Policy(), **change).validated()


@pytest.mark.parametrize("name", RANGES)
def test_every_number_has_a_least_and_a_most_and_says_a_right_one(name: str) -> None:
    default, allowed = getattr(Policy(), name), RANGES[name]
    right = yaml.safe_load(allowed.example)
    for value in (allowed.least - 1, allowed.most + 1, 10**15, -(10**15)):
        wrong: dict[str, Any] = {name: value}
        if isinstance(default, Mapping | tuple):
            wrong = {name: {"default": value} if isinstance(default, Mapping) else (value,)}
        said = re.escape(f", for example {allowed.example}")
        with pytest.raises(ValueError, match=rf"{name} must lie between .*{said}"):
            replace(Policy(), **wrong).validated()
    assert all(map(allowed.holds, right if isinstance(right, list) else [right]))


def test_every_number_of_the_policy_has_a_range() -> None:
    kinds = (int, Decimal, float)
    numbers = {
        item.name
        for item in fields(Policy)
        if isinstance(value := getattr(Policy(), item.name), kinds) and not isinstance(value, bool)
    }
    assert numbers <= set(RANGES)


@pytest.mark.parametrize("practice", [False, True])
@pytest.mark.parametrize("value", [1e14, float("inf")])
def test_a_time_beyond_reason_is_refused(practice: bool, value: float) -> None:
    with pytest.raises(ValueError, match=r"terminate_page_s is \S+, but must be at most"):
        replace(Timing(), terminate_page_s=value).validated(practice=practice)


def test_the_disk_is_at_least_the_minimum_of_the_workload() -> None:
    policy = Policy()
    assert policy.disk_gb("moe", None) == 64
    assert policy.disk_gb("MoE", 10) == 64
    assert policy.disk_gb("training", None) == 50
    assert policy.disk_gb("training", 200) == 200


def test_the_image_falls_back_from_stack_to_cloud_to_default() -> None:
    policy = Policy(default_image={"default": "a", "runpod": "b", "runpod/jax": "c"})
    assert [policy.image("runpod", "jax"), policy.image("runpod"), policy.image("vast", "jax")] == ["c", "b", "a"]


def test_the_default_images_say_what_they_support() -> None:
    policy = Policy()
    assert set(policy.default_image.values()) <= set(policy.image_capabilities)
    vast, runpod = policy.image("vast"), policy.image("runpod")
    assert (vast, runpod) == (
        "pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel",
        "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404",
    )
    assert policy.capabilities_of(vast) == (Decimal("5.0"), Decimal("9.0"))
    assert policy.capabilities_of(runpod) == (Decimal("7.0"), Decimal("12.0"))
    assert policy.capabilities_of("nobody/knows") is None


@pytest.mark.parametrize("name", [item.name for item in fields(Timing)])
def test_every_floor_holds_in_production_and_only_there(name: str) -> None:
    changes: dict[str, Any] = {name: 0.01}
    quick = replace(Timing(), **changes)
    with pytest.raises(ValueError, match=rf"{name} .* safe outside a practice workspace"):
        quick.validated()
    assert quick.validated(practice=True) is quick


@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_practice_still_needs_times_above_zero(value: float) -> None:
    with pytest.raises(ValueError, match=r"sweep_s .* above 0"):
        Timing(sweep_s=value).validated(practice=True)
    with pytest.raises(ValueError, match="sweep_s"):
        Timing(sweep_s=value).validated()


def test_the_absence_rule_is_the_ledgers() -> None:
    rule = Timing(absence_count=4, absence_apart_s=11, absence_over_s=70).absence_rule
    assert (rule.count, rule.apart, rule.over) == (4, timedelta(seconds=11), timedelta(seconds=70))
