"""A machine that is shared: the keys of all its people are on it, they see it and log in, and change nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from bot.api.schemas.requests import RequestOut
from bot.api.views import session_out
from bot.cli.terminal.views import request_details, session_details
from bot.rules.access.scopes import Scope
from bot.rules.access.sight import Sight
from bot.rules.approvals.approvers import DeciderFacts
from bot.rules.grammar.parser import GrammarError, parse
from bot.rules.policy.policy import Policy
from bot.services.access import sharing, ssh_keys
from bot.services.access.sharing import ShareWith
from bot.services.billing import costs
from bot.services.nodes.login import login
from bot.services.runtime.commands import AddKey
from bot.services.sessions import service
from bot.slack.blocks.listing import listing
from bot.slack.blocks.request import request_message
from bot.slack.blocks.session.session_ready_and_ended import ready_for_others
from ledger.kernel.actor import Actor
from providers.sandbox.runpod.sandbox import RunPodSandbox
from tests.api.door import code_of, opened
from tests.services.access.test_ssh_keys import public
from tests.support.wire import RealReach
from tests.support.world import ALICE, DAVE, World

#: Dave as Alice mentions him: without the workspace.
MENTIONED = "slack:UDAVE"


async def key_of(w: World, actor: Actor) -> str:
    """A new key of somebody."""
    line = public(ed25519.Ed25519PrivateKey.generate())
    w.clock.advance(1)
    assert (await ssh_keys.add(w.ctx, AddKey(actor, line))).ok
    return line


async def test_the_keys_of_all_its_people_go_onto_the_machine(w: World) -> None:
    w.tune(same_person=((DAVE.id, "operator:dave"),), validate_login=False)
    keys = [await key_of(w, who) for who in (ALICE, ALICE, DAVE, Actor.from_ref("operator:dave"))]
    await w.approved(candidates=("runpod",), share=(MENTIONED,))
    await w.approved(candidates=("runpod",), share=(MENTIONED,), public_key=keys[0])
    await w.settle()
    runpod = w.clouds["runpod"]
    assert isinstance(runpod, RunPodSandbox)
    placed = [pod.order.env["PUBLIC_KEY"].splitlines() for pod in runpod.account.instances.values()]
    assert sorted(placed, key=len, reverse=True) == [keys, [keys[0], *keys[2:]]]


async def test_who_shares_it_is_told_sees_it_logs_in_and_changes_nothing(w: World) -> None:
    assert isinstance(w.ctx.reach, RealReach)
    w.ctx.reach.keys = True
    w.tune(same_person=((DAVE.id, "operator:dave"), (ALICE.id, "operator:alice")))
    request_id = await w.running(candidates=("vast",), share=(MENTIONED,))
    short = request_id[-6:]
    (told,) = [one for one in (await w.books()).notifications if one.subject == f"{request_id}/shared/{MENTIONED}"]
    assert told.destination == DAVE.id
    assert f"shares request {short} with you. Your SSH keys go onto its machine." in told.body["text"]
    assert "You have no SSH key here yet" in told.body["text"]
    (row,) = (await w.books()).sessions
    assert (await login(w.ctx, row.id, DAVE)).code == "login"
    assert (await w.end(request_id, DAVE)).code == "not_yours"
    assert [view.session.id for view in (await service.listing(w.ctx, DAVE)).sessions] == [row.id]
    assert (await costs.overview(w.ctx, DAVE)).running_usd == Decimal(0)
    view, request = await w.session(row.id), await w.view(request_id)
    assert (
        f"<@{ALICE.id}> with <@{DAVE.id}>"
        in listing(await service.listing(w.ctx, DAVE), {}, "/gpu", w.clock.now()).text
    )
    assert f"<@{ALICE.id}> with <@{DAVE.id}>" in str(request_message(request, w.ctx.policy).blocks)
    ready = ready_for_others(view)
    assert f"The *1× RTX4090* that <@{ALICE.id}> shares with you at vast is ready. Connect: `ssh -p " in ready.text
    assert [block["type"] for block in ready.blocks] == ["section", "section", "context"]
    assert "Shared with dave." in session_details(session_out(w.ctx, view, w.clock.now(), Sight.OWN)).sentences
    async with opened(w) as door:
        dave, eve = await door.key("operator:dave"), await door.key("operator:eve")
        (seen,) = (await door.call("GET", "/sessions", dave)).json()["items"]
        assert (seen["shared_with_names"], seen["ssh"]["port"]) == (["dave"], view.instance and view.instance.ssh_port)
        assert (await door.call("GET", f"/sessions/{short}/ssh", dave)).json()["host"] == "127.0.0.1"
        for method, path in (("DELETE", ""), ("POST", "/stop"), ("POST", "/done")):
            refused = await door.call(method, f"/sessions/{short}{path}", dave, json={})
            assert code_of(refused) == "not_yours", path
        assert code_of(await door.call("POST", f"/sessions/{short}/token", dave)) == "not_yours"
        assert code_of(await door.call("GET", f"/sessions/{short}/ssh", eve)) == "unknown_id"
        assert (await door.call("GET", "/sessions", eve)).json()["items"] == []


async def test_a_request_that_waits_is_shared_and_no_longer(w: World) -> None:
    w.tune(same_person=((DAVE.id, "operator:dave"), (ALICE.id, "operator:alice")))
    request_id = str((await w.ask(candidates=("runpod",))).data["request_id"])
    await w.settle()
    dave, short = Actor.from_ref("operator:dave"), request_id[-6:]

    async def share(by: Actor = ALICE, person: Actor = dave, *, off: bool = False, of: str = short) -> tuple[str, str]:
        reply = await sharing.change(w.ctx, ShareWith(of, by, person, off))
        return reply.code, reply.sentence

    assert await share(DAVE) == ("not_yours", f"Only the owner of {short} can share it.")
    assert await share(person=Actor.from_ref("operator:alice")) == ("bad_share", "The machine is yours already.")
    assert (await share(of="zzzzzz"))[0] == "unknown_id"
    added = f"Request {short} is shared with operator:dave. Their SSH keys go onto its machine."
    assert await share() == ("shared", added)
    assert await share(person=DAVE) == ("shared", f"Request {short} is shared with {DAVE.ref} already.")
    assert (await w.view(request_id)).shared_with == ("operator:dave",)
    assert await share(off=True) == ("shared", f"Request {short} is not shared with operator:dave.")
    assert (await w.view(request_id)).shared_with == ()
    for number in range(5):
        assert (await share(person=Actor.from_ref(f"operator:p{number}")))[0] == "shared"
    assert await share() == ("bad_share", "A machine is shared with 5 people at most.")
    assert (await share(person=Actor.from_ref("operator:p0"), off=True))[0] == "shared"
    assert (await share())[0] == "shared"
    key = await key_of(w, dave)
    kinds = [
        event.kind for event in (await w.books()).events if event.kind.startswith("request.") and "share" in event.kind
    ]
    assert kinds == [
        "request.shared",
        "request.unshared",
        *["request.shared"] * 5,
        "request.unshared",
        "request.shared",
    ]
    assert (await w.decide(request_id)).ok
    await w.settle()
    runpod = w.clouds["runpod"]
    assert isinstance(runpod, RunPodSandbox)
    (pod,) = runpod.account.instances.values()
    assert pod.order.env["PUBLIC_KEY"].splitlines()[0] == key
    other = str((await w.ask()).data["request_id"])
    assert (await w.cancel(other)).ok
    assert (await share(of=other))[0] == "not_waiting"


async def test_it_is_shared_by_rest_and_in_a_line(w: World) -> None:
    w.tune(same_person=((DAVE.id, "operator:dave"), (ALICE.id, "operator:alice")))
    request_id = str((await w.ask(candidates=("vast",))).data["request_id"])
    await w.settle()
    async with opened(w) as door:
        alice, path = await door.key("operator:alice"), f"/requests/{request_id}/share"
        assert (await door.call("POST", path, alice, json={"person": "@dave"})).json()["code"] == "shared"
        seen = RequestOut.model_validate(await door.request(alice, request_id))
        assert (seen.shared_with, "Shared with dave." in request_details(seen).sentences) == (["operator:dave"], True)
        assert code_of(await door.call("POST", path, alice, json={"person": "nobody"})) == "bad_share"
        assert (await door.call("POST", path, alice, json={"person": "UDAVE", "off": True})).status_code == 200
        assert (await w.view(request_id)).shared_with == ()
    for line, says in (
        ("share", "share needs the id"),
        ("share 4k7m2p", "Say with whom"),
        ("share 4k7m2p @mallory", "“@mallory” is nobody known here"),
        ("share 4k7m2p U012AB3CD on", "one id, one person, and off"),
        ("unshare 4k7m2p U012AB3CD off", "takes one id and one person."),
        ("transfer 4k7m2p", "Say to whom"),
        ("transfer 4k7m2p accept now", "one id, and one person, accept or decline."),
        ("transfer 4k7m2p @mallory", "“@mallory” is nobody known here"),
    ):
        wrong = parse(line, w.ctx.policy)
        assert isinstance(wrong, GrammarError)
        assert says in wrong.message
    right = parse("share 4k7m2p <@UDAVE|dave> off", w.ctx.policy)
    assert not isinstance(right, GrammarError)
    assert (right.target, right.text, right.action) == ("4k7m2p", MENTIONED, "off")
    for line, text, action in (
        ("transfer 4k7m2p U012AB3CD", "slack:U012AB3CD", ""),
        ("transfer 4k7m2p Accept", "", "accept"),
    ):
        offer = parse(line, w.ctx.policy)
        assert not isinstance(offer, GrammarError)
        assert (offer.target, offer.text, offer.action) == ("4k7m2p", text, action)
    same = parse("unshare 4k7m2p <@UDAVE|dave>", w.ctx.policy)
    assert not isinstance(same, GrammarError)
    assert (same.target, same.text, same.action) == ("4k7m2p", MENTIONED, "off")


async def test_a_session_is_shared_over_rest_by_its_owner_or_an_administrator(w: World) -> None:
    w.tune(same_person=((DAVE.id, "operator:dave"), (ALICE.id, "operator:alice")))
    assert isinstance(w.ctx.reach, RealReach)
    w.ctx.reach.keys = True
    await key_of(w, ALICE)
    request_id = await w.running(candidates=("runpod",))
    await key_of(w, DAVE)
    async with opened(w) as door:
        path = f"/sessions/{request_id[-6:]}/shares"
        alice, dave = await door.key("operator:alice"), await door.key("operator:dave")
        admin = await door.key("operator:root", scopes=tuple(Scope))
        assert code_of(await door.call("POST", path, dave, json={"person": "dave"})) == "unknown_id"
        assert code_of(await door.call("POST", path, alice, json={"person": "nobody"})) == "bad_share"
        assert (await door.call("POST", path, alice, json={"person": "dave"})).json()["code"] == "shared"
        before = (await door.call("GET", path, dave)).json()
        assert [(one["person_name"], one["keys"], one["is_owner"]) for one in before] == [
            ("alice", 1, True),
            ("dave", 1, False),
        ]
        assert before[1]["placed_at"] is None
        await w.settle()
        assert (await door.call("GET", path, dave)).json()[1]["placed_at"] is not None
        assert code_of(await door.call("DELETE", path, dave, params={"person": "dave"})) == "not_yours"
        assert (await door.call("DELETE", path, admin, params={"person": "dave"})).json()["code"] == "shared"
        assert [one["person_name"] for one in (await door.call("GET", path, alice)).json()] == ["alice"]


@dataclass
class Gone:
    """Slack, which says that everybody is deactivated."""

    async def looked_up(self, actor: Actor) -> DeciderFacts:
        """Say it."""
        return DeciderFacts(actor, is_deleted=actor.id == DAVE.id)


async def test_it_is_shared_with_others_who_are_members(w: World) -> None:
    own = await w.ask(share=(f"slack:{ALICE.id}",))
    assert (own.code, own.sentence) == ("bad_share", "The machine is yours already, so leave yourself out of share.")
    w.ctx = replace(w.ctx, people=Gone())
    gone = await w.ask(share=(MENTIONED,))
    assert (gone.code, "A deactivated account can't use GPU Shopper." in gone.sentence) == ("bad_share", True)
    assert (await w.books()).requests == ()


@pytest.mark.parametrize(
    ("said", "people"),
    [
        ("<@UDAVE|dave>,UCAROL", ("slack:UDAVE", "slack:UCAROL")),
        ("@dave,operator:dave", ("operator:dave",)),
        ("operator:ada", ("operator:ada",)),
        ("@mallory", "“@mallory” is nobody known here"),
        ("atlas", "“atlas” is nobody known here"),
        ("U01,U02,U03,U04,U05,U06", "A machine is shared with 5 people at most."),
    ],
)
def test_people_are_mentioned_or_named(said: str, people: tuple[str, ...] | str) -> None:
    policy = Policy(same_person=(("UDAVE", "operator:dave"),))
    parsed = parse(f"provision 1x4090 2h share={said}", policy)
    if isinstance(parsed, GrammarError):
        assert str(people) in parsed.message
    else:
        assert parsed.job is not None
        assert parsed.job.share == people
