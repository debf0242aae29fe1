"""Which offers will do: disk, spot, price, clouds and places, reliability, versions, availability, one offer alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Annotated

from pydantic import Field, StrictBool

from bot.rules.jobs.facet import Detail, Fields, JobFacet, JobFacts, Key, NumberOrText, Text, Word, sets
from bot.rules.jobs.words import dollars, dollars_per_hour, yes_or_no
from bot.rules.policy import job_bounds
from bot.rules.policy.job_bounds import BoundsVerdict
from bot.rules.policy.policy import Policy
from bot.rules.values.bad_word import BadWord, near, show
from bot.rules.values.phrases import rate, usd
from bot.rules.values.reply_code import ReplyCode
from providers import cloud_names
from providers.cloud_names import machines_of


class SpotPolicy(StrEnum):
    """Whether an offer may be interrupted."""

    NO = "no"
    YES = "yes"
    ANY = "any"


_ALIASES: Mapping[str, str] = {
    "vast.ai": "vast",
    "vastai": "vast",
    "runpod.io": "runpod",
    "lambdalabs": "lambda",
    "lambda-labs": "lambda",
}
SPOT_WORDS: Mapping[str, SpotPolicy] = {
    **dict.fromkeys(("no", "false", "off", "on-demand", "ondemand"), SpotPolicy.NO),
    **dict.fromkeys(("yes", "true", "on", "spot", "interruptible"), SpotPolicy.YES),
    **dict.fromkeys(("any", "either", "both"), SpotPolicy.ANY),
}
_SPOT_TEXT = {SpotPolicy.NO: "on-demand only", SpotPolicy.YES: "spot only", SpotPolicy.ANY: "spot or on-demand"}
LARGEST_DISK_GB = 100_000
REGION = r"[\w .-]{1,40}"
#: Clouds and regions that the card names.
_MOST_NAMED = 6


@dataclass(frozen=True, kw_only=True)
class LimitFields:
    """What an offer must have."""

    disk_gb: int = 50
    #: Clouds; empty means all.
    candidates: tuple[str, ...] = ()
    #: A cloud is used only where those before it have no offer that fits; otherwise the cheapest of them is used.
    clouds_in_order: bool = False
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
    offer_id: str | None = None


def cloud_words() -> dict[str, str]:
    """Map what people type for each cloud to its name."""
    return {**{cloud: cloud for cloud in cloud_names.names()}, **_ALIASES}


def read_disk(text: str, _policy: Policy) -> Fields:
    """Read `100`, `100GB` or `1TB`, at least."""
    found = re.fullmatch(r"(\d{1,9})\s*(gb?|tb?)?\+?", text.lower())
    size = int(found[1]) * (1000 if (found[2] or "").startswith("t") else 1) if found else 0
    if not 0 < size <= LARGEST_DISK_GB:
        raise BadWord(f"{show(text)} is not a disk size; write 100GB or 1TB.")
    return {"disk_gb": size}


def read_spot(text: str, _policy: Policy) -> Fields:
    """Read `no` (the default), `yes` or `any`."""
    found = SPOT_WORDS.get(text.lower())
    if found is None:
        raise BadWord(
            f"{show(text)} does not answer spot; write spot=no, spot=yes or spot=any.{near(text, SPOT_WORDS)}"
        )
    return {"spot": found}


def read_clouds(text: str, _policy: Policy) -> Fields:
    """Read `vast,runpod`; the order breaks ties."""
    clouds: list[str] = []
    for part in text.lower().split(","):
        cloud = cloud_words().get(part.strip())
        if cloud is None:
            there = ", ".join(cloud_names.names())
            raise BadWord(f"{show(part)} is not a cloud; there are {there}.{near(part, cloud_words())}")
        clouds += [cloud] if cloud not in clouds else []
    return {"candidates": tuple(clouds)}


def read_regions(text: str, _policy: Policy) -> Fields:
    """Read `US`, `EU,CA` or a cloud's own name of a region."""
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if not re.fullmatch(REGION, part):
            raise BadWord(f"{show(part)} is not a region; write US, EU or a name that the cloud shows.")
    return {"regions": tuple(parts)}


def _read_reliability(text: str, _policy: Policy) -> Fields:
    """Read `0.98` or `98%`."""
    found = re.fullmatch(r"(\d{1,3}(?:\.\d{1,6})?)(%?)", text)
    share = Decimal(found[1]) / (100 if found[2] else 1) if found else Decimal(-1)
    if wrong := job_bounds.reliability(share, show(text)):
        raise BadWord(wrong.sentence)
    return {"min_reliability": share}


def _read_total(text: str, _policy: Policy) -> Fields:
    """Read `160`, `160GB`: the memory of all GPUs together, at least."""
    found = re.fullmatch(r"(\d{1,5})(?:gb|g)?\+?", text.lower().replace(" ", ""))
    if found is None or not int(found[1]):
        raise BadWord(f"{show(text)} is not a size; write total=160GB for all GPUs together.")
    return {"memory_gb_total_min": Decimal(found[1])}


def _version(field: str, sample: str) -> Callable[[str, Policy], Fields]:
    """Make a reader for a version such as 12.4; `sm_89` is 8.9."""

    def read(text: str, _policy: Policy) -> Fields:
        short = re.fullmatch(r"sm_?(\d{1,2})(\d)", text.lower())
        version = f"{short[1]}.{short[2]}" if short else text.removesuffix("+")
        if not re.fullmatch(r"\d{1,2}(?:\.\d{1,2})?", version):
            raise BadWord(f"{show(text)} is not a version; write {sample}.")
        return {field: Decimal(version)}

    return read


def _read_available(text: str, _policy: Policy) -> Fields:
    """Read `24h`, `3d`: for how long the cloud must expect the offer to be there."""
    bare = text.lower().replace(" ", "")
    found = re.fullmatch(r"(\d{1,4}(?:\.\d{1,2})?)(days?|d|hours?|hrs?|h)?", bare)
    if found is None or not Decimal(found[1]):
        raise BadWord(f"{show(text)} is not a time; write available=24h or available=3d.")
    hours = Decimal(found[1]) * (24 if (found[2] or "h").startswith("d") else 1)
    return {"min_available_s": int(hours * 3600)}


def _read_offer(text: str, _policy: Policy) -> Fields:
    """Read one offer of an inventory answer, by its id."""
    cloud, _, key = text.partition(":")
    if cloud.lower() not in cloud_names.names() or not re.fullmatch(r"[^\s`]{1,200}", key):
        raise BadWord(f"{show(text)} is not the id of an offer; write it as an inventory shows it, such as vast:123.")
    return {"offer_id": f"{cloud.lower()}:{key}"}


class CandidatesOrder(StrEnum):
    """Which of the clouds in `candidates` is used: the first one that has an offer, or the cheapest."""

    LISTED = "listed"
    CHEAPEST = "cheapest"


def cloud_of_offer(offer_id: str | None) -> str:
    """Return the cloud of the one offer that is asked for by its id; empty where none is."""
    return (offer_id or "").partition(":")[0]


def _check(job: LimitFields, facts: JobFacts) -> BoundsVerdict | None:
    unknown = [name for name in job.candidates if name not in facts.clouds]
    if job.candidates and len(unknown) == len(job.candidates):
        said = f"None of {', '.join(unknown)} is set up here. Use {', '.join(facts.clouds)}."
        return BoundsVerdict(ReplyCode.UNKNOWN_CLOUD, said)
    for amount_usd in (job.budget_cap_usd, job.max_price_usd_h):
        if amount_usd is not None and (wrong := job_bounds.money(amount_usd)):
            return wrong
    if job.min_reliability is not None and (wrong := job_bounds.reliability(job.min_reliability)):
        return wrong
    if (cloud := cloud_of_offer(job.offer_id)) and cloud not in (job.candidates or (cloud,)):
        said = f"{job.offer_id} is not at {', '.join(job.candidates)}. Name its own cloud."
        return BoundsVerdict(ReplyCode.OFFER_ELSEWHERE, said)
    return None


def _details(job: LimitFields) -> Iterator[Detail]:
    yield Detail(f"disk {job.disk_gb} GB")
    yield Detail(_SPOT_TEXT[job.spot])
    if job.budget_cap_usd is not None:
        yield Detail("at most", f"{usd(job.budget_cap_usd)} in all")
    if job.max_price_usd_h is not None:
        yield Detail("at most", rate(job.max_price_usd_h))
    if job.candidates:
        named = ", ".join(machines_of(name)[:40] for name in job.candidates[:_MOST_NAMED])
        yield Detail("clouds", f"{named}{' in this order' if job.clouds_in_order else ''}", 300)
    if job.regions:
        yield Detail("regions", ", ".join(job.regions[:_MOST_NAMED]), 300)
    if job.min_reliability is not None:
        yield Detail("reliability", f"{_short(job.min_reliability * 100)}% or more")
    if job.verified_only:
        yield Detail("verified machines only")
    if job.memory_gb_total_min is not None:
        yield Detail(f"{_short(job.memory_gb_total_min)} GB or more in all")
    if job.min_cuda is not None:
        yield Detail(f"CUDA {_short(job.min_cuda)} or newer")
    if job.min_capability is not None:
        yield Detail(f"compute capability {_short(job.min_capability)} or more")
    if job.min_available_s is not None:
        yield Detail(f"there for {_short(Decimal(job.min_available_s) / 3600)} h or more")
    if job.offer_id:
        yield Detail("only offer", job.offer_id)


def _short(number: Decimal) -> str:
    return f"{number.normalize():f}"


def _narrowing(
    key: str, value: str, doc: str, example: str, read: Callable[[str, Policy], Fields], *aliases: str
) -> Word:
    return Word(key, value, doc, example, read, aliases, narrows=True)


LIMITS = JobFacet(
    fields=LimitFields,
    are_facts=True,
    check=_check,
    words=(
        Word(
            "max",
            "MONEY",
            "The most it may cost in all.",
            "max=$50",
            sets("budget_cap_usd", dollars),
            ("budget", "cap", "limit"),
        ),
        Word(
            "price",
            "MONEY",
            "The most per hour.",
            "price=$2.50",
            sets("max_price_usd_h", dollars_per_hour),
            ("max-price", "max_price"),
        ),
        Word("clouds", "CLOUD[,CLOUD]", "Only these clouds.", "clouds=vast,runpod", read_clouds, ("cloud", "provider")),
        Word("spot", "no, yes or any", "Whether it may be interrupted; no unless asked.", "spot=no", read_spot),
        Word("disk", "SIZE", "Disk in GB.", "disk=100", read_disk, ("storage",)),
        _narrowing(
            "total", "SIZE", "The least memory of all GPUs together.", "total=160GB", _read_total, "total-memory"
        ),
        _narrowing(
            "region", "PLACE[,PLACE]", "Only in these regions or countries.", "region=US", read_regions, "regions"
        ),
        _narrowing("reliability", "SHARE", "The least reliability.", "reliability=98%", _read_reliability),
        _narrowing(
            "verified",
            "yes or no",
            "Only machines that their cloud has verified.",
            "verified=yes",
            sets("verified_only", lambda text: yes_or_no(text, "verified")),
        ),
        _narrowing(
            "cuda", "VERSION", "The least CUDA that the driver runs.", "cuda=12.4", _version("min_cuda", "cuda=12.4")
        ),
        _narrowing(
            "capability",
            "VERSION",
            "The least CUDA compute capability.",
            "capability=8.9",
            _version("min_capability", "capability=8.9 or capability=sm_89"),
            "compute",
            "sm",
        ),
        _narrowing(
            "available",
            "TIME",
            "For how long the cloud expects the offer to be there.",
            "available=24h",
            _read_available,
            "availability",
        ),
        Word("offer", "ID", "One offer of an inventory answer.", "offer=vast:123", _read_offer),
    ),
    keys=(
        Key(
            "candidates",
            Annotated[list[Text], Field(max_length=20)],
            "Only these clouds, the first one that has an offer: each is used where those before it have none.",
            [],
            [["vast", "runpod"]],
            word="clouds",
        ),
        Key(
            "candidates_order",
            CandidatesOrder,
            "listed: `candidates` in their order; cheapest: the cheapest of them.",
            CandidatesOrder.LISTED,
            word="",
        ),
        Key("regions", Annotated[list[Text], Field(max_length=20)], "Regions or countries.", []),
        Key("spot", StrictBool | Text | None, "no (the default), yes or any."),
        Key("budget", NumberOrText | None, "The most that it may cost in all.", examples=["$50"]),
        Key("max_price", NumberOrText | None, "The most per hour.", examples=["$2.50"]),
        Key("reliability", NumberOrText | None, "The least reliability: 0.98 or 98%."),
        Key("total_memory", NumberOrText | None, "The least memory of all GPUs together: 160GB."),
        Key("verified", StrictBool | Text | None, "yes: only machines that their cloud has verified."),
        Key("cuda", NumberOrText | None, "The least CUDA that the driver runs: 12.4."),
        Key("capability", NumberOrText | None, "The least CUDA compute capability: 8.9 or sm_89."),
        Key("available", NumberOrText | None, "For how long the cloud must expect the offer to be there: 24h, 3d."),
        Key("offer", Text | None, "One offer of an inventory answer.", examples=["vast:123"]),
    ),
    details=_details,
)
