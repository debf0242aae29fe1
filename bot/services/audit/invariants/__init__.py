"""Check the invariants over the ledger and over what the clouds say was really rented.

The checks run after every service, end-to-end and fault test, and at the end of the demo. They repair nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from bot.services.audit.invariants import (
    announced,
    authority,
    graces,
    history,
    jobs,
    money,
    node_sets,
    older_ledgers,
    people,
    relocations,
    request_cards,
    settled,
    spending,
    volume_approvals,
    waiting,
    world,
)
from bot.services.audit.invariants.world import Truth, Violation
from ledger.engine.db import Database
from ledger.kernel.clock import Clock
from ledger.queries.audit import read_books
from ledger.queries.budgets.open_spend import wrong_sums
from providers.contract import Provider

__all__ = ["Truth", "Violation", "check"]


async def check(
    db: Database,
    clock: Clock,
    truth: Truth | None = None,
    *,
    is_settled: bool = False,
    secrets: Collection[str] = (),
    acknowledged: Collection[str] = (),
    providers: Mapping[str, Provider] | None = None,
) -> list[Violation]:
    """Return every violated invariant; an empty list when all hold.

    `truth` is the reply of a sandbox's `/_sandbox/truth`. `is_settled` adds what must hold once faults are off and time
    has passed. `secrets` may occur nowhere in the ledger; `acknowledged` are inbox keys that must still be there.
    `providers` say in which steps their clouds bill time; a cloud that is not among them is held to the second.
    """
    books = await read_books(db)
    async with db.read() as tx:
        wrong = await wrong_sums(tx)
    steps_s = {cloud: one.capabilities.billing.quantum_s for cloud, one in (providers or {}).items()}
    found = [
        *history.check(books),
        *jobs.check(books),
        *relocations.check(books),
        *spending.check(books),
        *authority.check(books),
        *money.check(books, steps_s),
        *node_sets.check(books),
        *older_ledgers.check(books),
        *people.check(books),
        *request_cards.check(books),
        *volume_approvals.check(books),
        *waiting.check(books),
        *(Violation("budgets never overshoot", of, "what it may still spend is stored wrongly") for of in wrong),
    ]
    found += [*announced.check(books, clock.now()), *graces.check(books, clock.now())]
    found += [*world.no_secrets(books, secrets), *world.nothing_lost(books, acknowledged)]
    if truth is not None:
        found += world.check(books, truth)
    if is_settled:
        found += [*settled.check(books, clock.now()), *node_sets.settled(books)]
        if truth is not None:
            found += [*settled.no_orphans(books, truth), *money.against_the_bill(books, truth)]
    return found
