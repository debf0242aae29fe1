"""A machine that is held for its checkpoint, as its owner is asked about it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from bot.practice.reader import all_text, buttons
from bot.services.market.catalog import Catalog
from ledger.kernel.checkpoint_step import CheckpointStep
from ledger.models import Instance
from tests.slack.conftest import Stage
from tests.slack.messages.test_more_time import action, session
from tests.support.stores import Shelf, served

LINE = "/gpu provision 1xRTX4090 2h cloud=tensordock checkpoint=s3://bucket/run"


async def row_of(stage: Stage) -> Instance:
    return (await stage.w.books()).instances[0]


async def test_the_owner_reads_what_is_approved_for_a_hold_and_answers_when_it_comes(stage: Stage) -> None:
    ctx = stage.ctx
    async with served(Shelf()) as stores:
        catalog = Catalog(ctx.providers, ctx.clock, ctx.timing.offers_timeout_s, stores=tuple(stores.secrets))
        policy = replace(ctx.policy, checkpoint_places=("s3://bucket",))
        await stage.restart(replace(ctx, catalog=catalog, checkpoints=stores, policy=policy))
        asked = await stage.ask(LINE)
        stage.w.clock.advance(2)
        await stage.settle()
        details = all_text(stage.ws.thread(asked)[0])
        assert "keeps running for 2 hours at most. The price includes that." in details
        await stage.click("bob", asked, stage.approve_button(asked))
        await stage.w.run(40, 20)
        end = (await session(stage)).deadline
        assert end is not None
        stage.w.clock.advance(end - stage.w.clock.now() - timedelta(seconds=10))
        await stage.settle()
        stage.w.clock.advance(11)
        await stage.settle()
        saving = stage.ws.dm_messages("alice")[-1]
        assert "saves a checkpoint before it ends" in all_text(saving)
        assert [b["text"]["text"] for b in buttons(saving)] == ["I saved it", "Ask for an extension…", "End anyway"]
        stage.w.clock.advance(601)
        await stage.settle()
        held = stage.ws.dm_messages("alice")[-1]
        assert "(1 h 50 min left)" in all_text(held)
        assert buttons(stage.ws.now(saving)) == []
        # What an old message offered changes nothing, and its person is told so.
        await stage.click("alice", saving, action(saving, "held_let_go"))
        assert (await row_of(stage)).checkpoint_step == CheckpointStep.HELD
        assert "nothing was changed" in all_text(stage.ws.dm_messages("alice")[-1])
        await stage.click("alice", held, action(held, "held_saved"))
        assert ((await row_of(stage)).checkpoint_step, stage.w.alive()) == (CheckpointStep.RELEASED, [])
        assert buttons(stage.ws.now(held)) == []
