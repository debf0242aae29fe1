"""The folders that must exist: the same subjects in services, rules and tests, and at most 25 files in each."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES_MAX = 25

FOLDERS = {
    "bot": "agent api blockkit cli outbound practice rules services settings slack ticker wire",
    "bot/api": "routes schemas",
    "bot/cli": "access commands demo local pages terminal",
    "bot/rules": (
        "access approvals audit billing budgets checkpoints grammar instances jobs market nodes plans policy pricing "
        "relocation reports sessions sizing stacks values viability webhooks"
    ),
    "bot/services": (
        "access approvals audit backups billing budgets checkpoints grants instances market nodes "
        "notifications outbox people plans recovery relocation reports requests runtime sessions webhooks"
    ),
    "ledger": "core engine kernel models queries",
    "providers": "clouds gpus profiles sandbox",
    "tests": (
        "agent api architecture blockkit cli contract ledger outbound practice providers rules scenarios services slack"
    ),
}
#: What happens to an instance, in the order in which it happens.
LIFE_OF_AN_INSTANCE = (
    "launch launch_spec unknown_outcome readiness health failover power termination orphans adoption reconcile"
)


def subfolders(folder: Path) -> set[str]:
    """The packages directly inside a folder."""
    return {one.name for one in folder.iterdir() if (one / "__init__.py").is_file()}


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_has_its_rooms(folder: str) -> None:
    assert set(FOLDERS[folder].split()) <= subfolders(ROOT / folder)


@pytest.mark.parametrize("layer", ["bot/services", "bot/rules"])
def test_every_package_is_named_here_and_has_a_purpose(layer: str) -> None:
    assert subfolders(ROOT / layer) == set(FOLDERS[layer].split())
    for name in FOLDERS[layer].split():
        assert (ROOT / layer / name / "__init__.py").read_text().startswith('"""'), f"{layer}/{name} says nothing"


def test_the_life_of_an_instance_can_be_read_from_its_folder() -> None:
    files = {path.stem for path in (ROOT / "bot/services/instances").glob("*.py")}
    assert set(LIFE_OF_AN_INSTANCE.split()) <= files


def test_a_folder_can_be_taken_in_at_a_glance() -> None:
    tops = [ROOT / top for top in ("bot", "ledger", "providers", "migrations", "tests")]
    folders = {path.parent for top in tops for path in top.rglob("*.py")}
    counts = {path.relative_to(ROOT).as_posix(): len([*path.glob("[!_]*.py")]) for path in folders}
    assert {name: count for name, count in counts.items() if count > FILES_MAX} == {}


@pytest.mark.parametrize("layer", ["services", "rules"])
def test_tests_mirror_the_subjects(layer: str) -> None:
    assert subfolders(ROOT / "tests" / layer) <= subfolders(ROOT / "bot" / layer)
