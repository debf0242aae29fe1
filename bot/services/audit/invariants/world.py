"""Check the ledger against the world: creates that were sent, instances that exist, secrets, lost messages."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ledger.kernel.states import InstanceState, OrphanState
from ledger.models import Instance
from ledger.queries.audit import Books, values_of

#: The JSON of a sandbox's `/_sandbox/truth`: instances and creates as they really happened.
Truth = Mapping[str, Any]

KEPT = frozenset({InstanceState.LIVE, InstanceState.STOPPED})


@dataclass(frozen=True, slots=True)
class Violation:
    """One violated invariant: its name, the row or instance it is about, and a sentence."""

    rule: str
    subject: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.subject}: {self.sentence}"


def row_of(books: Books, name: str | None) -> Instance | None:
    """Return the instance row whose label is at the right end of a cloud's name."""
    return next((row for row in books.instances if name and name.lower().endswith(row.label)), None)


def check(books: Books, truth: Truth) -> list[Violation]:
    """Check the sends and the existing instances."""
    return [*_sends(books, truth), *_closed_means_gone(books, truth), *_not_killed(books)]


def _sends(books: Books, truth: Truth) -> Iterator[Violation]:
    """Check that each row has one create call, and that no create was sent without a row that had a grant."""
    counts: Counter[str] = Counter()
    for create in truth["creates"]:
        row = row_of(books, create["name"])
        if row is None:
            # A create with a foreign name was sent by a test or by a person, not by us.
            if str(create["name"] or "").count("-") >= 3:
                yield Violation(
                    "intent before instance", str(create["name"]), "a create was sent before its row existed"
                )
            continue
        counts[row.id] += 1
        if row.sent_at is None:
            yield Violation("intent before instance", row.id, "a create was sent from a row in another state")
    yield from (
        Violation("one send per row", row_id, f"{count} create calls were sent for one row")
        for row_id, count in counts.items()
        if count > 1
    )


def _closed_means_gone(books: Books, truth: Truth) -> Iterator[Violation]:
    """Check that a closed row has no live instance, except an orphan that is being terminated."""
    orphans = {(s.cloud, s.ref) for s in books.orphans if s.state is not OrphanState.GONE}
    for item in truth["instances"]:
        row = row_of(books, item["name"])
        if row is None or not item["alive"] or (item["cloud"], item["ref"]) in orphans:
            continue
        own = row.ref == item["ref"]
        if row.state is InstanceState.GONE and own:
            yield Violation("closed means gone", row.id, f"{item['ref']} is alive but its row is gone")
    for orphan in books.orphans:
        alive = any(i["ref"] == orphan.ref and i["cloud"] == orphan.cloud and i["alive"] for i in truth["instances"])
        adopted = any(row.id == orphan.instance_id and row.live_at and row.ref == orphan.ref for row in books.instances)
        followed = (orphan.cloud, orphan.ref) in orphans  # Under another key of the same account.
        if orphan.state is OrphanState.GONE and alive and not adopted and not followed:
            yield Violation("closed means gone", orphan.id, f"the orphan {orphan.ref} is alive but recorded as gone")


def _not_killed(books: Books) -> Iterator[Violation]:
    """Check that no condemned orphan is an instance in use, and that every end was ordered or observed."""
    kept = {(row.cloud, row.ref): row.id for row in books.instances if row.state in KEPT and row.ref}
    yield from (
        Violation(
            "healthy instances are not killed", kept[orphan.cloud, orphan.ref], "it is being terminated as an orphan"
        )
        for orphan in books.orphans
        if orphan.state is OrphanState.CONDEMNED and (orphan.cloud, orphan.ref) in kept
    )
    yield from (
        Violation("healthy instances are not killed", row.id, "it is being terminated without a reason")
        for row in books.instances
        if row.terminate_asked_at is not None and not row.outcome
    )


def no_secrets(books: Books, secrets: Collection[str]) -> Iterator[Violation]:
    """Check that no secret is in any row."""
    for row in books.rows():
        text = json.dumps(values_of(row), default=str, ensure_ascii=False)
        if any(secret and secret in text for secret in secrets):
            name = str(values_of(row).get("id") or values_of(row).get("key"))
            yield Violation("no secret is stored", name, f"a secret is in a row of {row.__tablename__}")


def nothing_lost(books: Books, acknowledged: Collection[str]) -> list[Violation]:
    """Check that every acknowledged message is in the inbox."""
    there = {row.key for row in books.inbox}
    return [
        Violation("acknowledged is kept", key, "it was acknowledged and is not in the inbox")
        for key in acknowledged
        if key not in there
    ]
