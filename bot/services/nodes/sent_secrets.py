"""Answer agents that ask for the secrets of their job: those that its owner brought to it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from bot.rules.nodes.tokens import JudgedToken, ShownToken, TokenKind, TokenVerdict
from bot.rules.policy.policy import Policy
from bot.rules.values.labels import LabelKey
from bot.services.access import job_secrets
from ledger.core import Tx, record
from ledger.kernel.actor import SYSTEM, Actor
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import SessionState
from ledger.queries.people.secrets import secret_jobs

#: A session that ends gets nothing more.
_OVER = frozenset({SessionState.TERMINATING, SessionState.TERMINATED, SessionState.FAILED})


async def for_instances(
    tx: Tx, policy: Policy, labels: LabelKey, instance_ids: Collection[str]
) -> dict[str, dict[str, str]]:
    """Return the secrets of each instance's job by name: those that its session's owner brought."""
    jobs = await secret_jobs(tx, instance_ids) if instance_ids else {}
    wanted = {key: (Actor.from_ref(one.owner), one.names) for key, one in jobs.items() if one.state not in _OVER}
    found: dict[str, dict[str, str]] = {key: {} for key in instance_ids}
    return found | await job_secrets.opened(tx, policy, labels, wanted)


def may_receive(shown: ShownToken, judged: JudgedToken) -> bool:
    """Whether a check-in is answered with secrets: only with the token that its agent exchanged the boot token for."""
    return shown.kind is TokenKind.CHECKIN and judged.verdict is TokenVerdict.ACCEPTED


def note_sent(tx: Tx, instance_id: str, names: Collection[str], now: datetime) -> None:
    """Record which secrets an agent was sent, by name."""
    if names:
        said = f"Sent to its agent: {', '.join(names)}."
        record(tx, now, SYSTEM, instance_id, EventKind.INSTANCE_SECRETS_SENT, reason=said)
