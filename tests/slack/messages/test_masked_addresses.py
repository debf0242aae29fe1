"""The signature of a presigned address reaches the machine, and no message, answer, journal, log or webhook."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

from bot import logs
from bot.outbound.egress import EgressResponse
from bot.practice.reader import all_text
from bot.rules.access.scopes import PLAIN, Scope
from bot.rules.jobs.stored import job_of
from bot.services.runtime.event_order import number_all
from bot.services.webhooks import delivery
from ledger.core import record
from ledger.kernel.actor import SYSTEM
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import new_id
from ledger.kernel.secret_shapes import REDACTED
from ledger.kernel.states import RequestState
from ledger.models import Event
from tests.api.door import opened
from tests.slack.conftest import Stage

SIGNATURE = "0123456789abcdefcanary"
SIGNED = f"https://bucket.example.com/run/step-1.pt?X-Amz-Expires=60&X-Amz-Signature={SIGNATURE}"


def test_a_log_shows_no_signature() -> None:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.addFilter(logs.Redaction())
    handler.handle(logging.LogRecord("bot", logging.WARNING, __file__, 1, "GET %s failed", (SIGNED,), None))
    assert out.getvalue() == f"GET {SIGNED.replace(SIGNATURE, REDACTED)} failed\n"


async def test_a_signature_is_shown_by_no_message_answer_webhook_or_log(stage: Stage) -> None:
    message = await stage.ask(
        f'/gpu provision 1x4090 2h checkpoint={SIGNED} run="wget \'{SIGNED}\'" for="from {SIGNED}"'
    )
    stage.w.tune(webhook_networks=("127.0.0.1/32",))
    (request,) = (await stage.w.books()).requests
    assert (job_of(request.job).checkpoint, job_of(request.job).run) == (SIGNED, f"wget '{SIGNED}'")
    async with stage.ctx.db.write() as tx:
        record(
            tx, stage.w.clock.now(), SYSTEM, request.id, EventKind.REQUEST_MADE, reason=SIGNED, data={"at": [SIGNED]}
        )
    await stage.click("bob", message, stage.approve_button(message))
    await stage.w.run(60)
    short = request.id[-6:]
    for line in (f"status {short}", f"audit {short}", f"why {short}", "list", f"provision 1x4090 2h run={SIGNED} x=1"):
        await stage.command("alice", f"/gpu {line}")
    shown = [all_text(one) for one in (*stage.ws.channel_messages("#gpu", threads=True), *stage.ws.ephemerals("alice"))]
    assert any("bucket.example.com" in text for text in shown)
    assert not [text for text in shown if SIGNATURE in text]
    async with opened(stage.w) as door:
        key = await door.key("operator:root", scopes=(*PLAIN, Scope.ADMIN, Scope.APPROVALS_WRITE))
        for path in (f"/requests/{short}", f"/sessions/{short}", f"/audit/{short}", "/requests", "/sessions"):
            answer = await door.call("GET", path, key)
            assert (answer.status_code, SIGNATURE in answer.text) == (200, False), answer.text
        job = (await door.request(key, request.id))["job"]
        assert job["checkpoint"] == SIGNED.replace(SIGNATURE, REDACTED)
        made = await door.call("POST", "/webhooks", key, json={"url": "http://127.0.0.1:9/hooks"})
        assert made.is_success, made.text
        bodies = list[str]()

        async def receive(_url: str, body: bytes, *_: Any, **__: Any) -> EgressResponse:
            bodies.append(body.decode())
            return EgressResponse(204)

        moved = next(one for one in (await stage.w.books()).events if one.after == RequestState.APPROVED)
        older = {name: getattr(moved, name) for name in ("at", "actor", "subject", "kind", "before", "after", "data")}
        async with stage.ctx.db.write() as tx:  # As the version before wrote it, which masked nothing.
            tx.add(Event(id=new_id("evt", stage.w.clock.now()), reason=SIGNED, **older))
        audit = await door.call("GET", f"/audit/{short}", key)
        assert (SIGNED.replace(SIGNATURE, REDACTED) in audit.text, SIGNATURE in audit.text) == (True, False)
        await number_all(stage.ctx)
        await delivery.fan_out(stage.ctx)
        await delivery.deliver_due(stage.ctx, receive)
        assert any("bucket.example.com" in body for body in bodies), bodies
        assert not [body for body in bodies if SIGNATURE in body]
    journal = [json.dumps([one.reason, one.data]) for one in (await stage.w.books()).events if one.reason != SIGNED]
    assert any(REDACTED in one for one in journal)
    assert not [one for one in journal if SIGNATURE in one]
