"""Which database a test runs on when its rule has nothing to do with the database.

The ledger's and the services' own tests run on both. What is above them takes turns: a test that runs on every cloud
has the databases alternate among the clouds, and whole walks alternate from test to test. `--soak` runs every walk on
both.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle

import pytest

from providers.registry import REGISTRY

CLOUDS = tuple(REGISTRY)
DATABASES = ("sqlite", "postgres")

every_cloud = pytest.mark.parametrize(
    ("db_url", "cloud"), list(zip(cycle(DATABASES), CLOUDS, strict=False)), indirect=["db_url"]
)


def take_turns(config: pytest.Config, items: list[pytest.Item], walks: Iterable[pytest.Item]) -> None:
    """Leave out of `items`, for each of the `walks` that would run on both databases, one of its two runs."""
    if config.getoption("--soak"):
        return
    runs: dict[str, list[pytest.Item]] = {}
    for item in walks:
        if isinstance(item, pytest.Function) and "db_url" in item.fixturenames:
            kind = str(item.callspec.params["db_url"])
            runs.setdefault(item.nodeid.replace(kind, "", 1), []).append(item)
    pairs = [pair for pair in runs.values() if len(pair) == len(DATABASES)]
    later = {pair[number % 2] for number, pair in enumerate(pairs)}
    items[:] = [item for item in items if item not in later]
    config.hook.pytest_deselected(items=list(later))
