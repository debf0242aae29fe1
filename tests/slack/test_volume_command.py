"""`/gpu volume`: the card, the list, more time and the question before the deletion, as people see them."""

from __future__ import annotations

from bot.practice.reader import all_text, buttons
from ledger.engine.db import Database
from ledger.kernel.states import SessionState
from tests.slack.conftest import Stage, staged, words_before_the_buttons
from tests.slack.test_commands import header_of, private
from tests.support.clock import SteppedClock

CREATE = "/gpu volume create data 200GB cloud=runpod region=US-KS-2 for=2d the corpus"


async def made(stage: Stage) -> None:
    message = await stage.ask(CREATE)
    assert header_of(message) == "200 GB volume data for 2 days"
    told = all_text(message)
    for part in (
        "RunPod · US-KS-2",
        "$0.019/h",
        "about $0.93",
        "deleted at its end",
        "the same when no machine uses it",
    ):
        assert part in told, told
    assert "12-hour" not in told
    assert "SSH key" not in told
    assert words_before_the_buttons(message) <= 60
    await stage.click("bob", message, stage.approve_button(message))
    await stage.w.run(60)


async def test_a_volume_from_its_card_to_its_deletion(sqlite_db: Database, clock: SteppedClock) -> None:
    async with staged(sqlite_db, clock, volumes=True) as stage:
        await stage.command("alice", "/gpu volume list")
        assert "You have no network volumes." in private(stage, "alice").text
        await made(stage)
        direct = all_text(stage.ws.channel_messages(stage.ws.dm_id("alice"))[-1])
        assert "volume data" in direct
        assert "Mount it with `volume=data`" in direct
        assert "/volumes/data" in direct
        await stage.command("alice", "/gpu volume list")
        listed = all_text(private(stage, "alice"))
        for part in ("*data* 200 GB", "RunPod US-KS-2 $0.019/h", "running", "deleted"):
            assert part in listed, listed
        await stage.command("alice", "/gpu volume extend data 7d")
        assert "Asked for 168 hours more" in private(stage, "alice").text
        await stage.command("alice", "/gpu volume delete nothing")
        assert "You have no volume “nothing”. Your volumes: data." in private(stage, "alice").text
        await stage.command("alice", "/gpu volume delete data")
        question = private(stage, "alice")
        assert "Everything in the volume will be deleted." in all_text(question)
        (end,) = (str(one["action_id"]) for one in buttons(question))
        assert (await stage.w.books()).sessions[0].state is SessionState.RUNNING
        await stage.click("alice", question, end)
        await stage.w.run(300, 20)
        assert (await stage.w.books()).sessions[0].state is SessionState.TERMINATED


async def test_a_cloud_without_volumes_is_refused_at_once(sqlite_db: Database, clock: SteppedClock) -> None:
    async with staged(sqlite_db, clock, volumes=True) as stage:
        await stage.command("alice", "/gpu volume create data 200GB cloud=vast")
        assert "vast has no network volumes. These have them: runpod, lambda." in private(stage, "alice").text
