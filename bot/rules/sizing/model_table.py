"""Hold the shapes of models that people name, one a row; `bot.rules.sizing.model_shapes` reads them.

Sources: each model's published configuration (`config.json` on the Hugging Face Hub under the organisation in the row),
mosaicml/llm-foundry (Apache-2.0) for MPT. Newer rows were read from these public copies of the configurations:
Lightning-AI/litgpt @26857050 `litgpt/config.py` (Phi-4, Gemma 3, Qwen3, OLMo 2, SmolLM2), pytorch/torchtitan @b5bcd76c6
`torchtitan/models` (DeepSeek-V3, gpt-oss), pytorch/torchtune @bd2a0fc7c `torchtune/models/llama4` (Llama 4 Scout).
DeepSeek-R1 is DeepSeek-V3's shape. Where layers differ from each other (dense layers among mixtures, latent attention,
mixtures in every second layer), the last two cells are the makers' counts of all and of active parameters
(deepseek-ai/DeepSeek-V3 README; the announcement of Llama 4 on the Hugging Face blog, 2025-04-05). An expert that every
token passes counts among the experts and among those used.

Columns: organisation and name | layers | width | heads | kv heads | head width | MLP width (of one expert) | gated |
vocabulary | tied embedding | learned positions | experts / used by a token | parameters | active parameters.
"""

from __future__ import annotations

from collections.abc import Mapping

TABLE = """
openai-community: gpt2        | 12  | 768   | 12  | 12  | 64  | 3072  | no  | 50257  | yes | 1024 | 1/1
openai-community: gpt2-medium | 24  | 1024  | 16  | 16  | 64  | 4096  | no  | 50257  | yes | 1024 | 1/1
openai-community: gpt2-large  | 36  | 1280  | 20  | 20  | 64  | 5120  | no  | 50257  | yes | 1024 | 1/1
openai-community: gpt2-xl     | 48  | 1600  | 25  | 25  | 64  | 6400  | no  | 50257  | yes | 1024 | 1/1
mosaicml: mpt-125m            | 12  | 768   | 12  | 12  | 64  | 3072  | no  | 50368  | yes | 2048 | 1/1
mosaicml: mpt-350m            | 24  | 1024  | 16  | 16  | 64  | 4096  | no  | 50368  | yes | 2048 | 1/1
mosaicml: mpt-760m            | 24  | 1536  | 12  | 12  | 128 | 6144  | no  | 50368  | yes | 2048 | 1/1
mosaicml: mpt-1b              | 24  | 2048  | 16  | 16  | 128 | 8192  | no  | 50368  | yes | 2048 | 1/1
mosaicml: mpt-3b              | 32  | 2560  | 20  | 20  | 128 | 10240 | no  | 50368  | yes | 2048 | 1/1
mosaicml: mpt-7b              | 32  | 4096  | 32  | 32  | 128 | 16384 | no  | 50368  | yes | 2048 | 1/1
mosaicml: mpt-13b             | 40  | 5120  | 40  | 40  | 128 | 20480 | no  | 50368  | yes | 2048 | 1/1
mosaicml: mpt-30b             | 48  | 7168  | 56  | 56  | 128 | 28672 | no  | 50368  | yes | 2048 | 1/1
mosaicml: mpt-70b             | 80  | 8192  | 64  | 64  | 128 | 32768 | no  | 50368  | yes | 2048 | 1/1
meta-llama: llama-2-7b        | 32  | 4096  | 32  | 32  | 128 | 11008 | yes | 32000  | no  | 0    | 1/1
meta-llama: llama-2-13b       | 40  | 5120  | 40  | 40  | 128 | 13824 | yes | 32000  | no  | 0    | 1/1
meta-llama: llama-2-70b       | 80  | 8192  | 64  | 8   | 128 | 28672 | yes | 32000  | no  | 0    | 1/1
meta-llama: llama-3-8b        | 32  | 4096  | 32  | 8   | 128 | 14336 | yes | 128256 | no  | 0    | 1/1
meta-llama: llama-3-70b       | 80  | 8192  | 64  | 8   | 128 | 28672 | yes | 128256 | no  | 0    | 1/1
meta-llama: llama-3.1-405b    | 126 | 16384 | 128 | 8   | 128 | 53248 | yes | 128256 | no  | 0    | 1/1
meta-llama: llama-3.2-1b      | 16  | 2048  | 32  | 8   | 64  | 8192  | yes | 128256 | yes | 0    | 1/1
meta-llama: llama-3.2-3b      | 28  | 3072  | 24  | 8   | 128 | 8192  | yes | 128256 | yes | 0    | 1/1
mistralai: mistral-7b         | 32  | 4096  | 32  | 8   | 128 | 14336 | yes | 32000  | no  | 0    | 1/1
mistralai: mistral-nemo       | 40  | 5120  | 32  | 8   | 128 | 14336 | yes | 131072 | no  | 0    | 1/1
mistralai: mixtral-8x7b       | 32  | 4096  | 32  | 8   | 128 | 14336 | yes | 32000  | no  | 0    | 8/2
mistralai: mixtral-8x22b      | 56  | 6144  | 48  | 8   | 128 | 16384 | yes | 32768  | no  | 0    | 8/2
Qwen: qwen2.5-0.5b            | 24  | 896   | 14  | 2   | 64  | 4864  | yes | 151936 | yes | 0    | 1/1
Qwen: qwen2.5-1.5b            | 28  | 1536  | 12  | 2   | 128 | 8960  | yes | 151936 | yes | 0    | 1/1
Qwen: qwen2.5-3b              | 36  | 2048  | 16  | 2   | 128 | 11008 | yes | 151936 | yes | 0    | 1/1
Qwen: qwen2.5-7b              | 28  | 3584  | 28  | 4   | 128 | 18944 | yes | 152064 | no  | 0    | 1/1
Qwen: qwen2.5-14b             | 48  | 5120  | 40  | 8   | 128 | 13824 | yes | 152064 | no  | 0    | 1/1
Qwen: qwen2.5-32b             | 64  | 5120  | 40  | 8   | 128 | 27648 | yes | 152064 | no  | 0    | 1/1
Qwen: qwen2.5-72b             | 80  | 8192  | 64  | 8   | 128 | 29568 | yes | 152064 | no  | 0    | 1/1
Qwen: qwen3-8b                | 36  | 4096  | 32  | 8   | 128 | 12288 | yes | 151936 | no  | 0    | 1/1
Qwen: qwen3-14b               | 40  | 5120  | 40  | 8   | 128 | 17408 | yes | 151936 | no  | 0    | 1/1
Qwen: qwen3-32b               | 64  | 5120  | 64  | 8   | 128 | 25600 | yes | 151936 | no  | 0    | 1/1
Qwen: qwen3-30b-a3b           | 48  | 2048  | 32  | 4   | 128 | 768   | yes | 151936 | no  | 0    | 128/8
google: gemma-2-2b            | 26  | 2304  | 8   | 4   | 256 | 9216  | yes | 256000 | yes | 0    | 1/1
google: gemma-2-9b            | 42  | 3584  | 16  | 8   | 256 | 14336 | yes | 256000 | yes | 0    | 1/1
google: gemma-2-27b           | 46  | 4608  | 32  | 16  | 128 | 36864 | yes | 256000 | yes | 0    | 1/1
microsoft: phi-3-mini         | 32  | 3072  | 32  | 32  | 96  | 8192  | yes | 32064  | no  | 0    | 1/1
microsoft: phi-4              | 40  | 5120  | 40  | 10  | 128 | 17920 | yes | 100352 | no  | 0    | 1/1
microsoft: phi-4-mini         | 32  | 3072  | 24  | 8   | 128 | 8192  | yes | 200064 | yes | 0    | 1/1
google: gemma-3-1b            | 26  | 1152  | 4   | 1   | 256 | 6912  | yes | 262144 | yes | 0    | 1/1
google: gemma-3-4b            | 34  | 2560  | 8   | 4   | 256 | 10240 | yes | 262144 | yes | 0    | 1/1
google: gemma-3-12b           | 48  | 3840  | 16  | 8   | 256 | 15360 | yes | 262144 | yes | 0    | 1/1
google: gemma-3-27b           | 62  | 5376  | 32  | 16  | 128 | 21504 | yes | 262144 | yes | 0    | 1/1
Qwen: qwen3-0.6b              | 28  | 1024  | 16  | 8   | 128 | 3072  | yes | 151936 | yes | 0    | 1/1
Qwen: qwen3-1.7b              | 28  | 2048  | 16  | 8   | 128 | 6144  | yes | 151936 | yes | 0    | 1/1
Qwen: qwen3-4b                | 36  | 2560  | 32  | 8   | 128 | 9728  | yes | 151936 | yes | 0    | 1/1
Qwen: qwen3-235b-a22b         | 94  | 4096  | 64  | 4   | 128 | 1536  | yes | 151936 | no  | 0    | 128/8
allenai: olmo-2-7b            | 32  | 4096  | 32  | 32  | 128 | 11008 | yes | 100352 | no  | 0    | 1/1
allenai: olmo-2-13b           | 40  | 5120  | 40  | 40  | 128 | 13824 | yes | 100352 | no  | 0    | 1/1
HuggingFaceTB: smollm2-135m   | 30  | 576   | 9   | 3   | 64  | 1536  | yes | 49152  | yes | 0    | 1/1
HuggingFaceTB: smollm2-360m   | 32  | 960   | 15  | 5   | 64  | 2560  | yes | 49152  | yes | 0    | 1/1
HuggingFaceTB: smollm2-1.7b   | 24  | 2048  | 32  | 32  | 64  | 8192  | yes | 49152  | yes | 0    | 1/1
deepseek-ai: deepseek-v3      | 61  | 7168  | 128 | 128 | 128 | 2048  | yes | 129280 | no  | 0    | 257/9 | 671B | 37B
openai: gpt-oss-20b           | 24  | 2880  | 64  | 8   | 64  | 2880  | yes | 201088 | no  | 0    | 32/4
openai: gpt-oss-120b          | 36  | 2880  | 64  | 8   | 64  | 2880  | yes | 201088 | no  | 0    | 128/4
meta-llama: llama-4-scout     | 48  | 5120  | 40  | 8   | 128 | 8192  | yes | 202048 | no  | 0    | 17/2
meta-llama: llama-4-maverick  | 48  | 5120  | 40  | 8   | 128 | 8192  | yes | 202048 | no  | 0    | 129/2 | 400B | 17B
"""

#: Further names of the same shape.
ALIASES: Mapping[str, str] = {
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
    "deepseek-r1": "deepseek-v3",
    "deepseek-v3.1": "deepseek-v3",
    "llama-4-scout-17b-16e": "llama-4-scout",
    "llama-4-maverick-17b-128e": "llama-4-maverick",
    "olmo-2-1124-7b": "olmo-2-7b",
    "olmo-2-1124-13b": "olmo-2-13b",
    "qwen3-30b": "qwen3-30b-a3b",
    "qwen3-235b": "qwen3-235b-a22b",
}
