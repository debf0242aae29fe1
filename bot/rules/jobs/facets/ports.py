"""The ports of a machine to reach from outside, besides SSH: `ports=8888/http,6006`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from bot.rules.jobs.facet import Detail, Fields, JobFacet, Key, NumberOrText, Word
from bot.rules.policy import job_bounds
from bot.rules.policy.policy import Policy
from bot.rules.values.bad_word import BadWord
from ledger.kernel.ports import Port


@dataclass(frozen=True, kw_only=True)
class PortFields:
    """Which ports are reached from outside."""

    #: As `ledger.kernel.ports` writes them: `8888/http`.
    ports: tuple[str, ...] = ()


def _read_ports(text: str, _policy: Policy) -> Fields:
    """Read `8888/http,6006`: ports on the machine, tcp where nothing else is said. Raises `BadWord`."""
    try:
        ports = tuple(map(Port.read, text.split(",")))
    except ValueError:
        raise BadWord(f"“{text[:40]}” has no ports from 1 to 65535; write ports=8888/http,6006.") from None
    if wrong := job_bounds.ports(ports):
        raise BadWord(wrong.sentence)
    return {"ports": tuple(map(str, ports))}


def _details(job: PortFields) -> Iterator[Detail]:
    if job.ports:
        yield Detail("ports", ", ".join(job.ports))


PORTS = JobFacet(
    fields=PortFields,
    words=(
        Word("ports", "PORT[,PORT]", "Ports to reach besides SSH.", "ports=8888/http,6006", _read_ports, ("port",)),
    ),
    keys=(
        Key(
            "ports",
            Annotated[list[NumberOrText], Field(max_length=20)],
            "Ports to reach from outside, besides SSH: 8888/http for a web page, 6006 for any other (tcp).",
            [],
            [["8888/http", "6006"]],
        ),
    ),
    details=_details,
)
