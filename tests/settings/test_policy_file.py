"""The policy file: what it says is believed only when every key and value is right."""

from __future__ import annotations

from dataclasses import fields
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from bot.rules.policy.policy import Policy
from bot.rules.policy.timing import Timing
from bot.rules.policy.validation import RENAMED
from bot.settings import PolicyFileError, read_policy_file
from bot.settings.policy_file import SECTIONS, example_of


def write(folder: Path, text: str) -> Path:
    path = folder / "policy.yml"
    path.write_text(text, encoding="utf-8")
    return path


def test_no_file_and_an_empty_file_are_every_default(tmp_path: Path) -> None:
    for path in (None, write(tmp_path, ""), write(tmp_path, "policy:\ntiming: {}\n")):
        found = read_policy_file(path)
        assert (found.policy, found.timing) == (Policy(), Timing())


def test_values_are_laid_over_the_defaults(tmp_path: Path) -> None:
    text = """
policy:
  approvers: [U1, "operator:ada"]
  max_hours: 6.5
  price_tolerance: 1.1
  two_approvers_above_usd: 500
  failover: no
  min_disk_gb: {default: 80}
timing:
  sweep_s: 45
"""
    found = read_policy_file(write(tmp_path, text))
    assert found.policy.approvers == ("U1", "operator:ada")
    assert found.policy.max_hours == Decimal("6.5")
    assert found.policy.price_tolerance == Decimal("1.1")
    assert found.policy.two_approvers_above_usd == Decimal(500)
    assert found.policy.failover is False
    assert dict(found.policy.min_disk_gb) == {"default": 80}
    assert found.timing.sweep_s == 45


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "policy: {max_hourz: 3}",
            r":1: `max_hourz` is not .*; did you mean max_hours\? Example: max_hours: 12",
        ),
        (
            "policy:\n  drift_answer_s: 60",
            r":2: `drift_answer_s` is now called `overspend_answer_s`; rename it\. Example: overspend_answer_s: 900$",
        ),
        (
            "policy:\n  overspend_tolerance: 0.2",
            r":2: `overspend_tolerance` is part of `price_tolerance` now; delete it\. Example: price_tolerance: 1.1$",
        ),
        ("policy: {zzz: 3}", r":1: `zzz` is not a setting; docs/policy.md"),
        ("policy:\n  max_hours: twelve", r":2: max_hours: .*'twelve'.*Example: max_hours: 12"),
        ("policy:\n  approvers: U1", r":2: approvers: .*Example: approvers: \[U012AB3CD\]"),
        ("policy: {max_gpus: true}", r":1: max_gpus: a yes or no does not belong here"),
        ("policy: {failover: maybe}", r":1: failover: .*Example: failover: true"),
        ("policy: {max_hours: 1, max_hours: 2}", r":1: `max_hours` is there twice"),
        ("policy: {max_hours: 0}", r"max_hours must be above 0"),
        ("policy: {max_gpus: 2026-99-99x}", r":1: max_gpus"),
        ("policy: {request_ttl_s: 2026-13-45}", r":1: request_ttl_s"),
        ("timing: {sweep_s: 1}", r"sweep_s is 1, but 10 is the least"),
        ("polcy: {}", r":1: `polcy` is not a section; .* policy and timing"),
        ("- policy", r":1: expected `key: value`"),
        ("policy: [", r"this is not YAML"),
    ],
)
def test_a_mistake_is_named_with_file_line_and_example(tmp_path: Path, text: str, says: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(PolicyFileError, match=says) as refused:
        read_policy_file(path)
    assert str(refused.value).startswith(str(path))


def test_a_missing_or_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyFileError, match=r"absent\.yml: the policy file cannot be read"):
        read_policy_file(tmp_path / "absent.yml")
    binary = tmp_path / "binary.yml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PolicyFileError, match="cannot be read"):
        read_policy_file(binary)


def test_practice_lifts_the_floors(tmp_path: Path) -> None:
    path = write(tmp_path, "timing: {sweep_s: 0.5}")
    assert read_policy_file(path, practice=True).timing.sweep_s == 0.5


#: Somebody answers for an automatic approval, so these three are right only together.
TOGETHER = ("auto_approve_below_usd", "auto_approve_signed_by", "auto_approve_until")


def test_every_example_is_itself_right(tmp_path: Path) -> None:
    (tmp_path / "instance_profiles.yaml").write_text("moe: {gpu: A100}")
    for section, kind in SECTIONS.items():
        for name, item in kind.__dataclass_fields__.items():
            partners = [kind.__dataclass_fields__[one] for one in TOGETHER if name == TOGETHER[0] and one != name]
            partners += [kind.__dataclass_fields__["budgets"]] if name == "budget_own_thresholds" else []
            lines = [example_of(one) for one in (item, *partners)]
            read_policy_file(write(tmp_path, "\n  ".join([f"{section}:", *lines]) + "\n"))


def test_an_automatic_approval_is_signed_for_until_a_day(tmp_path: Path) -> None:
    signed = "auto_approve_below_usd: 5, auto_approve_signed_by: U012AB3CD"
    with pytest.raises(PolicyFileError, match="auto_approve_until"):
        read_policy_file(write(tmp_path, f"policy: {{{signed}}}"))
    read = read_policy_file(write(tmp_path, f"policy: {{{signed}, auto_approve_until: 2026-12-31}}")).policy
    assert read.auto_approve_until == date(2026, 12, 31)


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_a_setting_under_its_old_name_is_refused_with_the_new_one(tmp_path: Path, old: str, new: str) -> None:
    (section,) = (name for name, kind in SECTIONS.items() if new in {item.name for item in fields(kind)})
    with pytest.raises(PolicyFileError, match=f":1: `{old}` is now called `{new}`; rename it"):
        read_policy_file(write(tmp_path, f"{section}: {{{old}: 1}}"))
