"""The real programs, each in a process of its own on 127.0.0.1: sandbox clouds, the practice workspace, the bot."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECRET = "benchbenchbenchbench01"
TOKEN = "xoxb-bench-bench"
STARTED_S = 30.0

POLICY = """
policy:
  approvers: [U0BOB]
  max_open_requests_per_user: 1000
  max_requests_per_hour: 1000000
"""


@dataclass(frozen=True)
class Running:
    """A bot under load: its port, where its ledger is, and its process."""

    port: int
    database_url: str
    process: subprocess.Popen[bytes]
    env: Mapping[str, str]


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def process(args: list[str], env: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run one command until the end of the block; its output goes to `log`."""
    with log.open("wb") as out:
        child = subprocess.Popen(args, cwd=ROOT, env=dict(env), stdout=out, stderr=subprocess.STDOUT)
        try:
            yield child
        finally:
            child.terminate()
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def wait_for(port: int, log: Path, path: str | None = None) -> None:
    """Until something answers on `port` (and on `path`, with 200); RuntimeError with the log's end otherwise."""
    end = time.monotonic() + STARTED_S
    while time.monotonic() < end:
        try:
            if path is None:
                socket.create_connection(("127.0.0.1", port), 1).close()
            else:
                urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=1).close()  # Loopback.
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"nothing answers on port {port}:\n{log.read_text(errors='replace')[-2000:]}")


def clean_env(**more: str) -> dict[str, str]:
    """This process's environment without anything that would steer the programs."""
    kept = {k: v for k, v in os.environ.items() if not re.match(r"(?i)(slack|gpu_shopper|vast|runpod|.*_proxy)", k)}
    return {**kept, **more}


@contextlib.contextmanager
def bot(folder: Path, database_url: str | None = None) -> Iterator[Running]:
    """Sandbox, practice workspace and bot, started in this order and stopped in reverse."""
    program = str(Path(sys.executable).with_name("gpu-shopper"))
    sandbox_port, practice_port, bot_port = free_port(), free_port(), free_port()
    policy = folder / "policy.yml"
    policy.write_text(POLICY)
    slack = {"SLACK_SIGNING_SECRET": SECRET, "SLACK_BOT_TOKEN": TOKEN}
    env = clean_env(
        **slack,
        SLACK_API_URL=f"http://127.0.0.1:{practice_port}/api/",
        GPU_SHOPPER_SLACK_API_URL=f"http://127.0.0.1:{practice_port}/api/",
        GPU_SHOPPER_DATA_DIR=str(folder / "data"),
        GPU_SHOPPER_POLICY=str(policy),
        GPU_SHOPPER_PORT=str(bot_port),
        GPU_SHOPPER_LOG_LEVEL="warning",
        GPU_SHOPPER_API_CALLS_PER_MINUTE="1000000",
    )
    if database_url:
        env["GPU_SHOPPER_DATABASE_URL"] = database_url
    sandbox = [program, "sandbox", "--port", str(sandbox_port), "--quick"]
    request_url = f"http://127.0.0.1:{bot_port}/slack/events"
    practice = [program, "practice", "--port", str(practice_port), "--request-url", request_url]
    with contextlib.ExitStack() as stack:
        log = folder / "sandbox.log"
        stack.enter_context(process(sandbox, clean_env(), log))
        wait_for(sandbox_port, log)
        env |= sandbox_settings(log)
        log = folder / "practice.log"
        stack.enter_context(process(practice, clean_env(**slack), log))
        wait_for(practice_port, log)
        log = folder / "bot.log"
        serving = stack.enter_context(process([program, "serve"], env, log))
        wait_for(bot_port, log, "/healthz")
        url = database_url or f"sqlite+aiosqlite:///{folder / 'data' / 'gpu-shopper.db'}"
        yield Running(bot_port, url, serving, env)


@contextlib.contextmanager
def another(folder: Path, first: Running) -> Iterator[Running]:
    """A second replica beside a bot that is there."""
    port, log = free_port(), folder / "another.log"
    program = str(Path(sys.executable).with_name("gpu-shopper"))
    env = {**first.env, "GPU_SHOPPER_PORT": str(port)}
    with process([program, "serve"], env, log) as serving:
        wait_for(port, log, "/healthz")
        yield Running(port, first.database_url, serving, env)


def sandbox_settings(log: Path) -> dict[str, str]:
    """The variables that the sandbox printed."""
    end = time.monotonic() + STARTED_S
    while time.monotonic() < end:
        found = dict(re.findall(r"^export (\w+)=(\S+)$", log.read_text(), re.MULTILINE))
        if len(found) >= 4:
            return found
        time.sleep(0.05)
    raise RuntimeError(f"the sandbox printed no settings:\n{log.read_text()[-2000:]}")


@contextlib.contextmanager
def bare(folder: Path) -> Iterator[int]:
    """The bare Bolt app; yields its port."""
    port, log = free_port(), folder / "bare.log"
    with process([sys.executable, "-m", "tests.bench.bare_bolt", str(port), SECRET], clean_env(), log):
        wait_for(port, log)
        yield port
