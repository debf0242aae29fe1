"""The names of the clouds, for code that may not import an adapter: the language in which people type them.

The registry adds the name of each of its lines, so a new cloud needs no line here.
"""

from __future__ import annotations

from providers.gpus.data import CLOUDS

_NAMES = list(CLOUDS)


def names() -> tuple[str, ...]:
    """Every cloud that this program knows, in the order in which they are queried and shown."""
    return tuple(_NAMES)


#: What the name of a cloud's volumes ends with: they are listed, created and deleted by calls of their own.
_VOLUMES = "-volumes"


def volumes_of(cloud: str) -> str:
    """The name under which the network volumes of a cloud are kept: `runpod-volumes`."""
    return f"{machines_of(cloud)}{_VOLUMES}"


def machines_of(name: str) -> str:
    """The cloud whose machines or volumes are kept under this name."""
    return name.removesuffix(_VOLUMES)


def add(name: str) -> None:
    if name not in _NAMES:
        _NAMES.append(name)
