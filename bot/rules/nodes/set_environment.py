"""Name the variables by which the machines of a set find each other, as torchrun and most launchers read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

#: Where the machine of rank 0 is reached by the others; torchrun's own default.
MASTER_PORT: Final = 29_500


def set_environment(rank: int, hosts: Sequence[str]) -> dict[str, str]:
    """Return the variables of the machine of this rank; `hosts` are the addresses of all, in the order of ranks.

    torchrun takes its options from PET_*, so that `torchrun train.py` alone joins all machines.
    """
    place = {
        "NNODES": str(len(hosts)),
        "NODE_RANK": str(rank),
        "MASTER_ADDR": hosts[0],
        "MASTER_PORT": str(MASTER_PORT),
    }
    torchrun = {f"PET_{name}": value for name, value in place.items()}
    return {**place, **torchrun, "NUM_NODES": str(len(hosts)), "NODE_ADDRESSES": ",".join(hosts)}
