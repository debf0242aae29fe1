"""`/gpu secret`: a form asks for the value, and no message, row or log has it."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from sqlalchemy import select

from bot.rules.grammar.parser import GrammarError, ParsedCommand, parse
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
    return [(one.person, one.name, job_secrets.unseal(key, one.person, one.name, one.ciphertext)) for one in rows]


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
    submitted = key_command.sealed(stage.ctx, replace(member, values={"value": VALUE}))
    assert (list(submitted.values), "canary" in str(submitted.to_json())) == ([key_command.SEALED], False)
    sealed = str(submitted.values[key_command.SEALED])
    key = stage.ctx.labels
    assert job_secrets.unseal(key, member.actor.ref, "HF_TOKEN", sealed) == VALUE
    assert job_secrets.unseal(key, member.actor.ref, "OTHER", sealed) is None
    assert key_command.sealed(stage.ctx, replace(member, view=modals.KEY, values={"key": "x"})).values == {"key": "x"}
    assert key_command.sealed(stage.ctx, replace(member, values={})).values == {key_command.SEALED: ""}


async def test_a_form_with_a_wrong_value_says_why_and_is_stored_nowhere(stage: Stage) -> None:
    await stage.command("alice", "/gpu secret add HF_TOKEN")
    refused = await stage.submit("alice", {"value": "-----BEGIN RSA PRIVATE KEY-----\nhf_canary"})
    assert "Store it at a terminal" in refused.errors["value"]
    assert forms.read_secret({"value": ""}) == {"value": "The value is empty. Give the secret itself."}
    assert forms.read_secret({"value": WITHHELD}) == refused.errors
    assert (await stored(stage), await forms_kept(stage)) == ([], [])


@pytest.mark.parametrize(
    "line",
    [
        "secret add HF_TOKEN hf_canary",
        "secret set HF_TOKEN hf_canary",
        "secret add HF_TOKEN=hf_canary",
        "secret hf_canary",
        "secret HF_TOKEN hf_canary",
        "secrets add hf_canary",
        "secret add hf_canary more",
        "secret delete HF_TOKEN hf_canary",
        "secret list hf_canary",
        'secret add HF_TOKEN "hf_canary',
        "/secret add HF_TOKEN 'hf_canary",
    ],
)
def test_a_value_in_a_command_is_refused_and_repeated_nowhere(stage: Stage, line: str) -> None:
    wrong = parse(line)
    assert isinstance(wrong, GrammarError)
    assert "canary" not in repr(wrong)
    received = InboundMessage(InboundKind.COMMAND, "U0ALICE", "T0PRACTICE", text=line)
    planned = plan(received, stage.ctx.policy, (), "/gpu", None)
    assert (planned.work, "canary" in str(planned.answer)) == (None, False)


def test_the_words_of_the_command() -> None:
    assert parse("secret") == ParsedCommand("secret", action="list")
    assert parse("secret set HF_TOKEN") == ParsedCommand("secret", action="add", target="HF_TOKEN")
    assert parse("secret remove HF_TOKEN") == ParsedCommand("secret", action="delete", target="HF_TOKEN")
    wrong = parse("secret add")
    assert isinstance(wrong, GrammarError)
    assert wrong.message == "Name the secret, as in secret add HF_TOKEN."
    typed = parse("secret add HF_TOKEN hf_canary")
    assert isinstance(typed, GrammarError)
    assert typed.message == (
        "A form asks for the value. If you typed a value here, Slack has it now: nothing was stored, so revoke it and "
        "make a new one."
    )
