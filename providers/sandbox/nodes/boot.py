"""Read what a create call brought to a machine: its variables, its files, its keys and the commands of its boot."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from providers.sandbox.machines import SandboxMachine

_DESTINATION = re.compile(r"-p \d+:\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class File:
    """A file of the machine. `path` is where the machine has it, `mode` its permissions."""

    path: str
    content: str
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class NodeBoot:
    """What a machine boots with.

    `commands` run one after the other in a shell, with `variables`, and what they print is written to `log`. `keys`
    are the public keys that the cloud itself puts onto the machine, and `user` is who logs in there. `kept` are the
    folders that outlive a new container, beside the whole disk of a machine that is only stopped.
    """

    machine: SandboxMachine
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: tuple[File, ...] = ()
    commands: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    log: str = "/var/log/onstart.log"
    #: Cloud-init runs what is here at every boot, and everything else at the first boot only.
    per_boot: str = ""
    #: Changes with each new container of the same machine, whose disk is wiped but for `kept`.
    container: str = ""
    kept: tuple[str, ...] = ()


def container(
    machine: SandboxMachine, command: str, variables: Mapping[str, str], keys: tuple[str, ...], **more: Any
) -> NodeBoot:
    """NodeBoot a container: its command runs at each start, with the variables that were given to it."""
    given = {name: value for name, value in variables.items() if not _DESTINATION.fullmatch(name)}
    return NodeBoot(machine, given, commands=(command,) if command else (), keys=keys, **more)


def virtual_machine(machine: SandboxMachine, cloud_init: Any, keys: tuple[str, ...]) -> NodeBoot:
    """NodeBoot a virtual machine as cloud-init does, from the document as text or as its value."""
    if isinstance(cloud_init, str):
        try:
            cloud_init = json.loads(cloud_init.partition("\n")[2] or "{}")
        except ValueError:
            cloud_init = {}
    found: Mapping[str, Any] = cloud_init if isinstance(cloud_init, Mapping) else {}
    brought = tuple(str(key) for key in found.get("ssh_authorized_keys") or ())
    return NodeBoot(
        machine,
        files=tuple(
            File(str(one["path"]), str(one.get("content", "")), int(str(one.get("permissions", "0644")), 8))
            for one in found.get("write_files") or ()
        ),
        commands=tuple(str(one) for one in found.get("runcmd") or ()),
        keys=(*keys, *brought),
        log="/var/log/cloud-init-output.log",
        per_boot="/var/lib/cloud/scripts/per-boot",
    )


def home_of(user: str) -> PurePosixPath:
    """Return the home folder of a user of the machine."""
    return PurePosixPath("/root") if user == "root" else PurePosixPath("/home") / user
