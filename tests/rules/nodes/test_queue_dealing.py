"""Commands of a queue are dealt to several machines: none runs on two, none is forgotten, and no GPU waits."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from bot.rules.nodes.queue_dealing import AHEAD, Dealt


@dataclass
class Ablation:
    """A queue, its machines, and what they did."""

    total: int
    gpus: int
    machines: list[str]
    results: dict[int, str] = field(default_factory=dict)
    claims: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    over: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    runs: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))

    @property
    def working(self) -> list[str]:
        return [one for one in self.machines if one not in self.over | self.silent | self.ended]

    @property
    def dealt(self) -> Dealt:
        return Dealt(self.total, self.results, self.claims, self.over, len(self.working))

    def check_in(self, machine: str) -> None:
        for number in self.dealt.next_for(machine, self.gpus):
            assert self.dealt.holder(number) is None
            assert number not in self.results
            assert set(self.claims[number]) <= self.over, "it may still run elsewhere"
            self.claims[number].append(machine)
            self.runs[number].add(machine)
        held = self.dealt.held_by(machine)
        assert len(held) <= AHEAD * self.gpus
        assert len(held) >= self.gpus or not self.dealt.free

    def end_one(self, machine: str, chance: Random) -> None:
        """A command of the machine ends."""
        held = self.dealt.held_by(machine)[: self.gpus]
        if held:
            number = chance.choice(held)
            assert number not in self.results
            self.results[number] = machine

    def look(self) -> None:
        """End machines without a command."""
        for machine in self.working:
            if self.dealt.is_idle(machine, self.working):
                assert not self.dealt.held_by(machine)
                self.ended.add(machine)
                self.over.add(machine)


@given(
    total=st.integers(1, 40),
    gpus=st.integers(1, 4),
    count=st.integers(1, 4),
    losses=st.integers(0, 3),
    seed=st.integers(0, 2**32),
)
def test_each_command_has_one_result_whichever_machines_are_lost(
    total: int, gpus: int, count: int, losses: int, seed: int
) -> None:
    chance = Random(seed)  # It picks what happens next.
    here = Ablation(total, gpus, [f"m{n}" for n in range(count)])
    for _ in range(20 * total * count + 100):
        if len(here.results) == total:
            break
        assert here.working, "the last machine with work left was ended"
        machine = chance.choice(here.working)
        step = chance.random()
        if step < 0.45:
            here.check_in(machine)
        elif step < 0.9:
            here.end_one(machine, chance)
        elif losses and len(here.working) > 1:
            losses -= 1
            here.silent.add(machine)
        if here.silent and chance.random() < 0.2:
            here.over.add(here.silent.pop())
        here.look()
    assert sorted(here.results) == list(range(1, total + 1))
    here.look()
    assert not here.working, "each machine ends when no command is left"
    for number, machine in here.results.items():
        assert here.runs[number] - {machine} <= here.over


@given(total=st.integers(1, 60), gpus=st.integers(1, 8), count=st.integers(1, 4))
def test_the_last_commands_are_shared(total: int, gpus: int, count: int) -> None:
    here = Ablation(total, gpus, [f"m{n}" for n in range(count)])
    for machine in here.machines:
        here.check_in(machine)
    held = [len(here.dealt.held_by(machine)) for machine in here.machines]
    if total >= gpus * count:
        assert min(held) >= gpus
    assert sum(held) == min(total, sum(held))


def test_a_machine_waits_for_the_commands_of_one_that_may_fail() -> None:
    dealt = Dealt(2, {1}, {1: ["a"], 2: ["b"]}, (), 2)
    assert dealt.is_idle("a", {"a", "b"})
    assert not dealt.is_idle("a", {"a"})
    assert not dealt.is_idle("b", {"a", "b"})
    assert dealt.next_for("a", 4) == []
    lost = Dealt(2, {1}, {1: ["a"], 2: ["b"]}, {"b"}, 1)
    assert lost.next_for("a", 4) == [2]
    assert not lost.is_idle("a", {"a"})
