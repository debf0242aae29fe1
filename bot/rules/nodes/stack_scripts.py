"""Write the scripts that install a software stack on a machine: the check of its driver, and the Python packages."""

from __future__ import annotations

import re
import shlex

from bot.rules.stacks.stack import MACHINE, PYTHONS, Stack

#: The steps' names, and the most seconds of each. The packages are a download of some GB.
DRIVER, DRIVER_LIMIT_S = "driver", 120
PYTHON_PACKAGES, PYTHON_PACKAGES_LIMIT_S = "python packages", 2700
#: Where the packages are, in the agent's folder.
VENV = "venv"

#: Put in front of a command, and into `environment.sh`: the stack's programs come before the image's.
FIRST_IN_PATH = f"""\
VIRTUAL_ENV={{folder}}/{VENV}
case ":$PATH:" in *":$VIRTUAL_ENV/bin:"*) ;; *) PATH="$VIRTUAL_ENV/bin:$PATH";; esac
export VIRTUAL_ENV PATH
"""
_DRIVER = """\
command -v nvidia-smi >/dev/null 2>&1 || {{
  echo "nvidia-smi is missing, so the NVIDIA driver can't be checked. {name} needs driver {least} or newer."
  exit 1
}}
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1 | tr -d ' ')
case $driver in [0-9]*) ;; *) echo "nvidia-smi shows no driver. {name} needs driver {least} or newer."; exit 1;; esac
oldest=$(printf '%s\\n' {least} "$driver" | sort -V | head -n 1)
[ "$oldest" = {least} ] || {{
  echo "This machine's NVIDIA driver $driver is too old for {name}, which needs {least} or newer."
  exit 1
}}
echo "NVIDIA driver $driver; {name} needs {least} or newer."
"""
#: Exits with 0 where the image's torch is the stack's: the same release, built with the same CUDA.
_HAS_TORCH = """\
import sys, torch
same = torch.__version__.split("+")[0] == "{torch}" and torch.version.cuda == "{cuda}"
sys.exit(not same or sys.prefix != sys.base_prefix)
"""
_RIGHT_PYTHON = "import sys; sys.exit(not {least} <= sys.version_info[:2] <= {most})"
_HAS_HEADERS = """\
import os, sys, sysconfig
sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))
"""
_IMPORTED = """\
import importlib
for name in {imports}:
    importlib.import_module(name)
import torch
print("torch", torch.__version__, "sees", torch.cuda.device_count(), "GPUs.")
"""
_PYTHON_PACKAGES = """\
venv="$STARTUP_FOLDER/{venv}"
lock="$STARTUP_FOLDER/requirements.txt"
cat >"$lock" <<'END_OF_LOCK' || exit
{lock}END_OF_LOCK
if cmp -s "$lock" "$venv/installed.txt"; then echo "{name} is installed already."; exit 0; fi
machine=$(uname -m)
[ "$machine" = {machine} ] || {{ echo "{name} is for {machine} only, and this machine is $machine."; exit 1; }}
python= from_image=
for one in python3 /opt/conda/bin/python3 {pythons}; do
  "$one" -c {right_python} 2>/dev/null || continue
  [ -n "$python" ] || python=$one
  if "$one" -c {has_torch} 2>/dev/null; then python=$one from_image=--system-site-packages; break; fi
done
[ -n "$python" ] || {{ echo "{name} needs Python {first} to {last}, and this machine has none of them."; exit 1; }}
if [ -z "$from_image" ] && ! [ -e "$venv" ]; then
  free=$(df -Pk "$STARTUP_FOLDER" | tail -n 1 | tr -s ' ' | cut -d ' ' -f 4)
  [ "$free" -ge {disk_kib} ] || {{
    echo "{name} needs {disk_gb} GB of free disk, and $((free / 976563)) GB are free."
    exit 1
  }}
fi
# Debian and Ubuntu have venv and Python's headers in packages of their own. Triton compiles code while it runs.
minor=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
missing=
"$python" -c 'import ensurepip' 2>/dev/null || missing="$missing $minor-venv"
"$python" -c {has_headers} 2>/dev/null || missing="$missing $minor-dev"
command -v cc >/dev/null 2>&1 || command -v gcc >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
if [ -n "$missing" ]; then
  echo "Missing:$missing"
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get -o DPkg::Lock::Timeout=300 update &&
      apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends $missing ||
      echo "They can't be installed. Code that compiles while it runs, such as torch.compile, may fail."
  else
    echo "Only root with apt-get can install them. Code that compiles while it runs, such as torch.compile, may fail."
  fi
fi
if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
  "$python" -m venv --clear $from_image "$venv" || exit
fi
if [ -n "$from_image" ]; then
  echo "The image brings torch {torch}, so it is not downloaded again."
  grep -Ev '^(torch|triton|nvidia-[a-z0-9-]+)==' "$lock" >"$lock.less"
else
  cp "$lock" "$lock.less"
fi
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_NO_CACHE_DIR=1 PIP_PROGRESS_BAR=off
"$venv/bin/python" -m pip install --quiet --require-hashes --no-deps --only-binary :all: -r "$lock.less" || exit
"$venv/bin/python" -c {imported} || exit
cp "$lock" "$venv/installed.txt"
"""


def driver_script(stack: Stack) -> str:
    """Return the script that compares the machine's driver with the least one of a stack."""
    return _DRIVER.format(name=_said(stack), least=stack.driver)


def python_packages_script(stack: Stack) -> str:
    """Return the script that installs a stack into an environment of its own.

    It can run again: what is installed stays, and a complete one is left as it is. The image's own torch is used where
    it is the stack's.
    """
    (torch,) = stack.versions.get("torch", ("",))
    least, most = PYTHONS
    return _PYTHON_PACKAGES.format(
        name=_said(stack),
        venv=VENV,
        lock=stack.lock,
        machine=MACHINE,
        pythons=" ".join(f"python3.{minor}" for minor in range(most[1], least[1] - 1, -1)),
        right_python=shlex.quote(_RIGHT_PYTHON.format(least=least, most=most)),
        has_headers=shlex.quote(_HAS_HEADERS),
        has_torch=shlex.quote(_HAS_TORCH.format(torch=torch, cuda=stack.cuda)),
        first=".".join(map(str, least)),
        last=".".join(map(str, most)),
        disk_gb=stack.disk_gb,
        disk_kib=stack.disk_gb * 10**9 // 1024,
        torch=torch,
        imported=shlex.quote(_IMPORTED.format(imports=stack.imports)),
    )


def _said(stack: Stack) -> str:
    return f"install={stack.name}"


def in_stack(script: str) -> str:
    """Return a command's script with the stack's programs first in its PATH."""
    return FIRST_IN_PATH.format(folder='"$STARTUP_FOLDER"') + script


def exports() -> str:
    """Return what makes logins find the stack's programs first: a script that appends it to `environment.sh`."""
    text = re.sub(r"^VIRTUAL_ENV=.*\n", "", FIRST_IN_PATH)
    return (
        f'printf "VIRTUAL_ENV=\'%s/{VENV}\'\\n" "$STARTUP_FOLDER" >>"$STARTUP_FOLDER/environment.sh"\n'
        f'printf %s {shlex.quote(text)} >>"$STARTUP_FOLDER/environment.sh"\n'
    )
