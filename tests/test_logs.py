"""Logs: structured, with ids, and without a secret in any form, from any logger, through any handler."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from bot import logs
from ledger.kernel.secret_shapes import REDACTED

CANARY = "canary-Zx81-value"
MULTILINE = 'a "quoted"\nsecret value'
SHAPED = (
    "xoxb-1234567890-abcdef",
    "xoxe.xoxp-1-abcdefghij",
    "xapp-1-A012-abcdef",
    "whsec_abcdefgh0123",
    "gpuk_k1_abcdefghijk",
    "gpua_i1_abcdefghijk",
    "rpa_ABCDEFGH12345",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn\n-----END OPENSSH PRIVATE KEY-----",
    "-----BEGIN RSA PRIVATE KEY-----\ncut off in the middle",
)


@pytest.fixture(params=[True, False], ids=["json", "console"])
def stream(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """A log stream in each form; the root logger is as before afterwards."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    out = io.StringIO()
    logs.configure(level="debug", json=request.param, stream=out)
    logs.register_secrets([CANARY, MULTILINE, "short"])
    yield out
    root.handlers[:] = handlers
    root.setLevel(level)


def fail_with(message: str) -> None:
    raise ValueError(message)


def test_registered_secrets_appear_nowhere(stream: io.StringIO) -> None:
    log = logging.getLogger("any.library")
    log.info("plain %s and %s", CANARY, {"nested": [CANARY, MULTILINE]})
    log.info("in an object: %s", ValueError(CANARY))
    structlog.get_logger("ours").warning("event", field=CANARY, deep={"a": (MULTILINE, {CANARY})}, **{CANARY: 1})
    for write in (log.exception, structlog.get_logger("ours").exception):
        try:
            fail_with(f"the key {CANARY} was refused, and {MULTILINE}")
        except ValueError:
            write("it failed")
    with logs.working_on(request=CANARY):
        log.error("with context")
    wrong = "a wrong format %d %d"
    log.info(wrong, CANARY)
    log.info("a stack", stack_info=True)
    text = stream.getvalue()
    assert CANARY not in text
    assert MULTILINE not in text
    assert json.dumps(MULTILINE)[1:-1] not in text
    assert text.count(REDACTED) >= 8
    assert "ValueError" in text


@pytest.mark.parametrize("secret", SHAPED)
def test_the_shapes_of_secrets_are_redacted(stream: io.StringIO, secret: str) -> None:
    logging.getLogger("x").info("before %s after", secret)
    assert secret.splitlines()[0] not in stream.getvalue()
    assert secret.rsplit("-", maxsplit=1)[-1].strip() not in stream.getvalue() or secret.startswith("-----")
    assert REDACTED in stream.getvalue()


@pytest.mark.parametrize(
    ("text", "gone", "kept"),
    [
        ("Authorization: Bearer abcdef123456", "abcdef123456", "Bearer"),
        ("postgresql+asyncpg://gpu:hunter2@db/gpu", "hunter2", "@db/gpu"),
        ("GET /graphql?api_key=abcdef123&x=1", "abcdef123", "x=1"),
    ],
)
def test_secrets_inside_other_text_are_redacted(text: str, gone: str, kept: str) -> None:
    assert gone not in logs.redact(text)
    assert kept in logs.redact(text)


def test_words_that_only_look_a_little_like_secrets_stay() -> None:
    for text in ("the bearer of news", "xoxo", "short", "http://127.0.0.1:8080/path", "rpa"):
        assert logs.redact(text) == text


def test_control_characters_cannot_forge_a_line(stream: io.StringIO) -> None:
    logging.getLogger("x").info("one\n2026 forged\x1b[31m red \u202e bidi \u2028 sep")
    try:
        fail_with("in a traceback\nforged line \x07")
    except ValueError:
        logging.getLogger("x").exception("oh")
    text = stream.getvalue()
    assert not any(char in text for char in "\x1b\x07\u202e\u2028")
    assert not any(line.startswith(("2026 forged", "forged")) for line in text.splitlines())


def test_context_is_on_every_line_inside_and_on_none_outside(stream: io.StringIO) -> None:
    with logs.working_on(request="req_1", session="ses_1"):
        logging.getLogger("x").info("inside")
    logging.getLogger("x").info("outside")
    inside, outside = stream.getvalue().splitlines()
    assert "req_1" in inside
    assert "ses_1" in inside
    assert "req_1" not in outside


def test_a_handler_of_a_library_is_guarded_too() -> None:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    library = logging.getLogger("some.library.with.a.handler")
    library.addHandler(handler)
    library.propagate = False
    try:
        logs.register_secrets([CANARY])
        logs.guard_handlers()
        logs.guard_handlers()
        library.warning("look: %s", CANARY)
        try:
            fail_with(CANARY)
        except ValueError:
            library.exception("oh")
    finally:
        library.removeHandler(handler)
    assert CANARY not in out.getvalue()
    assert sum(isinstance(item, logs.Redaction) for item in handler.filters) == 1


def test_configuring_again_replaces_our_handler_only(stream: io.StringIO) -> None:
    before = len(logging.getLogger().handlers)
    second = io.StringIO()
    logs.configure(level="info", json=True, stream=second)
    assert len(logging.getLogger().handlers) == before
    logging.getLogger("x").info("once")
    assert "once" not in stream.getvalue()
    record: dict[str, Any] = json.loads(second.getvalue())
    assert (record["event"], record["level"], record["logger"]) == ("once", "info", "x")
    assert record["timestamp"].endswith("Z")


@given(st.text())
def test_whatever_text_is_made_visible(text: str) -> None:
    shown = logs.visible(text)
    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in shown)
    assert logs.visible(shown) == shown
