"""Read and write the agents' rows: check-ins in groups, and sessions to look at because of their check-ins."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, bindparam, case, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from ledger.engine.db import may_lock
from ledger.kernel.checkpoint_step import WAITS
from ledger.kernel.states import InstanceState, SessionState
from ledger.kernel.steps.relocation_step import OVER, MigrationStep
from ledger.kernel.stored_job import StoredJob
from ledger.models import Instance, Mark, Migration, Node, Request, Session
from ledger.queries.people.credentials import secrets_named
from ledger.queries.recovery.older import older_at
from ledger.queries.runs.graces import IS_BESIDE, IS_REPLACED

#: Check-ins are taken from an agent whose instance is in one of these: none comes from an instance that is gone.
_I = InstanceState
REPORTING = frozenset({_I.SENDING, _I.UNKNOWN, _I.LIVE, _I.STOPPED, _I.TERMINATING})

_NODES: Any = Node.__table__
_WRITE = update(_NODES).where(_NODES.c.instance_id == bindparam("of_instance"))


@dataclass(frozen=True, slots=True)
class NodeContext:
    """Hold an agent's row with what decides the answer to its check-in."""

    node: Node
    instance_state: InstanceState
    wanted: str | None
    session_state: SessionState
    deadline: datetime | None
    early_end_at: datetime | None
    #: The address that its cloud shows.
    host: str | None
    #: Until when a checkpoint hold may keep it, while its termination waits for one.
    held_until: datetime | None
    #: When it was ready, and the host key that is trusted since.
    ready_at: datetime | None
    host_key: str | None
    #: The step of the migration that moves its run away, and since when that one's target may start.
    moved_from: MigrationStep | None = None
    moved_started_at: datetime | None = None
    #: The step of the migration that it is the target of, and from where its run continues.
    moved_to: MigrationStep | None = None
    resume_from: str | None = None
    saved_step: int | None = None
    #: How many commands its session's machines share, and how many GPUs each has.
    dealt_commands: int = 0
    gpus: int = 1
    #: It is kept beside its replacement, which continues its run.
    is_replaced: bool = False
    #: When it was noticed that the ledger is an older one; None once that is accepted.
    older_since: datetime | None = None

    @property
    def approved_until(self) -> datetime | None:
        """The end of what is approved: that of the session, or of a checkpoint hold behind it."""
        return max((one for one in (self.deadline, self.held_until) if one is not None), default=None)


async def node_contexts(tx: AsyncSession, instance_ids: Collection[str]) -> dict[str, NodeContext]:
    """Return the agents of these instances, locked for a write in one order, unless their instances ended."""
    away, here = aliased(Migration), aliased(Migration)
    query = (
        select(
            Node,
            Instance.state,
            Instance.wanted,
            Session.state,
            Session.deadline,
            Session.early_end_at,
            Instance.ssh_host,
            case((Instance.checkpoint_step.in_(WAITS), Instance.checkpoint_until)),
            Instance.reachable_at,
            Instance.host_key,
            away.step,
            away.started_at,
            here.step,
            here.saved_from,
            here.saved_step,
            Session.dealt_commands,
            Session.gpu_count,
            IS_REPLACED,
            older_at(),
        )
        .join(Instance, Instance.id == Node.instance_id)
        .join(Session, Session.id == Node.session_id)
        .outerjoin(away, (away.source_session_id == Session.id) & away.step.not_in(OVER))
        .outerjoin(here, here.request_id == Session.request_id)
        .where(Node.instance_id.in_(list(instance_ids)), Instance.state.in_(REPORTING))
        .order_by(Node.instance_id)
    )
    if may_lock(tx):
        query = query.with_for_update(of=Node)
    rows: Any = await tx.execute(query)
    return {node.instance_id: NodeContext(node, *rest) for node, *rest in rows}


class StartupJob(NamedTuple):
    """Hold what the plan of a start-up is made of. A `step` is that of its migration."""

    cloud: str
    job: StoredJob
    gpus: int
    step: MigrationStep | None
    saved_from: str | None
    saved_step: int | None
    #: Where the target of a migration saves.
    own_place: str | None
    session_id: str
    #: Machines of its set.
    nodes: int
    request_id: str
    #: Which machine of its session it is, and whether it was launched beside another one that is kept.
    n: int
    is_beside: bool
    #: Names of the secrets that it gets.
    secrets: tuple[str, ...] = ()


async def startup_jobs(tx: AsyncSession, instance_ids: Collection[str]) -> dict[str, StartupJob]:
    """Return what is planned for each of these instances, for the plan of its start-up."""
    query = (
        select(
            Instance.id,
            Instance.cloud,
            Request.job,
            Session.gpu_count,
            Migration.step,
            Migration.saved_from,
            Migration.saved_step,
            Migration.target_place,
            Session.id,
            Session.nodes,
            Request.id,
            Instance.n,
            IS_BESIDE,
        )
        .join(Session, Session.id == Instance.session_id)
        .join(Request, Request.id == Session.request_id)
        .outerjoin(Migration, Migration.request_id == Request.id)
        .where(Instance.id.in_(list(instance_ids)))
    )
    rows: Any = (await tx.execute(query)).all()
    planned = {instance_id: StartupJob(*columns) for instance_id, *columns in rows}
    secrets = await secrets_named(tx, {one.request_id for one in planned.values()})
    return {instance_id: one._replace(secrets=secrets.get(one.request_id, ())) for instance_id, one in planned.items()}


async def write_checkins(tx: AsyncSession, rows: Sequence[dict[str, Any]]) -> None:
    """Store columns of a group of agents in one statement. Each row has the same columns, and `of_instance`."""
    if rows:
        await tx.execute(_WRITE, list(rows))


async def amend_node(tx: AsyncSession, instance_id: str, **values: Any) -> None:
    """Set columns of the agent of one instance; where it has none, nothing happens."""
    await tx.execute(update(Node).where(Node.instance_id == instance_id).values(**values))


async def open_exchange(tx: AsyncSession, instance_id: str, now: datetime) -> None:
    """Open one more exchange of the boot token, unless one is open or the agent never exchanged it."""
    closed = Node.checkin_hash.is_not(None) & Node.exchange_open_at.is_(None)
    await tx.execute(update(Node).where(Node.instance_id == instance_id, closed).values(exchange_open_at=now))


async def node_of(tx: AsyncSession, instance_id: str) -> Node | None:
    """Return the agent of an instance; None where it was given no token."""
    return await tx.get(Node, instance_id, populate_existing=True)


@dataclass(frozen=True, slots=True)
class Suspect:
    """Name a session that its agent's check-ins may end, or that has an announced end."""

    session_id: str
    instance_id: str


async def suspects(tx: AsyncSession, silent_before: datetime, idle_before: datetime) -> list[Suspect]:
    """List running sessions to look at, by their agents' check-ins.

    Those are: unresponsive or idle since before then, with a finished job, or with an announced early end. The agent
    on the first machine of a set speaks for the set. Machines that share a queue are looked at one by one elsewhere.
    """
    rows: Any = await tx.execute(
        select(Session.id, Instance.id)
        .join(Instance, Instance.session_id == Session.id)
        .join(Node, Node.instance_id == Instance.id)
        .where(Session.state == SessionState.RUNNING, Instance.state == InstanceState.LIVE)
        .where(func.coalesce(Instance.node_rank, 0) == 0, Session.dealt_commands == 0, ~IS_REPLACED)
        .where(
            or_(
                Node.at <= silent_before,
                Node.idle_since <= idle_before,
                Node.work_over_at.is_not(None),
                Session.early_end_at.is_not(None),
            )
        )
        .order_by(Session.id)
    )
    return [Suspect(session_id, instance_id) for session_id, instance_id in rows]


async def reporting(tx: AsyncSession, silent_before: datetime) -> tuple[int, int]:
    """Count running instances whose agent ever reported, and those that are unresponsive since before then.

    One that its cloud stopped or lost is silent for that reason, which says nothing about check-ins.
    """
    of_running = (
        select(func.count())
        .select_from(Node)
        .join(Instance, Instance.id == Node.instance_id)
        .join(Session, Session.id == Node.session_id)
        .where(Session.state == SessionState.RUNNING, Instance.state == InstanceState.LIVE, Node.at.is_not(None))
        .where(Instance.trouble_at.is_(None))
    )
    silent = of_running.where(Node.at <= silent_before)
    return await tx.scalar(of_running) or 0, await tx.scalar(silent) or 0


async def nodes_of(tx: AsyncSession, instance_ids: Collection[str]) -> dict[str, Node]:
    """Return the agents of these instances, for showing."""
    found = await tx.scalars(select(Node).where(Node.instance_id.in_(list(instance_ids))))
    return {node.instance_id: node for node in found}


async def listened_at(tx: AsyncSession, name: str) -> datetime | None:
    """Return when the check with this name ran last; None when it never did."""
    last = await tx.get(Mark, name, populate_existing=True)
    return last.at if last is not None else None


async def listening_since(tx: AsyncSession, name: str, gap_s: float, now: datetime) -> datetime:
    """Return since when the check with this name has run without a pause longer than `gap_s`; note that it runs now.

    While nothing here ran, nothing received check-ins: that time does not count as the agents' silence.
    """
    last = await tx.get(Mark, name, populate_existing=True)
    if last is None:
        tx.add(Mark(name=name, value=now.isoformat(), at=now))
        await tx.flush()
        return now
    since = now if (now - last.at).total_seconds() > gap_s else datetime.fromisoformat(last.value)
    last.value, last.at = since.isoformat(), max(now, last.at)
    return since


async def note_listening(tx: AsyncSession, name: str, now: datetime) -> None:
    """Note that the check with this name has run without a pause until now, if it ever ran."""
    last = await tx.get(Mark, name, populate_existing=True)
    if last is not None:
        last.at = max(now, last.at)


async def due_for_key(tx: AsyncSession, looked_before: datetime, limit: int) -> list[Instance]:
    """List instances that have been ready and whose host key was last looked at before then, or never."""
    query = (
        select(Instance)
        .where(Instance.state == InstanceState.LIVE, Instance.reachable_at.is_not(None), Instance.wanted.is_(None))
        .where(Instance.ssh_host.is_not(None), Instance.status == "running")
        .where(or_(Instance.host_key_at.is_(None), Instance.host_key_at <= looked_before))
        .order_by(Instance.host_key_at.is_not(None), Instance.host_key_at, Instance.id)
        .limit(limit)
    )
    return list(await tx.scalars(query))


async def due_for_login(tx: AsyncSession, now: datetime, limit: int) -> list[Instance]:
    """List instances that were never ready, whose SSH server answered, and that nobody is logged in to for a check.

    One that was launched after its session was ready is the replacement of a machine in grace.
    """
    query = (
        select(Instance)
        .join(Session, Session.id == Instance.session_id)
        .where(Instance.state == InstanceState.LIVE, Instance.reachable_at.is_(None))
        .where(or_(Session.ready_at.is_(None), Session.dealt_commands > 0, Instance.created_at > Session.ready_at))
        .where(Instance.login_key.is_not(None), Instance.host_key_at.is_not(None), Instance.ssh_host.is_not(None))
        .where(Instance.status == "running", _may_log_in(now))
        .order_by(Instance.live_at, Instance.id)
        .limit(limit)
    )
    return list(await tx.scalars(query))


async def take_login(tx: AsyncSession, instance_id: str, now: datetime, until: datetime) -> bool:
    """Claim the check of one instance's GPUs until then; False when somebody else has it."""
    take = update(Instance).where(Instance.id == instance_id, _may_log_in(now)).values(login_until=until)
    return (await tx.execute(take.returning(Instance.id))).first() is not None


def _may_log_in(now: datetime) -> ColumnElement[bool]:
    return or_(Instance.login_until.is_(None), Instance.login_until <= now)
