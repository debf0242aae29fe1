"""List the shapes of models that people name: parameters, layers, width, heads, vocabulary.

Sources: each model's published configuration (`config.json` on the Hugging Face Hub under the organisation in the
table), the GPT-3 paper's Table 2.1 (arXiv:2005.14165) for the ladder of sizes without a name, and mosaicml/llm-foundry
(Apache-2.0) for MPT. The parameter counts of the table are not typed in: they follow from the shape, and a test holds
them against the published counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Describe one transformer.

    `mlp_width` is the inner width of one feed-forward block (of one expert, where there are many), `gated` whether it
    has a third matrix, `positions` the number of learned positions (0: rotary or ALiBi).
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
        router = self.width * self.experts if self.experts > 1 else 0
        return self.layers * (self.attention_params + self.expert_params * self.experts_used + router)

    @property
    def body_params(self) -> int:
        """Count all weights of the layers."""
        idle = self.layers * self.expert_params * (self.experts - self.experts_used)
        return self.active_body_params + idle

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


# name | layers | width | heads | kv heads | head width | MLP width | gated | vocabulary | tied | positions | experts
_TABLE = """
openai-community: gpt2        | 12 | 768  | 12 | 12 | 64  | 3072  | no  | 50257  | yes | 1024 | 1/1
openai-community: gpt2-medium | 24 | 1024 | 16 | 16 | 64  | 4096  | no  | 50257  | yes | 1024 | 1/1
openai-community: gpt2-large  | 36 | 1280 | 20 | 20 | 64  | 5120  | no  | 50257  | yes | 1024 | 1/1
openai-community: gpt2-xl     | 48 | 1600 | 25 | 25 | 64  | 6400  | no  | 50257  | yes | 1024 | 1/1
mosaicml: mpt-125m            | 12 | 768  | 12 | 12 | 64  | 3072  | no  | 50368  | yes | 2048 | 1/1
mosaicml: mpt-350m            | 24 | 1024 | 16 | 16 | 64  | 4096  | no  | 50368  | yes | 2048 | 1/1
mosaicml: mpt-760m            | 24 | 1536 | 12 | 12 | 128 | 6144  | no  | 50368  | yes | 2048 | 1/1
mosaicml: mpt-1b              | 24 | 2048 | 16 | 16 | 128 | 8192  | no  | 50368  | yes | 2048 | 1/1
mosaicml: mpt-3b              | 32 | 2560 | 20 | 20 | 128 | 10240 | no  | 50368  | yes | 2048 | 1/1
mosaicml: mpt-7b              | 32 | 4096 | 32 | 32 | 128 | 16384 | no  | 50368  | yes | 2048 | 1/1
mosaicml: mpt-13b             | 40 | 5120 | 40 | 40 | 128 | 20480 | no  | 50368  | yes | 2048 | 1/1
mosaicml: mpt-30b             | 48 | 7168 | 56 | 56 | 128 | 28672 | no  | 50368  | yes | 2048 | 1/1
mosaicml: mpt-70b             | 80 | 8192 | 64 | 64 | 128 | 32768 | no  | 50368  | yes | 2048 | 1/1
meta-llama: llama-2-7b        | 32 | 4096 | 32 | 32 | 128 | 11008 | yes | 32000  | no  | 0 | 1/1
meta-llama: llama-2-13b       | 40 | 5120 | 40 | 40 | 128 | 13824 | yes | 32000  | no  | 0 | 1/1
meta-llama: llama-2-70b       | 80 | 8192 | 64 | 8  | 128 | 28672 | yes | 32000  | no  | 0 | 1/1
meta-llama: llama-3-8b        | 32 | 4096 | 32 | 8  | 128 | 14336 | yes | 128256 | no  | 0 | 1/1
meta-llama: llama-3-70b       | 80 | 8192 | 64 | 8  | 128 | 28672 | yes | 128256 | no  | 0 | 1/1
meta-llama: llama-3.1-405b    | 126 | 16384 | 128 | 8 | 128 | 53248 | yes | 128256 | no | 0 | 1/1
meta-llama: llama-3.2-1b      | 16 | 2048 | 32 | 8  | 64  | 8192  | yes | 128256 | yes | 0 | 1/1
meta-llama: llama-3.2-3b      | 28 | 3072 | 24 | 8  | 128 | 8192  | yes | 128256 | yes | 0 | 1/1
mistralai: mistral-7b         | 32 | 4096 | 32 | 8  | 128 | 14336 | yes | 32000  | no  | 0 | 1/1
mistralai: mistral-nemo       | 40 | 5120 | 32 | 8  | 128 | 14336 | yes | 131072 | no  | 0 | 1/1
mistralai: mixtral-8x7b       | 32 | 4096 | 32 | 8  | 128 | 14336 | yes | 32000  | no  | 0 | 8/2
mistralai: mixtral-8x22b      | 56 | 6144 | 48 | 8  | 128 | 16384 | yes | 32768  | no  | 0 | 8/2
Qwen: qwen2.5-0.5b            | 24 | 896  | 14 | 2  | 64  | 4864  | yes | 151936 | yes | 0 | 1/1
Qwen: qwen2.5-1.5b            | 28 | 1536 | 12 | 2  | 128 | 8960  | yes | 151936 | yes | 0 | 1/1
Qwen: qwen2.5-3b              | 36 | 2048 | 16 | 2  | 128 | 11008 | yes | 151936 | yes | 0 | 1/1
Qwen: qwen2.5-7b              | 28 | 3584 | 28 | 4  | 128 | 18944 | yes | 152064 | no  | 0 | 1/1
Qwen: qwen2.5-14b             | 48 | 5120 | 40 | 8  | 128 | 13824 | yes | 152064 | no  | 0 | 1/1
Qwen: qwen2.5-32b             | 64 | 5120 | 40 | 8  | 128 | 27648 | yes | 152064 | no  | 0 | 1/1
Qwen: qwen2.5-72b             | 80 | 8192 | 64 | 8  | 128 | 29568 | yes | 152064 | no  | 0 | 1/1
Qwen: qwen3-8b                | 36 | 4096 | 32 | 8  | 128 | 12288 | yes | 151936 | no  | 0 | 1/1
Qwen: qwen3-14b               | 40 | 5120 | 40 | 8  | 128 | 17408 | yes | 151936 | no  | 0 | 1/1
Qwen: qwen3-32b               | 64 | 5120 | 64 | 8  | 128 | 25600 | yes | 151936 | no  | 0 | 1/1
Qwen: qwen3-30b-a3b           | 48 | 2048 | 32 | 4  | 128 | 768   | yes | 151936 | no  | 0 | 128/8
google: gemma-2-2b            | 26 | 2304 | 8  | 4  | 256 | 9216  | yes | 256000 | yes | 0 | 1/1
google: gemma-2-9b            | 42 | 3584 | 16 | 8  | 256 | 14336 | yes | 256000 | yes | 0 | 1/1
google: gemma-2-27b           | 46 | 4608 | 32 | 16 | 128 | 36864 | yes | 256000 | yes | 0 | 1/1
microsoft: phi-3-mini         | 32 | 3072 | 32 | 32 | 96  | 8192  | yes | 32064  | no  | 0 | 1/1
"""

#: Further names of the same shape.
_ALIASES: Mapping[str, str] = {
    "gpt2-124m": "gpt2",
    "gpt2-small": "gpt2",
    "llama2-7b": "llama-2-7b",
    "llama2-13b": "llama-2-13b",
    "llama2-70b": "llama-2-70b",
    "llama-3.1-8b": "llama-3-8b",
    "llama-3.1-70b": "llama-3-70b",
    "llama-3.3-70b": "llama-3-70b",
    "codellama-7b": "llama-2-7b",
    "codellama-13b": "llama-2-13b",
    "mixtral": "mixtral-8x7b",
}

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

_DECORATION = re.compile(r"(?:-(?:instruct|chat|hf|base|it|dev|v\d[\w.]*|\d{4}|meta|4k|8k|32k|128k))+$")


def _row(line: str) -> ModelShape:
    head, *cells = (cell.strip() for cell in line.split("|"))
    owner, _, name = head.partition(": ")
    experts, used = cells[10].split("/")
    return ModelShape(
        name=name,
        layers=int(cells[0]),
        width=int(cells[1]),
        heads=int(cells[2]),
        kv_heads=int(cells[3]),
        head_width=int(cells[4]),
        mlp_width=int(cells[5]),
        gated=cells[6] == "yes",
        vocab=int(cells[7]),
        tied=cells[8] == "yes",
        positions=int(cells[9]),
        experts=int(experts),
        experts_used=int(used),
        source=f"https://huggingface.co/{owner}",
    )


def _squash(text: str) -> str:
    """Reduce a name to its core: `meta-llama/Meta-Llama-3.1-8B-Instruct` → `llama318b`."""
    bare = text.strip().lower().rpartition("/")[2].replace("_", "-").replace(" ", "-")
    bare = _DECORATION.sub("", bare.removeprefix("meta-"))
    return re.sub(r"[^a-z0-9]", "", bare)


#: canonical name → shape
MODELS: Mapping[str, ModelShape] = MappingProxyType(
    {(shape := _row(line)).name: shape for line in _TABLE.split("\n")[1:-1]}
)

_INDEX: Mapping[str, ModelShape] = {
    **{_squash(name): shape for name, shape in MODELS.items()},
    **{_squash(alias): MODELS[name] for alias, name in _ALIASES.items()},
}


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
