"""What GPU Shopper signs for an agent, made here with another implementation of the signature."""

from __future__ import annotations

import base64
import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bot.agent.deadline import Signed

INSTANCE = "ins_0123456789abcdef"
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
PUBLIC = KEY.public_key().public_bytes_raw()
#: Some time of the service, in seconds since 1970; the machine's own calendar does not matter.
NOW_S = 1_772_442_000


def signed(
    at_boot_s: float = float("inf"),
    *,
    key: Ed25519PrivateKey = KEY,
    n: object = 1,
    left_s: int | None = 3600,
    **said: Any,
) -> Signed:
    """A message whose approved end is `left_s` after the service's time, with `said` in place of what it would say."""
    end_s = None if left_s is None else NOW_S + left_s
    message = json.dumps({"deadline_s": end_s, "instance": INSTANCE, "n": n, "now_s": NOW_S} | said)
    return Signed(message, base64.b64encode(key.sign(message.encode())).decode(), at_boot_s)


def first_end(found: Signed) -> dict[str, str]:
    """The variables in which it comes with the create."""
    message = base64.b64encode(found.message.encode()).decode()
    return {"GPU_SHOPPER_DEADLINE": message, "GPU_SHOPPER_DEADLINE_SIGNATURE": found.signature}
