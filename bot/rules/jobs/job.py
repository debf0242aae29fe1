"""Define the job request: what somebody asks for, portable across clouds, and its form as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from bot.rules.jobs.facets.attempts import AttemptFields
from bot.rules.jobs.facets.checkpoint import CheckpointFields
from bot.rules.jobs.facets.gpus import GpuFields
from bot.rules.jobs.facets.idle import IdleFields
from bot.rules.jobs.facets.image import ImageFields
from bot.rules.jobs.facets.install import InstallFields
from bot.rules.jobs.facets.label import LabelFields
from bot.rules.jobs.facets.limits import LimitFields
from bot.rules.jobs.facets.mounts import MountFields
from bot.rules.jobs.facets.people import PeopleFields
from bot.rules.jobs.facets.ports import PortFields
from bot.rules.jobs.facets.profile import ProfileFields
from bot.rules.jobs.facets.queue import QueueFields
from bot.rules.jobs.facets.repository import RepositoryFields
from bot.rules.jobs.facets.run import RunFields
from bot.rules.jobs.facets.volume import VolumeFields
from bot.rules.jobs.facets.when import WhenFields
from bot.rules.jobs.facets.work import WorkFields
from ledger.kernel.volume_name import volume_of
from providers.gpus.constraint import GpuConstraint


@dataclass(frozen=True)
class JobRequest(
    LabelFields,
    VolumeFields,
    CheckpointFields,
    IdleFields,
    AttemptFields,
    ProfileFields,
    QueueFields,
    RunFields,
    MountFields,
    RepositoryFields,
    InstallFields,
    PeopleFields,
    PortFields,
    ImageFields,
    WorkFields,
    LimitFields,
    WhenFields,
    GpuFields,
):
    """Describe a job to be run. Each of its facets has its fields in a file of its own."""

    def without_people(self) -> JobRequest:
        """Return the job as it is stored and copied: with nobody's key, share or secret."""
        if self.public_key is None and not self.share and not self.secrets:
            return self
        return replace(self, public_key=None, share=(), secrets=())

    @property
    def makes_volume(self) -> str:
        """The name of the network volume that it asks for; "" where it asks for a machine."""
        return volume_of(self.gpu.names[0]) if len(self.gpu.names) == 1 else ""

    def counted(self, hours: Decimal) -> Decimal:
        """Return the hours that the cap counts: none of a network volume, which is meant to stay for weeks."""
        return Decimal(0) if self.makes_volume else hours

    @property
    def has_command(self) -> bool:
        """Whether somebody handed over a command, so that there is a job with a state."""
        return self.run is not None or bool(self.queue)

    def to_json(self) -> dict[str, Any]:
        """Write the request as plain JSON types; decimals become strings so that nothing passes through a float."""
        return {k: _plain(v) for k, v in asdict(self).items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> JobRequest:
        """Read a request from its JSON. Unknown keys are ignored, so that older code reads newer rows."""
        gpu = GpuConstraint(**_read(_GPU_READERS, data["gpu"]))
        return cls(**{**_read(_READERS, data), "gpu": gpu})


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return str(value) if isinstance(value, StrEnum) else value


def _reader(hint: Any) -> Callable[[Any], Any] | None:
    """Return what makes a value of this type from JSON; None where JSON has it as it is."""
    kinds = [kind for kind in get_args(hint) if kind is not NoneType] if get_origin(hint) is UnionType else [hint]
    kind = get_origin(kinds[0]) or kinds[0]
    needs_reading = kind in (tuple, Decimal) or (isinstance(kind, type) and issubclass(kind, StrEnum))
    return kind if needs_reading else None


def _readers(kind: type) -> dict[str, Callable[[Any], Any] | None]:
    return {name: _reader(hint) for name, hint in get_type_hints(kind).items()}


_READERS, _GPU_READERS = _readers(JobRequest), _readers(GpuConstraint)


def _read(readers: Mapping[str, Callable[[Any], Any] | None], data: Mapping[str, Any]) -> dict[str, Any]:
    """Read the fields that there are; a field that is not there keeps its default."""
    return {
        name: read(value) if value is not None and (read := readers[name]) is not None else value
        for name, value in data.items()
        if name in readers
    }
