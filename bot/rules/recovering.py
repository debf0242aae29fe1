"""Recovery, in the one sentence that every door says while an instance of ours waits for an operator's word."""

from __future__ import annotations


def held(unknown: int) -> str:
    """Why nothing moves, and which commands end that; "" while the ledger knows of every instance of ours."""
    if not unknown:
        return ""
    one = unknown == 1
    what = "1 instance carries our label and has" if one else f"{unknown} instances carry our label and have"
    return (
        f"Recovery is on: {what} no row here, so nothing is bought and nothing is ended. An operator ends that with "
        f"gpu-shopper adopt or gpu-shopper strays condemn for {'it' if one else 'each'}; gpu-shopper strays list shows "
        "what waits."
    )
