"""What differs between clouds, as data: what each can do, how it bills and how often it may be called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from providers.rate_limits import Pace

#: Seconds after which a boot is given up where neither the cloud nor the setting says otherwise.
BOOT_DEADLINE_S = 900


class BillingStart(StrEnum):
    """From which moment the GPU is billed: the create call, or the container running."""

    CREATE = "create"
    RUNNING = "running"


class BillGranularity(StrEnum):
    """How finely a bill's lines are cut: their times are exact, or whole hours, UTC days or UTC months.

    The line of a day or month does not show how far it has come.
    """

    INSTANT = "instant"
    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


class PriceSource(StrEnum):
    """What an offer was read from."""

    #: The account, with its key.
    ACCOUNT = "account"
    #: The listing that a cloud shows to anybody: offers of now, read without a key.
    PUBLIC = "public"
    #: Prices that a cloud published, as somebody read them on a day: they say nothing about what is free.
    LIST_PRICE = "list_price"


class PortAccess(StrEnum):
    """How ports beside SSH are reached: at a public address that the cloud shows, by an SSH tunnel, or not at all."""

    PUBLIC = "public"
    TUNNEL = "tunnel"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class BillingRule:
    """How the cloud counts time: rounded up to `quantum_s`, at least `minimum_s`, from `starts`."""

    quantum_s: int = 1
    minimum_s: int = 0
    starts: BillingStart = BillingStart.RUNNING
    storage_while_stopped: bool = True
    #: True where a stopped instance keeps its GPU reserved and pays for it: only the end of the instance saves money.
    gpu_while_stopped: bool = False
    #: True where an instance that failed, or lost contact, is billed on until it is ended.
    gpu_while_broken: bool = False
    #: False where the disk costs nothing while its host is out of contact.
    storage_while_offline: bool = True


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What differs between clouds, as data. Code outside the adapter asks these and never the cloud's name."""

    stop: bool
    spot: bool
    labels: bool
    balance: bool
    charges: bool
    logs: bool
    #: Whether a stop keeps what is on the machine's own disk, as section 2 of its profile has it.
    stop_keeps_disk: bool = True
    #: Whether an instance can be restarted in place; where it cannot, `restart` raises `Unsupported`.
    restart: bool = True
    #: Whether a call ends what runs; where none does, `terminate` raises `Unsupported` for it, and only its own end or
    #: the timeout that it was made with ends it.
    terminate: bool = True
    ssh: bool = True
    #: Whether a create opens the ports that are asked for.
    ports: PortAccess = PortAccess.TUNNEL
    #: False where what runs has one image of the cloud's own, so that none can be asked for.
    images: bool = True
    #: A create's `onstart` takes the place of the command that its image starts with, so that an image which a person
    #: chose for what it runs is given none.
    onstart_is_command: bool = False
    #: A machine gets a key that may end it and nothing else. Its agent uses that if nobody else ended it.
    ends_itself: bool = False
    #: The page on which people see an instance and what it left: parts of its id, split at `/`, fill the places.
    page_url: str = ""
    #: Where its credit is paid; "" where it has none, or nobody knows.
    pay_page: str = ""
    #: Whether root finds /dev/fuse on its machines: virtual machines have it, rented containers do not.
    fuse: bool = False
    #: A create hands over one program (`onstart`) with a timeout, and its end is the end of the instance.
    batch: bool = False
    #: Why several of its machines can't work as one set, as the end of a sentence; "" where they can.
    single_node: str = "its machines have no network between them"
    #: Longest run of a batch cloud in seconds: one whose own timeout is not known is over after it.
    run_max_s: int = 0
    #: What `charges` says is worked out, from times in the cloud's own log: they are believed, and no amount is.
    charges_derived: bool = False
    #: What the times of the lines of `charges` are cut to.
    bill_granularity: BillGranularity = BillGranularity.INSTANT
    #: Nothing is paid; an offer's `available_for_s` is what is left of the free hours.
    free: bool = False
    #: The call that ends billing for good; `stop` alone never does where storage is billed.
    meter_stop_verb: str = "terminate"
    billing: BillingRule = field(default_factory=BillingRule)
    #: Seconds that the adapter waits for the whole answer to a create; without it the outcome is unknown.
    create_timeout_s: float = 90.0
    #: Longest time between a create and its first appearance in `list()` that was observed or documented.
    visibility_lag_s: int = 30
    #: Typical seconds from create to reachable, and the time after which we give up; None: the setting's.
    boot_expected_s: int = 120
    boot_deadline_s: int | None = None
    #: Longest instance name and the characters allowed in it besides letters and digits.
    name_max: int = 191
    name_extra_chars: str = "-_"
    #: Whether the first answer to a search is all that fits; where it may not be, the ticker copies the whole market.
    market_in_one: bool = True
    #: Whether each offer's own CUDA says enough; where not, what is in stock depends on the CUDA that is asked for.
    cuda_in_offers: bool = True
    #: How often may be called, per group of endpoints of the adapter.
    rate_limits: Mapping[str, Pace] = field(default_factory=dict)
    #: What its offers are read from now: the account, or what a cloud shows to anybody while no key is set.
    source: PriceSource = PriceSource.ACCOUNT
    #: The setting that turns its spot offers on, while it is off; and why there are none although it is on.
    spot_setting: str = ""
    spot_gone: str = ""

    #: What it rents out are network volumes of so many GB, at least and at most, and no machines; None for machines.
    volume_gb: tuple[int, int] | None = None
    #: Where a volume is found on its machines; `{}` is its name.
    volume_path: str = ""
    #: Whether its volumes are billed by what is on them, and grow without a limit of the cloud.
    volume_grows: bool = False
    #: Whether one of its volumes can be read by its own id. Where not, such a read is the same list once more.
    volume_reads: bool = True

    def has_agent(self, *, own_image: bool) -> bool:
        """Whether a machine there starts an agent; `own_image`: the image is one that the requester chose."""
        return not self.batch and self.volume_gb is None and not (self.onstart_is_command and own_image)

    @property
    def keeps_disk(self) -> bool:
        """Whether the disk can be kept while the GPU is given back, and not paid."""
        return self.stop and self.stop_keeps_disk and not self.billing.gpu_while_stopped
