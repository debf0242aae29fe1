"""What clouds and people write reaches Slack, terminals and files as words: no mention, link or line is theirs."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, cast

import pytest
import typer

from bot.cli.terminal import screen, terminal_tables
from bot.rules.plans.comparison import Comparison, ComparisonQuestion
from bot.rules.plans.comparison_text import markdown
from bot.rules.values.reply_code import ReplyCode
from bot.rules.values.text_table import TextReport, TextTable
from bot.services.billing.shared_ledger import Summary, as_markdown
from bot.services.runtime.commands import Reply
from bot.services.runtime.context import Context
from bot.slack.blocks import private_answer
from bot.slack.blocks.elements import Message
from bot.slack.blocks.session import instance_failed
from bot.slack.render import render
from bot.slack.settings import SlackSettings
from ledger.kernel.states import InstanceState, NotificationKind, OrphanState, RequestState, SessionState
from ledger.models import Instance, Notification, Orphan, Request, Session
from tests.slack.blocks.test_blocks_hostile import no_foreign_markup
from tests.support.clock import START

FOREIGN = (
    "runpod says: <!channel> <@UEVIL> pay at <https://evil.example|RunPod billing> or [here](https://evil.example) "
    "![x](https://evil.example/x.png) <img src=x> `rm` | 0 |\x1b[31m\u202e\n| all | $0.00 |\n# Approved"
)
SETTINGS = SlackSettings(bot_token="xoxb-x", signing_secret="y", app_token=None, base_url="http://slack.example/")
KEPT_WORDS = "RunPod billing"


async def body_of(kind: NotificationKind) -> Message:
    row = Notification(kind=kind, subject="ins_x/start/1", destination="U0ALICE", body={"text": FOREIGN})
    return (await render(cast("Context", None), SETTINGS, row)).message


def rows() -> tuple[Request, Session, Instance]:
    request = Request(requester="slack:T1/U0ALICE", state=RequestState.APPROVED)
    session = Session(gpu=FOREIGN, gpu_count=1, nodes=1, state=SessionState.RUNNING, owner="slack:T1/U0ALICE")
    row = Instance(id="ins_x", cloud="runpod", state=InstanceState.GONE, outcome=FOREIGN, offer={}, status=FOREIGN)
    return request, session, row


async def ended() -> Message:
    return instance_failed.interrupted(*rows(), None, None, own=True)


async def another() -> Message:
    _, session, row = rows()
    stray = Orphan(cloud="runpod", price_usd_h=Decimal(1), state=OrphanState.CONDEMNED, reason=FOREIGN)
    return instance_failed.found(session, row, stray, own=False)


async def wrong_gpus() -> Message:
    request, session, row = rows()
    row.state, row.status, row.trouble_at, row.other_gpus = InstanceState.LIVE, "running", START, FOREIGN
    return instance_failed.interrupted(request, session, row, row, None, own=True)


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(lambda: body_of(NotificationKind.REPLY), id="a service's reply"),
        pytest.param(lambda: body_of(NotificationKind.OPERATOR_PAGE), id="a page"),
        pytest.param(lambda: body_of(NotificationKind.BUDGET_THRESHOLD), id="a budget's word"),
        pytest.param(ended, id="the outcome of an instance"),
        pytest.param(another, id="the reason of a stray"),
        pytest.param(wrong_gpus, id="the GPUs that a cloud shows"),
    ],
)
async def test_no_markup_of_a_message_is_somebody_elses(made: Callable[[], Any]) -> None:
    payload = (await made()).payload(1)
    no_foreign_markup(payload)
    assert KEPT_WORDS in payload["text"]


async def test_a_reply_names_people_and_an_answer_with_blocks_stays_as_it_was_built() -> None:
    body = {"text": "Your session abc is being ended by slack:T1/U0BOB: <!here>"}
    row = Notification(kind=NotificationKind.REPLY, subject="ses_x/ended-by", destination="U0ALICE", body=body)
    shown = await render(cast("Context", None), SETTINGS, row)
    assert shown.message.text == "Your session abc is being ended by <@U0BOB>: &lt;!here&gt;"
    row.body = {"text": "operator:alice shares session abc. For another: `--owner operator:bob`, owner=operator:bob."}
    said = (await render(cast("Context", None), SETTINGS, row)).message.text
    assert said.startswith("operator alice shares session abc.")
    assert "--owner operator:bob" in said
    assert said.endswith("owner=operator:bob.")
    row.body = {"text": "*bold* <@U0BOB>", "blocks": []}
    assert (await render(cast("Context", None), SETTINGS, row)).message.text == "*bold* <@U0BOB>"


def test_a_moment_in_an_answer_is_shown_in_each_viewers_own_time() -> None:
    said = private_answer.answer(
        Reply(True, ReplyCode.OK, "It ends at 2026-03-02 11:00 UTC, not 2026-02-30 11:00 UTC.")
    )
    shown = "It ends <!date^1772449200^{date_short_pretty} {time}|2026-03-02 11:00 UTC>, not 2026-02-30 11:00 UTC."
    assert said.text == shown
    long = private_answer.answer(Reply(True, ReplyCode.OK, "2026-03-02 11:00 UTC " * 95))
    assert long.text.count("<!date^") == 10


def summary() -> str:
    spent = ((FOREIGN, Decimal(1)),)
    return as_markdown(Summary(Decimal(1), spent, spent, spent, (FOREIGN,), START))


def compared() -> str:
    return markdown(Comparison(ComparisonQuestion(Decimal(1)), (), (), (FOREIGN,)))


@pytest.mark.parametrize("page", [summary, compared])
def test_no_line_cell_or_link_of_a_page_is_somebody_elses(page: Callable[[], str]) -> None:
    text = page()
    assert KEPT_WORDS in text
    assert not any(line.startswith(("| all |", "# Approved")) for line in text.splitlines())
    assert "](" not in text.replace("\\](", "")
    assert not re.search(r"(?<!\\)<[A-Za-z/!?]", text)
    assert not set(text) & {"\x1b", "\u202e"}


def failing() -> None:
    with pytest.raises(typer.Exit):
        screen.fail(FOREIGN)


@pytest.mark.parametrize(
    "say",
    [
        pytest.param(
            lambda: terminal_tables.print_report(TextReport(lead=FOREIGN, sentences=(FOREIGN,))), id="sentences"
        ),
        pytest.param(
            lambda: terminal_tables.print_report(TextReport(tables=(TextTable(head=("why",), rows=((FOREIGN,),)),))),
            id="a cell of a table",
        ),
        pytest.param(failing, id="a refusal"),
    ],
)
def test_no_escape_sequence_reaches_a_terminal(say: Callable[[], None], capsys: pytest.CaptureFixture[str]) -> None:
    say()
    shown = "".join(capsys.readouterr())
    assert KEPT_WORDS in shown
    assert "\x1b[31m\u202e" not in shown
    assert "\u202e" not in shown
