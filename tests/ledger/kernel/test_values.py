"""Ids, money, actors, job requests and proofs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.kernel.actor import SYSTEM, Actor, ActorKind
from ledger.kernel.ids import BASE32, bare_id, base32, first_id, new_id, short_id
from ledger.kernel.money import cents, from_micro, share, to_micro
from ledger.kernel.proof import Absence, AbsenceRule, ProofKind, ProofOfEnd
from ledger.kernel.volume_name import volume_of
from tests.support.clock import START

# ── ids ──────────────────────────────────────────────────────────────────────────────────────────


@given(st.integers(min_value=0, max_value=32**16 - 1), st.integers(min_value=0, max_value=32**16 - 1))
def test_base32_keeps_the_order_of_numbers(a: int, b: int) -> None:
    one, other = base32(a, 16), base32(b, 16)
    assert (one < other) == (a < b)
    assert len(one) == 16
    assert set(one) <= set(BASE32)


def test_base32_by_hand() -> None:
    assert (base32(0, 2), base32(31, 2), base32(32, 2), base32(1023, 2)) == ("00", "0z", "10", "zz")
    with pytest.raises(ValueError, match="does not fit"):
        base32(1024, 2)
    assert not set("ilou") & set(BASE32)


def test_ids_of_one_instant_are_ordered_as_they_were_made() -> None:
    ids = [new_id("evt", START) for _ in range(5000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_ids_of_later_instants_come_later() -> None:
    ids = [new_id("evt", START + timedelta(milliseconds=n)) for n in range(500)]
    assert ids == sorted(ids)


def test_ids_never_repeat_when_a_millisecond_is_used_up() -> None:
    ids = {new_id("evt", START) for _ in range(150_000)}
    assert len(ids) == 150_000


def test_the_first_id_of_a_millisecond_comes_before_what_was_made_in_it() -> None:
    at = datetime(2026, 3, 2, tzinfo=UTC)
    made = [new_id("evt", at + timedelta(milliseconds=n)) for n in range(2)]
    first = first_id("evt", at + timedelta(milliseconds=1))
    assert made[0] < first < made[1]
    assert first_id("evt", at + timedelta(milliseconds=1, microseconds=999)) == first


def test_the_parts_of_an_id() -> None:
    made = new_id("req", datetime(2026, 3, 2, tzinfo=UTC))
    prefix, bare = made.split("_")
    assert (prefix, len(bare), len(made)) == ("req", 16, 20)
    assert bare_id(made) == bare == bare_id(bare)
    assert short_id(made) == bare[-6:]
    assert bare.startswith(base32(int(datetime(2026, 3, 2, tzinfo=UTC).timestamp() * 1000) << 32, 16)[:9])


# ── money ────────────────────────────────────────────────────────────────────────────────────────


@given(st.integers(min_value=-(10**15), max_value=10**15))
def test_micro_dollars_round_trip(micro: int) -> None:
    assert to_micro(from_micro(micro)) == micro


@pytest.mark.parametrize(
    ("usd", "micro"), [("0.0000005", 1), ("0.0000015", 2), ("-0.0000005", -1), ("0.00000049", 0), ("1e6", 10**12)]
)
def test_halves_round_away_from_zero(usd: str, micro: int) -> None:
    assert to_micro(Decimal(usd)) == micro


@pytest.mark.parametrize("bad", ["NaN", "Infinity", "-Infinity"])
def test_money_is_finite(bad: str) -> None:
    with pytest.raises(ValueError, match="must be finite"):
        to_micro(Decimal(bad))


def test_people_read_cents() -> None:
    assert [str(cents(Decimal(x))) for x in ("1", "1.005", "0.004", "2.675")] == ["1.00", "1.01", "0.00", "2.68"]


@pytest.mark.parametrize(
    ("usd", "parts", "part"),
    [("1", 3, "0.333333"), ("0.000002", 3, "0"), ("1.0000005", 1, "1.0000005"), ("9", 2, "4.5")],
)
def test_parts_of_an_amount_never_exceed_it(usd: str, parts: int, part: str) -> None:
    assert share(Decimal(usd), parts) == Decimal(part)
    assert parts * share(Decimal(usd), parts) <= Decimal(usd)


# ── actors ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("actor", "ref"),
    [
        (Actor(ActorKind.SLACK, "U1", "T1"), "slack:T1/U1"),
        (Actor(ActorKind.CONSUMER, "K1"), "consumer:K1"),
        (Actor(ActorKind.OPERATOR, "ada"), "operator:ada"),
        (SYSTEM, "system:ticker"),
    ],
)
def test_refs(actor: Actor, ref: str) -> None:
    assert actor.ref == ref
    assert Actor.from_ref(ref) == actor


names = st.text(st.characters(blacklist_characters="/"), min_size=1, max_size=20)


@given(st.sampled_from(ActorKind), names, st.text(max_size=20))
def test_refs_read_back(kind: ActorKind, name: str, team: str) -> None:
    actor = Actor(kind, name, team)
    assert Actor.from_ref(actor.ref) == actor


@pytest.mark.parametrize("ref", ["", "slack", "robot:x", "slack:", "slack:T1/"])
def test_what_is_no_ref(ref: str) -> None:
    with pytest.raises(ValueError, match=r"is not a valid ActorKind|is not empty and has no slash"):
        Actor.from_ref(ref)


def test_an_id_that_could_not_be_read_back_is_refused() -> None:
    with pytest.raises(ValueError, match="no slash"):
        Actor(ActorKind.OPERATOR, "a/b")


# ── volumes ──────────────────────────────────────────────────────────────────────────────────────


def test_a_volume_stands_in_place_of_a_gpu() -> None:
    assert [volume_of(gpu) for gpu in ("volume:data", "volume:", "a volume:data", "H100", "")] == [
        "data",
        "",
        "",
        "",
        "",
    ]


# ── proofs ───────────────────────────────────────────────────────────────────────────────────────

RULE = AbsenceRule()


def proof(*seconds: float, heartbeat: float | None = None, accounts: tuple[str, ...] = ("a",)) -> ProofOfEnd | None:
    absences = [
        Absence(START + timedelta(seconds=s), accounts[min(n, len(accounts) - 1)]) for n, s in enumerate(seconds)
    ]
    beat = None if heartbeat is None else START + timedelta(seconds=heartbeat)
    return ProofOfEnd.from_absences(absences, RULE, last_heartbeat_at=beat)


def test_three_listings_over_a_minute_prove_the_end() -> None:
    proved = proof(60, 0, 30)
    assert proved is not None
    assert (proved.kind, proved.account) == (ProofKind.ABSENCE, "a")
    assert proved.at == START + timedelta(seconds=60)
    assert [(t - START).total_seconds() for t in proved.evidence] == [0, 30, 60]


@pytest.mark.parametrize(
    "seconds",
    [(), (0,), (0, 60), (0, 30, 59.9), (0, 5, 60), (0, 9.9, 60), (0, 0, 0, 60)],
    ids=["none", "one", "two", "too short", "too close", "just too close", "one counted often"],
)
def test_less_does_not(seconds: tuple[float, ...]) -> None:
    assert proof(*seconds) is None


def test_listings_that_are_too_close_do_not_spoil_the_others() -> None:
    assert proof(0, 5, 10, 15, 60) is not None


def test_listings_of_two_accounts_prove_nothing() -> None:
    assert proof(0, 30, 60, accounts=("a", "b")) is None


def test_a_heartbeat_contradicts_the_listings_before_it() -> None:
    assert proof(0, 30, 60, heartbeat=-1) is not None
    assert proof(0, 30, 60, heartbeat=0) is None
    assert proof(0, 30, 60, heartbeat=45) is None


def test_after_its_last_heartbeat_an_instance_can_still_be_proved_gone() -> None:
    assert proof(0, 30, 60, 90, 105, heartbeat=45) is None
    assert proof(0, 30, 60, 90, 120, heartbeat=45) is not None


def test_a_final_status_is_a_proof() -> None:
    assert ProofOfEnd.from_final_status("a", START) == ProofOfEnd(ProofKind.FINAL_STATUS, "a", START, (START,))
    assert ProofOfEnd.from_write_off("a", START) == ProofOfEnd(ProofKind.WRITE_OFF, "a", START, (START,))


def test_a_run_is_over_by_timeout_half_an_hour_after_it() -> None:
    timeout = timedelta(hours=4)
    over_at = START + timeout + timedelta(minutes=30)
    assert ProofOfEnd.from_timeout("a", START, timeout, over_at - timedelta(seconds=1)) is None
    later = over_at + timedelta(hours=1)
    proved = ProofOfEnd.from_timeout("a", START, timeout, later)
    assert proved == ProofOfEnd(ProofKind.TIMEOUT, "a", over_at, (START, later))


def test_a_run_without_a_timeout_is_never_over_by_time() -> None:
    with pytest.raises(ValueError, match="positive timeout"):
        ProofOfEnd.from_timeout("a", START, timedelta(0), START + timedelta(days=9))


def test_reads_that_all_miss_a_volume_prove_its_end_as_listings_do() -> None:
    misses = [Absence(START + timedelta(seconds=s), "a") for s in (0, 30, 60)]
    assert ProofOfEnd.from_own_reads(misses[:2], RULE) is None
    assert ProofOfEnd.from_own_reads([*misses[:2], Absence(misses[2].at, "b")], RULE) is None
    times = tuple(miss.at for miss in misses)
    assert ProofOfEnd.from_own_reads(misses, RULE) == ProofOfEnd(ProofKind.OWN_READS, "a", times[-1], times)
