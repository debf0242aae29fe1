"""Store the check-ins of agents in groups, because ten thousand instances report every minute.

Check-ins that arrive within a few milliseconds share one transaction: one query, one statement, no event. A check-in is
answered when it is stored.
"""

from __future__ import annotations

import asyncio
import hmac
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from bot.rules.nodes import checkins as rules
from bot.rules.nodes.checkins import NodeStatus, Report, Work
from bot.rules.nodes.node_api import Declared, NodeApiReport, declared
from bot.rules.values.reply_code import ReplyCode
from bot.services.nodes import enrollment, node_api
from bot.services.runtime.commands import Reply, refuse
from bot.services.runtime.context import Context
from ledger.models import Node
from ledger.queries.nodes import NodeContext, node_contexts, write_checkins

#: The least time between the starts of two groups, and the most check-ins of one.
GROUP_EVERY_S = 0.02
GROUP_MAX = 500

STRANGE = refuse(
    ReplyCode.UNAUTHENTICATED, "This needs the token of an instance that runs: Authorization: Bearer gpun_…."
)


@dataclass(frozen=True, slots=True)
class CheckinReply:
    """The reply to an agent: what to do, and the approved end, signed. `ends_at` may be before it."""

    seq: int
    ends_at: datetime | None
    message: str
    signature: str
    asks: tuple[str, ...]
    #: Why what it reported about its own API was refused; "" when it was accepted, or when it reported nothing.
    api_problem: str = ""
    next_in_s: int = rules.INTERVAL_S


Taken = CheckinReply | Reply
_Waiting = tuple[str, Report, NodeApiReport | None, "asyncio.Future[Taken]"]


class Checkins:
    """Collect and store check-ins. One per process that serves the API."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._waiting: list[_Waiting] = []
        self._flusher: asyncio.Task[None] | None = None
        self._next_group_at = 0.0

    async def take(self, token: str, report: Report, claim: NodeApiReport | None = None) -> Taken:
        """Store one check-in and its API's `claim`; a `Reply` refuses it: `unauthenticated` or `replayed`."""
        if not enrollment.SHAPE.fullmatch(token):
            return STRANGE
        answer: asyncio.Future[Taken] = asyncio.get_running_loop().create_future()
        self._waiting.append((token, report, claim, answer))
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush(), name="checkins")
        return await answer

    async def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            if len(self._waiting) < GROUP_MAX:
                await asyncio.sleep(max(self._next_group_at - loop.time(), 0))
            self._next_group_at = loop.time() + GROUP_EVERY_S
            group, self._waiting = self._waiting[:GROUP_MAX], self._waiting[GROUP_MAX:]
            try:
                answers = await self._store(group)
            except Exception as error:  # noqa: BLE001 # Every waiting caller gets the error, and the next group continues.
                for *_, answer in group:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            for (*_, answer), said in zip(group, answers, strict=True):
                if not answer.done():
                    answer.set_result(said)

    async def _store(self, group: list[_Waiting]) -> list[Taken]:
        ctx, now = self._ctx, self._ctx.clock.now()
        shapes = [enrollment.SHAPE.fullmatch(token) for token, *_ in group]
        named = [(f"ins_{shape[1]}", shape[2]) for shape in shapes if shape]
        changed: dict[str, NodeStatus] = {}
        apis: dict[str, Declared] = {}
        answers: list[Taken] = []
        async with ctx.db.write() as tx:
            found = await node_contexts(tx, {instance_id for instance_id, _ in named})
            for (instance_id, secret), (_, report, claim, _) in zip(named, group, strict=True):
                stands = found.get(instance_id)
                kept = stands.node.token_hash if stands else "0" * 64
                if not hmac.compare_digest(kept, enrollment.hashed(ctx.labels, secret)) or stands is None:
                    answers.append(STRANGE)
                    continue
                before = changed.get(instance_id) or node_status(stands.node)
                if rules.is_replay(before.seq, report.seq):
                    answers.append(_replayed(before.seq))
                    continue
                changed[instance_id] = rules.after_checkin(before, report, ctx.policy.idle_below_percent, now)
                known = apis[instance_id].api if instance_id in apis else node_api.stored_node_api(stands.node)
                api = apis[instance_id] = declared(known, claim, stands.host, now) if claim else Declared(known)
                if api.is_told:
                    await node_api.notify_changed_certificate(tx, instance_id, known, api.api, now)
                answers.append(self._answer(stands, report.seq, api.problem, now))
            rows = sorted(changed.items())
            each = ({"of_instance": key, **columns(one), **node_api.columns(apis[key].api)} for key, one in rows)
            await write_checkins(tx, list(each))
        if any(one.is_told for one in apis.values()):
            ctx.hints.outbox.set()
        return answers

    def _answer(self, stands: NodeContext, seq: int, problem: str, now: datetime) -> CheckinReply:
        node = stands.node
        message, signature = enrollment.signed(
            self._ctx.labels, node.instance_id, seq, stands.deadline, node.api_token_hash
        )
        ends_at = min((one for one in (stands.deadline, stands.early_end_at) if one), default=None)
        asked = rules.instruction(stands.session_state, stands.wanted, ends_at, now, stands.node.wanted)
        return CheckinReply(seq, ends_at, message, signature, tuple(str(one) for one in asked), problem)


def _replayed(seen: int) -> Reply:
    return refuse(ReplyCode.REPLAYED, f"Check-in {seen} was received before. The next one needs a greater number.")


def node_status(node: Node) -> NodeStatus:
    """Return the status of an agent as the rules read it, from its row."""
    said: dict[str, Any] = node.report

    def at(name: str) -> datetime | None:
        return datetime.fromisoformat(said[name]) if said.get(name) else None

    return NodeStatus(
        seq=node.seq,
        at=node.at,
        idle_since=node.idle_since,
        work=Work(node.work),
        work_over_at=node.work_over_at,
        utilisation=tuple(Decimal(one) for one in said.get("utilisation", ())),
        step=said.get("step"),
        target_step=said.get("target_step"),
        step_from=said.get("step_from"),
        step_from_at=at("step_from_at"),
        tokens_per_s=Decimal(said["tokens_per_s"]) if said.get("tokens_per_s") else None,
        checkpoint_step=said.get("checkpoint_step"),
        checkpoint_at=at("checkpoint_at"),
    )


def columns(found: NodeStatus) -> dict[str, Any]:
    """Return the columns of an agent's row: the inverse of `node_status`."""
    report = {
        "utilisation": [str(one) for one in found.utilisation],
        "step": found.step,
        "target_step": found.target_step,
        "step_from": found.step_from,
        "step_from_at": found.step_from_at.isoformat() if found.step_from_at else None,
        "tokens_per_s": str(found.tokens_per_s) if found.tokens_per_s is not None else None,
        "checkpoint_step": found.checkpoint_step,
        "checkpoint_at": found.checkpoint_at.isoformat() if found.checkpoint_at else None,
    }
    return {
        "seq": found.seq,
        "at": found.at,
        "idle_since": found.idle_since,
        "work": str(found.work),
        "work_over_at": found.work_over_at,
        "report": report,
    }
