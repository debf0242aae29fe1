"""Finds a Chromium for the browser tests, or installs Debian's when run as root; says plainly when there is none.

Run as a program by the Makefile: `--install` may install; without it, it only says what the tests will do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
INSTALL_TIMEOUT_S = 600


def find() -> str | None:
    """The path of a Chromium, from CHROMIUM or from the search path; None when there is none."""
    named = os.environ.get("CHROMIUM")
    if named:
        return named if Path(named).exists() else None
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def install() -> None:
    """Debian's package, when this is Debian and we may. Failing is no error: the browser tests are left out then."""
    if find() or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    steps = (
        ["apt-get", "update", "-qq"],
        [
            "apt-get",
            "install",
            "-y",
            "-qq",
            "--no-install-recommends",
            "chromium",
            "fonts-dejavu-core",
            "fonts-noto-color-emoji",
        ],
    )
    for step in steps:
        try:
            subprocess.run(
                step, env=environment, check=True, timeout=INSTALL_TIMEOUT_S, stdin=subprocess.DEVNULL, stdout=2
            )
        except (subprocess.SubprocessError, OSError) as error:
            sys.stderr.write(f"Chromium could not be installed ({error}).\n")
            return


def main() -> None:
    """Install when asked to, and say in one line what the browser tests will do."""
    if "--install" in sys.argv[1:]:
        install()
    path = find()
    if path is None:
        sys.stdout.write(
            "No Chromium here: the browser tests are left out. With one (apt-get install chromium, or CHROMIUM=path) "
            "they run.\n"
        )
    else:
        sys.stdout.write(f"Browser tests run with {path}.\n")


if __name__ == "__main__":
    main()
