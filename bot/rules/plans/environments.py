"""List environments that cannot be rented here, with dated prices, so that a comparison can show them.

Prices are what the named page or table said on the named day, in dollars per hour of one GPU; they are not refreshed by
themselves, and every rendering shows the day.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from bot.rules.values.price_age import FRESH


@dataclass(frozen=True, slots=True)
class Environment:
    """Describe one environment that cannot be rented here, on one GPU.

    `price_usd_h` is None where time is not paid in dollars; `quota` says what it is instead. `note` says how a price
    that the source does not give per hour was computed.
    """

    name: str
    gpu: str
    memory_gb: int
    price_usd_h: Decimal | None
    as_of: date
    source: str
    pros: tuple[str, ...]
    cons: tuple[str, ...]
    verdict: str
    spot_usd_h: Decimal | None = None
    note: str = ""
    quota: str = ""


_SPACES_DAY = date(2026, 7, 21)
_AUTOTRAIN = "https://huggingface.co/docs/autotrain/cost: Spaces hardware, by the minute"
_COLAB = (
    "https://techcrunch.com/2022/09/29/google-colaboratory-launches-a-pay-as-you-go-option-premium-gpu-access/ and "
    "https://www.currypurin.com/entry/2022/09/30/093810"
)

_SAGEMAKER = (
    "A team's own comparison of this day, $2.82 for two hours; https://aws.amazon.com/sagemaker/pricing/ is current"
)
_AZURE = "the-full-stack/website docs/cloud-gpus @2bddc6d (MIT), NC24ads A100 v4; Azure ML adds no charge of its own"


def _space(gpu: str, memory_gb: int, price_usd_h: str) -> Environment:
    return Environment(
        "Hugging Face Spaces",
        gpu,
        memory_gb,
        Decimal(price_usd_h),
        _SPACES_DAY,
        "https://huggingface.co/docs/hub/spaces-gpus (huggingface/hub-docs @34ee0f0)",
        ("No machine to look after", "The Hub's models and datasets are close by", "Billed by the minute"),
        (
            "Made for demos: no SSH, no multi-GPU training",
            "More expensive per hour",
            "An upgraded Space costs money until paused",
        ),
        "Second choice: convenient for a short fine-tune and a demo, expensive for anything longer.",
    )


def _colab(gpu: str, memory_gb: int, price_usd_h: str, *, units: str, hours: int) -> Environment:
    return Environment(
        "Google Colab Pro+",
        gpu,
        memory_gb,
        Decimal(price_usd_h),
        date(2022, 9, 30),
        _COLAB,
        ("A notebook at once", "No machine to look after", "Keeps running in the background"),
        ("The GPU is not guaranteed", "Sessions end after a day at most", "No SSH, no API for jobs"),
        "Fine for exploring by hand; its caps rule out planned runs.",
        note=f"$49.99 for 500 compute units a month, {units} units an hour: $49.99 / 500 x {units}",
        quota=f"about {hours} {gpu.partition('-')[0]} hours a month, then more units must be bought",
    )


ENVIRONMENTS: tuple[Environment, ...] = (
    _space("A10G", 24, "1.00"),
    _space("L40S", 48, "1.80"),
    _space("A100-SXM-80GB", 80, "2.50"),
    Environment(
        "Hugging Face AutoTrain",
        "A10G",
        24,
        Decimal("1.00"),
        _SPACES_DAY,
        _AUTOTRAIN,
        ("No code", "The model stays yours", "Runs on Spaces hardware, by the minute"),
        ("Little control over the training loop", "Only the recipes it offers", "Same prices as Spaces"),
        "Not for a team with its own training code.",
    ),
    _colab("A100-SXM-40GB", 40, "1.31", units="13.08", hours=38),
    _colab("T4", 16, "0.20", units="1.96", hours=255),
    Environment(
        "AWS SageMaker",
        "A10G",
        24,
        Decimal("1.41"),
        date(2026, 1, 16),
        _SAGEMAKER,
        ("Managed jobs with managed spot and checkpoints", "Roles, networks and audit of AWS", "Scales to clusters"),
        ("About 40% above the bare instance", "Quotas must be asked for", "Much to set up for one run"),
        "For teams whose data and rules live in AWS; more than a single run needs.",
        note="ml.g5.xlarge: $2.82 / 2",
    ),
    Environment(
        "Azure ML",
        "A100-PCIE-80GB",
        80,
        Decimal("3.67"),
        date(2025, 3, 7),
        _AZURE,
        ("Managed jobs, registries and pipelines", "Identity and networks of Azure", "Low-priority machines"),
        ("Expensive per GPU hour", "Quotas must be asked for", "Much to set up for one run"),
        "Not for cost: for teams that are bound to Azure.",
        spot_usd_h=Decimal("1.47"),
    ),
    Environment(
        "Kaggle",
        "T4",
        16,
        None,
        date(2026, 11, 21),
        "The refusal of Kaggle's API at the limit: Maximum weekly GPU quota of 30.00 hours reached",
        ("Free", "Datasets and notebooks close by"),
        ("30 GPU hours a week", "A session ends after 9 to 12 hours", "No SSH, no choice of machine"),
        "A case of its own: worth trying first for what fits into its quota.",
        quota="30 GPU hours a week, no dollars",
    ),
)


def outdated(environments: Iterable[Environment], today: date) -> str:
    """Name the environments whose prices are older than 180 days; "" where none is."""
    names = sorted({one.name for one in environments if one.price_usd_h is not None and today - one.as_of > FRESH})
    if not names:
        return ""
    return f"Prices older than {FRESH.days} days, to be checked at their sources: {', '.join(names)}."
