"""Instances: what is sent to make one, and what a row of the API says about one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from providers.adapter_helpers import is_port, number, part, text
from providers.cloud_init import authorized_keys
from providers.clouds.vast.errors import CLOUD
from providers.clouds.vast.offers import country, is_id
from providers.contract import InstanceSpec, InstanceStatus, ObservedInstance, OpenPort, SshEndpoint
from providers.errors import InvalidSpec, UnexpectedResponse
from providers.gpus.table import canonical

#: The service cuts scripts off near 4 048 characters.
ONSTART_MAX = 4000
DISK_MIN_GB = 8
#: The year 9999, after which Python has no dates.
LATEST_S = 253_402_300_800
#: Minutes; no contract runs for ten years.
UPTIME_MAX = 5_256_000
#: What the official client sends for direct SSH, spelled as there.
RUNTYPE = "ssh_direc ssh_proxy"

_WORDS: Mapping[str | None, InstanceStatus] = {
    None: InstanceStatus.PENDING,
    "created": InstanceStatus.PENDING,
    "loading": InstanceStatus.BOOTING,
    "rebooting": InstanceStatus.BOOTING,
    "restarting": InstanceStatus.BOOTING,
    "running": InstanceStatus.RUNNING,
    "stopped": InstanceStatus.STOPPED,
    "exited": InstanceStatus.STOPPED,
    # Paused in memory with the GPU still charged: nobody asked for it, and it is of no use.
    "frozen": InstanceStatus.ERROR,
    "unknown": InstanceStatus.OFFLINE,
    "offline": InstanceStatus.OFFLINE,
}
#: Texts of a boot that will never finish, in lower case.
_BROKEN = (
    "oci runtime create failed",
    "manifest unknown",
    "pull access denied",
    "unauthorized",
    "unsatisfied condition: cuda",
)


def create_body(spec: InstanceSpec) -> dict[str, Any]:
    """The body of the create. Raises `InvalidSpec` for what the service would cut off or misread.

    `cancel_unavail` is always true: otherwise a lost race leaves a stopped instance whose disk is billed.
    """
    script = onstart(spec)
    if len(script) > ONSTART_MAX:
        raise InvalidSpec(CLOUD, f"the start script and keys are {len(script)} characters, Vast.ai takes {ONSTART_MAX}")
    if spec.offer.spot and spec.bid_usd_h is None:
        raise InvalidSpec(CLOUD, "a spot offer needs a bid in dollars per hour for the whole offer")
    if spec.disk_gb < DISK_MIN_GB:
        raise InvalidSpec(CLOUD, f"Vast.ai's smallest disk is {DISK_MIN_GB} GB, {spec.disk_gb} GB was asked")
    body: dict[str, Any] = {
        "client_id": "me",
        "image": spec.image,
        "disk": spec.disk_gb,
        "label": spec.name,
        # Each port is a variable of this form, as the official client sends it.
        "env": {**spec.env, **{f"-p {port.number}:{port.number}": "1" for port in spec.ports}},
        "onstart": script,
        "runtype": RUNTYPE,
        "cancel_unavail": True,
        "target_state": "running",
    }
    if spec.offer.spot:
        body["price"] = float(spec.bid_usd_h or 0)
    return body


def onstart(spec: InstanceSpec) -> str:
    """The public keys, then the caller's script: a key attached by a second call could be lost with that call."""
    keys = [*spec.public_keys, *([spec.login_key] if spec.login_key else [])]
    return f"{authorized_keys('/root', keys)}\n{spec.onstart}" if keys else spec.onstart


def observed(row: Any, at: datetime) -> ObservedInstance:
    """One instance of the API, read at `at`. `price_usd_h` is the rate when running; once stopped, of what remains.

    Raises `UnexpectedResponse` for a row without an id.
    """
    if not isinstance(row, dict) or not is_id(row.get("id")):
        raise UnexpectedResponse(CLOUD, "Vast.ai sent an instance without an id")
    status = _status(row)
    spelling = row.get("gpu_name")
    count = row.get("num_gpus")
    place = str(row.get("geolocation") or "").strip(" ,")
    return ObservedInstance(
        cloud=CLOUD,
        ref=str(row["id"]),
        name=text(row.get("label")),
        status=status,
        status_text=str(row.get("status_msg") or ""),
        gpu=_gpu(spelling, number(row.get("gpu_totalram", row.get("gpu_total_ram"))), count),
        gpu_count=count if is_id(count) else None,
        price_usd_h=_price(row, status),
        storage_usd_h=number(row.get("storage_total_cost")),
        ssh=_ssh(row) if status is InstanceStatus.RUNNING else None,
        ports=_ports(row) if status is InstanceStatus.RUNNING else (),
        region=place if country(place) or place else None,
        machine_id=None if row.get("machine_id") is None else str(row["machine_id"]),
        spot=row.get("is_bid") is True,
        created_at=instant_s(row.get("start_date")),
        started_at=_started(row, status, at),
    )


def _started(row: Mapping[str, Any], status: InstanceStatus, at: datetime) -> datetime | None:
    """Since when it runs, which is what Vast.ai bills: by its uptime, where that can be its own and not the host's."""
    minutes, created = number(row.get("uptime_mins")), instant_s(row.get("start_date"))
    if status is not InstanceStatus.RUNNING or minutes is None or not 0 <= minutes < UPTIME_MAX or created is None:
        return None
    started = at - timedelta(minutes=float(minutes))
    return started if started >= created else None


def _status(row: Mapping[str, Any]) -> InstanceStatus:
    word = row.get("actual_status")
    # A word nobody knows is neither ready nor dead: the boot deadline decides.
    known = word is None or isinstance(word, str)
    status = _WORDS.get(word, InstanceStatus.BOOTING) if known else InstanceStatus.BOOTING
    text = str(row.get("status_msg") or "").lower()
    if status in {InstanceStatus.PENDING, InstanceStatus.BOOTING} and any(sign in text for sign in _BROKEN):
        return InstanceStatus.ERROR
    stopping = row.get("intended_status") == "stopped" or row.get("cur_state") == "stopped"
    if status is InstanceStatus.STOPPED and not stopping:
        # After a start or a reboot the old word stays for a while.
        return InstanceStatus.BOOTING
    if status is InstanceStatus.PENDING and stopping:
        return InstanceStatus.STOPPED
    return status


def _price(row: Mapping[str, Any], status: InstanceStatus) -> Decimal | None:
    if status is InstanceStatus.STOPPED:
        now = row.get("instance")
        return number(now.get("totalHour")) if isinstance(now, dict) else number(row.get("storage_total_cost"))
    return number(row.get("dph_total"))


def _gpu(spelling: Any, total_mb: Decimal | None, count: Any) -> str | None:
    if not isinstance(spelling, str):
        return None
    memory_gb = total_mb / 1024 / count if total_mb is not None and is_id(count) else None
    return canonical(CLOUD, spelling, memory_gb) or spelling


def _ssh(row: Mapping[str, Any]) -> SshEndpoint | None:
    """The direct port. The address was seen with a trailing blank; `ports` is absent until the container runs."""
    host = str(row.get("public_ipaddr") or "").strip()
    try:
        port = int(row["ports"]["22/tcp"][0]["HostPort"])
    except (KeyError, IndexError, TypeError, ValueError):
        return None
    return SshEndpoint(host, port) if host and 0 < port < 65536 else None


def _ports(row: Mapping[str, Any]) -> tuple[OpenPort, ...]:
    """The TCP ports beside SSH's, at the host's address."""
    host, found = str(row.get("public_ipaddr") or "").strip(), row.get("ports")
    opened = []
    for name, places in found.items() if host and isinstance(found, dict) else ():
        inside, _, protocol = str(name).partition("/")
        outside = part(places[0]).get("HostPort") if isinstance(places, list) and places else None
        if protocol == "tcp" and inside != "22" and is_port(inside) and is_port(outside):
            opened.append(OpenPort(int(inside), f"{host}:{outside}"))
    return tuple(sorted(opened, key=lambda one: one.number))


def instant_s(value: Any) -> datetime | None:
    """Read seconds since 1970 as a time; None where they are none."""
    seconds = number(value)
    return datetime.fromtimestamp(float(seconds), UTC) if seconds is not None and 0 <= seconds < LATEST_S else None
