"""Decide which token of an agent is accepted, and when its boot token may be exchanged.

The boot token is in the instance's environment, where every program on it can read it. The agent exchanges it at its
first check-in for a check-in token that it keeps in memory only. A restart loses that memory, so each one opens one new
exchange; any other use of an exchanged boot token is refused, and its people are notified.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

#: Its people are notified of another refused token of the same agent not sooner than this.
NOTIFIED_AGAIN: Final = timedelta(hours=1)
#: An agent that still has its check-in token this long after a restart was reported did not lose its memory.
RESTART_TAKES: Final = timedelta(minutes=10)
#: How much the times of a cloud may be off before a start that it reports counts as a restart.
START_MARGIN: Final = timedelta(minutes=2)


class TokenKind(StrEnum):
    """Name the two kinds of tokens by the word that they begin with."""

    BOOT = "gpun"
    CHECKIN = "gpuc"


@dataclass(frozen=True, slots=True)
class StoredTokens:
    """Hold what is stored of an agent's tokens. Hashes are hexadecimal.

    `previous` is the check-in token before the last exchange, and `nonce` belongs to the last one. `open_since` is when
    a restart opened another one.
    """

    boot: str
    checkin: str | None = None
    previous: str | None = None
    nonce: str | None = None
    exchanged_at: datetime | None = None
    open_since: datetime | None = None
    notified_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ShownToken:
    """Hold what a check-in shows: its token's hash, its nonce's, and the hash of the token that the nonce leads to."""

    kind: TokenKind
    hashed: str
    nonce: str | None = None
    next_hash: str | None = None


class TokenVerdict(StrEnum):
    """Say what happens to a check-in because of its token."""

    ACCEPTED = "accepted"
    #: Accepted, and the answer has the check-in token.
    EXCHANGED = "exchanged"
    #: No token of this instance.
    UNKNOWN = "unknown"
    #: A boot token that was exchanged, or a check-in token that another one replaced.
    REPLACED = "replaced"


class JudgedToken(NamedTuple):
    """Hold the verdict, what is stored from now on, and whether people are notified of a refusal."""

    verdict: TokenVerdict
    tokens: StoredTokens
    is_notified: bool = False


def judge_token(stored: StoredTokens, shown: ShownToken, now: datetime, *, is_stopped: bool = False) -> JudgedToken:
    """Judge the token of one check-in. A stopped instance exchanges nothing."""
    if shown.kind is TokenKind.CHECKIN:
        return _checkin(stored, shown, now)
    if not _same(stored.boot, shown.hashed):
        return JudgedToken(TokenVerdict.UNKNOWN, stored)
    if shown.nonce is None:
        # An agent of before exchanges nothing; its boot token works as long as nobody exchanged it.
        return JudgedToken(TokenVerdict.ACCEPTED, stored) if stored.checkin is None else _refused(stored, now)
    if _same(stored.nonce, shown.nonce):
        # The same agent asks again, because the reply was lost. Only its memory has the nonce, as it has the token.
        return JudgedToken(TokenVerdict.EXCHANGED, stored)
    if is_stopped:
        return JudgedToken(TokenVerdict.REPLACED, stored)  # Its next listing shows whether it runs again.
    if stored.checkin is not None and stored.open_since is None:
        return _refused(stored, now)
    return JudgedToken(
        TokenVerdict.EXCHANGED,
        replace(
            stored,
            checkin=shown.next_hash,
            previous=stored.checkin,
            nonce=shown.nonce,
            exchanged_at=now,
            open_since=None,
        ),
    )


def _checkin(stored: StoredTokens, shown: ShownToken, now: datetime) -> JudgedToken:
    if _same(stored.checkin, shown.hashed):
        since = stored.open_since
        kept = since if since is not None and now - since < RESTART_TAKES else None
        return JudgedToken(TokenVerdict.ACCEPTED, replace(stored, open_since=kept))
    return _refused(stored, now) if _same(stored.previous, shown.hashed) else JudgedToken(TokenVerdict.UNKNOWN, stored)


def _refused(stored: StoredTokens, now: datetime) -> JudgedToken:
    if stored.notified_at is not None and now - stored.notified_at < NOTIFIED_AGAIN:
        return JudgedToken(TokenVerdict.REPLACED, stored)
    return JudgedToken(TokenVerdict.REPLACED, replace(stored, notified_at=now), is_notified=True)


def _same(stored: str | None, shown: str) -> bool:
    return stored is not None and hmac.compare_digest(stored, shown)


def restarted_since(stored: StoredTokens, started_at: datetime) -> bool:
    """Whether an instance that its cloud started at `started_at` has lost the token of its last exchange."""
    at = stored.exchanged_at
    return at is not None and stored.open_since is None and started_at - at > START_MARGIN
