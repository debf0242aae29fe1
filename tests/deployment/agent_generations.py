"""`make agent-generations`: the agent of an earlier release beside this service, and this agent beside that service.

Each program runs its own code: the service in its own environment with its own sandboxes, the agent from its archive.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.deployment.previous_release import COMMIT, ROOT, check_out, installed, last_line, must

#: Builds a release's agent; its API needs libraries, and the check-in needs none.
BUILD = """
import sys, tempfile
from pathlib import Path
from bot.agent.build import archive
with tempfile.TemporaryDirectory() as libraries:
    Path(sys.argv[1]).write_bytes(archive(Path(libraries)))
"""
#: A rental whose machine runs the agent of the other release; run by the service's release.
RENT = """
import asyncio, json, os, signal, subprocess, sys
from dataclasses import replace
from pathlib import Path
from bot.api.app import build_api
from bot.api.dependencies import ApiSettings, Dependencies
from ledger.engine.db import Database
from ledger.models import Node as Row
from migrations import run
from providers.sandbox.clock import SandboxTiming
from tests.services.nodes.test_deadlines import NODE_URL, Node
from tests.support.clock import SteppedClock
from tests.support.serving import serving
from tests.support.world import world

async def until(holds):
    async with asyncio.timeout(90):
        while not await holds():
            await asyncio.sleep(0.1)

async def main(url, agent, folder):
    db = Database(url)
    await run.upgrade(db)
    async with world(db, SteppedClock(), sandbox=SandboxTiming.quick()) as w:
        w.ctx = replace(w.ctx, node_url=NODE_URL)
        request_id = await w.running(candidates=("vast",), run="sleep 600")
        node, api = Node(w, "vast"), build_api(Dependencies(w.ctx, ApiSettings("C0GPU")), {})
        async with serving(api) as at:
            own = {"PATH": os.environ["PATH"], "GPU_SHOPPER_AGENT_FOLDER": str(folder / "agent")}
            own |= {**node.settings.environment, "GPU_SHOPPER_CHECKIN_URL": f"{at}/agent/v1/checkin"}
            process = subprocess.Popen([sys.executable, agent], env=own, start_new_session=True)
            async def row():
                async with db.read() as tx:
                    return await tx.get(Row, node.settings.instance)
            def kept_end():
                return json.loads(json.loads((folder / "agent/state.json").read_text())["message"])
            async def is_planned():
                w.clock.advance(5)
                return (folder / "agent/startup_plan.json").exists() and (await row()).report["machine"] is not None
            async def is_extended():
                w.clock.advance(5)
                return kept_end()["deadline_s"] == int((await w.view(request_id)).session.deadline.timestamp())
            async def is_asked_to_stop():
                w.clock.advance(5)
                return "stop" in (folder / "asks").read_text()
            try:
                await until(is_planned)
                first = (await w.view(request_id)).session.deadline
                reply = await w.more(request_id)
                await w.settle()
                await w.decide(str(reply.data["request_id"]))
                await w.settle()
                added = (await w.view(request_id)).session.deadline - first
                await until(is_extended)
                await w.end(request_id)
                await until(is_asked_to_stop)
                await w.run(600, 30)
            finally:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        books = await w.books()
        steps = [one["name"] for one in json.loads((folder / "agent/startup_plan.json").read_text())["steps"]]
        print(*steps, added, books.sessions[-1].state, len(w.alive()), await w.violations())
    await db.close()

asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
"""
SAID = "environment packages run 1:00:00 terminated 0 []"


def main() -> None:
    """Play both, and end with 1 where an agent is not extended or not ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commit", default=COMMIT, help="the earlier release")
    commit = parser.parse_args().commit
    with tempfile.TemporaryDirectory(prefix="gpu-shopper-generations-") as name:
        release = Path(name, "release")
        check_out(commit, release)
        for built, service, python in ((release, ROOT, Path(sys.executable)), (ROOT, release, installed(release))):
            agent, folder = Path(name, f"agent of {built.name}.pyz"), Path(name, f"machine of {built.name}")
            folder.mkdir()
            subprocess.run([sys.executable, "-c", BUILD, agent], cwd=built, env={"PYTHONPATH": str(built)}, check=True)
            url = f"sqlite+aiosqlite:///{folder / 'ledger.db'}"
            said = last_line([str(python), "-c", RENT, url, str(agent), str(folder)], service)
            of = {ROOT: "today's", release: f"{commit}'s"}
            must(f"{of[built]} agent at {of[service]} service: {said}", said == SAID)


if __name__ == "__main__":
    main()
