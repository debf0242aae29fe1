"""Find the programs of others that some tests need, or install Debian's packages of them when run as root.

They are Chromium for the browser tests, bubblewrap for machines that are confined, and OpenSSH's server. Run as a
program by the Makefile: `--install` may install; without it, it only says what the tests will do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
INSTALL_TIMEOUT_S = 600
FONTS = ("fonts-dejavu-core", "fonts-noto-color-emoji")
SSH_SERVER = "/usr/sbin/sshd"
#: Here systemd manages services: it would start Debian's SSH server at the next boot. So none is installed.
SYSTEMD = Path("/run/systemd/system")
#: Debian asks it before it starts a service at an installation; 101 means no.
START_POLICY = Path("/usr/sbin/policy-rc.d")


def find() -> str | None:
    """The path of a Chromium, from CHROMIUM or from the search path; None when there is none."""
    named = os.environ.get("CHROMIUM")
    if named:
        return named if Path(named).exists() else None
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def wanted() -> list[str]:
    """The packages of what is missing here."""
    packages = [] if find() else ["chromium", *FONTS]
    packages += [] if shutil.which("bwrap") else ["bubblewrap"]
    return packages + ([] if shutil.which(SSH_SERVER) or SYSTEMD.is_dir() else ["openssh-server"])


def install() -> None:
    """Install them, when this is Debian and we may. Failing is no error: the tests that need them are left out then."""
    packages = wanted()
    if not packages or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    with _no_service_starts():
        for step in (["apt-get", "update", "-qq"], install):
            try:
                subprocess.run(
                    step, env=environment, check=True, timeout=INSTALL_TIMEOUT_S, stdin=subprocess.DEVNULL, stdout=2
                )
            except (subprocess.SubprocessError, OSError) as error:
                sys.stderr.write(f"{', '.join(packages)} could not be installed ({error}).\n")
                return


@contextmanager
def _no_service_starts() -> Iterator[None]:
    """Let no package start its service; a policy that is there already stays as it is."""
    is_ours = not START_POLICY.exists()
    try:
        if is_ours:
            START_POLICY.write_text("#!/bin/sh\nexit 101\n")
            START_POLICY.chmod(0o755)
        yield
    finally:
        if is_ours:
            START_POLICY.unlink(missing_ok=True)


def main() -> None:
    """Install when asked to, and say in a line each what the tests will do."""
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
    for name, program in (("bubblewrap", "bwrap"), ("openssh-server", SSH_SERVER)):
        if shutil.which(program) is None:
            sys.stdout.write(f"No {name} here: the tests of real machines with it are left out.\n")


if __name__ == "__main__":
    main()
