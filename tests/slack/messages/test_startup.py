"""The start-up of a job on its card: one line, edited when a step comes to another state and not each minute."""

from __future__ import annotations

from typing import Any

from bot.api.views import session_out
from bot.cli.terminal.views import session_details
from bot.practice.reader import all_text
from bot.rules.access.sight import Sight
from tests.slack.conftest import Stage, words_before_the_buttons
from tests.support.agents import agent, listening, pass_time

NAMES = ("environment", "packages", "repo", "run")


def steps(*states: str, seconds: int = 0) -> dict[str, Any]:
    """What an agent reports of its start-up; a step that runs has run for so many seconds."""
    shown = [
        {"name": name, "state": state, "seconds": seconds if state == "running" else 18 if state == "done" else 0}
        for name, state in zip(NAMES, states, strict=True)
    ]
    return {"steps": [one | {"exit_code": 128} if one["state"] == "failed" else one for one in shown]}


def edits(stage: Stage) -> int:
    """How often the card was edited."""
    ts = stage.message().ts
    return sum(call["ts"] == ts for call in stage.calls("chat.update"))


async def reports(stage: Stage, machine: dict[str, Any]) -> str:
    """The card after the agent's next check-in."""
    agent(stage.w).machine = machine
    await pass_time(stage.w, 61)
    return all_text(stage.message())


async def started(stage: Stage) -> None:
    """A session whose job has a repository and a command, and whose agent reports."""
    card = await stage.ask("/gpu provision 1x4090 2h cloud=vast repo=https://github.com/org/project@main")
    await stage.click("bob", card, stage.approve_button(card))
    await stage.w.run(60, 20)
    assert "*Ready*" in all_text(stage.message())


async def test_the_card_follows_the_steps_and_is_edited_when_one_changes(stage: Stage) -> None:
    async with listening(stage.w):
        await started(stage)
        before = edits(stage)
        card = await reports(stage, steps("done", "running", "waiting", "waiting", seconds=41))
        assert "Start-up: installing packages, 41 s." in card
        assert words_before_the_buttons(stage.message()) <= 60
        assert edits(stage) == before + 1
        for seconds in (101, 161):
            await reports(stage, steps("done", "running", "waiting", "waiting", seconds=seconds))
        assert edits(stage) == before + 1
        assert "fetching the repository, 5 s." in await reports(
            stage, steps("done", "done", "running", "waiting", seconds=5)
        )
        assert "Start-up done in 1 min 12 s." in await reports(stage, steps("done", "done", "done", "done"))
        assert words_before_the_buttons(stage.message()) <= 60
        assert edits(stage) == before + 3
        (session,) = (await stage.w.books()).sessions
        view = await stage.w.session(session.id)
        out = session_out(stage.ctx, view, stage.w.clock.now(), Sight.OWN)
        assert out.agent is not None
        assert out.agent.startup == "Start-up done in 1 min 12 s"
        assert "Start-up done in 1 min 12 s." in session_details(out).sentences
        await stage.command("alice", f"/gpu terminate {session.short_id} now")
        await stage.w.run(300, 50)
        assert "Start-up" not in all_text(stage.message())


async def test_a_failed_step_stays_on_the_card(stage: Stage) -> None:
    async with listening(stage.w):
        await started(stage)
        card = await reports(stage, steps("done", "done", "failed", "skipped"))
        assert "Start-up failed at repo (exit 128)." in card
        assert words_before_the_buttons(stage.message()) <= 60


async def test_a_name_of_a_step_mentions_nobody(stage: Stage) -> None:
    async with listening(stage.w):
        await started(stage)
        card = await reports(stage, {"steps": [{"name": ":x: a", "state": "running"}]})
        assert "Start-up: " in card
        assert words_before_the_buttons(stage.message()) <= 60


async def test_a_machine_without_a_start_up_has_no_line(stage: Stage) -> None:
    async with listening(stage.w):
        await started(stage)
        before = edits(stage)
        assert "Start-up" not in await reports(stage, {"driver": "570.1"})
        assert edits(stage) == before
