"""Process `/gpu key` and `/gpu secret`: the public SSH keys of a person, and the secrets that their jobs get."""

from __future__ import annotations

from dataclasses import replace

from bot.rules.approvals.approvers import Deed
from bot.rules.grammar.parser import ParsedCommand
from bot.services.access import job_secrets, ssh_keys
from bot.services.access.job_secrets import StoreSecret
from bot.services.runtime.commands import AddKey
from bot.services.runtime.context import Context
from bot.slack import forms, modals
from bot.slack.blocks.elements import Message, code
from bot.slack.blocks.private_answer import answer
from bot.slack.handler_context import HandlerContext, HandlerJob
from bot.slack.inbound import InboundKind, InboundMessage
from ledger.models import Inbox

#: The field of the form that has the encrypted value once the form is stored.
ENCRYPTED = "encrypted"


async def key(handler: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> Message | None:
    """Change or list the keys of the person who asks."""
    actor = job.message.actor
    if parsed.action == "add":
        reply = await ssh_keys.add(handler.ctx, AddKey(actor, parsed.text, job.key))
    elif parsed.action == "remove":
        reply = await ssh_keys.remove(handler.ctx, actor, parsed.text, job.key)
    else:
        reply = await ssh_keys.show(handler.ctx, actor)
    return answer(reply)


async def secret(handler: HandlerContext, job: HandlerJob, parsed: ParsedCommand) -> Message | None:
    """Ask for the value of a secret in a form, or list or delete the secrets of the person who asks."""
    ctx, actor = handler.ctx, job.message.actor
    if parsed.action == "list":
        return answer(await job_secrets.show(ctx, actor))
    if parsed.action == "delete":
        return answer(await job_secrets.delete(ctx, actor, parsed.target))
    again = code(f"{handler.settings.command} secret add {parsed.target}")
    await handler.open(job, modals.secret(parsed.target), f"The form could not be opened in time. Try again: {again}")
    return None


def without_plain_value(ctx: Context, received: InboundMessage) -> InboundMessage:
    """Encrypt the value in a form about a secret, so that the stored message has no plain one; others stay as is."""
    if received.kind is not InboundKind.VIEW or received.view != modals.SECRET:
        return received
    value = forms.read_secret(received.values)
    given = (
        job_secrets.encrypted(ctx.labels, received.actor.ref, received.meta, value) if isinstance(value, str) else ""
    )
    return replace(received, values={ENCRYPTED: given})


async def store_secret(handler: HandlerContext, job: HandlerJob) -> None:
    """Store the secret of a submitted form, and forget the form's copy of it."""
    ctx, received = handler.ctx, job.message
    person, name = received.actor, received.meta
    if refused := await handler.ineligible(job, Deed.READ):
        await handler.say(job, answer(refused))
        return
    value = job_secrets.decrypted(ctx.labels, person.ref, name, str(received.values.get(ENCRYPTED, "")))
    if value is None:
        return
    reply = await job_secrets.store(ctx, StoreSecret(person, name, value))
    await handler.say(job, answer(reply))
    async with ctx.db.write() as tx:
        row = await tx.get(Inbox, job.key)
        if row is not None:
            row.body = {**row.body, "values": {}}
