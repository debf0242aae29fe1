"""The first bytes show who calls, and only a working token or signature gets more than a stranger's share."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bot.callers import NOT_SIGNED, BotCallers
from bot.http_shares import RequestHead, ServerShare, Unsigned
from bot.slack.guard import SMALL, Guard
from tests.slack import signing
from tests.support.clock import SteppedClock

BODY = signing.command_body("help")


async def nothing(*_: object) -> None:
    """An application behind the guard that is never called."""


@pytest.fixture
def callers(clock: SteppedClock) -> BotCallers:
    return BotCallers(Guard(nothing, signing.SECRET, clock))


def head(path: str, headers: Mapping[str, str] | None = None, method: str = "POST") -> RequestHead:
    sent = {name.lower().encode(): value.encode() for name, value in (headers or {}).items()}
    return RequestHead(method.encode(), path.encode(), sent)


def from_slack(clock: SteppedClock, **more: str) -> RequestHead:
    return head("/slack/events", {**signing.headers(BODY, clock), "content-length": str(len(BODY)), **more})


def test_slack_has_its_share_once_its_signature_is_checked(callers: BotCallers, clock: SteppedClock) -> None:
    message = from_slack(clock)
    assert callers.share_of(message) is None
    assert callers.share_of_body(message, BODY) is ServerShare.SLACK


def test_what_slack_did_not_sign_is_refused_before_it_is_parsed(callers: BotCallers, clock: SteppedClock) -> None:
    for unsigned in (head("/slack/events"), from_slack(clock, **{"x-slack-signature": "v0=short"})):
        with pytest.raises(Unsigned) as refused:
            callers.share_of(unsigned)
        assert refused.value.answer == NOT_SIGNED
    with pytest.raises(Unsigned):
        callers.share_of_body(from_slack(clock), BODY + b"&user_id=U0BOB")


def test_a_long_body_and_one_of_unknown_length_wait_as_strangers(callers: BotCallers, clock: SteppedClock) -> None:
    assert callers.share_of(from_slack(clock, **{"content-length": str(SMALL + 1)})) is ServerShare.STRANGERS
    assert callers.share_of(from_slack(clock, **{"transfer-encoding": "chunked"})) is ServerShare.STRANGERS


def test_without_slack_over_http_its_path_is_a_strangers(clock: SteppedClock) -> None:
    assert BotCallers(None).share_of(from_slack(clock)) is ServerShare.STRANGERS
    with pytest.raises(Unsigned):
        BotCallers(None).share_of_body(from_slack(clock), BODY)


@pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/agent.pyz", "/nothing", "/api/v1/sessions", "/metrics"])
def test_everybody_else_is_a_stranger(callers: BotCallers, path: str) -> None:
    assert callers.share_of(head(path, method="GET")) is ServerShare.STRANGERS


def test_health_checks_have_their_own_share(callers: BotCallers) -> None:
    assert {callers.share_of(head(path, method="GET")) for path in ("/healthz", "/readyz")} == {ServerShare.HEALTH}


@pytest.mark.parametrize(
    ("path", "share"), [("/api/v1/sessions", ServerShare.PROGRAMS), ("/agent/v1/checkin", ServerShare.NODES)]
)
def test_a_token_counts_once_it_was_accepted(callers: BotCallers, path: str, share: ServerShare) -> None:
    call, other = head(path, {"Authorization": "Bearer a"}), head(path, {"Authorization": "Bearer b"})
    assert callers.share_of(call) is ServerShare.NEW_TOKENS
    callers.note_known(call)
    assert callers.share_of(call) is share
    assert callers.share_of(other) is ServerShare.NEW_TOKENS
    assert callers.share_of(head(path, {"Authorization": "x" * 600})) is ServerShare.STRANGERS


def test_an_open_page_makes_no_token_known(callers: BotCallers) -> None:
    callers.note_known(head("/docs", {"Authorization": "Bearer a"}))
    assert callers.share_of(head("/api/v1/sessions", {"Authorization": "Bearer a"})) is ServerShare.NEW_TOKENS
