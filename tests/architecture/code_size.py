"""`python -m tests.architecture.code_size [COMMIT]`: count the statements of each package, now and at a commit.

A statement is an `ast.stmt` node that is no docstring, so neither comments nor line breaks count. The stage (practice
workspace, sandbox clouds, demo) is counted apart.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.architecture.stage import STAGE

ROOT = Path(__file__).parents[2]
PRODUCT = ("bot", "ledger", "migrations", "providers")
#: Where parts of the stage were before they joined it, so that a commit of then is compared with the same code.
FORMER = ("bot/cli/local/practice.py", "bot/cli/local/sandbox.py", "providers/sandboxes.py")
ON_STAGE = (*(f"{package.replace('.', '/')}/" for package in STAGE), *FORMER)
THE_STAGE, BOT = "the stage", "bot without the stage"


def statements(text: str) -> int:
    """Count the statements of a module, in whatever they are nested."""
    nodes = list(ast.walk(ast.parse(text)))
    documented = [
        node for node in nodes if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    docstrings = sum(ast.get_docstring(node, clean=False) is not None for node in documented)
    return sum(isinstance(node, ast.stmt) for node in nodes) - docstrings


def package_of(name: str) -> str:
    """Return the row of a file: `bot/slack`, `bot/*.py`, a package beside `bot`, or the stage."""
    if name.startswith(ON_STAGE):
        return THE_STAGE
    top, *folders, _ = name.split("/")
    return f"bot/{folders[0] if folders else '*.py'}" if top == "bot" else top


def counted(files: Mapping[str, str]) -> Counter[str]:
    """Count the statements of each package, from the text of each file; those of `bot` together, too."""
    sizes: Counter[str] = Counter()
    for name, text in files.items():
        size, package = statements(text), package_of(name)
        sizes[package] += size
        if package.startswith("bot"):
            sizes[BOT] += size
    return sizes


def present() -> dict[str, str]:
    """Read the Python files of the product as they lie here."""
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for top in PRODUCT
        for path in (ROOT / top).rglob("*.py")
    }


def at_commit(commit: str) -> dict[str, str]:
    """Read them as they were at a commit."""
    archive = subprocess.run(["git", "archive", commit, *PRODUCT], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        texts = ((one.name, files.extractfile(one)) for one in files if one.name.endswith(".py"))
        return {name: text.read().decode() for name, text in texts if text is not None}


def rows(now: Counter[str], before: Counter[str]) -> Iterator[tuple[str, int, int]]:
    """Yield `(row, before, now)`: the packages of `bot`, their total, and the rest."""
    names = sorted((now | before).keys() - {BOT, THE_STAGE})
    ours = [name for name in names if name.startswith("bot")]
    for name in (*ours, BOT, *(name for name in names if name not in ours), THE_STAGE):
        yield name, before[name], now[name]


def report(now: Counter[str], before: Counter[str] | None = None, commit: str = "") -> Iterator[str]:
    """Yield the lines of the table; `before` are the sizes at a commit to compare with."""
    if before is None:
        yield from (f"{name:<24}{size:>8,}" for name, _, size in rows(now, Counter()))
        return
    yield f"{'statements':<24}{commit[:8]:>10}{'now':>10}{'change':>10}"
    for name, old, size in rows(now, before):
        change = f"{100 * (size - old) / old:+.1f} %" if old else "new"
        yield f"{name:<24}{old:>10,}{size:>10,}{change:>10}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Count the statements of each package.")
    parser.add_argument("commit", nargs="?", help="a commit to compare with")
    commit = parser.parse_args(arguments).commit
    before = counted(at_commit(commit)) if commit else None
    print("\n".join(report(counted(present()), before, commit or "")))


if __name__ == "__main__":
    main()
