"""Recognize private keys, so that none is stored or repeated, while talk about keys passes."""

from __future__ import annotations

import re
from typing import Final

#: The longest public key that is taken, in characters.
LONGEST_KEY: Final = 4096
#: A key's own frame of dashes, whatever a chat made of them, and the first bytes of OpenSSH's format in base64.
_FRAME: Final = re.compile(r"[-\u2010-\u2015\u2212]\s*(?:BEGIN|END)\b[A-Z0-9 ]{0,30}PRIVATE\s*KEY", re.IGNORECASE)
_OPENSSH: Final = "b3BlbnNzaC1rZXktdjE"
_PUTTY: Final = re.compile(r"PuTTY-User-Key-File|Private-Lines\s*:|Private-MAC\s*:", re.IGNORECASE)
#: Nobody types so long a run of base64.
_BODY: Final = re.compile(r"[A-Za-z0-9+/=]{40}")


def looks_private(text: str) -> bool:
    """Whether a text may contain a private key. Slack, the API and the CLI check this before they store a text."""
    if _OPENSSH in text or _PUTTY.search(text) or _FRAME.search(text):
        return True
    return names_private_key(text) and _BODY.search(text) is not None


def names_private_key(text: str) -> bool:
    """Whether a text speaks of a private key at all: where only a key is expected, that is enough."""
    return "PRIVATEKEY" in text.upper().replace(" ", "").replace("-", "")
