"""Secrets over HTTP: no route answers with a value but the check-in of the machine whose job names it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from bot.services.access import job_secrets, ssh_keys
from bot.services.access.job_secrets import StoreSecret
from bot.services.runtime.commands import AddKey
from bot.services.sessions import transfer
from bot.services.sessions.transfer import AnswerOffer, OfferSession
from ledger.engine.db import Database
from ledger.kernel.actor import Actor
from providers.sandbox.agents import TOKEN, SandboxAgent
from tests.api.door import Door, code_of
from tests.support.agents import agent, listening, pass_time
from tests.support.world import ALICE, CAROL, World

PATH = "http://bot/agent/v1/checkin"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
VALUE = "hf_canary'\"\n$(id)"


async def store(w: World, name: str = "HF_TOKEN", value: str = VALUE, actor: Actor = ALICE) -> None:
    assert (await job_secrets.store(w.ctx, StoreSecret(actor, name, value))).ok


async def everything(db: Database) -> str:
    """Every row of the ledger."""
    async with db.read() as tx:
        names = "SELECT name FROM sqlite_master WHERE type = 'table'"
        tables = (await tx.scalars(text(names))).all()
        rows = [(await tx.execute(text(f'SELECT * FROM "{one}"'))).all() for one in tables]  # noqa: S608
    return repr(rows)


@dataclass
class Node:
    """A machine of Alice, whose job names two secrets, and its agent."""

    door: Door
    session: str
    agent: SandboxAgent

    async def ask(self, token: str = "", **body: Any) -> httpx.Response:
        """One check-in that asks for secrets."""
        self.door.w.clock.advance(10)
        self.agent.seq += 1
        said = {"v": 2, "seq": self.agent.seq, "wants_secrets": True, **body}
        head = {"Authorization": f"Bearer {token or self.agent.token or self.agent.env[TOKEN]}"}
        return await self.door.http.post(PATH, json=said, headers=head)

    async def secrets(self, **body: Any) -> Any:
        """What its answer has."""
        answer = await self.ask(**body)
        assert answer.status_code == 200, answer.text
        return answer.json().get("secrets")


@pytest.fixture
async def node(sqlite_door: Door) -> AsyncIterator[Node]:
    w = sqlite_door.w
    async with listening(w):
        await store(w)
        await store(w, "WANDB_API_KEY", "wb_canary")
        await store(w, "OTHER", "other_canary")
        names = ("HF_TOKEN", "WANDB_API_KEY")
        session = await w.running(candidates=("vast",), run="python train.py", secrets=names)
        await pass_time(w, 61)
        yield Node(sqlite_door, session, agent(w))


async def test_an_agent_that_asks_gets_the_secrets_that_its_job_names_and_the_journal_their_names(node: Node) -> None:
    w = node.door.w
    assert await node.secrets(wants_secrets=False) is None
    assert await node.secrets() == {"HF_TOKEN": VALUE, "WANDB_API_KEY": "wb_canary"}
    plan = (await node.ask(wants_startup=True)).json()["startup"]
    assert [one["secrets"] for one in plan["steps"]] == [[], [], ["HF_TOKEN", "WANDB_API_KEY"]]
    sent = [one for one in (await w.books()).events if one.kind == "instance.secrets_sent"]
    assert [one.reason for one in sent] == ["Sent to its agent: HF_TOKEN, WANDB_API_KEY."] * 2
    assert sent[0].subject == (await w.books()).instances[0].id
    rows = await everything(w.ctx.db)
    assert ("canary" in rows, "canary" in repr(w.board.shown), "HF_TOKEN" in rows) == (False, False, True)
    assert "canary" not in repr([(one.method, one.path) for one in w.engine.calls])


async def test_a_deleted_secret_and_one_of_another_value_count_from_the_next_start_on(node: Node) -> None:
    w = node.door.w
    await job_secrets.delete(w.ctx, ALICE, "WANDB_API_KEY")
    await store(w, value="newer")
    assert await node.secrets() == {"HF_TOKEN": "newer"}
    await job_secrets.delete(w.ctx, ALICE, "HF_TOKEN")
    assert await node.secrets() == {}


async def test_a_boot_token_gets_none(node: Node) -> None:
    w = node.door.w
    boot = node.agent.env[TOKEN]
    assert (await node.ask(boot)).status_code == 401
    assert (await node.ask("gpuc_" + "0" * 60)).status_code == 401
    w.engine.nodes.exchange = False  # A machine whose agent exchanges nothing.
    await w.running(candidates=("vast",), run="python train.py", secrets=("HF_TOKEN",))
    await pass_time(w, 61)
    second = Node(node.door, "", agent(w, 1))
    assert await second.secrets(wants_startup=True) is None
    exchanging = await second.ask(second.agent.env[TOKEN], nonce="n" * 32)
    assert (exchanging.status_code, exchanging.json()["secrets"]) == (200, None)
    assert await second.secrets(token=exchanging.json()["token"]) == {"HF_TOKEN": VALUE}


async def test_a_transferred_session_gets_nobodys_secrets(node: Node) -> None:
    w = node.door.w
    await store(w, value="carols_canary", actor=CAROL)
    assert (await ssh_keys.add(w.ctx, AddKey(CAROL, KEY))).ok
    assert (await transfer.offer(w.ctx, OfferSession(node.session, ALICE, CAROL))).ok
    assert await node.secrets() == {"HF_TOKEN": VALUE, "WANDB_API_KEY": "wb_canary"}
    assert (await transfer.answer(w.ctx, AnswerOffer(node.session, CAROL, accept=True))).ok
    assert await node.secrets() == {}


async def test_a_session_that_ends_gets_none(node: Node) -> None:
    assert (await node.door.w.end(node.session)).ok
    assert await node.secrets() == {}


async def test_a_machine_whose_job_names_none_gets_none(sqlite_door: Door) -> None:
    w = sqlite_door.w
    async with listening(w):
        await store(w)
        session = await w.running(candidates=("vast",))
        await pass_time(w, 61)
        assert await Node(sqlite_door, session, agent(w)).secrets() == {}


# ── the routes for people ────────────────────────────────────────────────────────────────────────


async def test_a_caller_stores_lists_and_deletes_their_own_secrets(door: Door) -> None:
    eve, ben = await door.key("operator:eve"), await door.key("operator:ben")
    assert (await door.call("GET", "/secrets", eve)).json() == []
    stored = await door.call("PUT", "/secrets/HF_TOKEN", eve, json={"value": VALUE})
    assert (stored.status_code, stored.json()["code"], stored.json()["name"]) == (200, "secret_stored", "HF_TOKEN")
    (one,) = (await door.call("GET", "/secrets", eve)).json()
    assert sorted(one) == ["created_at", "name", "updated_at"]
    assert (await door.call("GET", "/secrets/HF_TOKEN", eve)).json() == one
    assert (await door.call("GET", "/secrets", ben)).json() == []
    for method in ("GET", "DELETE"):
        assert code_of(await door.call(method, "/secrets/x%1B", eve)) == "bad_secret"
        answer = await door.call(method, "/secrets/HF_TOKEN", ben)
        assert (answer.status_code, code_of(answer)) == (404, "no_secret")
    assert (await door.call("DELETE", "/secrets/HF_TOKEN", eve)).json()["code"] == "secret_deleted"
    assert (await door.call("GET", "/secrets", eve)).json() == []


async def test_a_wrong_secret_is_refused_and_no_answer_repeats_the_value(door: Door) -> None:
    eve = await door.key("operator:eve")
    for name, body in (
        ("PATH", {"value": VALUE}),
        ("hf_token", {"value": VALUE}),
        ("HF_TOKEN", {"value": VALUE * 1000}),
        ("HF_TOKEN", {"value": ["hf_canary"]}),
        ("HF_TOKEN", {"value": VALUE, "hf_canary": VALUE}),
        ("HF_TOKEN", {"val": VALUE}),
        ("HF_TOKEN", "hf_canary"),
    ):
        answer = await door.call("PUT", f"/secrets/{name}", eve, json=body)
        assert answer.status_code == 422, answer.text
        assert "canary" not in answer.text or ("hf_canary" in body and "hf_canary is no field" in answer.text)
    assert (await door.call("GET", "/secrets", eve)).json() == []
