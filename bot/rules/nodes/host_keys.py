"""Compare the SSH host key that the network shows with the one that the machine's own agent reports.

Somebody between GPU Shopper and the machine can show a key of their own. The agent's check-in is authenticated and
comes over TLS, so it names the machine's key. Sources: RFC 4253 section 6.6 (the blob of a public
key begins with its own kind), RFC 5656 and RFC 8709 (the kinds).
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from enum import StrEnum

from bot.rules.nodes.authorized_keys import fingerprint

#: How many bytes of a blob say how long the name of its kind is.
_LENGTH = 4


class KeyMatch(StrEnum):
    """Say how the key that a server shows compares with the key that its machine's agent reports."""

    #: One of the two is not known.
    UNKNOWN = "unknown"
    SAME = "same"
    DIFFERENT = "different"
    #: A machine has a key of each kind, so keys of two kinds say nothing about each other.
    OTHER_KIND = "other_kind"


@dataclass(frozen=True, slots=True)
class HostKey:
    """Hold a host key as it is compared: its kind (`ssh-ed25519`) and the blob that RFC 4253 defines."""

    kind: str
    blob: bytes


def host_key(line: str | None) -> HostKey | None:
    """Read an OpenSSH line, `ssh-ed25519 AAAA…`; None for what is no key, such as a blob of another kind."""
    words = (line or "").split()
    if len(words) < 2:
        return None
    try:
        blob = base64.b64decode(words[1], validate=True)
    except binascii.Error:
        return None
    kind = words[0].encode()
    named = len(kind).to_bytes(_LENGTH, "big") + kind
    return HostKey(words[0], blob) if blob.startswith(named) and len(blob) > len(named) else None


def compare(shown: str | None, reported: str | None) -> KeyMatch:
    """Compare the server's key with the agent's: only keys of one kind can differ."""
    ours, theirs = host_key(shown), host_key(reported)
    if ours is None or theirs is None:
        return KeyMatch.UNKNOWN
    if ours.kind != theirs.kind:
        return KeyMatch.OTHER_KIND
    return KeyMatch.SAME if ours.blob == theirs.blob else KeyMatch.DIFFERENT


def differ(shown: str, reported: str) -> str:
    """Say in one sentence that both differ. Fingerprints only: no text of a machine reaches a message."""
    return (
        f"The SSH server at the machine's address shows host key {fingerprint(shown)}, but the machine's own agent "
        f"reports {fingerprint(reported)}."
    )


def changed_since_ready(session: str, where: str, shown: str, reported: str) -> str:
    """Say that a running machine's agent reports another key than the server showed, and what to do."""
    return (
        f"Session {session} ({where}): {differ(shown, reported)} Did you change the key yourself? "
        f"If not, don't connect: somebody may intercept you. `gpu-shopper ssh {session}` accepts the agent's key only. "
        "The session keeps running."
    )


def confirmation(shown: str | None, reported: str | None) -> str:
    """Say in a few words whether the agent confirms the known host key."""
    return {
        KeyMatch.UNKNOWN: "not confirmed by an agent",
        KeyMatch.SAME: "confirmed by its agent",
        KeyMatch.DIFFERENT: "but its agent reports another one: don't connect",
        KeyMatch.OTHER_KIND: "not confirmed, because its agent reports a key of another kind",
    }[compare(shown, reported)]
