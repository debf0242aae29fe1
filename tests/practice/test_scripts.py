"""The scripts of the practice page import each other in one direction."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

from bot import practice

SCRIPTS = Path(practice.__file__).parent / "static" / "js"
IMPORT = re.compile(r'^(?:import|export)\b[^;"]*\bfrom "\./([\w-]+\.js)"', re.MULTILINE)


def test_no_script_imports_itself_through_others() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in SCRIPTS.glob("*.js")}
    imports = {name: IMPORT.findall(text) for name, text in texts.items()}
    for name, text in texts.items():
        said = len(re.findall(r'\bfrom\s*["\']|\bimport\s*["\'(]', text))
        assert len(imports[name]) == said, f"{name}: an import that this test does not read"
    # Raises `CycleError` with the scripts of the cycle.
    assert set(TopologicalSorter(imports).static_order()) == set(texts)
