"""A sixth cloud needs an adapter, a sandbox, a profile and a registry line: every door then knows it."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.cli.pages import clouds as page_of_clouds
from bot.rules.grammar.parser import GrammarError, ParsedCommand, parse
from bot.rules.policy.policy import Policy
from bot.settings import load
from providers import cloud_names
from providers.profiles import model
from providers.registry import REGISTRY, ProviderEntry
from tests.contract.example_cloud.adapter import CAPABILITIES
from tests.contract.example_cloud.registered import registered

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def sixth() -> Iterator[ProviderEntry]:
    """The sixth cloud, registered for one test."""
    with registered() as entry:
        yield entry


def test_without_its_line_nobody_knows_it() -> None:
    assert cloud_names.names() == tuple(REGISTRY)
    assert "cirrus" not in REGISTRY
    refused = parse("inventory gpu=4090 clouds=cirrus", Policy())
    assert isinstance(refused, GrammarError)
    assert f"there are {', '.join(REGISTRY)}" in refused.message


def test_every_door_knows_it(sixth: ProviderEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CIRRUS_API_KEY", "key-of-cirrus")
    assert set(load().clouds) >= {"cirrus"}
    assert cloud_names.names() == tuple(REGISTRY)
    for words in ("inventory gpu=4090 clouds=vast,cirrus", "provision 1x4090 2h cirrus for=x", "profile cirrus"):
        found = parse(words, Policy())
        assert isinstance(found, ParsedCommand), found
        assert "cirrus" in repr(found)
    offer = parse("provision 2h offer=cirrus:north-1 for=x", Policy())
    assert isinstance(offer, ParsedCommand), offer
    assert model.lint(sixth.profile, CAPABILITIES) == []
    assert model.load("cirrus").billing_stop == "Release stops all billing. It can't be undone."
    assert "cirrus" in page_of_clouds.page()


@pytest.mark.slow
async def test_it_passes_the_same_contract_suite_and_is_walked() -> None:
    walks = ("tests/contract", "tests/services/test_main_path.py", "tests/scenarios/faults/test_creates.py")
    command = (
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.contract.example_cloud.registered",
        "-n",
        "0",
        "--soak",
        "-k",
        "cirrus",
        *walks,
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    told = (await process.communicate())[0].decode()
    assert process.returncode == 0, told[-4000:]
    passed = re.search(r"(\d+) passed", told)
    assert passed is not None, told
    assert int(passed[1]) > 80, told
    assert " failed" not in told
