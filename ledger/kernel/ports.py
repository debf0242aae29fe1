"""Name the network ports of a machine that somebody asks for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

LOWEST, HIGHEST = 1, 65_535


class PortProtocol(StrEnum):
    """How a port is reached: a plain TCP connection, or a web page."""

    TCP = "tcp"
    HTTP = "http"


@dataclass(frozen=True, slots=True)
class Port:
    """One port on the machine; as text `8888/http` or `6006/tcp`."""

    number: int
    protocol: PortProtocol = PortProtocol.TCP

    def __str__(self) -> str:
        return f"{self.number}/{self.protocol}"

    @classmethod
    def read(cls, text: str) -> Port:
        """Read `8888/http` or `6006`, which is tcp. Raises `ValueError` for anything else."""
        number, slash, protocol = text.strip().lower().partition("/")
        if not (number.isascii() and number.isdigit() and LOWEST <= int(number) <= HIGHEST):
            raise ValueError(f"{text} is no port")
        return cls(int(number), PortProtocol(protocol) if slash else PortProtocol.TCP)
