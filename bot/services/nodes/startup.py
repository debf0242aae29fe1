"""Answer agents that ask for their start-up, and notify the owner of a step that failed."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from bot.rules.nodes.checkins import NodeStatus
from bot.rules.nodes.startup_plan import plan_startup
from bot.rules.policy.policy import Policy
from bot.services.notifications.request_message import show_again
from bot.services.people import direct_messages
from ledger.core import Tx
from ledger.models import Instance, Request, Session
from ledger.queries.nodes import startup_jobs
from providers.profiles import model


async def plans(tx: Tx, instance_ids: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return the plan of each instance as its agent reads it; an empty one where nothing is to be done."""
    found: dict[str, dict[str, Any]] = {}
    for instance_id, (cloud, job) in (await startup_jobs(tx, instance_ids)).items() if instance_ids else ():
        plan = plan_startup(instance_id, job, model.load(cloud).overrides.environment)
        found[instance_id] = plan.to_json() if plan is not None else {}
    return found


async def show_progress(tx: Tx, instance_id: str, now: datetime) -> None:
    """Show the card of a request again, because a step of its machine's start-up came to another state."""
    row = await tx.get_one(Instance, instance_id)
    await show_again(tx, await tx.get_one(Request, row.request_id), now)


async def notify_failed(
    tx: Tx, policy: Policy, instance_id: str, before: NodeStatus, now_is: NodeStatus, now: datetime
) -> bool:
    """Notify the owner once that a step failed, and return whether that was new. Nothing is ended."""
    step = now_is.machine.failed_step if now_is.machine else None
    if step is None or (before.machine is not None and before.machine.failed_step is not None):
        return False
    row = await tx.get_one(Instance, instance_id)
    session = await tx.get_one(Session, row.session_id)
    text = (
        f"The start-up of session {session.short_id} failed at {step.name} with exit code {step.exit_code}. "
        f"The machine keeps running until its approved end. Run `/gpu status {session.short_id}` for details, or read "
        "startup.log in /opt/gpu-shopper on the machine."
    )
    await direct_messages.notify_owner(tx, policy, now, session, subject=f"{instance_id}/startup", text=text)
    return True
