"""List the shapes of models that people name: parameters, layers, width, heads, vocabulary.

Sources: `models.csv` names them row by row ("its config.json" is on the Hugging Face Hub, under the row's organisation
and name). Table 2.1 of the GPT-3 paper (arXiv:2005.14165) is the ladder of sizes without a name. Parameter counts are
not typed in where all layers are alike: they follow from the shape, and a test holds them against the published counts.
An expert that every token passes counts among the experts and among those used.
"""

from __future__ import annotations

import csv
import functools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Describe one transformer.

    `mlp_width` is the inner width of one feed-forward block (of one expert, where there are many), `gated` whether it
    has a third matrix, `positions` the number of learned positions (0: rotary or ALiBi). `stated_params` and
    `stated_active_params` are the makers' counts where layers differ from each other, 0 elsewhere. `local_layers` keep
    keys and values of the last `window` tokens only. `latent` are the numbers that a layer keeps per token where it
    compresses all keys and values into one vector, 0 elsewhere. `stored` is the format of the published weights.
    """

    name: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    mlp_width: int
    gated: bool
    vocab: int
    tied: bool
    positions: int = 0
    experts: int = 1
    experts_used: int = 1
    stated_params: int = 0
    stated_active_params: int = 0
    local_layers: int = 0
    window: int = 0
    latent: int = 0
    stored: str = "bf16"
    source: str = ""

    @property
    def attention_params(self) -> int:
        """Count the weights of the four attention matrices of one layer."""
        return self.width * self.head_width * 2 * (self.heads + self.kv_heads)

    @property
    def expert_params(self) -> int:
        """Count the weights of one feed-forward block."""
        return self.width * self.mlp_width * (3 if self.gated else 2)

    @property
    def active_body_params(self) -> int:
        """Count the weights that one token passes through, without embeddings and output head."""
        if self.stated_active_params:
            return self.stated_active_params - self.embedding_params
        router = self.width * self.experts if self.experts > 1 else 0
        return self.layers * (self.attention_params + self.expert_params * self.experts_used + router)

    @property
    def body_params(self) -> int:
        """Count all weights of the layers."""
        if self.stated_params:
            return self.stated_params - self.embedding_params
        idle = self.layers * self.expert_params * (self.experts - self.experts_used)
        return self.active_body_params + idle

    @property
    def all_experts_params(self) -> int:
        """Count the weights of all experts; 0 where the layers have none."""
        if self.experts == 1:
            return 0
        idle = self.body_params - self.active_body_params
        return idle * self.experts // (self.experts - self.experts_used)

    @property
    def embedding_params(self) -> int:
        """Count input embedding, learned positions and, where it is not the same matrix, the output head."""
        return self.width * (self.vocab * (1 if self.tied else 2) + self.positions)

    @property
    def total_params(self) -> int:
        """Count all weights, except norms and biases, which are below a tenth of a percent."""
        return self.body_params + self.embedding_params

    @property
    def active_params(self) -> int:
        """Count the weights that one token uses."""
        return self.active_body_params + self.embedding_params


#: The ladder of the GPT-3 paper and, above it, Llama 3.1: parameters in billions, layers, width.
_LADDER = (
    (0.125, 12, 768),
    (0.35, 24, 1024),
    (0.76, 24, 1536),
    (1.3, 24, 2048),
    (2.7, 32, 2560),
    (6.7, 32, 4096),
    (13.0, 40, 5120),
    (30.0, 48, 7168),
    (66.0, 80, 8192),
    (175.0, 96, 12288),
    (405.0, 126, 16384),
)

#: Columns of whole numbers; an empty cell is what most models have.
_NUMBERS = (
    *("layers", "width", "heads", "kv_heads", "head_width", "mlp_width", "vocab", "positions"),
    *("experts", "experts_used", "stated_params", "stated_active_params", "local_layers", "window", "latent"),
)
_DECORATION = re.compile(r"(?:-(?:instruct|chat|hf|base|it|dev|v\d[\w.]*|\d{4}|meta|4k|8k|32k|128k))+$")


def _row(cells: Mapping[str, str]) -> ModelShape:
    numbers = {key: int(cells[key]) for key in _NUMBERS if cells[key]}
    owner, _, name = cells["model"].partition("/")
    here = f"https://huggingface.co/{owner}"
    return ModelShape(
        name=name,
        gated=cells["gated"] == "yes",
        tied=cells["tied"] == "yes",
        stored=cells["stored"] or "bf16",
        source=f"{here}: {cells['source']}",
        **numbers,
    )


def _squash(text: str) -> str:
    """Reduce a name to its core: `meta-llama/Meta-Llama-3.1-8B-Instruct` → `llama318b`."""
    bare = text.strip().lower().rpartition("/")[2].replace("_", "-").replace(" ", "-")
    bare = _DECORATION.sub("", bare.removeprefix("meta-"))
    return re.sub(r"[^a-z0-9]", "", bare)


def _rows() -> list[dict[str, str]]:
    with Path(__file__).with_name("models.csv").open(newline="") as lines:
        return list(csv.DictReader(lines))


_ROWS = _rows()
#: canonical name → shape
MODELS: Mapping[str, ModelShape] = MappingProxyType({(shape := _row(cells)).name: shape for cells in _ROWS})

_INDEX: Mapping[str, ModelShape] = {
    _squash(name): shape
    for cells, shape in zip(_ROWS, MODELS.values(), strict=True)
    for name in (shape.name, *cells["also"].split())
}


@functools.lru_cache(maxsize=1024)
def model(text: str) -> ModelShape | None:
    """Find the shape of a model by name (`llama-3-8b`, `meta-llama/Llama-2-7b-hf`); None when it is unknown."""
    return _INDEX.get(_squash(text))


def typical(params: float) -> tuple[int, int]:
    """Return (layers, width) of a dense model of that many parameters, between the sizes that were published.

    Both grow with the size, so that a larger model is never estimated as a smaller one.
    """
    size = math.log(params / 1e9)
    sizes = [math.log(billions) for billions, _, _ in _LADDER]
    place = min(max(sum(size > one for one in sizes) - 1, 0), len(sizes) - 2)
    share = (size - sizes[place]) / (sizes[place + 1] - sizes[place])
    (_, low_layers, low_width), (_, high_layers, high_width) = _LADDER[place], _LADDER[place + 1]
    layers = low_layers * (high_layers / low_layers) ** share
    width = low_width * (high_width / low_width) ** share
    return max(round(layers), 1), max(round(width / 64) * 64, 64)
