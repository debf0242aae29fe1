"""A terminal's sentences: its own commands, the times of its zone, names of people, and ids that name nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
import typer

from bot.cli.command_table import COMMANDS
from bot.cli.lazy import imported
from bot.cli.terminal import options
from bot.cli.terminal.views import name_of
from bot.cli.terminal.wording import HERE, exact, for_terminal, moment
from bot.rules.grammar.commands import SUBCOMMANDS

NOW = datetime(2026, 3, 1, 14, 0, tzinfo=UTC)


@pytest.mark.parametrize("name", [sub.name for sub in SUBCOMMANDS])
def test_every_command_of_slack_is_a_command_here(name: str) -> None:
    _, word, *more = for_terminal(f"/gpu {name}").split()
    if word.startswith("-"):
        return
    assert word in COMMANDS
    assert set(more) <= set(getattr(imported(word), "commands", ()))


@pytest.mark.parametrize(("slack", "here"), HERE.items())
def test_a_command_that_differs_exists_here(slack: str, here: str) -> None:
    assert for_terminal(f"See /gpu {slack}.") == f"See gpu-shopper {here}."
    name, *below = here.split()
    assert name.startswith("-") or name in COMMANDS
    assert set(below) <= set(getattr(imported(name), "commands", ())) if below else True


@pytest.mark.parametrize(
    ("said", "here"),
    [
        ("Changed your mind? `/gpu terminate 4k7m2p`", "Changed your mind? `gpu-shopper shutdown 4k7m2p`"),
        ("/gpu list shows yours.", "gpu-shopper sessions shows yours."),
        ("/gpu extend 4k7m2p 2h", "gpu-shopper extend 4k7m2p 2h"),
        ("/gpu key list shows it", "gpu-shopper ssh-key list shows it"),
        ("https://example.com/gpu list", "https://example.com/gpu list"),
        ("The words of /gpu.", "The words of /gpu."),
    ],
)
def test_a_sentence_speaks_of_this_program(said: str, here: str) -> None:
    assert for_terminal(said) == here


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (NOW, "7:30 PM"),
        (NOW + timedelta(hours=5), "tomorrow 12:30 AM"),
        (NOW - timedelta(hours=20), "yesterday 11:30 PM"),
        (NOW + timedelta(days=3), "Mar 4, 7:30 PM"),
        (NOW - timedelta(days=100), "Nov 21 2025, 7:30 PM"),
    ],
)
def test_a_moment_is_said_in_the_zone_of_the_reader(at: datetime, said: str) -> None:
    assert moment(at, NOW, timezone(timedelta(hours=5, minutes=30))) == said


def test_a_time_in_a_sentence_is_local_and_exact_for_programs() -> None:
    assert "UTC" not in for_terminal("It ends 2026-03-01 14:45 UTC, or 2026-03-01 15:00:10 UTC.")
    assert datetime.fromisoformat(exact(NOW)) == NOW
    assert exact(None) == ""


def test_people_are_called_by_their_names() -> None:
    assert [name_of(one) for one in ("operator:ada", "slack:T1/UADA", "consumer:atlas", "-")] == [
        "ada",
        "UADA",
        "consumer:atlas",
        "-",
    ]


@pytest.mark.parametrize("typed", ["zzz", "../keys", "a b", "", "x" * 3])
def test_what_can_be_no_id_is_answered_with_where_ids_are(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        options.plain_id(typed, "sessions")
    assert ended.value.exit_code == 2
    assert " ".join(capsys.readouterr().err.split()) == f'No session "{typed}". Run `gpu-shopper sessions`.'
