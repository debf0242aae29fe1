"""The API as a process behind TLS, as the reporter starts it: up after the first answer, its key on no disk."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
import socket
import ssl
import stat
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from bot.agent.api import protocol
from bot.api.app import build_api
from bot.api.dependencies import ApiSettings, Dependencies
from bot.services.nodes import node_api
from bot.services.nodes.api_identity import api_identity
from bot.services.nodes.node_api import Opened
from ledger.engine.db import Database
from ledger.queries.nodes import nodes_of
from tests.agent.api_machine import TOKEN, Machine, claims, free_port, pair
from tests.agent.service import Service
from tests.agent.test_processes import Agent, Start, here, start
from tests.services.nodes.test_deadlines import NODE_URL, Node
from tests.support.clock import SteppedClock
from tests.support.serving import serving
from tests.support.world import ALICE, checked_world

__all__ = ["here", "start"]  # Fixtures.
pytestmark = pytest.mark.slow


@pytest.fixture
def machine(here: Service) -> Machine:
    return Machine(here)


def api_of(agent: Agent) -> int:
    (reporter,) = agent.children()
    # Beside it a process may read the GPUs for a moment.
    (api,) = (one for one in agent.children(reporter) if b"serve-api" in Path(f"/proc/{one}/cmdline").read_bytes())
    return api


def until(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_from_the_exchange_to_an_answer_over_tls(here: Service, start: Start, machine: Machine, tmp_path: Path) -> None:
    agent = start(here.environment())
    (claim, *_) = claims(here.wait(lambda calls: bool(claims(calls))))
    der = ssl.PEM_cert_to_DER_cert(machine.certificate)
    assert claim == {"port": machine.port, "certificate_sha256": hashlib.sha256(der).hexdigest()}
    reply = machine.get("status")
    assert (reply.status_code, reply.json()["ends_in_s"] // 100) == (200, 35)
    assert machine.get("status", TOKEN + "x").status_code == 401
    machine.token = "gpua_" + "n" * 43
    count = len(here.calls)
    here.wait(lambda calls: len(calls) > count + 1)
    assert machine.get("status").status_code == 401
    assert machine.get("status", machine.token).status_code == 200
    found = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {"state.json", "lock", "asks"} <= {one.name for one in found}
    for pid in (agent.process.pid, *agent.children(), api_of(agent)):
        process = Path(f"/proc/{pid}")
        found |= {process / name: (process / name).read_bytes() for name in ("environ", "cmdline")}
        # Files that it has open, with a name or without one, as those of `memfd_create` are.
        for one in (process / "fd").iterdir():
            target = str(one.readlink())
            assert "memfd" not in target
            if stat.S_ISREG(one.stat().st_mode):
                found[one] = one.read_bytes()
    assert not [path for path, content in found.items() if any(secret in content for secret in secrets_of(machine))]


def secrets_of(machine: Machine) -> list[bytes]:
    """The private key's lines, and its numbers as they are in memory and in hexadecimal digits."""
    lines = [one.encode() for one in machine.key.splitlines() if "-----" not in one]
    key = serialization.load_pem_private_key(machine.key.encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    number = key.private_numbers().private_value.to_bytes(32, "big")
    return [*lines, number, number.hex().encode()]


def test_a_killed_api_is_started_again_and_a_killed_reporter_takes_its_api_with_it(
    here: Service, start: Start, machine: Machine
) -> None:
    agent = start(here.environment())
    here.wait(lambda calls: bool(claims(calls)))
    first = api_of(agent)
    os.kill(first, signal.SIGKILL)
    until(lambda: _is_up(machine) and api_of(agent) != first)
    second = api_of(agent)
    os.kill(agent.children()[0], signal.SIGKILL)
    until(lambda: not Path(f"/proc/{second}").exists())
    until(lambda: _is_up(machine))


def _is_up(machine: Machine, token: str = TOKEN) -> bool:
    with contextlib.suppress(httpx.HTTPError, ValueError):
        return machine.get("status", token).status_code == 200
    return False


def test_a_new_certificate_ends_no_running_call(here: Service, start: Start, machine: Machine, tmp_path: Path) -> None:
    agent = start(here.environment())
    here.wait(lambda calls: bool(claims(calls)))
    api, (certificate, key) = api_of(agent), pair()
    context = ssl.create_default_context(cadata=machine.certificate)
    context.check_hostname = False
    head = f"GET /node/v1/logs?source=agent&follow=true HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", machine.port)) as raw, context.wrap_socket(raw) as following:
        following.settimeout(20)
        following.sendall(head.encode())
        assert following.recv(100).startswith(b"HTTP/1.1 200")
        machine.certificate, machine.key, machine.always = certificate, key, True
        digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate)).hexdigest()
        here.wait(lambda calls: claims(calls)[-1]["certificate_sha256"] == digest)
        assert machine.get("status").status_code == 200
        log = next(iter(tmp_path.rglob("agent.log")), None) or next(tmp_path.rglob("job")).parent / "agent.log"
        with log.open("a") as file:
            file.write("a line after the new certificate\n")
        received = b""
        while b"after the new certificate" not in received:
            received += following.recv(1000)
    assert api_of(agent) == api


def test_a_silent_connection_is_closed(
    here: Service, start: Start, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(here.environment())
    here.wait(lambda calls: bool(claims(calls)))
    context = ssl.create_default_context(cadata=machine.certificate)
    context.check_hostname = False
    with socket.create_connection(("127.0.0.1", machine.port)) as raw, context.wrap_socket(raw) as silent:
        silent.settimeout(protocol.HEAD_S + 10)
        silent.sendall(b"GET /node/v1/status HTTP/1.1\r\n")
        assert silent.recv(100) == b""
    with socket.create_connection(("127.0.0.1", machine.port)) as raw, context.wrap_socket(raw) as silent:
        silent.settimeout(protocol.HEAD_S + 10)
        call = f"GET /node/v1/status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        silent.sendall(call.encode())
        assert silent.recv(10_000).startswith(b"HTTP/1.1 200")
        silent.sendall(b"GET /node/v1/status HTTP/1.1\r\n")
        while silent.recv(10_000):
            pass  # The rest of the answer, then the end: the second call never came whole.
    assert _is_up(machine)


async def test_with_the_real_service_its_token_and_its_certificate_open_the_api(
    sqlite_db: Database, clock: SteppedClock, start: Start
) -> None:
    """The owner gets a token from the service, and reaches the machine by the certificate that the service derived."""
    async with checked_world(sqlite_db, clock) as w:
        w.ctx = replace(w.ctx, node_url=NODE_URL)
        await w.running(candidates=("vast",))
        node = Node(w, "vast")
        row, port = (await w.books()).instances[0], free_port()
        api = build_api(Dependencies(w.ctx, ApiSettings("C0GPU")), {})
        async with serving(api) as url:
            own = {"GPU_SHOPPER_CHECKIN_URL": f"{url}/agent/v1/checkin", "GPU_SHOPPER_API_PORT": str(port)}
            agent = start({**node.settings.environment, **own})
            identity = api_identity(w.ctx.labels, row.id)

            async def claimed() -> bool:
                async with w.ctx.db.read() as tx:
                    return bool((await nodes_of(tx, [row.id]))[row.id].api_port == port)

            async with asyncio.timeout(60):
                while not await claimed():
                    w.clock.advance(1)
                    await asyncio.sleep(0.05)
            reply = await node_api.make_token(w.ctx, row.session_id, ALICE)
            opened = reply.data["opened"]
            assert isinstance(opened, Opened)
            machine = Machine.__new__(Machine)
            machine.port, machine.certificate, machine.key = port, identity.certificate, identity.key
            der = ssl.PEM_cert_to_DER_cert(identity.certificate)
            assert opened.certificate == hashlib.sha256(der).hexdigest()
            # A new reporter checks in at once, and its answer has the hash of the new token.
            os.kill(agent.children()[0], signal.SIGKILL)
            await asyncio.to_thread(until, lambda: _is_up(machine, opened.token))
            assert machine.get("status", opened.token[:-1] + "-").status_code == 401
