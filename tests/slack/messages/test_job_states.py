"""The state of a job in Slack: on the card of its request, in the list, in its status and in the history."""

from __future__ import annotations

from typing import Any

from bot.practice.reader import all_text
from tests.slack.conftest import Stage, words_before_the_buttons
from tests.slack.test_commands import private
from tests.support.agents import agent, listening, pass_time


def startup(run: str) -> dict[str, Any]:
    return {"steps": [{"name": "environment", "state": "done"}, {"name": "run", "state": run}]}


async def card(stage: Stage) -> str:
    """The card after the agent's next check-in."""
    await pass_time(stage.w, 61)
    assert words_before_the_buttons(stage.message()) <= 60
    return all_text(stage.message())


async def answer(stage: Stage, command: str) -> str:
    """What somebody reads who types this."""
    await stage.command("alice", command)
    return all_text(private(stage, "alice"))


async def test_a_job_is_followed_from_its_card_its_list_and_its_status(stage: Stage) -> None:
    async with listening(stage.w):
        asked = await stage.ask('/gpu provision 1x4090 2h cloud=vast run="python train.py"')
        await stage.click("bob", asked, stage.approve_button(asked))
        await stage.w.run(60, 20)
        agent(stage.w).machine = startup("running")
        assert "Start-up: starting the command" in await card(stage)
        agent(stage.w).machine = startup("done")
        assert "Job: running." in await card(stage)
        agent(stage.w).job = "saving"
        assert "Job: saving." in await card(stage)
        (session,) = (await stage.w.books()).sessions
        assert "job saving" in await answer(stage, "/gpu list")
        assert "Job: *saving*." in await answer(stage, f"/gpu status {session.short_id}")
        agent(stage.w).job, agent(stage.w).job_exit_code = "failed", 3
        assert "Job: failed (exit code 3)." in await card(stage)
        await pass_time(stage.w, 200)
        await stage.w.run(300, 50)
        assert "Job: failed (exit code 3)." in all_text(stage.message())
        assert "job failed (exit code 3)" in await answer(stage, "/gpu history")
