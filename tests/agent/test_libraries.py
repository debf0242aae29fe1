"""What Python compiled of the archive is kept in one file, and later starts import from it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from bot.agent import libraries as kept_code
from bot.agent.build import archive

#: Begins as the agent does, imports, keeps, and says how many modules were compiled and from where one came.
PROGRAM = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from bot.agent import libraries
folder = Path(sys.argv[2])
libraries.begin(sys.argv[1], folder)
libraries.record()
from bot.agent.api import problems
import package.inner, lone
compiled = sorted(libraries.ArchiveImporter.new)
libraries.keep(sys.argv[1], folder)
if compiled:
    libraries.compile_agent(sys.argv[1])
    libraries.keep(sys.argv[1], folder)
print(json.dumps({"compiled": compiled, "file": package.inner.__file__, "lone": lone.VALUE}))
"""


@pytest.fixture
def built(tmp_path: Path) -> Path:
    libraries = tmp_path / "libraries"
    (libraries / "package").mkdir(parents=True)
    (libraries / "package/__init__.py").write_text("")
    (libraries / "package/inner.py").write_text("from package import lazy\n")
    (libraries / "package/lazy.py").write_text("")
    (libraries / "lone.py").write_text("VALUE = 7\n")
    made = tmp_path / "agent.pyz"
    made.write_bytes(archive(libraries))
    return made


def started(built: Path, folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-c", PROGRAM, str(built), str(folder)]
    said: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return said


def test_a_second_start_compiles_nothing(built: Path, tmp_path: Path) -> None:
    folder = tmp_path / "agent"
    folder.mkdir()
    first = started(built, folder)
    assert {"lone", "package", "package/package.inner", "bot/agent/api/bot.agent.api.problems"} <= set(
        first["compiled"]
    )
    assert first["file"] == f"{built}/package/inner.py"
    (kept,) = folder.iterdir()
    before = kept.stat()
    assert before.st_mode & 0o077 == 0
    assert started(built, folder) == {"compiled": [], "file": first["file"], "lone": 7}
    assert kept.stat().st_mtime_ns == before.st_mtime_ns


def test_another_archive_compiles_anew_and_replaces_what_was_kept(built: Path, tmp_path: Path) -> None:
    folder = tmp_path / "agent"
    folder.mkdir()
    started(built, folder)
    (old,) = folder.iterdir()
    (tmp_path / "libraries/lone.py").write_text("VALUE = 8\n")
    built.write_bytes(archive(tmp_path / "libraries"))
    os.utime(built, (1, 1))
    again = started(built, folder)
    assert again["lone"] == 8
    assert again["compiled"]
    (kept,) = folder.iterdir()
    assert kept.name != old.name


@pytest.mark.parametrize("content", [b"", b"not marshal", b"i\x07\x00\x00\x00"])
def test_a_file_that_is_none_is_written_again(built: Path, tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "agent"
    folder.mkdir()
    started(built, folder)
    (kept,) = folder.iterdir()
    kept.write_bytes(content)
    assert started(built, folder)["compiled"]
    assert kept.stat().st_size > 1000


def test_where_nothing_can_be_written_it_starts_as_well(built: Path, tmp_path: Path) -> None:
    assert started(built, tmp_path / "missing")["compiled"]
    assert not (tmp_path / "missing").exists()


def test_the_agents_own_modules_are_kept_whichever_process_imports_them(built: Path, tmp_path: Path) -> None:
    folder = tmp_path / "agent"
    folder.mkdir()
    started(built, folder)
    with zipfile.ZipFile(built) as file:
        own = [name for name in file.namelist() if name.startswith("bot/agent/") and not name.endswith("__init__.py")]
    (kept,) = folder.iterdir()
    content = kept.read_bytes()
    for name in own:
        module = Path(name).with_suffix("")
        assert f"{module.parent}/{'.'.join(module.parts)}".encode() in content


def test_the_api_waits_for_the_process_that_compiles_and_starts_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_code.ArchiveImporter, "known", {})
    built = tmp_path / "agent.pyz"
    built.write_bytes(b"PK")
    kept = kept_code.kept_in(str(built), tmp_path)

    def compiled(program: str, most_s: float = 20.0) -> None:
        kept_code.have_compiled(str(built), tmp_path, [sys.executable, "-S", "-c", program, str(kept)], most_s)

    compiled("raise SystemExit(9)")
    compiled("input()", 0.0)
    kept_code.have_compiled(str(built), tmp_path, [str(tmp_path / "missing")])
    assert kept_code.ArchiveImporter.known == {}
    compiled("import marshal, sys; open(sys.argv[1], 'wb').write(marshal.dumps({'a': b'b'}))")
    assert kept_code.ArchiveImporter.known == {"a": b"b"}
    compiled("import sys; open(sys.argv[1] + '.never', 'wb')")
    assert not list(tmp_path.glob("*.never"))
    kept_code.forget()
    kept_code.have_compiled("/somewhere/__main__.py", tmp_path, ["/no/such/program"])
