"""Read the software stacks: their packages, the GPUs and drivers that they run with, and their locks."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bot.rules.stacks.drivers import LEAST_DRIVER, least_release

_FOLDER = Path(__file__).parent
#: The Python versions that the locks are for, the first and the last.
PYTHONS = ((3, 10), (3, 13))
#: The processor that the wheels are built for, as `uname -m` names it.
MACHINE = "x86_64"
#: GPUs whose hosts have another processor: NVIDIA's Grace, which is an ARM one.
OTHER_MACHINE = frozenset({"GB200", "GB300", "GH200"})


@dataclass(frozen=True, slots=True)
class Stack:
    """A set of packages, pinned to exact versions. `least_cuda` is what the host's driver must support."""

    name: str
    packages: tuple[str, ...]
    as_of: str
    cuda: Decimal
    least_cuda: Decimal
    capabilities: tuple[Decimal, Decimal]
    imports: tuple[str, ...]
    disk_gb: int
    left_out: Mapping[str, str]
    #: The requirements file that pip installs: one requirement a line, with hashes.
    lock: str

    @property
    def driver(self) -> str:
        """Return the least NVIDIA driver."""
        return LEAST_DRIVER[self.least_cuda]

    @property
    def first_package(self) -> str:
        """Name what the software is asked for, and its release: `torch 2.8`."""
        (name, *_) = re.split(r"[=<>~!]", self.packages[0])
        release = ".".join(self.versions.get(name, ("",))[0].split(".")[:2])
        return f"{_WRITTEN.get(name, name)} {release}".strip()

    @property
    def versions(self) -> Mapping[str, tuple[str, ...]]:
        """Map each package of the lock to its versions; there are several where the Python version decides."""
        found: dict[str, tuple[str, ...]] = {}
        for name, version in re.findall(r"^([a-z0-9.-]+)==(\S+)", self.lock, re.MULTILINE):
            found[name] = (*found.get(name, ()), version)
        return found


#: Names that people write otherwise than the package index.
_WRITTEN = {"vllm": "vLLM"}


def _read(name: str, said: Mapping[str, Any]) -> Stack:
    least, most = map(Decimal, said["capabilities"].split("-"))
    cuda, file = Decimal(said["cuda"]), _FOLDER / f"{name}.txt"
    return Stack(
        name=name,
        packages=tuple(said["packages"]),
        as_of=said["as_of"],
        cuda=cuda,
        least_cuda=least_release(cuda, minor=said["minor"]),
        capabilities=(least, most),
        imports=tuple(said["imports"]),
        disk_gb=said["disk_gb"],
        left_out=MappingProxyType(dict(said.get("left_out", {}))),
        lock=file.read_text() if file.exists() else "",
    )


def _stacks() -> Mapping[str, Stack]:
    listed = tomllib.loads((_FOLDER / "stacks.toml").read_text())
    return MappingProxyType({name: _read(name, said) for name, said in listed.items()})


#: name → stack, in the order in which people see them.
STACKS: Mapping[str, Stack] = _stacks()
