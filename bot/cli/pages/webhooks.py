"""Generate docs/programs/webhooks.md: how to receive what happens, and the name of every message."""

from __future__ import annotations

import json

from bot.cli.pages.markdown import code, table, whole_page
from bot.rules.webhooks.webhooks import (
    MEANING,
    MESSAGES,
    OLD_FIELDS,
    OLD_NAMES,
    OLD_TOPICS,
    PAUSES_S,
    PREFIX,
    Topic,
    name_of_type,
    sent_type,
)

CREATE = """```sh
gpu-shopper webhooks create https://example.com/hooks --topic session --topic budget
```"""
AFTERWARDS = """```sh
gpu-shopper webhooks test ID      # sends a test message
gpu-shopper webhooks log ID       # what was sent, and what your address answered
```"""
VERIFY = f"""```python
from standardwebhooks import Webhook

message = Webhook("{PREFIX}…").verify(body, headers)  # raises when the signature is wrong
```"""


def page() -> str:
    """Return the page of webhooks."""
    hours = int(sum(PAUSES_S) // 3600)
    return whole_page(
        "Webhooks",
        "The bot calls your address when something changes: `POST`, JSON, signed after "
        "[Standard Webhooks](https://www.standardwebhooks.com/).",
        "## Create one",
        CREATE,
        f"The answer shows the secret, `{PREFIX}…`, once. Keep it. Then:",
        AFTERWARDS,
        "The address must be public and use https. An operator can allow other networks and ports in the "
        "[policy](../policy.md).",
        "## What arrives",
        _example(),
        "`name` says what happened. `data` also has the state of the request, session, instance or orphan at the "
        "moment of sending.",
        "## Topics",
        table(("topic", "what it covers"), [(code(topic), MEANING[topic]) for topic in Topic]),
        "## Messages",
        "STATE is the state that was reached, such as `running`. [The codes](../errors.md) list the events of the "
        "audit log.",
        table(("name", "topic", "what happened"), map(_message, MESSAGES)),
        "## Old names",
        "These names have changed. Until 0.1.0 is released, `type` has the old name of such a message, and `name` has "
        f"the new one. From 0.1.0 on both have the new one. {_old_topics()} {_old_fields()}",
        table(("name", "`type` until 0.1.0"), [(code(name), code(old)) for name, old in OLD_NAMES.items()]),
        "## Verify it",
        "The headers are `webhook-id`, `webhook-timestamp` and `webhook-signature`. Any Standard Webhooks library "
        "checks them:",
        VERIFY,
        "Use the raw body, and refuse timestamps that are more than five minutes old. The same message can come twice: "
        "remember `webhook-id`. Messages come in no promised order.",
        "## Answer fast",
        f"Answer 2xx within seconds and work afterwards. The bot tries {len(PAUSES_S) + 1} times over about {hours} "
        "hours. Then it disables the webhook and notifies the operators. `gpu-shopper webhooks replay ID` enables it "
        "and sends what failed. Answer 410 to stop at once.",
        "Prefer a stream to an address? `GET /api/v1/events` sends every event that your key can see. Send "
        "`Last-Event-ID` to continue after a break.",
    )


def _example() -> str:
    kind = sent_type("session.running")
    head = {"type": kind, "name": name_of_type(kind), "timestamp": "2026-03-02T09:40:00+00:00"}
    data = {
        "event_id": "evt_06eavhmtg1fevjqy",
        "subject": "ses_06eavhmtg1fevjqz",
        "before": "provisioning",
        "after": "running",
        "actor": "system:ticker",
        "reason": "",
    }
    return f"```json\n{json.dumps({**head, 'data': data}, indent=2)}\n```"


def _message(name: str) -> tuple[str, str, str]:
    topic, meaning = MESSAGES[name]
    return code(name.format(after="STATE")), code(topic), meaning


def _old_topics() -> str:
    return " ".join(
        f"The topic {code(topic)} was called {code(old)}; both are accepted." for old, topic in OLD_TOPICS.items()
    )


def _old_fields() -> str:
    return " ".join(f"In `data`, {code(name)} also stands as {code(old)}." for name, old in OLD_FIELDS.items())
