"""A policy that is not usable says which setting is wrong, and what a right one looks like."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from bot.rules.policy.policy import Policy
from bot.rules.policy.validation import validated


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"price_tolerance": Decimal("0.9")}, "price_tolerance"),
        ({"max_hours": Decimal(0)}, "max_hours"),
        ({"checkpoint_places": ("bucket/run",)}, "checkpoint_places"),
        ({"checkpoint_places": ("s3://bucket/../payroll",)}, "checkpoint_places"),
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
        ({"image_cuda": {"x": "cu124"}}, "image_cuda"),
        ({"image_vendor": {"x": "Intel"}}, "image_vendor"),
        ({"gpu_capabilities": {"X9000": "sm_90"}}, "gpu_capabilities"),
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
        validated(replace(Policy(), **change))
