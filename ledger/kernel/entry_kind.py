"""List why an amount is in the ledger."""

from __future__ import annotations

from ledger.kernel.vocabulary import Vocabulary


class EntryKind(Vocabulary):
    """Say what a ledger entry books."""

    RESERVE = "reserve", "Set aside for an approval"
    RELEASE = "release", "Given back of what was set aside"
    ACCRUE = "accrue", "Used by a session"
    TRUE_UP = "true_up", "Correction to what the cloud bills"
    LOSS = "loss", "Cost of an orphan"
    EXTERNAL = "external", "Cost of another tool"


#: Kinds of entries that are money spent.
SPENT = (EntryKind.ACCRUE, EntryKind.TRUE_UP, EntryKind.LOSS, EntryKind.EXTERNAL)
#: Those of them that are a session's own.
USED = (EntryKind.ACCRUE, EntryKind.TRUE_UP)
