"""Judge whether a stop, start or restart can be ordered, and what each does to billing, by what a cloud can do."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from bot.rules.values.phrases import Verdict, deny, rate
from bot.rules.values.reply_code import ReplyCode
from bot.rules.values.state_text import state_words
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
    whether the disk is to stay after the approved end: the caller says until when.
    """
    if order is PowerAction.STOP and wanted == PowerAction.START and state in _FROM.values():
        state, wanted = SessionState.RUNNING, None  # To stop it, nobody needs to wait for its start.
    if state is not _FROM[order]:
        return deny(ReplyCode.WRONG_STATE, f"The session is {state_words(state)}, so you can't {order} it.")
    if wanted is not None:
        return deny(ReplyCode.UNDER_WAY, f"A {wanted} is under way already. The status shows when it is done.")
    if order is PowerAction.RESTART:
        if not able.restart:
            return deny(
                ReplyCode.CANNOT_RESTART, f"{cloud} has no restart. Restart the program inside the machine instead."
            )
        stays = "Restarting. You still pay for the GPU meanwhile"
        return Verdict(
            True, ReplyCode.POWER_ACTION, f"{stays}. {survival}" if survival else f"{stays}, and the disk stays."
        )
    if not able.stop:
        sentence = f"{cloud} can't stop a machine. Only ending the session stops the cost, and that deletes the disk."
        return deny(ReplyCode.CANNOT_STOP, sentence)
    if order is PowerAction.START:
        said = (
            "Starting. Once it runs, you pay for the GPU again, up to the approved amount. "
            "Its owner is notified when it answers."
        )
        return Verdict(True, ReplyCode.POWER_ACTION, said)
    if able.billing.gpu_while_stopped:
        sentence = f"{cloud} bills the GPU of a stopped machine, too. Only ending the session saves money."
        return deny(ReplyCode.STOP_SAVES_NOTHING, sentence)
    billed = able.billing.storage_while_stopped
    disk = f"you pay only for the disk ({rate(storage_usd_h)})" if billed else "you pay nothing"
    end = f"{deadline:%Y-%m-%d %H:%M} UTC" if deadline else ""
    deleted = f"The disk is deleted at {end}." if end and not outlives else ""
    warning = "Somebody else may rent the GPU meanwhile, so a start can fail."
    said = f"Stopping. From now on {disk}."
    return Verdict(True, ReplyCode.POWER_ACTION, " ".join(filter(None, (said, deleted, survival, warning))))
