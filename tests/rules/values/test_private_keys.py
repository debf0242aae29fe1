"""A private key is known by its frame, its format or its length; words about one are not one."""

from __future__ import annotations

import pytest

from bot.rules.values.private_keys import looks_private, names_private_key

BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
PUTTY = f"PuTTY-User-Key-File-3: ssh-ed25519 Encryption: none Comment: ada Private-Lines: 1 {BODY} Private-MAC: 0a1b"


@pytest.mark.parametrize(
    "text",
    [
        f"-----BEGIN PRIVATE KEY----- {BODY}",
        "-----BEGIN OPENSSH PRIVATE KEY----- abc",
        "\u2014\u2013BEGIN RSA PRIVATE KEY\u2014\u2013",
        "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----",
        "-----end ec private key-----",
        f"private key: {BODY}",
        "key add b3BlbnNzaC1rZXktdjEAAAAABG5vbmU",
        PUTTY,
        "private-lines: 14",
    ],
)
def test_a_private_key_is_known(text: str) -> None:
    assert looks_private(text)


@pytest.mark.parametrize(
    "text",
    [
        'provision 4090 2h for="our private key infra"',
        "we begin our private key rotation - private key day",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBpYRlvm0dvKqjKmzqQ8mDqyNLlH4CSp9nTgQH8dDGIH ada@laptop",
        "",
    ],
)
def test_words_about_keys_and_public_keys_are_none(text: str) -> None:
    assert not looks_private(text)


def test_where_only_a_key_is_expected_its_name_is_enough() -> None:
    assert names_private_key("my Private-Key: abc")
    assert not names_private_key("ssh-ed25519 AAAA")
