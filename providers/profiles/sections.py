"""Sections 2 and 8 of a profile as data: what survives a stop and the end, and where a machine keeps what."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from providers.capabilities import Capabilities

TIER_COLUMNS = ("Tier", "Path", "Survives STOP?", "Survives DESTROY?", "Cap")
OVERRIDES = ("DATA_DIR", "DURABLE_DIR", "PROXY_HOOK", "CRED_FILE", "SCRATCH", "HF_HOME", "DETACH")
#: Those without which nothing can be put anywhere; the others may be empty.
NEEDED = ("DATA_DIR", "SCRATCH", "HF_HOME")
_PATH = re.compile(r"/[A-Za-z0-9._/-]*")


class Detach(StrEnum):
    """What keeps a job alive when nobody is connected."""

    TMUX = "tmux"
    SBATCH = "sbatch"
    K8S_JOB = "k8s-job"
    NOHUP = "nohup"
    KAGGLE_COMMIT = "kaggle-commit"


class Survives(StrEnum):
    """What a cell of the survival matrix begins with."""

    YES = "yes"
    NO = "no"
    NO_STOP = "there is no stop"


@dataclass(frozen=True, slots=True)
class StorageTier:
    """One place to keep data. `paths` are on the machine; empty for a store outside of it."""

    name: str
    paths: tuple[str, ...]
    stop: Survives
    end: Survives

    def holds(self, path: str) -> int:
        """How many characters of `path` lead to this tier; 0 when it is not on it."""
        fitting = [one for one in self.paths if path == one or path.startswith(one.rstrip("/") + "/")]
        return max(map(len, fitting), default=0)


@dataclass(frozen=True, slots=True)
class Overrides:
    """Section 8: where a job's files belong on a machine of this cloud. Empty: it has none, or a person decides."""

    data_dir: str
    durable_dir: str
    proxy_hook: str
    cred_file: str
    scratch: str
    hf_home: str
    detach: Detach

    @property
    def environment(self) -> dict[str, str]:
        """The variables that every machine of this cloud is given; empty ones are left out.

        RUN_ONE is the script that a queue's runner starts for each run. It lies where results survive.
        """
        values = {name: str(getattr(self, name.lower())) for name in OVERRIDES}
        values["RUN_ONE"] = f"{self.durable_dir.rstrip('/')}/run_one.sh" if self.durable_dir else ""
        return {name: value for name, value in values.items() if value}

    @property
    def directories(self) -> tuple[str, ...]:
        """What a machine makes before anything runs on it."""
        return tuple(dict.fromkeys((self.data_dir, self.scratch, self.hf_home)))


# ── reading ──────────────────────────────────────────────────────────────────────────────────────


def tiers(section: str) -> tuple[StorageTier, ...]:
    """The rows of the survival matrix whose cells can be read."""
    return tuple(tier for tier, _ in _rows(section) if tier is not None)


def overrides(section: str) -> Overrides:
    """The variables of section 8. ValueError when one is missing or is no value; `bad_overrides` says which."""
    found = dict(assignments(section))
    return Overrides(
        **{name.lower(): found.get(name, "") for name in OVERRIDES if name != "DETACH"}, detach=Detach(found["DETACH"])
    )


def assignments(section: str) -> list[tuple[str, str]]:
    """Every `NAME=value` in code, in its order."""
    return [(key, value.strip("\"'")) for key, value in re.findall(r"`([A-Z_]+)=([^`]*)`", section)]


def _rows(section: str) -> Iterator[tuple[StorageTier | None, str]]:
    """Each row of the matrix with what is wrong with it."""
    for line in _cells(section)[2:]:
        if len(line) != len(TIER_COLUMNS):
            yield None, f"a row of the survival matrix has {len(line)} columns: {' | '.join(line)}"
            continue
        name, path, *cells = line
        words = [_word(cell) for cell in cells[:2]]
        if words[0] is None or words[1] in (None, Survives.NO_STOP):
            yield None, f"{name}: what survives begins with yes or no, or for the stop with {Survives.NO_STOP}"
            continue
        paths = tuple(one for one in re.findall(r"`([^`]+)`", path) if one.startswith("/"))
        yield StorageTier(name, paths, Survives(words[0]), Survives(words[1] or "")), ""


def _cells(section: str) -> list[list[str]]:
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]


def _word(cell: str) -> Survives | None:
    return next((word for word in Survives if re.match(rf"{word}\b", cell)), None)


# ── what is wrong ────────────────────────────────────────────────────────────────────────────────


def bad_tiers(section: str) -> Iterator[str]:
    """What keeps programs from reading the survival matrix."""
    if _cells(section)[:1] != [list(TIER_COLUMNS)]:
        yield f"section 2 needs a survival matrix with the columns {' | '.join(TIER_COLUMNS)}"
        return
    yield from (problem for _, problem in _rows(section) if problem)
    if not any(tier.end is Survives.YES for tier in tiers(section)):
        yield "section 2 does not say what survives the end of a machine"


def bad_overrides(section: str) -> Iterator[str]:
    """What keeps a machine from being set up by section 8."""
    given = assignments(section)
    found = dict(given)
    yield from (f"section 8 does not say {key}" for key in OVERRIDES if key not in found)
    yield from (f"section 8 sets {key}, which no script reads" for key in found if key not in OVERRIDES)
    yield from (f"section 8 sets {key} twice" for key in found if sum(key == one for one, _ in given) > 1)
    for key in OVERRIDES[:-1]:
        value = found.get(key)
        if value == "" and key in NEEDED:
            yield f"section 8 needs a path for {key}"
        elif value and not _PATH.fullmatch(value):
            yield f"section 8 sets {key}={value}, which is no absolute path"
    if "DETACH" in found and found["DETACH"] not in set(Detach):
        yield f"section 8 sets DETACH={found['DETACH']}; there are {', '.join(Detach)}"


def contradictions(matrix: Sequence[StorageTier], found: Mapping[str, str], able: Capabilities | None) -> Iterator[str]:
    """Where the matrix contradicts the adapter, or section 8 the matrix."""
    durable = found.get("DURABLE_DIR", "")
    home = max(matrix, key=lambda tier: tier.holds(durable), default=None)
    if durable and (home is None or not home.holds(durable)):
        yield f"DURABLE_DIR={durable} is on no tier of section 2"
    elif durable and home is not None and Survives.YES not in (home.stop, home.end):
        yield f"DURABLE_DIR={durable} is on {home.name}, which survives nothing"
    if able is None:
        return
    for tier in matrix:
        if able.stop and tier.stop is Survives.NO_STOP:
            yield f"section 2 says of {tier.name} that there is no stop; the adapter has one"
        if not able.stop and tier.stop is not Survives.NO_STOP and tier.end is Survives.NO:
            yield f"section 2 says what a stop does to {tier.name}; the adapter has none"
    kept = any(tier.stop is Survives.YES and tier.paths for tier in matrix)
    if able.stop and kept is not able.stop_keeps_disk:
        yield f"section 2 says that a stop keeps {'data' if kept else 'nothing'}, stop_keeps_disk the opposite"
