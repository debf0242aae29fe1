"""`--real-nodes`, as somebody tries it by hand: log in to the machine, train there, and leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import asyncssh
import pytest

from bot.cli.demo.demo_script import violations
from bot.cli.demo.demo_stack import playground
from ledger.engine.db import Database
from ledger.models import Node
from ledger.queries.audit import read_books
from tests.cli.test_commands import LIMIT_S, elsewhere, run
from tests.providers.sandbox.nodes.machines import LOOK_S, marked
from tests.scenarios.processes.processes import PROGRAM
from tests.support.personas import Screens

pytestmark = pytest.mark.slow

__all__ = ["elsewhere"]
SENTENCE = "commands that you send to it really run here, as your user."


def test_the_headless_demo_walks_over_real_machines() -> None:
    code, out, _ = run("demo", "--headless", "--real-nodes")
    assert code == 0, out
    assert out.rstrip().endswith("Every invariant holds.")


async def test_a_person_logs_in_trains_and_reads_the_tokens_per_second(elsewhere: Path, tmp_path: Path) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(tmp_path / "key")
    (tmp_path / "key").chmod(0o600)
    async with playground(port=0, seed=7, boot_s=0.5, real_nodes=True) as running:
        assert SENTENCE in running.explained
        processes = next(iter(running.clouds.values())).engine.processes
        assert processes is not None
        processes.clock_speed = 20  # A minute between two check-ins takes three seconds.
        ws = running.practice.driver
        screens = Screens(ws)
        await ws.as_("alice").command(f"/gpu key add {key.export_public_key().decode()}")
        await ws.as_("alice").command('/gpu provision 1x4090 2h for="fine-tune"')
        await ws.as_("bob").click(await screens.offers(), "approve:1")
        await screens.wrote("alice", "ssh -p")
        (row,) = (await read_books(running.ctx.db)).instances
        words = ["ssh", "-F", "none", "-q", "-i", str(tmp_path / "key"), "-p", str(row.ssh_port), "-o", "BatchMode=yes"]
        words += ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", f"root@{row.ssh_host}"]

        async def said(command: str) -> str:
            ran = await asyncio.to_thread(
                subprocess.run, [*words, command], capture_output=True, text=True, timeout=LIMIT_S, check=True
            )
            return str(ran.stdout)

        assert "GeForce RTX 4090" in await said("nvidia-smi -L")
        assert "The agent was fetched." in await said("cat /opt/gpu-shopper/agent.log")
        await said("nohup train-stub >log 2>&1 </dev/null & sleep 0.5; cat log")
        await reported(running.ctx.db, row.id)
        await ws.as_("alice").command(f"/gpu status {row.session_id}")
        await ws.as_("alice").click(await screens.told("alice", "is *running*"), "Details")
        await screens.told("alice", "4,200 tokens/s")
        await ws.as_("alice").command(f"/gpu terminate {row.session_id} now")
        await screens.wrote("alice", "* ended.")
        assert await violations(running) == []
        await gone(processes.folder)


async def reported(db: Database, instance_id: str) -> None:
    """Wait until the agent reported a speed."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            async with db.read() as tx:
                if (await tx.get_one(Node, instance_id)).report.get("tokens_per_s"):
                    return
            await asyncio.sleep(LOOK_S)  # A check-in wakes nobody here.


async def gone(folder: Path) -> None:
    """Wait until no process of a machine is left."""
    async with asyncio.timeout(LIMIT_S):
        while marked(folder):  # noqa: ASYNC110 # They end by themselves.
            await asyncio.sleep(LOOK_S)


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGKILL])
def test_a_sandbox_that_ends_leaves_no_process(tmp_path: Path, name: signal.Signals) -> None:
    pipe, env = subprocess.PIPE, {**os.environ, "TMPDIR": str(tmp_path)}
    command = [PROGRAM, "sandbox", "--quick", "--real-nodes", "--port", "0"]
    with subprocess.Popen(command, stdout=pipe, text=True, env=env) as process:
        assert process.stdout is not None
        assert SENTENCE in " ".join(process.stdout.readline().split())
        process.send_signal(name)
        process.wait(LIMIT_S)
    assert marked(tmp_path) == []
