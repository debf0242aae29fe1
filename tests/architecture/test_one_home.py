"""What is decided in one place: how money is rounded, when a session has too many hours, and which id people read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cache

import pytest

from tests.architecture.test_budgets import name_of, parsed, python_files

ROUNDS_MONEY = "ledger/kernel/money.py"
#: Below this a power of ten is a unit that money is rounded to; a cent itself is also a plain hundredth.
CENT = Decimal("0.01")
#: A sandbox plays a cloud, which rounds its own prices and bills, so it shares nothing with what it tests.
CLOUDS_OF_THEIR_OWN = "providers/sandbox/"
#: What `round` may not be called with: it rounds half to even without saying so.
MONEY = re.compile("usd|price|amount|cost|cents", re.IGNORECASE)

COMPARES_WITH_THE_CAP = "bot/rules/pricing/hours_cap.py"
#: Where the field is no session's cap: a program's own limit has the same name, the policy's numbers are held to each
#: other when the policy is read, and an approval stores the policy's limits as they were.
OTHER_LIMITS = frozenset(
    {
        "bot/rules/jobs/consumer_limits.py",
        "bot/rules/policy/consumers.py",
        "bot/rules/policy/validation.py",
        "bot/rules/approvals/policy_limits.py",
    }
)
#: The cap may be shown: as a text for people, or in the field of a document.
SHOWS = frozenset({"hours", "say_hours", "hours_said", "hour_limit", "what_is_requested"})
SHOWN_AS = "max_hours_without_override"


@dataclass(frozen=True)
class Found:
    """What a module has of each kind, by line."""

    roundings: list[tuple[int, str]]
    caps: list[int]
    short_ids: list[int]
    trusting: list[int]


@cache
def ours() -> dict[str, Found]:
    """Every module of the product by its path, read once for all tests."""
    found = {}
    for path in python_files():
        if not (name := name_of(path)).startswith("tests/"):
            tree = parsed(path)
            lists = (list(kind(tree)) for kind in (roundings, uses_of_the_cap, short_ids_of_sessions, trusting))
            found[name] = Found(*lists)  # type: ignore[arg-type] # Each is a list of its own kind.
    return found


def called(node: ast.Call) -> str:
    """The name of a called function or method."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def unit(node: ast.Call) -> Decimal | None:
    """The value of `Decimal("0.01")` and its like: a power of ten, or half of one, below 1. None for anything else."""
    first = node.args[0] if called(node) == "Decimal" and node.args else None
    if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
        return None
    try:
        value = Decimal(first.value)
    except InvalidOperation:
        return None
    digits = value.normalize().as_tuple().digits
    return value if 0 < value < 1 and digits in ((1,), (5,)) else None


def roundings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """`(line, what)` of every call that rounds a `Decimal`, and of every constant that money is rounded by."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            value = unit(node)
            if called(node) in ("quantize", "scaleb"):
                yield node.lineno, called(node)
            elif value is not None and value < CENT:
                yield node.lineno, str(value)
            elif called(node) == "round" and node.args and MONEY.search(ast.unparse(node.args[0])):
                yield node.lineno, "round"
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if unit(node.value) is not None and "CENT" in ast.unparse(targets[0]).upper():
                yield node.lineno, ast.unparse(targets[0])


def uses_of_the_cap(tree: ast.Module) -> Iterator[int]:
    """The lines that take `max_hours` of a policy for anything but showing it."""
    shown = {
        id(argument)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for argument in [
            *(node.args if called(node) in SHOWS else []),
            *(keyword.value for keyword in node.keywords if keyword.arg == SHOWN_AS),
        ]
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "max_hours" and id(node) not in shown:
            yield node.lineno


def short_ids_of_sessions(tree: ast.Module) -> Iterator[int]:
    """The lines that shorten the id of a session, which people never read: a rental's short id is its request's."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and called(node) == "short_id" and node.args:
            shortened = ast.unparse(node.args[0])
            if "session" in shortened and "request_id" not in shortened:
                yield node.lineno


def trusting(tree: ast.Module) -> Iterator[int]:
    """The lines with `known_hosts=None` or `StrictHostKeyChecking=no`, which log in to anybody who answers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "known_hosts" and isinstance(node.value, ast.Constant):
            yield node.value.lineno
        if isinstance(node, ast.Constant) and "StrictHostKeyChecking=no" in str(node.value):
            yield node.lineno


def test_people_read_the_short_id_of_the_request_alone() -> None:
    assert {name: one.short_ids for name, one in ours().items() if one.short_ids} == {}


def test_money_is_rounded_in_one_module() -> None:
    found = {name for name, one in ours().items() if one.roundings and not name.startswith(CLOUDS_OF_THEIR_OWN)}
    assert found == {ROUNDS_MONEY}


def test_the_cap_on_hours_is_compared_in_one_function() -> None:
    found = {name: one.caps for name, one in ours().items() if one.caps}
    assert set(found) == OTHER_LIMITS | {COMPARES_WITH_THE_CAP}
    assert len(found[COMPARES_WITH_THE_CAP]) == 1


@pytest.mark.parametrize(
    ("line", "offends"),
    [
        ("x = price.quantize(unit)", True),
        ("x = Decimal(1).scaleb(-6)", True),
        ('MICRO = Decimal("0.000001")', True),
        ('x >= Decimal("5e-7")', True),
        ('_CENT: Final = Decimal("0.01")', True),
        ("x = round(offer.price_usd_h * 2, 6)", True),
        ("x = round(hours, 2)", False),
        ('SHARE = Decimal("0.01")', False),
        ('PRICE = Decimal("0.000023")', False),
        ("x = money.amount(price_usd_h)", False),
    ],
)
def test_a_rounding_is_seen(line: str, offends: bool) -> None:
    assert bool(list(roundings(ast.parse(line)))) is offends


@pytest.mark.parametrize(
    ("line", "offends"),
    [
        ("said = short_id(session.id)", True),
        ("said = short_id(row.session_id)", True),
        ('said = short_id(one["session_id"])', True),
        ("said = short_id(view.session.request_id)", False),
        ("said = short_id(one.request_id or one.session_id)", False),
        ("said = short_id(request.id)", False),
    ],
)
def test_a_short_id_of_a_session_is_seen(line: str, offends: bool) -> None:
    assert bool(list(short_ids_of_sessions(ast.parse(line)))) is offends


@pytest.mark.parametrize(
    ("line", "offends"),
    [
        ("late = total > policy.max_hours", True),
        ("most = max(ctx.policy.max_hours, allowed)", True),
        ("cap = policy.max_hours", True),
        ("judge(hours, policy.max_hours)", True),
        ("text = hours(policy.max_hours)", False),
        ("late = total > policy.max_hours_ever", False),
        ("Lifecycle(max_hours_without_override=policy.max_hours)", False),
    ],
)
def test_a_comparison_with_the_cap_is_seen(line: str, offends: bool) -> None:
    assert bool(list(uses_of_the_cap(ast.parse(line)))) is offends


def test_no_ssh_server_is_believed_without_its_key() -> None:
    assert {name: one.trusting for name, one in ours().items() if one.trusting} == {}
