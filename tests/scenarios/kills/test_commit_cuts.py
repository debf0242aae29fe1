"""The proxy that cuts COMMITs reads PostgreSQL's wire: which tables a COMMIT makes permanent, whatever the pieces."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scenarios.kills.commit_cuts import CANCEL, ClientStream, Piece, Tables, Way, backend_of, tables
from tests.scenarios.kills.cuts import TOGETHER, Aim, Cut, CutRota
from tests.scenarios.kills.failpoints import Phase

pytestmark = pytest.mark.quick

VERSION = 196_608
INBOX, BOTH = frozenset({"inbox"}), frozenset({"inbox", "events"})


def begin(code: int = VERSION, rest: bytes = b"user\0postgres\0\0") -> bytes:
    return struct.pack("!ii", 8 + len(rest), code) + rest


def said(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", 4 + len(body)) + body


def parse(name: bytes, text: bytes) -> bytes:
    return said(b"P", name + b"\0" + text + b"\0" + struct.pack("!h", 0))


def bind(name: bytes) -> bytes:
    return said(b"B", b"\0" + name + b"\0" + struct.pack("!hhh", 0, 0, 0))


def query(text: bytes) -> bytes:
    return said(b"Q", text + b"\0")


WALK = b"".join(
    (
        begin(),
        parse(b"s1", b"INSERT INTO inbox (key) VALUES ($1)"),
        query(b"BEGIN;"),
        bind(b"s1"),
        query(b"COMMIT;"),
        query(b"BEGIN;"),
        bind(b"s1"),
        query(b"ROLLBACK;"),
        query(b"BEGIN;"),
        query(b"UPDATE events SET a = 1"),
        bind(b"s1"),
        said(b"S", b""),
        query(b"COMMIT;"),
        query(b"COMMIT;"),
    )
)


def commits(pieces: list[Piece]) -> list[Tables]:
    return [one.commits for one in pieces if one.commits is not None]


@given(st.lists(st.integers(0, len(WALK))))
def test_each_commit_is_known_by_the_tables_of_its_transaction_however_the_bytes_arrive(at: list[int]) -> None:
    stream = ClientStream()
    edges = [0, *sorted(at), len(WALK)]
    pieces = [piece for a, b in itertools.pairwise(edges) for piece in stream.feed(WALK[a:b])]
    assert b"".join(piece.data for piece in pieces) == WALK
    assert commits(pieces) == [INBOX, BOTH, frozenset()]


def test_a_request_to_cancel_has_no_messages_after_it() -> None:
    stream = ClientStream()
    whole = begin(CANCEL, struct.pack("!ii", 7, 8))
    assert [one.data for one in stream.feed(whole)] == [whole]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (b'INSERT INTO "inbox" (key) VALUES ($1) ON CONFLICT (key) DO UPDATE SET key = $1', {"inbox"}),
        (b"SELECT id FROM sessions FOR UPDATE SKIP LOCKED", set()),
        (b"SELECT id FROM sessions FOR NO KEY UPDATE OF sessions", set()),
        (b"WITH x AS (DELETE FROM claims RETURNING id) UPDATE  sessions SET a = 1", {"claims", "sessions"}),
    ],
)
def test_the_tables_that_a_statement_writes(text: bytes, written: set[str]) -> None:
    assert tables(text) == written


def test_the_backend_is_known_from_the_answer_to_the_log_in() -> None:
    greeting = said(b"R", struct.pack("!i", 0)) + said(b"S", b"a\0b\0") + said(b"K", struct.pack("!ii", 4711, 1))
    assert backend_of(greeting) == 4711
    assert all(backend_of(greeting[:end]) is None for end in range(len(greeting) - 4))


def test_the_rota_comes_to_each_commit_that_was_seen_in_each_way() -> None:
    rota = CutRota()
    assert rota.plan()[Phase.ASK] == [Cut(frozenset(), way) for way in Way]
    for _ in range(8):
        aim = Aim(rota.plan())
        aim.phase(Phase.ASK)
        for wrote in (BOTH, INBOX) * 3:
            aim._choose(wrote)
        aim.phase(None)
        assert aim._choose(INBOX) is None
        assert len(aim.made) == TOGETHER
        rota.learn(aim)
    assert {cut for _, cut in rota.cuts} == {Cut(wrote, way) for way in Way for wrote in (INBOX, BOTH)}
    numbers = [str(rota.cuts[Phase.ASK, Cut(BOTH, way)]) for way in Way]
    assert f"| ask | events, inbox | {' | '.join(numbers)} |" in rota.table()
