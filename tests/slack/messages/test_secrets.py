"""`/gpu secret`: a form asks for the value, and no message, row or log has it."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from sqlalchemy import select

from bot.services.access import job_secrets
from bot.slack import forms, key_command, modals
from bot.slack.ack import plan
from bot.slack.inbound import WITHHELD, InboundKind, InboundMessage
from ledger.models import Inbox, Secret
from tests.slack.conftest import Stage
from tests.slack.test_commands import private

VALUE = "hf_canary'\"`$(id)\n  second line "


async def stored(stage: Stage) -> list[tuple[str, str, str | None]]:
    """Every stored secret: whose it is, its name and its value."""
    async with stage.ctx.db.read() as tx:
        rows = list(await tx.scalars(select(Secret)))
    key = stage.ctx.labels
    return [(one.person, one.name, job_secrets.decrypted(key, one.person, one.name, one.ciphertext)) for one in rows]


async def forms_kept(stage: Stage) -> list[dict[str, object]]:
    """What the inbox has of the fields of submitted forms."""
    async with stage.ctx.db.read() as tx:
        rows = await tx.scalars(select(Inbox).where(Inbox.kind == InboundKind.VIEW))
        return [one.body.get("values", {}) for one in rows]


async def test_a_form_asks_for_the_value_and_nothing_shows_it(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await stage.command("alice", "/gpu secret add HF_TOKEN")
    view = stage.ws.view("alice")
    assert view is not None
    assert (view.blocks[0]["label"]["text"], view.blocks[0]["element"]["multiline"]) == ("HF_TOKEN", True)
    await stage.submit("alice", {"value": VALUE})
    assert "HF_TOKEN is stored." in stage.ws.dm_messages("alice")[-1].text
    (one,) = await stored(stage)
    assert one == ("slack:T0PRACTICE/U0ALICE", "HF_TOKEN", VALUE)
    assert await forms_kept(stage) == [{}]
    assert "canary" not in caplog.text
    await stage.command("alice", "/gpu secret list")
    assert "Your secrets: HF_TOKEN." in private(stage, "alice").text
    await stage.command("bob", "/gpu secret delete HF_TOKEN")
    assert "You have no secret HF_TOKEN." in private(stage, "bob").text
    await stage.command("alice", "/gpu secret delete HF_TOKEN")
    assert "HF_TOKEN is deleted." in private(stage, "alice").text
    await stage.command("alice", "/gpu secret")
    assert "/gpu secret add HF_TOKEN" in private(stage, "alice").text
    assert await stored(stage) == []
    assert "canary" not in repr([message.text for message in stage.practice.workspace.messages])


async def test_a_crash_after_the_form_was_acknowledged_leaves_no_plain_value(stage: Stage) -> None:
    await stage.command("alice", "/gpu secret add HF_TOKEN")
    view = stage.ws.view("alice")
    assert view is not None
    member = InboundMessage(InboundKind.VIEW, "U0ALICE", "T0PRACTICE", view=modals.SECRET, meta="HF_TOKEN")
    submitted = key_command.without_plain_value(stage.ctx, replace(member, values={"value": VALUE}))
    assert (list(submitted.values), "canary" in str(submitted.to_json())) == ([key_command.ENCRYPTED], False)
    ciphertext = str(submitted.values[key_command.ENCRYPTED])
    key = stage.ctx.labels
    assert job_secrets.decrypted(key, member.actor.ref, "HF_TOKEN", ciphertext) == VALUE
    assert job_secrets.decrypted(key, member.actor.ref, "OTHER", ciphertext) is None
    assert key_command.without_plain_value(stage.ctx, replace(member, view=modals.KEY, values={"key": "x"})).values == {
        "key": "x"
    }
    assert key_command.without_plain_value(stage.ctx, replace(member, values={})).values == {key_command.ENCRYPTED: ""}


async def test_a_form_with_a_wrong_value_says_why_and_is_stored_nowhere(stage: Stage) -> None:
    await stage.command("alice", "/gpu secret add HF_TOKEN")
    refused = await stage.submit("alice", {"value": "-----BEGIN RSA PRIVATE KEY-----\nhf_canary"})
    assert "Store it at a terminal" in refused.errors["value"]
    assert forms.read_secret({"value": ""}) == {"value": "The value is empty. Give the secret itself."}
    assert forms.read_secret({"value": WITHHELD}) == refused.errors
    assert (await stored(stage), await forms_kept(stage)) == ([], [])


@pytest.mark.parametrize("line", ["secret add HF_TOKEN hf_canary", 'secret add HF_TOKEN "hf_canary'])
def test_a_value_in_a_command_is_refused_and_neither_stored_nor_repeated(stage: Stage, line: str) -> None:
    received = InboundMessage(InboundKind.COMMAND, "U0ALICE", "T0PRACTICE", text=line)
    planned = plan(received, stage.ctx.policy, (), "/gpu", None)
    assert (planned.work, "canary" in str(planned.answer)) == (None, False)
    assert "Slack has it now" in str(planned.answer)
