"""What a button is about."""

from __future__ import annotations

from ledger.engine.db import Database
from ledger.kernel.states import RequestState
from ledger.models import Token
from ledger.queries.decisions import subject_by_token, subject_of_request
from tests.support import rows


async def test_what_a_button_is_about(db: Database) -> None:
    async with db.write() as tx:
        request = await rows.request(tx, RequestState.PENDING)
        quote = await rows.quote(tx, request)
        option = await rows.option(tx, quote)
        request.chosen_option_id = option.id
        tx.add(Token(token="a", request_id=request.id, quote_version=1, action="approve", option_id=option.id))
        tx.add(Token(token="r", request_id=request.id, quote_version=1, action="reject"))
        await rows.approval(tx, request)
        await rows.approval(tx, request, quote_version=0)
    for session in (db.read(), db.write()):
        async with session as tx:
            ask = await subject_by_token(tx, "a")
            assert ask is not None
            assert ask.option is not None
            assert ask.chosen is not None
            assert (ask.action, ask.version, ask.option.id, ask.chosen.id) == ("approve", 1, option.id, option.id)
            assert len(ask.votes) == 1
            assert (ask.request.id, ask.override) == (request.id, None)
            refusal = await subject_by_token(tx, "r")
            assert refusal is not None
            assert (refusal.action, refusal.option) == ("reject", None)
            assert await subject_by_token(tx, "no\x00ne") is None
            unbuttoned = await subject_of_request(tx, request.id)
            assert (unbuttoned.token, unbuttoned.action, unbuttoned.version) == (None, "cancel", 1)
