"""The limit on hours and its override, said with the number of the policy in every message."""

from __future__ import annotations

from decimal import Decimal

from bot.practice.reader import all_text
from ledger.kernel.ids import short_id
from ledger.kernel.request_kind import RequestKind
from tests.slack.conftest import Stage


async def test_every_message_about_the_override_has_the_hours_of_the_policy(stage: Stage) -> None:
    stage.w.tune(max_hours=Decimal(8))
    stage.door.take_up(stage.w.ctx.policy)
    await stage.command("alice", "/gpu provision 1x4090 10h")
    (card,) = stage.ws.channel_messages()
    rows = {one.kind: short_id(one.id) for one in (await stage.w.books()).requests}
    for command in ("status", "why"):
        for kind in (RequestKind.PROVISION, RequestKind.OVERRIDE_12H):
            await stage.command("alice", f"/gpu {command} {rows[kind]}")
    said = [all_text(card), *(all_text(one) for one in stage.ws.ephemerals("alice"))]
    assert "*10 h is above the 8-hour limit*: approving includes the override." in said[0]
    assert any("10 hours in all is above 8 hours, which needs the 8-hour override." in one for one in said)
    assert any(f"8-hour override of request {rows[RequestKind.PROVISION]}" in one for one in said)
    await stage.click("bob", card, stage.approve_button(card))
    said.append(all_text(stage.ws.now(card)))
    assert "8-hour override by <@U0BOB>." in said[-1]
    assert not [one for one in said if "12-hour" in one or "12 hours" in one]
