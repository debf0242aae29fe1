"""Say who acts: a person in Slack, a program, an AI agent, an operator or a job of the system."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ActorKind(StrEnum):
    SLACK = "slack"
    CONSUMER = "consumer"
    AGENT = "agent"
    OPERATOR = "operator"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Actor:
    """Name who acts. `id` is the Slack user id, the program's name, the operating-system user, or the job's name."""

    kind: ActorKind
    id: str
    team: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError for an id or team from which `ref` could not be read back."""
        if not self.id or "/" in self.id:
            raise ValueError(f"an actor's id is not empty and has no slash; {self.id!r} is not one")

    @property
    def ref(self) -> str:
        """Return the string stored in the ledger: `slack:T1/U1`, `consumer:atlas`, `operator:ada`, `system:ticker`."""
        return f"{self.kind}:{self.team}/{self.id}" if self.team else f"{self.kind}:{self.id}"

    @property
    def is_program(self) -> bool:
        """Whether it acts by a key that a person answers for: a program or an AI agent."""
        return self.kind in (ActorKind.CONSUMER, ActorKind.AGENT)

    @classmethod
    def from_ref(cls, ref: str) -> Actor:
        """Read an actor from its `ref`; ValueError when the text is not one."""
        kind, _, rest = ref.partition(":")
        team, slash, ident = rest.rpartition("/")
        return cls(ActorKind(kind), ident if slash else rest, team if slash else "")


SYSTEM = Actor(ActorKind.SYSTEM, "ticker")
