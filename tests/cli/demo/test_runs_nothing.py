"""What somebody types into the plain demo is never run: no job's command, no repository, no command of a login."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bot.cli.demo.demo_stack import playground
from bot.outbound import ssh_login
from bot.outbound.ssh_probe import load_library
from bot.practice.reader import button_texts
from bot.practice.remote import RemoteDriver
from bot.rules.jobs.stored import job_of
from bot.services.nodes.login_keys import ssh_login as login_of
from ledger.queries.audit import read_books
from tests.cli.test_commands import LIMIT_S, elsewhere

pytestmark = pytest.mark.slow
__all__ = ["elsewhere"]

#: What Python reports before a process of any kind begins.
STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec", "os.spawn"})
_watched: list[list[str]] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event in STARTS:
        for started in _watched:
            started.append(f"{event} {arguments!r}")


@contextmanager
def watched() -> Iterator[list[str]]:
    """Collect every start of a process by this one. An audit hook stays for ever, so it is added once."""
    if not getattr(sys, "_gpu_shopper_hook", False):
        sys.addaudithook(_hook)
        sys._gpu_shopper_hook = True  # type: ignore[attr-defined]
    started: list[str] = []
    _watched.append(started)
    try:
        yield started
    finally:
        _watched.remove(started)


async def test_no_typed_text_starts_a_process(elsewhere: Path) -> None:
    marker = elsewhere / "ran"
    load_library()  # Python asks the system's linker for libraries at their first import.
    with watched() as started:
        await (await asyncio.create_subprocess_exec("true")).wait()
        assert started  # The watch works.
        started.clear()
        async with playground(port=0, seed=7, boot_s=0.5) as running, RemoteDriver(running.url) as ws:
            assert all(cloud.engine.processes is None for cloud in running.clouds.values())
            words = f'run="touch {marker}" repo=https://github.com/org/project@main install=train'
            await ws.as_("alice").command(f'/gpu provision 1x4090 2h clouds=vast {words} for="$(touch {marker})"')
            offers = await ws.until(lambda: next(iter(ws.channel_messages()), None), LIMIT_S)
            assert offers is not None
            approve = next(text for text in button_texts(offers) if text.startswith("Approve"))
            await ws.as_("bob").click(offers, approve)
            await ws.until(lambda: [m for m in ws.dm_messages("alice") if "ssh -p" in m.text], LIMIT_S)
            await ws.travel(180)  # Its agent reports, and its start-up would begin.
            (row,) = (await read_books(running.ctx.db)).instances
            login = login_of(running.ctx.labels, row)
            for command in (f"touch {marker}", f"nvidia-smi && touch {marker}", f"sh -c 'touch {marker}'"):
                ran = await ssh_login.run(login, command, timeout_s=LIMIT_S)
                assert (ran.problem, ran.status) == (None, 127), ran
            assert job_of((await read_books(running.ctx.db)).requests[0].job).run == f"touch {marker}"
    assert started == []
    assert not marker.exists()
