"""Edits of the policy file: noticed once each, whether they are good or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.settings import PolicyFileError, PolicyNotGuarded
from bot.settings.policy_watch import PolicyWatch


def test_each_edit_is_noticed_once(tmp_path: Path) -> None:
    path = tmp_path / "policy.yml"
    path.write_text("policy: {max_hours: 12}\n")
    watch = PolicyWatch(path)
    assert watch.edited() is None
    path.write_text("policy: {max_hours: 6.5}\n")
    found = watch.edited()
    assert found is not None
    assert str(found.policy.max_hours) == "6.5"
    assert watch.edited() is None


@pytest.mark.parametrize("text", ["policy: {max_hours: 12", "policy: {max_hourz: 12}\n", None])
def test_a_broken_edit_is_reported_once_and_mended_by_the_next(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "policy.yml"
    path.write_text("policy: {max_hours: 12}\n")
    watch = PolicyWatch(path)
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(PolicyFileError, match=r"policy\.yml"):
        watch.edited()
    assert watch.edited() is None
    path.write_text("policy: {max_hours: 9}\n")
    found = watch.edited()
    assert found is not None
    assert found.policy.max_hours == 9


def test_without_a_file_there_are_no_edits() -> None:
    assert PolicyWatch(None).edited() is None


def test_a_file_that_others_can_change_now_is_reported_once_and_mended_by_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "policy.yml"
    path.write_text("policy: {max_hours: 12}\n")
    watch = PolicyWatch(path)
    path.chmod(0o666)
    with pytest.raises(PolicyNotGuarded, match="mode 0666"):
        watch.edited()
    assert watch.edited() is None
    path.chmod(0o644)
    found = watch.edited()
    assert found is not None
    assert found.policy.max_hours == 12


def test_the_profiles_that_the_policy_names_are_guarded_like_it(tmp_path: Path) -> None:
    path, profiles = tmp_path / "policy.yml", tmp_path / "profiles.yaml"
    path.write_text("policy: {instance_profiles: profiles.yaml}\n")
    profiles.write_text("moe: {gpu: 8xRTX3090, disk: 64GB, configs: [a.yaml]}\n")
    watch = PolicyWatch(path)
    profiles.chmod(0o666)
    with pytest.raises(PolicyNotGuarded, match=r"profiles\.yaml has mode 0666"):
        watch.edited()
