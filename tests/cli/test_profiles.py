"""`gpu-shopper profiles`: the list, one profile, and the lint of what is there."""

from __future__ import annotations

from typer.testing import CliRunner

from bot.cli.commands.profiles import problems_of
from bot.cli.lazy import build
from providers.registry import REGISTRY
from tests.cli.test_commands import elsewhere
from tests.rules.builders import capabilities

__all__ = ["elsewhere"]


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(build(), ["profiles", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_the_list_says_what_ends_each_meter() -> None:
    code, out, _ = run()
    assert code == 0
    rows = {line.split()[0]: line.split() for line in out.splitlines()}
    assert set(REGISTRY) <= set(rows)
    assert rows["vast"][1:4] == ["ssh-rental", "destroy", "tmux"]


def test_one_profile_begins_with_what_ends_the_meter() -> None:
    code, out, _ = run("show", "runpod")
    assert code == 0
    assert out.startswith("Terminate stops all billing. It can't be undone.\n")
    assert "### 8. SCRIPT OVERRIDES" in out


def test_an_unknown_cloud_is_explained() -> None:
    code, out, err = run("show", "acme")
    assert (code, out) == (1, "")
    assert "There is no profile of 'acme'; there are " in err


def test_what_is_there_passes_the_lint() -> None:
    code, out, err = run("lint")
    assert (code, err) == (0, "")
    assert "agree with the schema and with their adapters" in out


def test_a_cloud_without_a_profile_and_a_profile_without_a_cloud() -> None:
    able = {"acme": capabilities()}
    found = problems_of(able)
    assert "acme.md is missing" in found
    assert "vast.md: there is no cloud of that name" in found
