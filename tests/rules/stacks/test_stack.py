"""The software stacks: their locks have what is asked for, in versions that one machine can install."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest
from packaging.requirements import Requirement

from bot.rules.stacks.drivers import LEAST_DRIVER, least_release
from bot.rules.stacks.stack import PYTHONS, STACKS, Stack

EACH = pytest.mark.parametrize("stack", STACKS.values(), ids=list(STACKS))
#: What fits into the answer to a check-in, and into one argument of a program on Linux (128 KiB).
LARGEST_LOCK = 64_000


def versions(stack: Stack, python: str) -> dict[str, str]:
    """The version of each package that a machine with this Python installs."""
    found: dict[str, str] = {}
    for line in stack.lock.splitlines():
        wanted = Requirement(line.partition(" --hash")[0])
        here = {"python_full_version": f"{python}.0", "python_version": python, "implementation_name": "cpython"}
        if wanted.marker is None or wanted.marker.evaluate(here):
            (exact,) = wanted.specifier
            assert exact.operator == "=="
            assert wanted.name not in found, f"{wanted.name} is listed twice for Python {python}"
            found[wanted.name] = exact.version
    return found


@EACH
@pytest.mark.parametrize("minor", range(PYTHONS[0][1], PYTHONS[1][1] + 1))
def test_a_lock_has_every_package_that_is_asked_for(stack: Stack, minor: int) -> None:
    found = versions(stack, f"3.{minor}")
    for asked in map(Requirement, stack.packages):
        assert asked.specifier.contains(found[asked.name]), f"{asked}: {found[asked.name]}"
    assert not set(stack.left_out) & set(found)


def test_training_has_the_packages_of_a_fine_tuning_run() -> None:
    floors = {"transformers": "4.36", "peft": "0.7", "bitsandbytes": "0.41"}
    asked = {one.name: str(one.specifier) for one in map(Requirement, STACKS["train"].packages)}
    assert {name: asked[name] for name in floors} == {name: f">={least}" for name, least in floors.items()}
    assert {"torch", "accelerate", "wandb", "tensorboard", "huggingface-hub"} <= set(asked)
    assert "prebuilt wheels" in STACKS["train"].left_out["flash-attn"]


@EACH
def test_every_line_is_one_exact_version_with_its_hashes_and_names_no_host(stack: Stack) -> None:
    line = r"[a-z0-9.-]+==[0-9][\w.]*( ; [^#]+?)?( --hash=sha256:[0-9a-f]{64})+"
    assert [one for one in stack.lock.splitlines() if not re.fullmatch(line, one)] == []
    assert "://" not in stack.lock
    assert 0 < len(stack.lock) < LARGEST_LOCK


@EACH
def test_torch_is_built_with_the_stated_cuda(stack: Stack) -> None:
    major, minor = str(stack.cuda).split(".")
    (runtime,) = stack.versions[f"nvidia-cuda-runtime-cu{major}"]
    assert runtime.startswith(f"{major}.{minor}.")


def test_drivers_are_those_of_the_published_table() -> None:
    assert STACKS["train"].driver == "525.60.13"  # Any CUDA 12 driver runs it.
    assert STACKS["serve"].driver == "570.26"  # The driver compiles some of its code.
    assert LEAST_DRIVER[Decimal("12.4")] == "550.54.14"
    assert LEAST_DRIVER[Decimal("12.6")] == "560.28.03"
    drivers = [tuple(map(int, one.split("."))) for one in LEAST_DRIVER.values()]
    assert drivers == sorted(drivers)
    assert least_release(Decimal("13.1"), minor=True) == Decimal("13.0")
