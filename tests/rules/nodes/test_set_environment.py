"""The variables of a set: where each of its machines finds the others."""

from __future__ import annotations

from bot.rules.nodes.set_environment import set_environment


def test_each_machine_learns_its_place_and_where_the_first_one_is() -> None:
    hosts = ["10.0.0.7", "10.0.0.9"]
    first, second = (set_environment(rank, hosts) for rank in (0, 1))
    assert {name for name in first if first[name] != second[name]} == {"NODE_RANK", "PET_NODE_RANK"}
    assert second == {
        "NODE_RANK": "1",
        "NNODES": "2",
        "NUM_NODES": "2",
        "MASTER_ADDR": "10.0.0.7",
        "MASTER_PORT": "29500",
        "NODE_ADDRESSES": "10.0.0.7,10.0.0.9",
        "PET_NODE_RANK": "1",
        "PET_NNODES": "2",
        "PET_MASTER_ADDR": "10.0.0.7",
        "PET_MASTER_PORT": "29500",
    }
