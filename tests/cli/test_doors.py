"""One command line here and elsewhere: the walk through both, the same output, and a route for every command."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bot.api.app import build_api
from bot.api.dependencies import ApiSettings, Dependencies
from bot.cli.access.settings import operator
from bot.cli.command_table import COMMANDS
from bot.cli.commands import requests
from bot.cli.lazy import build
from bot.rules.access.scopes import Scope
from bot.services.access import api_keys
from bot.services.access.api_keys import NewKey
from bot.services.runtime.event_order import number_all
from ledger.engine.db import Database
from ledger.kernel.event_kind import EventKind
from tests.api.door import DOCUMENT
from tests.cli.test_commands import elsewhere
from tests.support import rows
from tests.support.clock import SteppedClock
from tests.support.serving import serving
from tests.support.world import ALICE, BOB, CAROL, World, checked_world

__all__ = ["elsewhere"]

#: What is about this machine alone, and why no route does it.
HERE_ONLY = {
    "demo": "starts everything on this machine",
    "serve": "is what the routes are served by",
    "doctor": "looks at this machine's settings",
    "progress": "computes from its own options",
    "sandbox": "serves the sandbox clouds",
    "db": "changes the schema before anything is served",
    "version": "of this program",
    "config": "writes this folder's .env",
    "completion": "is for this machine's shell",
    "practice": "serves the practice workspace",
    "docs": "writes this repository's pages",
    "backup": "writes a file of this machine, also while nothing is served",
    "restore": "replaces the ledger while nothing is served",
}
#: What only programs read.
STREAMS = {"GET /api/v1/events"}


def test_every_command_has_a_route_or_is_about_this_machine() -> None:
    served = {f"{method.upper()} {path}" for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert {name for name, entry in COMMANDS.items() if not entry.routes} == set(HERE_ONLY)
    for name, entry in COMMANDS.items():
        assert set(entry.routes) <= served, name
    api = {route for route in served if " /api/" in route} - STREAMS
    assert api == {route for entry in COMMANDS.values() for route in entry.routes}


@dataclass
class Terminal:
    """A terminal that may speak to the service over HTTP, or open its ledger itself."""

    w: World
    url: str
    key: str
    monkeypatch: pytest.MonkeyPatch

    def far(self, key: str = "") -> None:
        """Elsewhere, with a key."""
        self.monkeypatch.setenv("GPU_SHOPPER_URL", self.url)
        self.monkeypatch.setenv("GPU_SHOPPER_API_KEY", key or self.key)

    def near(self) -> None:
        """On the server."""
        for name in ("GPU_SHOPPER_URL", "GPU_SHOPPER_API_KEY"):
            self.monkeypatch.delenv(name, raising=False)

    async def run(self, *arguments: str) -> tuple[int, str, str]:
        """A command, in a thread: it has a loop of its own, and the service answers in this one."""
        result = await asyncio.to_thread(CliRunner().invoke, build(), arguments)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stdout, result.stderr

    async def good(self, *arguments: str) -> str:
        """What a command that succeeds prints."""
        code, out, err = await self.run(*arguments)
        assert code == 0, (arguments, out, err)
        return out

    async def newest(self, number: int) -> str:
        """The `number`-th request, as soon as somebody has asked for it and its offers are there."""
        while len((await self.w.books()).requests) < number:
            await self.w.ctx.hints.requests.wait()
            self.w.ctx.hints.requests.clear()
        await self.w.settle()
        return (await self.w.books()).requests[-1].id

    async def read(self, *arguments: str) -> Any:
        """The document that it prints."""
        return json.loads(await self.good(*arguments, "--json"))


@pytest.fixture
async def terminal(
    sqlite_db: Database, clock: SteppedClock, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Terminal]:
    """The operator may decide here and in Slack, and answers for the program atlas."""
    me = operator()
    monkeypatch.setattr(requests, "POLL_S", 0.02)
    url = sqlite_db.url.render_as_string(hide_password=False)
    Path(str(sqlite_db.url.database)).parent.chmod(0o700)
    policy = elsewhere / "policy.yml"
    policy.write_text(f"policy:\n  approvers: [{BOB.id}, {me.ref}]\n")
    monkeypatch.setenv("GPU_SHOPPER_DATABASE_URL", url)
    monkeypatch.setenv("GPU_SHOPPER_POLICY", str(policy))
    async with checked_world(sqlite_db, clock) as w:
        w.tune(approvers=(BOB.id, me.ref))
        for name, cloud in w.clouds.items():
            # Here too they are set up; nothing that is compared asks them.
            for variable, value in cloud.environment(f"http://127.0.0.1:9/{name}").items():
                monkeypatch.setenv(variable, value)
        made = await api_keys.create(sqlite_db, w.ctx.labels, NewKey(me.ref), me, clock.now())
        async with serving(build_api(Dependencies(w.ctx, ApiSettings("C0GPU")), {})) as there:
            yield Terminal(w, there, str(made.data["token"]), monkeypatch)


async def test_the_walk_by_the_command_line_alone(terminal: Terminal) -> None:
    t = terminal
    atlas = await api_keys.create(t.w.ctx.db, t.w.ctx.labels, NewKey("atlas", "UCAROL"), operator(), t.w.clock.now())
    program = str(atlas.data["token"])
    t.far(program)
    assert "getting offers from vast" in await t.good(
        "provision", "--gpu", "4090", "--hours", "2", "--reason", "a walk"
    )
    await t.w.settle()
    (waiting,) = (await t.read("requests", "--waiting"))["items"]
    assert (waiting["requester"], waiting["reason"]) == ("consumer:atlas", "a walk")
    assert "Needs 1 approval." in await t.good("request", waiting["id"])
    code, _, err = await t.run("approve", waiting["id"], "--option", "1", "--quote-version", "1")
    assert (code, "lacks the scope approvals:write" in err) == (77, True)

    t.far()
    for unread in (("approve", waiting["id"]), ("approve", waiting["id"], "1")):
        code, _, err = await t.run(*unread)
        assert (code, "Say which offer you read, such as `gpu-shopper approve" in err) == (2, True)
    code, _, err = await t.run("approve", waiting["id"], "--max-usd", "0.01")
    assert (code, "which is above --max-usd $0.01. Nothing was approved." in err) == (1, True)
    code, _, err = await t.run("approve", waiting["id"], "1", "--quote-version", "2")
    assert (code, "changed since you looked, so nothing was approved. Look again: `gpu-" in err) == (1, True)
    assert (await t.read("request", waiting["id"]))["state"] == "pending"
    yes = ("approve", waiting["id"][-6:], "1", "--quote-version", "1", "--idempotency-key", "mine")
    approved = await t.good(*yes)
    assert ("You approved the request. 1x " in approved, await t.good(*yes)) == (True, approved)
    code, _, err = await t.run(*yes, "--reason", "another")
    assert (code, "This idempotency key was used for another call" in err) == (1, True)
    await t.w.settle()
    await t.w.run(40, 20)
    t.far(program)
    (running,) = (await t.read("sessions"))["items"]
    assert running["state"] == "running"
    assert running["ssh"]["command"] in await t.good("session", running["id"])
    (machine,) = await t.read("instances")
    code, _, err = await t.run("shutdown", f"{machine['cloud']}:999")
    assert (code, "is not an instance of a session here now, so it is left alone" in err) == (2, True)
    assert "Ending session" in await t.good("shutdown", f"{machine['cloud']}:{machine['ref']}")
    assert (await t.read("session", machine["id"]))["id"] == running["id"]
    await t.w.run(150, 15)
    over = await t.read("session", running["id"])
    assert over["state"] == "terminated"
    assert await t.good("sessions") == "There are no sessions.\n"
    assert waiting["id"][-6:] in await t.good("sessions", "--all")
    shown = await t.good("history", "--columns", "session,ran,total,why")
    assert re.search(rf"{waiting['id'][-6:]} +\d+ min +\$0\.\d\d +ended on request", shown)
    assert t.w.alive() == []


async def test_waiting_tells_what_happens_and_ends_with_it(terminal: Terminal) -> None:
    t = terminal
    t.far()

    async def bob() -> None:
        request_id = await t.newest(1)
        assert (await t.w.decide(request_id)).ok
        await t.w.settle()
        await t.w.run(40, 20)

    (code, out, err), _ = await asyncio.gather(t.run("provision", "1x4090 2h", "--wait"), bob())
    assert (code, "is running." in out, "Connect: ssh" in out) == (0, True, True)
    assert "session running" in err.splitlines()
    await t.good("shutdown", (await t.read("sessions"))["items"][0]["id"])

    async def carol() -> None:
        request_id = await t.newest(2)
        assert (await t.w.decide(request_id, action="reject", reason="not today")).ok

    (code, out, _), _ = await asyncio.gather(t.run("provision", "1x4090 2h", "--wait"), carol())
    assert (code, "not today" in out) == (1, True)
    await t.w.settle()


async def test_here_and_elsewhere_print_the_same(terminal: Terminal) -> None:
    t = terminal
    request_id = await t.w.running(operator())
    other = await t.w.ask()
    assert other.ok
    await t.w.settle()
    key = ["keys", "create", "atlas", "--owner", "UCAROL"]
    t.far()
    assert "is registered" in await t.good("ssh-key", "add", *KEY_LINE.split())
    for arguments in (
        ("requests",),
        ("requests", "--json"),
        ("request", request_id),
        ("request", request_id, "--json"),
        ("request", str(other.data["request_id"])),
        ("sessions",),
        ("history",),
        ("budget", "show"),
        ("session", request_id),
        ("session", "zzzzzz"),
        ("request", "../keys"),
        ("approve", request_id, "--offer", "1"),
        ("approve", request_id, "1"),
        ("approve", request_id, "1", "--offer", "2"),
        ("reject", request_id),
        ("cancel", request_id),
        ("provision", "--gpu", "RTX9999", "--hours", "2"),
        ("provision", "4090", "2h", "--hours", "2"),
        ("provision",),
        ("ssh-key", "add", "ssh-ed25519 nonsense"),
        ("ssh-key", "add", KEY_LINE),
        ("ssh-key", "show"),
        ("audit", request_id),
        ("runs", "list"),
        ("instances",),
        ("costs", "--format", "focus", "--month", "2026-02"),
        ("costs", "--month", "2026-02"),
        ("webhooks", "list"),
    ):
        t.far()
        far = await t.run(*arguments)
        t.near()
        near = await t.run(*arguments)
        assert _untimed(far) == _untimed(near), arguments
    t.far()
    refused = await t.run(*key)
    assert (refused[0], "lacks the scope admin" in refused[2]) == (77, True)
    t.near()
    assert (await t.run(*key))[0] == 0
    await t.good("shutdown", request_id)


def _untimed(answer: tuple[int, str, str]) -> tuple[int, str, str]:
    """Here the clock is the real one, so what a session has cost differs, and no sign of its machine is recent."""
    code, out, err = answer
    lines = [line for line in out.splitlines() if "so far" not in line and "cost_usd" not in line and "$0." not in line]
    return code, re.sub(r"running as of [^\n.\"]*", "running", "\n".join(lines)), err


#: A public key as people paste it.
KEY_LINE = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl me@laptop"


async def test_an_audit_marks_what_was_recorded_late(terminal: Terminal) -> None:
    t = terminal
    t.far()
    request_id = str((await t.w.ask(candidates=("vast",))).data["request_id"])
    async with t.w.ctx.db.write() as tx:
        at = t.w.clock.now() - timedelta(hours=2)
        late = (await rows.event(tx, EventKind.REQUEST_VOTE, request_id, at=at, reason="Approved.")).id
    await number_all(t.w.ctx)
    assert (await t.read("audit", request_id))["late"] == [late]
    lines = (await t.good("audit", request_id)).splitlines()
    assert sum("recorded late" in line for line in lines) == 1
    *events, last = map(json.loads, (await t.good("audit", request_id, "--jsonl")).splitlines())
    assert (last["late"], late in [one["id"] for one in events]) == ([late], True)


async def test_a_job_file_says_what_options_say(terminal: Terminal, elsewhere: Path) -> None:
    t = terminal
    t.far()
    job = elsewhere / "job.yaml"
    job.write_text("resources: {gpu: {name: '4090', count: 1}}\nhours: 2\ncandidates: [vast]\n")
    asked = await t.good("provision", "--job", str(job), "--reason", "from a file")
    (one,) = (await t.read("requests"))["items"]
    keyless = "no SSH key here yet, so nobody could log in: gpu-shopper ssh-key add"
    assert ("getting offers from vast" in asked, f"You have {keyless}" in asked) == (True, True)
    assert f" has {keyless}" in await t.good("request", one["id"])
    assert one["reason"] == "from a file"
    job.write_text("gpu: 4090\nhours: 2\nclouds: [vast]\nfor: in words of the language\n")
    assert "Plan for a machine for 2 hours" in await t.good("provision", "--job", str(job), "--dry-run")
    assert "Plan for a machine for 2 hours" in await t.good("plan", str(job))
    job.write_text("hours: [")
    assert (await t.run("provision", "--job", str(job)))[0] == 2
    job.write_text("resources: {gpu: '4090'}\nhours: 2\ncandidates: [autodl]\n")
    code, _, err = await t.run("provision", "--job", str(job))
    assert (code, "“autodl” is not a cloud; there are vast," in err) == (2, True)
    again = ("provision", "1x4090 2h", "--idempotency-key", "nightly")
    assert await t.good(*again) == await t.good(*again)
    assert len((await t.w.books()).requests) == 2
    assert "Plan for a machine for 2 hours" in await t.good("provision", "1x4090 2h", "--dry-run")


async def test_the_market_is_the_same_elsewhere(terminal: Terminal, elsewhere: Path) -> None:
    t = terminal
    t.far()
    found = await t.read("inventory", "--gpu", "4090", "--max-price", "0.80", "--provider", "vast")
    assert found["items"]
    assert {one["gpu"] for one in found["items"]} == {"RTX4090"}
    shown = await t.good("inventory", "--gpu", "4090", "--provider", "vast", "--columns", "gpu,offer")
    assert found["items"][0]["offer_id"] in shown
    assert "Plan for" in await t.good("plan", "model=7B", "tokens=2B", "--out", "made")
    assert sorted(path.name for path in (elsewhere / "made").iterdir()) == [
        "cost_estimate.json",
        "gpu_plan.md",
        "gpu_plan.png",
        "instance_manifest.json",
    ]
    assert "One run of 1 hour" in await t.good("compare", "--budget", "500")
    assert (await t.run("inventory", "--gpu", "RTX9999"))[0] == 2
    assert (await t.run("plan", "model"))[0] == 2


async def test_people_are_shown_by_the_name_that_the_policy_knows(terminal: Terminal) -> None:
    t = terminal
    t.w.tune(approvers=(BOB.id, CAROL.id, operator().ref))  # No name is linked to Carol's account.
    t.w.tune(same_person=((ALICE.id, "operator:alice"), (BOB.id, "operator:bob")))
    t.far()
    waits = await t.w.ask()
    request_id = await t.w.running()
    async with serving(build_api(Dependencies(t.w.ctx, ApiSettings("C0GPU")), {})) as url:
        t.monkeypatch.setenv("GPU_SHOPPER_URL", url)
        told = await t.good("request", str(waits.data["request_id"]))
        assert all(part in told for part in ("by alice for 1× RTX4090 for 2 hours is", "Approvers: bob, UCAROL, "))
        assert "Approved by bob, " in await t.good("request", request_id)
        for command in (("requests",), ("sessions",), ("session", request_id)):
            told = await t.good(*command)
            assert ("alice" in told, "UALICE" in told) == (True, False), command
        assert (await t.read("request", request_id))["decided_by_name"] == "bob"


async def test_an_address_that_cannot_be_used_is_explained(terminal: Terminal) -> None:
    t = terminal
    t.near()
    for url, key, code, says in (
        ("http://gpu.example.com", "gpuk_x", 78, "must begin with https://"),
        ("http://127.0.0.1:9", "", 78, "GPU_SHOPPER_API_KEY is not"),
        ("http://127.0.0.1:9", "gpuk_x", 69, "Can't reach http://127.0.0.1:9 (ConnectError). Check GPU_SHOPPER_URL"),
        (t.url, "gpuk_wrongwrong", 77, "needs a valid API key"),
        (next(iter(t.w.clouds)) and t.url.replace("127.0.0.1", "localhost"), "gpuk_wrong", 77, "valid API key"),
    ):
        t.monkeypatch.setenv("GPU_SHOPPER_URL", str(url))
        t.monkeypatch.setenv("GPU_SHOPPER_API_KEY", key)
        ended, out, err = await t.run("sessions")
        assert (ended, out, says in err) == (code, "", True), (url, err)
        assert "wrongwrong" not in err


async def test_preflight_has_a_line_for_every_cloud(terminal: Terminal) -> None:
    t = terminal
    t.w.use({"vast": t.w.ctx.providers["vast"]})
    async with serving(build_api(Dependencies(t.w.ctx, ApiSettings("C0GPU")), {})) as t.url:
        t.far()
        shown = (await t.good("preflight")).splitlines()
        assert [line.split()[:2] for line in shown if line.split()[0] in t.w.clouds] == [
            ["vast", "ok"],
            ["runpod", "not"],
            ["lambda", "not"],
            ["tensordock", "not"],
            ["kaggle", "not"],
        ]
        assert "Set KAGGLE_USERNAME and KAGGLE_KEY, or KAGGLE_API_TOKEN alone." in " ".join(shown)
        unset = {one["cloud"]: one["missing"] for one in await t.read("preflight") if not one["configured"]}
        assert unset["tensordock"] == ["TENSORDOCK_API_TOKEN"]
    t.w.use({})
    async with serving(build_api(Dependencies(t.w.ctx, ApiSettings("C0GPU")), {})) as t.url:
        t.far()
        code, out, _ = await t.run("preflight", "--columns", "cloud,state")
        assert (code, "ok" in out, out.splitlines()[1].split()) == (1, False, ["vast", "not", "set"])


async def test_who_you_are_here_is_explained_to_somebody_who_is_no_approver(terminal: Terminal) -> None:
    t = terminal
    key = NewKey("operator:eve", scopes=tuple(Scope))
    eve = await api_keys.create(t.w.ctx.db, t.w.ctx.labels, key, operator(), t.w.clock.now())
    t.far(str(eve.data["token"]))
    request_id = str((await t.w.ask(candidates=("vast",))).data["request_id"])
    await t.w.settle()
    code, _, err = await t.run("approve", request_id, "--max-usd", "99")
    said = "Here you act as the person of your API key. A Slack account counts as the same person only where the policy"
    assert (code, f"{said} links both names under `same_person`." in " ".join(err.split())) == (77, True)
