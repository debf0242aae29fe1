"""List the models of images and sound that people name: their networks, their work, and how fast published runs were.

Sources: weights and multiplications of FLUX.1 and SDXL by the diffusers benchmarks (Hugging Face dataset
diffusers/benchmarks, 59.52 and 5.98 thousand billion multiply-adds for one pass at 1024 x 1024; two FLOPs each); steps
are the defaults of their diffusers pipelines, and four by the card of FLUX.1-schnell. SDXL runs its network twice a
step, with and without the prompt (arXiv:2307.01952). Text encoders and decoders of images are counted from their
configurations: T5 XXL 4.76B, CLIP L 0.12B, OpenCLIP bigG 0.69B, the image decoder 0.08B. Whisper by its configuration
and arXiv:2212.04356: windows of 30 seconds are 1,500 places for the encoder; its large versions share one shape.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MediaModel:
    """Describe one model of images or sound.

    `network_params` are the weights that are quantized or adapted, `other_params` those beside them, always in 16 bits.
    One pass over an image of 1024 x 1024, or over a window of sound, takes `pass_tflop`; an image takes `steps` times
    `passes` of them, in `places` and `text_places` tokens. `working_gb` is what a pass keeps, and `decoding_gb` what it
    takes to turn the result into an image.
    """

    name: str
    stored: str
    network_params: int
    other_params: int
    layers: int
    width: int
    head_width: int
    mlp_matrices: int
    pass_tflop: float
    places: int
    text_places: int = 0
    steps: int = 1
    passes: int = 1
    working_gb: float = 0.0
    decoding_gb: float = 0.0
    window_s: int = 0
    written_params: int = 0

    @property
    def sound(self) -> bool:
        """Whether it reads sound; the others make images."""
        return self.window_s > 0

    @property
    def unit(self) -> str:
        """Return what its rate counts: images, or seconds of audio."""
        return "audio seconds" if self.sound else "images"

    @property
    def total_params(self) -> int:
        """Count the weights of all its networks."""
        return self.network_params + self.other_params


def _flux(name: str, steps: int) -> MediaModel:
    return MediaModel(
        name=name,
        stored="bf16",
        network_params=11_901_000_000,
        other_params=4_970_000_000,
        layers=57,
        width=3072,
        head_width=128,
        mlp_matrices=2,
        pass_tflop=119.05,
        places=4096,
        text_places=512,
        steps=steps,
        working_gb=0.5,
        decoding_gb=3.5,
    )


_SDXL = MediaModel(
    name="sdxl",
    stored="fp16",
    network_params=2_567_000_000,
    other_params=902_000_000,
    layers=70,
    width=1280,
    head_width=64,
    mlp_matrices=3,
    pass_tflop=11.96,
    places=4096,
    steps=50,
    passes=2,
    working_gb=0.3,
    decoding_gb=3.5,
)
#: A window leaves keys and values of 1,500 places and of at most 448 tokens in each of the decoder's 32 layers: 0.3 GB.
_WHISPER = MediaModel(
    name="whisper-large-v3",
    stored="fp16",
    network_params=1_543_000_000,
    other_params=0,
    layers=32,
    width=1280,
    head_width=64,
    mlp_matrices=2,
    pass_tflop=2.27,
    places=1500,
    working_gb=0.3,
    window_s=30,
    written_params=907_000_000,
)
_NAMES: Mapping[str, MediaModel] = {
    "flux1dev": _flux("flux.1-dev", 28),
    "flux1schnell": _flux("flux.1-schnell", 4),
    "sdxl": _SDXL,
    "whisperlargev3": _WHISPER,
}
_ALSO: Mapping[str, str] = {
    "fluxdev": "flux1dev",
    "flux1": "flux1dev",
    "fluxschnell": "flux1schnell",
    "sdxlbase10": "sdxl",
    "stablediffusionxl": "sdxl",
    "stablediffusionxlbase10": "sdxl",
    "whisperlarge": "whisperlargev3",
    "whisperlargev2": "whisperlargev3",
}
#: name → model
MEDIA: Mapping[str, MediaModel] = {one.name: one for one in _NAMES.values()}


@functools.lru_cache(maxsize=1024)
def media_model(text: str) -> MediaModel | None:
    """Find a model of images or sound by name (`black-forest-labs/FLUX.1-dev`, `sdxl`); None for all others."""
    core = re.sub(r"[^a-z0-9]", "", text.strip().lower().rpartition("/")[2])
    return _NAMES.get(_ALSO.get(core, core))
