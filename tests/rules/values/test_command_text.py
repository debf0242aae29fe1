"""A command in a sentence is the one that its reader can type, and a state has one name everywhere."""

from __future__ import annotations

import pytest

from bot.rules.values.command_text import cli_command, in_slack
from bot.rules.values.state_text import state_words, words_of
from bot.slack.blocks.elements import safe
from ledger.kernel.states import (
    GrantState,
    InstanceState,
    NotificationState,
    OrphanState,
    RequestState,
    SessionState,
)


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("shutdown 4k7m2p", "`/gpu terminate 4k7m2p`"),
        ("extend 4k7m2p 2h", "`/gpu extend 4k7m2p 2h`"),
        ("sessions", "`/gpu list`"),
        ("ssh-key show", "`/gpu key list`"),
        ("ssh-key add ssh-ed25519 AAAA", "`/gpu key add ssh-ed25519 AAAA`"),
        ("orphans condemn str_1", "`gpu-shopper orphans condemn str_1`"),
    ],
)
def test_slack_shows_its_own_command_where_it_has_one(typed: str, shown: str) -> None:
    sentence = f"Changed your mind? {cli_command(typed)}."
    assert sentence == f"Changed your mind? `gpu-shopper {typed}`."
    assert safe(sentence) == f"Changed your mind? {shown}."


def test_the_slash_command_may_have_another_name_and_other_text_stays() -> None:
    assert in_slack(cli_command("cancel ID"), "/rent") == "`/rent cancel ID`"
    assert safe("gpu-shopper is `not` a command") == "gpu-shopper is ʼnotʼ a command"


def test_every_state_has_its_words() -> None:
    machines = (RequestState, GrantState, SessionState, InstanceState, OrphanState, NotificationState)
    for machine in machines:
        words = [words_of(machine, state) for state in machine]
        assert len(set(words)) == len(words)
        assert words == [state_words(state) for state in machine]
    assert state_words(SessionState.TERMINATING) == "ending"
    assert (words_of(OrphanState, "seen"), words_of(OrphanState, "asleep")) == ("found", "asleep")
