"""`/gpu logs ID`: the last lines in a private answer, as text that Slack does not read."""

from __future__ import annotations

from bot.practice.reader import all_text
from bot.rules.values.reply_code import ReplyCode
from bot.services.runtime.commands import Reply
from bot.slack.blocks.machine_log import LINES, log
from tests.services.nodes.test_key_writes import machine
from tests.slack.conftest import Stage
from tests.slack.test_commands import private, running
from tests.support.wire import RealReach


def shown(*lines: str) -> str:
    reply = Reply(True, ReplyCode.LOG, "The end of the job log of session 4k7m2p.", {"lines": lines, "source": "job"})
    message = log(reply, "4k7m2p")
    return str(message.blocks[0]["text"]["text"])


def test_lines_stand_as_they_are_and_mention_nobody() -> None:
    text = shown("<!channel> & *bold*", "a ``` b")
    assert text == "*The end of the job log of session 4k7m2p.*\n```&lt;!channel&gt; &amp; *bold*\na ''' b```"


def test_the_newest_lines_are_whole_where_all_do_not_fit() -> None:
    text = shown(*(f"{n} {'x' * 390}" for n in range(LINES)))
    assert "29 xxx" in text
    assert "\n0 xxx" not in text
    assert len(text) < 3000
    assert "(empty)" in shown()


def test_a_refusal_is_its_sentence() -> None:
    message = log(Reply(False, ReplyCode.NO_LOG, "The machine of session 4k7m2p has no job log yet."), "4k7m2p")
    assert "no job log yet" in message.text


async def test_the_owner_sees_the_log_and_wrong_words_are_named(stage: Stage) -> None:
    assert isinstance(stage.ctx.reach, RealReach)
    stage.ctx.reach.keys = True
    await running(stage)
    (session,) = (await stage.w.books()).sessions
    (await machine(stage.w))[1].files["job.log"] = b"step 1\nstep 2\n"
    await stage.command("alice", f"/gpu logs {session.short_id}")
    said = all_text(private(stage, "alice"))
    assert "```step 1\nstep 2```" in said
    assert f"gpu-shopper logs {session.short_id} --source job -f" in said
    await stage.command("alice", f"/gpu logs {session.short_id} agent")
    assert "has no agent log yet" in private(stage, "alice").text
    await stage.command("dave", f"/gpu logs {session.short_id}")
    assert "Only its owner and who shares it can log in." in private(stage, "dave").text
    await stage.command("alice", f"/gpu logs {session.short_id} jobs")
    assert "is no log; logs shows job, startup, agent, serve." in private(stage, "alice").text
    await stage.command("alice", f"/gpu logs {session.short_id} job now")
    assert "takes one id and one of job" in private(stage, "alice").text
    await stage.command("alice", "/gpu logs zzzz99")
    assert "There is no request or session" in private(stage, "alice").text
