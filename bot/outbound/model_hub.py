"""Read a model's `config.json` from the Hugging Face Hub, or from a mirror that the operator names.

A name is asked for once a day. Nothing of it is needed: where the Hub is not reachable, or has no such model, people
are asked for the numbers instead.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import httpx

from ledger.kernel.clock import Clock
from ledger.kernel.network_guard import forbid_in_transaction

TIMEOUT_S: Final = 3.0
#: For how long an answer is kept, and the answer that nothing was found.
KEPT, MISSED = timedelta(days=1), timedelta(minutes=10)
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_LONGEST: Final = 256 * 1024

log = logging.getLogger(__name__)


@dataclass
class ModelHub:
    """The Hub at `url`; "" asks nobody. `token` is for models that only its owner may read."""

    url: str
    clock: Clock
    token: str = field(default="", repr=False)
    timeout_s: float = TIMEOUT_S
    _known: dict[str, tuple[datetime, Mapping[str, Any] | None]] = field(default_factory=dict, repr=False)

    async def config(self, name: str) -> Mapping[str, Any] | None:
        """Return the configuration of `organisation/model`; None where there is none, or the Hub does not answer."""
        if not self.url or not _NAME.fullmatch(name) or ".." in name:
            return None
        forbid_in_transaction("the Hub")
        now, known = self.clock.now(), self._known.get(name)
        if known is not None and now < known[0]:
            return known[1]
        found = await self._read(name)
        self._known[name] = (now + (MISSED if found is None else KEPT), found)
        return found

    async def _read(self, name: str) -> Mapping[str, Any] | None:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        address = f"{self.url.rstrip('/')}/{name}/resolve/main/config.json"
        try:
            async with (
                httpx.AsyncClient(trust_env=False, timeout=self.timeout_s, follow_redirects=True) as client,
                client.stream("GET", address, headers=headers) as answer,
            ):
                if not answer.is_success:
                    return None
                text = b""
                async for piece in answer.aiter_bytes():
                    text += piece
                    if len(text) > _LONGEST:
                        return None
            found = json.loads(text)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError) as error:
            log.info("the Hub did not describe a model: %s", type(error).__name__)
            return None
        return found if isinstance(found, dict) else None
