"""Estimate memory and speed of models of images and sound.

An image is made by multiplications alone, so its time is their FLOPs over a share of the peak rate. Published times
reach 44 to 69 % of it: FLUX.1-dev on L40S 61 %, SDXL there 44 % (diffusers/benchmarks, one pass without compilation),
SDXL on A100 69 % (pytorch.org/blog/accelerating-generative-ai-3: 3.31 s for 30 steps), FLUX.1-dev in 8 bits on H100
56 % (Replicate: 3.03 s for 28 steps). Larger and smaller images take FLOPs by their area.

Sound is read in windows. The encoder multiplies; the decoder then writes one token after the other, and each takes a
time that hardly depends on the GPU. Both numbers are judged by insanely-fast-whisper (150 minutes in 98 s on A100 with
24 windows at once) and faster-whisper (13 minutes in 17 s on RTX 3070 Ti with 8); other programs differ by two times.

Adapters are trained with one pass forward and one back, and one more where activations are recomputed.
"""

from __future__ import annotations

from bot.rules.sizing.host_speed import HostSpeed
from bot.rules.sizing.media_models import MediaModel
from bot.rules.sizing.throughput_data import ATTAINABLE
from bot.rules.sizing.training import peak_flops
from bot.rules.sizing.vram import MemoryLayout
from bot.rules.sizing.workload import Workload
from providers.gpus.table import GpuModel

#: Share of the peak rate at which images are made, relative to what the GPU attains beside A100.
_IMAGE_SHARE = 0.55
_SOUND_SHARE = 0.3
#: Deviations of the logarithm: images of the published times, sound and adapters by judgement.
_IMAGE_SIGMA, _SOUND_SIGMA, _ADAPTER_SIGMA = 0.35, 0.7, 0.6
#: Tokens that the longest window of a batch is written in, and the seconds that a layer takes for one of them.
_WRITTEN, _LAYER_S = 150, 1.0e-3
_SHORT_BYTES = 2


def units_per_s(
    work: Workload, model: MediaModel, gpu: GpuModel, count: int, plan: MemoryLayout, host: HostSpeed
) -> float:
    """Return images or seconds of sound per second. The GPU's peak and bandwidth must be known."""
    peak = ATTAINABLE.get(gpu.name, 1.0) * (peak_flops(gpu, work.number_format) or 0.0) * host.multiplying_share
    if model.sound:
        at_once = work.at_once
        reading = _SHORT_BYTES * model.written_params / (float(gpu.bandwidth_gb_s or 0) * 1e9)
        written = _WRITTEN * (reading + model.layers * _LAYER_S)
        return count * at_once * model.window_s / (at_once * model.pass_tflop * 1e12 / (_SOUND_SHARE * peak) + written)
    passes = float(model.passes * (work.image_steps or model.steps))
    if work.adapts:
        passes = 3.0 if plan.checkpointing else 2.0
    return count * _IMAGE_SHARE * peak / (passes * model.pass_tflop * 1e12 * work.image_area)


def sigma(work: Workload, model: MediaModel) -> float:
    """Return the deviation of the logarithm of the rate."""
    return _ADAPTER_SIGMA if work.adapts else _SOUND_SIGMA if model.sound else _IMAGE_SIGMA


def basis(model: MediaModel) -> str:
    """Say what the estimate rests on, as one sentence."""
    what = "transcriptions" if model.sound else "times for an image"
    return f"Estimated from the multiplications of {model.name} and a few published {what}, so the range is wide."
