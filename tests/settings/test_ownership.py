"""Files that decide who spends: only root and the user of this process may be able to change them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bot.settings.ownership import ChangeableByOthers, read_guarded

SOMEBODY = 4242


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yml"
    path.write_text("policy: {}\n")
    path.chmod(0o644)
    tmp_path.chmod(0o755)
    return path


def test_a_file_that_only_its_owner_changes_is_read(policy: Path) -> None:
    assert read_guarded(policy) == "policy: {}\n"


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646, 0o602])
def test_a_file_that_others_can_write_is_refused_with_the_command_that_mends_it(policy: Path, mode: int) -> None:
    policy.chmod(mode)
    with pytest.raises(ChangeableByOthers, match=rf"mode {mode:04o}.*; run: chmod go-w {policy}$"):
        read_guarded(policy)


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_folder_in_which_others_can_replace_the_file_is_refused(policy: Path, mode: int) -> None:
    policy.parent.chmod(mode)
    with pytest.raises(ChangeableByOthers, match=f"chmod go-w {policy.parent}$"):
        read_guarded(policy)


def test_in_a_sticky_folder_only_its_owner_replaces_a_file(policy: Path) -> None:
    policy.parent.chmod(0o1777)
    assert read_guarded(policy)


def test_the_folder_of_a_link_and_of_what_it_names_both_count(policy: Path, tmp_path: Path) -> None:
    loose = tmp_path / "loose"
    loose.mkdir()
    link = loose / "policy.yml"
    link.symlink_to(policy)
    assert read_guarded(link)
    loose.chmod(0o777)
    with pytest.raises(ChangeableByOthers, match=str(loose)):
        read_guarded(link)


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_every_folder_above_counts_because_whoever_can_write_there_replaces_the_next_one(
    policy: Path, mode: int
) -> None:
    deep = policy.parent / "loose" / "etc" / "shop" / "policy.yml"
    deep.parent.mkdir(parents=True)
    deep.write_text("policy: {}\n")
    assert read_guarded(deep)
    loose = policy.parent / "loose"
    loose.chmod(mode)
    with pytest.raises(ChangeableByOthers, match=f"mode {mode:04o}.*; run: chmod go-w {loose}$"):
        read_guarded(deep)
    loose.chmod(mode | 0o1000)
    assert read_guarded(deep)


def others(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Make a path somebody else's. Only root can give one away; for another user, everybody else becomes this one."""
    if os.geteuid() == 0:
        os.chown(path, SOMEBODY, -1, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: SOMEBODY)


def test_in_a_sticky_folder_others_replace_what_is_theirs(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sticky = policy.parent / "tmp"
    theirs = sticky / "theirs"
    theirs.mkdir(parents=True)
    sticky.chmod(0o1777)
    (theirs / "policy.yml").write_text("policy: {}\n")
    assert read_guarded(theirs / "policy.yml")
    others(monkeypatch, theirs)
    with pytest.raises(ChangeableByOthers, match="belongs to user"):
        read_guarded(theirs / "policy.yml")


def test_the_owner_of_a_sticky_folder_replaces_everything_in_it(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy.parent.chmod(0o1777)
    assert read_guarded(policy)
    others(monkeypatch, policy.parent)
    with pytest.raises(ChangeableByOthers, match="belongs to user"):
        read_guarded(policy)


def test_a_link_of_another_user_is_refused_wherever_it_is_on_the_way(
    policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (policy.parent / "real").mkdir()
    (policy.parent / "real" / "policy.yml").write_text("policy: {}\n")
    link = policy.parent / "now"
    link.symlink_to(Path("real") / ".." / "real")
    assert read_guarded(link / "policy.yml")
    others(monkeypatch, link)
    with pytest.raises(ChangeableByOthers, match="belongs to user"):
        read_guarded(link / "policy.yml")


def test_what_leads_to_the_folder_of_a_link_counts_too(policy: Path) -> None:
    loose = policy.parent / "loose"
    (loose / "real").mkdir(parents=True)
    (loose / "real" / "policy.yml").write_text("policy: {}\n")
    link = policy.parent / "policy-now.yml"
    link.symlink_to(loose / "real" / "policy.yml")
    assert read_guarded(link)
    loose.chmod(0o777)
    with pytest.raises(ChangeableByOthers, match=f"chmod go-w {loose}$"):
        read_guarded(link)


def test_a_file_of_another_user_is_refused(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = policy.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: SOMEBODY)
    if owner == 0:  # Root's file is good for every user.
        assert read_guarded(policy)
        os.chown(policy, SOMEBODY + 1, -1)
    with pytest.raises(ChangeableByOthers, match="belongs to user"):
        read_guarded(policy)
