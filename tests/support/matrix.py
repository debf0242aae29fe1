"""Which database a test runs on when its rule has nothing to do with the database.

The ledger's and the services' own tests run on both. What is above them takes turns: a test that runs on every cloud
has the databases alternate among the clouds, and whole walks alternate from test to test. Above the adapters, whose
contract runs on every cloud, such a test runs on two clouds, and which two rotates from test to test. `--soak` runs
every walk on both databases and on every cloud.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle

import pytest

from providers.registry import REGISTRY
from tests.support.clock import SteppedClock

CLOUDS = tuple(REGISTRY)
DATABASES = ("sqlite", "postgres")
#: On how many clouds a test of `on_clouds` runs without `--soak`: as many as there are databases, so that both occur.
SAMPLE = len(DATABASES)


def clouds_with(**wanted: object) -> list[str]:
    """The clouds that can do what a test is about: values of the capabilities, or of the sandbox's own facts."""
    found = []
    for name, entry in REGISTRY.items():
        able = entry.connect({}, SteppedClock()).capabilities
        if all(getattr(able, key, getattr(entry.sandbox, key, None)) == value for key, value in wanted.items()):
            found.append(name)
    return found


def on_clouds(**wanted: object) -> pytest.MarkDecorator:
    """Run a test on the clouds that can do what it is about, the databases taking turns."""
    pairs = zip(cycle(DATABASES), clouds_with(**wanted), strict=False)
    return pytest.mark.parametrize(("db_url", "cloud"), list(pairs), indirect=["db_url"])


every_cloud = on_clouds()


def take_turns(config: pytest.Config, items: list[pytest.Item], walks: Iterable[pytest.Item]) -> None:
    """Leave out of `items`, for each of the `walks` that would run on both databases, one of its two runs."""
    if config.getoption("--soak"):
        return
    runs: dict[str, list[pytest.Item]] = {}
    for item in walks:
        if isinstance(item, pytest.Function) and "db_url" in item.fixturenames:
            kind = str(item.callspec.params["db_url"])
            test, _, parameters = item.nodeid.rpartition("[")
            runs.setdefault(f"{test}[{parameters.replace(kind, '', 1)}", []).append(item)
    pairs = [pair for pair in runs.values() if len(pair) == len(DATABASES)]
    later = {pair[number % 2] for number, pair in enumerate(pairs)}
    items[:] = [item for item in items if item not in later]
    config.hook.pytest_deselected(items=list(later))


def sample_clouds(config: pytest.Config, items: list[pytest.Item], sampled: Iterable[pytest.Item]) -> None:
    """Leave out of `items`, for each of the `sampled` tests that `on_clouds` runs on many clouds, all but `SAMPLE`.

    Other parameters of the same test count as tests of their own, so that each of their values is still run.
    """
    if config.getoption("--soak"):
        return
    runs: dict[str, list[pytest.Item]] = {}
    for item in sampled:
        parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        if {"db_url", "cloud"} <= parameters.keys():
            others = sorted(f"{name}={value}" for name, value in parameters.items() if name not in ("db_url", "cloud"))
            runs.setdefault(f"{item.nodeid.partition('[')[0]}{others}", []).append(item)
    later: set[pytest.Item] = set()
    for number, group in enumerate(runs.values()):
        kept = {(number + offset) % len(group) for offset in range(SAMPLE)}
        later |= {item for at, item in enumerate(group) if at not in kept}
    items[:] = [item for item in items if item not in later]
    config.hook.pytest_deselected(items=list(later))
