"""Define the portable job request: what somebody asks for, and its form in the database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from enum import StrEnum
from typing import Any

from ledger.kernel.volume_name import volume_of
from providers.gpus.constraint import GpuConstraint


class SpotPolicy(StrEnum):
    NO = "no"
    YES = "yes"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class JobRequest:
    """Describe a job to be run, portable across clouds.

    `candidates` is an ordered list of clouds; empty means all. With `clouds_in_order` a cloud is used only where those
    before it have no offer that fits; otherwise the cheapest of them is used. `work` holds the words that describe a
    run, such as `model=7B`; without them only `hours` are known. `already_hours` are those that a session has already,
    where this asks for more of them.

    `public_key`, `share` and `secrets` say what a person asks for. They are never stored with a job, so no copy of a
    job brings them along: they become rows (`ledger.queries.people`).
    """

    gpu: GpuConstraint
    hours: Decimal
    #: Machines that work as one set: all of them or none. The GPU constraint is that of each.
    nodes: int = 1
    disk_gb: int = 50
    workload: str = "training"
    candidates: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    spot: SpotPolicy = SpotPolicy.NO
    max_price_usd_h: Decimal | None = None
    budget_cap_usd: Decimal | None = None
    min_reliability: Decimal | None = None
    #: GB of all GPUs of an offer together.
    memory_gb_total_min: Decimal | None = None
    verified_only: bool = False
    min_cuda: Decimal | None = None
    min_capability: Decimal | None = None
    #: Seconds for which the cloud must expect the offer to stay available.
    min_available_s: int | None = None
    image: str | None = None
    run: str | None = None
    #: The model's profile of the policy, and what `run` gives to --config and --run-dir.
    profile: str | None = None
    config: str | None = None
    run_dir: str | None = None
    #: Commands that run instead of `run`, one on each GPU.
    queue: tuple[str, ...] = ()
    #: How often `run` is started at most, and after which exit codes once more; empty: after each but 0.
    attempts: int = 1
    retry_codes: tuple[int, ...] = ()
    #: The git repository that is fetched before `run` starts, as `bot.rules.values.repository` reads it.
    repo: str | None = None
    #: The software stack that is installed before `run` starts, as `bot.rules.stacks` names it.
    install: str | None = None
    model: str | None = None
    tokens: int | None = None
    checkpoint: str | None = None
    offer_id: str | None = None
    work: tuple[str, ...] = ()
    reason: str = ""
    #: The one SSH key for this machine; None takes the requester's registered one.
    public_key: str | None = None
    already_hours: Decimal = Decimal(0)
    #: The project that it counts for; None is the policy's own.
    label: str | None = None
    clouds_in_order: bool = False
    #: Ports to reach from outside, as `ledger.kernel.ports` writes them: `8888/http`.
    ports: tuple[str, ...] = ()
    #: References of the people with whom the machine is shared.
    share: tuple[str, ...] = ()
    #: Names of the requester's secrets that the job gets as variables. Their values are never part of a job.
    secrets: tuple[str, ...] = ()
    #: Files that its machine gets, each as `bot.rules.values.mounts` writes it: `COPY /data s3://bucket/data`.
    mounts: tuple[str, ...] = ()
    #: Nothing that fits is no end: the request waits for such an offer.
    wait: bool = False
    #: From when on, and until when, it looks for offers; as they were written, such as `20:00`.
    start_at: str | None = None
    wait_until: str | None = None
    #: For how many seconds its machine may idle before it ends, even while its command runs; None: nobody wrote that.
    idle_s: int | None = None

    #: The network volume that a machine gets: the name that its owner gave it, and the session that it belongs to.
    volume: str | None = None
    volume_session: str | None = None

    def without_people(self) -> JobRequest:
        """Return the job as it is stored and copied: with nobody's key, share or secret."""
        if self.public_key is None and not self.share and not self.secrets:
            return self
        return replace(self, public_key=None, share=(), secrets=())

    @property
    def makes_volume(self) -> str:
        """The name of the network volume that it asks for; "" where it asks for a machine."""
        return volume_of(self.gpu.names[0]) if len(self.gpu.names) == 1 else ""

    @property
    def may_wait(self) -> bool:
        """Whether the request waits for an offer, or for its start."""
        return self.wait or self.start_at is not None

    def to_json(self) -> dict[str, Any]:
        """Write the request as plain JSON types; decimals become strings so that nothing passes through a float."""
        return {k: _plain(v) for k, v in asdict(self).items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> JobRequest:
        """Read a request from its JSON. Unknown keys are ignored, so that older code reads newer rows."""
        return cls(**{**_known(cls, data), "gpu": GpuConstraint(**_known(GpuConstraint, data["gpu"]))})


#: How a value is read that JSON has in another type; fields that are not named here are read as they are.
_READ: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(
        ("names", "candidates", "regions", "work", "ports", "share", "secrets", "retry_codes", "queue", "mounts"), tuple
    ),
    **dict.fromkeys(("hours", "already_hours", "memory_gb_min", "memory_gb_max", "memory_gb_total_min"), Decimal),
    **dict.fromkeys(("max_price_usd_h", "budget_cap_usd", "min_reliability", "min_cuda", "min_capability"), Decimal),
    "cuda_min": Decimal,
    "spot": SpotPolicy,
}


def _known(kind: type[GpuConstraint | JobRequest], data: Mapping[str, Any]) -> dict[str, Any]:
    """Read the fields of `kind` from `data`; a field that is not there keeps its default."""
    return {
        name: _READ[name](value) if name in _READ and value is not None else value
        for name, value in data.items()
        if name in kind.__dataclass_fields__
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return str(value) if isinstance(value, StrEnum) else value
