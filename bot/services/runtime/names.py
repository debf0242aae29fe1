"""Name people in text that is read outside of Slack: in a terminal, in answers of REST, and by AI agents.

Slack shows a name for an id by itself. Elsewhere `slack:T012AB3CD/U012AB3CD` says nothing to a reader.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bot.rules.approvals.approvers import display_name, named
from bot.rules.policy.policy import Policy
from bot.rules.values.text import clean
from ledger.engine.db import Database
from ledger.kernel.actor import ActorKind
from ledger.kernel.clock import Clock
from ledger.queries.access import keep_name, names_by_user

#: How long names that were read are used before the ledger is asked again.
FRESH_S: Final = 60.0
NAME_MAX: Final = 80
#: What a name may not bring into a table, a page in Markdown or a mention.
_MARKUP: Final = str.maketrans(dict.fromkeys("|`<>[]\\", " "))
#: How services name a member of Slack in a sentence, how a budget names them, and how a mention is typed.
_PERSON: Final = re.compile(
    r"<@([UW][A-Z0-9]{2,20})(?:\|[^>]*)?>|\b(?:user:|slack:|user:slack:)(?:[TE][A-Z0-9]{1,20}/)?([UW][A-Z0-9]{2,20})\b"
)

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class KnownNames:
    """The names of people as Slack showed them last, read from the ledger at most once a minute."""

    _known: Mapping[str, str] = field(default_factory=dict)
    #: Names that several people have, in lower case.
    _shared: frozenset[str] = frozenset()
    _read_at_s: float | None = None

    async def refresh(self, db: Database, clock: Clock) -> None:
        """Read the names where the last reading is a minute old: one query for all of them.

        A ledger that gives no answer delays only the names.
        """
        now_s = clock.monotonic()
        if self._read_at_s is not None and 0 <= now_s - self._read_at_s < FRESH_S:
            return
        try:
            async with db.read() as tx:
                self._take(await names_by_user(tx))
        except Exception:
            log.exception("the names of people were not read")
            return
        self._read_at_s = now_s

    async def keep(self, db: Database, clock: Clock, user: str, name: str) -> None:
        """Store the name that Slack shows for somebody, where it is a new one.

        A ledger that takes no write delays only the name.
        """
        name = clean(name.translate(_MARKUP))[:NAME_MAX].strip()
        await self.refresh(db, clock)
        if not name or self._known.get(user) == name:
            return
        try:
            async with db.write() as tx:
                await keep_name(tx, user, name, clock.now())
        except Exception:
            log.exception("the name of %s was not stored", user)
            return
        self._take({**self._known, user: name})

    def of(self, policy: Policy, ref: str | None) -> str:
        """Return the name of a person whom a reference or a Slack id names: the policy's, else Slack's; else empty.

        Of two people with the same name, each has their id behind it.
        """
        if not ref:
            return ""
        try:
            actor = named(ref)
        except ValueError:
            return ""
        if linked := display_name(policy, ref):
            return linked
        name = self._known.get(actor.id, "") if actor.kind is ActorKind.SLACK else ""
        return f"{name} ({actor.id})" if name.casefold() in self._shared else name

    def in_text(self, policy: Policy, text: str) -> str:
        """Return a sentence with names in place of references and mentions; the id alone where no name is known."""

        def person(found: re.Match[str]) -> str:
            user = found[1] or found[2]
            return self.of(policy, user) or user

        return _PERSON.sub(person, text) if ":" in text or "<@" in text else text

    def in_answer(self, policy: Policy, value: Any) -> Any:
        """Return a JSON value with names in its sentences. A text without a space is an id, and stays as it is."""
        if isinstance(value, str):
            return self.in_text(policy, value) if " " in value else value
        if isinstance(value, dict):
            return {key: self.in_answer(policy, item) for key, item in value.items()}
        return [self.in_answer(policy, item) for item in value] if isinstance(value, list) else value

    def _take(self, known: Mapping[str, str]) -> None:
        often = Counter(name.casefold() for name in known.values())
        self._known, self._shared = known, frozenset(name for name, count in often.items() if count > 1)
