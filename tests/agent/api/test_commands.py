"""Commands by the API: words without a shell, once for each id, with limits; and the session's job among them."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx
import pytest

from bot.agent.api import commands
from bot.agent.api.app import Api

WAITS = [sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(60)"]


@pytest.fixture(autouse=True)
def _as_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu-shopper-agent"])


async def do(caller: httpx.AsyncClient, name: str, command: str = "start", **more: Any) -> httpx.Response:
    return await caller.post("ml/command", json={"id": name, "command": command, **more})


async def until(caller: httpx.AsyncClient, name: str, state: str) -> dict[str, Any]:
    """Wait for a state by asking for the start again, which starts nothing."""
    for _ in range(2000):
        order = (await do(caller, name, argv=["never"])).json()
        found = (await caller.get("status")).json()["job"] if order.get("status") == 409 else order
        if found and found["state"] == state and (state != "failed" or found["exit_code"] is not None):
            return dict(found)
        await asyncio.sleep(0)
    raise AssertionError(found)


async def test_a_job_starts_once_and_is_paused_resumed_saved_and_stopped(api: Api, caller: httpx.AsyncClient) -> None:
    first = await do(caller, "train", argv=WAITS, job=True, env={"SEED": "1"})
    assert (first.status_code, first.json()["state"]) == (200, "running")
    again = await do(caller, "train", argv=WAITS, job=True, env={"SEED": "1"})
    assert again.json()["started_at"] == first.json()["started_at"]
    other = await do(caller, "train", argv=[*WAITS, "x"], job=True)
    assert (other.status_code, "other words" in other.json()["detail"]) == (409, True)
    second = await do(caller, "train-2", argv=WAITS, job=True)
    assert (second.status_code, second.json()["data"]) == (409, {"job": "train"})
    assert (await do(caller, "train", "pause")).json()["state"] == "paused"
    assert (await caller.get("status")).json()["job"]["state"] == "paused"
    assert (await do(caller, "train", "resume")).json()["state"] == "running"
    assert (await do(caller, "train", "save")).status_code == 200
    assert (api.folder / "asks").read_text() == "save\n"
    assert (await do(caller, "train", "stop")).status_code == 200
    assert (await until(caller, "train", "failed"))["exit_code"] == -15
    assert (await do(caller, "train", "pause")).status_code == 409
    assert (await do(caller, "train-2", argv=["true"], job=True)).status_code == 200


async def test_a_command_finds_the_installed_software_first(api: Api, caller: httpx.AsyncClient) -> None:
    programs = api.folder / "venv/bin"
    programs.mkdir(parents=True)
    (programs / "train").write_text("#!/bin/sh\nexit 5\n")
    (programs / "train").chmod(0o755)
    await do(caller, "run", argv=["train"], job=True)
    assert (await until(caller, "run", "failed"))["exit_code"] == 5


async def test_a_command_runs_in_its_folder_with_its_words(api: Api, caller: httpx.AsyncClient) -> None:
    (api.workspace.root / "runs").mkdir()
    words = ["; rm -rf /", "$(id)", "`id`", "a b", "--", "*", "\n"]
    code = "import os, sys; print(os.getcwd(), sys.argv[1:], os.environ['X'])"
    reply = await do(caller, "c", argv=[sys.executable, "-c", code, *words], cwd="runs", env={"X": "$HOME"})
    assert reply.status_code == 200
    log = await output(caller, {"command": "c"}, "\n")
    assert log == f"{api.workspace.root / 'runs'} {words!r} $HOME\n"
    assert (await caller.get("status")).json()["job"] is None


async def output(caller: httpx.AsyncClient, of: dict[str, str], wanted: str) -> str:
    """Wait until a log has this, and return the log."""
    async with asyncio.timeout(20):
        while wanted not in (text := (await caller.get("logs", params=of)).text):
            continue
    return text


WRONG: list[dict[str, Any]] = [
    {"id": ""}, {"id": "../x"}, {"id": "a/b"}, {"id": 5}, {"id": "x" * 65}, {"id": "-x"}, {"command": "run"},
    {"command": None}, {"argv": None}, {"argv": []}, {"argv": "ls -l"}, {"argv": [""]}, {"argv": ["a\0b"]},
    {"argv": [1]}, {"argv": ["x"] * 257}, {"argv": ["x" * 20_000]}, {"argv": ["\ud800"]}, {"env": []},
    {"env": {"A B": "x"}}, {"env": {"A=": "x"}}, {"env": {"A": 1}}, {"env": {"A": "\0"}},
    {"env": {f"A{n}": "x" for n in range(65)}}, {"cwd": "/etc"}, {"cwd": "../.."}, {"cwd": 7}, {"job": "yes"},
    {"job": 1.5}, {"shell": True},
]  # fmt: skip


@pytest.mark.parametrize("change", WRONG, ids=repr)
async def test_what_is_wrong_has_a_sentence_and_starts_nothing(
    api: Api, caller: httpx.AsyncClient, change: dict[str, Any]
) -> None:
    body = {"id": "c", "command": "start", "argv": ["touch", "made"]} | change
    reply = await caller.post("ml/command", content=json.dumps(body).encode())
    assert reply.status_code == 400, reply.text
    assert " such as " in reply.json()["detail"] or "must be" in reply.json()["detail"] or "field" in reply.text
    assert list(api.workspace.root.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"null", b"\xff", b"[" * 50_000])
async def test_what_is_no_object_is_refused(caller: httpx.AsyncClient, content: bytes) -> None:
    reply = await caller.post("ml/command", content=content)
    assert (reply.status_code, "JSON object" in reply.json()["detail"]) == (400, True)


async def test_too_much_is_refused(caller: httpx.AsyncClient) -> None:
    assert (await caller.post("ml/command", content=b" " * (2 << 20))).status_code == 413
    assert (await do(caller, "c", argv=["x" * 10_000] * 7)).status_code == 413


async def test_no_folder_no_program_no_command(caller: httpx.AsyncClient) -> None:
    assert (await do(caller, "c", argv=["true"], cwd="not/there")).status_code == 404
    missing = await do(caller, "d", argv=["no-such-program"])
    assert (missing.status_code, missing.json()["state"], missing.json()["exit_code"]) == (200, "failed", 127)
    assert (await do(caller, "e", "stop")).status_code == 404


async def test_at_most_so_many_run(caller: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "MOST_RUNNING", 1)
    assert (await do(caller, "a", argv=WAITS)).status_code == 200
    refused = await do(caller, "b", argv=WAITS)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "30")
    assert (await do(caller, "a", "stop")).status_code == 200


async def test_what_does_not_stop_is_killed(caller: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "GRACE_S", 0.2)
    code = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITS[-1]}"
    await do(caller, "s", argv=[sys.executable, "-c", code], job=True)
    await output(caller, {}, "begun")
    await do(caller, "s", "stop")
    assert (await until(caller, "s", "failed"))["exit_code"] == -9
