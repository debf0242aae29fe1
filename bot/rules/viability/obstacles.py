"""List the reasons why an offer cannot run what is asked, with one sentence each."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Obstacle(StrEnum):
    """Why an offer cannot run what is asked; the values are the codes in quotes, plans and listings."""

    VENDOR = "image_vendor"
    IMAGE_UNKNOWN = "image_unknown"
    GPU_UNKNOWN = "gpu_unknown"
    NO_CODE = "image"
    DRIVER = "image_cuda"
    STACK_VENDOR = "install_vendor"
    STACK_MACHINE = "install_processor"
    STACK_CODE = "install"
    STACK_DRIVER = "install_driver"
    PRECISION = "precision"
    INTEGERS = "precision_training"
    QUANTIZED = "quantized"
    BATCH = "batch"
    RAM = "ram"
    VRAM = "vram"
    DISK = "disk"


#: What stands behind "skipped: ", and what to state where that helps.
SENTENCES: Mapping[Obstacle, str] = {
    Obstacle.VENDOR: "the image is built for the GPUs of another maker; image= names one for these.",
    Obstacle.IMAGE_UNKNOWN: (
        "the image's name does not say that it runs on AMD GPUs; name one with rocm in it, or set image_vendor in the"
        " policy."
    ),
    Obstacle.GPU_UNKNOWN: (
        "neither GPU Shopper nor the cloud knows what that GPU can compute; set gpu_capabilities in the policy."
    ),
    Obstacle.NO_CODE: "the image has no code for that GPU's compute capability; a newer image may have it.",
    Obstacle.DRIVER: "the host's driver is too old for the image; image= names one built for an older CUDA.",
    Obstacle.STACK_VENDOR: "the packages of install= are built for NVIDIA GPUs.",
    Obstacle.STACK_MACHINE: "the packages of install= are built for x86_64, and that machine has an ARM processor.",
    Obstacle.STACK_CODE: "the packages of install= have no code for that GPU's compute capability.",
    Obstacle.STACK_DRIVER: "the host's driver is too old for the packages of install=.",
    Obstacle.PRECISION: "that GPU can't compute in this precision; precision= names another, such as fp16.",
    Obstacle.INTEGERS: "weights can't be trained as integers; write precision=bf16, or type=qlora.",
    Obstacle.QUANTIZED: "that GPU can't compute with weights of this few bits; precision=fp16 needs no such code.",
    Obstacle.BATCH: "the batch has fewer sequences than the offer has GPUs; write a larger batch=.",
    Obstacle.RAM: "too little memory on the host for the run, or none reported.",
    Obstacle.VRAM: "the run does not fit into the memory.",
    Obstacle.DISK: "too little disk.",
}

#: The same in a few words, for the sentence that names one GPU: `MI300X: the image needs CUDA`.
IN_SHORT: Mapping[Obstacle, str] = {
    Obstacle.IMAGE_UNKNOWN: "nothing says that the image runs on AMD GPUs",
    Obstacle.GPU_UNKNOWN: "nothing says what it can compute",
    Obstacle.NO_CODE: "the image has no code for it",
    Obstacle.DRIVER: "the image needs a newer driver on the host",
    Obstacle.STACK_VENDOR: "the packages of install= are built for NVIDIA GPUs",
    Obstacle.STACK_MACHINE: "the packages of install= have no builds for its ARM processor",
    Obstacle.STACK_CODE: "the packages of install= have no code for it",
    Obstacle.STACK_DRIVER: "the packages of install= need a newer driver on the host",
    Obstacle.PRECISION: "it can't compute in this precision",
    Obstacle.INTEGERS: "weights can't be trained as integers",
    Obstacle.QUANTIZED: "it can't compute with weights of this few bits",
    Obstacle.BATCH: "it has more GPUs than the batch has sequences",
    Obstacle.RAM: "its host has too little memory",
    Obstacle.VRAM: "the run does not fit into its memory",
    Obstacle.DISK: "it has too little disk",
}
