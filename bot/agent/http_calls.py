"""Make HTTP calls that carry a key: they follow no redirect, because the key is meant for one address."""

from __future__ import annotations

import http.client
import urllib.request
from functools import lru_cache
from typing import Any

#: What a call raises when it does not get through, or is answered with something that is not HTTP.
FAILURES = (OSError, ValueError, http.client.HTTPException)
#: RunPod's gateway refuses the user agent that Python sends by itself.
USER_AGENT = "gpu-shopper-agent/1"


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow nothing: the redirect becomes an HTTPError with its status."""


@lru_cache(maxsize=1)
def opener() -> urllib.request.OpenerDirector:
    """Return the opener of all calls. It honours the machine's proxy variables, as every program there does."""
    made = urllib.request.build_opener(_Stay)
    made.addheaders = [("User-Agent", USER_AGENT)]
    return made
