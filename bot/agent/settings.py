"""Read what GPU Shopper and the cloud put into the environment of a machine."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bot.agent.deadline import Signed
from bot.wire.variables import FIRST_MESSAGE, FIRST_SIGNATURE, KEY, TOKEN, URL

#: Where the cloud's API is, when it is not the cloud's own address: for tests and sandboxes.
CLOUD_URL = "GPU_SHOPPER_CLOUD_URL"
#: The port of the agent's API in place of the one that the service names: for several machines on one computer.
API_PORT = "GPU_SHOPPER_API_PORT"
_TOKEN_SHAPE = re.compile(r"gpun_([0-9a-hjkmnp-tv-z]{16})_[A-Za-z0-9_-]{43}", re.ASCII)
INIT_ENVIRONMENT = Path("/proc/1/environ")


class NotEnrolledError(Exception):
    """The environment does not have what a check-in needs; the text says which variable and what it should be."""


@dataclass(frozen=True)
class MachineSettings:
    """Where to report and how to prove who it is. `instance` is the machine's own id at GPU Shopper (`ins_…`)."""

    url: str
    boot_token: str
    public_key: bytes
    instance: str
    environment: Mapping[str, str]


def read(environment: Mapping[str, str]) -> MachineSettings:
    """Read the settings. Raises NotEnrolledError with a sentence."""
    missing = [name for name in (URL, TOKEN, KEY) if not environment.get(name)]
    if missing:
        raise NotEnrolledError(f"{', '.join(missing)} is not set, so this machine reports to nobody.")
    shape = _TOKEN_SHAPE.fullmatch(environment[TOKEN])
    if shape is None:
        raise NotEnrolledError(
            f"{TOKEN} is not a boot token; one looks like gpun_, 16 characters, _ and 43 characters."
        )
    try:
        key = base64.b64decode(environment[KEY], validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != 32:
        raise NotEnrolledError(f"{KEY} is not an ed25519 public key; one is 32 bytes in base64.")
    return MachineSettings(environment[URL], environment[TOKEN], key, f"ins_{shape[1]}", environment)


def first_deadline(environment: Mapping[str, str]) -> Signed:
    """Return the approved end as it was at the create; with an empty message where there is none."""
    try:
        message = base64.b64decode(environment.get(FIRST_MESSAGE, ""), validate=True).decode()
    except ValueError:
        message = "?"  # It is there, and no signature fits it.
    return Signed(message, environment.get(FIRST_SIGNATURE, ""), float("inf"))


def environment_of_machine() -> dict[str, str]:
    """Return this process's variables on top of those of the machine's first process.

    A login does not inherit what a cloud gives to a container's first process.
    """
    try:
        words = INIT_ENVIRONMENT.read_bytes().split(b"\0")
    except OSError:
        words = []
    pairs = (word.decode(errors="replace").partition("=") for word in words)
    return {name: value for name, _, value in pairs if name} | dict(os.environ)
