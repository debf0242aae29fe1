"""What a create call brought becomes a folder: paths lead into it, and its programs answer as the hardware is."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path

import pytest

from bot.rules.instances.startup_script import bootstrap
from providers.images import Vendor
from providers.sandbox.machines import Flaw, SandboxMachine
from providers.sandbox.nodes.boot import File, NodeBoot, container, virtual_machine
from providers.sandbox.nodes.first_process import descendants, processes
from providers.sandbox.nodes.folders import moved, prepare, set_hardware
from providers.sandbox.nodes.inside import nvidia_smi, rocm_smi
from providers.sandbox.nodes.process_nodes import CONFINED, NOT_CONFINED, WARNING, ProcessNodes

MACHINE = SandboxMachine("RTX4090", 2)
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ a@b"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mkdir -p /root/.ssh && cd /workspace", "mkdir -p R/root/.ssh && cd R/workspace"),
        ("A=/tmp/x; echo '/opt/gpu-shopper/env'", "A=R/tmp/x; echo 'R/opt/gpu-shopper/env'"),
        ("case $1 in /home/*) u=${1#/home/};; esac", "case $1 in R/home/*) u=${1#R/home/};; esac"),
        ("curl https://host/root/file /usr/bin/env $HOME/root", "curl https://host/root/file /usr/bin/env $HOME/root"),
        ("cat /rootless /tmpfile R/root/x", "cat /rootless /tmpfile R/root/x"),
        ("printf x > /etc/profile.d/gpu-shopper.sh", "printf x > R/etc/profile.d/gpu-shopper.sh"),
    ],
)
def test_only_the_machines_own_paths_are_moved(text: str, expected: str) -> None:
    root = Path("/tmp/nodes/one")  # noqa: S108 # Nothing is written there.
    assert moved(text.replace("R/", f"{root}/"), root) == expected.replace("R/", f"{root}/")


def test_a_script_in_base64_is_moved_too(tmp_path: Path) -> None:
    script = base64.b64encode(b"mkdir -p /workspace/data && echo /root/.ssh/authorized_keys").decode()
    found = moved(f"bash -c 'echo {script} | base64 -d > /tmp/onstart.sh'", tmp_path)
    inner = base64.b64decode(found.split("echo ")[1].split(" |")[0]).decode()
    assert inner == f"mkdir -p {tmp_path}/workspace/data && echo {tmp_path}/root/.ssh/authorized_keys"
    assert found.endswith(f"> {tmp_path / 'tmp'}/onstart.sh'")


def test_no_path_of_the_real_start_script_leads_outside(tmp_path: Path) -> None:
    script = moved(bootstrap({"HF_HOME": "/workspace/hf"}, ["/workspace", "/home/ubuntu/data"], agent=True), tmp_path)
    outside = script.replace(str(tmp_path), "")
    for place in ("/opt/gpu-shopper", "/etc/profile.d", "/workspace", "/home", "/var/lib/cloud"):
        assert script.count(place) == script.count(f"{tmp_path}{place}") > 0, outside


def test_a_container_gets_its_variables_and_no_ports(tmp_path: Path) -> None:
    boot = container(MACHINE, "echo /root", {"A": "/workspace/a", "-p 8000:8000": "1"}, (KEY,))
    said = prepare(tmp_path, boot, "http://127.0.0.1:1/vast")
    assert said["commands"] == [f"echo {tmp_path}/root"]
    assert said["variables"]["A"] == f"{tmp_path}/workspace/a"
    assert said["variables"]["GPU_SHOPPER_CLOUD_URL"] == "http://127.0.0.1:1/vast"
    assert "-p 8000:8000" not in said["variables"]
    assert "A" not in said["login"]
    assert (tmp_path / "root/.ssh/authorized_keys").read_text() == f"{KEY}\n"
    assert (tmp_path / "root/.ssh").stat().st_mode & 0o777 == 0o700


def test_a_virtual_machine_boots_as_cloud_init_does(tmp_path: Path) -> None:
    document = {
        "ssh_authorized_keys": [KEY],
        "write_files": [{"path": "/opt/gpu-shopper/env", "permissions": "0600", "content": "export A=/root/a\n"}],
        "runcmd": [". /opt/gpu-shopper/env && true"],
    }
    boot = virtual_machine(SandboxMachine("A10", 1, user="ubuntu"), "#cloud-config\n" + json.dumps(document), ())
    assert boot.files == (File("/opt/gpu-shopper/env", "export A=/root/a\n", 0o600),)
    first = prepare(tmp_path, boot, "")
    env = tmp_path / "opt/gpu-shopper/env"
    assert (env.read_text(), env.stat().st_mode & 0o777) == (f"export A={tmp_path}/root/a\n", 0o600)
    assert first["commands"] == [f". {tmp_path}/opt/gpu-shopper/env && true"]
    assert KEY in (tmp_path / "home/ubuntu/.ssh/authorized_keys").read_text()
    assert KEY not in (tmp_path / "root/.ssh/authorized_keys").read_text()
    (again,) = prepare(tmp_path, boot, "")["commands"]
    assert "per-boot" in again


@pytest.mark.parametrize("document", ["no json", "#cloud-config\nno json", "", [1]])
def test_a_document_that_is_none_boots_nothing(document: object) -> None:
    assert virtual_machine(MACHINE, document, (KEY,)) == NodeBoot(
        MACHINE, keys=(KEY,), log="/var/log/cloud-init-output.log", per_boot="/var/lib/cloud/scripts/per-boot"
    )


def test_a_new_container_keeps_only_what_outlives_it(tmp_path: Path) -> None:
    def boot(number: str) -> NodeBoot:
        return container(MACHINE, "true", {}, (KEY,), container=number, kept=("/workspace",))

    prepare(tmp_path, boot("1"), "")
    for place in ("workspace/kept", "root/lost"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).touch()
    prepare(tmp_path, boot("1"), "")
    assert (tmp_path / "root/lost").exists()
    prepare(tmp_path, boot("2"), "")
    assert (tmp_path / "workspace/kept").exists()
    assert not (tmp_path / "root/lost").exists()
    assert (tmp_path / "root/.ssh/authorized_keys").read_text() == f"{KEY}\n"


def test_the_gpu_tool_says_what_is_in_the_machine(tmp_path: Path) -> None:
    set_hardware(tmp_path, MACHINE)
    query = ["--query-gpu=name,memory.total,driver_version,utilization.gpu,fan.speed"]
    assert nvidia_smi.answer(tmp_path, query) == (
        0, "\n".join(["NVIDIA GeForce RTX 4090, 24432, 580.65.06, 0, [N/A]"] * 2)
    )  # fmt: skip
    (tmp_path / "busy").touch()
    assert nvidia_smi.answer(tmp_path, ["--query-gpu=utilization.gpu"]) == (0, "96\n96")
    assert nvidia_smi.answer(tmp_path, ["-L"])[1].splitlines()[1] == "GPU 1: NVIDIA GeForce RTX 4090"
    assert "CUDA Version                              : 13.0" in nvidia_smi.answer(tmp_path, ["-q"])[1]
    set_hardware(tmp_path, SandboxMachine("RTX4090", 1, flaws=frozenset({Flaw.MISSING_GPU})))
    assert nvidia_smi.answer(tmp_path, query) == (6, "No devices were found")
    set_hardware(tmp_path, SandboxMachine("RTX4090", 1, flaws=frozenset({Flaw.HUNG_GPU})))
    assert nvidia_smi.answer(tmp_path, query)[0] == 255
    set_hardware(tmp_path, MACHINE, count=1)
    assert nvidia_smi.answer(tmp_path, ["-L"])[1].count("GPU") == 1


def test_a_card_of_amd_has_its_own_tool(tmp_path: Path) -> None:
    machine = SandboxMachine("MI300X", 1)
    prepare(tmp_path, container(machine, "true", {}, ()), "")
    said = json.loads(rocm_smi.answer(tmp_path))
    assert said["card0"]["Card Series"]
    assert "rocm_smi.py" in (tmp_path / "bin/rocm-smi").read_text()
    assert "not found" in (tmp_path / "bin/nvidia-smi").read_text()
    assert Vendor.AMD


def test_a_process_tree_is_read_from_the_system() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:  # Every system of a test has it.
        try:
            assert processes()[child.pid][0] == os.getpid()
            assert child.pid in descendants(os.getpid())
        finally:
            child.kill()
    assert child.pid not in descendants(os.getpid())


def test_it_says_what_runs_where(tmp_path: Path) -> None:
    assert ProcessNodes(tmp_path / "a", confined=True).explained() == f"{WARNING} {CONFINED}"
    assert ProcessNodes(tmp_path / "b", confined=False).explained() == f"{WARNING} {NOT_CONFINED}"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
