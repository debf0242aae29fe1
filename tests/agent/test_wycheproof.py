"""Wycheproof's vectors for Ed25519, and what is decided about those that a verifier may take or refuse.

Wycheproof calls a vector acceptable where verifiers may differ. These are signatures under keys with a part of small
order, which no honest key has.

- A key of small order alone (`SmallOrderPublicKey`) is refused: one signature fits many messages under it.
- A key of mixed order (`MixedOrderPublicKey`) counts where the equation without the cofactor holds, as OpenSSL has it.
  To refuse it would double the time of a check. Nobody gains by one: the key comes with the machine's create, and its
  holder could sign anyway.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bot.agent.ed25519 import is_valid

FILE = Path(__file__).parent / "vectors/wycheproof_ed25519.json"
VECTORS: list[dict[str, Any]] = json.loads(FILE.read_text())["vectors"]
#: What is decided here about vectors that Wycheproof leaves open.
TAKEN = {"MixedOrderPublicKey": True, "SmallOrderPublicKey": False}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda one: f"{one['id']}-{one['flag']}")
def test_a_vector(vector: dict[str, Any]) -> None:
    key, message, signature = (bytes.fromhex(vector[name]) for name in ("key", "message", "signature"))
    wanted = TAKEN[vector["flag"]] if vector["result"] == "acceptable" else vector["result"] == "valid"
    assert is_valid(key, signature, message) is wanted


def test_none_of_them_is_missing() -> None:
    assert Counter(one["result"] for one in VECTORS) == {"valid": 117, "invalid": 64, "acceptable": 29}
