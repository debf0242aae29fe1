"""The generated pages say what the code does, and the pages point at things that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bot.cli.lazy import COMMANDS, build
from bot.cli.local.docs import marks, with_tables
from bot.cli.pages import PAGES
from bot.cli.pages.markdown import table
from bot.rules.values.reply_code import ReplyCode
from bot.settings import known_variables

ROOT = Path(__file__).resolve().parent.parent
WRITTEN = [path for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")) if path.name != "LICENSE"]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_agrees_with_the_code(name: str) -> None:
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == PAGES[name](), "run: make docs"


def test_the_readme_has_every_setting_and_every_command() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert with_tables(text) == text, "run: make docs"
    shown = set(re.findall(r"^\| `gpu-shopper ([\w-]+)` \|", text, re.MULTILINE))
    assert shown == {name for name, entry in COMMANDS.items() if not entry.hidden}
    assert all(f"`{variable.name}`" in text for variable in known_variables())


def test_the_example_file_names_only_real_settings() -> None:
    names = re.findall(r"^#? ?([A-Z][A-Z_0-9]+)=", (ROOT / ".env.example").read_text(encoding="utf-8"), re.MULTILINE)
    assert names
    assert set(names) <= {variable.name for variable in known_variables()}


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if "://" not in target and not target.endswith(".png"):
            assert (path.parent / target).exists(), f"{path.name} points at {target}"


def test_every_code_of_an_answer_has_one_row() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", PAGES["errors.md"](), re.MULTILINE)
    names = [name for name, meaning in rows if name in set(ReplyCode) and meaning == ReplyCode(name).label]
    assert names == sorted(ReplyCode)
    assert {"approved", "bad_word", "not_an_approver", "reason_needed", "submitted", "private_key"} <= set(names)


def test_the_architecture_page_names_files_that_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:bot|ledger|providers|migrations|tests|docs)/[a-z0-9_/.-]+)`", text))
    assert len(named) > 30
    assert {name for name in named if not (ROOT / name).exists()} == set()


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(build(), ["docs", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_check_names_what_is_out_of_step_and_writing_mends_it(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    both = "".join("{}\nold\n{}\n".format(*marks(name)) for name in ("settings", "commands"))
    (tmp_path / "README.md").write_text(f"# x\n\n{both}end\n", encoding="utf-8")
    code, _, err = run("--check", "--folder", str(folder))
    assert code == 1
    assert "policy.md" in err
    assert "README.md" in err
    assert f"{len(PAGES) + 1} of {len(PAGES) + 1} pages written" in run("--folder", str(folder))[1]
    assert run("--check", "--folder", str(folder))[0] == 0
    (folder / "ids.md").write_text("changed by hand", encoding="utf-8")
    code, _, err = run("--check", "--folder", str(folder))
    assert (code, "ids.md" in err, "policy.md" in err) == (1, True, False)


def test_a_readme_that_lost_a_mark_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# hello\n", encoding="utf-8")
    code, _, err = run("--check", "--folder", str(tmp_path / "docs"))
    assert (code, "README.md lacks the mark <!-- commands: made by `make docs` -->" in err) == (1, True)


def test_a_table_escapes_bars() -> None:
    assert table(("a",), [("x|y\nz",)]).splitlines()[-1] == "| x\\|y z |"
