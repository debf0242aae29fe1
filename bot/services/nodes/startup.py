"""Answer agents that ask for their start-up, and notify the owner of a failed step and of a server that answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from bot.rules.jobs.startup_plan import plan_startup, queue_left
from bot.rules.jobs.stored import checkpoint_of, job_of, job_with_people
from bot.rules.nodes.checkins import NodeStatus
from bot.rules.nodes.machine_logs import shown
from bot.rules.nodes.machine_report import SERVE
from bot.rules.nodes.set_environment import set_environment
from bot.rules.policy.policy import Policy
from bot.rules.relocation.resume import beside_name, has_folders, own_place, resume_of, resume_variables
from bot.rules.values.command_text import cli_command
from bot.services.notifications.request_message import show_again
from bot.services.people import direct_messages
from bot.wire.checkin import MachineReport
from bot.wire.codec import to_json
from bot.wire.queue import PlannedQueue
from ledger.core import Tx
from ledger.kernel.ids import short_id
from ledger.models import Instance, Request, ResumePoint, Session
from ledger.queries.jobs.command_results import NO_RESULTS, earlier_results
from ledger.queries.jobs.resume_points import resume_states
from ledger.queries.nodes import StartupJob, startup_jobs
from ledger.queries.runs.node_sets import SetMember, members
from providers.profiles import model

#: How much of a log the message of a failure quotes.
TAIL_LINES, TAIL_CHARACTERS = 3, 400
#: What a machine that replaces none has in place of a resume point.
STARTS_ANEW = ResumePoint()


async def plans(tx: Tx, instance_ids: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return the plan of each instance as its agent reads it; an empty one where nothing is to be done.

    A machine of a set has none until all of them are ready, because only then the addresses of the others are known.
    """
    found: dict[str, dict[str, Any]] = {}
    jobs = await startup_jobs(tx, instance_ids) if instance_ids else {}
    points = await resume_states(tx, [key for key, one in jobs.items() if checkpoint_of(one.job) is not None])
    earlier = await earlier_results(tx, [key for key, one in jobs.items() if job_of(one.job).queue])
    sets = await members(tx, {one.session_id for one in jobs.values() if _is_set(one)})
    for instance_id, one in jobs.items():
        job = job_with_people(one.job, secrets=one.secrets)
        places = _places(instance_id, one, sets.get(one.session_id, ()))
        if points.get(instance_id, STARTS_ANEW) is None or places is None:
            continue  # Its checkpoint, or a machine of its set, is being waited for, so its agent asks again.
        moved = resume_of(one.step, one.saved_from or "", one.saved_step)
        # A machine that replaces the target continues from a newer checkpoint, or from one without a step in its path.
        resume = _resume_variables(points.get(instance_id)) or (moved.variables if moved else {})
        before = earlier.get(instance_id, NO_RESULTS)
        queue = queue_left(job.queue, one.gpus, before.numbers, before.failed) if job.queue else None
        if queue is not None and one.nodes > 1:
            queue = PlannedQueue((), one.gpus, dealt_of=len(job.queue))
        plan = plan_startup(instance_id, job, places, queue, resume, waits=moved is not None and not moved.place)
        found[instance_id] = to_json(plan) if plan is not None else {}
    return found


def _places(instance_id: str, one: StartupJob, together: Sequence[SetMember]) -> Mapping[str, str] | None:
    """Return the variables of a machine's places, with those of its set; None until its whole set is ready."""
    places = {**model.load(one.cloud).overrides.environment, **_saves_to(one)}
    if not _is_set(one):
        return places
    rank = next((machine.rank for machine in together if machine.instance_id == instance_id), None)
    if rank is None or len(together) != one.nodes:
        return None
    return {**places, **set_environment(rank, [machine.host for machine in together])}


def _saves_to(one: StartupJob) -> Mapping[str, str]:
    """Return the variable that says where a job saves: a target, or a replacement beside, has a place of its own.

    The URL of a single file is left out, because its query part may be a signature.
    """
    location = one.own_place or checkpoint_of(one.job)
    if one.is_beside:
        # The machine that it replaces is kept, and may still write to the place of the run.
        location = own_place(location, beside_name(short_id(one.request_id), one.n)) or location
    return {"CHECKPOINT": location} if location is not None and has_folders(location) else {}


def _is_set(one: StartupJob) -> bool:
    """Whether several machines work together; those that share a queue work alone."""
    return one.nodes > 1 and not job_of(one.job).queue


def _resume_variables(point: ResumePoint | None) -> dict[str, str]:
    """Return what a job reads to continue: where its checkpoint lies, and its step where the path has one."""
    if point is None:
        return {}
    return resume_variables(point.path, point.step)


async def show_progress(tx: Tx, instance_id: str, now: datetime) -> None:
    """Show the card of a request again, because its job or a step of the start-up came to another state."""
    row = await tx.get_one(Instance, instance_id)
    await show_again(tx, await tx.get_one(Request, row.request_id), now)


async def notify_changes(
    tx: Tx, policy: Policy, instance_id: str, before: NodeStatus, now_is: NodeStatus, now: datetime
) -> bool:
    """Notify the owner once that a step failed, and once that the server answers. Return whether either was new."""
    machine = now_is.machine
    if machine is None or not machine.steps:
        return False
    failed = await _notify_failed(tx, policy, instance_id, before, machine, now)
    was_serving = before.machine is not None and before.machine.is_done(SERVE)
    if was_serving or not machine.is_done(SERVE):
        return failed
    session = await _session(tx, instance_id)
    text = (
        f"Session {session.short_id} is ready to serve: its model server answered a chat completion. "
        f"Reach it with {cli_command(f'open {session.short_id} 8000 --tunnel')}, or through the machine's own API."
    )
    await direct_messages.notify_owner(tx, policy, now, session, subject=f"{instance_id}/serves", text=text)
    return True


async def _session(tx: Tx, instance_id: str) -> Session:
    return await tx.get_one(Session, (await tx.get_one(Instance, instance_id)).session_id)


async def _notify_failed(
    tx: Tx, policy: Policy, instance_id: str, before: NodeStatus, machine: MachineReport, now: datetime
) -> bool:
    step = machine.failed_step
    if step is None or (before.machine is not None and before.machine.failed_step is not None):
        return False
    session = await _session(tx, instance_id)
    said = [one for one in shown(machine.log_tail) if one.strip()][-TAIL_LINES:]
    tail = f" The log ends with: {' | '.join(said)[-TAIL_CHARACTERS:]}" if said else ""
    text = (
        f"The start-up of session {session.short_id} failed at {step.name} with exit code {step.exit_code}. "
        f"The machine keeps running until its approved end. Run `/gpu status {session.short_id}` for details, or read "
        f"startup.log in /opt/gpu-shopper on the machine.{tail}"
    )
    await direct_messages.notify_owner(tx, policy, now, session, subject=f"{instance_id}/startup", text=text)
    return True
