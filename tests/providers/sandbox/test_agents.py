"""What a sandbox's machine exports is what its cloud-init says, in both shapes that clouds take it in."""

from __future__ import annotations

import pytest

from providers.sandbox.agents import Nodes, exported
from tests.support.clock import SteppedClock

INIT = {"write_files": [{"path": "/x/env", "content": "export A='b c'\nexport D=e\n"}, {"path": "/x/start"}]}


def test_variables_come_from_the_env_file() -> None:
    assert exported(INIT) == {"A": "b c", "D": "e"}
    assert exported('#cloud-config\n{"write_files": [{"path": "/env", "content": "export A=1"}]}') == {"A": "1"}
    assert exported("#cloud-config\nnot json") == exported("") == exported({}) == exported(None) == {}


async def test_an_agent_runs_while_its_machine_does_and_takes_only_words_it_knows(clock: SteppedClock) -> None:
    nodes = Nodes(clock)
    env = {"GPU_SHOPPER_CHECKIN_URL": "http://127.0.0.1:9/", "GPU_SHOPPER_CHECKIN_TOKEN": "t"}
    await nodes.match("a/", {"a/1": env, "a/2": {}})
    assert list(nodes.running) == ["a/1"]
    with pytest.raises(AttributeError):
        nodes.configure("a/1", mood="good")
    assert nodes.configure("a/1", silent=True).status == 0
    await nodes.match("a/", {})
    assert nodes.running == {}
    await nodes.close()


async def test_over_weeks_agents_report_together(clock: SteppedClock) -> None:
    nodes = Nodes(clock)
    nodes.every_s = 300.0
    env = {"GPU_SHOPPER_CHECKIN_URL": "http://127.0.0.1:9/", "GPU_SHOPPER_CHECKIN_TOKEN": "t"}
    await nodes.match("a/", {"a/1": env})
    clock.advance(100)
    await nodes.match("b/", {"b/1": env})
    assert {node.next_at.timestamp() % 300 for node in nodes.running.values()} == {0}
    assert len({node.next_at for node in nodes.running.values()}) == 1
    assert [node.seq for node in nodes.running.values()] == [1, 1]
    await nodes.close()
