"""Kaggle's profile has the shape of every other and agrees with the adapter."""

from __future__ import annotations

from providers.clouds.kaggle.adapter import CAPABILITIES
from providers.profiles import model

PAGE = model.FOLDER / "kaggle.md"


def test_the_profile_is_right_and_its_links_lead_somewhere() -> None:
    assert model.lint(PAGE, CAPABILITIES) == []


def test_the_profile_says_that_there_is_no_cancel() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert "there is no stop and no cancel" in text
    assert "never above the hours granted" in text
