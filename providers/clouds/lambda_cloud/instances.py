"""Instances: what a launch says, and what a row of the API says about one."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from providers import cloud_init
from providers.adapter_helpers import part, text
from providers.clouds.lambda_cloud.errors import CLOUD
from providers.clouds.lambda_cloud.offers import gpu_of, price_usd_h
from providers.contract import InstanceSpec, InstanceStatus, ObservedInstance, SshEndpoint
from providers.errors import InvalidSpec, UnexpectedResponse

USER = "ubuntu"
SSH_PORT = 22
NAME_MAX = 64
USER_DATA_MAX = 1_000_000
KEY_NAME_MAX = 64
#: Where a file system is mounted; `{}` is its name.
VOLUMES_PATH = "/lambda/nfs/{}"
#: What the names of keys start with that this program registers, in whichever deployment.
KEY_PREFIX = "gpu-shopper-"
#: The API tells no time of creation, so a launch carries its own in a tag.
CREATED_TAG = "gpu-shopper-created"
CREATED_FORM = "%Y-%m-%dT%H:%M:%SZ"
#: A server that does not listen on port 22 is found by this tag.
PORT_TAG = "ssh-port"
_UUID = re.compile(r"[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}", re.ASCII)
_FAMILY = re.compile(r"[a-z0-9][a-z0-9.-]*", re.ASCII)

_WORDS: Mapping[Any, InstanceStatus] = {
    "booting": InstanceStatus.BOOTING,
    "active": InstanceStatus.RUNNING,
    # Failed its health checks and may come back; it has to be taken for billed.
    "unhealthy": InstanceStatus.OFFLINE,
    # Still listed and perhaps still billed, so it must not count as gone.
    "terminating": InstanceStatus.OFFLINE,
    "terminated": InstanceStatus.TERMINATED,
    # Lost for good, but only a terminate makes sure that nothing of it is left.
    "preempted": InstanceStatus.ERROR,
}


# ── SSH keys ─────────────────────────────────────────────────────────────────────────────────────


def key_name(label: str) -> str:
    """The name under which the key of one launch is registered: its right end is the label, which is never cut."""
    return f"{KEY_PREFIX}{label[-(KEY_NAME_MAX - len(KEY_PREFIX)) :]}"


# ── launch ───────────────────────────────────────────────────────────────────────────────────────


def launch_body(spec: InstanceSpec, at: datetime) -> dict[str, Any]:
    """The body of a launch, less the name of the SSH key. Raises `InvalidSpec` for what Lambda would refuse."""
    if not 0 < len(spec.name) <= NAME_MAX:
        raise InvalidSpec(CLOUD, f"a name at Lambda has 1 to {NAME_MAX} characters, this one {len(spec.name)}")
    if spec.offer.disk_gb_max is not None and spec.disk_gb > spec.offer.disk_gb_max:
        raise InvalidSpec(CLOUD, f"this type's disk has {spec.offer.disk_gb_max} GB, {spec.disk_gb} GB was asked")
    script = user_data(spec)
    if len(script.encode()) > USER_DATA_MAX:
        raise InvalidSpec(CLOUD, "the start script and variables are more than the 1 MB that Lambda takes")
    body: dict[str, Any] = {
        "region_name": spec.offer.ticket.get("region", spec.offer.region),
        "instance_type_name": spec.offer.ticket.get("instance_type", spec.offer.key.partition("/")[0]),
        "name": spec.name,
        "user_data": script,
        "tags": [{"key": CREATED_TAG, "value": at.strftime(CREATED_FORM)}],
    }
    if spec.volume is not None:
        mount = {"mount_point": spec.volume.path, "file_system_id": spec.volume.ref}
        body["file_system_mounts"] = [mount]
    if _UUID.fullmatch(spec.image):
        body["image"] = {"id": spec.image}
    elif _FAMILY.fullmatch(spec.image):
        body["image"] = {"family": spec.image}
    return body


def user_data(spec: InstanceSpec) -> str:
    """Cloud-init for the virtual machine: further keys, the variables, the start script, and the image to pull."""
    container = "" if _UUID.fullmatch(spec.image) or _FAMILY.fullmatch(spec.image) else spec.image
    pull = [cloud_init.background(f"docker pull -q {shlex.quote(container)}", "pull")] if container else []
    keys = [*spec.public_keys, *([spec.login_key] if spec.login_key else [])]
    config = {
        "ssh_authorized_keys": [cloud_init.key_material(CLOUD, key) for key in keys],
        "write_files": cloud_init.files(CLOUD, spec, container),
        "runcmd": [*pull, *cloud_init.start(spec)],
    }
    # JSON is YAML, and a string in it needs no further quoting.
    return "#cloud-config\n" + json.dumps(config, ensure_ascii=False)


# ── what the API says ────────────────────────────────────────────────────────────────────────────


def observed(row: Any) -> ObservedInstance:
    """One instance of the API; its Jupyter token and address, which are secrets, are never taken over.

    Raises `UnexpectedResponse` for a row without an id or a status.
    """
    if not isinstance(row, dict) or not isinstance(row.get("id"), str) or not row["id"]:
        raise UnexpectedResponse(CLOUD, "Lambda sent an instance without an id")
    word = row.get("status")
    if not isinstance(word, str):
        raise UnexpectedResponse(CLOUD, "Lambda sent an instance without a status")
    # A word nobody knows is neither ready nor dead: the boot deadline decides.
    status = _WORDS.get(word, InstanceStatus.BOOTING)
    kind = part(row, "instance_type")
    count = part(kind, "specs").get("gpus")
    hardware = gpu_of(kind)
    tags = _tags(row)
    return ObservedInstance(
        cloud=CLOUD,
        ref=row["id"],
        name=text(row.get("name")),
        status=status,
        status_text=word,
        gpu=hardware[0] if hardware else None,
        gpu_count=count if isinstance(count, int) else None,
        price_usd_h=price_usd_h(kind),
        storage_usd_h=Decimal(0),
        ssh=_ssh(row, tags) if status is InstanceStatus.RUNNING else None,
        # The public address takes SSH alone, unless somebody changed the account's firewall.
        set_host=text(row.get("private_ip")) if status is InstanceStatus.RUNNING else None,
        region=text(part(row, "region").get("name")),
        created_at=_created_at(tags),
    )


def _tags(row: Mapping[str, Any]) -> dict[str, str]:
    tags = row.get("tags")
    rows = [tag for tag in tags if isinstance(tag, dict)] if isinstance(tags, list) else []
    return {str(tag.get("key")): str(tag.get("value")) for tag in rows}


def _ssh(row: Mapping[str, Any], tags: Mapping[str, str]) -> SshEndpoint | None:
    host, port = row.get("ip"), tags.get(PORT_TAG, "")
    if not isinstance(host, str) or not host.strip():
        return None
    moved = int(port) if re.fullmatch(r"[0-9]{1,5}", port) else SSH_PORT
    return SshEndpoint(host.strip(), moved if 0 < moved < 65536 else SSH_PORT, USER)


def _created_at(tags: Mapping[str, str]) -> datetime | None:
    try:
        return datetime.strptime(tags.get(CREATED_TAG, ""), CREATED_FORM).replace(tzinfo=UTC)
    except ValueError:
        return None
