"""Read a model's shape from the `config.json` that its makers published, as words of the `/gpu` language.

The names of the fields differ between families: those of GPT-2, MPT and Llama are read, and of the mixtures that are
built as Mixtral or Qwen3 are. What is built otherwise (layers that differ from each other, latent attention, an encoder
and a decoder) has no simple count, so nothing is made of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.rules.sizing.model_shapes import ModelShape

#: What a number is called in the families of models.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers"),
    "width": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "vocab": ("vocab_size",),
    "kv_heads": ("num_key_value_heads",),
    "head_width": ("head_dim",),
    "mlp_width": ("intermediate_size", "n_inner", "ffn_hidden_size"),
    "experts": ("num_local_experts", "num_experts"),
    "experts_used": ("num_experts_per_tok",),
    "expert_width": ("moe_intermediate_size",),
}
#: Fields of models whose layers are not all alike, or are of another kind.
_OTHER_KINDS = (
    "kv_lora_rank",
    "first_k_dense_replace",
    "n_routed_experts",
    "state_size",
    "ssm_cfg",
    "interleave_moe_layer_step",
)
#: Families whose feed-forward block has two matrices; the others have three.
_PLAIN_FAMILIES = frozenset(
    ["gpt2", "gpt_neo", "gpt_neox", "gptj", "opt", "mpt", "bloom", "falcon", "phi", "gpt_bigcode"]
)
_MOST = 10**7


def shape(name: str, config: Mapping[str, Any]) -> ModelShape | None:
    """Return the shape that a configuration describes; None where it does not say, or is built otherwise."""
    inner = config.get("text_config")
    config = {**config, **inner} if isinstance(inner, Mapping) else config
    if config.get("is_encoder_decoder") is True or any(config.get(field) for field in _OTHER_KINDS):
        return None
    found = {key: _number(config, names) for key, names in _NAMES.items()}
    layers, width, heads, vocab = (found[key] for key in ("layers", "width", "heads", "vocab"))
    head_width = found["head_width"] or (width // heads if heads else 0)
    if not (layers and width and heads and vocab and head_width):
        return None
    experts, used = found["experts"] or 1, found["experts_used"] or 1
    if not 1 <= used <= experts or (experts > 1) is not (found["experts_used"] > 0):
        return None
    return ModelShape(
        name=name,
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=found["kv_heads"] or heads,
        head_width=head_width,
        mlp_width=(found["expert_width"] if experts > 1 else 0) or found["mlp_width"] or 4 * width,
        gated=config.get("model_type") not in _PLAIN_FAMILIES,
        vocab=vocab,
        tied=config.get("tie_word_embeddings", True) is True,
        experts=experts,
        experts_used=used,
    )


def words(found: ModelShape) -> tuple[str, ...]:
    """Return a shape as the words that describe it in a request, so that the request keeps it."""
    mixture = (f"active={found.active_params}",) if found.experts > 1 else ()
    return (
        f"params={found.total_params}",
        *mixture,
        f"layers={found.layers}",
        f"width={found.width}",
        f"heads={found.heads}",
        f"kv-heads={found.kv_heads}",
        f"mlp={found.mlp_width * found.experts_used}",
        f"gated={'yes' if found.gated else 'no'}",
        f"vocab={found.vocab}",
    )


def _number(config: Mapping[str, Any], names: tuple[str, ...]) -> int:
    """Return the first of these fields that is a positive whole number; 0 where none is."""
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST:
            return value
    return 0
