"""The provider contract. Its doc comments are binding; `tests/contract` checks every adapter against them.

An adapter is transport and translation, nothing else: no retries of a create, no decisions, no ledger.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Protocol, runtime_checkable

from ledger.kernel.grant import Grant
from ledger.kernel.ports import Port
from ledger.kernel.proof import Absence
from providers.capabilities import Capabilities, PriceSource
from providers.completeness import COMPLETE, AnswerPart, Completeness, Rest
from providers.errors import UnexpectedResponse
from providers.gpus.constraint import GpuConstraint

#: The longest id of an instance, and the longest name of a GPU, that the ledger's columns hold.
REF_MAX, GPU_MAX = 256, 48


class Stock(StrEnum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class HostRecord:
    """Count the own sessions on one host, those that failed or were slow, and the hours in which its GPUs ran."""

    sessions: int
    failed: int = 0
    slow: int = 0
    hours: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class Offer:
    """What a cloud sells now. Prices are dollars for the whole offer (all GPUs), never per GPU.

    `key` is the cloud's own name for the offer, without spaces: `f"{cloud}:{key}"` is the id that people type.
    `price_usd_h` is what an hour costs while running, storage of the asked disk included. None, zero or a negative
    number is passed on as the cloud gave it; the market excludes it and says so.
    `ticket` holds what the adapter itself needs to create from this offer; nobody else reads it.
    Unknown facts are None, never a guess.
    """

    cloud: str
    key: str
    gpu: str
    gpu_count: int
    memory_gb: Decimal
    region: str
    spot: bool
    price_usd_h: Decimal | None
    fetched_at: datetime
    gpu_usd_h: Decimal | None = None
    storage_usd_h: Decimal = Decimal(0)
    storage_stopped_usd_h: Decimal = Decimal(0)
    egress_usd_gb: Decimal = Decimal(0)
    ingress_usd_gb: Decimal = Decimal(0)
    country: str | None = None
    reliability: Decimal | None = None
    stock: Stock | None = None
    available_for_s: int | None = None
    machine_id: str | None = None
    host_id: str | None = None
    verified: bool | None = None
    datacenter: bool | None = None
    cuda_max: Decimal | None = None
    compute_capability: Decimal | None = None
    vcpus: int | None = None
    ram_gb: Decimal | None = None
    disk_gb_max: int | None = None
    download_mbps: Decimal | None = None
    upload_mbps: Decimal | None = None
    #: GB per second between two GPUs of the host and between a GPU and the host, as measured there; watts of one GPU.
    nvlink_gb_s: Decimal | None = None
    pcie_gb_s: Decimal | None = None
    power_limit_w: Decimal | None = None
    min_bid_usd_h: Decimal | None = None
    #: One sentence that people should read before they choose it, such as that few free hours are left; else "".
    warning: str = ""
    ticket: Mapping[str, str] = field(default_factory=dict)
    #: What it was read from. Only an offer that was read with the account's key is ever bought.
    source: PriceSource = PriceSource.ACCOUNT
    #: The day of a published list price; None where the price is today's.
    listed_on: date | None = None
    #: What own sessions on its host showed. A search adds it; an adapter never does.
    own: HostRecord | None = None
    #: Whether machines of it reach each other at every port, so that several can work as one set.
    linked: bool = False
    #: Machines of a set, whose prices are all in it; the GPUs are those of each. A search makes sets, an adapter never.
    nodes: int = 1

    @property
    def id(self) -> str:
        """The id that every interface shows and takes: `vast:30406190`."""
        return f"{self.cloud}:{self.key}"


@dataclass(frozen=True, slots=True)
class AttachedVolume:
    """A network volume that a machine gets: the cloud's id of it, and where it is mounted."""

    ref: str
    path: str


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """What is sent to a cloud. `name` carries our machine label at its right end and must become findable."""

    name: str
    offer: Offer
    image: str
    disk_gb: int
    public_keys: tuple[str, ...] = ()
    #: The public key by which GPU Shopper itself logs in. It is added to the people's keys, or to the account's where
    #: there are none, and never takes their place.
    login_key: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    onstart: str = ""
    #: Dollars per hour for the whole offer; set only for a spot offer.
    bid_usd_h: Decimal | None = None
    #: The least CUDA that the host's driver must support; sent where the cloud places the instance by it.
    min_cuda: Decimal | None = None
    #: Ports to open beside SSH, where the cloud opens any.
    ports: tuple[Port, ...] = ()
    #: It is one machine of a set, which reach each other.
    in_set: bool = False
    #: The volume to mount, where the cloud has volumes.
    volume: AttachedVolume | None = None
    #: What `prepare` found out for the create call, and the sign that its turn was taken; nobody else sets it.
    ready: Mapping[str, str] | None = None


class InstanceStatus(StrEnum):
    """A cloud's status words, translated. RUNNING does not mean reachable."""

    PENDING = "pending"
    BOOTING = "booting"
    RUNNING = "running"
    STOPPED = "stopped"
    ERROR = "error"
    OFFLINE = "offline"
    TERMINATED = "terminated"


@dataclass(frozen=True, slots=True)
class SshEndpoint:
    """Where a real SSH server answers (direct, not a cloud's web proxy where the two differ)."""

    host: str
    port: int
    user: str = "root"


@dataclass(frozen=True, slots=True)
class OpenPort:
    """A port of an instance, and where it is reached from outside: `203.0.113.7:40001`, or a URL."""

    number: int
    address: str


@dataclass(frozen=True, slots=True)
class ObservedInstance:
    """What the cloud says exists. `ref` is the cloud's own id; `name` is whatever name or label it carries.

    `price_usd_h` is the rate the cloud says it bills now (None when it does not say). Times are the cloud's own.
    `status_text` is the cloud's free text, hostile until escaped.
    """

    cloud: str
    ref: str
    name: str | None
    status: InstanceStatus
    status_text: str = ""
    gpu: str | None = None
    gpu_count: int | None = None
    price_usd_h: Decimal | None = None
    storage_usd_h: Decimal | None = None
    ssh: SshEndpoint | None = None
    #: Ports beside SSH's that the cloud has opened.
    ports: tuple[OpenPort, ...] = ()
    #: Where other machines of the same account reach it at every port, where the cloud says that there is such a place.
    set_host: str | None = None
    region: str | None = None
    machine_id: str | None = None
    spot: bool = False
    #: False for a stopped instance whose GPU was given back, where stopped ones otherwise keep theirs.
    holds_gpu: bool = True
    created_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    #: Of a run that is over: whether its program ended well, where the cloud tells.
    succeeded: bool | None = None

    def __post_init__(self) -> None:
        """An id that the ledger cannot hold is no answer: cut, it would name nothing, or something else."""
        if len(self.ref) > REF_MAX:
            raise UnexpectedResponse(self.cloud, f"an instance has an id of {len(self.ref)} characters")


@dataclass(frozen=True, slots=True)
class NotSeen:
    """`get` or `find` did not see it. This proves nothing: reads lag, and only a complete listing counts."""

    cloud: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Listing:
    """Everything in the account: all pages, or the adapter raised an error instead. `at` is when it was requested.

    `completeness`: a cloud that doesn't say whether more follows gave a part, which proves nothing about the rest.
    `proves_absence` is False where the cloud cannot list what runs (a batch cloud): there only a run's own final
    status or its timeout ends it, whatever is missing here.
    """

    cloud: str
    account: str
    at: datetime
    items: tuple[ObservedInstance, ...]
    proves_absence: bool = True
    completeness: Completeness = COMPLETE

    def absence(self, ref: str | None, name: str) -> Absence | None:
        """An `Absence` if neither the cloud's id nor the name (an empty one is ignored) is here; else None."""
        if not self.proves_absence or not self.completeness.is_complete:
            return None
        for item in self.items:
            if item.status is not InstanceStatus.TERMINATED and (item.ref == ref or (name and item.name == name)):
                return None
        return Absence(self.at, self.account)


@dataclass(frozen=True, slots=True)
class Charge:
    """One line of the cloud's own bill, normalised. `component` is gpu, storage, bandwidth, quota or other.

    `start` and `end` are the cloud's own, and time in between was counted in steps of `quantum_s`, at least
    `minimum_s`. Where nothing is paid, `used_s` are the seconds of the quota that were used in that time, by all
    instances of the account: `ref` is empty then.
    """

    cloud: str
    line_id: str
    ref: str
    component: str
    amount_usd: Decimal
    start: datetime
    end: datetime
    quantum_s: int = 1
    minimum_s: int = 0
    used_s: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Balance:
    """Spendable dollars, and the account's hourly limit and current spend where the cloud reports them."""

    credit_usd: Decimal
    spend_limit_usd_h: Decimal | None = None
    spend_usd_h: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class Preflight:
    """Whether this cloud can be used now. `missing` names settings; `problem` is one sentence; no secret in either.

    `code` is the code of the error that the cloud answered with, if it did.
    """

    cloud: str
    ok: bool
    missing: tuple[str, ...] = ()
    where: str = ""
    problem: str = ""
    account: str = ""
    balance: Balance | None = None
    code: str = ""


@dataclass(frozen=True, slots=True)
class Copy:
    """Everything that a cloud sold at one time, on-demand or spot, priced for a disk of `disk_gb`."""

    offers: tuple[Offer, ...]
    disk_gb: int


@runtime_checkable
class Provider(Protocol):
    """One account at one cloud."""

    name: str
    capabilities: Capabilities
    #: A fingerprint of the credential (`sha256[:12]`), stored on every row so that another account proves nothing.
    account: str

    async def offers(
        self, constraint: GpuConstraint, *, disk_gb: int, spot: bool | None, rest: Rest = None, spare: bool = False
    ) -> AnswerPart[Offer]:
        """Priced offers that the cloud's own filter returned for `constraint`, and whether these are all of them.

        `spot` True asks for interruptible offers only, False for on-demand only, None for both. An offer is rentable
        now as far as the cloud knows; every limit is checked again by the caller. `memory_gb` is nominal per GPU.

        The first answer is as quick as the cloud can be; with its `rest` the next call goes on. `spare` uses only
        turns that nobody waits for: `RateLimited` where none is free, and then nothing was sent.
        """

    def copied_rest(
        self, copy: Copy, first: AnswerPart[Offer], constraint: GpuConstraint, disk_gb: int
    ) -> tuple[Offer, ...]:
        """The offers of the rest of a `first` answer, from an earlier copy of the whole market.

        Each is priced for `disk_gb`. What the copy has and the first answer should have had, too, is gone.
        """

    async def requote(self, offer: Offer, *, disk_gb: int) -> Offer | None:
        """The same offer as it is sold now, queried as narrowly as the cloud can; None when it is gone.

        It depends on no page: an offer that a deep search found is asked for as quickly as the cheapest one.
        """

    async def prepare(self, spec: InstanceSpec, grant: Grant) -> InstanceSpec:
        """Everything before the create that may fail, wait or be repeated; returns what `create` is to send.

        It ends by waiting for the create's turn, so that the call itself waits for nothing. `RateLimited` when the
        turn is too far away; other errors are definite, but for `OutcomeUnknown`: this create was sent before.
        """

    async def create(self, spec: InstanceSpec, grant: Grant) -> ObservedInstance:
        """Send exactly one create call, on a fresh connection, never repeated by any layer below.

        A `spec` that was not prepared is prepared first.
        Returns when the cloud confirmed an instance (its id is in the answer). Raises an error whose `definite_no` is
        true when nothing was created, and `OutcomeUnknown` for everything else. An instance that the cloud says it
        made while reporting failure is returned where the answer has its id; without one it raises `OutcomeUnknown`.
        """

    async def find(self, name_suffix: str) -> tuple[ObservedInstance, ...] | NotSeen:
        """All instances whose name ends with `name_suffix` (the machine label), oldest first."""

    async def get(self, ref: str) -> ObservedInstance | NotSeen:
        """One instance by the cloud's id. An authentication error is raised, never taken for absence."""

    async def list(self) -> Listing:
        """Everything in the account, every page. Any error in any page raises: half a list proves nothing."""

    async def stop(self, ref: str) -> None:
        """Ask the cloud to stop it. Idempotent; returning does not mean done. `Unsupported` where it cannot."""

    async def start(self, ref: str) -> None:
        """Ask to start a stopped one. `NoCapacity` when the GPU was taken; no start stays queued behind it."""

    async def restart(self, ref: str) -> None:
        """Ask for an in-place restart of the container. Idempotent. `Unsupported` where the cloud has no such call."""

    async def terminate(self, ref: str) -> bool:
        """Ask to destroy it with everything billable about it. Idempotent: already gone is success, not an error.

        True when the cloud took the order; False when it says that there is no such instance (any more).
        `Unsupported` for what still runs where the capabilities have no `terminate`.
        """

    async def balance(self) -> Balance:
        """Spendable credit. `Unsupported` where the cloud has no such call."""

    async def charges(self, since: datetime, until: datetime) -> tuple[Charge, ...]:
        """The cloud's own bill for [since, until). `Unsupported` where there is none. Lines may arrive late."""

    async def preflight(self) -> Preflight:
        """Credentials present, valid, and the API reachable. Never raises for a cloud-side problem: it reports it."""

    async def close(self) -> None:
        """Release connections."""
