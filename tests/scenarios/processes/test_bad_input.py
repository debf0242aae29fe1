"""Nonsense, forgeries and nasty text at the door: a clear answer, nothing lost, nothing injected, never a 500."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import httpx
import pytest

from bot.practice import payloads
from bot.practice.model import ChatMessage
from bot.practice.reader import all_text
from tests.support.script import ASK, Play, with_all_fields

#: What is typed after /gpu, and words of the answer that only its author reads.
NONSENSE = [
    ("provision rtx9999 2h", "rtx9999"),
    ("provision 4090 0h", "above zero"),
    ("provision 4090 -2h", "above zero"),
    ("provision 4090 10000h", "10,000 hours is above the limit"),
    ("provision 4090 2h max=-$5", "cannot be negative"),
    ("provision 4090 2h max=$0", "$50"),
    ("provision 0x4090 2h", "At least one GPU"),
    ("provision 1000x4090 2h", "1000 GPUs are above the limit"),
    ('provision 4090 2h for="no end', "This quote is not closed."),
    ("provision 4090 2h clouds=nimbus", "is not a cloud"),
    ("provision 4090 2h for=" + "x" * 3000, "3,000 characters"),
    ("provision 4090 2h disk=0", "is not a disk size"),
    ("status zzz", "is not an id"),
    ("terminate zzzzzz", "zzzzzz"),
    ("cancel 0000", "0000"),
    ("fly me", "is not a command"),
    ("key add ssh-rsa", "is not a public key"),
    ("key add -----BEGIN OPENSSH PRIVATE KEY----- abc", "private key"),
]
REASON = "<!channel> <@U0BOB> *bold* `code` <http://evil.example|click> \u202eevil\u202c \x07 &amp; ~x~"
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


async def test_every_nonsense_gets_a_sentence_and_does_nothing(p: Play) -> None:
    alice = p.ws.as_("alice")
    for line, words in NONSENSE:
        before = len(p.ws.ephemerals("alice"))
        outcome = await alice.command(f"/gpu {line}")
        assert outcome.ok, (line, outcome)
        await p.running.bot.slack_app.idle()
        await p.screens.told("alice", words, after=before)
        assert len(p.ws.ephemerals("alice")) == before + 1, line
    books = await p.books()
    assert books.requests == ()
    assert p.ws.channel_messages() == []
    assert "BEGIN OPENSSH" not in str([row.body for row in books.inbox])


async def test_a_hostile_reason_is_shown_as_what_it_is(p: Play) -> None:
    offers = await p.asked(f'/gpu provision 1x4090 2h for="{REASON}"')
    _is_harmless(offers)
    assert "evil.example" in all_text(offers)
    await p.ws.as_("bob").click(offers, "reject")
    bob = p.ws.as_("bob")
    await bob.submit(await bob.view(), {"reason": REASON})
    closed = await p.screens.shows(offers, "*Rejected* by <@U0BOB>")
    _is_harmless(closed)
    _is_harmless(await p.screens.replied(offers, "rejected by"))


async def test_a_long_reason_in_the_form_is_refused_in_its_field(p: Play) -> None:
    alice = p.ws.as_("alice")
    await alice.command("/gpu provision")
    await alice.view()
    form = await with_all_fields(p.ws, "alice")
    refused = await alice.submit(form, {"for": "y" * 3000})
    assert "500" in refused.errors["for"]
    assert (await p.books()).requests == ()


def _is_harmless(message: ChatMessage) -> None:
    """No mention, link or formatting of somebody else's in any text that Slack would read as its own."""
    for text in _mrkdwn(message.blocks, message.text):
        found = re.findall(r"<[^>]*>", text)
        foreign = [one for one in found if not re.fullmatch(r"<@U0ALICE>|<@U0BOB>|<@U0CAROL>|<!date\^[^>]*>", one)]
        assert foreign == [], text
        assert text.count("<@U0BOB>") <= 1
        assert "*bold*" not in text
        assert "`code`" not in text
    assert CONTROL.search(all_text(message)) is None


def _mrkdwn(blocks: object, *found: str) -> list[str]:
    texts = list(found)
    if isinstance(blocks, dict):
        if blocks.get("type") == "mrkdwn":
            texts.append(str(blocks["text"]))
        texts += [text for value in blocks.values() for text in _mrkdwn(value)]
    elif isinstance(blocks, list):
        texts += [text for value in blocks for text in _mrkdwn(value)]
    return texts


async def test_a_replayed_request_is_answered_again_and_does_nothing(p: Play) -> None:
    workspace, courier = p.running.practice.workspace, p.running.practice.courier
    url = str(workspace.request_url)
    user, channel = workspace.user("alice"), workspace.channel("#gpu")
    fields = payloads.command(workspace, user, channel, "/gpu", ASK.removeprefix("/gpu "))
    signed = courier.sign(urlencode(fields).encode(), "application/x-www-form-urlencoded")
    first, second = await courier.send_http(url, signed), await courier.send_http(url, signed)
    assert (first.status, first.body) == (second.status, second.body)
    await p.screens.offers()
    await p.ws.travel(200)
    assert (await courier.send_http(url, signed)).status == 200
    await p.ws.travel(101)
    assert (await courier.send_http(url, signed)).status == 401
    books = await p.books()
    assert (len(books.requests), len(books.inbox)) == (1, 1)
    assert len(p.ws.channel_messages()) == 1


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"x-slack-signature": "v0=" + "0" * 64}, 401),
        ({"x-slack-signature": "nonsense"}, 401),
        ({"x-slack-request-timestamp": "soon"}, 401),
        ({"x-slack-request-timestamp": "1"}, 401),
        ({"x-slack-signature": ""}, 401),
    ],
)
async def test_what_slack_did_not_sign_is_refused(p: Play, changed: dict[str, str], status: int) -> None:
    courier, url = p.running.practice.courier, str(p.running.practice.workspace.request_url)
    signed = courier.sign(b"command=%2Fgpu&text=help&user_id=U0ALICE", "application/x-www-form-urlencoded")
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.post(url, content=signed.body, headers={**signed.headers, **changed})
    assert answer.status_code == status
    assert (await p.books()).inbox == ()


async def test_signed_nonsense_is_never_a_500(p: Play) -> None:
    courier, url = p.running.practice.courier, str(p.running.practice.workspace.request_url)
    form = "application/x-www-form-urlencoded"
    bodies = [
        (b"", form),
        (b"\xff\xfe\xfd", form),
        (b"payload=%7B", form),
        (b"payload=%5B%5D", form),
        (b"payload=null", form),
        (b"payload=%7B%22type%22%3A%22block_actions%22%7D", form),
        (b"payload=%7B%22type%22%3A%22view_submission%22%2C%22view%22%3A5%7D", form),
        (b'{"type":"event_callback","event":[]}', "application/json"),
        (b'{"type":"url_verification"}', "application/json"),
        (b"[1, 2]", "application/json"),
        (b"{" * 100_000, "application/json"),
        (b"command=%2Fgpu&user_id=&text=%00list", form),
        (b"x" * (1024 * 1024 + 1), form),
    ]
    for body, kind in bodies:
        ack = await courier.send_http(url, courier.sign(body, kind))
        assert ack.status is not None
        assert ack.status < 500, (body[:60], ack)
    assert (await p.books()).requests == ()
