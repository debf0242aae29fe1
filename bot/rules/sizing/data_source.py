"""Name the places where data of a run lie, and what their owners charge for each GB that leaves.

No machine that is rented here stands in one of the stores' own clouds, so what leaves them goes over the internet.
Charges are what the named pages said on the named day, in dollars. Free allowances are not counted, because other work
of the account may have used them. A volume is read in place in its own data center; elsewhere its data are copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

_ZERO = Decimal(0)
#: (up to so many GB, dollars of each of them), the last one without end.
Tiers = tuple[tuple[Decimal, Decimal], ...]
_ENDLESS = Decimal("Infinity")


def _flat(usd_gb: str) -> Tiers:
    return ((_ENDLESS, Decimal(usd_gb)),)


def _tiered(*steps: tuple[int, str], last: str) -> Tiers:
    return (*((Decimal(up_to), Decimal(usd)) for up_to, usd in steps), (_ENDLESS, Decimal(last)))


@dataclass(frozen=True, slots=True)
class DataStore:
    """Describe one kind of place. `regions` map a region to its charge; empty where one charge holds everywhere.

    A `volume` is a disk of the cloud of that name, which only machines in the same data center read in place;
    `kept` are the dollars of a GB and month there.
    """

    title: str
    tiers: Tiers
    as_of: date
    source: str
    regions: Mapping[str, Tiers]
    volume: str | None = None
    kept: Tiers = ()

    @property
    def sample(self) -> str:
        """Return the first region that it knows; empty where none is named."""
        return next(iter(self.regions), "")


@dataclass(frozen=True, slots=True)
class DataSource:
    """Name where the data of one run lie: a store, and its region where the store has several."""

    store: str
    region: str = ""

    @property
    def known(self) -> DataStore:
        """Return what is known about the store."""
        return STORES[self.store]

    @property
    def label(self) -> str:
        """Return its name for people: `S3 us-east-1`."""
        title = self.known.title
        return f"a {title} volume in {self.region}" if self.known.volume else f"{title} {self.region}".strip()

    def leaving_usd(self, size_gb: Decimal) -> Decimal:
        """Return what the store charges for so many GB that leave it."""
        return _sum(self.known.regions.get(self.region, self.known.tiers), size_gb)

    def kept_usd_month(self, size_gb: Decimal) -> Decimal:
        """Return what a volume of this size costs a month; 0 for a store that is no volume."""
        return _sum(self.known.kept, size_gb)

    def beside(self, cloud: str, region: str) -> bool:
        """Whether a machine there reads the data in place."""
        return self.known.volume == cloud and self.region == region.upper()


def _sum(tiers: Tiers, size_gb: Decimal) -> Decimal:
    total = before = _ZERO
    for up_to, usd in tiers:
        total += max(min(size_gb, up_to) - before, _ZERO) * usd
        before = up_to
    return total


_READ_2026 = date(2026, 3, 31)
_LIST = "mixpeek/awesome-object-storage @19f4577, list prices of the first quarter of 2026"
_S3 = _tiered((10_240, "0.09"), (51_200, "0.085"), (153_600, "0.07"), last="0.05")
_S3_SYDNEY = _tiered((10_240, "0.114"), (51_200, "0.098"), (153_600, "0.094"), last="0.092")
_S3_REGIONS = (
    *("us-east-1", "us-east-2", "us-west-1", "us-west-2", "ca-central-1"),
    *("eu-west-1", "eu-west-2", "eu-west-3", "eu-central-1", "eu-north-1"),
)
#: Data centers in which RunPod sells network volumes, as its API names them when it refuses another one.
_RUNPOD_CENTERS = (
    *("EU-RO-1", "EU-CZ-1", "EU-FR-1", "EU-NL-1", "EU-SE-1", "EUR-IS-1", "EUR-IS-3", "EUR-NO-1", "EUR-NO-2"),
    *("US-CA-2", "US-CO-1", "US-GA-2", "US-IL-1", "US-KS-2", "US-MO-2", "US-NC-1", "US-NC-2", "US-NE-1"),
    *("US-TX-3", "US-WA-1", "CA-MTL-3", "CA-MTL-4", "AP-IN-2", "AP-JP-1"),
)

STORES: Mapping[str, DataStore] = {
    "s3": DataStore(
        "S3",
        _S3,
        _READ_2026,
        f"https://aws.amazon.com/s3/pricing/ as in {_LIST}; tiers as in Mixpeek's and SkyPilot's tables, Sydney as in "
        "https://chengqing.dev/en/2020/01/23/aws-data-transfer/",
        {**dict.fromkeys(_S3_REGIONS, _S3), "ap-southeast-2": _S3_SYDNEY},
    ),
    "gcs": DataStore(
        "Google Cloud Storage",
        _tiered((1_024, "0.12"), (10_240, "0.11"), last="0.08"),
        _READ_2026,
        f"https://cloud.google.com/storage/pricing as in {_LIST}; tiers as in skypilot-org/skypilot @0052610 "
        "sky/clouds/gcp.py, worldwide without China and Australia",
        {},
    ),
    "azure": DataStore(
        "Azure Blob Storage",
        _flat("0.087"),
        _READ_2026,
        f"https://azure.microsoft.com/en-us/pricing/details/storage/blobs/ as in {_LIST}; North America and Europe",
        {},
    ),
    "r2": DataStore("R2", _flat("0"), _READ_2026, f"https://developers.cloudflare.com/r2/pricing/ as in {_LIST}", {}),
    "b2": DataStore(
        "Backblaze B2",
        _flat("0.01"),
        _READ_2026,
        f"https://www.backblaze.com/cloud-storage/pricing as in {_LIST}; three times what is stored is free a month",
        {},
    ),
    "hub": DataStore(
        "the Hugging Face Hub",
        _flat("0"),
        date(2026, 9, 20),
        "https://huggingface.co/pricing and https://huggingface.co/docs/hub/en/billing.md name no charge for downloads",
        {},
    ),
    "runpod": DataStore(
        "RunPod",
        _flat("0"),
        date(2026, 10, 7),
        "https://docs.runpod.io/serverless/storage/s3-api and https://www.runpod.io/pricing",
        dict.fromkeys(_RUNPOD_CENTERS, _flat("0")),
        volume="runpod",
        kept=_tiered((1_000, "0.07"), last="0.05"),
    ),
}
