"""Store the check-ins of agents in groups, because ten thousand instances report every minute.

Check-ins that arrive within a few milliseconds share one transaction: one query, one statement, no event. A check-in is
answered when it is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from bot.rules.instances.power import PowerAction
from bot.rules.nodes import checkins as rules
from bot.rules.nodes.checkins import NodeStatus
from bot.rules.nodes.host_keys import KeyMatch, compare
from bot.rules.nodes.node_api import Declared, declared
from bot.rules.nodes.tokens import JudgedToken, StoredTokens, TokenVerdict, judge_token
from bot.rules.relocation.asks import FAST_S, MovedFrom, MovedTo, as_source, as_target
from bot.rules.relocation.machines import began_below
from bot.rules.values.reply_code import ReplyCode
from bot.services.nodes import (
    enrollment,
    host_keys,
    node_api,
    queue_dealing,
    queue_rows,
    sent_secrets,
    signed_ends,
    startup,
    token_exchange,
)
from bot.services.nodes.api_identity import api_identity
from bot.services.nodes.signed_ends import SignedEnd
from bot.services.nodes.token_exchange import REPLACED, Presented
from bot.services.runtime.clock_guard import approved_now
from bot.services.runtime.commands import Reply, refuse
from bot.services.runtime.context import Context
from bot.wire.checkin import (
    INTERVAL_S,
    Checkin,
    CheckinAnswer,
    NodeInstruction,
    SignedDeadline,
    Work,
)
from bot.wire.codec import right_fields, to_json
from ledger.core import Tx
from ledger.kernel.states import InstanceState, SessionState
from ledger.kernel.steps.relocation_step import OVER, MigrationStep
from ledger.models import Node
from ledger.queries.jobs.command_results import add_results
from ledger.queries.nodes import NodeContext, node_contexts, write_checkins
from ledger.queries.overspend import Agent

#: The least time between the starts of two groups, and the most check-ins of one.
GROUP_EVERY_S = 0.02
GROUP_MAX = 500
#: Fields of a machine's report, and those that say how busy it is beside its GPUs, as the previous release knows them.
_MACHINE = {"gpus", "driver", "cuda", "disk_free_gb", "host_key", "startup_step", "startup_s", "exit_code", "log_tail"}
_MACHINE |= {"interruption"}
_ACTIVITY = ("cpu_percent", "network_kb_s", "logins", "last_login_at")
#: What of an agent's status has a column of its own; the rest is in `report`.
_COLUMNS = ("seq", "at", "idle_since", "work", "work_over_at")

#: Cards of sessions in these states say how far the start-up and the job are.
SHOWS_STARTUP = frozenset({SessionState.PROVISIONING, SessionState.RUNNING})

STRANGE = refuse(
    ReplyCode.UNAUTHENTICATED, "This needs the token of an instance that runs: Authorization: Bearer gpuc_… or gpun_…."
)


Taken = CheckinAnswer | Reply
_Waiting = tuple[Presented, Checkin, "asyncio.Future[Taken]"]


@dataclass(slots=True)
class _Changes:
    """Collect what one group of check-ins changes, by instance; later check-ins of the group start from it."""

    status: dict[str, NodeStatus] = field(default_factory=dict)
    apis: dict[str, Declared] = field(default_factory=dict)
    tokens: dict[str, StoredTokens] = field(default_factory=dict)
    plans: dict[str, dict[str, Any]] = field(default_factory=dict)
    secrets: dict[str, dict[str, str]] = field(default_factory=dict, repr=False)
    results: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    signed_ends: dict[str, SignedEnd] = field(default_factory=dict)
    is_told: bool = False


class Checkins:
    """Collect and store check-ins. One per process that serves the API."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._waiting: list[_Waiting] = []
        self._flusher: asyncio.Task[None] | None = None
        self._next_group_at = 0.0

    async def take(self, token: str, report: Checkin) -> Taken:
        """Store one check-in; a `Reply` refuses it: `unauthenticated` or `replayed`.

        A boot token with a nonce is exchanged: the answer has the token for the check-ins from then on.
        """
        shown = token_exchange.presented(self._ctx.labels, token, report.nonce)
        if shown is None:
            return STRANGE
        answer: asyncio.Future[Taken] = asyncio.get_running_loop().create_future()
        self._waiting.append((shown, report, answer))
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
        changes = _Changes()
        answers: list[Taken] = []
        async with ctx.db.write() as tx:
            found = await node_contexts(tx, {shown.instance_id for shown, *_ in group})
            asking = {shown.instance_id for shown, report, *_ in group if report.wants_startup}
            changes.plans = await startup.plans(tx, asking & found.keys())
            naming = {shown.instance_id for shown, report, *_ in group if report.wants_secrets} & found.keys()
            changes.secrets = await sent_secrets.for_instances(tx, ctx.policy, ctx.labels, naming)
            for shown, report, _ in group:
                stands = found.get(shown.instance_id)
                taken = STRANGE if stands is None else await self._one(tx, changes, stands, shown, report, now)
                answers.append(taken)
            rows = sorted(changes.status.items())
            each = ({"of_instance": k, **columns(one), **node_api.columns(changes.apis[k].api)} for k, one in rows)
            await write_checkins(tx, list(each))
            await add_results(tx, list(changes.results.values()))
            shares = {shown.instance_id for shown, report, *_ in group if report.queue is not None} & found.keys()
            dealt = await queue_dealing.deal(tx, {k: found[k] for k in shares if found[k].dealt_commands}, now)
            answers = [_with_commands(one, shown, dealt) for one, (shown, *_) in zip(answers, group, strict=True)]
            tokens = sorted(changes.tokens.items())
            await write_checkins(tx, [{"of_instance": k, **token_exchange.columns(one)} for k, one in tokens])
        if changes.signed_ends:
            async with ctx.db.write() as tx:  # Of its own: a session is locked before its agent everywhere else.
                await signed_ends.take(tx, changes.signed_ends, now)
        if changes.is_told:
            ctx.hints.outbox.set()
        return answers

    async def _one(
        self,
        tx: Tx,
        changes: _Changes,
        stands: NodeContext,
        shown: Presented,
        report: Checkin,
        now: datetime,
    ) -> Taken:
        """Judge one check-in of a known instance, and add what it changes."""
        key, node = shown.instance_id, stands.node
        tokens = changes.tokens.get(key) or token_exchange.stored_tokens(node)
        still = stands.instance_state is InstanceState.STOPPED and stands.wanted != PowerAction.START
        judged = judge_token(tokens, shown.shown, now, is_stopped=still)
        if judged.verdict is TokenVerdict.UNKNOWN:
            return STRANGE
        before = changes.status.get(key) or node_status(node)
        if rules.is_replay(before.seq, report.seq):
            return _replayed(before.seq)
        if judged.tokens != tokens:
            changes.tokens[key] = judged.tokens
            await self._note_tokens(tx, changes, shown, tokens, judged, now)
        if judged.verdict is TokenVerdict.REPLACED:
            return REPLACED
        status = rules.after_checkin(before, report, self._ctx.policy, now)
        changes.status[key] = status
        changes.results |= queue_rows.rows(stands.node, report, now)
        if rules.shows_progress(before, status) and stands.session_state in SHOWS_STARTUP:
            changes.is_told = True
            await startup.show_progress(tx, key, now)
        changes.is_told |= await startup.notify_changes(tx, self._ctx.policy, key, before, status, now)
        if report.machine is not None and stands.ready_at is not None:
            reported = report.machine.host_key
            if compare(stands.host_key, reported) is KeyMatch.DIFFERENT:
                changes.is_told |= await host_keys.notify_reported(tx, self._ctx.policy, key, reported, now)
        known = changes.apis[key].api if key in changes.apis else node_api.stored_node_api(node)
        api = changes.apis[key] = declared(known, report.api, stands.host, now) if report.api else Declared(known)
        if api.is_told:
            changes.is_told = True
            await node_api.notify_changed_certificate(tx, self._ctx.policy, key, known, api.api, now)
        token = shown.next_token if judged.verdict is TokenVerdict.EXCHANGED else ""
        signed = signed_ends.read(self._ctx.labels, key, report)
        if signed is not None and signed_ends.shows_more(stands, signed, before.seq):
            changes.signed_ends[key] = signed
        until = signed_ends.end_to_sign(stands, signed, before.seq)
        answer = self._answer(stands, status, report.seq, api.problem, token, until, now)
        answer = replace(answer, results_taken=status.results_taken)
        if report.wants_startup:
            answer = replace(answer, startup=changes.plans.get(key))
        if report.wants_secrets and sent_secrets.may_receive(shown.shown, judged):
            answer = replace(answer, secrets=changes.secrets[key])
            sent_secrets.note_sent(tx, key, changes.secrets[key], now)
        return answer

    async def _note_tokens(
        self, tx: Tx, changes: _Changes, shown: Presented, before: StoredTokens, judged: JudgedToken, now: datetime
    ) -> None:
        if judged.is_notified:
            changes.is_told = True
            await token_exchange.notify_replaced(tx, self._ctx.policy, shown.instance_id, shown.shown.kind, now)
        elif judged.verdict is TokenVerdict.EXCHANGED:
            token_exchange.note_exchange(tx, shown.instance_id, before.checkin is not None, now)

    def _answer(
        self,
        stands: NodeContext,
        status: NodeStatus,
        seq: int,
        problem: str,
        token: str,
        until: datetime | None,
        now: datetime,
    ) -> CheckinAnswer:
        node = stands.node
        # By a clock that no cloud has confirmed the machine could end itself too early, so it keeps the end it knows.
        until = until if approved_now(self._ctx.clock) is not None else None
        message, signature = enrollment.signed(self._ctx.labels, node.instance_id, seq, until, now, node.api_token_hash)
        ends_at = min((one for one in (stands.deadline, stands.early_end_at) if one), default=None)
        asked = rules.instruction(stands.session_state, stands.wanted, ends_at, now, stands.node.wanted)
        asks, moving = _asks(stands, status, asked)
        api = api_identity(self._ctx.labels, node.instance_id) if token else None
        # A machine that shares a queue gets its next commands with the answers.
        next_s = FAST_S if moving or stands.dealt_commands else INTERVAL_S
        deadline = SignedDeadline(message, signature)
        return CheckinAnswer(seq, ends_at, deadline, asks, next_s, token, api, api_problem=problem)


def _with_commands(taken: Taken, shown: Presented, dealt: Mapping[str, queue_dealing.Commands]) -> Taken:
    """Add to an answer the commands that belong to its machine."""
    if isinstance(taken, Reply) or shown.instance_id not in dealt:
        return taken
    return replace(taken, commands=dealt[shown.instance_id])


def _asks(stands: NodeContext, status: NodeStatus, normal: Sequence[NodeInstruction]) -> tuple[tuple[str, ...], bool]:
    """Return what an agent is asked, and whether its run is being moved, so that it reports more often."""
    if stands.is_replaced:
        # Its replacement continues from the last verified save: two machines must not train on one store.
        return rules.paused(normal), False
    away, here = stands.moved_from, stands.moved_to
    if here is not None and (here not in OVER or (here is MigrationStep.FAILED and away is None)):
        below = began_below(status, stands.saved_step)
        moved_to = MovedTo(here, stands.resume_from or "", stands.saved_step, below)
        return as_target(normal, moved_to), here not in OVER
    moved = MovedFrom(away, stands.moved_started_at is not None) if away is not None else None
    return as_source(normal, moved), away is not None and away is not MigrationStep.CHECKED


def _replayed(seen: int) -> Reply:
    return refuse(
        ReplyCode.REPLAYED, f"Check-in {seen} was received before. The next one needs a greater number.", {"seq": seen}
    )


def node_status(node: Node | Agent) -> NodeStatus:
    """Return the status of an agent as the rules read it, from its row."""
    said: dict[str, Any] = {name: value for name, value in node.report.items() if value is not None}
    if "machine" in said:
        parts = [said["machine"], {"steps": said.get("steps", [])}, said.get("activity", {}), said.get("more", {})]
        said["machine"] = {name: value for part in parts for name, value in part.items()}
    known = {one: getattr(node, one) for one in _COLUMNS} | {"work": Work(node.work)}
    return NodeStatus(**(right_fields(NodeStatus, said) | known))


def columns(found: NodeStatus) -> dict[str, Any]:
    """Return the columns of an agent's row: the inverse of `node_status`."""
    known = {one: getattr(found, one) for one in _COLUMNS} | {"work": str(found.work)}
    report = {name: value for name, value in to_json(found, is_whole=True).items() if name not in known}
    machine = report["machine"] or {}
    # Apart, because the previous release reads every field of `machine` and of `activity`, and knows no others.
    report["steps"] = machine.pop("steps", [])
    report["activity"] = {name: value for name in _ACTIVITY if (value := machine.pop(name, None)) is not None}
    report["more"] = {name: machine.pop(name) for name in machine.keys() - _MACHINE}
    return {**known, "report": report}
