"""The names of the clouds, for code that may not import an adapter: as people type them, and as sentences write them.

The registry adds the name of each of its lines, so a new cloud needs a line here only to be written otherwise.
"""

from __future__ import annotations

#: The name of each cloud → how the cloud writes it itself, in the order in which clouds are queried and shown.
_TITLES = {"vast": "Vast", "runpod": "RunPod", "lambda": "Lambda", "tensordock": "TensorDock", "kaggle": "Kaggle"}


def names() -> tuple[str, ...]:
    """Every cloud that this program knows, in the order in which they are queried and shown."""
    return tuple(_TITLES)


#: What the name of a cloud's volumes ends with: they are listed, created and deleted by calls of their own.
_VOLUMES = "-volumes"


def volumes_of(cloud: str) -> str:
    """The name under which the network volumes of a cloud are kept: `runpod-volumes`."""
    return f"{machines_of(cloud)}{_VOLUMES}"


def machines_of(name: str) -> str:
    """The cloud whose machines or volumes are kept under this name."""
    return name.removesuffix(_VOLUMES)


def cloud_title(name: str) -> str:
    """The name of the cloud of these machines or volumes, as the cloud writes it itself: `RunPod`."""
    cloud = machines_of(name)
    return _TITLES.get(cloud, cloud)


def add(name: str) -> None:
    _TITLES.setdefault(name, name)
