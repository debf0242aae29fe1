"""The nodes' door: its token, its order, its signed answer, and what people see of it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import event

from bot.services.nodes import enrollment
from bot.services.nodes.checkins import Checkins
from bot.services.runtime.agent_archive import AgentArchive
from bot.services.runtime.commands import Reply
from bot.wire import variables
from bot.wire.checkin import Checkin, CheckinAnswer
from ledger.kernel.states import InstanceState
from tests.api.door import Door, code_of
from tests.support.agents import agent, listening, pass_time
from tests.support.world import ALICE

PATH = "http://bot/agent/v1/checkin"


async def test_a_machine_reports_with_its_own_token_and_believes_only_what_is_signed(door: Door) -> None:
    w = door.w
    async with listening(w):
        await w.running(candidates=("vast",))
        node = agent(w)
        row = (await w.books()).instances[0]
        await pass_time(w, 61)
        session = (await w.books()).sessions[0]
        assert (node.status, node.deadline) == (200, session.deadline)
        token = node.token
        books = await w.books()
        assert token not in repr([vars(one) for group in (books.events, books.notifications) for one in group])
        head = {"Authorization": f"Bearer {token}"}

        async def send(headers: dict[str, str], **body: object) -> tuple[int, str]:
            answer = await door.http.post(PATH, json=body, headers=headers)
            return answer.status_code, code_of(answer) if answer.status_code != 200 else ""

        assert await send(head, seq=node.seq) == (409, "replayed")
        assert await send(head, seq=node.seq + 5, utilisation=[0], step=7) == (200, "")
        assert await send(head, seq=node.seq + 5) == (409, "replayed")
        assert await send(head, seq=0) == (422, "invalid")
        assert await send(head, seq=99, session="other") == (422, "invalid")
        assert await send({"Authorization": f"Bearer {token[:-1]}"}, seq=99) == (401, "unauthenticated")
        assert await send({"Authorization": f"Bearer {token[:-2]}zz"}, seq=99) == (401, "unauthenticated")
        assert await send({}, seq=99) == (401, "unauthenticated")
        assert (await door.http.get("http://bot/api/v1/sessions", headers=head)).status_code == 401
        big = await door.http.post(PATH, content=b" " * 17_000, headers=head)
        assert big.status_code == 413
        answers = [(await send(head, seq=1000 + n))[0] for n in range(9)]
        assert answers[-1] == 429
        # A deadline for another machine, or of an older check-in, is not believed.
        message, signature = enrollment.signed(
            w.ctx.labels, row.id, 1, w.clock.now() + timedelta(days=9), w.clock.now()
        )
        stale = {"asks": [], "deadline": {"message": message, "signature": signature}}
        node.obey(stale, w.clock.now())
        forged = message.replace('"n":1', '"n":999999')
        node.obey({"asks": [], "deadline": {"message": forged, "signature": signature}}, w.clock.now())
        assert node.deadline == session.deadline
        assert json.loads(message)["instance"] == row.id
        assert (await w.end(session.id)).ok
        w.clock.advance(61)
        assert await send(head, seq=5000) == (200, "")
        await w.run(120, 30)
        assert (await w.books()).instances[0].state is InstanceState.GONE
        w.clock.advance(61)
        assert await send(head, seq=6000) == (401, "unauthenticated")


async def test_the_agent_is_served_to_everybody_once_it_is_built(sqlite_door: Door) -> None:
    missing = await sqlite_door.http.get("http://bot/agent.pyz")
    assert (missing.status_code, "`make agent` builds it" in missing.json()["detail"]) == (404, True)
    sqlite_door.w.ctx.agent = AgentArchive(b"PK", "ab" * 32)
    served = await sqlite_door.http.get("http://bot/agent.pyz")
    assert (served.status_code, served.content, served.headers["etag"]) == (200, b"PK", f'"{"ab" * 32}"')
    assert (await sqlite_door.http.post("http://bot/agent.pyz")).status_code == 405


async def test_status_shows_how_far_it_is_and_what_it_costs_until_then(sqlite_door: Door) -> None:
    door, w = sqlite_door, sqlite_door.w
    key = await door.key("operator:ada", scopes=("admin",))
    bare = await w.running(candidates=("vast",))
    async with listening(w):
        request_id = await w.running(ALICE, candidates=("vast",))
        agent(w).target_step = 36_000
        await pass_time(w, 300)
        seen = (await door.call("GET", f"/sessions/{request_id}", key)).json()
        told = seen["agent"]
        assert told["heartbeat_age_s"] <= 60
        assert told["utilisation"] == ["93.0"]
        assert told["target_step"] == 36_000
        assert Decimal(told["cost_to_finish_usd"]) > 0
        assert told["eta"] > seen["created_at"]
        assert "At this speed it is done" in told["line"]
        assert ("The session ends before that." in told["line"]) == (told["eta"] > seen["deadline"])
        without = (await door.call("GET", f"/sessions/{bare}", key)).json()["agent"]
        assert "can't end early for being idle or unresponsive" in without["line"]
        assert without["heartbeat_age_s"] is None


async def test_version_two_shows_what_the_agent_sees_of_its_machine(sqlite_door: Door) -> None:
    door, w = sqlite_door, sqlite_door.w
    key = await door.key("operator:ada", scopes=("admin",))
    w.ctx = replace(w.ctx, node_url="http://127.0.0.1:9")
    request_id = await w.running(candidates=("vast",))
    (node,) = w.engine.nodes.running.values()
    head = {"Authorization": f"Bearer {node.env[variables.TOKEN]}"}
    machine = {
        "gpus": [{"model": "NVIDIA GeForce RTX 4090", "memory_mb": 24564, "temperature_c": 61}],
        "driver": "570.86",
        "cuda": "12.8",
        "disk_free_gb": 80,
        "host_key": "ssh-ed25519 AAAA",
        "startup_step": "directories",
        "startup_s": 3,
        "exit_code": 1,
        "log_tail": "mkdir: no space\x00",
        "cpu_percent": "3.4",
        "network_kb_s": 12,
        "logins": 0,
        "last_login_at": "2026-03-01T09:12:00Z",
    }
    sent = await door.http.post(PATH, json={"v": 2, "seq": 10, "machine": machine}, headers=head)
    assert sent.status_code == 200
    shown = (await door.call("GET", f"/sessions/{request_id}", key)).json()["agent"]
    assert {name: shown["machine"][name] for name in machine if name != "log_tail"} == {
        name: value for name, value in machine.items() if name != "log_tail"
    }
    assert shown["machine"]["log_tail"].startswith("mkdir: no space")
    assert "It has 1 × NVIDIA GeForce RTX 4090 with 24 GB, driver 570.86" in shown["line"]
    assert "failed at directories with exit code 1" in shown["line"]
    assert "CPU 3%, network 12 kB/s, no open login, last login 2026-03-01 09:12 UTC." in shown["line"]
    assert (await door.http.post(PATH, json={"seq": 11}, headers=head)).status_code == 200
    kept = (await door.call("GET", f"/sessions/{request_id}", key)).json()["agent"]["machine"]
    assert kept == shown["machine"]
    wrong: list[dict[str, object]] = [
        {"gpus": [{"model": "<!channel>", "memory_mb": 1}]},
        {"gpus": [{"model": "x", "memory_mb": 1}] * 65},
        {"driver": "\x1b[2J"},
        {"host_key": "ssh-ed25519 AAAA\n10.0.0.1 ssh-ed25519 BBBB"},
        {"exit_code": 256},
        {"log_tail": "x" * 2001},
        {"other": 1},
        {"cpu_percent": 101},
        {"logins": -1},
        {"last_login_at": "2026-03-01T09:12:00"},
    ]
    for one in wrong:
        answer = await door.http.post(PATH, json={"v": 2, "seq": 12, "machine": one}, headers=head)
        assert answer.status_code == 422, one
        w.clock.advance(61)
    assert (await door.http.post(PATH, json={"v": 3, "seq": 12}, headers=head)).status_code == 422


async def test_the_counts_of_a_queue_are_shown_and_come_in_version_two_only(sqlite_door: Door) -> None:
    door, w = sqlite_door, sqlite_door.w
    key = await door.key("operator:ada", scopes=("admin",))
    w.ctx = replace(w.ctx, node_url="http://127.0.0.1:9")
    request_id = await w.running(candidates=("vast",))
    (node,) = w.engine.nodes.running.values()
    head = {"Authorization": f"Bearer {node.env[variables.TOKEN]}"}

    async def shown() -> dict[str, Any]:
        agent: dict[str, Any] = (await door.call("GET", f"/sessions/{request_id}", key)).json()["agent"]
        return agent

    queue = {"waiting": 4, "running": 1, "done": 6, "failed": 1}
    assert (await door.http.post(PATH, json={"v": 2, "seq": 10, "queue": queue}, headers=head)).status_code == 200
    agent = await shown()
    assert agent["queue"] == queue
    assert "queue 6/12 done, 1 failed" in agent["line"]
    for body in ({"queue": queue}, {"v": 2, "queue": {"done": 10**9 + 1}}, {"v": 2, "queue": {"lost": 1}}):
        w.clock.advance(61)
        assert (await door.http.post(PATH, json={"seq": 11, **body}, headers=head)).status_code == 422
    assert (await door.http.post(PATH, json={"v": 2, "seq": 12}, headers=head)).status_code == 200
    assert (await shown())["queue"] is None


async def test_check_ins_share_transactions_and_leave_no_event(sqlite_door: Door) -> None:
    w = sqlite_door.w
    w.ctx = replace(w.ctx, node_url="http://127.0.0.1:9")
    await w.running(candidates=("vast",))
    (node,) = w.engine.nodes.running.values()
    assert node.status == 0
    checkins, token, before = Checkins(w.ctx), node.env[variables.TOKEN], len((await w.books()).events)
    commits: list[object] = []
    event.listen(w.ctx.db.writer.sync_engine, "commit", commits.append)
    taken = await asyncio.gather(*(checkins.take(token, Checkin(seq=seq)) for seq in (*range(1, 301), 300)))
    assert sum(isinstance(one, CheckinAnswer) for one in taken) == 300
    assert isinstance(taken[-1], Reply)
    assert len(commits) <= 3
    assert len((await w.books()).events) == before
    broken = Checkins(replace(w.ctx, policy=None))  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        await broken.take(token, Checkin(seq=400, utilisation=(Decimal(1),)))
    assert isinstance(await checkins.take("gpun_x", Checkin(seq=1)), Reply)
