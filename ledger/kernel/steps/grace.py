"""Name what decides about an unplanned end: its cause, what would be lost, and what people chose."""

from __future__ import annotations

from enum import StrEnum

from ledger.kernel.vocabulary import Vocabulary


class Cause(Vocabulary):
    """Name the cause for which a machine stopped working, or would end."""

    ACCOUNT = "account", "the account: credit, key, quota or a ban"
    HOST = "host", "the host or its cloud"
    MARKET = "market", "the market: somebody pays more"
    PERSON = "person", "the person: nobody uses the machine"
    JOB = "job", "the job: its command ended"
    OURS = "ours", "GPU Shopper's own failure"


class AtRisk(Vocabulary):
    """Name what would be lost with a machine. What is unknown counts as a loss."""

    NOTHING = "nothing", "nothing"
    WORK = "work", "the work since the newest verified checkpoint"
    DISK = "disk", "a disk without a copy"
    VOLUME = "volume", "a volume"
    UNKNOWN = "unknown", "unknown"


class GraceChoice(StrEnum):
    """Name what somebody chose for a machine in grace."""

    WAIT = "wait"
    REPLACE = "replace"
    GIVE_UP = "give_up"


class GraceOutcome(Vocabulary):
    """Name how a grace ended."""

    RECOVERED = "recovered", "The machine works again."
    GIVEN_UP = "given_up", "Somebody gave the machine up."
    TOO_DEAR = "too_dear", "Waiting would cost more than its limit."
    NOTHING_LEFT = "nothing_left", "Nothing is left to lose."
    ENDED = "ended", "The session or the machine ended."
