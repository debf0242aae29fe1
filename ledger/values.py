"""Shared values of the ledger: ids, money, actors, job requests, grants and proofs.

Standard library only: every layer may import this module, so it must stay free of I/O and of frameworks.
Money is `Decimal` dollars in Python and integer micro-dollars in the database; time is aware UTC.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

MICRO = Decimal(1_000_000)
BASE32 = "0123456789abcdefghjkmnpqrstvwxyz"
ID_LENGTH = 16


class Clock(Protocol):
    """Time as an argument. `now` is aware UTC; `sleep` and `monotonic` are in seconds."""

    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


# ── transactions and the network ─────────────────────────────────────────────────────────────────

_IN_TRANSACTION: ContextVar[bool] = ContextVar("in_ledger_transaction", default=False)


class NetworkInTransaction(RuntimeError):
    """A port was used while a ledger transaction was open; that would hold locks for a network round trip."""


@contextmanager
def transaction_open() -> Iterator[None]:
    """Mark the current task as holding a ledger transaction, so that every port can refuse to run in it."""
    token = _IN_TRANSACTION.set(True)
    try:
        yield
    finally:
        _IN_TRANSACTION.reset(token)


def forbid_in_transaction(what: str) -> None:
    """Raise `NetworkInTransaction` when a ledger transaction is open in this task."""
    if _IN_TRANSACTION.get():
        raise NetworkInTransaction(f"{what} was called inside a ledger transaction")


# ── ids ──────────────────────────────────────────────────────────────────────────────────────────


def base32(number: int, width: int) -> str:
    """`number` as lower-case base32 without the letters i, l, o, u, padded to `width`; ValueError if it is too long."""
    digits = []
    for _ in range(width):
        number, digit = divmod(number, 32)
        digits.append(BASE32[digit])
    if number:
        raise ValueError("the number does not fit the width")
    return "".join(reversed(digits))


_LOW_BITS = 32
#: The milliseconds and the low bits of the newest id.
_newest = (-1, 0)


def new_id(prefix: str, at: datetime) -> str:
    """A time-ordered id: `prefix_` + 16 base32 characters = 48 bits of milliseconds and 32 low bits.

    The low bits are random for the first id of a millisecond, and grow by random steps after it: rows that one
    transaction writes at one instant, such as journal rows, keep their order.
    """
    global _newest  # noqa: PLW0603 # One sequence per process is the point.
    milliseconds = int(at.timestamp() * 1000)
    first = milliseconds != _newest[0]
    low = secrets.randbits(_LOW_BITS - 1) if first else _newest[1] + 1 + secrets.randbits(16)
    _newest = (milliseconds, low)
    # A millisecond that is used up runs over into the next one.
    return f"{prefix}_{base32((milliseconds << _LOW_BITS) + low, ID_LENGTH)}"


def first_id(prefix: str, at: datetime) -> str:
    """The least id of the millisecond `at`: every id that was made later is greater."""
    return f"{prefix}_{base32(int(at.timestamp() * 1000) << _LOW_BITS, ID_LENGTH)}"


def bare_id(identifier: str) -> str:
    """The 16 characters of an id without its prefix."""
    return identifier.rsplit("_", 1)[-1]


def short_id(identifier: str) -> str:
    """The last six characters, which are random: enough for a person to tell two rows apart."""
    return bare_id(identifier)[-6:]


# ── money ────────────────────────────────────────────────────────────────────────────────────────


def to_micro(amount_usd: Decimal) -> int:
    """Dollars to integer micro-dollars, half up. Raises ValueError for NaN and infinities."""
    if not amount_usd.is_finite():
        raise ValueError("an amount of money must be finite")
    return int((amount_usd * MICRO).to_integral_value(rounding=ROUND_HALF_UP))


def from_micro(amount_micro: int) -> Decimal:
    """Integer micro-dollars to dollars, exactly."""
    return Decimal(amount_micro) / MICRO


def cents(amount_usd: Decimal) -> Decimal:
    """Rounded half up to whole cents, as people read amounts."""
    return amount_usd.quantize(Decimal("0.01"), rounding=ROUND_HALF_UP)


# ── who acts ─────────────────────────────────────────────────────────────────────────────────────


class ActorKind(StrEnum):
    SLACK = "slack"
    CONSUMER = "consumer"
    OPERATOR = "operator"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts. `id` is the Slack user id, the program's name, the operating-system user, or the job's name."""

    kind: ActorKind
    id: str
    team: str = ""

    def __post_init__(self) -> None:
        """ValueError for an id or team from which `ref` could not be read back."""
        if not self.id or "/" in self.id:
            raise ValueError(f"an actor's id is not empty and has no slash; {self.id!r} is not one")

    @property
    def ref(self) -> str:
        """The one string stored in the ledger: `slack:T1/U1`, `consumer:atlas`, `operator:ada`, `system:ticker`."""
        return f"{self.kind}:{self.team}/{self.id}" if self.team else f"{self.kind}:{self.id}"

    @classmethod
    def from_ref(cls, ref: str) -> Actor:
        """The inverse of `ref`; ValueError when the text is not one."""
        kind, _, rest = ref.partition(":")
        team, slash, ident = rest.rpartition("/")
        return cls(ActorKind(kind), ident if slash else rest, team if slash else "")


SYSTEM = Actor(ActorKind.SYSTEM, "ticker")


# ── what somebody asks for ───────────────────────────────────────────────────────────────────────


class SpotPolicy(StrEnum):
    NO = "no"
    YES = "yes"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class GpuConstraint:
    """Hardware as a constraint, never a SKU. Names are canonical; empty means any. Memory is GB per GPU."""

    names: tuple[str, ...] = ()
    count_min: int = 1
    count_max: int = 1
    memory_gb_min: Decimal | None = None
    memory_gb_max: Decimal | None = None


_DECIMALS = (
    "max_price_usd_h",
    "budget_cap_usd",
    "min_reliability",
    "memory_gb_total_min",
    "min_cuda",
    "min_capability",
)


@dataclass(frozen=True, slots=True)
class JobRequest:
    """The portable job request. `candidates` is an ordered list of clouds; empty means all.

    `work` holds the words that describe a run, such as `model=7B`; without them only `hours` are known.
    `already_hours` are those that a session has already, where this asks for more of them.
    """

    gpu: GpuConstraint
    hours: Decimal
    disk_gb: int = 50
    workload: str = "training"
    candidates: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    spot: SpotPolicy = SpotPolicy.NO
    max_price_usd_h: Decimal | None = None
    budget_cap_usd: Decimal | None = None
    min_reliability: Decimal | None = None
    #: GB of all GPUs of an offer together.
    memory_gb_total_min: Decimal | None = None
    verified_only: bool = False
    min_cuda: Decimal | None = None
    min_capability: Decimal | None = None
    #: Seconds for which the cloud must expect the offer to stay available.
    min_available_s: int | None = None
    image: str | None = None
    run: str | None = None
    model: str | None = None
    tokens: int | None = None
    checkpoint: str | None = None
    offer_id: str | None = None
    work: tuple[str, ...] = ()
    reason: str = ""
    #: The one SSH key for this machine; None takes the requester's registered one.
    public_key: str | None = None
    already_hours: Decimal = Decimal(0)
    #: The project that it counts for; None is the policy's own.
    label: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; decimals become strings so that nothing passes through a float."""
        return {k: _plain(v) for k, v in asdict(self).items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> JobRequest:
        """The inverse of `to_json`. Unknown keys are ignored, so that older code reads newer rows."""
        known = {k: v for k, v in data.items() if k in cls.__dataclass_fields__}
        gpu = {k: v for k, v in known.pop("gpu").items() if k in GpuConstraint.__dataclass_fields__}
        for key in ("memory_gb_min", "memory_gb_max"):
            gpu[key] = _decimal(gpu.get(key))
        gpu["names"] = tuple(gpu.get("names", ()))
        for key in _DECIMALS:
            known[key] = _decimal(known.get(key))
        for key in ("candidates", "regions", "work"):
            known[key] = tuple(known.get(key, ()))
        known["hours"] = Decimal(known["hours"])
        known["already_hours"] = Decimal(known.get("already_hours", 0))
        known["spot"] = SpotPolicy(known.get("spot", SpotPolicy.NO))
        return cls(gpu=GpuConstraint(**gpu), **known)


def _decimal(value: Any) -> Decimal | None:
    return None if value is None else Decimal(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return str(value) if isinstance(value, StrEnum) else value


# ── the authority to spend ───────────────────────────────────────────────────────────────────────


class GrantKind(StrEnum):
    CREATE = "create"
    REPLACE = "replace"
    EXTEND = "extend"
    START = "start"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class Grant:
    """Spend authority loaded from a committed row; `provider.create` takes one. Single use."""

    id: str
    request_id: str
    kind: GrantKind
    label: str
    price_cap_usd_h: Decimal
    total_cap_usd: Decimal
    hours: Decimal
    until: datetime


# ── proof that something is gone ─────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Absence:
    """One complete listing of the right account that did not contain the instance. Minted by `Listing.absence`."""

    at: datetime
    account: str


@dataclass(frozen=True, slots=True)
class AbsenceRule:
    """How many complete listings, how far apart and over how long prove that an instance is gone."""

    count: int = 3
    apart: timedelta = timedelta(seconds=10)
    over: timedelta = timedelta(seconds=60)


#: How long after a pushed timeout a batch run counts as over: the cloud's own slack and time in its queue.
TIMEOUT_MARGIN = timedelta(minutes=30)


class ProofKind(StrEnum):
    ABSENCE = "absence"
    FINAL_STATUS = "final_status"
    TIMEOUT = "timeout"
    WORD = "word"


@dataclass(frozen=True, slots=True)
class ProofOfEnd:
    """What the move to GONE demands: `from_absences`; for a batch cloud `from_final_status` or `from_timeout`.

    `from_word` is an operator's, for an account that no key here opens any more.
    """

    kind: ProofKind
    account: str
    at: datetime
    evidence: tuple[datetime, ...] = field(default=())

    @classmethod
    def from_absences(
        cls, absences: Sequence[Absence], rule: AbsenceRule, *, last_heartbeat_at: datetime | None
    ) -> ProofOfEnd | None:
        """A proof, or None while the absences do not satisfy `rule` or a fresher heartbeat contradicts them.

        Only listings of one account count, only those after the last heartbeat, and only those at least `rule.apart`
        from the one counted before.
        """
        silent = (a.at for a in absences if last_heartbeat_at is None or a.at > last_heartbeat_at)
        counted = _spaced(sorted(silent), rule.apart)
        if len({a.account for a in absences}) != 1 or len(counted) < rule.count:
            return None
        if counted[-1] - counted[0] < rule.over:
            return None
        return cls(ProofKind.ABSENCE, absences[0].account, counted[-1], tuple(counted))

    @classmethod
    def from_final_status(cls, account: str, at: datetime) -> ProofOfEnd:
        """A batch cloud's run reported its own final status."""
        return cls(ProofKind.FINAL_STATUS, account, at, (at,))

    @classmethod
    def from_word(cls, account: str, at: datetime) -> ProofOfEnd:
        """An operator answers for it, because nothing here can look: no key that is set up opens the account."""
        return cls(ProofKind.WORD, account, at, (at,))

    @classmethod
    def from_timeout(
        cls, account: str, pushed_at: datetime, timeout: timedelta, now: datetime, *, margin: timedelta = TIMEOUT_MARGIN
    ) -> ProofOfEnd | None:
        """A batch cloud's run is over by the timeout that it was pushed with; None until `margin` after that.

        ValueError for a timeout that is not positive: a run that was pushed without one is never over by time.
        """
        if timeout <= timedelta(0):
            raise ValueError("a run without a positive timeout is never over by time; give the timeout that was pushed")
        over_at = pushed_at + timeout + margin
        return cls(ProofKind.TIMEOUT, account, over_at, (pushed_at, now)) if now >= over_at else None


def _spaced(times: Iterable[datetime], apart: timedelta) -> list[datetime]:
    kept: list[datetime] = []
    for at in times:
        if not kept or at - kept[-1] >= apart:
            kept.append(at)
    return kept
