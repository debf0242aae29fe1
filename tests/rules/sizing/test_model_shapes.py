"""Model shapes: the parameter counts follow from the shape and agree with what was published."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rules.sizing.model_shapes import MODELS, model, typical

#: Published parameter counts in billions, from the models' own cards.
PUBLISHED = {
    "gpt2": 0.124,
    "gpt2-xl": 1.558,
    "llama-2-7b": 6.74,
    "llama-2-13b": 13.02,
    "llama-2-70b": 68.98,
    "llama-3-8b": 8.03,
    "llama-3-70b": 70.55,
    "llama-3.1-405b": 405.8,
    "llama-3.2-1b": 1.24,
    "llama-3.2-3b": 3.21,
    "mistral-7b": 7.24,
    "mistral-nemo": 12.2,
    "mixtral-8x7b": 46.7,
    "mixtral-8x22b": 140.6,
    "qwen2.5-0.5b": 0.494,
    "qwen2.5-7b": 7.61,
    "qwen2.5-72b": 72.7,
    "qwen3-30b-a3b": 30.5,
    "gemma-2-2b": 2.61,
    "gemma-2-9b": 9.24,
    "gemma-2-27b": 27.2,
    "phi-3-mini": 3.82,
    "phi-4": 14.66,
    "phi-4-mini": 3.84,
    "gemma-3-1b": 1.0,
    "gemma-3-4b": 3.88,
    "gemma-3-12b": 11.77,
    "gemma-3-27b": 27.0,
    "qwen3-0.6b": 0.596,
    "qwen3-1.7b": 1.72,
    "qwen3-4b": 4.02,
    "qwen3-8b": 8.19,
    "qwen3-14b": 14.77,
    "qwen3-32b": 32.76,
    "qwen3-235b-a22b": 235.1,
    "olmo-2-7b": 7.3,
    "olmo-2-13b": 13.72,
    "smollm2-135m": 0.1345,
    "smollm2-360m": 0.3618,
    "smollm2-1.7b": 1.711,
    "gpt-oss-20b": 20.9,
    "gpt-oss-120b": 116.8,
    "llama-4-scout": 107.8,
    "llama-4-maverick": 400,
    "deepseek-v3": 671,
    "deepseek-r1-distill-qwen-1.5b": 1.78,
    "gemma-3-270m": 0.268,
    "olmo-2-32b": 32.2,
    "smollm3-3b": 3.08,
}


@pytest.mark.parametrize(("name", "billions"), PUBLISHED.items())
def test_the_shape_gives_the_published_count(name: str, billions: float) -> None:
    assert MODELS[name].total_params / 1e9 == pytest.approx(billions, rel=0.005)


def test_a_mixture_of_experts_uses_part_of_its_weights() -> None:
    assert MODELS["mixtral-8x7b"].active_params / 1e9 == pytest.approx(12.9, rel=0.005)
    assert MODELS["qwen3-30b-a3b"].active_params / 1e9 == pytest.approx(3.3, rel=0.02)
    assert MODELS["qwen3-235b-a22b"].active_params / 1e9 == pytest.approx(22, rel=0.02)
    assert MODELS["llama-4-scout"].active_params / 1e9 == pytest.approx(17.2, rel=0.02)
    assert MODELS["gpt-oss-120b"].active_params / 1e9 == pytest.approx(5.7, rel=0.02)
    assert MODELS["deepseek-v3"].active_params == 37 * 10**9
    assert MODELS["llama-3-8b"].active_params == MODELS["llama-3-8b"].total_params


def test_the_experts_of_a_mixture_hold_nearly_all_of_it() -> None:
    shape = MODELS["qwen3-30b-a3b"]
    assert shape.all_experts_params == 48 * 128 * 3 * 2048 * 768
    assert MODELS["deepseek-v3"].all_experts_params / 1e9 == pytest.approx(657, rel=0.01)
    assert MODELS["llama-3-8b"].all_experts_params == 0


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("llama-3-8b", "llama-3-8b"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3-8b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("google/gemma-2-9b-it", "gemma-2-9b"),
        ("Llama-2-70b-hf", "llama-2-70b"),
        ("mpt_30b", "mpt-30b"),
        ("GPT2 XL", "gpt2-xl"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama-4-scout"),
        ("google/gemma-3-27b-it", "gemma-3-27b"),
        ("allenai/OLMo-2-1124-13B", "olmo-2-13b"),
        ("Qwen/Qwen3-235B-A22B", "qwen3-235b-a22b"),
        ("HuggingFaceTB/SmolLM2-1.7B-Instruct", "smollm2-1.7b"),
        ("HuggingFaceTB/SmolLM3-3B", "smollm3-3b"),
        ("allenai/OLMo-2-0325-32B-Instruct", "olmo-2-32b"),
        ("google/gemma-3-270m-it", "gemma-3-270m"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3-30b-a3b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "llama-3-8b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "llama-3-70b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", "deepseek-r1-distill-qwen-1.5b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "qwen2.5-7b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-14B", "qwen2.5-14b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "qwen2.5-32b"),
    ],
)
def test_people_spell_names_in_many_ways(text: str, name: str) -> None:
    assert model(text) is MODELS[name]


def test_every_row_says_where_it_is_from() -> None:
    assert all(shape.source.startswith("https://huggingface.co/") for shape in MODELS.values())
    assert all(len(shape.source.split(": ")[-1]) > 5 for shape in MODELS.values())
    assert all((shape.window > 0) is (shape.local_layers > 0) for shape in MODELS.values())
    assert all(shape.local_layers < shape.layers for shape in MODELS.values())


def test_an_unknown_name_is_unknown() -> None:
    assert model("our-own-model") is None
    assert model("") is None


@given(st.floats(1e6, 1e13), st.floats(1, 10))
def test_a_larger_model_is_never_narrower(params: float, factor: float) -> None:
    small, large = typical(params), typical(params * factor)
    assert small[0] <= large[0]
    assert small[1] <= large[1]


def test_the_ladder_is_met_where_it_was_published() -> None:
    assert typical(125e6) == (12, 768)
    assert typical(6.7e9) == (32, 4096)
    assert typical(175e9) == (96, 12288)
