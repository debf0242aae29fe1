"""Ports as people write them: a number, and http where it is a web page."""

from __future__ import annotations

import pytest

from ledger.kernel.ports import Port, PortProtocol


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
