"""What of a node's word about its own API is believed: never its address, and one certificate."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bot.rules.nodes.node_api import TOLD_AGAIN, Declared, StoredNodeApi, declared
from bot.wire.node_api import NodeApiClaim
from tests.support.clock import START

FIRST, SECOND, THIRD = "a" * 64, "b" * 64, "c" * 64


@pytest.mark.parametrize(
    ("claim", "host", "port"),
    [
        (NodeApiClaim(FIRST, port=8443), None, 8443),
        (NodeApiClaim(FIRST.upper(), port=8443), "203.0.113.7", 8443),
        (NodeApiClaim(FIRST, url="https://203.0.113.7:8443"), "203.0.113.7", 8443),
        (NodeApiClaim(FIRST, url="https://203.0.113.7/", port=443), "203.0.113.7", 443),
        (NodeApiClaim(FIRST, url="https://SSH4.vast.example.:9"), "ssh4.vast.example", 9),
        (NodeApiClaim(FIRST, url="https://[2001:db8:0::7]:9"), "2001:db8::7", 9),
    ],
)
def test_a_port_at_the_address_that_the_cloud_shows_is_taken(claim: NodeApiClaim, host: str | None, port: int) -> None:
    assert declared(StoredNodeApi(), claim, host, START) == Declared(StoredNodeApi(port, FIRST))


@pytest.mark.parametrize(
    ("claim", "host", "problem"),
    [
        (NodeApiClaim(FIRST), "203.0.113.7", "Say the port"),
        (NodeApiClaim(FIRST, url="http://203.0.113.7:9"), "203.0.113.7", "https://"),
        (NodeApiClaim(FIRST, url="203.0.113.7:9"), "203.0.113.7", "https://"),
        (NodeApiClaim(FIRST, url="https://[203.0.113.7"), "203.0.113.7", "cannot be read"),
        (NodeApiClaim(FIRST, url="https://203.0.113.7:99999"), "203.0.113.7", "cannot be read"),
        (NodeApiClaim(FIRST, url="https://203.0.113.7:0"), "203.0.113.7", "can't be read"),
        (NodeApiClaim(FIRST, url="https://203.0.113.7:9", port=10), "203.0.113.7", "can't be read"),
        (NodeApiClaim(FIRST, url="https://ada@203.0.113.7:9"), "203.0.113.7", "nothing else"),
        (NodeApiClaim(FIRST, url="https://203.0.113.7:9/x"), "203.0.113.7", "nothing else"),
        (NodeApiClaim(FIRST, url="https://203.0.113.7:9?x"), "203.0.113.7", "nothing else"),
        (NodeApiClaim(FIRST, url="https://203.0.113.7:9#x"), "203.0.113.7", "nothing else"),
        (NodeApiClaim(FIRST, url="https://evil.example:9"), "203.0.113.7", "not this machine's address"),
        (NodeApiClaim(FIRST, url="https://203.0.113.7.evil.example:9"), "203.0.113.7", "not this machine's address"),
        (NodeApiClaim(FIRST, url="https://127.0.0.1:9"), "203.0.113.7", "not this machine's address"),
        (NodeApiClaim(FIRST, url="https://:9"), "203.0.113.7", "not this machine's address"),
        (NodeApiClaim(FIRST, url="https://203.0.113.7:9"), None, "not this machine's address"),
    ],
)
def test_nothing_else_is_taken_and_what_was_known_stays(claim: NodeApiClaim, host: str | None, problem: str) -> None:
    before = StoredNodeApi(8443, SECOND)
    found = declared(before, claim, host, START)
    assert (found.api, found.is_told) == (before, False)
    assert problem in found.problem


def test_another_certificate_is_told_once_and_never_takes_the_place_of_the_first() -> None:
    known = declared(StoredNodeApi(), NodeApiClaim(FIRST, port=1), None, START).api
    changed = declared(known, NodeApiClaim(SECOND, port=2), None, START)
    assert (changed.api, changed.is_told) == (StoredNodeApi(1, FIRST, SECOND, START), True)
    assert changed.problem
    late, later = START + TOLD_AGAIN - timedelta(seconds=1), START + TOLD_AGAIN
    for claim, at, told in (
        (NodeApiClaim(SECOND, port=2), later, False),
        (NodeApiClaim(THIRD, port=2), late, False),
        (NodeApiClaim(THIRD, port=2), later, True),
    ):
        found = declared(changed.api, claim, None, at)
        assert (found.is_told, found.api.certificate, found.api.port) == (told, FIRST, 1)
        assert found.problem
    # Its first one may move to another port; what was told of stays on record.
    again = declared(changed.api, NodeApiClaim(FIRST, port=3), None, later)
    assert again == Declared(StoredNodeApi(3, FIRST, SECOND, START))
