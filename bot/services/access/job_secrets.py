"""Keep the secrets of people for their jobs: encrypted, listed by name only, and sent to nobody but their machines.

The key of each one follows from the deployment's label key, its owner and its name. So a copy of the database shows no
value, and a row that somebody gives another owner or name there can't be read.
"""

from __future__ import annotations

import base64
import hmac
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from cryptography.fernet import Fernet, InvalidToken

from bot.rules.approvals.approvers import linked
from bot.rules.policy.policy import Policy
from bot.rules.values import secret_names
from bot.rules.values.command_text import cli_command
from bot.rules.values.labels import LabelKey
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import machine_keys
from bot.services.runtime.commands import Reply, refuse
from bot.services.runtime.context import Context
from ledger.core import Tx, record
from ledger.kernel.actor import Actor
from ledger.kernel.event_kind import EventKind
from ledger.models import Secret
from ledger.queries.access import Whose
from ledger.queries.people.secrets import forget_secret, secrets_of

LISTS = cli_command("secret list")
NONE = f"You have no secrets here. Store one: {cli_command('secret set HF_TOKEN')}."
NO_AGENT = (
    "Machines have no agent here, so none could get a secret. Ask an operator to set GPU_SHOPPER_NODE_URL, or leave "
    "secrets out."
)
_BOX = b"gpu-shopper secrets of jobs, version 1\n"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoreSecret:
    """Store a secret of the actor under a name, in place of an earlier value."""

    actor: Actor
    name: str
    value: str = field(repr=False)


def stores(name: str) -> str:
    """Write the command that stores a secret."""
    return cli_command(f"secret set {name}")


def box(labels: LabelKey, person: str, name: str) -> Fernet:
    """Return the cipher of one person's secret; its key is derived from the label key, which is not in the database."""
    digest = hmac.digest(labels.key, _BOX + f"{person}\n{name}".encode(), "sha256")
    return Fernet(base64.urlsafe_b64encode(digest))


def encrypted(labels: LabelKey, person: str, name: str, value: str) -> str:
    """Encrypt a value that is on its way to `store`, as it is stored."""
    return box(labels, person, name).encrypt(value.encode()).decode()


def decrypted(labels: LabelKey, person: str, name: str, ciphertext: str) -> str | None:
    """Return the value that `encrypted` encrypted for the same person and name; None for anything else."""
    try:
        return box(labels, person, name).decrypt(ciphertext).decode()
    except InvalidToken:
        return None


async def store(ctx: Context, command: StoreSecret) -> Reply:
    """Store a secret, or replace its value. Machines get the new value when their agent starts again."""
    name, actor, now = command.name, command.actor, ctx.clock.now()
    if wrong := secret_names.name_problem(name) or secret_names.value_problem(command.value):
        return refuse(ReplyCode.BAD_SECRET, wrong)
    ciphertext = encrypted(ctx.labels, actor.ref, name, command.value)
    async with ctx.db.write() as tx:
        await machine_keys.lock_person(tx, ctx.policy, actor)
        known = await secrets_of(tx, _names(ctx.policy, actor))
        own = {one.name: one for one in known if one.person == actor.ref}
        again = name in {one.name for one in known}
        if not again and len({one.name for one in known}) >= secret_names.MOST_STORED:
            sentence = f"You have {secret_names.MOST_STORED} secrets, which is the most. Delete one first: {LISTS}."
            return refuse(ReplyCode.TOO_MANY_SECRETS, sentence)
        for one in known:  # What the same person stored under another of their names is replaced, too.
            if one.name == name and one.person != actor.ref:
                await tx.delete(one)
        if name in own:
            own[name].ciphertext, own[name].updated_at = ciphertext, now
        else:
            tx.add(Secret(person=actor.ref, name=name, ciphertext=ciphertext, created_at=now, updated_at=now))
        record(tx, now, actor, actor.ref, EventKind.SECRET_STORED, reason=name)
    said = "has a new value" if again else "is stored"
    sentence = f"{name} {said}. Name it in a request, as in secrets={name}."
    return Reply(True, ReplyCode.SECRET_STORED, sentence, {"name": name})


async def delete(ctx: Context, actor: Actor, name: str) -> Reply:
    """Delete a secret. It is sent to no machine from now on; machines that have it keep it."""
    now = ctx.clock.now()
    if wrong := secret_names.name_problem(name):
        return refuse(ReplyCode.BAD_SECRET, wrong)
    async with ctx.db.write() as tx:
        await machine_keys.lock_person(tx, ctx.policy, actor)
        if not await forget_secret(tx, _names(ctx.policy, actor), name):
            return _none(name)
        record(tx, now, actor, actor.ref, EventKind.SECRET_DELETED, reason=name)
    sentence = f"{name} is deleted. Machines that have it already keep it, so revoke it at its service, too."
    return Reply(True, ReplyCode.SECRET_DELETED, sentence, {"name": name})


async def show(ctx: Context, actor: Actor) -> Reply:
    """Reply with the names of the actor's secrets and their dates, never with a value."""
    async with ctx.db.read() as tx:
        known = _newest(await secrets_of(tx, _names(ctx.policy, actor)))
    dates = ("name", "created_at", "updated_at")
    rows = [{what: getattr(known[name], what) for what in dates} for name in sorted(known)]
    sentence = f"Your secrets: {', '.join(sorted(known))}." if known else NONE
    return Reply(True, ReplyCode.SECRETS, sentence, {"secrets": rows})


async def show_one(ctx: Context, actor: Actor, name: str) -> Reply:
    """Reply with the dates of one secret of the actor."""
    if wrong := secret_names.name_problem(name):
        return refuse(ReplyCode.BAD_SECRET, wrong)
    for one in (await show(ctx, actor)).data["secrets"]:
        if one["name"] == name:
            return Reply(True, ReplyCode.SECRETS, f"{name} is stored.", one)
    return _none(name)


async def refusal(ctx: Context, actor: Actor, names: Collection[str]) -> Reply | None:
    """Refuse a request that names a secret which its requester has not stored; None where all are there."""
    if not names:
        return None
    if wrong := secret_names.names_problem(tuple(names)):
        return refuse(ReplyCode.BAD_SECRET, wrong)
    if not ctx.node_url:
        return refuse(ReplyCode.SECRETS_NOT_SENT, NO_AGENT)
    async with ctx.db.read() as tx:
        known = {one.name for one in await secrets_of(tx, _names(ctx.policy, actor), names)}
    missing = [name for name in names if name not in known]
    if not missing:
        return None
    sentence = f"You have no secret {missing[0]}. Store it first: {stores(missing[0])}."
    return refuse(ReplyCode.NO_SECRET, sentence)


async def opened(
    tx: Tx, policy: Policy, labels: LabelKey, wanted: Mapping[str, tuple[Actor, Collection[str]]]
) -> dict[str, dict[str, str]]:
    """Return the values of secrets, by name, for each key of `wanted`: whose, and which names.

    Missing ones are left out. Call it for nothing but the answer to a machine's own check-in.
    """
    people = {key: _names(policy, actor) for key, (actor, _) in wanted.items()}
    everybody = Whose.of([one for actor, _ in wanted.values() for one in (actor, *linked(policy, actor))])
    named = {name for _, names in wanted.values() for name in names}
    rows = await secrets_of(tx, everybody, named) if named else []
    found: dict[str, dict[str, str]] = {}
    for key, (_, names) in wanted.items():
        own = _newest(one for one in rows if one.person in people[key])
        found[key] = {name: value for name in names if name in own and (value := _value(labels, own[name])) is not None}
    return found


def _value(labels: LabelKey, row: Secret) -> str | None:
    value = decrypted(labels, row.person, row.name, row.ciphertext)
    if value is None:
        log.warning("the secret %s of %s can't be decrypted: the label key has changed", row.name, row.person)
    return value


def _none(name: str) -> Reply:
    return refuse(ReplyCode.NO_SECRET, f"You have no secret {name}. To see your secrets: {LISTS}.")


def _names(policy: Policy, actor: Actor) -> Whose:
    return Whose.of([actor, *linked(policy, actor)])


def _newest(rows: Iterable[Secret]) -> dict[str, Secret]:
    """Return the newest of each name; rows come in the order of their last change."""
    return {one.name: one for one in rows}
