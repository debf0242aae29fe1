"""List the words of a job in the `/gpu` language in one table, which the reader and the docs use."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from bot.rules.grammar.access_words import read_ports, read_secrets, read_share
from bot.rules.grammar.attempt_words import read_attempts, read_retry_codes
from bot.rules.grammar.bad_word import BadWord, near, show
from bot.rules.grammar.idle_word import read_idle
from bot.rules.grammar.install_word import read_install
from bot.rules.grammar.limit_words import read_available, read_nodes, read_reliability, read_total, read_version
from bot.rules.grammar.profile_words import read_place, read_profile
from bot.rules.grammar.queue_words import read_queue
from bot.rules.grammar.repository_word import read_repo
from bot.rules.grammar.volume_name import read_volume_name
from bot.rules.grammar.wait_words import read_moment
from bot.rules.jobs.job import SpotPolicy
from bot.rules.policy import job_bounds
from bot.rules.policy.policy import Policy
from bot.rules.pricing.hours_cap import check
from bot.rules.values.phrases import read_amount
from providers import cloud_names
from providers.gpus.table import closest, lookup

Fields = dict[str, Any]

_ALIASES: Mapping[str, str] = {
    "vast.ai": "vast",
    "vastai": "vast",
    "runpod.io": "runpod",
    "lambdalabs": "lambda",
    "lambda-labs": "lambda",
}


def cloud_words() -> dict[str, str]:
    """Map what people type for each cloud to its name."""
    return {**{cloud: cloud for cloud in cloud_names.names()}, **_ALIASES}


SPOT_WORDS: Mapping[str, SpotPolicy] = {
    **dict.fromkeys(("no", "false", "off", "on-demand", "ondemand"), SpotPolicy.NO),
    **dict.fromkeys(("yes", "true", "on", "spot", "interruptible"), SpotPolicy.YES),
    **dict.fromkeys(("any", "either", "both"), SpotPolicy.ANY),
}
_UNIT_HOURS: Mapping[str, Decimal] = {"d": Decimal(24), "h": Decimal(1), "m": Decimal(1) / 60}
TOKEN_UNITS: Mapping[str, int] = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
LARGEST_DISK_GB = 100_000

NUMBER = r"(\d{1,15}(?:\.\d{1,6})?)([kmbt]?)"
DURATION = r"-?(?:\d+(?:\.\d+)?(?:days?|d|hours?|hrs?|h|minutes?|mins?|m))+"
_DURATION = re.compile(DURATION)
_PLAIN_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_AMOUNT_AND_UNIT = re.compile(r"(\d+(?:\.\d+)?)([dhm])")
_COUNT = re.compile(r"(\d{1,9})(?:-(\d{1,9})|(\+))?")
MEMORY = r"(?:>=|<=)?\d{1,4}(?:gb|g)?(?:\+|-\d{1,4}(?:gb|g)?)?"
REGION = r"[\w .-]{1,40}"
IMAGE = r"[A-Za-z0-9][\w./:@-]{0,254}"
_AN_IMAGE = "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-devel"
_A_REPO = "https://github.com/org/project@main"


@dataclass(frozen=True, slots=True)
class Word:
    """Describe one `key=value` of the language. `read` makes fields of the value, or raises `BadWord`."""

    key: str
    value: str
    doc: str
    example: str
    read: Callable[[str, Policy], Fields]
    aliases: tuple[str, ...] = ()


def read_gpus(text: str, policy: Policy) -> Fields:
    """Read `A100-80GB`, `4090,3090`, and `4xA100` or `2-4xA100`, which sets the number too."""
    counted = re.fullmatch(r"(-?\d{1,9}(?:-\d{1,9})?)\s*x\s*(.*)", text, re.IGNORECASE)
    fields: Fields = read_count(counted[1], policy) if counted else {}
    names: list[str] = []
    for part in (counted[2] if counted else text).split(","):
        found = lookup(part)
        if not found:
            raise BadWord(unknown_gpu(part))
        names += [name for name in found if name not in names]
    return {**fields, "names": tuple(names)}


def unknown_gpu(text: str) -> str:
    """Write the sentence for a GPU that is not in the table, with the nearest names."""
    names = closest(text[:40])
    hint = f" Did you mean {' or '.join(names)}?" if names else ""
    return f"{show(text)} is not a GPU that is known here.{hint}"


def read_count(text: str, policy: Policy) -> Fields:
    """Read `4`, `2-4`, or `2+` GPUs, which are two to as many as the policy allows."""
    found = _COUNT.fullmatch(text)
    if found is None:
        raise BadWord(f"{show(text)} is not a number of GPUs; write 4 or 2-4.")
    least = int(found[1])
    most = max(least, policy.max_gpus) if found[3] else int(found[2] or least)
    if wrong := job_bounds.gpu_count(least, most, policy):
        raise BadWord(wrong.sentence)
    return {"count_min": least, "count_max": most}


def hours_of(text: str, policy: Policy) -> Decimal:
    """Read hours from `6`, `6h`, `90m`, `1h30m` or `2d`; the bounds are the policy's. Raises `BadWord`."""
    total = duration(text)
    if total is None:
        raise BadWord(f"{show(text)} is not a time; write 6h, 90m or 1h30m.")
    judged = check(total, Decimal(0), policy)
    if not judged.allowed:
        raise BadWord(judged.sentence)
    return round(total, 6)


def duration(text: str) -> Decimal | None:
    """Read a time as hours, negative ones too; None for anything else."""
    bare = text.lower().replace(" ", "")
    bare += "h" if _PLAIN_NUMBER.fullmatch(bare) else ""
    if not _DURATION.fullmatch(bare):
        return None
    units = _AMOUNT_AND_UNIT.findall(bare)
    total = sum((Decimal(number) * _UNIT_HOURS[unit] for number, unit in units), Decimal(0))
    return -total if bare.startswith("-") else total


def read_hours(text: str, policy: Policy) -> Fields:
    """Read for how long the GPUs are needed."""
    return {"hours": hours_of(text, policy)}


def _money(text: str) -> Decimal:
    below_zero = re.match(r"\s*\$?\s*-", text)
    amount = Decimal(-1) if below_zero else read_amount(text)
    if amount is None:
        raise BadWord(f"{show(text)} is not an amount of money; write $50 or 0.75.")
    if wrong := job_bounds.money(amount):
        raise BadWord(wrong.sentence)
    return amount


def one(field: str, read: Callable[[str], Any]) -> Callable[[str, Policy], Fields]:
    """Make a reader for a word that sets one field, whatever the policy says."""
    return lambda text, _policy: {field: read(text)}


def _read_below(text: str, _policy: Policy) -> Fields:
    """Read `$16/h`: wait for an offer at or below this price."""
    return {"max_price_usd_h": _price(text), "wait": True}


def _price(text: str) -> Decimal:
    return _money(re.sub(r"/h(?:our|r)?$", "", text))


def _read_retry(text: str, _policy: Policy) -> Fields:
    """Read `yes`: wait while nothing fits; `no` is as if nothing was said."""
    return {"wait": True} if yes_or_no(text, "retry") else {}


def _read_preset(text: str, policy: Policy) -> Fields:
    """Read the name of a job that the policy names."""
    if text not in policy.presets:
        there = ", ".join(policy.presets) or "none; the policy names them under presets"
        raise BadWord(f"{show(text)} is not a preset; there are {there}.{near(text, policy.presets)}")
    return {"preset": text}


_read_max = one("budget_cap_usd", _money)
_read_price = one("max_price_usd_h", _price)


def read_memory(text: str, _policy: Policy) -> Fields:
    """Read `40GB+` at least, `40GB` exactly, `40-80GB` between; per GPU."""
    bare = text.lower().replace(" ", "")
    if not re.fullmatch(MEMORY, bare):
        raise BadWord(f"{show(text)} is not a memory size; write 40GB+, 40GB or 40-80GB.")
    least, *rest = (Decimal(number) for number in re.findall(r"\d+", bare))
    most = rest[0] if rest else least
    if most < least or most == 0:
        raise BadWord(f"{show(text)} leaves nothing to choose; write 40GB+ or 40-80GB.")
    return {
        "memory_gb_min": None if bare.startswith("<=") else least,
        "memory_gb_max": None if bare.startswith(">=") or bare.endswith("+") else most,
    }


def read_disk(text: str, _policy: Policy) -> Fields:
    """Read `100`, `100GB` or `1TB`, at least."""
    found = re.fullmatch(r"(\d{1,9})\s*(gb?|tb?)?\+?", text.lower())
    size = int(found[1]) * (1000 if (found[2] or "").startswith("t") else 1) if found else 0
    if not 0 < size <= LARGEST_DISK_GB:
        raise BadWord(f"{show(text)} is not a disk size; write 100GB or 1TB.")
    return {"disk_gb": size}


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


def read_spot(text: str, _policy: Policy) -> Fields:
    """Read `no` (the default), `yes` or `any`."""
    found = SPOT_WORDS.get(text.lower())
    if found is None:
        raise BadWord(
            f"{show(text)} does not answer spot; write spot=no, spot=yes or spot=any.{near(text, SPOT_WORDS)}"
        )
    return {"spot": found}


def read_offer(text: str, _policy: Policy) -> Fields:
    """Read one offer of an inventory answer, by its id."""
    cloud, _, key = text.partition(":")
    if cloud.lower() not in cloud_names.names() or not re.fullmatch(r"[^\s`]{1,200}", key):
        raise BadWord(f"{show(text)} is not the id of an offer; write it as an inventory shows it, such as vast:123.")
    return {"offer_id": f"{cloud.lower()}:{key}"}


def yes_or_no(text: str, key: str) -> bool:
    """Read `key=yes` or `key=no`. Raises `BadWord`."""
    answers = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}
    if text.lower() not in answers:
        raise BadWord(f"{show(text)} does not answer {key}; write {key}=yes or {key}=no.{near(text, answers)}")
    return answers[text.lower()]


_read_verified = one("verified_only", lambda text: yes_or_no(text, "verified"))


def whole(text: str) -> int | None:
    """Read a whole number, with `k`, `M`, `B` or `T`; None for anything else."""
    found = re.fullmatch(NUMBER, text.lower())
    return int(Decimal(found[1]) * TOKEN_UNITS[found[2]]) if found else None


def read_tokens(text: str, _policy: Policy) -> Fields:
    """Read `300M`, `3B`: how many tokens the run trains on."""
    if not 0 < (amount := whole(text) or 0) <= 10**15:
        raise BadWord(f"{show(text)} is not a number of tokens; write 300M or 3B.")
    return {"tokens": amount}


def read_reason(text: str, policy: Policy) -> Fields:
    """Read the reason of the request; approvers see it."""
    if wrong := job_bounds.reason(text, policy):
        raise BadWord(wrong.sentence)
    return {"reason": text}


def _as_is(key: str, value: str, doc: str, example: str, what: str, pattern: str, *aliases: str) -> Word:
    """Make a word whose value is passed on as it is when it has the right shape."""

    def read(text: str, _policy: Policy) -> Fields:
        if not re.fullmatch(pattern, text):
            raise BadWord(f"{show(text)} is not {what}; write {example}.")
        return {key: text}

    return Word(key, value, doc, example, read, aliases)


WORDS: tuple[Word, ...] = (
    Word("gpu", "GPU[,GPU]", "Which GPUs would do.", "gpu=4090", read_gpus),
    Word("count", "N or N-M", "How many GPUs.", "count=2", read_count, ("gpus",)),
    Word(
        "nodes", "N", "Machines with so many GPUs each: one set, or for queue=.", "nodes=2", read_nodes, ("machines",)
    ),
    Word("hours", "TIME", "For how long.", "hours=3", read_hours, ("time", "duration")),
    Word(
        "memory", "SIZE", "Memory per GPU: 40GB exactly, 40GB+ at least.", "memory=40GB+", read_memory, ("mem", "vram")
    ),
    Word("max", "MONEY", "The most it may cost in all.", "max=$50", _read_max, ("budget", "cap", "limit")),
    Word("price", "MONEY", "The most per hour.", "price=$2.50", _read_price, ("max-price", "max_price")),
    Word(
        "below",
        "MONEY",
        "Wait for an offer at or below this price per hour.",
        "below=$16/h",
        _read_below,
        ("under",),
    ),
    Word("retry", "yes or no", "Wait while no offer fits.", "retry=yes", _read_retry, ("wait",)),
    Word("at", "MOMENT", "Begin to look for offers then.", "at=20:00", one("start_at", lambda t: read_moment(t, "at"))),
    Word(
        "until",
        "MOMENT",
        "How long to wait for an offer; a day without it.",
        "until=20:00",
        one("wait_until", lambda t: read_moment(t, "until")),
    ),
    Word("preset", "NAME", "A job of the policy; other words replace its own.", "preset=nightly", _read_preset),
    Word("profile", "NAME", "A model's GPUs, disk and allowed configs.", "profile=moe", read_profile),
    Word("clouds", "CLOUD[,CLOUD]", "Only these clouds.", "clouds=vast,runpod", read_clouds, ("cloud", "provider")),
    Word("region", "PLACE[,PLACE]", "Only in these regions or countries.", "region=US", read_regions, ("regions",)),
    Word("spot", "no, yes or any", "Whether it may be interrupted; no unless asked.", "spot=no", read_spot),
    Word("disk", "SIZE", "Disk in GB.", "disk=100", read_disk, ("storage",)),
    Word("reliability", "SHARE", "The least reliability.", "reliability=98%", read_reliability),
    Word("total", "SIZE", "The least memory of all GPUs together.", "total=160GB", read_total, ("total-memory",)),
    Word("verified", "yes or no", "Only machines that their cloud has verified.", "verified=yes", _read_verified),
    Word("cuda", "VERSION", "The least CUDA that the driver runs.", "cuda=12.4", read_version("min_cuda", "cuda=12.4")),
    Word(
        "capability",
        "VERSION",
        "The least CUDA compute capability.",
        "capability=8.9",
        read_version("min_capability", "capability=8.9 or capability=sm_89"),
        ("compute", "sm"),
    ),
    Word(
        "available",
        "TIME",
        "For how long the cloud expects the offer to be there.",
        "available=24h",
        read_available,
        ("availability",),
    ),
    Word("offer", "ID", "One offer of an inventory answer.", "offer=vast:123", read_offer),
    Word("ports", "PORT[,PORT]", "Ports to reach besides SSH.", "ports=8888/http,6006", read_ports, ("port",)),
    Word(
        "secrets",
        "NAME[,NAME]",
        "Your stored secrets that the command gets as variables.",
        "secrets=HF_TOKEN",
        read_secrets,
        ("secret",),
    ),
    Word("volume", "NAME", "Your network volume to mount.", "volume=data", read_volume_name),
    Word("share", "PERSON[,PERSON]", "Who else logs in.", "share=U012AB3CD", read_share),
    _as_is("image", "IMAGE", "The container image.", f"image={_AN_IMAGE}", "the name of an image", IMAGE),
    _as_is("workload", "NAME", "What kind of work.", "workload=training", "a kind of work", r"[A-Za-z][\w-]{0,30}"),
    _as_is("model", "NAME", "The model, for names and estimates.", "model=7B", "a model", r"[\w./-]{1,60}"),
    Word("tokens", "NUMBER", "How many tokens are trained on.", "tokens=3B", read_tokens),
    _as_is(
        "run",
        "COMMAND",
        "The command to run.",
        'run="python train.py"',
        "a command of at most 1,000 characters",
        r".{1,1000}",
    ),
    Word("queue", "COMMANDS", "Commands for one GPU each.", 'queue=\'["python a.py","python b.py"]\'', read_queue),
    Word("attempts", "NUMBER", "How often it is started at most.", "attempts=3", read_attempts, ("max-attempts",)),
    Word("retry-codes", "CODE[,CODE]", "After which exit codes only.", "retry-codes=75", read_retry_codes),
    Word("idle", "TIME", "End when idle for this long, even while a command runs.", "idle=30m", read_idle),
    Word("repo", "ADDRESS", "The git repository to fetch first.", f"repo={_A_REPO}", read_repo, ("repository",)),
    Word("config", "FILE", "What the command gets as --config.", "config=small.yaml", one("config", read_place)),
    Word("run-dir", "FOLDER", "What it gets as --run-dir.", "run-dir=runs/a", one("run_dir", read_place), ("run_dir",)),
    Word("install", "NAME", "The Python packages to install first.", "install=train", read_install, ("software",)),
    _as_is(
        "checkpoint",
        "PLACE",
        "Where checkpoints are kept.",
        "checkpoint=hf://org/model",
        "a place for checkpoints",
        r"[^\s`]{1,300}",
    ),
    _as_is(
        "label",
        "NAME",
        "The project that it counts for.",
        "label=mosaic",
        "a label",
        r"[A-Za-z0-9][\w.-]{0,39}",
        "project",
    ),
    Word("for", "TEXT", "Why it is needed; approvers read this.", 'for="fine-tune"', read_reason, ("reason", "why")),
)

#: Words that narrow the market further than its GPU, price and place do.
LIMIT_WORDS = ("memory", "total", "region", "reliability", "verified", "cuda", "capability", "available")

#: every key and alias → its word
KEYS: Mapping[str, Word] = {name: word for word in WORDS for name in (word.key, *word.aliases)}
