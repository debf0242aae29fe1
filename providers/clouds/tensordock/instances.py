"""Machines: what a create says, and what the several shapes of an answer say about one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any

from providers import cloud_init
from providers.adapter_helpers import instant, is_port, number, part, text
from providers.clouds.tensordock.errors import CLOUD
from providers.clouds.tensordock.offers import disk_size, gpu_of
from providers.contract import InstanceSpec, InstanceStatus, ObservedInstance, OpenPort, SshEndpoint
from providers.errors import InvalidSpec, UnexpectedResponse

USER = "user"
SSH_PORT = 22
#: The outer port of SSH that is asked for; those of other ports follow it.
OUTER_PORT = 20022
#: Neither length nor charset of a name is documented; this much was seen to work.
NAME = re.compile(r"[A-Za-z0-9-]{1,60}", re.ASCII)
NAME_MAX = 60
_VM_IMAGE = re.compile(r"[a-z0-9][a-z0-9_.-]*", re.ASCII)

#: Stopped, and its GPU was given back: only the disk is paid for.
_RELEASED = "stoppeddisassociated"
#: Lower case, without `_`, `-` and blanks; both spellings of the API and those of its owner's other services.
_WORDS: Mapping[str, InstanceStatus] = {
    "queued": InstanceStatus.PENDING,
    "creating": InstanceStatus.BOOTING,
    "starting": InstanceStatus.BOOTING,
    "running": InstanceStatus.RUNNING,
    # Its GPU is kept and paid for.
    "stopped": InstanceStatus.STOPPED,
    _RELEASED: InstanceStatus.STOPPED,
    "stopping": InstanceStatus.STOPPED,
    "outbid": InstanceStatus.STOPPED,
    "relocating": InstanceStatus.OFFLINE,
    # Still there and perhaps still paid for, so it must not count as gone.
    "deleting": InstanceStatus.OFFLINE,
    "error": InstanceStatus.ERROR,
    "deleted": InstanceStatus.TERMINATED,
    "terminated": InstanceStatus.TERMINATED,
}


# ── create ───────────────────────────────────────────────────────────────────────────────────────


def create_body(spec: InstanceSpec, image: str, secret: str) -> dict[str, Any]:
    """The body of a create. Raises `InvalidSpec` for what TensorDock would refuse or misread.

    `image` is the virtual machine's image unless the spec names one; `secret` is the id of the account's own SSH key,
    which is used when the spec brings none.
    """
    ticket = spec.offer.ticket
    if not NAME.fullmatch(spec.name):
        raise InvalidSpec(CLOUD, f"a name at TensorDock has 1 to {NAME_MAX} letters, digits and hyphens")
    disk_gb = disk_size(spec.disk_gb)
    if spec.offer.disk_gb_max is not None and disk_gb > spec.offer.disk_gb_max:
        raise InvalidSpec(CLOUD, f"this location has {spec.offer.disk_gb_max} GB of disk, {disk_gb} GB is needed")
    keys = [cloud_init.key_material(CLOUD, key) for key in spec.public_keys]
    if not keys and not secret:
        raise InvalidSpec(CLOUD, "TensorDock needs an SSH key: give one, or keep one as a secret of the account")
    try:
        slug, location = ticket["gpu"], ticket["location"]
        vcpus, ram_gb = int(ticket["vcpus"]), int(ticket["ram_gb"])
    except (KeyError, ValueError) as error:
        raise InvalidSpec(CLOUD, "that offer does not come from TensorDock's locations") from error
    attributes: dict[str, Any] = {
        "name": spec.name,
        "type": "virtualmachine",
        "image": spec.image if _VM_IMAGE.fullmatch(spec.image) else image,
        "resources": {
            "vcpu_count": vcpus,
            "ram_gb": ram_gb,
            "storage_gb": disk_gb,
            "gpus": {slug: {"count": spec.offer.gpu_count}},
        },
        "location_id": location,
        "cloud_init": first_boot(spec, [*keys, *([spec.login_key] if spec.login_key else [])]),
    }
    attributes |= {"ssh_key": keys[0]} if keys else {"ssh_key_id": secret}
    if ticket.get("own_ip") == "yes":
        # Some locations ignore forwarded ports altogether, so an address of its own comes first.
        attributes["useDedicatedIp"] = True
    else:
        # TensorDock may choose other outer ports, and shows those that it chose.
        inner = (SSH_PORT, *(port.number for port in spec.ports))
        attributes["port_forwards"] = [
            {"protocol": "tcp", "internal_port": number, "external_port": OUTER_PORT + place}
            for place, number in enumerate(inner)
        ]
    return {"data": {"type": "virtualmachine", "attributes": attributes}}


def first_boot(spec: InstanceSpec, keys: Sequence[str]) -> dict[str, Any]:
    """Cloud-init as an object. Keys are appended by commands: the key fields were seen to be unreliable.

    Files carry plain text, because `encoding: b64` is not supported there.
    """
    container = "" if _VM_IMAGE.fullmatch(spec.image) else spec.image
    commands = []
    for home, owner in (("/root", "root"), (f"/home/{USER}", USER)) if keys else ():
        commands.append(f"{cloud_init.authorized_keys(home, keys)} && chown -R {owner}: {home}/.ssh")
    if container:
        pull = f"command -v docker && docker pull -q {shlex.quote(container)}"
        commands.append(cloud_init.background(f"sh -c {shlex.quote(pull)}", "pull"))
    return {
        "package_update": False,
        "write_files": cloud_init.files(CLOUD, spec, container),
        "runcmd": [*commands, *cloud_init.start(spec)],
    }


# ── what the API says ────────────────────────────────────────────────────────────────────────────


def rows(body: Any) -> list[dict[str, Any]]:
    """The machines of a listing, in whichever of its four shapes it came.

    `{"data": {"instances": […]}}`, `{"data": {"attributes": {"instances": […]}}}`, `{"data": […]}` or a bare array.
    Anything else raises `UnexpectedResponse`: it must never look like an empty account.
    """
    found: Any = body.get("data") if isinstance(body, dict) else body
    if isinstance(found, dict):
        found = (found if "instances" in found else part(found, "attributes")).get("instances")
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise UnexpectedResponse(CLOUD, "TensorDock's answer has no list of instances")
    return found


def observed(row: Any) -> ObservedInstance:
    """One machine of a listing or of a read by id, flat or under `attributes`, in either casing.

    Raises `UnexpectedResponse` for a machine without an id or a status.
    """
    row = _flat(row)
    ref, word = row.get("id"), row.get("status")
    if not isinstance(ref, str) or not ref or not isinstance(word, str):
        raise UnexpectedResponse(CLOUD, "TensorDock sent an instance without an id or a status")
    # A word nobody knows is neither ready nor dead: the boot deadline decides.
    known = re.sub(r"[\s_-]", "", word.lower())
    status = _WORDS.get(known, InstanceStatus.BOOTING)
    gpu, count = _gpu(row)
    prices = (number(row.get(name)) for name in ("rateHourly", "price_per_hour", "rate_hourly"))
    return ObservedInstance(
        cloud=CLOUD,
        ref=ref,
        name=text(row.get("name")),
        status=status,
        status_text=word,
        gpu=gpu,
        gpu_count=count,
        price_usd_h=next((price for price in prices if price is not None), None),
        ssh=_ssh(row) if status is InstanceStatus.RUNNING else None,
        ports=_ports(row) if status is InstanceStatus.RUNNING else (),
        set_host=_address(row) if status is InstanceStatus.RUNNING else None,
        holds_gpu=known != _RELEASED,
        created_at=instant(row.get("created_at", row.get("createdAt")), UTC),
    )


def _flat(row: Any) -> Mapping[str, Any]:
    """A machine without its wrappings: `data` of a read, `attributes` of a row."""
    if not isinstance(row, dict):
        raise UnexpectedResponse(CLOUD, "TensorDock sent an instance that is not an object")
    if "id" not in row and isinstance(row.get("data"), dict):
        row = row["data"]
    return {**row, **part(row, "attributes")}


def _gpu(row: Mapping[str, Any]) -> tuple[str | None, int | None]:
    """Name and count: of `resources.gpus` in a read by id, of two flat fields in a listing."""
    gpus = part(row, "resources", "gpus")
    slug, count = row.get("gpu_model"), row.get("gpu_count")
    if len(gpus) == 1:
        slug = next(iter(gpus))
        count = part(gpus, slug).get("count")
    if not isinstance(slug, str) or not slug:
        return None, None
    known = gpu_of(slug)
    name = known[0] if known else slug
    return name, count if isinstance(count, int) and not isinstance(count, bool) else None


def _ports(row: Mapping[str, Any]) -> tuple[OpenPort, ...]:
    """The forwarded ports beside SSH's, at the machine's address."""
    host, forwards = row.get("ipAddress") or row.get("ip_address"), row.get("portForwards", row.get("port_forwards"))
    opened = []
    for forward in map(part, forwards if isinstance(forwards, list) and isinstance(host, str) else ()):
        inner, outer = forward.get("internal_port"), forward.get("external_port")
        if inner != SSH_PORT and is_port(inner) and is_port(outer):
            opened.append(OpenPort(int(str(inner)), f"{str(host).strip()}:{outer}"))
    return tuple(opened)


def _address(row: Mapping[str, Any]) -> str | None:
    """The machine's address. One that was asked for as its own takes every port; only such machines form a set."""
    host = row.get("ipAddress") or row.get("ip_address")
    return host.strip() or None if isinstance(host, str) else None


def _ssh(row: Mapping[str, Any]) -> SshEndpoint | None:
    """The forwarded port of 22, or 22 itself where nothing is forwarded: then the address is the machine's own.

    An answer that does not speak of ports leaves the port unknown.
    """
    host = row.get("ipAddress") or row.get("ip_address")
    if not isinstance(host, str) or not host.strip():
        return None
    forwards = row.get("portForwards", row.get("port_forwards"))
    if not isinstance(forwards, list):
        return None
    if not forwards:
        return SshEndpoint(host.strip(), SSH_PORT, USER)
    for forward in forwards:
        if part(forward).get("internal_port") == SSH_PORT:
            port = forward.get("external_port")
            return SshEndpoint(host.strip(), port, USER) if isinstance(port, int) and 0 < port < 65536 else None
    return None
