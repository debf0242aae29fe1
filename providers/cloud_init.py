"""What a virtual machine does at its first boot, for the clouds that take cloud-init.

An `image` with a slash or a colon is a container image. Such clouds boot virtual machines, so it is pulled in the
background and named by IMAGE to the start script, which runs on the machine itself as root.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import Any

from providers.contract import InstanceSpec
from providers.errors import InvalidSpec

FOLDER = "/opt/gpu-shopper"
_PUBLIC_KEY = re.compile(r"\s*((?:ssh|ecdsa|sk)-[a-z0-9@.-]+)\s+([A-Za-z0-9+/]+=*)(?:\s|\Z)", re.ASCII)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def key_material(cloud: str, public_key: str) -> str:
    """Type and key of an OpenSSH public key, without its comment. `InvalidSpec` when it is not one."""
    found = _PUBLIC_KEY.match(public_key)
    if found is None or len(public_key) > 4096:
        raise InvalidSpec(cloud, "that is not an SSH public key; one looks like ssh-ed25519 AAAAC3Nz… name")
    return f"{found[1]} {found[2]}"


def files(cloud: str, spec: InstanceSpec, container: str) -> list[dict[str, Any]]:
    """The variables, with IMAGE for a container, and the start script, as files of the machine.

    Raises `InvalidSpec` for a variable that no shell can hold.
    """
    for name in spec.env:
        if not _ENV_NAME.fullmatch(name):
            raise InvalidSpec(cloud, f"{name[:40]!r} is not the name of a variable; use letters, digits and _")
    variables = {**spec.env, **({"IMAGE": container} if container else {})}
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    return [
        {"path": f"{FOLDER}/env", "permissions": "0600", "content": exports},
        {"path": f"{FOLDER}/start", "permissions": "0700", "content": spec.onstart},
    ]


def background(command: str, log: str) -> str:
    """A command that continues after the boot, with what it prints in a file."""
    return f"nohup {command} >{FOLDER}/{log}.log 2>&1 &"


def start(spec: InstanceSpec) -> list[str]:
    """The command that runs the start script with the variables; none without a script."""
    return [f". {FOLDER}/env && " + background(f"bash {FOLDER}/start", "start")] if spec.onstart else []


def authorized_keys(home: str, keys: Iterable[str]) -> str:
    """Commands that let these public keys log in to the account whose folder is `home`."""
    lines = " ".join(shlex.quote(key) for key in keys)
    return (
        f"mkdir -p {home}/.ssh && chmod 700 {home}/.ssh && "
        f"printf '%s\\n' {lines} >> {home}/.ssh/authorized_keys && chmod 600 {home}/.ssh/authorized_keys"
    )
