"""Every route about a request, a session or a webhook, for every caller, with the id spelled in other ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from bot.api.dependencies import ApiSettings
from ledger.engine.db import Database
from tests.api.door import opened
from tests.api.test_matrix import (
    ADMIN,
    AGENTS,
    APPROVER,
    OWNER,
    ROUTES,
    RUN,
    code_of,
    expected,
    is_offered,
    staged,
    state_of,
)
from tests.support.agents import listening
from tests.support.clock import SteppedClock
from tests.support.world import BOB, checked_world

NAMES = ("request", "session", "webhook")
#: How an id is spelled, as a person or a program might write it, or somebody who tries the door.
SPELLINGS: tuple[Callable[[str], str], ...] = (
    lambda text: text[-6:],
    lambda text: text[-6:].upper(),
    str.upper,
    lambda text: text.partition("_")[2],
    lambda text: f"%20{text}%20",
    lambda text: f"%23{text[-6:]}",
    lambda text: f"{text}%00",
    lambda text: f"..%2F{text}",
)
#: An id that is spelled otherwise may be nobody's.
NOBODYS = {"unknown_id", "unknown_webhook", "invalid", "not_found", "bad_word"}
SEES_ALL = (OWNER, APPROVER, ADMIN, "agent of atlas")


@pytest.mark.slow
async def test_no_spelling_crosses_to_anothers_things(sqlite_db: Database, clock: SteppedClock) -> None:
    calls = 0
    async with checked_world(sqlite_db, clock) as w, listening(w):
        w.tune(approvers=(BOB.id, APPROVER), webhook_networks=("127.0.0.1/32",))
        async with opened(w, ApiSettings("C0GPU", calls_per_minute=10**6, wrong_keys_per_minute=10**6)) as door:
            stage = await staged(door)
            before = await state_of(door)
            for spell in SPELLINGS:
                names = {name: spell(text) if name in NAMES else text for name, text in stage.names.items()}
                spelled = replace(stage, names=names)
                for caller in (*stage.tokens, *AGENTS):
                    for method, path, scope in ROUTES:
                        right = expected(caller, method, path, scope)
                        if right is None or not any(f"{{{name}}}" in path for name in NAMES):
                            continue
                        answer = await spelled.answer(caller, method, path)
                        calls += 1
                        where = (caller, method, path.format(**names), answer.status_code, answer.text[:200])
                        assert answer.status_code < 500, where
                        assert code_of(answer) in right | NOBODYS, where
                        if caller not in SEES_ALL:
                            assert RUN not in answer.text, where
                            if answer.status_code < 300 and not is_offered(caller, path):
                                assert not [text for text in stage.secret if text in answer.text], where
            assert await state_of(door) == before
            await w.settle()
    assert calls >= 2000
