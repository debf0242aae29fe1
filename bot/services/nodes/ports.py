"""Say where the ports that a job asked for are reached."""

from __future__ import annotations

from dataclasses import dataclass

from bot.rules.jobs.job import JobRequest
from bot.services.nodes.connection import is_plain
from ledger.kernel.ports import Port, PortProtocol
from ledger.models import Instance

HTTPS = "https://"


@dataclass(frozen=True, slots=True)
class AskedPort:
    """One port of a job. `address` is where it is reached from outside, as a URL for a web page; "": by a tunnel."""

    port: Port
    address: str = ""


def ports_of(job: JobRequest, row: Instance | None) -> tuple[AskedPort, ...]:
    """Return the ports of a job with their addresses, as far as the cloud shows them."""
    shown = (row.ports if row is not None else None) or {}
    return tuple(_asked(port, shown.get(str(port.number), "")) for port in map(Port.read, job.ports))


def _asked(port: Port, address: str) -> AskedPort:
    if not is_plain(address.removeprefix(HTTPS)):
        return AskedPort(port)
    is_page = port.protocol is PortProtocol.HTTP and not address.startswith(HTTPS)
    return AskedPort(port, f"http://{address}" if is_page else address)
