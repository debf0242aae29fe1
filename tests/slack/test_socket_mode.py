"""Socket Mode: the same door without an address of its own."""

from __future__ import annotations

from bot.practice.reader import all_text, buttons
from bot.slack.app import SlackApp
from tests.slack.conftest import Stage


async def connected(stage: Stage, count: int = 1) -> None:
    """Wait for the sockets."""
    await stage.ws.until(lambda: stage.practice.hub.count >= count)


async def test_the_walk_over_a_socket(socket_stage: Stage) -> None:
    await connected(socket_stage)
    message = await socket_stage.ask()
    await socket_stage.click("dave", message, socket_stage.approve_button(message))
    assert "Only approvers can do this" in socket_stage.ws.ephemerals("dave")[-1].text
    await socket_stage.click("bob", message, "reject")
    refused = await socket_stage.submit("bob", {"reason": " "})
    assert not refused.ok
    await socket_stage.submit("bob", {"reason": "too dear"})
    assert buttons(socket_stage.ws.now(message)) == []
    assert "too dear" in all_text(socket_stage.ws.now(message))


async def test_a_second_delivery_asks_once(socket_stage: Stage) -> None:
    await connected(socket_stage)
    socket_stage.fault("slash_commands", "duplicate", where="delivery")
    await socket_stage.ask()
    await socket_stage.settle()
    assert len((await socket_stage.w.books()).requests) == 1
    keys = [row.key for row in (await socket_stage.w.books()).inbox]
    assert len(keys) == 1
    assert keys[0].startswith("trigger:")


async def test_a_form_that_was_wrong_can_be_sent_again(socket_stage: Stage) -> None:
    await connected(socket_stage)
    await socket_stage.command("alice", "/gpu provision")
    form = socket_stage.ws.view("alice")
    assert form is not None
    await socket_stage.click("alice", form, "More options")
    refused = await socket_stage.submit("alice", {"max": "free"})
    assert not refused.ok
    await socket_stage.submit("alice", {"max": "$50"})
    assert len((await socket_stage.w.books()).requests) == 1


async def test_two_replicas_share_the_work(socket_stage: Stage) -> None:
    other = SlackApp(socket_stage.ctx, socket_stage.settings)
    await other.start()
    try:
        await connected(socket_stage, 2)
        for _ in range(4):
            await socket_stage.as_("alice").command("/gpu provision 1x4090 2h")
        await other.idle()
        await socket_stage.settle()
        assert len((await socket_stage.w.books()).requests) == 4
        assert len(socket_stage.ws.channel_messages()) == 4
    finally:
        await other.stop()


async def test_the_home_tab_over_a_socket(socket_stage: Stage) -> None:
    await connected(socket_stage)
    await socket_stage.as_("alice").open_home()
    home = await socket_stage.ws.until(lambda: socket_stage.ws.home("alice"))
    assert home is not None
    assert "GPU Shopper" in all_text(home)
