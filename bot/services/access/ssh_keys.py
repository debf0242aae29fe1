"""Keep the public SSH keys of people, and refuse a private key before anything is stored."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from bot.rules.policy.policy import Policy
from bot.rules.values.command_text import cli_command
from bot.rules.values.phrases import no_key
from bot.rules.values.private_keys import LONGEST_KEY, looks_private, names_private_key
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import key_holders, machine_keys
from bot.services.runtime.commands import AddKey, Reply, refuse
from bot.services.runtime.context import Context
from bot.services.runtime.idempotency import KEPT
from ledger.core import Tx, record
from ledger.kernel.actor import Actor
from ledger.kernel.event_kind import EventKind
from ledger.kernel.request_kind import MACHINE
from ledger.kernel.states import UNDECIDED
from ledger.models import Request, SshKey
from ledger.queries.journal import done_before

KINDS = ("ssh-ed25519", "sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com", "ssh-rsa")
SHORTEST_RSA = 3072
#: The terminal command that adds a key.
ADDS = "gpu-shopper ssh-key add ~/.ssh/id_ed25519.pub"
CHANGES = frozenset({EventKind.SSH_KEY_ADDED, EventKind.SSH_KEY_REMOVED})
EXAMPLE = cli_command("ssh-key add ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA…")
LISTS, REMOVES = cli_command("ssh-key list"), cli_command("ssh-key remove SHA256:…")
NONE = f"You have no SSH key here. Add one: {EXAMPLE}"
#: Keys of one person. All of them are in one create call, whose script some clouds limit to 4,000 characters.
MOST_KEYS = 5
HASH = "SHA256:"


class KeyRefused(ValueError):
    """The text is not a public key that we accept: `code` for programs, the message for people."""

    def __init__(self, code: ReplyCode, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


def normalise(text: str) -> tuple[str, str]:
    """Return `(kind and base64 without options or comment, SHA256 fingerprint)` of a public key, or raise `KeyRefused`.

    Options in front of the key (`command=…`) would run on the node, so a line with options is refused.
    """
    if looks_private(text) or names_private_key(text):
        raise KeyRefused(
            ReplyCode.PRIVATE_KEY,
            "That looks like a private key. It was not stored, but other people may have seen it. "
            "Make a new pair with `ssh-keygen -t ed25519`, and add the .pub file.",
        )
    words = text.split()
    if len(text) > LONGEST_KEY or len(words) < 2 or words[0] not in KINDS:
        raise KeyRefused(ReplyCode.NOT_A_KEY, f"That is not a public key. Add one like this: {EXAMPLE}")
    line = f"{words[0]} {words[1]}"
    try:
        key = load_ssh_public_key(line.encode())
        raw = base64.b64decode(words[1], validate=True)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise KeyRefused(ReplyCode.NOT_A_KEY, f"That public key can't be read. Add one like this: {EXAMPLE}") from error
    if isinstance(key, RSAPublicKey) and key.key_size < SHORTEST_RSA:
        raise KeyRefused(
            ReplyCode.WEAK_KEY, f"An RSA key needs at least {SHORTEST_RSA} bits; an ed25519 key is shorter and fine."
        )
    digest = base64.b64encode(hashlib.sha256(raw).digest()).decode().rstrip("=")
    return line, f"SHA256:{digest}"


async def add(ctx: Context, command: AddKey) -> Reply:
    """Register one more public key of the actor. It is used for every instance that is created from now on."""
    try:
        line, fingerprint = normalise(command.public_key)
    except KeyRefused as refused:
        return refuse(refused.code, str(refused))
    now, actor, data = ctx.clock.now(), command.actor, {"fingerprint": fingerprint}
    async with ctx.db.write() as tx:
        await machine_keys.lock_person(tx, ctx.policy, actor)
        known = await key_holders.keys_of(tx, ctx.policy, actor)
        if await done_before(tx, actor.ref, CHANGES, command.key, now - KEPT) is not None:
            sentence = f"Your key {fingerprint} was registered. To see your keys: {LISTS}."
            return Reply(True, ReplyCode.KEY_ADDED, sentence, data)
        if fingerprint in {one.fingerprint for one in known}:
            return Reply(True, ReplyCode.KEY_KNOWN, f"This key is already yours: {fingerprint}.", data)
        if len(known) >= MOST_KEYS:
            sentence = f"You have {len(known)} SSH keys, which is the most. Remove one first: {REMOVES}."
            return refuse(ReplyCode.TOO_MANY_SSH_KEYS, sentence)
        tx.add(SshKey(owner=actor.ref, public_key=line, fingerprint=fingerprint, created_at=now))
        record(tx, now, actor, actor.ref, EventKind.SSH_KEY_ADDED, reason=fingerprint, key=command.key)
        await tx.flush()
        running = await machine_keys.follow_person(ctx, tx, actor, now)
    others = "other key" if len(known) == 1 else f"{len(known)} other keys"
    accept = f"accept it, and your {others}" if known else "accept it"
    soon = f" {_machines(running)} that you use will accept it in about a minute." if running else ""
    sentence = f"Your key {fingerprint} is registered. New machines {accept}.{soon}"
    return Reply(True, ReplyCode.KEY_ADDED, sentence, data)


async def remove(ctx: Context, actor: Actor, which: str = "", key: str = "") -> Reply:
    """Delete a public key of the actor: the only one, or that of the fingerprint `which`, or of its beginning.

    It is removed from the machines that they may use. `key` names the call, as in `AddKey`.
    """
    now = ctx.clock.now()
    async with ctx.db.write() as tx:
        await machine_keys.lock_person(tx, ctx.policy, actor)
        done = await done_before(tx, actor.ref, CHANGES, key, now - KEPT)
        if done is not None:
            return _removed(done.reason)
        known = await key_holders.keys_of(tx, ctx.policy, actor)
        named = which.strip().removeprefix(HASH)
        found = [one for one in known if one.fingerprint.removeprefix(HASH).startswith(named)]
        if not known:
            return refuse(ReplyCode.NO_KEY, NONE)
        if not found:
            return refuse(ReplyCode.NO_KEY, f"You have no SSH key {which.strip()[:60]}. To see your keys: {LISTS}.")
        if len(found) > 1:
            sentence = f"You have {len(known)} SSH keys. Name one by its fingerprint, as in {REMOVES}. {_lines(found)}"
            return refuse(ReplyCode.WHICH_KEY, sentence)
        await tx.delete(found[0])
        record(tx, now, actor, actor.ref, EventKind.SSH_KEY_REMOVED, reason=found[0].fingerprint, key=key)
        await tx.flush()
        running = await machine_keys.follow_person(ctx, tx, actor, now, [found[0].public_key])
    return _removed(found[0].fingerprint, running)


def _removed(fingerprint: str, running: int = 0) -> Reply:
    """Say that a key is removed. The machines keep connections that are open, because no key is asked for again."""
    soon = (
        f" {_machines(running)} that you use will refuse it in about a minute. Open connections stay."
        if running
        else ""
    )
    return Reply(True, ReplyCode.KEY_REMOVED, f"The key {fingerprint} is removed.{soon}")


def _machines(count: int) -> str:
    return "Running machines" if count > 1 else "The running machine"


def _lines(keys: Sequence[SshKey]) -> str:
    named = ", ".join(f"{one.fingerprint} ({one.public_key.split()[0]})" for one in keys)
    return f"Your {'key' if len(keys) == 1 else 'keys'}: {named}."


async def show(ctx: Context, actor: Actor) -> Reply:
    """Reply with the keys that the actor has."""
    async with ctx.db.read() as tx:
        known = await key_holders.keys_of(tx, ctx.policy, actor)
    if not known:
        return refuse(ReplyCode.NO_KEY, NONE)
    keys = [{name: getattr(one, name) for name in ("fingerprint", "public_key", "created_at")} for one in known]
    return Reply(True, ReplyCode.KEY, _lines(known), {"keys": keys})


async def keyless(tx: Tx, policy: Policy, request: Request, has: str) -> str:
    """Return the warning for an undecided request whose people have no SSH key; "" for other requests.

    `has` begins the sentence: `You have` or `alice has`. A program may never log in, so it gets no warning.
    """
    owner, open_now = Actor.from_ref(request.requester), UNDECIDED
    if owner.is_program or request.kind not in MACHINE or request.state not in open_now:
        return ""
    if await key_holders.has_key(tx, policy, request):
        return ""
    return f"{no_key(has, ADDS)}."
