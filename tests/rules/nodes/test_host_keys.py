"""The network's host key beside the agent's: only keys of one kind can differ, and what is no key says nothing."""

from __future__ import annotations

import base64

import pytest

from bot.rules.instances.gpu_check import FAILED_DELIVERY, other_host_key
from bot.rules.nodes.authorized_keys import fingerprint
from bot.rules.nodes.host_keys import KeyMatch, changed_since_ready, compare, confirmation, host_key
from ledger.kernel.end_reason import EndReason


def line(kind: str, material: bytes, named: str = "") -> str:
    """An OpenSSH line whose blob says that it is of the kind `named`."""
    inner = (named or kind).encode()
    return f"{kind} {base64.b64encode(len(inner).to_bytes(4, 'big') + inner + material).decode()}"


ONE, TWO = line("ssh-ed25519", b"one"), line("ssh-ed25519", b"two")
RSA, ECDSA = line("ssh-rsa", b"one"), line("ecdsa-sha2-nistp256", b"one")


@pytest.mark.parametrize(
    ("shown", "reported", "match"),
    [
        (ONE, ONE, KeyMatch.SAME),
        (ONE, f"{ONE} root@machine", KeyMatch.SAME),
        (ONE, TWO, KeyMatch.DIFFERENT),
        (RSA, line("ssh-rsa", b"two"), KeyMatch.DIFFERENT),
        (ONE, RSA, KeyMatch.OTHER_KIND),
        (ECDSA, RSA, KeyMatch.OTHER_KIND),
        (None, ONE, KeyMatch.UNKNOWN),
        (ONE, None, KeyMatch.UNKNOWN),
        (ONE, "", KeyMatch.UNKNOWN),
        # What is no key is not compared: a wrong check-in ends no machine.
        (ONE, "ssh-ed25519", KeyMatch.UNKNOWN),
        (ONE, "ssh-ed25519 AAAA", KeyMatch.UNKNOWN),
        (ONE, "ssh-ed25519 AAA", KeyMatch.UNKNOWN),
        (ONE, "ssh-ed25519 !!!!", KeyMatch.UNKNOWN),
        (ONE, line("ssh-ed25519", b""), KeyMatch.UNKNOWN),
        (ONE, line("ssh-ed25519", b"one", named="ssh-rsa"), KeyMatch.UNKNOWN),
    ],
)
def test_only_keys_of_one_kind_are_compared(shown: str | None, reported: str | None, match: KeyMatch) -> None:
    assert compare(shown, reported) is match
    assert compare(reported, shown) is match


def test_a_key_is_its_kind_and_its_blob() -> None:
    found = host_key(ONE)
    assert found is not None
    assert (found.kind, found.blob[-3:]) == ("ssh-ed25519", b"one")


def test_a_delivery_with_another_key_fails_and_names_both_fingerprints() -> None:
    verdict = other_host_key(ONE, TWO)
    assert (verdict.code, verdict.may_settle) == (EndReason.HOST_KEY_MISMATCH, True)
    assert verdict.code in FAILED_DELIVERY
    for key in (ONE, TWO):
        assert fingerprint(key) in verdict.sentence
        assert key not in verdict.sentence


def test_a_running_machine_keeps_running() -> None:
    sentence = changed_since_ready("4k7m2p", "vast, gs-1", ONE, TWO)
    assert f"shows host key {fingerprint(ONE)}" in sentence
    assert f"agent reports {fingerprint(TWO)}" in sentence
    assert sentence.endswith("The session keeps running.")


def test_people_read_whether_the_key_is_confirmed() -> None:
    said = [confirmation(ONE, reported) for reported in (ONE, None, RSA, TWO)]
    assert said[0] == "confirmed by its agent"
    assert all(one.startswith("not confirmed") for one in said[1:3])
    assert said[3] == "but its agent reports another one: don't connect"
