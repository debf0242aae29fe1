"""The public keys of people; nothing private, weak or decorated gets in."""

from __future__ import annotations

import base64

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from bot.services.access import ssh_keys
from bot.services.runtime.commands import AddKey, Reply
from ledger.kernel.actor import Actor
from providers.sandbox.runpod.sandbox import RunPodSandbox
from tests.support.world import ALICE, BOB, World


def public(key: ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


async def add(w: World, text: str) -> Reply:
    w.clock.advance(1)
    return await ssh_keys.add(w.ctx, AddKey(ALICE, text))


async def shown(w: World) -> list[str]:
    return [one["public_key"] for one in (await ssh_keys.show(w.ctx, ALICE)).data["keys"]]


async def test_keys_are_added_shown_and_removed(w: World) -> None:
    first, second = (public(ed25519.Ed25519PrivateKey.generate()) for _ in range(2))
    assert (await ssh_keys.show(w.ctx, ALICE)).code == "no_key"
    assert (await ssh_keys.remove(w.ctx, ALICE)).code == "no_key"
    added = await add(w, f"  {first}   alice@laptop\n")
    assert (added.ok, added.code) == (True, "key_added")
    assert str(added.data["fingerprint"]).startswith("SHA256:")
    assert (await add(w, first)).code == "key_known"
    assert (await add(w, second)).code == "key_added"
    assert await shown(w) == [first, second]
    assert (await ssh_keys.show(w.ctx, BOB)).code == "no_key"
    which = await ssh_keys.remove(w.ctx, ALICE)
    assert (which.code, added.data["fingerprint"] in which.sentence) == ("which_key", True)
    assert (await ssh_keys.remove(w.ctx, ALICE, "SHA256:none")).code == "no_key"
    assert (await ssh_keys.remove(w.ctx, ALICE, str(added.data["fingerprint"])[:20])).code == "key_removed"
    assert await shown(w) == [second]
    assert (await ssh_keys.remove(w.ctx, ALICE)).code == "key_removed"
    assert (await ssh_keys.show(w.ctx, ALICE)).code == "no_key"
    kinds = [event.kind for event in (await w.books()).events]
    assert kinds == ["key.added", "key.added", "key.removed", "key.removed"]
    # What a repeated call had said does not undo what was said since.
    assert (await ssh_keys.add(w.ctx, AddKey(ALICE, first, "add"))).code == "key_added"
    gone = await ssh_keys.remove(w.ctx, ALICE, key="remove")
    assert (await ssh_keys.add(w.ctx, AddKey(ALICE, first, "add"))).code == "key_added"
    assert (await ssh_keys.show(w.ctx, ALICE)).code == "no_key"
    await add(w, second)
    assert await ssh_keys.remove(w.ctx, ALICE, key="remove") == gone
    assert await shown(w) == [second]


async def test_a_person_has_at_most_five_keys_under_all_of_their_names(w: World) -> None:
    w.tune(same_person=((ALICE.id, "operator:alice"),))
    for _ in range(4):
        assert (await add(w, public(ed25519.Ed25519PrivateKey.generate()))).ok
    fifth = public(ed25519.Ed25519PrivateKey.generate())
    assert (await ssh_keys.add(w.ctx, AddKey(Actor.from_ref("operator:alice"), fifth))).ok
    assert (await add(w, fifth)).code == "key_known"
    assert len(await shown(w)) == 5
    assert (await add(w, public(ed25519.Ed25519PrivateKey.generate()))).code == "too_many_ssh_keys"


async def test_what_is_not_a_good_public_key_is_refused_and_not_stored(w: World) -> None:
    private = ed25519.Ed25519PrivateKey.generate()
    openssh = private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
    inside = "".join(openssh.splitlines()[1:-1])
    good = public(private)
    kind, body = good.split()
    weak = public(rsa.generate_private_key(65537, 2048))
    cases = {
        openssh: "private_key",
        openssh.replace("\n", " "): "private_key",
        inside: "private_key",
        weak: "weak_key",
        public(ec.generate_private_key(ec.SECP256R1())): "not_a_key",
        f'command="rm -rf /" {good}': "not_a_key",
        f"no-pty {good}": "not_a_key",
        f"{kind} {body[:-8]}": "not_a_key",
        f"{kind} !!!{body}": "not_a_key",
        f"{kind} {base64.b64encode(b'nothing').decode()}": "not_a_key",
        kind: "not_a_key",
        "": "not_a_key",
        f"{good} {'x' * 5000}": "not_a_key",
    }
    for text, code in cases.items():
        reply = await add(w, text)
        assert (reply.ok, reply.code) == (False, code), text[:60]
        assert inside[:40] not in reply.sentence
    assert (await add(w, public(rsa.generate_private_key(65537, 3072)))).ok
    assert len((await w.books()).events) == 1


async def test_all_keys_of_the_owner_are_on_the_instance(w: World) -> None:
    keys = [public(ed25519.Ed25519PrivateKey.generate()) for _ in range(2)]
    for key in keys:
        assert (await add(w, key)).ok
    w.tune(validate_login=False)
    await w.approved(candidates=("runpod",))
    await w.settle()
    runpod = w.clouds["runpod"]
    assert isinstance(runpod, RunPodSandbox)
    (pod,) = runpod.account.instances.values()
    assert pod.order.env["PUBLIC_KEY"].splitlines() == keys
