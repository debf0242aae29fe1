"""Each edit that removes a guard fits the product's text, each guard has a proof, and stored seeds notice theirs."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

import pytest

from tests.scenarios.simulation.guards.catalog import GUARDS
from tests.scenarios.simulation.guards.guard import Guard, Law
from tests.scenarios.simulation.guards.mutated import fails_without, noticed_by
from tests.scenarios.simulation.play import FAILPOINTS

ROOT = Path(__file__).parents[4]


@pytest.mark.quick
@pytest.mark.parametrize("guard", GUARDS, ids=lambda one: one.name)
def test_its_edits_can_be_made(guard: Guard) -> None:
    assert guard.edits
    for module, edits in groupby(sorted(guard.edits, key=lambda one: one.module), key=lambda one: one.module):
        spec = find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        text = before = Path(spec.origin).read_text()
        for edit in edits:
            text = edit.made_in(text)
        assert text != before
        compile(text, spec.origin, "exec")


@pytest.mark.quick
def test_each_guard_has_a_name_and_a_proof_of_its_own() -> None:
    assert len({one.name for one in GUARDS}) == len(GUARDS)
    for guard in GUARDS:
        path, _, name = guard.test.partition("::")
        assert guard.seed is not None or name, guard.name
        assert not name or f"def {name}(" in (ROOT / path).read_text(), guard.name


@pytest.mark.quick
def test_the_page_on_reliability_lists_each_guard_with_its_proof() -> None:
    page = (ROOT / "docs/reliability.md").read_text()
    for guard in GUARDS:
        path, _, name = guard.test.partition("::")
        seed = f", seed {guard.seed}" if guard.seed else ""
        assert f"| {guard.law} | {guard.name} | `{Path(path).stem}::{name}`{seed} |" in page


@pytest.mark.quick
def test_each_law_that_a_test_can_break_has_guards() -> None:
    assert {one.law for one in GUARDS} == set(Law)


@pytest.mark.quick
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


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_test_notices_that_its_guard_is_missing() -> None:
    """`make mutants-guards` asks it of every guard; here it is asked of one, so that the way of asking is tested."""
    number = next(n for n, one in enumerate(GUARDS) if one.name == "circuit breaker")
    assert fails_without(number)
