"""Sizes, hidden imports and the top level of the tree. Where the budgets are passed, a file is about two things."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE_LINES = 400
FUNCTION_LINES = 60
FIRST_PARTY = frozenset({"bot", "ledger", "migrations", "providers", "tests"})
#: Written by people; data, pictures and generated pages have no budget.
SOURCE_SUFFIXES = frozenset({".py", ".js", ".css", ".html", ".mako", ".sh"})
TOP_LEVEL_FOLDERS = FIRST_PARTY | {".github", "docs", ".ci"}
#: Folders that tools make; none of them is tracked.
MADE_BY_TOOLS = frozenset(
    {".git", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".import_linter_cache", ".hypothesis"}
    | {"__pycache__", "dist", "htmlcov", "site", "var", "build", ".mutants"}
)
#: The command table imports a command's module when the command is called, so that `--help` answers at once.
IMPORTS_BY_NAME = frozenset({"bot/cli/command_table.py", "bot/cli/lazy.py"})


def sources() -> list[Path]:
    """Every source file of the project."""
    files = (f for top in sorted(FIRST_PARTY) for f in (ROOT / top).rglob("*") if f.suffix in SOURCE_SUFFIXES)
    return sorted(f for f in files if not MADE_BY_TOOLS.intersection(f.parts))


def python_files() -> list[Path]:
    return [f for f in sources() if f.suffix == ".py"]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function, its decorators not counted."""
    return (function.end_lineno or 0) - function.lineno + 1


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def hidden_imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """`(line, module)` of every first-party import inside a function, also one by name."""
    for function in functions(tree):
        for node in ast.walk(function):
            if isinstance(node, ast.ImportFrom):
                names = ["tests" if node.level else node.module or ""]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            yield from ((node.lineno, name) for name in names if name.partition(".")[0] in FIRST_PARTY)


def imports_by_name(tree: ast.Module) -> Iterator[int]:
    """The lines that call `import_module`, `__import__` or `resolve_name`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__", "resolve_name"):
                yield node.lineno


@dataclass(frozen=True)
class Measured:
    """What is kept of a file: its tree would be a hundred times as large."""

    functions: list[tuple[str, int]]
    hidden: list[tuple[int, str]]
    by_name: list[int]


@cache
def measured() -> dict[str, Measured]:
    """Every Python file by its name, read once for all tests."""
    found = {}
    for path in python_files():
        tree = parsed(path)
        sizes = [(f"{one.lineno} {one.name}", length(one)) for one in functions(tree)]
        found[name_of(path)] = Measured(sizes, list(hidden_imports(tree)), list(imports_by_name(tree)))
    return found


def test_there_is_something_to_measure() -> None:
    assert len(python_files()) > 100


def test_a_file_is_about_one_thing() -> None:
    sizes = {name_of(path): len(path.read_text().splitlines()) for path in sources()}
    assert {name: size for name, size in sizes.items() if size > FILE_LINES} == {}


def test_a_function_fits_on_a_screen() -> None:
    sizes = {f"{name}:{where}": size for name, one in measured().items() for where, size in one.functions}
    assert {name: size for name, size in sizes.items() if size > FUNCTION_LINES} == {}


def test_no_function_hides_an_import() -> None:
    assert {name: one.hidden for name, one in measured().items() if one.hidden} == {}


def test_modules_are_imported_by_name_only_where_a_command_starts_sooner() -> None:
    by_name = {name: one.by_name for name, one in measured().items() if not name.startswith("tests/")}
    assert {name for name, lines in by_name.items() if lines} <= IMPORTS_BY_NAME


def test_the_top_level_is_fixed() -> None:
    folders = {entry.name for entry in ROOT.iterdir() if entry.is_dir()}
    unknown = {name for name in folders - MADE_BY_TOOLS - TOP_LEVEL_FOLDERS if not name.endswith(".egg-info")}
    assert unknown == set()


def test_the_measures_measure() -> None:
    """Each check sees a planted offence."""
    lines = "\n".join("    x = 1" for _ in range(FUNCTION_LINES))
    tree = ast.parse(
        f"import os\ndef f():\n    import ledger.engine.db\n    import json\n    from bot import main\n{lines}\n"
    )
    assert list(hidden_imports(tree)) == [(3, "ledger.engine.db"), (5, "bot")]
    (function,) = functions(tree)
    assert length(function) > FUNCTION_LINES
    assert list(imports_by_name(ast.parse("import importlib\nimportlib.import_module('x')\n__import__('y')"))) == [2, 3]


def test_imports_go_down_only() -> None:
    """The layer contracts of `pyproject.toml`."""
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout
