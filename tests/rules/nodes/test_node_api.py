"""What of a node's word about its own API is believed: never its address, and one certificate."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bot.rules.nodes.node_api import TOLD_AGAIN, Claim, Declared, NodeApi, declared
from tests.support.clock import START

FIRST, SECOND, THIRD = "a" * 64, "b" * 64, "c" * 64


@pytest.mark.parametrize(
    ("claim", "host", "port"),
    [
        (Claim(FIRST, port=8443), None, 8443),
        (Claim(FIRST.upper(), port=8443), "203.0.113.7", 8443),
        (Claim(FIRST, "https://203.0.113.7:8443"), "203.0.113.7", 8443),
        (Claim(FIRST, "https://203.0.113.7/", 443), "203.0.113.7", 443),
        (Claim(FIRST, "https://SSH4.vast.example.:9"), "ssh4.vast.example", 9),
        (Claim(FIRST, "https://[2001:db8:0::7]:9"), "2001:db8::7", 9),
    ],
)
def test_a_port_at_the_address_that_the_cloud_shows_is_taken(claim: Claim, host: str | None, port: int) -> None:
    assert declared(NodeApi(), claim, host, START) == Declared(NodeApi(port, FIRST))


@pytest.mark.parametrize(
    ("claim", "host", "problem"),
    [
        (Claim(FIRST), "203.0.113.7", "Say the port"),
        (Claim(FIRST, "http://203.0.113.7:9"), "203.0.113.7", "https://"),
        (Claim(FIRST, "203.0.113.7:9"), "203.0.113.7", "https://"),
        (Claim(FIRST, "https://[203.0.113.7"), "203.0.113.7", "cannot be read"),
        (Claim(FIRST, "https://203.0.113.7:99999"), "203.0.113.7", "cannot be read"),
        (Claim(FIRST, "https://203.0.113.7:0"), "203.0.113.7", "unclear"),
        (Claim(FIRST, "https://203.0.113.7:9", 10), "203.0.113.7", "unclear"),
        (Claim(FIRST, "https://ada@203.0.113.7:9"), "203.0.113.7", "nothing else"),
        (Claim(FIRST, "https://203.0.113.7:9/x"), "203.0.113.7", "nothing else"),
        (Claim(FIRST, "https://203.0.113.7:9?x"), "203.0.113.7", "nothing else"),
        (Claim(FIRST, "https://203.0.113.7:9#x"), "203.0.113.7", "nothing else"),
        (Claim(FIRST, "https://evil.example:9"), "203.0.113.7", "not the address"),
        (Claim(FIRST, "https://203.0.113.7.evil.example:9"), "203.0.113.7", "not the address"),
        (Claim(FIRST, "https://127.0.0.1:9"), "203.0.113.7", "not the address"),
        (Claim(FIRST, "https://:9"), "203.0.113.7", "not the address"),
        (Claim(FIRST, "https://203.0.113.7:9"), None, "not the address"),
    ],
)
def test_nothing_else_is_taken_and_what_was_known_stays(claim: Claim, host: str | None, problem: str) -> None:
    before = NodeApi(8443, SECOND)
    found = declared(before, claim, host, START)
    assert (found.api, found.is_told) == (before, False)
    assert problem in found.problem


def test_another_certificate_is_told_once_and_never_takes_the_place_of_the_first() -> None:
    known = declared(NodeApi(), Claim(FIRST, port=1), None, START).api
    changed = declared(known, Claim(SECOND, port=2), None, START)
    assert (changed.api, changed.is_told) == (NodeApi(1, FIRST, SECOND, START), True)
    assert changed.problem
    late, later = START + TOLD_AGAIN - timedelta(seconds=1), START + TOLD_AGAIN
    for claim, at, told in (
        (Claim(SECOND, port=2), later, False),
        (Claim(THIRD, port=2), late, False),
        (Claim(THIRD, port=2), later, True),
    ):
        found = declared(changed.api, claim, None, at)
        assert (found.is_told, found.api.certificate, found.api.port) == (told, FIRST, 1)
        assert found.problem
    # Its first one may move to another port; what was told of stays on record.
    again = declared(changed.api, Claim(FIRST, port=3), None, later)
    assert again == Declared(NodeApi(3, FIRST, SECOND, START))
