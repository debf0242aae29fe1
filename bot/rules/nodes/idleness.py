"""Judge by CPU, network and logins whether a machine whose GPUs do nothing is idle, by the kind of its work.

A notebook's GPUs rest while somebody thinks, and a model server's between two questions. What an agent doesn't report
keeps no machine running.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

from bot.rules.policy.policy import Policy
from bot.rules.values.serving import SERVING, is_serving
from bot.wire.checkin import MachineReport


class IdleSignal(StrEnum):
    """Name what keeps a machine from being idle beside its GPUs."""

    CPU = "cpu"
    NETWORK = "network"
    LOGIN = "login"


QuietSince = Mapping[IdleSignal, datetime]
#: What people also write for the kinds of work in the policy's tables.
_ALIASES: Final = {
    **dict.fromkeys(("jupyter", "interactive", "notebooks"), "notebook"),
    **dict.fromkeys(("data-preparation", "preparation", "preprocessing", "etl"), "data"),
}


def signals(policy: Policy, workload: str) -> tuple[IdleSignal, ...]:
    """Return what must rest beside the GPUs before a machine with this work counts as idle."""
    word, table = workload.lower(), policy.idle_also_needs
    name = SERVING if is_serving(word) and word not in table else _ALIASES.get(word, word)
    return tuple(IdleSignal(one) for one in table.get(word, table.get(name, table.get("default", ()))))


def is_busy(signal: IdleSignal, machine: MachineReport | None, policy: Policy) -> bool | None:
    """Whether the last report shows activity of one kind; None where it doesn't say."""
    if machine is None:
        return None
    if signal is IdleSignal.CPU:
        return None if machine.cpu_percent is None else machine.cpu_percent >= policy.idle_cpu_below_percent
    if signal is IdleSignal.NETWORK:
        return None if machine.network_kb_s is None else machine.network_kb_s >= policy.idle_network_below_kb_s
    return None if machine.logins is None else machine.logins > 0


def quiet_after(
    before: QuietSince, machine: MachineReport | None, policy: Policy, now: datetime
) -> dict[IdleSignal, datetime]:
    """Return since when each kind of activity rests, after one more report; one that is busy or unsaid is left out."""
    return {one: before.get(one, now) for one in IdleSignal if is_busy(one, machine, policy) is False}


def all_quiet_since(
    policy: Policy, workload: str, quiet: QuietSince, machine: MachineReport | None, gpus_since: datetime
) -> datetime | None:
    """Return since when everything that counts for this work rests; None while something is busy."""
    wanted = signals(policy, workload)
    if any(is_busy(one, machine, policy) for one in wanted):
        return None
    return max([gpus_since, *(quiet[one] for one in wanted if one in quiet)])


def idle_said(policy: Policy, workload: str, quiet: QuietSince) -> str:
    """Say what rested, up to its time: `Its GPUs have been below 5% and its CPUs below 2%, with no open login,`."""
    rested = [one for one in signals(policy, workload) if one in quiet]
    said = [f"Its GPUs have been below {policy.idle_below_percent:f}%"]
    said += [f"its CPUs below {policy.idle_cpu_below_percent:f}%"] if IdleSignal.CPU in rested else []
    said += [f"its network below {policy.idle_network_below_kb_s:,} kB/s"] if IdleSignal.NETWORK in rested else []
    listed = " and ".join(filter(None, (", ".join(said[:-1]), said[-1])))
    return f"{listed}, with no open login," if IdleSignal.LOGIN in rested else listed
