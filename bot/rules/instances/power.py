"""Judge whether a stop, start or restart can be ordered, and what each does to billing, by what a cloud can do."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from bot.rules.values.phrases import Verdict, deny, rate
from bot.rules.values.reply_code import ReplyCode
from ledger.kernel.states import SessionState
from providers.capabilities import Capabilities


class PowerAction(StrEnum):
    STOP = "stop"
    START = "start"
    RESTART = "restart"


#: From which state of the session each can be ordered.
_FROM = {
    PowerAction.STOP: SessionState.RUNNING,
    PowerAction.START: SessionState.STOPPED,
    PowerAction.RESTART: SessionState.RUNNING,
}


def judge(
    order: PowerAction,
    cloud: str,
    able: Capabilities,
    state: SessionState,
    wanted: str | None,
    storage_usd_h: Decimal,
    deadline: datetime | None,
    survival: str = "",
    *,
    outlives: bool = False,
) -> Verdict:
    """Whether `order` can be given. `wanted` is the pending order, `storage_usd_h` the price of the disk.

    `survival` is what the cloud's profile says that a stop or a restart does to the data, in a sentence. `outlives`:
    whether the disk is to stay after the approved end, of which the caller speaks.
    """
    if order is PowerAction.STOP and wanted == PowerAction.START and state in _FROM.values():
        state, wanted = SessionState.RUNNING, None  # To stop it, nobody needs to wait for its start.
    if state is not _FROM[order]:
        return deny(ReplyCode.WRONG_STATE, f"The session is {state}, so there is nothing to {order}.")
    if wanted is not None:
        return deny(ReplyCode.UNDER_WAY, f"A {wanted} is under way already; it is confirmed when the cloud shows it.")
    if order is PowerAction.RESTART:
        if not able.restart:
            return deny(
                ReplyCode.CANNOT_RESTART, f"{cloud} has no restart; restart the program inside the machine instead."
            )
        stays = "The restart is ordered; the meter runs on"
        return Verdict(True, ReplyCode.ORDERED, f"{stays}. {survival}" if survival else f"{stays}, and the disk stays.")
    if not able.stop:
        sentence = f"{cloud} cannot stop a machine; only its end stops the meter, and its disk goes with it."
        return deny(ReplyCode.CANNOT_STOP, sentence)
    if order is PowerAction.START:
        said = "The start is ordered; from then on the GPU is billed again, up to what was approved."
        return Verdict(True, ReplyCode.ORDERED, said)
    if able.billing.gpu_while_stopped:
        sentence = f"A stopped machine at {cloud} still bills its GPU, so a stop saves nothing; only its end does."
        return deny(ReplyCode.STOP_SAVES_NOTHING, sentence)
    billed = able.billing.storage_while_stopped
    disk = f"its disk goes on at {rate(storage_usd_h)}" if billed else "its disk costs nothing"
    until = (
        f" until the approved end, {deadline:%Y-%m-%d %H:%M} UTC{'' if outlives else ', when it goes'}"
        if deadline
        else ""
    )
    warning = "The GPU may be rented by others meanwhile, so a start can fail."
    said = f"The stop is ordered: the GPU costs nothing then, {disk}{until}."
    return Verdict(True, ReplyCode.ORDERED, " ".join(filter(None, (said, survival, warning))))
