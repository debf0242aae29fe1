"""A machine that is a process tree: logins, files, power, hardware, and that nothing of it is ever left."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import asyncssh
import httpx
import pytest

from bot.rules.instances.gpu_check import COMMANDS, read
from bot.rules.instances.gpu_speed import SPEED_COMMAND, SPEED_PROGRAM, read_speed
from providers.gpus.table import GPUS
from providers.images import Vendor
from providers.sandbox.machines import Flaw, SandboxMachine
from providers.sandbox.nodes.first_process import processes
from tests.providers.sandbox.nodes.machines import KEY, LOOK_S, WAIT_S, Machines, machines, marked

pytestmark = pytest.mark.slow
#: What no machine may write.
OUTSIDE = (Path("/workspace-file"), Path("/etc/gpu-shopper-test"))
SMI = COMMANDS[Vendor.NVIDIA]


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Machines]:
    """A machine without bubblewrap, which is not everywhere."""
    async with machines(tmp_path, confined=False) as built:
        yield built


async def test_a_login_runs_commands_in_the_machines_own_home(here: Machines) -> None:
    await here.on(here.boot(script="echo began >/workspace/began; mkdir -p /root/deep", NAME="/workspace/x"))
    ran = await here.run("pwd; cat; echo wrong >&2; exit 7", b"typed\n")
    assert (ran.stdout.decode(), ran.stderr, ran.returncode) == (f"{here.root}/root\ntyped\n", b"wrong\n", 7)
    assert (await here.run("exec 2>&-; sleep 0.2; echo late")).stdout == b"late\n"
    long = await here.run("head -c 3000000 /dev/zero")
    assert len(long.stdout) == 3_000_000
    env = (await here.run("env")).stdout.decode()
    assert "GPU_SHOPPER_SANDBOX_NODE" in env
    assert not [name for name in ("PYTEST_CURRENT_TEST", "SSH_AUTH_SOCK", "OLDPWD") if f"{name}=" in env]


async def test_other_keys_and_unknown_users_are_refused(here: Machines) -> None:
    await here.on()
    assert (await here.run("true", user="nobody")).returncode == 255
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(here.folder / "key")
    assert (await here.run("true")).returncode == 255


async def test_files_are_copied_there_and_back(here: Machines) -> None:
    await here.on()
    (here.folder / "sent").write_text("some text")
    assert (await here.copy(str(here.folder / "sent"), "node:/workspace-file")).returncode == 0
    assert (await here.copy("-O", str(here.folder / "sent"), "node:sent-home")).returncode == 0
    assert (here.root / "workspace-file").read_text() == (here.root / "root/sent-home").read_text() == "some text"
    assert (await here.copy("node:sent-home", str(here.folder / "back"))).returncode == 0
    assert (here.folder / "back").read_text() == "some text"
    assert not OUTSIDE[0].exists()


async def test_a_terminal_is_a_real_one(here: Machines) -> None:
    await here.on()
    port, key = here.ports.reserve(KEY), str(here.folder / "key")
    words = ["ssh", "-tt", "-F", "none", "-q", "-i", key, "-o", "StrictHostKeyChecking=no", "-p", str(port)]
    words += ["-o", f"UserKnownHostsFile={here.folder}/known", "root@127.0.0.1"]
    ran = await asyncio.to_thread(
        subprocess.run, words, input=b"tty; exit 3\n", capture_output=True, timeout=WAIT_S, check=False
    )
    assert re.search(rb"/dev/pts/[0-9]+", ran.stdout)
    assert ran.returncode == 3


async def test_its_disk_outlives_a_stop_and_goes_with_it(here: Machines) -> None:
    await here.on()
    await here.run("echo kept >~/kept; nohup setsid sleep 300 >/dev/null 2>&1 &")
    await here.off()
    assert here.left() == []
    await here.on()
    assert (await here.run("cat ~/kept")).stdout == b"kept\n"
    await here.off(exists=False)
    assert not here.root.exists()


async def test_what_hides_from_its_parents_and_its_mark_ends_with_the_machine(here: Machines) -> None:
    await here.on()
    await here.run("(env -i setsid sh -c 'echo $$ >$0; exec sleep 300' ~/pid </dev/null >/dev/null 2>&1 &)")
    hidden = int(await here.until_written("root/pid"))
    assert hidden in processes()
    await here.off()
    assert hidden not in processes()


@pytest.mark.parametrize("confined", [False, True])
async def test_a_killed_sandbox_leaves_no_process_and_no_file(tmp_path: Path, confined: bool) -> None:
    if confined and not shutil.which("bwrap"):
        pytest.skip("bubblewrap is not installed")
    program = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom tests.providers.sandbox.nodes.machines import machines\n"
        "async def main():\n"
        f"    async with machines(Path({str(tmp_path)!r}), confined={confined}) as here:\n"
        "        await here.on(here.boot(script='nohup setsid sleep 300 >/dev/null 2>&1 & touch /workspace/up'))\n"
        "        await here.until_written('hardware.json')\n"
        "        print('up', flush=True)\n"
        "        await asyncio.sleep(300)\n"
        "asyncio.run(main())\n"
    )
    sandbox = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=subprocess.PIPE)
    assert sandbox.stdout is not None
    assert await sandbox.stdout.readline() == b"up\n"
    assert marked(tmp_path / "nodes")
    sandbox.kill()
    await sandbox.wait()
    async with asyncio.timeout(WAIT_S):
        while marked(tmp_path / "nodes") or any((tmp_path / "nodes").glob("*/*")):  # noqa: ASYNC110 # They end by themselves.
            await asyncio.sleep(LOOK_S)


async def test_confined_it_writes_nothing_outside_of_its_folder(tmp_path: Path) -> None:
    if not shutil.which("bwrap"):
        pytest.skip("bubblewrap is not installed")
    outside = tmp_path / "outside"
    async with machines(tmp_path, confined=True) as here:
        await here.on()
        ran = await here.run(f"touch {outside}; touch {OUTSIDE[1]}; echo in >~/inside; ls ~; ls {Path.home()}")
        assert (here.root / "root/inside").read_text() == "in\n"
        assert not outside.exists()
        assert not OUTSIDE[1].exists()
        assert b"inside" in ran.stdout
        assert os.getpid() not in {int(one) for one in (await here.run("ls /proc | grep '^[0-9]*$'")).stdout.split()}


@pytest.mark.parametrize(
    ("flaw", "expected"),
    [
        (None, "2 × RTX4090 24"),
        (Flaw.WRONG_GPU, "2 × RTX3060 12"),
        (Flaw.MISSING_GPU, "1 × RTX4090 24"),
        (Flaw.SMALL_GPU, "2 × RTX4090 12"),
    ],
)
async def test_its_gpu_tool_shows_what_is_in_it(here: Machines, flaw: Flaw | None, expected: str) -> None:
    await here.on(here.boot(SandboxMachine("RTX4090", 2, flaws=frozenset({flaw} if flaw else ()))))
    ran = await here.run(SMI)
    seen = read(Vendor.NVIDIA, ran.stdout.decode())
    assert f"{len(seen.gpus)} × {seen.gpus[0].gpu} {round(seen.gpus[0].memory_gb)}" == expected
    assert (seen.driver, str(seen.cuda)) == ("580.65.06", "13.0")


@pytest.mark.parametrize(
    ("flaw", "said"),
    [
        (Flaw.DRIVER_MISMATCH, "Driver/library version mismatch"),
        (Flaw.HUNG_GPU, "Unable to determine the device handle"),
        (Flaw.NO_GPU_TOOL, "nvidia-smi: not found"),
        (Flaw.OLD_DRIVER, "470.256.02"),
    ],
)
async def test_a_broken_driver_says_so(here: Machines, flaw: Flaw, said: str) -> None:
    await here.on(here.boot(SandboxMachine("RTX4090", 1, flaws=frozenset({flaw}))))
    ran = await here.run(SMI)
    assert said in (ran.stdout + ran.stderr).decode()


@pytest.mark.parametrize(("flaw", "share"), [(None, 0.8), (Flaw.SLOW_GPU, 0.05)])
async def test_its_speed_is_measured_by_the_real_program(here: Machines, flaw: Flaw | None, share: float) -> None:
    await here.on(here.boot(SandboxMachine("RTX4090", 2, flaws=frozenset({flaw} if flaw else ()))))
    ran = await here.run(SPEED_COMMAND, SPEED_PROGRAM.encode())
    speed = read_speed(ran.stdout.decode())
    peak = GPUS["RTX4090"].peak_bf16_tflops
    assert speed is not None, ran.stderr
    assert peak is not None
    assert [round(float(one) / float(peak), 2) for one in speed.tflops] == [share, share]


async def test_a_training_run_reports_and_saves_when_it_is_asked(here: Machines) -> None:
    await here.on()
    own = "opt/gpu-shopper"
    (here.root / own).mkdir(parents=True)
    await here.run("nohup train-stub --step-s 0.02 >~/log 2>&1 &")
    said = json.loads(await here.until_written(f"{own}/job/report.json"))
    assert (said["job"], said["tokens_per_s"]) == ("running", 4200)
    assert (await here.run("nvidia-smi --query-gpu=utilization.gpu")).stdout.split()[0] == b"96"
    (here.root / own / "asks").write_text("save\nstop\n")
    async with asyncio.timeout(WAIT_S):
        while "stopped as asked" not in (here.root / "root/log").read_text():  # noqa: ASYNC110 # It tells nobody.
            await asyncio.sleep(LOOK_S)
    said = json.loads((here.root / own / "job/report.json").read_text())
    assert said["checkpoint"]["step"] == said["step"]
    assert (here.root / own / f"checkpoints/step-{said['step']}.json").exists()


async def test_a_model_server_streams_tokens(here: Machines) -> None:
    await here.on()
    await here.run("nohup serve-stub --model org/tiny --tokens-per-s 500 >~/log 2>&1 &")
    said = json.loads(await here.until_written("opt/gpu-shopper/serve.json"))
    assert said["model"] == "org/tiny"
    url = f"http://127.0.0.1:{said['port']}/v1/chat/completions"
    body = {"model": "org/tiny", "messages": [{"role": "user", "content": "one two three"}]}
    async with httpx.AsyncClient(trust_env=False) as client:
        whole = (await client.post(url, json=body)).json()
        assert whole["choices"][0]["message"]["content"] == "one two three"
        async with client.stream("POST", url, json={**body, "stream": True}) as answer:
            lines = [line.removeprefix("data: ") async for line in answer.aiter_lines() if line]
        assert (await client.post(url, json={})).status_code == 400
    assert lines[-1] == "[DONE]"
    parts = [json.loads(line)["choices"][0]["delta"].get("content", "") for line in lines[:-1]]
    assert parts == ["one", " two", " three", ""]


async def test_its_clocks_can_be_wrong(tmp_path: Path) -> None:
    async with machines(tmp_path, confined=False, clock_speed=100.0, calendar_off_s=-3e8) as here:
        await here.on()
        look = "import time; a = time.clock_gettime(time.CLOCK_BOOTTIME); time.sleep(10)\n"
        look += "print(time.clock_gettime(time.CLOCK_BOOTTIME) - a, time.time())"
        passed_s, calendar_s = map(float, (await here.run("python3 -", look.encode())).stdout.split())
        real_s = float((await here.run("date +%s")).stdout)
        assert 10 <= passed_s < 60
        assert -3.1e8 < calendar_s - real_s < -2.9e8
