"""List what becomes of an offer to transfer a session."""

from __future__ import annotations

from enum import StrEnum


class TransferState(StrEnum):
    """Say what became of an offer. It is offered once, and closed once."""

    OFFERED = "offered"
    ACCEPTED = "accepted"
    DECLINED = "declined"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"
    #: Its session ended, or was transferred, before it was answered.
    OVERTAKEN = "overtaken"
