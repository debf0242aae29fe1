"""Ports as people write them: a number, and http where it is a web page."""

from __future__ import annotations

from decimal import Decimal

import pytest

from bot.rules.jobs.job import JobRequest
from ledger.kernel.ports import Port, PortProtocol
from providers.gpus.constraint import GpuConstraint


@pytest.mark.parametrize(
    ("text", "number", "protocol", "shown"),
    [
        ("8888/http", 8888, PortProtocol.HTTP, "8888/http"),
        (" 6006 ", 6006, PortProtocol.TCP, "6006/tcp"),
        ("1/TCP", 1, PortProtocol.TCP, "1/tcp"),
        ("65535", 65535, PortProtocol.TCP, "65535/tcp"),
    ],
)
def test_a_port_is_read_and_written(text: str, number: int, protocol: PortProtocol, shown: str) -> None:
    port = Port.read(text)
    assert (port.number, port.protocol, str(port)) == (number, protocol, shown)
    assert Port.read(shown) == port


@pytest.mark.parametrize("text", ["", "0", "65536", "-1", "8_888", "８８８８", "8888/", "8888/udp", "http", "1/http/x"])
def test_anything_else_is_no_port(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no port|is not a valid PortProtocol"):
        Port.read(text)


def test_a_job_keeps_its_ports_in_the_database() -> None:
    job = JobRequest(GpuConstraint(), Decimal(2), ports=("8888/http", "6006/tcp"))
    assert JobRequest.from_json(job.to_json()).ports == ("8888/http", "6006/tcp")
    assert JobRequest.from_json({"gpu": {}, "hours": "2"}).ports == ()
