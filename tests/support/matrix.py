"""Which tests a run takes, on which databases and on which clouds.

`make test`: everything but what is slow. The ledger's own tests, and those marked `both_databases`, run on both
databases; every other test runs on SQLite. Above the adapters, whose contract runs on every cloud, a test of many
clouds runs on two of them, and which two rotates from test to test.
`--all`: the slow tests too, and every test on both databases; whole walks of processes take turns at them.
`--rest`: that without what `make test` ran before it: quick tests on SQLite, but for those of the adapters, which speak
over sockets now.
`--soak`: everything without turns, on every cloud, and at full size.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import settings

from providers.registry import REGISTRY
from providers.sandbox.sandboxes import SANDBOXES
from tests.support.clock import SteppedClock

CLOUDS = tuple(REGISTRY)
DATABASES = ("sqlite", "postgres")
#: On how many clouds a test of `on_clouds` runs without `--soak`.
SAMPLE = 2
#: How many examples a Hypothesis test tries: half of them without `--all`.
FULL_EXAMPLES, QUICK_EXAMPLES = 100, 50
TESTS = Path(__file__).parents[1]
LEDGER = TESTS / "ledger"
#: Tests that are other tests with sockets than without.
OVER_SOCKETS = (TESTS / "providers", TESTS / "contract")


def everything(config: pytest.Config) -> bool:
    """Whether slow tests run, and every test on both databases."""
    return any(config.getoption(one) for one in ("everything", "--rest", "--soak"))


def ran_before(item: pytest.Item) -> bool:
    """Whether `make test` runs a test that is not slow just as `make test-all` does."""
    if item.path.is_relative_to(LEDGER):
        return True
    on_sqlite = _parameters(item).get("db_url", DATABASES[0]) == DATABASES[0]
    return on_sqlite and not any(map(item.path.is_relative_to, OVER_SOCKETS))


def examples(number: int) -> int:
    """How many examples a Hypothesis test tries that would try `number` of them in a full run."""
    return max(1, number * settings().max_examples // FULL_EXAMPLES)


def databases_of(metafunc: pytest.Metafunc) -> tuple[str, ...]:
    """The kinds of database that a test runs on: one where `--database` asks for it alone."""
    if only := metafunc.config.getoption("--database"):
        return (only,)
    node = metafunc.definition
    both = node.path.is_relative_to(LEDGER) or node.get_closest_marker("both_databases") is not None
    return DATABASES if both or everything(metafunc.config) else DATABASES[:1]


def leave_out(config: pytest.Config, items: list[pytest.Item], left: Iterable[pytest.Item]) -> None:
    """Take these out of the run."""
    out = set(left)
    items[:] = [item for item in items if item not in out]
    config.hook.pytest_deselected(items=list(out))


def clouds_with(**wanted: object) -> list[str]:
    """The clouds that can do what a test is about: values of the capabilities, or of the sandbox's own facts."""
    found = []
    for name, entry in REGISTRY.items():
        able = entry.connect({}, SteppedClock()).capabilities
        if all(getattr(able, key, getattr(SANDBOXES[name], key, None)) == value for key, value in wanted.items()):
            found.append(name)
    return found


def on_clouds(**wanted: object) -> pytest.MarkDecorator:
    """Run a test on the clouds that can do what it is about."""
    return pytest.mark.parametrize("cloud", clouds_with(**wanted))


every_cloud = on_clouds()


def take_turns(config: pytest.Config, items: list[pytest.Item], walks: Iterable[pytest.Item]) -> None:
    """Leave out of `items`, for each of the `walks` that would run on both databases, one of its two runs."""
    if config.getoption("--soak"):
        return
    runs: dict[tuple[str, ...], list[pytest.Item]] = {}
    for item in walks:
        if "db_url" in (parameters := _parameters(item)):
            runs.setdefault(_key(item, parameters, but="db_url"), []).append(item)
    pairs = [pair for pair in runs.values() if len(pair) == len(DATABASES)]
    leave_out(config, items, (pair[number % 2] for number, pair in enumerate(pairs)))


def sample_clouds(config: pytest.Config, items: list[pytest.Item], sampled: Iterable[pytest.Item]) -> None:
    """Leave out of `items`, for each of the `sampled` tests that `on_clouds` runs on many clouds, all but `SAMPLE`.

    Other parameters of the same test count as tests of their own, so that each of their values is still run.
    """
    if config.getoption("--soak"):
        return
    runs: dict[tuple[str, ...], list[pytest.Item]] = {}
    for item in sampled:
        if {"db_url", "cloud"} <= (parameters := _parameters(item)).keys():
            runs.setdefault(_key(item, parameters, but="cloud"), []).append(item)
    later: list[pytest.Item] = []
    for number, group in enumerate(runs.values()):
        kept = {(number + offset) % len(group) for offset in range(SAMPLE)}
        later += [item for at, item in enumerate(group) if at not in kept]
    leave_out(config, items, later)


def _parameters(item: pytest.Item) -> dict[str, object]:
    return item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}


def _key(item: pytest.Item, parameters: dict[str, object], *, but: str) -> tuple[str, ...]:
    """The test and its other parameters."""
    return (
        item.nodeid.partition("[")[0],
        *sorted(f"{name}={value}" for name, value in parameters.items() if name != but),
    )
