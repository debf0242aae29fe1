"""Keep one public SSH key per user, and refuse a private key before anything is stored."""

from __future__ import annotations

import base64
import hashlib

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from bot.rules.values.command_text import cli_command
from bot.rules.values.phrases import no_key
from bot.rules.values.private_keys import LONGEST_KEY, looks_private, names_private_key
from bot.rules.values.reply_code import ReplyCode
from bot.services.runtime.commands import AddKey, Reply, refuse
from bot.services.runtime.context import Context
from bot.services.runtime.idempotency import KEPT
from ledger.core import Tx, record
from ledger.kernel.actor import Actor
from ledger.kernel.event_kind import EventKind
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import RequestState
from ledger.models import Request, SshKey
from ledger.queries.journal import done_before
from ledger.queries.lookups import public_key

KINDS = ("ssh-ed25519", "sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com", "ssh-rsa")
SHORTEST_RSA = 3072
#: The terminal command that adds a key.
ADDS = "gpu-shopper ssh-key add ~/.ssh/id_ed25519.pub"
CHANGES = frozenset({EventKind.SSH_KEY_ADDED, EventKind.SSH_KEY_REMOVED})
EXAMPLE = cli_command("ssh-key add ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA…")


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
    """Register or replace the actor's public key. It is used for every instance that is created from now on."""
    try:
        line, fingerprint = normalise(command.public_key)
    except KeyRefused as refused:
        return refuse(refused.code, str(refused))
    now = ctx.clock.now()
    async with ctx.db.write() as tx:
        known = await public_key(tx, command.actor.ref)
        if await done_before(tx, command.actor.ref, CHANGES, command.key, now - KEPT) is not None:
            sentence = f"Your key {fingerprint} was registered. To see your key: {cli_command('ssh-key show')}."
            return Reply(True, ReplyCode.KEY_ADDED, sentence, {"fingerprint": fingerprint})
        if known is not None and known.fingerprint == fingerprint:
            return Reply(
                True, ReplyCode.KEY_KNOWN, f"This key is already yours: {fingerprint}.", {"fingerprint": fingerprint}
            )
        if known is None:
            tx.add(SshKey(owner=command.actor.ref, public_key=line, fingerprint=fingerprint, created_at=now))
        else:
            known.public_key, known.fingerprint, known.created_at = line, fingerprint, now
        actor = command.actor
        record(tx, now, actor, actor.ref, EventKind.SSH_KEY_ADDED, reason=fingerprint, key=command.key)
    old = " It replaces your earlier one, which machines that run already still accept." if known is not None else ""
    sentence = f"Your key {fingerprint} is registered. New machines accept it.{old}"
    return Reply(True, ReplyCode.KEY_ADDED, sentence, {"fingerprint": fingerprint})


async def remove(ctx: Context, actor: Actor, key: str = "") -> Reply:
    """Delete the actor's public key. Instances that already have it keep it. `key` names the call, as in `AddKey`."""
    now = ctx.clock.now()
    async with ctx.db.write() as tx:
        done = await done_before(tx, actor.ref, CHANGES, key, now - KEPT)
        if done is not None:
            return _removed(done.reason)
        known = await public_key(tx, actor.ref)
        if known is None:
            return refuse(ReplyCode.NO_KEY, f"You have no SSH key here. Add one: {EXAMPLE}")
        await tx.delete(known)
        record(tx, now, actor, actor.ref, EventKind.SSH_KEY_REMOVED, reason=known.fingerprint, key=key)
    return _removed(known.fingerprint)


def _removed(fingerprint: str) -> Reply:
    return Reply(True, ReplyCode.KEY_REMOVED, f"The key {fingerprint} is removed. Running instances still accept it.")


async def show(ctx: Context, actor: Actor) -> Reply:
    """Reply with the key that the actor has."""
    async with ctx.db.read() as tx:
        known = await public_key(tx, actor.ref)
    if known is None:
        return refuse(ReplyCode.NO_KEY, f"You have no SSH key here. Add one: {EXAMPLE}")
    return Reply(
        True,
        ReplyCode.KEY,
        f"Your key: {known.fingerprint} ({known.public_key.split()[0]}).",
        {"key": known.public_key},
    )


async def keyless(tx: Tx, request: Request, has: str) -> str:
    """Return the warning for an undecided request whose people have no SSH key; "" for other requests.

    `has` begins the sentence: `You have` or `alice has`. A program may never log in, so it gets no warning.
    """
    owner, open_now = Actor.from_ref(request.requester), (RequestState.QUOTING, RequestState.PENDING)
    if owner.is_program or request.kind is not RequestKind.PROVISION or request.state not in open_now:
        return ""
    if request.job.public_key or await public_key(tx, owner.ref) is not None:
        return ""
    return f"{no_key(has, ADDS)}."
