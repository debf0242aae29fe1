"""Build the agent into one file, the same bytes each time. This module itself is not part of it.

Nothing is compressed, because compressors differ between releases; nothing has the time of its build.
"""

from __future__ import annotations

import hashlib
import io
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

BOT = Path(__file__).parents[1]
#: Read by Python 3 of any age, so that an old one can say what is wrong.
START = """\
import sys
if sys.version_info < (3, 10):
    sys.exit("gpu-shopper-agent: This machine has Python %d.%d; the agent needs 3.10 or later." % sys.version_info[:2])
from bot.agent import libraries, own_folder
libraries.begin(sys.argv[0], own_folder.of_this_machine())
from bot.agent.__main__ import main
sys.exit(main(sys.argv[1:]))
"""
#: The earliest time that an archive can name.
EPOCH = (1980, 1, 1, 0, 0, 0)
#: The API starts uvicorn's server itself. Its command line takes a quarter of the API's first load.
LEFT_OUT = ("click", "uvicorn/__main__.py", "uvicorn/_subprocess.py", "uvicorn/main.py", "uvicorn/supervisors")
REPLACED = {"uvicorn/__init__.py": b"from uvicorn.config import Config\nfrom uvicorn.server import Server\n"}
#: Of a library's own description only what its licence asks for.
DESCRIPTIONS = ("METADATA", "LICENSE", "LICENSE.txt", "licenses")


def contents(libraries: Path) -> Iterator[tuple[str, bytes]]:
    """Yield each file of the archive by its name: the start, the agent, the wire, and the libraries of a folder."""
    yield "__main__.py", START.encode()
    yield "bot/__init__.py", b""
    for room in ("agent", "wire"):
        for path in (BOT / room).rglob("*.py"):
            if path != Path(__file__):
                yield f"bot/{path.relative_to(BOT).as_posix()}", path.read_bytes()
    for path in libraries.rglob("*"):
        inside = path.relative_to(libraries)
        if path.is_file() and _belongs(inside):
            yield inside.as_posix(), REPLACED.get(inside.as_posix()) or path.read_bytes()


def _belongs(inside: Path) -> bool:
    if inside.parts[0].endswith(".dist-info"):
        return inside.parts[1] in DESCRIPTIONS
    if any(inside.is_relative_to(one) for one in LEFT_OUT):
        return False
    return inside.suffix == ".py" and inside.name != "example.py"


def archive(libraries: Path) -> bytes:
    """Return the archive, which `python3` runs as it is."""
    written = io.BytesIO(b"#!/usr/bin/env python3\n")
    written.seek(0, io.SEEK_END)
    with zipfile.ZipFile(written, "a", zipfile.ZIP_STORED) as file:
        for name, content in sorted(contents(libraries)):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.external_attr = 0o644 << 16
            file.writestr(entry, content)
    return written.getvalue()


def main(arguments: list[str]) -> int:
    """Write the archive: `python -m bot.agent.build LIBRARIES OUT`."""
    libraries, out = map(Path, arguments)
    built = archive(libraries)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(built)
    print(f"{out}: {len(built) // 1024} KiB, SHA-256 {hashlib.sha256(built).hexdigest()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
