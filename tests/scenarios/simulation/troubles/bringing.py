"""Bring a seed's troubles to its clouds, machines and answers, and take them back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from tests.scenarios.simulation.place import Place
from tests.scenarios.simulation.troubles.kinds import ABOUT_AGENTS, RETRY_AFTER_S, SHARES, Kind, Planned

REFUSED = "create_429"
#: How an account that can't pay is disturbed, and made good.
CAN_NOT_PAY = {"lambda": ("account_inactive", "account_active")}
USUAL = ("credit_gone", "credit_back")
#: What befalls a machine in use, so it waits for one.
ABOUT_MACHINES = frozenset({Kind.CREDIT, Kind.OFFLINE})
#: How often somebody looks whether a machine is in use, and new agents are told what the others were.
AGAIN_S = 60.0
BUSY = 93.0
#: A cloud that terminates what is not paid does so within this time.
ENDS_WITHIN = timedelta(seconds=5)


def plan(here: Place) -> None:
    """Put the seed's troubles on the agenda."""
    for coming in here.troubles.planned:
        here.after(coming.begins_s, partial(_begin, here, coming))


async def _begin(here: Place, coming: Planned) -> None:
    if here.weather.is_calm and coming.kind not in ABOUT_AGENTS:
        return
    if coming.kind in ABOUT_MACHINES and not _ready(here, coming.cloud):
        here.after(AGAIN_S, partial(_begin, here, coming))  # It befalls somebody who works there.
        return
    undo = BRINGING[coming.kind](here, coming)
    if undo is None:
        return
    here.note(f"{coming.cloud or 'everywhere'}: {coming.kind} for {coming.lasts_s:.0f} s")

    def end() -> None:
        if here.troubles.ongoing.pop(coming, None) is not None:
            undo()
            here.note(f"{coming.cloud or 'everywhere'}: over: {coming.kind}")

    async def later() -> None:
        end()

    here.troubles.ongoing[coming] = end
    here.after(coming.lasts_s, later)


Undo = Callable[[], None] | None


def _credit(here: Place, coming: Planned) -> Undo:
    """Stop what the cloud stops, and refuse launches. What it terminates itself is nobody's decision here."""
    cloud, troubles = here.clouds[coming.cloud], here.troubles
    gone, back = CAN_NOT_PAY.get(coming.cloud, USUAL)
    before = _running(here, coming.cloud)
    cloud.disturb("", gone)
    after = set(_running(here, coming.cloud))
    stopped = [ref for ref in before if ref in {one.ref for one in cloud.instances() if one.alive} - after]
    began_at = here.now
    begun = troubles.begin(coming.kind, coming.cloud, stopped, began_at)

    def undo() -> None:
        cloud.disturb("", back)
        for machine in cloud.instances():
            if machine.ref in before and machine.ended_at is not None and machine.ended_at - began_at < ENDS_WITHIN:
                troubles.disturbed.add((coming.cloud, machine.ref))
        troubles.end(begun, here.now)

    return undo


def _running(here: Place, name: str) -> list[str]:
    """The machines whose GPUs are billed now."""
    machines = [each.ref for each in here.clouds[name].instances() if each.alive and each.cloud == name]
    return [ref for ref in machines if here.meter(name, ref).rate_usd_h("gpu", here.now)]


def _ready(here: Place, name: str) -> list[str]:
    """The machines that are in use."""
    up = here.clouds[name].reachable()
    return [ref for ref in _running(here, name) if any(key.partition(".")[0] == ref for key in up)]


def _offline(here: Place, coming: Planned) -> Undo:
    ref = here.troubles.random.choice(_ready(here, coming.cloud))
    here.disturb(coming.cloud, ref, "offline", "online")
    return lambda: here.undo_disturbance(coming.cloud, ref)


def _short(here: Place, coming: Planned) -> Undo:
    at = (coming.cloud, coming.kind)
    here.troubles.short[at] = here.troubles.random.choice(SHARES)

    def undo() -> None:
        here.troubles.short.pop(at, None)

    return undo


def _refuse(here: Place, coming: Planned) -> Undo:
    after_s = here.troubles.random.choice(RETRY_AFTER_S)
    faults = here.engine.faults
    # RunPod's create always says when to come again, but for one of its forms.
    name = "create_429_bare" if after_s is None and coming.cloud in ("runpod", "lambda") else REFUSED
    params: dict[str, Any] = {} if coming.cloud == "runpod" and after_s is None else {"retry_after": after_s}
    is_once = coming.kind is Kind.ONE_REFUSED
    faults.arm(coming.cloud, name, 1 if is_once else None, **params)
    return None if is_once else lambda: faults.disarm(coming.cloud, name)


def _agents(here: Place, coming: Planned) -> Undo:
    """Let each agent report 0 % or nothing, those of machines that start meanwhile, too."""
    is_zero = coming.kind is Kind.AT_ZERO
    nodes = here.engine.nodes.running

    def tell(*, is_over: bool) -> None:
        for node in nodes.values():
            if is_zero:
                node.utilisation = [BUSY if is_over else 0.0 for _ in node.utilisation]
            else:
                node.silent = not is_over

    async def again() -> None:
        if coming in here.troubles.ongoing:
            tell(is_over=False)
            here.after(AGAIN_S, again)

    tell(is_over=False)
    here.after(AGAIN_S, again)
    return lambda: tell(is_over=True)


BRINGING: dict[Kind, Callable[[Place, Planned], Undo]] = {
    Kind.CREDIT: _credit,
    Kind.OFFLINE: _offline,
    Kind.SHORT_MARKET: _short,
    Kind.SHORT_VOLUMES: _short,
    Kind.ONE_REFUSED: _refuse,
    Kind.ALL_REFUSED: _refuse,
    Kind.AT_ZERO: _agents,
    Kind.SILENT: _agents,
}
