"""Which events are told, how a message is signed (verified by the library of Standard Webhooks), when it is tried."""

from __future__ import annotations

import pytest
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from bot.clock import SystemClock
from bot.rules.webhooks import webhooks
from bot.rules.webhooks.webhooks import PAUSES_S, Topic


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (("session.moved", "queued", "running"), (Topic.SESSION, "session.running")),
        (("request.moved", "pending", "approved"), (Topic.APPROVAL, "request.approved")),
        (("stray.moved", "seen", "condemned"), (Topic.ORPHAN, "orphan.condemned")),
        (("stray.seen", "", "seen"), (Topic.ORPHAN, "orphan.seen")),
        (("budget.threshold", "", ""), (Topic.BUDGET, "budget.threshold")),
        (("instance.moved", "live", "gone"), (Topic.INSTANCE, "instance.lost")),
        (("instance.moved", "sending", "unknown"), (Topic.INSTANCE, "instance.unknown_outcome")),
        (("instance.moved", "terminating", "gone"), None),
        (("api_key.created", "", ""), None),
    ],
)
def test_what_is_told(row: tuple[str, str, str], told: tuple[Topic, str] | None) -> None:
    assert webhooks.topic_of_event(*row) == told
    if told is not None:
        assert row[0] in webhooks.kinds_of([told[0]])
        assert row[0] in webhooks.KINDS


def test_topics_have_names_and_meanings() -> None:
    assert set(webhooks.MEANING) == set(Topic)
    assert webhooks.unknown_topics(["session", "weather"]) == ["weather"]
    assert "instance.moved" not in webhooks.kinds_of([Topic.SESSION, Topic.BUDGET])


def test_names_of_before_are_known_beside_those_of_now() -> None:
    assert webhooks.unknown_topics(["drift", "instance"]) == []
    assert webhooks.kinds_of(["drift"]) == webhooks.kinds_of([Topic.INSTANCE])
    assert "instance.moved" in webhooks.kinds_of(["drift"])
    assert webhooks.stored_topics(["instance"]) == webhooks.stored_topics(["drift"]) == ["drift", "instance"]
    assert webhooks.stored_topics(["session"]) == ["session"]
    assert set(webhooks.OLD_NAMES) <= set(webhooks.MESSAGES)
    for name in webhooks.MESSAGES:
        assert webhooks.name_of_type(webhooks.sent_type(name)) == name
        assert webhooks.name_of_type(name) == name, "a message that a later release stored"


def test_a_signature_is_one_of_standard_webhooks() -> None:
    old, new, body = b"o" * 32, b"n" * 32, b'{"type": "session.running"}'
    at_s = int(SystemClock().now().timestamp())  # The library compares it with the wall clock.
    headers = {
        "webhook-id": "dlv_1",
        "webhook-timestamp": str(at_s),
        "webhook-signature": webhooks.signature([new, old], "dlv_1", at_s, body),
    }
    for secret in (old, new):
        assert Webhook(webhooks.secret_text(secret)).verify(body, headers) == {"type": "session.running"}
    for wrong in ({"webhook-id": "dlv_2"}, {"webhook-timestamp": str(at_s - 1)}):
        with pytest.raises(WebhookVerificationError):
            Webhook(webhooks.secret_text(new)).verify(body, {**headers, **wrong})
    with pytest.raises(WebhookVerificationError):
        Webhook(webhooks.secret_text(b"x" * 32)).verify(body, headers)


def test_ten_attempts_over_about_75_hours() -> None:
    pauses = [webhooks.pause_s(tries, "dlv_1") for tries in range(1, 11)]
    assert pauses.pop() is None
    assert all(0.9 * plan <= (pause or 0) <= 1.1 * plan for plan, pause in zip(PAUSES_S, pauses, strict=True))
    assert 70 < sum(PAUSES_S) / 3600 < 80
    assert webhooks.pause_s(3, "dlv_1") != webhooks.pause_s(3, "dlv_2")


def test_what_an_answer_means() -> None:
    assert [webhooks.delivered(status) for status in (199, 200, 204, 299, 302, 410, 500)] == [
        False,
        True,
        True,
        True,
        False,
        False,
        False,
    ]


def test_a_policy_names_networks_and_ports() -> None:
    assert list(webhooks.problems(["127.0.0.0/8"], [443, 8443])) == []
    (network, ports) = webhooks.problems(["10.0.0.1/8"], [0])
    assert "10.0.0.1/8" in network
    assert "webhook_ports" in ports
