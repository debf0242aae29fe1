"""Published configurations as shapes, judged by the table of known models, and as words that a request keeps."""

from __future__ import annotations

from typing import Any

import pytest

from bot.rules.jobs.facets.work import workload
from bot.rules.sizing import model_config
from bot.rules.sizing.model_shapes import MODELS
from bot.rules.sizing.workload import architecture

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "tie_word_embeddings": False, "vocab_size": 128256,
}  # fmt: skip
GPT2 = {"model_type": "gpt2", "n_embd": 1600, "n_head": 25, "n_layer": 48, "vocab_size": 50257}
MPT = {"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32, "vocab_size": 50368}
MIXTRAL = {
    "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8,
    "tie_word_embeddings": False, "vocab_size": 32000,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "config"),
    [("llama-3-8b", LLAMA), ("gpt2-xl", GPT2), ("mpt-7b", MPT), ("mixtral-8x7b", MIXTRAL)],
)
def test_a_configuration_gives_the_shape_that_is_known(name: str, config: dict[str, Any]) -> None:
    found, known = model_config.shape(name, config), MODELS[name]
    assert found is not None
    for field in ("layers", "width", "heads", "kv_heads", "head_width", "mlp_width", "gated", "tied", "experts"):
        assert getattr(found, field) == getattr(known, field), field
    assert found.total_params == pytest.approx(known.total_params, rel=0.002)
    assert found.active_params == pytest.approx(known.active_params, rel=0.002)

    # As words it is the same run, to what the words can say.
    work = workload((f"model=org/{name}-of-mine", *model_config.words(found)))
    read, best = architecture(work), architecture(workload((f"model={name}",)))
    assert read is not None
    assert best is not None
    for field in ("layers", "width", "heads", "kv_heads", "head_width", "mlp_width", "mlp_matrices", "head_params"):
        assert getattr(read, field) == getattr(best, field), field
    assert read.total_params == pytest.approx(best.total_params, rel=0.002)
    assert read.body_params == pytest.approx(best.body_params, rel=0.002)


def test_a_configuration_inside_another_is_read() -> None:
    assert model_config.shape("x", {"model_type": "mllama", "text_config": LLAMA, "hidden_size": 1}) is not None
    found = model_config.shape("x", LLAMA | {"head_dim": 256, "intermediate_size": None})
    assert found is not None
    assert (found.head_width, found.mlp_width) == (256, 4 * 4096)


@pytest.mark.parametrize(
    "config",
    [
        {},
        LLAMA | {"hidden_size": None},
        LLAMA | {"hidden_size": "4096"},
        LLAMA | {"num_hidden_layers": True},
        LLAMA | {"num_hidden_layers": 10**9},
        LLAMA | {"vocab_size": 0},
        LLAMA | {"kv_lora_rank": 512},
        LLAMA | {"is_encoder_decoder": True},
        MIXTRAL | {"num_experts_per_tok": 9},
        MIXTRAL | {"num_experts_per_tok": None},
        MIXTRAL | {"n_routed_experts": 64},
    ],
)
def test_what_is_built_otherwise_is_asked_of_people(config: dict[str, Any]) -> None:
    assert model_config.shape("x", config) is None
