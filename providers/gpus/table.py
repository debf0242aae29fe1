"""The canonical GPU table: one name per GPU, its numbers, and how each cloud and each person spells it.

The data and their sources are in `providers.gpus.data`. Memory is nominal, per GPU: clouds report a little less.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from functools import lru_cache
from itertools import combinations
from types import MappingProxyType

from providers.gpus.data import SPECS, SPELLINGS
from providers.images import Vendor

#: A reported memory size belongs to a nominal one when it differs by at most this share (24 GB cards report 23.6).
MEMORY_TOLERANCE = Decimal("0.15")


@dataclass(frozen=True, slots=True)
class GpuModel:
    """One GPU model.

    `memory_gb` is nominal, per GPU. `compute_capability` is NVIDIA's number and None for AMD. `peak_bf16_tflops` is the
    dense rate (fp16 before Ampere) in TFLOP/s, `bandwidth_gb_s` the memory bandwidth; None where none is published.
    `spellings` maps a cloud to the exact names it uses, the first being the one to send.
    """

    name: str
    memory_gb: int
    architecture: str
    compute_capability: Decimal | None
    peak_bf16_tflops: Decimal | None
    bandwidth_gb_s: Decimal | None
    spellings: Mapping[str, tuple[str, ...]]

    @property
    def vendor(self) -> Vendor:
        """Its maker, by its architecture."""
        return Vendor.AMD if self.architecture.startswith(("CDNA", "RDNA")) else Vendor.NVIDIA


def _number(text: str) -> Decimal | None:
    return None if text == "-" else Decimal(text)


def _cloud_spellings() -> dict[str, dict[str, tuple[str, ...]]]:
    """cloud → canonical name → its spellings, in the table's order."""
    table: dict[str, dict[str, tuple[str, ...]]] = {}
    for cloud, block in SPELLINGS.items():
        names = table.setdefault(cloud, {})
        for entry in re.split(r"[|\n]", block.strip()):
            name, _, spelling = entry.strip().partition("=")
            names[name] = (*names.get(name, ()), spelling)
    return table


def _load() -> Iterator[tuple[GpuModel, tuple[str, ...]]]:
    clouds = _cloud_spellings()
    for line in SPECS.strip().splitlines():
        name, memory, architecture, capability, tflops, bandwidth, also = (cell.strip() for cell in line.split("|"))
        spelled = {cloud: names[name] for cloud, names in clouds.items() if name in names}
        yield (
            GpuModel(
                name=name,
                memory_gb=int(memory),
                architecture=architecture,
                compute_capability=_number(capability),
                peak_bf16_tflops=_number(tflops),
                bandwidth_gb_s=_number(bandwidth),
                spellings=MappingProxyType(spelled),
            ),
            tuple(word.strip() for word in also.split(",") if word.strip()),
        )


@lru_cache(maxsize=2048)
def _squash(text: str) -> str:
    """Lower case without separators, maker's prefix and socket generation: `NVIDIA A100-SXM4-80GB` → `a100sxm80gb`."""
    lowered = text.lower().replace("_", " ")
    lowered = re.sub(r"sxm[2-6](?=\b|\d\dgb)", "sxm", lowered)
    joined = re.sub(r"[^a-z0-9]", "", lowered)
    joined = re.sub(r"^(nvidia|amd)?(geforce)?", "", joined)
    return re.sub(r"(\d)gi?b?$", r"\1gb", joined)


def _aliases(gpu: GpuModel, also: tuple[str, ...]) -> set[str]:
    """Everything, squashed, that a person may type for this GPU: parts left out, memory added, `rtx` dropped."""
    family, *parts = gpu.name.split("-")
    memory = f"{gpu.memory_gb}gb"
    words = {_squash(word) for word in also}
    for size in range(len(parts) + 1):
        words |= {_squash("-".join((family, *kept))) for kept in combinations(parts, size)}
    for spelled in gpu.spellings.values():
        words |= {_squash(word) for word in spelled}
    words |= {word + memory for word in words if not word.endswith("gb")}
    words |= {word.removesuffix("gb") for word in words}
    return words | {word.removeprefix("rtx") for word in words if re.match(r"rtx(\d|a\d|pro)", word)}


_ROWS = tuple(_load())

#: canonical name → GPU, newest and largest first within a family.
GPUS: Mapping[str, GpuModel] = MappingProxyType({gpu.name: gpu for gpu, _ in _ROWS})


def _people_index() -> dict[str, tuple[str, ...]]:
    index: dict[str, tuple[str, ...]] = {}
    for gpu, also in _ROWS:
        for alias in _aliases(gpu, also):
            index[alias] = (*index.get(alias, ()), gpu.name)
    # A canonical name means itself, so that a name that was shown can be typed again ("H200" beside "H200-NVL").
    return index | {_squash(name): (name,) for name in GPUS}


def _cloud_index() -> dict[tuple[str, str], tuple[str, ...]]:
    index: dict[tuple[str, str], tuple[str, ...]] = {}
    for gpu in GPUS.values():
        for cloud, spelled in gpu.spellings.items():
            for key in {_squash(word) for word in spelled} | {_squash(word.replace("-pcie", "")) for word in spelled}:
                index[cloud, key] = (*index.get((cloud, key), ()), gpu.name)
    return index


_PEOPLE = _people_index()
_SPELLED = _cloud_index()


def canonical(cloud: str, spelling: str, memory_gb: Decimal | None = None) -> str | None:
    """The canonical name of what `cloud` calls `spelling`; None when it is unknown or stays ambiguous.

    Where one spelling stands for several memory sizes (Vast.ai's "A100 SXM4"), `memory_gb` per GPU decides.
    A name that the table does not list for this cloud is still read when a person could mean only one GPU by it.
    """
    key = _squash(re.sub(r"^\s*\d+x\s+", "", spelling))
    names = _SPELLED.get((cloud, key)) or _PEOPLE.get(key, ())
    if len(names) > 1 and memory_gb is not None:
        names = tuple(name for name in names if _fits(GPUS[name], memory_gb))
    return names[0] if len(names) == 1 else None


def _fits(gpu: GpuModel, memory_gb: Decimal) -> bool:
    return abs(memory_gb - gpu.memory_gb) <= gpu.memory_gb * MEMORY_TOLERANCE


def spellings(cloud: str, name: str) -> tuple[str, ...]:
    """The exact names that `cloud` uses for the canonical `name`; empty when it does not list that GPU."""
    gpu = GPUS.get(name)
    return gpu.spellings.get(cloud, ()) if gpu else ()


def lookup(text: str) -> tuple[str, ...]:
    """All canonical names that a person can mean by `text` ("4090", "a100-80gb", "H100 SXM"); empty when unknown."""
    return _PEOPLE.get(_squash(text), ())


def closest(text: str) -> tuple[str, ...]:
    """At most three canonical names near a misspelt `text`, nearest first, for "did you mean"; may be empty."""
    found: list[str] = []
    for alias in get_close_matches(_squash(text), _PEOPLE, n=6, cutoff=0.6):
        found += [name for name in _PEOPLE[alias] if name not in found]
    return tuple(found[:3])
