"""What a running instance's status says about it: that it works, or what is wrong and from when it is given up."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from providers.base import InstanceStatus


class Trouble(NamedTuple):
    """Why an instance that was ready does not work now: the code for programs and the sentence for people."""

    code: str
    sentence: str


_ERROR = Trouble("broken", "The cloud reports that the instance failed.")
_OFFLINE = Trouble("broken", "The cloud lost contact with the machine.")
_OUTBID = Trouble("outbid", "The cloud stopped the spot instance, as it may when somebody pays more for its GPU.")
_STOPPED = Trouble("stopped_there", "The instance was stopped at the cloud, and nobody here ordered that.")
_AGAIN = Trouble("restarting", "The cloud is starting the instance again, and nobody can use it meanwhile.")


def trouble(status: InstanceStatus | str, *, spot: bool) -> Trouble | None:
    """What is wrong with an instance that has been ready, by its status now; None while it runs."""
    if status == InstanceStatus.STOPPED:
        return _OUTBID if spot else _STOPPED
    found = {
        InstanceStatus.ERROR: _ERROR,
        InstanceStatus.OFFLINE: _OFFLINE,
        InstanceStatus.PENDING: _AGAIN,
        InstanceStatus.BOOTING: _AGAIN,
    }
    return found.get(InstanceStatus(status))


def given_up_at(since: datetime, grace_s: float) -> datetime:
    """When an instance in trouble is ended: it may come back by itself for `grace_s` seconds."""
    return since + timedelta(seconds=grace_s)


def ended_sentence(found: Trouble, spent: str) -> str:
    """Why it is ended after the grace, whose length in words is `spent`."""
    return f"{found.sentence} It did not come back within {spent}, so it is ended."
