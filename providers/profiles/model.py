"""Platform profiles as data: typed front matter, eight sections in one order, and a lint that compares with the code.

The shape is written down in `providers/profiles/_schema.md`. A profile names secrets by variable or file, no value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import MappingProxyType

import yaml
from pydantic import BaseModel, ConfigDict, StrictBool, StrictStr, ValidationError

from providers import cloud_names
from providers.capabilities import Capabilities
from providers.profiles import sections as parts
from providers.profiles.sections import Detach, Overrides, StorageTier, Survives

FOLDER = Path(__file__).parent
#: What stands beside the profiles and belongs to all of them.
NOTES = ("_schema", "china-network", "gotchas_universal", "parallel_ablation", "spot-resilience")
SECTIONS = (
    "LAUNCH",
    "STORAGE MODEL",
    "NETWORK",
    "SPOT / INTERRUPTION + RESUME",
    "TEARDOWN / BILLING",
    "DAEMON TOOL",
    "TOP GOTCHAS",
    "SCRIPT OVERRIDES",
)
STORAGE, TEARDOWN, GOTCHAS, SCRIPT = 2, 5, 7, 8
FEWEST_GOTCHAS, MOST_GOTCHAS = 4, 8
#: Seconds of a billing step → the word with which section 5 says it.
STEP_WORDS: Mapping[int, str] = {1: "second", 60: "minute", 3600: "hour"}


class CloudKind(StrEnum):
    SSH_RENTAL = "ssh-rental"
    CLOUD_API = "cloud-api"
    KUBERNETES = "kubernetes"
    SLURM = "slurm"


class BillingStop(StrEnum):
    """What ends billing finally. `关机` is the power-off of consoles that have no other word for it."""

    STOP = "stop"
    TERMINATE = "terminate"
    DESTROY = "destroy"
    RELEASE = "release"
    POWER_OFF = "关机"
    MANUAL = "manual"


class Front(BaseModel):
    """The front matter. Unknown keys are refused, so that a misspelled fact is never silently missing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    platform: StrictStr
    kind: CloudKind
    meter_stop_verb: BillingStop
    meter_stop_irreversible: StrictBool
    detach_primitive: Detach
    spot_available: StrictBool
    spot_grace: StrictStr
    shared_fs: StrictBool
    inode_cap: StrictStr
    free_egress: StrictBool
    china_mirror_needed: StrictBool
    host_driver_cuda_max: StrictStr
    local_nvme: StrictBool


@dataclass(frozen=True, slots=True)
class Gotcha:
    """One thing that bites: `id` is stable, the rest is one sentence each."""

    id: str
    symptom: str
    cause: str
    fix: str


@dataclass(frozen=True, slots=True)
class Profile:
    """One cloud's profile. `sections` maps 1 to 8 to their text; `tiers` are section 2, `overrides` section 8."""

    name: str
    front: Front
    sections: Mapping[int, str]
    gotchas: tuple[Gotcha, ...]
    tiers: tuple[StorageTier, ...]
    overrides: Overrides

    @property
    def billing_stop(self) -> str:
        """What ends billing, in one sentence."""
        undone = "It can't be undone." if self.front.meter_stop_irreversible else "It can be undone."
        if self.front.meter_stop_verb is BillingStop.MANUAL:
            return "No call stops the billing: a run ends by itself, by its timeout or by hand."
        return f"{self.front.meter_stop_verb.value.capitalize()} stops all billing. {undone}"

    @property
    def stop_keeps_data(self) -> bool:
        """Whether a stop keeps anything on the machine."""
        return any(tier.stop is Survives.YES and tier.paths for tier in self.tiers)

    @property
    def stopped(self) -> str:
        """What a stop keeps and what it wipes, in one sentence; "" where there is no stop."""
        kept, wiped = self._paths(stop=Survives.YES), self._paths(stop=Survives.NO)
        if kept and wiped:
            return f"A stop keeps {kept} and wipes {wiped}."
        return f"A stop keeps {kept}." if kept else f"A stop wipes {wiped}." if wiped else ""

    @property
    def restarted(self) -> str:
        """What a restart in place wipes, in one sentence: what a stop would; "" where all of it stays."""
        wiped = self._paths(stop=Survives.NO)
        return f"A restart wipes {wiped}." if wiped else ""

    @property
    def over(self) -> str:
        """What the end of the machine loses, in one sentence."""
        lost = [path for tier in self.tiers if tier.end is Survives.NO for path in tier.paths]
        return f"Everything in {_both(lost)} will be deleted." if lost else ""

    def _paths(self, stop: Survives) -> str:
        """The machine's own paths of which a stop does that: those that its end loses in any case."""
        return _both(
            [path for tier in self.tiers if tier.stop is stop and tier.end is Survives.NO for path in tier.paths]
        )


class ProfileError(ValueError):
    """A profile that cannot be used; the message names the file and everything that is wrong."""


def _both(paths: list[str]) -> str:
    """`/`, or `/ and /workspace`."""
    unique = list(dict.fromkeys(paths))
    return " and ".join(filter(None, [", ".join(unique[:-1]), *unique[-1:]]))


def names() -> tuple[str, ...]:
    """The clouds that have a profile, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.md") if path.stem not in NOTES))


def load(name: str) -> Profile:
    """The profile of a cloud. `ProfileError` when there is none or when it does not have the shape of the schema.

    A profile is part of the program, so it is read once. A cloud's volumes have the front matter of its machines.
    """
    found = _load(FOLDER, cloud_names.machines_of(name))
    return found if found.name == name else _of_volumes(name, found)


def _of_volumes(name: str, machines: Profile) -> Profile:
    """The profile of a cloud's network volumes: all that is on one is deleted at its end, and nothing runs there."""
    tier = StorageTier("network volume", ("the volume",), Survives.YES, Survives.NO)
    return replace(machines, name=name, tiers=(tier,), overrides=Overrides("", "", "", "", "", "", Detach.NOHUP))


@cache
def _load(folder: Path, name: str) -> Profile:
    if name not in names():
        raise ProfileError(f"There is no profile of {name!r}; there are {', '.join(names())}.")
    path = folder / f"{name}.md"
    text = path.read_text(encoding="utf-8")
    front, problems = _front(text, name)
    problems += _shape(text)
    if front is None or problems:
        raise ProfileError("; ".join(f"{path.name}: {problem}" for problem in problems))
    sections = dict(_sections(text))
    return Profile(
        name=name,
        front=front,
        sections=MappingProxyType(sections),
        gotchas=tuple(_gotchas(sections[GOTCHAS])),
        tiers=parts.tiers(sections[STORAGE]),
        overrides=parts.overrides(sections[SCRIPT]),
    )


def lint(path: Path, capabilities: Capabilities | None) -> list[str]:
    """Every sentence that is wrong with a profile, each beginning with its file; empty when it is right.

    `capabilities` are the adapter's; None checks the file alone, for a profile whose cloud has no adapter.
    """
    text = path.read_text(encoding="utf-8")
    front, problems = _front(text, path.stem)
    problems += _shape(text)
    sections = dict(_sections(text))
    if front is not None:
        found, matrix = dict(parts.assignments(sections.get(SCRIPT, ""))), parts.tiers(sections.get(STORAGE, ""))
        problems += parts.contradictions(matrix, found, capabilities)
        detach = found.get("DETACH", front.detach_primitive)
        if detach != front.detach_primitive:
            problems.append(f"section 8 has DETACH={detach}, detach_primitive says {front.detach_primitive}")
        if capabilities is not None:
            problems += _contradictions(front, sections.get(TEARDOWN, ""), capabilities)
        if front.meter_stop_irreversible is not any(tier.end is Survives.NO for tier in matrix):
            problems.append(
                f"meter_stop_irreversible is {front.meter_stop_irreversible}, section 2 says what the end loses"
            )
    problems += _broken_links(path, text)
    return [f"{path.name}: {problem}" for problem in problems]


def lint_note(path: Path) -> list[str]:
    """What is wrong with a page that stands beside the profiles: it is missing, or a link leads nowhere."""
    if not path.is_file():
        return [f"{path.name} is missing"]
    return [f"{path.name}: {problem}" for problem in _broken_links(path, path.read_text(encoding="utf-8"))]


# ── the front matter and the shape ───────────────────────────────────────────────────────────────


def _front(text: str, name: str) -> tuple[Front | None, list[str]]:
    found = re.match(r"---\n(.*?)^---\n", text, re.DOTALL | re.MULTILINE)
    if found is None:
        return None, ["the front matter between two lines --- is missing"]
    try:
        facts = yaml.safe_load(found[1])
        front = Front.model_validate(facts)
    except yaml.YAMLError as error:
        return None, [f"the front matter is no YAML: {str(error).splitlines()[0]}"]
    except ValidationError as error:
        return None, [_complaint(one["type"], one["loc"], one["msg"]) for one in error.errors()]
    return front, [] if front.platform == name else [f"platform says {front.platform}, the file is called {name}.md"]


def _complaint(kind: str, where: tuple[int | str, ...], message: str) -> str:
    key = ".".join(str(part) for part in where) or "the front matter"
    if kind == "extra_forbidden":
        return f"unknown key {key}; there are {', '.join(Front.model_fields)}"
    if kind == "missing":
        return f"the key {key} is missing"
    return f"{key}: {message}"


def _sections(text: str) -> Iterator[tuple[int, str]]:
    """`(place, text)` of each section, by its title: what has another title is not a section."""
    for title, body in _titled(text):
        if title in SECTIONS:
            yield SECTIONS.index(title) + 1, body


def _titled(text: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        yield re.sub(r"^\d+\.\s*", "", head).strip(), body.strip()


def _shape(text: str) -> Iterator[str]:
    titles = [title for title, _ in _titled(text)]
    known = [title for title in titles if title in SECTIONS]
    yield from (f"section {n}. {title} is missing" for n, title in enumerate(SECTIONS, 1) if title not in known)
    yield from (f"{title} is not a section" for title in titles if title not in SECTIONS)
    if len(set(known)) < len(known):
        yield "a section is there twice"
    elif known != [title for title in SECTIONS if title in known]:
        yield f"the sections stand in a wrong order: {', '.join(known)}"
    numbers = re.findall(r"^### (\d+)\. ", text, re.MULTILINE)
    if len(known) == len(titles) == len(SECTIONS) and numbers != [str(n) for n in range(1, len(SECTIONS) + 1)]:
        yield "the sections must be numbered 1 to 8, as in: ### 1. LAUNCH"
    sections = dict(_sections(text))
    if GOTCHAS in sections:
        yield from _bad_gotchas(sections[GOTCHAS])
    if SCRIPT in sections:
        yield from parts.bad_overrides(sections[SCRIPT])
    if STORAGE in sections:
        yield from parts.bad_tiers(sections[STORAGE])


# ── gotchas and links ─────────────────────────────────────────────────────────────────


def _gotcha_items(section: str) -> Iterator[tuple[str, list[str]]]:
    for part in re.split(r"^- \*\*", section, flags=re.MULTILINE)[1:]:
        identity, _, rest = part.partition("**")
        yield identity, [" ".join(each.split()) for each in rest.lstrip(" ·:").split("→", 2)]


def _gotchas(section: str) -> Iterator[Gotcha]:
    for identity, words in _gotcha_items(section):
        yield Gotcha(identity, *words)


def _bad_gotchas(section: str) -> Iterator[str]:
    items = list(_gotcha_items(section))
    if not FEWEST_GOTCHAS <= len(items) <= MOST_GOTCHAS:
        yield f"section 7 has {len(items)} gotchas; {FEWEST_GOTCHAS} to {MOST_GOTCHAS} are right"
    seen: set[str] = set()
    for identity, words in items:
        if not re.fullmatch(r"[A-Z]+\d+", identity):
            yield f"{identity!r} is not the id of a gotcha, such as RP1"
        if identity in seen:
            yield f"the id {identity} is used twice"
        seen.add(identity)
        if len(words) != 3 or not all(words):
            yield f"{identity} must read: symptom → root cause → fix"


def _broken_links(path: Path, text: str) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?://", target):
            continue
        file, _, anchor = target.partition("#")
        aim = path.parent / file if file else path
        if not aim.is_file():
            yield f"the link {target} leads nowhere"
        elif anchor and anchor not in _anchors(aim.read_text(encoding="utf-8")):
            yield f"the link {target} leads to a heading that {aim.name} does not have"


def _anchors(text: str) -> set[str]:
    """The fragments of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+?)\s*$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


# ── against the adapter ──────────────────────────────────────────────────────────────────────────


def _contradictions(front: Front, teardown: str, able: Capabilities) -> Iterator[str]:
    verb = front.meter_stop_verb.value
    if verb != able.meter_stop_verb:
        yield f"meter_stop_verb is {verb}, the adapter says {able.meter_stop_verb}"
    bold = re.search(r"\*\*(.+?)\*\*", teardown, re.DOTALL)
    if bold is None or verb not in bold[1].lower():
        yield f"section 5 must first say in bold what stops the cost: {verb}"
    if front.spot_available is not able.spot:
        yield f"spot_available is {front.spot_available}, the adapter says {able.spot}"
    if verb == "stop" and able.billing.storage_while_stopped:
        yield "stop does not stop the cost: the adapter says that storage is billed while stopped"
    step = STEP_WORDS.get(able.billing.quantum_s)
    if step is not None and not able.free and step not in teardown.lower():
        yield f"section 5 does not say that the adapter counts by the {step}"
    denied = re.search(r"\b(no|not|cannot|without|never)\b[^.|\n]{0,40}\bstop", teardown, re.IGNORECASE)
    if able.stop and not re.search(r"\bstop", teardown, re.IGNORECASE):
        yield "section 5 does not say what a stop does; the adapter has one"
    if not able.stop and not denied:
        yield "section 5 must say that there is no stop; the adapter has none"
    if able.batch and front.kind is CloudKind.SSH_RENTAL:
        yield "kind is ssh-rental, the adapter is a batch cloud without SSH"
