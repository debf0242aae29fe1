"""Costs by person: the names of one person are one line."""

from __future__ import annotations

from decimal import Decimal

from bot.rules.policy.policy import Policy
from bot.services.billing import costs


def test_one_persons_names_are_one_line_of_the_costs() -> None:
    policy = Policy(same_person=(("UALICE", "operator:alice"), ("operator:ben", "UBEN")))
    rows = [
        ("operator:ben", Decimal(9)),
        ("slack:T1/UALICE", Decimal(4)),
        ("operator:alice", Decimal(6)),
        ("consumer:alice", Decimal(2)),
        ("orphans", Decimal(1)),
    ]
    assert costs.by_person(policy, rows) == (
        ("slack:T1/UALICE", Decimal(10)),
        ("operator:ben", Decimal(9)),
        ("consumer:alice", Decimal(2)),
        ("orphans", Decimal(1)),
    )
