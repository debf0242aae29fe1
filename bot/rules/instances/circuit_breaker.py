"""Stop a reconcile pass that would destroy or lose too much of a fleet; it does nothing and pages.

After cluster-autoscaler, which halts when more than 45 % of its nodes are unready: a wrong key, a half-empty listing or
a restored database look exactly like a fleet that was lost.
"""

from __future__ import annotations

FLEET = 4
FEWEST = 3
DESTROY_SHARE = 0.20
VANISH_SHARE = 0.50


def trips(live: int, destroys: int, vanished: int) -> str | None:
    """Say in a sentence why a pass over `live` running instances must stop; None when it may continue.

    `destroys` counts what the pass would end without an order, `vanished` the live rows that the listing lacks without
    an order.
    """
    if live < FLEET:
        return None
    most = max(FEWEST, int(live * DESTROY_SHARE))
    if destroys > most:
        return (
            f"One listing of the cloud would end {destroys} instances, more than {most} of {live}: nothing was ended."
        )
    if vanished >= live * VANISH_SHARE:
        return f"{vanished} of {live} running instances are missing from one listing: GPU Shopper ignores that listing."
    return None
