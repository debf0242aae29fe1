"""Kaggle's profile has the shape of every other and agrees with the adapter."""

from __future__ import annotations

import shutil
from pathlib import Path

from providers import profile
from providers.clouds.kaggle import CAPABILITIES, adapter

PAGE = Path(adapter.__file__).with_name("profile.md")


def test_the_profile_is_right_and_its_links_lead_somewhere(tmp_path: Path) -> None:
    folder = tmp_path / "providers" / "clouds" / "kaggle"
    folder.mkdir(parents=True)
    shutil.copytree(profile.FOLDER, tmp_path / "providers" / "profiles")
    # A profile is called as its cloud; this one lies beside the adapter.
    page = folder / "kaggle.md"
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")

    assert profile.lint(page, CAPABILITIES) == []


def test_the_profile_says_that_there_is_no_cancel() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert "there is no stop and no cancel" in text
    assert "never above the hours granted" in text
