"""Each edit that removes a guard still fits the product's text, and each stored seed still notices it."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

import pytest

from tests.scenarios.simulation.guards import GUARDS, Guard
from tests.scenarios.simulation.mutated import noticed_by
from tests.scenarios.simulation.play import FAILPOINTS


@pytest.mark.parametrize("guard", GUARDS, ids=lambda one: one.name)
def test_its_edits_can_be_made(guard: Guard) -> None:
    for module, edits in groupby(sorted(guard.edits, key=lambda one: one.module), key=lambda one: one.module):
        spec = find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        text = before = Path(spec.origin).read_text()
        for edit in edits:
            text = edit.made_in(text)
        assert text != before
        compile(text, spec.origin, "exec")


def test_each_failpoint_is_a_function_of_a_service() -> None:
    services = find_spec("bot.services")
    assert services is not None
    folders = [Path(one) for one in services.submodule_search_locations or ()]
    texts = [path.read_text() for folder in folders for path in folder.rglob("*.py")]
    for name in FAILPOINTS:
        assert any(f"async def {name}(" in text for text in texts), name


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "number", [n for n, one in enumerate(GUARDS) if one.seed is not None], ids=lambda n: GUARDS[n].name
)
def test_its_seed_notices_that_it_is_missing(number: int) -> None:
    seed = GUARDS[number].seed
    assert seed is not None
    assert noticed_by(number, seed, 1) == seed
