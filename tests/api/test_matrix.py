"""Every route for every kind of caller, made from the application itself, so that no route can be forgotten."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import httpx
from sqlalchemy import select

from bot.api.dependencies import SCOPE_FIELD, ApiSettings
from bot.services.access import api_keys
from bot.services.sessions import transfer
from bot.services.sessions.transfer import OfferSession
from bot.wire import variables
from ledger.engine.db import Database
from ledger.kernel.actor import Actor
from ledger.kernel.states import InstanceState, RequestState
from ledger.models import Node
from tests.api.door import ADA, DOCUMENT, JOB, Door, opened
from tests.support.agents import agent, listening
from tests.support.clock import SteppedClock
from tests.support.world import BOB, checked_world

#: `(method, path, scope)` of everything that is served; the page of routes stands beside its description.
ROUTES = [
    (method.upper(), path, str(operation.get(SCOPE_FIELD, "")))
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
] + [("GET", "/docs", ""), ("GET", "/openapi.json", "")]
CHECKIN = "/agent/v1/checkin"
API = "/api/v1"
#: What the node of another session reports; no machine gets there by itself.
STEP = 777_777_777
#: A body that every check but the last one takes: what is asked for in it is refused, so that nothing changes.
BODIES: dict[str, dict[str, Any]] = {
    "/requests/{request}/approve": {"offer_id": "vast:0"},
    "/sessions/{session}/extend": {"hours": "soon"},
    "/ssh-keys": {"public_key": "none"},
    "/secrets/{name}": {"value": ""},
    "/keys": {"name": "!"},
    "/ledger/entries": {"skill": "x", "provider": "x", "action": "x", "amount_usd": "0", "timestamp": "now"},
    "/webhooks": {"url": "http://inside/"},
    "/runs": {"tokens_s": 1},
    "/budgets": {"scope": "nobody", "period": "daily"},
    "/orphans/{orphan}/adopt": {"hours": 1},
    "/requests/{request}/break-glass": {"reason": "x"},
    "/requests/{request}/share": {"person": "nobody"},
    "/sessions/{session}/shares": {"person": "nobody"},
    "/sessions/{session}/transfer": {"person": "nobody"},
    "/sessions/{session}/grace": {"choice": "wait"},
    "/bills/{bill}/confirm": {"amount": 1},
    "/unreachable/gone": {"ids": ["ins_nowhere"]},
    "/volumes": {"name": "!", "size": "x"},
    "/requests/again": {"request": "zzzzzz"},
    "/delegations": {"delegate": "nobody", "until": "2026-12-01"},
}
#: These would change the session or the request for a key that may; the walks do that.
CHANGES = {
    ("POST", f"{API}/requests/{{request}}/cancel"),
    ("POST", f"{API}/sessions/{{session}}/done"),
    ("POST", f"{API}/sessions/{{session}}/grace"),
    ("POST", f"{API}/sessions/{{session}}/stop"),
    ("POST", f"{API}/sessions/{{session}}/start"),
    ("POST", f"{API}/sessions/{{session}}/restart"),
    ("DELETE", f"{API}/sessions/{{session}}"),
}
#: The same of a webhook.
HOOK_CHANGES = {
    ("DELETE", f"{API}/webhooks/{{webhook}}"),
    *(("POST", f"{API}/webhooks/{{webhook}}/{what}") for what in ("test", "rotate", "replay")),
}
#: Refusals of the bodies above, and successes of what only reads.
HARMLESS = {
    "200",
    "bad_word",
    "bad_consumer",
    "not_a_key",
    "no_key",
    "no_secret",
    "bad_secret",
    "bad_volume",
    "unknown_key",
    "unknown_event",
    "bad_url",
    "bad_entry",
    "reason_needed",
    "bad_budget",
    "bad_delegate",
    "no_delegation",
    "unknown_team",
    "cannot_migrate",
    "not_older",
}
OWNER, OTHER, APPROVER, PERSON, ADMIN = "atlas", "hermes", "operator:ben", "operator:eve", "admin"
#: Somebody to whom the session of atlas is offered, who has not accepted it.
OFFERED = "operator:fay"
NODE, FORGED, REVOKED, ANONYMOUS = "node of another session", "forged node", "revoked", "anonymous"
#: AI agents that use the keys of others: a header of each call says so, in whatever spelling.
AGENTS = {
    "agent of atlas": (OWNER, {"X-GPU-Shopper-Agent": "1"}),
    "agent of operator:ben": (APPROVER, {"x-gpu-shopper-agent": "0"}),
    "agent of admin": (ADMIN, {"X-GPU-SHOPPER-AGENT": ""}),
    "agent of operator:fay": (OFFERED, {"X-Gpu-Shopper-Agent": "yes"}),
}
#: What the session of atlas runs.
RUN = "python train.py --name canary-of-atlas"
#: What no key has unless it is asked for, and an administrator's always.
ADMINS = {"admin", "metrics:read", "ledger:write"}
STRANGERS = {REVOKED, ANONYMOUS, FORGED}


@dataclass
class Stage:
    """Atlas has a session with a machine that reports, a waiting request and a webhook; hermes has a session too."""

    door: Door
    tokens: dict[str, str]
    names: dict[str, str]
    #: What only atlas and those who see everything may read.
    secret: tuple[str, ...]
    seq: int
    session: str

    async def answer(self, caller: str, method: str, path: str) -> httpx.Response:
        """What one caller is answered."""
        holder, said = AGENTS.get(caller, (caller, {}))
        token = self.tokens[holder]
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        headers |= said
        more: dict[str, Any] = {}
        if method == "POST":
            headers["Idempotency-Key"] = f"{caller[:9]}/{token[:20]}/{path}"
        if method in ("POST", "PUT"):
            more["json"] = BODIES.get(path.removeprefix(API), {})
        if path == CHECKIN:
            more["json"] = {"seq": self.seq, "step": STEP}
        if path == f"{API}/events":
            # Nothing happened with this id, so that the stream does not begin; its own test reads it.
            headers["Last-Event-ID"] = f"evt_{'0' * 16}"
        return await self.door.http.request(method, f"http://bot{path.format(**self.names)}", headers=headers, **more)


async def staged(door: Door) -> Stage:
    """Set it up."""
    w = door.w
    tokens = {name: await door.key(name) for name in (OWNER, OTHER, APPROVER, PERSON, OFFERED)}
    tokens |= {ADMIN: await door.key("operator:root", scopes=("admin",)), REVOKED: await door.key("zeus")}
    await api_keys.revoke(w.ctx.db, tokens[REVOKED].split("_")[1], ADA, w.clock.now())
    held = await door.asked(tokens[OWNER], candidates=["vast"], run=RUN)
    theirs = await door.asked(tokens[OTHER], candidates=["vast"])
    for one in (held, theirs):
        assert (await w.decide(one)).ok
    await w.settle()
    await w.run(40, 20)
    waiting = await door.asked(tokens[OWNER])
    books = await w.books()
    (machine,) = [row for row in books.instances if (row.request_id, row.state) == (theirs, InstanceState.LIVE)]
    nodes = [agent(w, number) for number in range(2)]
    (node,) = [one for one in nodes if machine.id.partition("_")[2] in one.env[variables.TOKEN]]
    own = next(one for one in nodes if one is not node).env[variables.TOKEN]
    # The number of one session's token before the secret of another's.
    tokens |= {NODE: node.token or node.env[variables.TOKEN], ANONYMOUS: ""}
    tokens[FORGED] = "_".join((*own.split("_", 2)[:2], node.env[variables.TOKEN].split("_", 2)[2]))
    offered = await transfer.offer(w.ctx, OfferSession(held, ADA, Actor.from_ref(OFFERED)))
    assert offered.ok, offered
    made = await door.call("POST", "/webhooks", tokens[OWNER], json={"url": "http://127.0.0.1:9/hooks"})
    assert made.status_code == 201, made.text
    names = {"request": waiting, "session": held, "cloud": "vast", "key_id": "0" * 12}
    names |= {"webhook": made.json()["webhook_id"], "orphan": f"str_{'0' * 16}"}
    names["bill"] = f"ins_{'0' * 16}"
    names["name"] = "HF_TOKEN"
    (session,) = [one.id for one in books.sessions if one.request_id == held]
    return Stage(door, tokens, names, (held, waiting, session, names["webhook"]), node.seq + 10_000, session)


async def test_every_route_for_every_caller(sqlite_db: Database, clock: SteppedClock) -> None:
    settings = ApiSettings("C0GPU", wrong_keys_per_minute=10_000)
    async with checked_world(sqlite_db, clock) as w, listening(w):
        w.tune(approvers=(BOB.id, APPROVER), webhook_networks=("127.0.0.1/32",))
        async with opened(w, settings) as door:
            stage = await staged(door)
            before = await state_of(door)
            for caller in (*stage.tokens, *AGENTS):
                for method, path, scope in ROUTES:
                    right = expected(caller, method, path, scope)
                    if right is None:
                        continue
                    answer = await stage.answer(caller, method, path)
                    found = code_of(answer)
                    assert found in right, (caller, method, path, answer.status_code, found, right)
                    if caller not in (OWNER, APPROVER, ADMIN, "agent of atlas"):
                        assert RUN not in answer.text, (caller, method, path)
                        if answer.status_code < 300 and not is_offered(caller, path):
                            assert not [one for one in stage.secret if one in answer.text], (caller, method, path)
            assert await state_of(door) == before
            async with w.ctx.db.read() as tx:
                steps = {one.session_id: one.report.get("step") for one in await tx.scalars(select(Node))}
            # A token speaks for its own machine and for no other.
            assert (len(steps), steps.pop(stage.session) == STEP, list(steps.values())) == (2, False, [STEP])
            assert (await door.call("DELETE", f"/sessions/{stage.names['session']}", stage.tokens[OWNER])).is_success
            await w.settle()


def is_offered(caller: str, path: str) -> bool:
    """Whether this is the page of the session that is offered to the caller."""
    return AGENTS.get(caller, (caller, {}))[0] == OFFERED and path == f"{API}/sessions/{{session}}"


def code_of(answer: httpx.Response) -> str:
    """The code of a refusal, or the status of a success."""
    if answer.is_success:
        return str(answer.status_code)
    return str(answer.json()["code"])


async def state_of(door: Door) -> tuple[Any, ...]:
    books = await door.w.books()
    return (
        len(books.events),
        [(one.id, one.state) for one in books.requests],
        [(one.id, one.state) for one in books.sessions],
        [(one.id, one.state, one.wanted) for one in books.instances],
        [one.id for one in books.grants],
    )


def expected(caller: str, method: str, path: str, scope: str) -> set[str] | None:
    """The codes (or successes) that a caller may get; None for what would change what the others look at."""
    if path == CHECKIN:
        return {"200"} if caller == NODE else {"unauthenticated"}
    if not path.startswith(API) and path != "/metrics":
        return {"200"}
    if caller in STRANGERS or caller == NODE:
        return {"unauthenticated"}
    if caller in AGENTS:
        return _of_agent(caller, method, path, scope)
    person = caller.startswith("operator:")
    if (scope == "approvals:write" and not person) or (scope in ADMINS and caller != ADMIN):
        return {"scope_missing"}
    if "{webhook}" in path:
        return _of_webhook(caller, method, path)
    if "{request}" in path or "{session}" in path:
        return _of_somebody(caller, method, path)
    if path == f"{API}/requests/again":
        return {"unknown_id"}
    if path == f"{API}/orphans/{{orphan}}/adopt" and caller in (PERSON, OFFERED):
        return {"not_an_approver"}
    return HARMLESS


def _of_agent(caller: str, method: str, path: str, scope: str) -> set[str] | None:
    """An agent has what its key has, without what only people have: no approvals, and nobody else's things."""
    holder, _ = AGENTS[caller]
    if holder == ADMIN or scope in {"approvals:write", *ADMINS}:
        return {"scope_missing"}  # The administrator's key has no other scope.
    return expected(PERSON if holder == APPROVER else holder, method, path, scope)


def _of_webhook(caller: str, method: str, path: str) -> set[str] | None:
    """A webhook is changed by its owner and by administrators; approvers see it."""
    if caller in (OTHER, PERSON, OFFERED):
        return {"unknown_webhook"}
    if method == "GET":
        return {"200"}
    assert (method, path) in HOOK_CHANGES
    return {"not_yours"} if caller == APPROVER else None


def _of_somebody(caller: str, method: str, path: str) -> set[str] | None:
    if method == "DELETE" and path == f"{API}/sessions/{{session}}/shares":
        return {"invalid"}  # It names nobody.
    if caller in (OTHER, PERSON):
        return {"unknown_id"}
    if caller == OFFERED:
        return _of_offered(method, path)
    if path in (f"{API}/sessions/{{session}}/ssh", f"{API}/sessions/{{session}}/logs"):
        return {"no_host_key"} if caller == OWNER else {"not_yours"}  # Also those who see everything.
    if path == f"{API}/sessions/{{session}}/migrate":
        return {"cannot_migrate"} if caller == OWNER else {"not_yours"}  # Nobody else spends its owner's money.
    if method == "GET":
        return {"200"}
    if path == f"{API}/sessions/{{session}}/token":
        return {"no_node_api"} if caller == OWNER else {"not_yours"}  # Also those who see everything.
    if (method, path) in CHANGES:
        # A key that only administers sees everything and ends nothing.
        return {"not_yours"} if caller == ADMIN else None
    if path.startswith(f"{API}/sessions/{{session}}/transfer/"):
        # An administrator may withdraw the offer, and its owner, which is a program, has none.
        return None if (caller, path.rpartition("/")[2]) == (ADMIN, "decline") else {"no_transfer"}
    if path.endswith(("/share", "/shares", "/transfer")):
        return {"bad_share"}
    return {
        "bad_word",
        "unknown_offer",
        "reason_needed",
        "no_break_glass",
        "not_in_advance",
        *({"not_yours"} if caller == ADMIN else ()),
    }


def _of_offered(method: str, path: str) -> set[str] | None:
    """Who is offered a session reads its facts, and accepts or declines it; nothing else."""
    if "{request}" in path:
        return {"unknown_id"}  # The request that waits is another one.
    if path.startswith(f"{API}/sessions/{{session}}/transfer/"):
        return None
    return {"200"} if (method, path) == ("GET", f"{API}/sessions/{{session}}") else {"not_yours"}


async def test_an_agent_with_an_approvers_key_approves_nothing_in_any_spelling(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    async with checked_world(sqlite_db, clock) as w:
        w.tune(
            approvers=(BOB.id, APPROVER),
            break_glass=(APPROVER,),
            max_open_requests_per_user=20,
            auto_approve_below_usd=Decimal(5),
            auto_approve_daily_usd=Decimal(50),
            auto_approve_until=date(2030, 1, 1),
            auto_approve_signed_by="UBOSS",
        )
        async with opened(w) as door:
            token = await door.key(APPROVER)
            for said in ("1", "0", "false", "", " "):
                header = {"x-gpu-SHOPPER-agent": said}
                made = await door.call("POST", "/sessions", token, json=JOB, headers=header)
                assert made.status_code == 202, made.text
                request_id = made.json()["request_id"]
                await w.settle()
                view = await w.view(request_id)
                assert (view.request.state, view.request.by_agent) == (RequestState.PENDING, True)
                for act, body in (
                    ("approve", {"offer_id": view.options[0].offer_id}),
                    ("reject", {"reason": "no"}),
                    ("break-glass", {"reason": "now"}),
                ):
                    path = f"/requests/{request_id}/{act}"
                    refused = await door.call("POST", path, token, json=body, headers=header)
                    assert (refused.status_code, code_of(refused)) == (403, "scope_missing"), (act, refused.text)
                    assert refused.json()["detail"] == "An AI agent can't do this, whatever its key may do."
            # The same key without the header is the person's.
            made = await door.call("POST", "/sessions", token, json=JOB)
            await w.settle()
            assert (await w.view(made.json()["request_id"])).request.state is RequestState.APPROVED
            await w.settle()
