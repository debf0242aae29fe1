"""Which image is rented, and what it supports."""

from __future__ import annotations

from decimal import Decimal

from bot.rules.policy.policy import Policy


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
