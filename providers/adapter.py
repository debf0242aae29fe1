"""The base of every cloud's adapter; each adapter adds its calls and their translation.

A cloud's class sets the class variables below, writes the calls of the contract that its cloud has, and says in
`error_of` what an answer means. What its cloud cannot do it names in `UNSUPPORTED`, with the sentence that people read.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, SecretStr

from ledger.kernel.clock import Clock
from ledger.kernel.grant import Grant
from ledger.kernel.network_guard import forbid_in_transaction
from providers.adapter_helpers import only, same
from providers.capabilities import Capabilities, PriceSource
from providers.cloud_names import cloud_title, machines_of
from providers.completeness import AnswerPart
from providers.contract import (
    Balance,
    Charge,
    Copy,
    InstanceSpec,
    NotSeen,
    ObservedInstance,
    Offer,
    Preflight,
    Provider,
)
from providers.errors import (
    AuthFailed,
    InvalidSpec,
    NotSent,
    OutcomeUnknown,
    ProviderError,
    UnexpectedResponse,
    Unsupported,
)
from providers.gpus.constraint import GpuConstraint
from providers.http import CloudHttp, Credential, HttpReply, fingerprint
from providers.rate_limits import LocalPacer, Pacer, Pacing

#: More pages than any account has; reaching it means that the tokens lead nowhere.
PAGES_MAX = 400

Page = TypeVar("Page")


class CloudConfig(BaseModel):
    """How to reach one account. Errors never quote the key."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    api_key: Credential = SecretStr("")
    base_url: str

    @property
    def credential(self) -> str:
        """The credential that names the account; empty while it is not set."""
        return self.api_key.get_secret_value()

    @property
    def has_key(self) -> bool:
        """Whether the credentials are complete."""
        return bool(self.credential)

    @property
    def authorization(self) -> str:
        return f"Bearer {self.credential}"

    @property
    def root(self) -> str:
        """The address that the paths of the calls are added to."""
        return self.base_url


class CloudAdapter(Provider):
    """One account at one cloud. The provider contract says what each method promises.

    Without a key it gives the offers that its cloud shows to anybody, if it shows any; every other call raises
    `AuthFailed` and sends nothing.
    """

    capabilities: Capabilities
    #: The page on which people make the key, the variable that holds it, and what is said while it is not set.
    KEY_PAGE: ClassVar[str]
    KEY_VARIABLE: ClassVar[str] = ""
    KEY_MISSING: ClassVar[str] = "the API key is not set"
    #: What its offers are without a key; None where it gives none then.
    WITHOUT_KEY: ClassVar[PriceSource | None] = None
    #: Method and path of the create call, where it has no part of the order in it.
    CREATE: ClassVar[tuple[str, str]] = ("POST", "")
    #: Method of the contract → why it is `Unsupported`, in a sentence of the cloud's own.
    UNSUPPORTED: ClassVar[Mapping[str, str]] = {}
    #: Seconds that one attempt of a read may take.
    TIMEOUT_S: ClassVar[float] = 10.0
    #: What an instance's id looks like, so that nothing else becomes part of a path; and what is said otherwise.
    REF: ClassVar[re.Pattern[str]] = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
    REF_WRONG: ClassVar[str] = "that is not the id of an instance"
    #: The sentence for a create that was not sent, because what it needs could not be read; `{}` is the reason.
    NOT_READY: ClassVar[str] = "what the create needs could not be read ({}), so nothing was sent"

    def __init__(self, config: CloudConfig, clock: Clock, pacer: Pacer | None = None) -> None:
        self._clock = clock
        self._missing: tuple[str, ...] = () if config.has_key else (self.KEY_VARIABLE,)
        if self._missing and self.WITHOUT_KEY is not None:
            self.capabilities = replace(self.capabilities, source=self.WITHOUT_KEY)
        self.account = fingerprint(config.credential)
        limits = self.capabilities.rate_limits
        pacing = Pacing(machines_of(self.name), self.account, limits, pacer or LocalPacer(clock), self._groups)
        headers = {"Authorization": config.authorization} if config.has_key else {}
        self._locked = "" if config.has_key else self.KEY_MISSING.rstrip(".")
        self._http = CloudHttp(self.name, config.root, headers, clock, self.TIMEOUT_S, pacing, self._locked)

    @property
    def title(self) -> str:
        """The cloud's name in sentences."""
        return cloud_title(self.name)

    # ── what the cloud's own class says ──────────────────────────────────────────────────────────

    @abstractmethod
    def error_of(self, reply: HttpReply) -> ProviderError | None:
        """The error for an answer to anything but a create; None when it is a plain success."""

    @abstractmethod
    async def _send(self, spec: InstanceSpec, grant: Grant) -> ObservedInstance:
        """Send the one create call of a prepared order, and translate its answer."""

    def _create_call(self, spec: InstanceSpec) -> tuple[str, str]:
        return self.CREATE

    async def _ready(self, spec: InstanceSpec, grant: Grant) -> dict[str, str]:
        """Check the order, and find out what the create call needs besides it."""
        return {}

    async def _usable(self) -> Preflight:
        """Make a call that needs valid credentials and costs nothing."""
        await self.list()
        return self._report(ok=True)

    def _groups(self, method: str, path: str) -> tuple[str, ...]:
        """The rate limits that a call counts against, the tightest first."""
        return ("any",)

    # ── looking ──────────────────────────────────────────────────────────────────────────────────

    async def requote(self, offer: Offer, *, disk_gb: int) -> Offer | None:
        """Search as narrowly as the offer allows."""
        if self._missing:
            raise AuthFailed(self.name, self._locked)
        return same(await self.offers(only(offer), disk_gb=disk_gb, spot=offer.spot), offer)

    def copied_rest(
        self, copy: Copy, first: AnswerPart[Offer], constraint: GpuConstraint, disk_gb: int
    ) -> tuple[Offer, ...]:
        """Nothing: without pages the first answer has no rest."""
        return ()

    async def find(self, name_suffix: str) -> tuple[ObservedInstance, ...] | NotSeen:
        """Read the whole account: no cloud filters by the end of a name."""
        listing = await self.list()
        found = [item for item in listing.items if (item.name or "").endswith(name_suffix)]
        if not found:
            return NotSeen(self.name, listing.at)
        return tuple(sorted(found, key=lambda item: item.created_at or listing.at))

    # ── acting ───────────────────────────────────────────────────────────────────────────────────

    async def prepare(self, spec: InstanceSpec, grant: Grant) -> InstanceSpec:
        """Check the order and read what the create needs, then wait for the create's turn."""
        forbid_in_transaction(f"{self.name} create")
        if spec.offer.source is not PriceSource.ACCOUNT:
            raise InvalidSpec(self.name, "this price was read without a key, so it cannot be bought; ask for it again")
        try:
            ready = await self._ready(spec, grant)
        except ProviderError as error:
            # An unknown outcome tells of an earlier create; every other trouble here means that none was sent.
            if error.definite_no or isinstance(error, OutcomeUnknown):
                raise
            raise NotSent(self.name, self.NOT_READY.format(error.message)) from error
        await self._http.turn(*self._create_call(spec))
        return replace(spec, ready=ready)

    async def create(self, spec: InstanceSpec, grant: Grant) -> ObservedInstance:
        """Send one create call, prepared first if it was not."""
        if spec.ready is None:
            spec = await self.prepare(spec, grant)
        return await self._send(spec, grant)

    async def _post(self, spec: InstanceSpec, body: Mapping[str, Any]) -> HttpReply:
        """The one create call with this body."""
        timeout_s = self.capabilities.create_timeout_s
        return await self._http.send_once(*self._create_call(spec), timeout_s=timeout_s, json=body)

    # What not every cloud has is refused here; a cloud that has it overrides it.

    async def stop(self, ref: str) -> None:
        raise self._unsupported("stop")

    async def start(self, ref: str) -> None:
        raise self._unsupported("start")

    async def restart(self, ref: str) -> None:
        raise self._unsupported("restart")

    # ── money ────────────────────────────────────────────────────────────────────────────────────

    async def balance(self) -> Balance:
        raise self._unsupported("balance")

    async def charges(self, since: datetime, until: datetime) -> tuple[Charge, ...]:
        raise self._unsupported("charges")

    def _unsupported(self, verb: str) -> Unsupported:
        return Unsupported(self.name, self.UNSUPPORTED.get(verb, f"{self.title} has no call for this: {verb}"))

    # ── the account ──────────────────────────────────────────────────────────────────────────────

    async def preflight(self) -> Preflight:
        """Report whether the credentials are set and accepted; costs nothing."""
        if self._missing:
            return Preflight(self.name, ok=False, missing=self._missing, where=self.KEY_PAGE, problem=self.KEY_MISSING)
        try:
            return await self._usable()
        except ProviderError as error:
            where = self.KEY_PAGE if isinstance(error, AuthFailed) else ""
            return self._report(ok=False, where=where, problem=error.message, code=error.code)

    def _report(self, *, ok: bool, **more: Any) -> Preflight:
        return Preflight(self.name, ok=ok, account=self.account, **more)

    async def close(self) -> None:
        await self._http.close()

    # ── reading ──────────────────────────────────────────────────────────────────────────────────

    def _body(self, reply: HttpReply) -> Any:
        """The body of a success; raises what any other answer means."""
        error = self.error_of(reply)
        if error is not None:
            raise self._explained(error)
        return self._http.json(reply)

    def _explained(self, error: ProviderError) -> ProviderError:
        """The error of an answer; where no key is set, a refusal of the key becomes what a person can do about it."""
        if self._missing and isinstance(error, AuthFailed):
            return AuthFailed(self.name, f"{self.title} shows its offers only with a key; set {self.KEY_VARIABLE}")
        return error

    def _marked(self, offers: Iterable[Offer]) -> tuple[Offer, ...]:
        """The offers, each with what it was read from."""
        source = self.capabilities.source
        return tuple(offers) if source is PriceSource.ACCOUNT else tuple(replace(o, source=source) for o in offers)

    def _object(self, reply: HttpReply) -> dict[str, Any]:
        """The body of a success, which has to be a JSON object."""
        body = self._body(reply)
        if not isinstance(body, dict):
            raise UnexpectedResponse(self.name, f"{self.title}'s answer is not a JSON object")
        return body

    async def _read(self, method: str, path: str, **kwargs: Any) -> dict[str, Any]:
        """The object that a call answers; raises what any other answer means."""
        return self._object(await self._http.read(method, path, **kwargs))

    async def _pages(self, read: Callable[[str | None], Awaitable[tuple[Page, Any]]], what: str) -> AsyncIterator[Page]:
        """Every page of a list. `read` gets the token of a page and returns the page with the token of the next one.

        The list ends with the token None. Tokens that are no text or lead back raise, because half a list proves
        nothing.
        """
        token: str | None = None
        seen: set[str] = set()
        for _ in range(PAGES_MAX):
            page, following = await read(token)
            yield page
            if following is None:
                return
            if not isinstance(following, str) or following in seen:
                break
            seen.add(following)
            token = following
        raise UnexpectedResponse(self.name, f"{self.title}'s {what} does not end")

    def _checked(self, ref: str) -> str:
        """The id of an instance. `InvalidSpec` for what cannot be one and might lead to another path."""
        if not self.REF.fullmatch(ref):
            raise InvalidSpec(self.name, self.REF_WRONG)
        return ref
