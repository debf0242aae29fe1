"""The demonstration, as somebody who just cloned the repository runs it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
from decimal import Decimal
from pathlib import Path

import httpx
import pytest
from rich.console import Console

from bot.cli.demo import history
from bot.cli.demo.command import serve_until
from bot.cli.demo.demo_script import violations, walk
from bot.cli.demo.demo_stack import POLICY, playground
from bot.practice.reader import all_text, button_texts
from bot.practice.remote import RemoteDriver
from bot.services.audit import invariants
from bot.services.runtime.clock_guard import clock_problem
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import SessionState
from ledger.models import Option
from ledger.queries.audit import read_books
from tests.cli.test_commands import LIMIT_S, elsewhere, run, started
from tests.scenarios.processes.processes import PROGRAM

#: The whole product serves in this process, at the pace of the real clock.
pytestmark = pytest.mark.slow

__all__ = ["elsewhere"]


async def test_the_walk_ends_well_and_every_invariant_holds(elsewhere: Path) -> None:
    with (elsewhere / "transcript").open("w+") as file:
        async with playground(port=0, seed=7, boot_s=0.5) as running:
            assert await walk(running, Console(file=file, width=200)) == 0
            books = await read_books(running.ctx.db)
        file.seek(0)
        text = file.read()
    assert [session.state for session in books.sessions] == ["terminated"]
    for words in (
        "bob clicks",
        "Only approvers can do this",
        "ssh -p",
        "nothing runs",
        "accrue",
        "Every invariant holds.",
    ):
        assert words in text
    assert all(secret not in text for secret in running.secrets)


async def test_a_broken_promise_fails_the_walk(elsewhere: Path) -> None:
    with (elsewhere / "transcript").open("w+") as file:
        async with playground(port=0, seed=7, boot_s=0.5) as running:
            faults = next(iter(running.clouds.values())).engine.faults
            faults.arm("runpod", "delete_ignored", None)
            faults.arm("vast", "destroy_not_done", None)
            code = await walk(running, Console(file=file, width=200), step_s=6.0)
        file.seek(0)
        text = file.read()
    assert code == 1
    assert "The walk failed" in text or "violated" in text


def test_the_page_is_served_until_ctrl_c_and_nothing_is_left(elsewhere: Path) -> None:
    with started("demo", "--port", "0") as process:
        assert process.stdout is not None
        seen = ""
        while (found := re.search(r"Open (http://127\.0\.0\.1:\d+/)", seen)) is None:
            line = process.stdout.readline()
            assert line, seen
            seen += line
        assert httpx.get(f"{found[1]}practice/api/state", trust_env=False).status_code == 200
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0
        assert "Stopping" in out
        assert "Traceback" not in err
    assert list(elsewhere.iterdir()) == []


def test_a_taken_port_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with started("demo", "--port", port) as process:
            _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert "gpu-shopper demo --port 0" in err
    assert "Traceback" not in err


async def test_a_seeded_team_has_a_history_a_budget_and_a_running_session(elsewhere: Path) -> None:
    policy = history.team_policy(POLICY)
    async with playground(port=0, seed=7, boot_s=0.5, policy=policy, with_history=True) as running:
        people = running.practice.driver
        await history.rent(people)
        await people.until(lambda: [m for m in people.dm_messages("carol") if "ssh -p" in all_text(m)], LIMIT_S)
        digest = await people.until(lambda: [m for m in people.channel_messages() if "$55.06" in all_text(m)], LIMIT_S)
        assert "62%" in all_text(digest[0])
        books = await read_books(running.ctx.db)
        truth = running.truth()
        assert await invariants.check(running.ctx.db, running.clock, truth, secrets=running.secrets) == []
        alice = people.as_("alice")
        before = len(people.ephemerals("alice"))
        await alice.command("/gpu budget")
        budget = await people.until(lambda: people.ephemerals("alice")[before:], LIMIT_S)
        await alice.command('/gpu provision 1x4090 2h for="with her key"')
        await people.until(lambda: [m for m in people.channel_messages() if "with her key" in all_text(m)], LIMIT_S)
    assert "62%" in all_text(budget[-1])
    assert not any("key add" in all_text(m) for m in people.channel_messages())
    states = [session.state for session in books.sessions]
    assert (states.count(SessionState.TERMINATED), states.count(SessionState.RUNNING)) == (len(history.RENTALS), 1)


async def test_time_travel_carries_messages_clouds_and_deadlines_along(elsewhere: Path) -> None:
    async with playground(port=0, seed=7, boot_s=0.5) as running, RemoteDriver(running.url) as ws:
        await ws.as_("alice").command('/gpu provision 1x4090 2h for="until its end"')
        offers = await ws.until(lambda: next(iter(ws.channel_messages()), None))
        assert offers is not None
        approve = next(text for text in button_texts(offers) if text.startswith("Approve"))
        await ws.as_("bob").click(offers, approve)
        await ws.until(lambda: [m for m in ws.dm_messages("alice") if "ssh -p" in m.text], LIMIT_S)
        await ws.travel(2 * 3600 + 60)  # One press of a button.
        await ws.until(lambda: [m for m in ws.dm_messages("alice") if " ended." in m.text], LIMIT_S)
        told = list(ws.dm_messages("alice"))
        assert await violations(running) == []
        books = await read_books(running.ctx.db)
    (session,) = books.sessions
    assert session.end_code == "reservation_over"
    assert session.deadline is not None
    assert session.ended_at is not None
    assert 0 <= (session.ended_at - session.deadline).total_seconds() < 60
    end = session.deadline.timestamp()
    # After the end, both warnings say what became of it; when they were sent is theirs still.
    *_, first, final, over = (end - float(m.ts) for m in told)
    assert first == pytest.approx(3600, abs=60)
    assert final == pytest.approx(120, abs=60)
    assert -60 < over < 0
    assert [m.text for m in told if " ends " in m.text] == []
    spent = sum(entry.amount_usd for entry in books.entries if entry.kind == "accrue")
    assert Decimal("0.5") < spent < Decimal(2)


async def rented(ws: RemoteDriver) -> None:
    """Alice asks for ten hours, Bob approves, and her machine is ready."""
    await ws.as_("alice").command('/gpu provision 1x4090 10h for="a long run"')
    offers = await ws.until(lambda: next(iter(ws.channel_messages()), None), LIMIT_S)
    assert offers is not None
    approve = next(text for text in button_texts(offers) if text.startswith("Approve"))
    await ws.as_("bob").click(offers, approve)
    await ws.until(lambda: [m for m in ws.dm_messages("alice") if "ssh -p" in m.text], LIMIT_S)


# A machine whose agent is silent keeps running, because its SSH port answers.
@pytest.mark.parametrize(("change", "code"), [({"silent": True}, None), ({"utilisation": [0.0]}, "idle"), ({}, None)])
async def test_time_travel_counts_as_time_in_which_agents_were_heard(
    elsewhere: Path, change: dict[str, object], code: str | None
) -> None:
    async with playground(port=0, seed=7, boot_s=0.5) as running, RemoteDriver(running.url) as ws:
        await rented(ws)
        await ws.travel(120)  # Its agent reports.
        nodes = next(iter(running.clouds.values())).engine.nodes
        (key,) = nodes.running
        nodes.configure(key, **change)
        for _ in range(4):
            await ws.travel(3600)  # The button "+1 h".
        await ws.travel(60)
        books = await read_books(running.ctx.db)
        assert clock_problem(running.ctx.clock) == ""
    assert [row.early_end_code or None for row in books.sessions] == [code]
    assert [row.end_code or None for row in books.sessions] == [code]


async def test_an_overspend_is_asked_about_and_paused_under_time_travel(elsewhere: Path) -> None:
    async with playground(port=0, seed=7, boot_s=0.5) as running, RemoteDriver(running.url) as ws:
        await rented(ws)
        async with running.ctx.db.write() as tx:
            for row in (await read_books(running.ctx.db)).instances:
                option = await tx.get_one(Option, row.option_id)
                option.expected_usd = (option.expected_usd / 2).quantize(Decimal("0.01"))
        for _ in range(2):
            await ws.travel(3600)
        books = await read_books(running.ctx.db)
    assert [row.kind for row in books.requests] == ["provision", "overspend"]
    assert {EventKind.SPEND_PAUSED, EventKind.SPEND_SAVING} & {row.kind for row in books.events}


async def test_an_undecided_request_expires_and_loses_its_buttons(elsewhere: Path) -> None:
    async with playground(port=0, seed=7, boot_s=0.5) as running, RemoteDriver(running.url) as ws:
        await ws.as_("alice").command("/gpu provision 1x4090 2h")
        offers = await ws.until(lambda: next(iter(ws.channel_messages()), None))
        assert offers is not None
        await ws.travel(running.ctx.policy.request_ttl_s + 1)
        await ws.until(lambda: not button_texts(ws.now(offers)))
        assert await violations(running) == []
        assert running.truth()["creates"] == []


def test_the_headless_command_ends_with_the_walks_own_code() -> None:
    code, out, _ = run("demo", "--headless")
    assert code == 0, out
    assert out.rstrip().endswith("Every invariant holds.")


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_headless_demo_and_leaves_nothing(tmp_path: Path, name: signal.Signals) -> None:
    pipe, env = subprocess.PIPE, {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([PROGRAM, "demo", "--headless"], stdout=pipe, stderr=pipe, text=True, env=env) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(name)
        _, errors = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, errors.strip()) == (130, "Stopped before the end of the walk.")
    assert list(tmp_path.glob("gpu-shopper-*")) == []


async def test_the_page_the_api_and_a_key_that_works_are_announced(capsys: pytest.CaptureFixture[str]) -> None:
    stopping, said = asyncio.Event(), ""
    async with asyncio.TaskGroup() as group:
        group.create_task(serve_until(stopping, 0, 7))
        async with asyncio.timeout(LIMIT_S):
            while "Ctrl-C" not in said:
                said += capsys.readouterr().out
                await asyncio.sleep(0.01)
        line = r"^export GPU_SHOPPER_URL=(http://127\.0\.0\.1:\d+) GPU_SHOPPER_API_KEY=(\S+)$"
        lines = re.findall(line, said, re.MULTILINE)
        found = re.search(line, said, re.MULTILINE)
        assert found is not None, said
        assert len(lines) == 3
        first = said.index(found[0])
        assert first < said.index("provision 1x4090 2h --reason") < said.index("requests --waiting")
        for (url, key), code in zip(lines, (403, 403, 200), strict=True):  # Only the last one is an administrator's.
            async with httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {key}"}) as http:
                assert (await http.get("/api/v1/orphans")).status_code == code
        async with httpx.AsyncClient(base_url=found[1], headers={"Authorization": f"Bearer {found[2]}"}) as http:
            listed = await http.get("/api/v1/sessions")
        stopping.set()
    assert (listed.status_code, listed.json()["items"]) == (200, [])
    assert re.search(r"Open http://127\.0\.0\.1:\d+/\s", said)
    assert f"{found[1]}/docs" in said
