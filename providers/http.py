"""The shared transport. Reads are retried; a create is sent once, on a fresh connection, and never repeated."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Annotated, Any, Final

import httpx
from pydantic import AfterValidator, SecretStr

from ledger.kernel.clock import Clock, NotesDates
from ledger.kernel.network_guard import forbid_in_transaction
from providers.errors import AuthFailed, NotSent, OutcomeUnknown, Unavailable, UnexpectedResponse
from providers.rate_limits import LocalPacer, Pacing

USER_AGENT = "gpu-shopper/0.1 (+https://pypi.org/project/gpu-shopper)"
READ_ATTEMPTS = 3
BACKOFF_S = 0.25
#: Seconds in which the connection of a create is made, or nothing was sent.
CONNECT_S = 10.0
RETRY_STATUS = frozenset({502, 503, 504})
#: Reading the certificates takes 50 ms, so every client of the process shares what was read.
_TLS: Final = httpx.create_ssl_context(trust_env=False)
#: The three failures after which the request certainly never left: nothing was written to a socket.
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclass(frozen=True, slots=True)
class HttpReply:
    """One HTTP answer, read to the end. `body` is parsed JSON, or None when the text is not JSON."""

    status: int
    headers: Mapping[str, str]
    text: str
    body: Any

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def fields(self) -> dict[str, Any]:
        """The body as an object; empty when it is something else."""
        return self.body if isinstance(self.body, dict) else {}


def fingerprint(secret: str) -> str:
    """A stable name for a credential that reveals nothing of it: the first 12 hex digits of its SHA-256."""
    return hashlib.sha256(secret.encode()).hexdigest()[:12]


def _sendable(key: SecretStr) -> SecretStr:
    # The libraries below quote an illegal header in their errors, so a malformed key must never get there.
    if not all("!" <= character <= "~" for character in key.get_secret_value()):
        raise ValueError("a key is printable ASCII without spaces or line breaks; copy it again from the cloud's page")
    return key


#: An API key as a setting. Use it with `hide_input_in_errors=True`, or the error message quotes the key.
Credential = Annotated[SecretStr, AfterValidator(_sendable)]


class CloudHttp:
    """HTTP to one cloud. Errors from here name the cloud and never contain headers, URLs with keys, or bodies.

    `timeout_s` bounds one attempt. The environment's proxies are ignored, so a key only ever goes to `base_url`.
    With `pacing` every attempt waits for its turn first, and `RateLimited` is raised where that would be too long.
    `locked` says why only `public` reads may be sent; any other call raises `AuthFailed` with it and sends nothing.
    """

    def __init__(
        self,
        cloud: str,
        base_url: str,
        headers: Mapping[str, str],
        clock: Clock,
        timeout_s: float = 10.0,
        pacing: Pacing | None = None,
        locked: str = "",
    ) -> None:
        self.cloud = cloud
        self._clock = clock
        self._timeout_s = timeout_s
        self._locked = locked
        self._base_url = base_url.rstrip("/")
        self._pacing = pacing or Pacing(cloud, "", {}, LocalPacer(clock), lambda _method, _path: ())
        self._headers = {"User-Agent": USER_AGENT, "Accept": "application/json", **headers}
        self._client = self._new_client()

    def _new_client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self._base_url,
            headers=self._headers,
            timeout=self._timeout_s,
            verify=_TLS,
            trust_env=False,
            follow_redirects=False,
        )

    async def read(
        self, method: str, path: str, *, pace: str | None = None, public: bool = False, **kwargs: Any
    ) -> HttpReply:
        """An idempotent call: repeated up to three times on connection trouble and on 502, 503, 504.

        Raises `Unavailable` when no attempt was answered. Any other status is returned for the adapter to judge.
        A 429 is never repeated here; the pause that it asks for is kept by the next call. `pace` names the group whose
        turn is taken, where it is not the usual one of such a call. A `public` call is one that a cloud answers to
        anybody: it is also sent without a key.
        """
        self._open(public=public)
        forbid_in_transaction(f"{self.cloud} {method}")
        groups = (pace,) if pace else self._pacing.groups(method, path)
        for attempt in range(1, READ_ATTEMPTS + 1):
            try:
                await self._pacing.turn(self._clock, groups)
                reply = await self._exchange(self._client, method, path, kwargs)
                await self._pacing.note_pause(groups, reply.status, reply.headers)
            except httpx.HTTPError as error:
                if attempt == READ_ATTEMPTS:
                    raise Unavailable(self.cloud, f"{self.cloud} did not answer ({type(error).__name__})") from error
            else:
                if reply.status not in RETRY_STATUS or attempt == READ_ATTEMPTS:
                    return reply
            await self._clock.sleep(BACKOFF_S * 2 ** (attempt - 1))
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def turn(self, method: str, path: str) -> None:
        """Wait for the turn of a call that `send_once` makes next. `RateLimited` when it is too far away."""
        self._open()
        forbid_in_transaction(f"{self.cloud} create")
        await self._pacing.turn(self._clock, self._pacing.groups(method, path))

    async def send_once(self, method: str, path: str, *, timeout_s: float = 90.0, **kwargs: Any) -> HttpReply:
        """A create whose `turn` was taken: one attempt on a connection of its own, so that none dies half-way.

        It waits for nothing: who sends it has committed that it is sent. `timeout_s` bounds the whole exchange, however
        slowly the answer drips in, because the lease of its row is counted from it. Raises `NotSent` when no connection
        was made, and `OutcomeUnknown` for every other transport failure. The adapter judges the status; a 5xx must
        become `OutcomeUnknown` there.
        """
        self._open()
        forbid_in_transaction(f"{self.cloud} create")
        waits = httpx.Timeout(timeout_s, connect=min(timeout_s, CONNECT_S))
        async with self._new_client() as client:
            try:
                async with asyncio.timeout(timeout_s):
                    reply = await self._exchange(client, method, path, {**kwargs, "timeout": waits})
                await self._pacing.note_pause(self._pacing.groups(method, path), reply.status, reply.headers)
                return reply
            except _NEVER_SENT as error:
                raise NotSent(self.cloud, f"{self.cloud} could not be reached, so nothing was sent") from error
            except (httpx.HTTPError, TimeoutError) as error:
                raise OutcomeUnknown(
                    self.cloud, f"the reply of {self.cloud} to the create was lost ({type(error).__name__})"
                ) from error

    def _open(self, *, public: bool = False) -> None:
        """Raise `AuthFailed` for a call that needs the key which is not set."""
        if self._locked and not public:
            raise AuthFailed(self.cloud, self._locked)

    def json(self, reply: HttpReply) -> Any:
        """The parsed body; `UnexpectedResponse` when it is not JSON."""
        if reply.body is None:
            raise UnexpectedResponse(
                self.cloud, f"{self.cloud} answered {reply.status} with something that is not JSON"
            )
        return reply.body

    async def close(self) -> None:
        await self._client.aclose()

    async def _exchange(self, client: httpx.AsyncClient, method: str, path: str, kwargs: dict[str, Any]) -> HttpReply:
        began_s = self._clock.monotonic()
        reply = await _exchange(client, method, path, kwargs)
        if isinstance(self._clock, NotesDates):
            self._clock.note_date(self.cloud, shown_at(reply.headers), self._clock.monotonic() - began_s)
        return reply


def shown_at(headers: Mapping[str, str]) -> datetime | None:
    """The time of an answer by its sender's clock, in whole seconds; None where it shows none.

    A cache repeats the `Date` of the first answer, and counts in `Age` how many seconds ago that was (RFC 9111, 5.1).
    """
    try:
        first = parsedate_to_datetime(headers["date"])
        shown = (first if first.tzinfo else first.replace(tzinfo=UTC)).astimezone(UTC)
        return shown + timedelta(seconds=int(headers.get("age", "0"))) if shown.year < MAXYEAR else None
    except (KeyError, ValueError, OverflowError):
        return None


async def _exchange(client: httpx.AsyncClient, method: str, path: str, kwargs: dict[str, Any]) -> HttpReply:
    response = await client.request(method, path, **kwargs)
    text = response.text
    try:
        body = json.loads(text) if text else None
    except ValueError:
        body = None
    return HttpReply(response.status_code, response.headers, text, body)
