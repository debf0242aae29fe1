"""The one sentence about recovery."""

from __future__ import annotations

from bot.rules.recovering import held


def test_it_says_what_waits_and_which_commands_end_it() -> None:
    assert held(0) == ""
    assert "1 instance carries our label" in held(1)
    assert "2 instances carry our label" in held(2)
    for unknown in (1, 2):
        assert "gpu-shopper adopt or gpu-shopper strays condemn for" in held(unknown)
