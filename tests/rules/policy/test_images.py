"""Which image is rented, and what it supports."""

from __future__ import annotations

from decimal import Decimal

import pytest

from bot.rules.policy.policy import Policy
from providers.images import Vendor


def test_the_image_falls_back_from_stack_to_cloud_to_default() -> None:
    policy = Policy(default_image={"default": "a", "runpod": "b", "runpod/jax": "c"})
    assert [policy.image("runpod", "jax"), policy.image("runpod"), policy.image("vast", "jax")] == ["c", "b", "a"]


def test_the_default_images_say_what_they_support() -> None:
    policy = Policy()
    assert set(policy.default_image.values()) <= set(policy.image_capabilities)
    vast, runpod = policy.image("vast"), policy.image("runpod")
    assert (vast, runpod) == (
        "pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel",
        "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404",
    )
    assert policy.capabilities_of(vast) == (Decimal("5.0"), Decimal("9.0"))
    assert policy.capabilities_of(runpod) == (Decimal("7.0"), Decimal("12.0"))
    assert policy.capabilities_of("nobody/knows") is None


@pytest.mark.parametrize(
    ("image", "cuda", "vendor"),
    [
        ("pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel", "12.4", Vendor.NVIDIA),
        ("runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404", "12.8", Vendor.NVIDIA),
        ("vastai/base-image:cuda-12.8", "12.8", Vendor.NVIDIA),
        ("nvidia/cuda:12.4.1-devel-ubuntu22.04", "12.4", Vendor.NVIDIA),
        ("own/train:cu118", "11.8", Vendor.NVIDIA),
        ("rocm/pytorch:rocm6.2_ubuntu22.04", None, Vendor.AMD),
        ("own/acu128:1", None, None),
        ("own/image:1", None, None),
    ],
)
def test_the_name_of_an_image_says_its_cuda_and_its_maker(image: str, cuda: str | None, vendor: Vendor | None) -> None:
    needs = Policy().needs_of(image)
    assert (needs.cuda, needs.vendor) == (None if cuda is None else Decimal(cuda), vendor)


def test_the_policy_says_the_cuda_of_an_image_whose_name_does_not() -> None:
    needs = Policy(image_cuda={"own/image:1": "12.6"}).needs_of("own/image:1")
    assert (needs.cuda, needs.vendor) == (Decimal("12.6"), Vendor.NVIDIA)
