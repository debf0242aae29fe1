"""TensorDock's public list of hosts (v0), which is answered without a key, in the words of the newer API's locations.

A host that is offline, not listed or reserved sells nothing. Prices are per part, as in the newer API.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from providers.adapter_helpers import part
from providers.clouds.tensordock.errors import CLOUD
from providers.errors import UnexpectedResponse

PATH = "/client/deploy/hostnodes"


def locations(body: Any) -> dict[str, Any]:
    """The answer of `GET /locations` that says the same; `UnexpectedResponse` where it is no map of hosts."""
    hosts = body.get("hostnodes") if isinstance(body, dict) else None
    if not isinstance(hosts, dict):
        raise UnexpectedResponse(CLOUD, "TensorDock's answer has no map of hosts")
    sold = (_location(ref, host) for ref, host in hosts.items() if isinstance(host, dict) and _is_for_sale(host))
    return {"data": {"locations": list(sold)}}


def _is_for_sale(host: Mapping[str, Any]) -> bool:
    status = part(host, "status")
    return (
        status.get("online") is not False and status.get("listed") is not False and status.get("reserved") is not True
    )


def _location(ref: str, host: Mapping[str, Any]) -> dict[str, Any]:
    place, specs = part(host, "location"), part(host, "specs")
    cpu, ram, disk = (part(specs, name) for name in ("cpu", "ram", "storage"))
    shared = {
        "resources": {
            "max_vcpus": cpu.get("amount"),
            "max_ram_gb": ram.get("amount"),
            "max_storage_gb": disk.get("amount"),
        },
        "pricing": {
            "per_vcpu_hr": cpu.get("price"),
            "per_gb_ram_hr": ram.get("price"),
            "per_gb_storage_hr": disk.get("price"),
        },
    }
    return {
        "id": ref,
        "city": place.get("city"),
        "stateprovince": place.get("region"),
        "country": place.get("country"),
        "gpus": [
            {"v0Name": slug, "max_count": gpu.get("amount"), "price_per_hr": gpu.get("price"), **shared}
            for slug, gpu in part(specs, "gpu").items()
            if isinstance(gpu, dict)
        ],
    }
