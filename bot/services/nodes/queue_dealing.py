"""Deal the commands of a queue to the machines that share it, in the answers to their check-ins."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from bot.rules.jobs.stored import job_of
from bot.rules.nodes.queue_dealing import Dealt
from ledger.core import Tx
from ledger.kernel.states import InstanceState
from ledger.queries.jobs.command_claims import SharedQueue, add_claims, shared_queues
from ledger.queries.nodes import NodeContext

#: A command by its number, with its text.
Commands = tuple[tuple[int, str], ...]


def dealt(queue: SharedQueue) -> Dealt:
    """Return a shared queue as the rules read it."""
    return Dealt(len(job_of(queue.job).queue), queue.failed, queue.claims, queue.over, max(len(queue.live), 1))


async def deal(tx: Tx, asking: Mapping[str, NodeContext], now: datetime) -> dict[str, Commands]:
    """Deal commands to these machines, and return for each what belongs to it and has no result.

    A claim is stored before a machine learns of it. What an answer that was lost said is said again by the next one.
    """
    queues = await shared_queues(tx, {one.node.session_id for one in asking.values()}) if asking else {}
    found: dict[str, Commands] = {}
    for instance_id in sorted(asking):
        one = asking[instance_id]
        queue = queues[one.node.session_id]
        if one.instance_state is InstanceState.LIVE:
            rounds = [(n, len(queue.claims[n])) for n in dealt(queue).next_for(instance_id, one.gpus)]
            for number in await add_claims(tx, one.node.session_id, instance_id, rounds, now):
                queue.claims[number].append(instance_id)
        commands = job_of(queue.job).queue
        found[instance_id] = tuple((n, commands[n - 1]) for n in dealt(queue).held_by(instance_id))
    return found
