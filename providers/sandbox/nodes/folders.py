"""Give a machine a folder of its own on this one: its files lie there, and what it starts with points there.

Nothing is written outside: every path of the machine in a start script, a variable or a command is moved below it.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import socket
import sys
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from providers.gpus.table import GPUS
from providers.images import Vendor
from providers.sandbox.machines import (
    CUDA,
    DRIVER,
    MIB_PER_GB,
    OLD_CUDA,
    OLD_DRIVER,
    UNKNOWN_GB,
    Flaw,
    SandboxMachine,
    product_name,
)
from providers.sandbox.nodes.boot import NodeBoot, home_of

INSIDE = Path(__file__).parent / "inside"
#: Where a machine's own files are, as they stand in scripts. Everything else is read from the host.
_PLACES = (
    "etc/profile.d", "etc/ssh", "home", "lambda", "mnt", "opt/gpu-shopper", "root", "start.sh", "tmp",
    "var/lib/cloud", "var/log", "workspace",
)  # fmt: skip
_PATH = re.compile(rf"(?<![\w./$}}])/(?=(?:{'|'.join(map(re.escape, _PLACES))})(?![\w-]))", re.ASCII)
_ENCODED = re.compile(r"(?<=echo )([A-Za-z0-9+/]{40,}=*)(?= \| base64 -d)", re.ASCII)
#: A file of the stubs → its name in the machine's folder of Python modules.
_MODULES = {"fake_torch.py": "torch.py", "fake_nvml.py": "pynvml.py", "hardware.py": "sitecustomize.py"}
#: Programs that would act on the host, or take long: on a machine of the sandbox they do nothing.
_HARMLESS = ("apt-get", "chown", "docker", "systemctl", "shutdown", "poweroff", "reboot", "halt", "loginctl")
_NOTHING = "#!/bin/sh\nexit 0\n"
#: `runuser -u NAME -- COMMAND` and `sudo COMMAND`: there is one user.
_AS_OTHER = """\
#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in -u) shift 2 ;; --) shift; break ;; -*) shift ;; *) break ;; esac
done
[ $# -eq 0 ] || exec "$@"
"""
#: Python. An environment of it has programs that install nothing, so that nobody's computer downloads some GB.
_PYTHON = """\
#!/bin/sh
if [ "$1 $2" = "-m venv" ]; then
  for folder in "$@"; do :; done
  mkdir -p "$folder/bin"
  cat >"$folder/bin/python" <<'END'
#!/bin/sh
case "$1 $2" in
  "-m pip") exit 0 ;;
  "-c import importlib"*) echo "The sandbox installs no packages."; exit 0 ;;
esac
exec {python} "$@"
END
  chmod +x "$folder/bin/python"
  exit 0
fi
exec {python} "$@"
"""
#: Every machine has the processor and the free disk of a rented one.
_UNAME = '#!/bin/sh\n[ "$*" != -m ] || { echo x86_64; exit 0; }\nexec /bin/uname "$@"\n'
_DF = "#!/bin/sh\necho Filesystem 1024-blocks Used Available Capacity Mounted on\necho disk 9 9 900000000 1% /\n"
_MISSING = '#!/bin/sh\necho "sh: 1: {}: not found" >&2\nexit 127\n'
#: The marker in the environment of every process of a machine; its value is the machine's folder.
MARK = "GPU_SHOPPER_SANDBOX_NODE"


def moved(text: str, root: Path) -> str:
    """Return a text in which every path of the machine leads into its folder, the one in base64 included."""

    def recoded(found: re.Match[str]) -> str:
        inner = base64.b64decode(found[0]).decode()
        return base64.b64encode(moved(inner, root).encode()).decode()

    def below(found: re.Match[str]) -> str:
        return found[0] if found.string.startswith(str(root), found.start()) else f"{root}/"

    return _PATH.sub(below, _ENCODED.sub(recoded, text))


def prepare(root: Path, boot: NodeBoot, cloud_url: str) -> dict[str, Any]:
    """Make or refresh the machine's folder. Returns its variables, commands and log for its first process."""
    root.mkdir(parents=True, exist_ok=True)
    _wipe_container(root, boot)
    is_first = not (root / "booted").exists()
    for place in ("bin", "lib", "tmp", "var/log", "etc/profile.d", "etc/ssh", "var/lib/cloud/scripts/per-boot"):
        (root / place).mkdir(parents=True, exist_ok=True)
    set_hardware(root, boot.machine)
    _write_programs(root, boot.machine)
    if is_first:
        for file in boot.files:
            path = root / file.path.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(moved(file.content, root))
            path.chmod(file.mode)
        for user in {"root", boot.machine.user}:
            authorize(root, user, boot.keys if user == boot.machine.user else ())
    variables = {name: moved(value, root) for name, value in boot.variables.items()}
    commands = [moved(command, root) for command in boot.commands]
    if boot.per_boot:
        scripts = f'for one in {root}{boot.per_boot}/*; do [ ! -x "$one" ] || "$one"; done'
        commands = commands if is_first else [scripts]
    (root / "booted").touch()
    home = root / str(home_of(boot.machine.user)).lstrip("/")
    base = environment(root, home)
    return {
        "root": str(root),
        "home": str(home),
        "user": boot.machine.user,
        "login": base,
        "variables": base | variables | {"GPU_SHOPPER_CLOUD_URL": cloud_url},
        "commands": commands,
        "log": str(root) + boot.log,
        "no_login": Flaw.NO_LOGIN in boot.machine.flaws,
        "new_host_key": Flaw.NEW_HOST_KEY in boot.machine.flaws,
        "other_host_key": Flaw.OTHER_HOST_KEY in boot.machine.flaws,
    }


def environment(root: Path, home: Path) -> dict[str, str]:
    """Return the whole environment of a login: nothing of this process's own is in it."""
    return {
        "PATH": f"{root}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(home),
        "TMPDIR": str(root / "tmp"),
        "LANG": "C.UTF-8",
        "PYTHONPATH": f"{root}/lib",
        "PYTHONDONTWRITEBYTECODE": "1",
        "GPU_SHOPPER_AGENT_FOLDER": f"{root}/opt/gpu-shopper/agent",
        "LOGINS": f"{root}/etc/profile.d",
        "GPU_SHOPPER_MACHINE_ROOT": str(root),
        "GPU_SHOPPER_API_PORT": str(api_port(root)),
        MARK: str(root),
    }


def api_port(root: Path) -> int:
    """Return the port of the agent's API on one machine, the same each time: all machines share this computer's."""
    kept = root / "api-port"
    if not kept.exists():
        with socket.create_server(("127.0.0.1", 0)) as free:
            kept.write_text(str(free.getsockname()[1]))
    return int(kept.read_text())


def authorize(root: Path, user: str, keys: tuple[str, ...]) -> None:
    """Make the home of a user, and let these keys log in to it beside those that are there."""
    folder = root / str(home_of(user)).lstrip("/") / ".ssh"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    with (folder / "authorized_keys").open("a") as file:
        file.writelines(f"{key}\n" for key in keys)
    (folder / "authorized_keys").chmod(0o600)


def set_hardware(root: Path, machine: SandboxMachine, **more: Any) -> None:
    """Write what the machine's GPUs are; its programs read it anew each time, so it can be changed while it runs."""
    gpu = machine.other_gpu if Flaw.WRONG_GPU in machine.flaws else machine.gpu
    known, flaws = GPUS.get(gpu), machine.flaws
    nominal_gb = Decimal(known.memory_gb if known else UNKNOWN_GB) / (2 if Flaw.SMALL_GPU in flaws else 1)
    is_old, is_slow = Flaw.OLD_DRIVER in flaws, Flaw.SLOW_GPU in flaws
    share = Decimal("0.05") if is_slow else Decimal("0.8")
    hardware: Mapping[str, Any] = {
        "name": product_name(gpu),
        "vendor": str(known.vendor) if known else str(Vendor.NVIDIA),
        "count": machine.gpu_count - (Flaw.MISSING_GPU in flaws),
        "memory_mib": int(nominal_gb * MIB_PER_GB),
        "driver": OLD_DRIVER if is_old else DRIVER,
        "cuda": OLD_CUDA if is_old else CUDA,
        "tflops": float((known.peak_bf16_tflops or 0) * share) if known else 0.0,
        "capability": float(known.compute_capability or 0) if known else 0.0,
        "fault": next((str(one) for one in (Flaw.DRIVER_MISMATCH, Flaw.HUNG_GPU) if one in flaws), ""),
    }
    new = root / "hardware.new"
    new.write_text(json.dumps({**hardware, **more}))
    new.replace(root / "hardware.json")
    if known is not None and known.vendor is Vendor.AMD:
        _write_sysfs(root, {**hardware, **more})


def _write_sysfs(root: Path, hardware: Mapping[str, Any]) -> None:
    """Write the files in which Linux's driver describes the cards of AMD."""
    for number in range(hardware["count"]):
        device, node = root / f"sys/class/drm/card{number}/device", f"renderD{128 + number}"
        for folder in (device / "drm" / node, device / "hwmon/hwmon0", root / "dev/dri"):
            folder.mkdir(parents=True, exist_ok=True)
        (root / "dev/dri" / node).touch()
        memory = hardware["memory_mib"] << 20
        said = {"vendor": "0x1002", "device": "0x74a1", "product_name": hardware["name"], "gpu_busy_percent": 0}
        said |= {"mem_info_vram_total": memory, "mem_info_vram_used": memory // 100, "hwmon/hwmon0/temp2_input": 41000}
        for name, value in said.items():
            (device / name).write_text(f"{value}\n")


def _write_programs(root: Path, machine: SandboxMachine) -> None:
    """Write the machine's commands: Python, the GPU tool of its vendor, and those that must not act on the host."""
    gpu = machine.other_gpu if Flaw.WRONG_GPU in machine.flaws else machine.gpu
    vendor = known.vendor if (known := GPUS.get(gpu)) else Vendor.NVIDIA
    has_tool = Flaw.NO_GPU_TOOL not in machine.flaws
    python = Path(sys.executable).resolve()
    inside = f'#!/bin/sh\nexec {python} -I -S {root}/lib/{{}} {root} "$@"\n'
    tools = {"nvidia-smi": (Vendor.NVIDIA, "nvidia_smi.py"), "rocm-smi": (Vendor.AMD, "rocm_smi.py")}
    programs = {
        "python3": _PYTHON.format(python=python),
        "df": _DF,
        "uname": _UNAME,
        "runuser": _AS_OTHER,
        "sudo": _AS_OTHER,
        **dict.fromkeys(_HARMLESS, _NOTHING),
        **{
            tool: inside.format(program) if has_tool and vendor is its_vendor else _MISSING.format(tool)
            for tool, (its_vendor, program) in tools.items()
        },
        **{tool: inside.format(f"{tool.replace('-', '_')}.py") for tool in ("train-stub", "serve-stub")},
        "vllm": inside.format("serve_stub.py"),
        **dict.fromkeys(("jupyter", "tensorboard"), inside.format("pages_stub.py")),
    }
    for name, text in programs.items():
        (root / "bin" / name).write_text(text)
        (root / "bin" / name).chmod(0o755)
    for source in INSIDE.glob("[a-z]*.py"):
        name = _MODULES.get(source.name, source.name)
        if name != "torch.py" or machine.has_torch:
            shutil.copyfile(source, root / "lib" / name)
    rc = f'for one in {root}/etc/profile.d/*.sh; do [ ! -r "$one" ] || . "$one"; done\nPS1="\\u@node:\\w\\$ "\n'
    (root / "etc/bashrc").write_text(rc)


def _wipe_container(root: Path, boot: NodeBoot) -> None:
    """Give a new container of a machine a fresh disk, with the folders that outlive it."""
    note = root / "container"
    if note.exists() and note.read_text() != boot.container:
        for place in ("root", "home", "opt", "tmp", "var", "etc/profile.d", "etc/ssh", "workspace"):
            if f"/{place}" not in boot.kept:
                shutil.rmtree(root / place, ignore_errors=True)
        (root / "booted").unlink(missing_ok=True)
    note.write_text(boot.container)
