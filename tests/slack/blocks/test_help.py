"""`/gpu help` by subject, and `/gpu profile` in ten lines."""

from __future__ import annotations

import pytest

from bot.rules.grammar.commands import SUBCOMMANDS
from bot.slack.blocks.help import SUBJECTS, overview
from bot.slack.blocks.profile import profile
from providers.registry import REGISTRY
from tests.slack.blocks.test_blocks_hostile import check


def lines(blocks: tuple[dict[str, object], ...]) -> list[str]:
    """The lines that are shown, without the heading of the message."""
    texts: list[str] = []
    for block in blocks:
        parts = [block.get("text"), *(block.get("elements") or ())]  # type: ignore[misc] # Blocks are JSON.
        texts += [str(part["text"]) for part in parts if isinstance(part, dict) and "text" in part]
    return [line for text in texts for line in text.splitlines()]


def test_help_lists_every_command_once_under_its_subject() -> None:
    assert sorted(name for names in SUBJECTS.values() for name in names) == sorted(sub.name for sub in SUBCOMMANDS)
    shown = overview("/gpu")
    check(shown)
    said = lines(shown.blocks)
    assert [line.strip("*") for line in said if line.startswith("*")] == list(SUBJECTS)
    for sub in SUBCOMMANDS:
        assert sum(f"/gpu {sub.usage}`" in line for line in said) == 1, sub.name


def test_help_on_provision_lists_the_presets_of_the_policy() -> None:
    presets = {f"p{number}": f"{number}xH100 6h <@U1>" for number in range(1, 13)}
    shown = overview("/gpu", "provision", presets)
    check(shown)
    said = lines(shown.blocks)
    assert "`/gpu provision preset=p1` 1xH100 6h" in "\n".join(said)
    assert "<@U1>" not in "\n".join(said)
    assert said[said.index("*Presets of your team*") + 11] == "2 more presets in the form: `/gpu provision`"
    for topic, named in (("provision", {}), ("plan", presets)):
        assert "*Presets of your team*" not in lines(overview("/gpu", topic, named).blocks)


@pytest.mark.parametrize("cloud", REGISTRY)
def test_a_profile_is_ten_lines(cloud: str) -> None:
    shown = profile(cloud)
    check(shown)
    assert len(lines(shown.blocks)) <= 10
    assert "profiles show" in shown.blocks[-1]["elements"][0]["text"]
