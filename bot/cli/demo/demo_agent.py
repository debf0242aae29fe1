"""Find the agent for the demo's real machines: the one that `make agent` built, else one with libraries from here."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from bot.services.runtime.agent_archive import AgentArchive

REQUIREMENTS = Path(__file__).parents[2] / "agent" / "requirements.txt"


def demo_agent(folder: Path) -> AgentArchive | None:
    """Return the built agent; without one, build it in this folder from these sources and the installed libraries.

    It downloads nothing, so its libraries may have other versions than the ones that `make agent` locks.
    """
    if found := AgentArchive.read(None):
        return found
    libraries, file = folder / "libraries", folder / "agent.pyz"
    for name in re.findall(r"^([a-z0-9-]+)==", REQUIREMENTS.read_text("utf-8"), re.MULTILINE):
        copy_library(name, libraries)
    command = (sys.executable, "-m", "bot.agent.build", str(libraries), str(file))
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 # Our own interpreter and module.
    return AgentArchive.read(file)


def copy_library(name: str, to: Path) -> None:
    """Copy an installed library's Python files and its licence; nothing where it is not installed."""
    try:
        files = metadata.files(name) or []
    except metadata.PackageNotFoundError:
        return
    for one in files:
        source = Path(str(one.locate()))
        if ".." not in one.parts and "__pycache__" not in one.parts and source.is_file():
            place = to / one
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(source.read_bytes())
