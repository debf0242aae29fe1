"""Name the variables by which a machine knows where to report, who it is, and when it ends."""

from __future__ import annotations

from typing import Final

URL: Final = "GPU_SHOPPER_CHECKIN_URL"
TOKEN: Final = "GPU_SHOPPER_CHECKIN_TOKEN"  # noqa: S105 # A name, not a secret.
KEY: Final = "GPU_SHOPPER_CHECKIN_KEY"
#: A signed deadline that was known when the machine was asked for, so that it ends even if it never reaches anybody.
FIRST_MESSAGE: Final = "GPU_SHOPPER_DEADLINE"
FIRST_SIGNATURE: Final = "GPU_SHOPPER_DEADLINE_SIGNATURE"
#: Where the agent itself is fetched from, and its hash.
AGENT_URL: Final = "GPU_SHOPPER_AGENT_URL"
AGENT_SHA256: Final = "GPU_SHOPPER_AGENT_SHA256"
