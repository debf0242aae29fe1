"""What a person with a machine reads, in Slack and in a terminal, as pictures; `make pictures` keeps them in docs/.

The machines are real processes with the real agent, so the pictures show what it reports.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

import asyncssh
import pytest
from playwright.sync_api import Locator, expect

from bot.cli.access.api_client import KEY, URL
from bot.cli.demo.demo_stack import ALICE, POLICY
from bot.services.access.api_keys import NewKey, issue
from bot.services.runtime.liveness import count_as_listened
from ledger.kernel.actor import Actor, ActorKind
from ledger.models import Node
from ledger.queries.audit import read_books
from tests.scenarios.processes.processes import PROGRAM
from tests.scenarios.processes.test_browser import END_S, LIMIT_MS, Town, Window, browser, click, in_town, soon
from tests.scenarios.processes.test_card_pictures import DESK, Camera, camera
from tests.support.stack import LOOK_S

pytestmark = [pytest.mark.browser, pytest.mark.slow]
#: Fixtures of the page's own tests.
__all__ = ["browser", "camera", "in_town"]

LIMIT_S = 60
JOB = 'run="train-stub --steps 9000 --step-s 1" ports=8888/http'
#: A minute between two check-ins takes three seconds.
SPEED = 20.0
TERMINAL = """<style>
  body {margin: 0; background: #1d1c1d; color: #e8e8e8; font: 15px/1.5 "DejaVu Sans Mono", monospace}
  pre {margin: 0; padding: 18px 22px; white-space: pre-wrap}
  b {color: #7fd1a8}
</style><pre>%s</pre>"""


@pytest.fixture(scope="module")
def town() -> Iterator[Town]:
    """A playground with real machines: they report by the computer's clock, so a moved clock makes none silent."""
    with Town(real_nodes=True, policy=replace(POLICY, end_when_unresponsive=False)) as town:
        processes = next(iter(town.running.clouds.values())).engine.processes
        assert processes is not None
        processes.clock_speed = SPEED

        async def listened(_passed_s: float) -> None:
            await count_as_listened(town.running.ctx)

        town.running.practice.workspace.on_travel.insert(0, listened)  # Before the jobs that look for idle machines.
        yield town


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of Alice's private key."""
    file = tmp_path_factory.mktemp("keys") / "key"
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(file)
    file.chmod(0o600)
    return file


@dataclass(frozen=True)
class Terminal:
    """Alice's terminal: what is typed in it really runs, with her key in an SSH agent."""

    url: str
    api_key: str
    key: Path

    def type(self, line: str) -> str:
        """Run a command of ours; the line and what it printed, as a terminal shows them."""
        words = ["ssh-agent", "sh", "-c", 'ssh-add -q "$0" && exec "$@"', str(self.key), PROGRAM, *shlex.split(line)]
        environment = {**os.environ, URL: self.url, KEY: self.api_key, "NO_COLOR": "1", "COLUMNS": "96"}
        ran = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=True)
        return f"<b>$ gpu-shopper {escape(line)}</b>\n{escape(ran.stdout)}\n"


@pytest.fixture
def terminal(town: Town, key: Path) -> Terminal:
    """A terminal that is Alice's, as the page's Alice is."""
    made = town.call(issue(town.running.ctx, NewKey(ALICE), Actor(ActorKind.OPERATOR, "demo")))
    return Terminal(town.running.ctx.node_url, str(made.data["token"]), key)


def rent(window: Window, town: Town, key: Path, words: str) -> str:
    """Rent a machine as Alice, wait until its agent reported twice, and return the session's short id."""
    public = asyncssh.read_private_key(key).export_public_key().decode().strip()
    window.type(f"/gpu key add {public}")
    card = window.ask(f"/gpu provision 1x4090 {words}")
    window.become("bob")
    click(card, "Approve $")
    soon(card, "Ready")
    window.become("alice")
    counters(town)
    return town.call(reported(town, job="run=" in words))


def counters(town: Town) -> None:
    """Give the newest machine the files in which Linux counts what CPUs and network do: nothing, on this one."""
    processes = next(iter(town.running.clouds.values())).engine.processes
    assert processes is not None
    proc = list(processes.running.values())[-1].root / "proc"
    (proc / "net").mkdir(parents=True)
    (proc / "stat").write_text(f"cpu {'0 ' * 10}\nbtime {int(town.running.clock.now().timestamp())}\n")
    (proc / "net" / "dev").write_text(f"  eth0: {'0 ' * 16}\n")


async def reported(town: Town, *, job: bool) -> str:
    """Wait until the agent of the newest machine knows how busy it is, and a step where it runs a job."""
    ctx = town.running.ctx
    books = await read_books(ctx.db)
    row, session = books.instances[-1], books.sessions[-1]
    async with asyncio.timeout(END_S):
        while True:
            async with ctx.db.read() as tx:
                node = await tx.get(Node, row.id)
            known = node is not None and (node.report.get("activity") or {}).get("cpu_percent") is not None
            if node is not None and known and (node.report.get("step") or not job):
                return session.short_id
            await asyncio.sleep(LOOK_S)  # A check-in wakes nobody here.


def message(window: Window, words: str) -> Locator:
    """The newest message of the app to Alice with these words."""
    window.page.set_viewport_size({"width": DESK[0], "height": DESK[1]})
    window.go("GPU Shopper")
    found = window.page.locator(".pane article.message", has_text=words).last
    expect(found).to_be_visible(timeout=LIMIT_MS)
    return found


def test_what_a_person_reads_of_a_machine(
    in_town: Window, town: Town, key: Path, camera: Camera, terminal: Terminal
) -> None:
    short = rent(in_town, town, key, f'3h for="fine-tune the reranker" {JOB}')
    in_town.type(f"/gpu logs {short}")
    logs = in_town.private("The end of the job log")
    soon(logs, "tokens/s")
    camera.take(logs, "machine-2-logs")
    camera.take(message(in_town, "is ready."), "machine-1-ready")

    shown = [
        terminal.type(f"ssh {short} nvidia-smi -L"),
        terminal.type(f"logs {short} -n 3"),
        terminal.type(f"status {short}"),
    ]
    assert "GeForce RTX 4090" in shown[0]
    assert "4200 tokens/s" in shown[1]
    assert "Its agent reported" in shown[2]
    camera.page(TERMINAL % "".join(shown), "machine-3-terminal")


def test_an_idle_machine_says_what_its_agent_saw(in_town: Window, town: Town, key: Path, camera: Camera) -> None:
    rent(in_town, town, key, '4h for="try the tokenizer"')
    for _ in range(4):
        in_town.page.get_by_role("button", name="+10 min").click()
    warning = message(in_town, "below 5%")
    soon(warning, "Last report: GPU 0%, CPU ")
    camera.take(warning, "machine-4-idle")
