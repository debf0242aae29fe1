"""The installation of a software stack, in a real shell with a small stack of its own and a pip without a network."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from bot.rules.nodes.stack_scripts import driver_script, python_packages_script
from bot.rules.stacks.stack import STACKS, Stack

#: A torch of the same release as the one in the small stack; what people import of it, and what the check reads.
TORCH = """\
__version__ = "9.9.1{build}"
from types import SimpleNamespace
version = SimpleNamespace(cuda="12.8")
cuda = SimpleNamespace(device_count=lambda: 2)
"""


def wheel(folder: Path, name: str, version: str, text: str) -> str:
    """A wheel with one module; returns its line in a lock."""
    file, about = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"{name}.py", text)
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: a\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{about}/RECORD", "")
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}\n"


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    """Two packages that a machine installs in seconds, from wheels in a folder."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    lock = wheel(wheels, "torch", "9.9.1", TORCH.format(build="")) + wheel(wheels, "tiny", "1.2", "answer = 42\n")
    return replace(STACKS["train"], lock=lock, imports=("tiny",), disk_gb=0)


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """What comes first in PATH: the Python that this one's environment was made of."""
    folder = tmp_path / "bin"
    folder.mkdir()
    put(folder, "cc", "")
    put(folder, "id", "echo 1000")  # Nothing is installed on the computer that runs the tests.
    (folder / "python3").symlink_to(Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}").resolve())
    return folder


def put(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


def shell(text: str, tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    own = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "HOME": str(tmp_path), "STARTUP_FOLDER": str(tmp_path)}
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels"), "PIP_CONFIG_FILE": os.devnull}
    return subprocess.run(
        ["/bin/sh", "-c", text], capture_output=True, text=True, check=False, env={**own, **pip, **environment}
    )


def site(tmp_path: Path) -> set[str]:
    """What is installed in the environment itself."""
    (found,) = (tmp_path / "venv/lib").glob("python3.*/site-packages")
    return {one.stem for one in found.glob("*.py")}


@pytest.mark.slow
def test_the_packages_are_installed_once_and_a_broken_installation_is_completed(
    stack: Stack, bin_folder: Path, tmp_path: Path
) -> None:
    script = python_packages_script(stack)
    first = shell(script, tmp_path)
    assert (first.returncode, first.stdout.splitlines()[-1]) == (0, "torch 9.9.1 sees 2 GPUs."), first.stderr
    assert {"torch", "tiny"} <= site(tmp_path)
    again = shell(script, tmp_path)
    assert (again.returncode, again.stdout) == (0, "install=train is installed already.\n")
    # A machine that was switched off in the middle has no note that all is there.
    (tmp_path / "venv/installed.txt").unlink()
    (found,) = (tmp_path / "venv/lib").glob("python3.*/site-packages")
    (found / "tiny.py").unlink()
    shutil.rmtree(found / "tiny-1.2.dist-info")
    assert shell(script, tmp_path).returncode == 0
    assert "tiny" in site(tmp_path)


@pytest.mark.slow
def test_a_wheel_that_is_not_the_locked_one_is_not_installed(stack: Stack, bin_folder: Path, tmp_path: Path) -> None:
    wrong = replace(stack, lock=re.sub(r"(?<=sha256:)[0-9a-f]{4}", "0000", stack.lock))
    done = shell(python_packages_script(wrong), tmp_path)
    assert (done.returncode, "DO NOT MATCH THE HASHES" in done.stderr) == (1, True)
    assert not (tmp_path / "venv/installed.txt").exists()


@pytest.mark.slow
def test_the_torch_of_the_image_is_used_where_it_is_the_right_one(
    stack: Stack, bin_folder: Path, tmp_path: Path
) -> None:
    image = tmp_path / "image"
    image.mkdir()
    (image / "torch.py").write_text(TORCH.format(build="+cu128"))
    done = shell(python_packages_script(stack), tmp_path, PYTHONPATH=str(image))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == [
        "The image brings torch 9.9.1, so it is not downloaded again.",
        "torch 9.9.1+cu128 sees 2 GPUs.",
    ]
    assert "torch" not in site(tmp_path)
    assert "tiny" in site(tmp_path)
    assert "include-system-site-packages = true" in (tmp_path / "venv/pyvenv.cfg").read_text()


@pytest.mark.parametrize(
    ("program", "body", "sentence"),
    [
        ("uname", "echo aarch64", "install=train is for x86_64 only, and this machine is aarch64."),
        ("df", "echo Avail; echo / 9 9 4000000 9", "install=train needs 13 GB of free disk, and 4 GB are free."),
    ],
)
def test_a_machine_that_does_not_fit_is_refused_before_anything_is_downloaded(
    bin_folder: Path, tmp_path: Path, program: str, body: str, sentence: str
) -> None:
    put(bin_folder, program, body)
    done = shell(python_packages_script(STACKS["train"]), tmp_path)
    assert (done.returncode, done.stdout) == (1, f"{sentence}\n")
    assert not (tmp_path / "venv").exists()


def test_a_machine_without_a_fitting_python_is_refused(bin_folder: Path, tmp_path: Path) -> None:
    for name in ("python3", *(f"python3.{minor}" for minor in range(10, 14))):
        (bin_folder / name).unlink(missing_ok=True)
        put(bin_folder, name, "exit 1")
    done = shell(python_packages_script(STACKS["train"]), tmp_path)
    assert (done.returncode, done.stdout) == (
        1,
        "install=train needs Python 3.10 to 3.13, and this machine has none of them.\n",
    )


@pytest.mark.slow
def test_what_debian_has_in_packages_of_its_own_is_installed(stack: Stack, bin_folder: Path, tmp_path: Path) -> None:
    real = (bin_folder / "python3").resolve()
    (bin_folder / "python3").unlink()
    put(bin_folder, "python3", f'case $2 in "import ensurepip"|*Python.h*) exit 1;; esac\nexec {real} "$@"')
    put(bin_folder, "id", 'echo "${USER_ID:-0}"')
    put(bin_folder, "apt-get", 'echo "$@" >>"$HOME/apt"; exit "${APT_CODE:-0}"')
    python = f"python3.{sys.version_info.minor}"
    done = shell(python_packages_script(stack), tmp_path)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, f"Missing: {python}-venv {python}-dev"), done.stderr
    assert (tmp_path / "apt").read_text().splitlines()[-1].endswith(f"recommends {python}-venv {python}-dev")
    for name, value, sentence in (("APT_CODE", "100", "They can't be installed."), ("USER_ID", "7", "Only root")):
        (tmp_path / "venv/installed.txt").unlink()
        done = shell(python_packages_script(stack), tmp_path, **{name: value})
        assert (done.returncode, done.stdout.splitlines()[1].startswith(sentence)) == (0, True)


@pytest.mark.parametrize(
    ("tool", "code", "sentence"),
    [
        ("echo 550.127.05", 0, "NVIDIA driver 550.127.05; install=train needs 525.60.13 or newer."),
        ("echo ' 525.60.13'; echo 525.60.13", 0, "NVIDIA driver 525.60.13; install=train needs 525.60.13 or newer."),
        (
            "echo 470.239.06",
            1,
            "This machine's NVIDIA driver 470.239.06 is too old for install=train, which needs 525.60.13 or newer.",
        ),
        ("echo No devices were found; exit 6", 1, "nvidia-smi shows no driver. {needs}"),
        (
            None,
            1,
            "nvidia-smi is missing, so the NVIDIA driver can't be checked. {needs}",
        ),
    ],
)
def test_the_driver_is_compared_with_the_least_one(tmp_path: Path, tool: str | None, code: int, sentence: str) -> None:
    (tmp_path / "bin").mkdir()
    if tool is not None:
        put(tmp_path / "bin", "nvidia-smi", tool)
    done = shell(driver_script(STACKS["train"]), tmp_path)
    needs = "install=train needs driver 525.60.13 or newer."
    assert (done.returncode, done.stdout) == (code, f"{sentence.format(needs=needs)}\n")
