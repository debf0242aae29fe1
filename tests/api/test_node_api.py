"""The API on the machine itself: where it is, what opens it, shown once, and never anywhere but on that machine."""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
from typing import Any

from bot.api.schemas.sessions import SessionOut
from bot.cli.terminal.views import session_details
from bot.rules.access.sight import Sight
from bot.rules.instances.power import PowerAction
from bot.services.billing.shared_ledger import manifest
from bot.services.instances import power
from bot.services.notifications.paging import OPERATORS
from bot.services.runtime.commands import Switch
from bot.slack.blocks.session import status
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.event_kind import EventKind
from ledger.models import Node as NodeRow
from ledger.queries.journal import latest_events
from providers.profiles import model
from tests.api.door import Door, code_of, opened
from tests.support.agents import agent, listening, pass_time
from tests.support.clock import SteppedClock
from tests.support.world import ALICE, World, checked_world, facts

ATLAS = Actor(ActorKind.CONSUMER, "atlas")


async def asked_of(url: str, certificate: str, token: str) -> tuple[int, dict[str, Any]]:
    """Call a machine as a careful program does: nothing is sent before its certificate is the one that was shown."""
    host, _, port = url.removeprefix("https://").rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert hashlib.sha256(shown).hexdigest() == certificate
        writer.write(f"GET / HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body)
    finally:
        writer.close()


async def seen(door: Door, key: str, session: str) -> SessionOut:
    answer = await door.call("GET", f"/sessions/{session}", key)
    assert answer.status_code == 200, answer.text
    return SessionOut.model_validate(answer.json())


async def test_a_program_reaches_the_api_of_its_machine_with_a_token_that_is_shown_once(door: Door) -> None:
    w = door.w
    atlas, hermes = await door.key("atlas"), await door.key("hermes")
    root = await door.key("operator:root", scopes=("admin", "sessions:write"))
    async with listening(w):
        session = await w.running(ATLAS, candidates=("vast",))
        path, node = f"/sessions/{session}/token", agent(w)
        assert (await seen(door, atlas, session)).node_api is None
        assert code_of(await door.call("POST", path, atlas)) == "no_node_api"
        serving = await node.serve()
        await pass_time(w, 61)
        assert node.api_problem == ""
        found = (await seen(door, atlas, session)).node_api
        assert found is not None
        url, certificate = f"https://127.0.0.1:{node_port(w)}", serving.certificate_sha256
        assert (found.url, found.certificate_sha256) == (url, certificate)
        assert code_of(await door.call("POST", path, hermes)) == "unknown_id"
        assert code_of(await door.call("POST", path, root)) == "not_yours"
        assert (await seen(door, root, session)).node_api is None
        made = await door.call("POST", path, atlas)
        assert (made.status_code, made.headers["cache-control"]) == (201, "no-store")
        token = made.json()["token"]
        assert (await asked_of(url, certificate, token))[0] == 401  # Its machine has not heard of it.
        await pass_time(w, 61)
        assert await asked_of(url, certificate, token) == (200, {"status": "ok"})
        for wrong in ("", node.env["GPU_SHOPPER_CHECKIN_TOKEN"], node.token, f"{token}x", serving.token_sha256):
            assert (await asked_of(url, certificate, str(wrong)))[0] == 401
        # A token for the machine opens nothing here, and nobody can read it again.
        assert code_of(await door.call("GET", "/sessions", token)) == "unauthenticated"
        after = await seen(door, atlas, session)
        assert token not in after.model_dump_json()
        books = await w.books()
        kept = [vars(one) for rows in (books.events, books.notifications) for one in rows]
        async with w.ctx.db.read() as tx:
            kept.append(vars(await tx.get_one(NodeRow, books.instances[0].id)))
        assert token.split("_", 2)[2] not in repr(kept)
        new = (await door.call("POST", path, atlas)).json()["token"]
        await pass_time(w, 61)
        answers = [(await asked_of(url, certificate, one))[0] for one in (token, new)]
        assert answers == [401, 200]
        assert (await w.end(session, ATLAS)).ok
        await w.run(120, 30)
        assert (await seen(door, atlas, session)).node_api is None
        assert code_of(await door.call("POST", path, atlas)) == "no_node_api"


def node_port(w: World) -> int:
    served = agent(w).api
    assert served is not None
    return served.port


async def test_a_node_sends_nobody_elsewhere_and_another_certificate_is_told(door: Door) -> None:
    w = door.w
    async with listening(w):
        await w.running(ALICE, candidates=("vast",))
        node, row = agent(w), (await w.books()).instances[0]
        await pass_time(w, 61)
        head = {"Authorization": f"Bearer {node.token}"}

        async def report(seq: int, **api: object) -> str:
            body = {"seq": seq, "api": {"certificate_sha256": "e" * 64, **api}}
            answer = await door.http.post("http://bot/agent/v1/checkin", json=body, headers=head)
            return answer.json()["api_problem"] if answer.status_code == 200 else code_of(answer)

        # The machine is heard all the same: a wrong word about its API does not make it silent.
        for number, api in enumerate(({"url": "https://evil.example:9"}, {"url": "http://127.0.0.1:9"}, {})):
            assert await report(node.seq + number + 1, **api) not in ("", "invalid")
        assert await report(node.seq + 9, certificate_sha256="e" * 63, port=9) == "invalid"
        node.seq += 10
        assert (await w.session(row.session_id)).node.api_port is None  # type: ignore[union-attr]
        first = (await node.serve()).certificate_sha256
        await pass_time(w, 61)
        second = (await node.serve()).certificate_sha256
        await pass_time(w, 200)
        assert "The certificate changed" in node.api_problem
        view = await w.session(row.session_id)
        assert view.node is not None
        assert (view.node.api_certificate, view.node.api_other) == (first, second)
        alarms = [(place, n) for _, subject, place, n in w.board.shown if subject == f"{row.id}/api"]
        assert sorted(alarms) == sorted([(ALICE.id, 1), (OPERATORS, 1)])
        async with w.ctx.db.read() as tx:
            kind = EventKind.INSTANCE_API_CERTIFICATE_CHANGED
            (event,) = await latest_events(tx, row.id, kind, 2)
        assert (event.data["before"], event.data["after"]) == (first, second)
        shown = await manifest(w.ctx, ALICE, everybody=False, endpoints=False)
        api = {"url": f"https://127.0.0.1:{node_port(w)}", "certificate_sha256": first}
        assert [one["api"] for one in shown["instances"]] == [api]
        assert [one["api"] for one in (await manifest(w.ctx, ATLAS, everybody=True, endpoints=False))["instances"]] == [
            None
        ]
        page = status.details(view, w.ctx.policy, w.clock.now(), Sight.OWN).text
        assert first in page
        assert second in page
        assert "Do not trust it" in page


async def test_a_restart_that_wipes_the_disk_makes_a_new_certificate_and_no_alarm(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    async with checked_world(sqlite_db, clock) as w, listening(w):
        w.tune(same_person=((ALICE.id, "operator:alice"),))
        cloud = next(
            name for name, one in w.ctx.providers.items() if one.capabilities.restart and model.load(name).restarted
        )
        request_id = await w.running(ALICE, candidates=(cloud,))
        await agent(w).serve()
        await pass_time(w, 61)
        assert (await power.switch(w.ctx, Switch(request_id, facts(ALICE), PowerAction.RESTART))).ok
        await w.settle()
        assert (await w.session((await w.books()).sessions[0].id)).node.api_port is None  # type: ignore[union-attr]
        await w.run(60, 20)
        serving = await agent(w).serve()
        await pass_time(w, 61)
        async with opened(w) as door:
            out = await seen(door, await door.key("operator:alice"), request_id)
        assert out.node_api is not None
        assert (out.node_api.certificate_sha256, out.node_api.other_at) == (serving.certificate_sha256, None)
        said = " ".join(session_details(out).sentences)
        assert serving.certificate_sha256 in said
        assert f"gpu-shopper session token {out.request_id[-6:]}" in said
        assert not [place for _, subject, place, _ in w.board.shown if subject.endswith("/api")]
