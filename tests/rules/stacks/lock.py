"""Write the lock of each software stack: exact versions, with the SHA-256 of the wheels that a rented machine takes.

uv resolves; the wheels of other systems and the sources are left out, so that a lock fits into a check-in's answer.
Run it with `make stacks`.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from bot.rules.stacks.stack import PYTHONS, STACKS, Stack

FOLDER = Path(__file__).parents[3] / "bot/rules/stacks"
#: What every rented machine with NVIDIA GPUs and these builds is.
_SYSTEM = "platform_machine == 'x86_64' and sys_platform == 'linux'"
_HERE = re.compile(rf"(?: ;| and) {re.escape(_SYSTEM)}")
_PROJECT = """\
[project]
name = "stack"
version = "0"
requires-python = "{pythons}"
dependencies = {packages}
[tool.uv]
exclude-newer = "{as_of}T00:00:00Z"
environments = ["{system}"]
"""


def main() -> None:
    """Lock every stack."""
    for stack in STACKS.values():
        (FOLDER / f"{stack.name}.txt").write_text(lock(stack))
        print(stack.name)  # It is a program.


def lock(stack: Stack) -> str:
    """Return the lock of one stack, one requirement a line."""
    least, most = PYTHONS
    pythons = f">={least[0]}.{least[1]},<{most[0]}.{most[1] + 1}"
    with tempfile.TemporaryDirectory() as folder:
        project = _PROJECT.format(pythons=pythons, packages=list(stack.packages), as_of=stack.as_of, system=_SYSTEM)
        (Path(folder) / "pyproject.toml").write_text(project)
        _uv(folder, "lock", "--quiet")
        listed = _uv(folder, "export", "--frozen", "--no-emit-project", "--no-annotate", "--no-header", "--no-hashes")
        found = tomllib.loads((Path(folder) / "uv.lock").read_text())["package"]
    hashes = {(one["name"], one["version"]): _hashes(one) for one in found}
    return "".join(f"{_line(line, hashes)}\n" for line in listed.splitlines())


def _uv(folder: str, *words: str) -> str:
    return subprocess.run(["uv", *words], cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


def _line(listed: str, hashes: dict[tuple[str, str], list[str]]) -> str:
    line = _HERE.sub("", listed)
    name, _, version = line.partition(" ")[0].partition("==")
    return " ".join([line, *(f"--hash={one}" for one in hashes[name, version])])


def _hashes(package: dict[str, Any]) -> list[str]:
    return sorted(one["hash"] for one in package.get("wheels", ()) if _is_for_machines(one["url"].rpartition("/")[2]))


def _is_for_machines(wheel: str) -> bool:
    """Whether a wheel is for Linux on x86_64 and one of the Python versions."""
    python, abi, system = wheel.removesuffix(".whl").rsplit("-", 3)[1:]
    if system != "any" and not ("manylinux" in system and "x86_64" in system) and system != "linux_x86_64":
        return False
    if re.fullmatch(r"(?:py2\.)?py3\d*(?:\.\w+)*", python):
        return True
    found = re.fullmatch(r"cp3(\d+)", python)
    minor = int(found[1]) if found else 0
    least, most = PYTHONS[0][1], PYTHONS[1][1]
    return minor <= most and (abi == "abi3" or (minor >= least and abi == python))


if __name__ == "__main__":
    main()
