"""Kaggle's adapter: the API calls behind each method of the contract."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, SecretStr

from ledger.kernel.clock import Clock
from ledger.kernel.grant import Grant
from providers.adapter import PAGES_MAX, CloudAdapter, CloudConfig
from providers.adapter_helpers import ruled
from providers.capabilities import BillingRule, BillingStart, Capabilities, PortAccess
from providers.clouds.kaggle import instances
from providers.clouds.kaggle.errors import CLOUD, call_error, pushed, status_of
from providers.clouds.kaggle.instances import RunOutput, page
from providers.clouds.kaggle.quota import WEEK, Quota, gpu_quota, hours
from providers.completeness import AnswerPart, Rest
from providers.contract import (
    Charge,
    InstanceSpec,
    InstanceStatus,
    Listing,
    NotSeen,
    ObservedInstance,
    Offer,
    Preflight,
)
from providers.errors import (
    AuthFailed,
    OutcomeUnknown,
    ProviderError,
    QuotaExceeded,
    UnexpectedResponse,
)
from providers.gpus.constraint import GpuConstraint
from providers.http import Credential, HttpReply
from providers.rate_limits import Pace, Pacer


class Statuses:
    """The last status answer of each run. It stands for `every`; where that is zero, nothing is remembered."""

    def __init__(self, clock: Clock, every: timedelta) -> None:
        self._clock = clock
        self._every = every
        self._heard: dict[str, tuple[datetime, dict[str, Any]]] = {}

    def known(self, ref: str) -> dict[str, Any] | None:
        """The answer that still stands for this run, if there is one."""
        at, body = self._heard.get(ref, (None, None))
        return body if at is not None and timedelta(0) <= self._clock.now() - at < self._every else None

    def store(self, ref: str, body: dict[str, Any]) -> None:
        """Keep this answer, and forget those that no longer stand."""
        now = self._clock.now()
        self._heard = {one: kept for one, kept in self._heard.items() if now - kept[0] < self._every}
        if self._every:
            self._heard[ref] = now, body


def _user(name: str) -> str:
    if not all("!" <= character <= "~" and character != "/" for character in name):
        raise ValueError("a Kaggle user name is printable ASCII without spaces or slashes; copy it from the profile")
    return name


class KaggleConfig(CloudConfig):
    """How to reach one Kaggle account: user name and key, or an access token, which wins when both are set.

    `session_max_h` is the longest session pushed: nine hours were seen, twelve are said to exist. `sessions_max` is
    how many GPU sessions may run at once, an interactive one on the web page included.
    """

    username: Annotated[str, AfterValidator(_user)] = Field(
        default="",
        description="Your Kaggle user name, as in the address of your profile: https://www.kaggle.com/NAME.",
        examples=["ada"],
    )
    api_token: Credential = Field(
        default=SecretStr(""),
        description="Access token of Kaggle, in place of user name and key; made at https://www.kaggle.com/settings.",
    )
    base_url: str = "https://api.kaggle.com"
    session_max_h: float = Field(default=9.0, gt=0, le=12)
    sessions_max: int = Field(default=2, ge=1, le=16)

    @property
    def missing(self) -> tuple[str, ...]:
        """The variables to set, in the classic spelling, when neither kind of credential is complete."""
        if self.api_token.get_secret_value():
            return ()
        pairs = (("KAGGLE_USERNAME", self.username), ("KAGGLE_KEY", self.api_key.get_secret_value()))
        return tuple(name for name, value in pairs if not value)

    @property
    def has_key(self) -> bool:
        return not self.missing

    @property
    def credential(self) -> str:
        """The token, else user name and key."""
        return self.api_token.get_secret_value() or f"{self.username}:{self.api_key.get_secret_value()}"

    @property
    def authorization(self) -> str:
        """The header's value: `Bearer` for a token, else `Basic`."""
        token = self.api_token.get_secret_value()
        if token:
            return f"Bearer {token}"
        return f"Basic {base64.b64encode(self.credential.encode()).decode()}"


KERNELS = "/v1/kernels.KernelsApiService"
COMPETITIONS = "/v1/competitions.CompetitionApiService/ListCompetitions"
INTROSPECT = "/v1/security.OAuthService/IntrospectToken"
#: The official client's own page size; whether larger ones are honoured is not documented.
PAGE_SIZE = 20

#: The status of one run is not asked for more often than this: more was seen to be refused.
STATUS_EVERY = timedelta(seconds=30)
#: No limit is documented; what a 429 asks for is kept.
RATE_LIMITS = {"any": Pace(0.1, burst=20)}

CAPABILITIES = Capabilities(
    stop=False,
    spot=False,
    labels=True,
    balance=False,
    charges=True,
    logs=False,
    restart=False,
    terminate=False,
    ssh=False,
    ports=PortAccess.NONE,
    images=False,
    page_url="https://www.kaggle.com/code/{0}/{1}",
    batch=True,
    single_node="it runs one program on one machine",
    run_max_s=int(instances.SESSION_MAX.total_seconds()),
    free=True,
    # No call ends a run: its own exit, the pushed timeout, or a person on the web page does.
    meter_stop_verb="manual",
    billing=BillingRule(starts=BillingStart.RUNNING, storage_while_stopped=False),
    visibility_lag_s=60,
    boot_expected_s=300,
    # A run may wait in the queue for the whole allowance that its deadline leaves it.
    boot_deadline_s=int(instances.QUEUE_ALLOWANCE.total_seconds()),
    name_max=instances.SLUG_MAX,
    name_extra_chars="-",
    rate_limits=RATE_LIMITS,
)


class KaggleProvider(CloudAdapter):
    """One Kaggle account. The provider contract says what each method promises."""

    name = CLOUD
    capabilities = CAPABILITIES
    KEY_PAGE = "https://www.kaggle.com/settings"
    KEY_MISSING = "Set these two, or KAGGLE_API_TOKEN alone."
    CREATE = ("POST", f"{KERNELS}/SaveKernel")
    NOT_READY = "kaggle could not be checked first ({}), so nothing was pushed"
    UNSUPPORTED: ClassVar[Mapping[str, str]] = {
        "stop": "Kaggle cannot stop a run; it ends by itself or by its timeout",
        "start": "Kaggle cannot start a run again; a new run needs a new approval",
        "restart": "Kaggle cannot restart a run; a new run needs a new approval",
        "terminate": "Kaggle cannot cancel a run; it ends by itself, by its timeout, or by hand on kaggle.com",
        "balance": "Kaggle is free and has no balance; it counts GPU hours per week",
    }

    def __init__(self, config: KaggleConfig, clock: Clock, pacer: Pacer | None = None) -> None:
        super().__init__(config, clock, pacer)
        self._missing = config.missing
        self._config = config
        self._owner = config.username
        self._session_max_s = int(config.session_max_h * 3600)
        secrets = (config.api_token.get_secret_value(), config.api_key.get_secret_value(), config.authorization)
        self._secrets = tuple(secret for secret in secrets if secret)
        self._statuses = Statuses(clock, STATUS_EVERY * (1.0 if pacer is None else pacer.scale))

    def error_of(self, reply: HttpReply) -> ProviderError | None:
        """The error for an answer, by its status or the code and words of its error object."""
        return call_error(reply, self._clock.now(), self._secrets)

    # ── looking ──────────────────────────────────────────────────────────────────────────────────

    async def offers(
        self, constraint: GpuConstraint, *, disk_gb: int, spot: bool | None, rest: Rest = None, spare: bool = False
    ) -> AnswerPart[Offer]:
        """At most one: what is left of the week's hours, while a session is free. The disk comes with the session."""
        if spot is True or not instances.wanted(constraint):
            return AnswerPart()
        at = self._clock.now()
        quota = await self.quota()
        left_s = None if quota is None else quota.left_s
        if left_s is not None and left_s < instances.TIMEOUT_MIN_S:
            return AnswerPart()
        if await self.active() >= self._config.sessions_max:
            return AnswerPart()
        return AnswerPart((instances.offer(at, left_s, self._session_max_s, "" if quota is None else quota.warning),))

    async def quota(self) -> Quota | None:
        """This week's GPU hours; None when Kaggle does not say. Read it before and after a run to account it."""
        return gpu_quota(await self._call(f"{KERNELS}/GetAcceleratorQuotaStatistics", {}))

    async def active(self) -> int:
        """How many GPU runs of the account are queued or running now. A run older than any session is not."""
        return await self._active(await self._kernels())

    async def find(self, name_suffix: str) -> tuple[ObservedInstance, ...] | NotSeen:
        """Read all kernels and the status of those that fit, because Kaggle's own search is by likeness."""
        at = self._clock.now()
        fitting = [kernel for kernel in await self._kernels() if kernel.name.endswith(name_suffix)]
        if not fitting:
            return NotSeen(CLOUD, at)
        seen = [await self._observed(kernel) for kernel in fitting]
        return tuple(sorted(seen, key=lambda item: item.created_at or at))

    async def get(self, ref: str) -> ObservedInstance | NotSeen:
        """One run by its version. Kaggle answers 403 to a slug that does not exist.

        So a 403 is `NotSeen` only when the same credentials may read the quota right after it.
        """
        owner, slug, version = instances.split(ref)
        at = self._clock.now()
        if (known := self._statuses.known(ref)) is not None:
            return instances.observed(ref, known)
        asked = _status(owner, slug, version)
        reply = await self._http.read("POST", f"{KERNELS}/GetKernelSessionStatus", json=asked)
        if status_of(reply) == 404:
            return NotSeen(CLOUD, at)
        if status_of(reply) == 403:
            await self.quota()
            return NotSeen(CLOUD, at)
        seen = instances.observed(ref, self._body(reply))
        self._statuses.store(ref, reply.body)
        return seen

    async def list(self) -> Listing:
        """Every kernel with the status of its newest run. It proves no absence: runs themselves cannot be listed."""
        at = self._clock.now()
        items = [await self._observed(kernel) for kernel in await self._kernels()]
        return Listing(CLOUD, self.account, at, tuple(items), proves_absence=False)

    async def output(self, ref: str) -> RunOutput:
        """What a run left: all its files and its log; both empty until it ends. Raises as `list` does."""
        owner, slug, version = instances.split(ref)
        asked = _status(owner, slug, version)

        async def part(token: str | None) -> tuple[RunOutput, str | None]:
            found, following = page(
                await self._call(f"{KERNELS}/ListKernelSessionOutput", {**asked, "pageToken": token or ""})
            )
            return found, following or None

        files: dict[str, str] = {}
        log = ""
        async for found in self._pages(part, "list of output files"):
            files |= dict(found.files)
            log = log or found.log
        return RunOutput(tuple(files.items()), log)

    # ── acting ───────────────────────────────────────────────────────────────────────────────────

    async def _ready(self, spec: InstanceSpec, grant: Grant) -> dict[str, str]:
        """Quota and active runs are read.

        A kernel that has the name already means that this grant's push was sent before, so its outcome is unknown and
        nothing is sent: a second push would start a second run.
        """
        timeout = instances.timeout_s(grant, self._session_max_s)
        owner = await self._username()
        instances.push_body(spec, owner, timeout, self._clock.now())
        existing = await self._kernels()
        if any(spec.name.lower() in (kernel.slug, kernel.name.lower()) for kernel in existing):
            raise OutcomeUnknown(CLOUD, "kaggle has a kernel of this name already, so the push was sent before")
        await self._afford(timeout, existing)
        return {"owner": owner}

    async def _send(self, spec: InstanceSpec, grant: Grant) -> ObservedInstance:
        """One push of a new kernel, with the timeout that the grant's hours give."""
        timeout = instances.timeout_s(grant, self._session_max_s)
        body = instances.push_body(spec, (spec.ready or {})["owner"], timeout, self._clock.now())
        reply = await self._post(spec, body)
        made = pushed(reply, self._clock.now(), (*self._secrets, *spec.env.values()))
        return instances.fresh(made.path, made.version, spec.name)

    async def _afford(self, asked_s: int, existing: tuple[instances.Kernel, ...]) -> None:
        """`QuotaExceeded` when the week's hours or the sessions do not suffice as far as Kaggle says."""
        quota = await self.quota()
        if quota is not None and quota.left_s < asked_s:
            raise QuotaExceeded(
                CLOUD,
                f"kaggle has {hours(quota.left_s)} GPU hours left this week, and the run may take {asked_s / 3600:.1f}",
            )
        active = await self._active(existing)
        if active >= self._config.sessions_max:
            raise QuotaExceeded(
                CLOUD, f"kaggle runs {active} GPU sessions of this account already; wait for one to end"
            )

    async def terminate(self, ref: str) -> bool:
        """False for a run that ended; `Unsupported` for any other, because Kaggle has no usable cancel.

        Deleting the kernel is not offered instead: it destroys the results, and whether it ends the session is not
        documented.
        """
        seen = await self.get(ref)
        if isinstance(seen, ObservedInstance) and seen.status is InstanceStatus.TERMINATED:
            return False
        raise self._unsupported("terminate")

    # ── money ────────────────────────────────────────────────────────────────────────────────────

    async def charges(self, since: datetime, until: datetime) -> tuple[Charge, ...]:
        """The GPU hours that were used of this week's quota, at no price: Kaggle reports no other week."""
        quota, now = await self.quota(), self._clock.now()
        if quota is None:
            return ()
        end = quota.refreshes_at or now
        line = quota.charge(end - WEEK, min(end, now))
        return ruled([line] if line.end > since and line.start < until else [], CAPABILITIES.billing)

    async def _usable(self) -> Preflight:
        """Read the quota, which needs credentials, and the competitions; warn when few hours are left."""
        await self._username()
        quota = await self.quota()
        await self._call(COMPETITIONS, {"page": 1, "pageSize": 1})
        active = await self.active()
        problem = "" if quota is None else quota.warning
        if quota is None:
            problem = "Kaggle does not tell how many GPU hours are left this week."
        elif active >= self._config.sessions_max:
            problem = f"{active} GPU sessions are running; no other can start now. {problem}".strip()
        return self._report(ok=True, where=self.KEY_PAGE, problem=problem)

    # ── plumbing ─────────────────────────────────────────────────────────────────────────────────

    async def _username(self) -> str:
        """The owner of every slug: as configured, else asked for once with the token."""
        if not self._owner:
            token = self._config.api_token.get_secret_value()
            if not token:
                raise AuthFailed(CLOUD, "no Kaggle credentials are set; give KAGGLE_USERNAME and KAGGLE_KEY")
            body = await self._call(INTROSPECT, {"token": token})
            name = body.get("username")
            if body.get("active") is not True or not isinstance(name, str) or not name:
                raise AuthFailed(CLOUD, "kaggle does not accept the access token")
            self._owner = name
        return self._owner

    async def _kernels(self) -> tuple[instances.Kernel, ...]:
        """Every kernel of the account, all pages, each once."""
        found: dict[str, instances.Kernel] = {}
        token = ""
        seen: set[str] = set()
        for number in range(1, PAGES_MAX + 1):
            asked = {"group": "PROFILE", "page": number, "pageSize": PAGE_SIZE, "pageToken": token}
            body = await self._call(f"{KERNELS}/ListKernels", asked)
            rows = {f"{kernel.owner}/{kernel.slug}": kernel for kernel in instances.kernels(body)}
            fresh = rows.keys() - found.keys()
            found = rows | found
            following = body.get("nextPageToken") or ""
            # Without a token a full page may have another one behind it, reached by its number.
            if not following and (len(rows) < PAGE_SIZE or not fresh):
                return tuple(found.values())
            if not isinstance(following, str) or following in seen:
                break
            token = following
            if token:
                seen.add(token)
        raise UnexpectedResponse(CLOUD, "kaggle's list of kernels does not end")

    async def _active(self, kernels: tuple[instances.Kernel, ...]) -> int:
        now = self._clock.now()
        seen = [await self._observed(kernel) for kernel in kernels if kernel.gpu and kernel.may_run(now)]
        return sum(item.status is not InstanceStatus.TERMINATED for item in seen)

    async def _observed(self, kernel: instances.Kernel) -> ObservedInstance:
        """The newest run of a kernel; its status is asked for only while it may run at all."""
        if not kernel.may_run(self._clock.now()):
            return instances.outlived(kernel)
        body = self._statuses.known(kernel.ref)
        if body is None:
            asked = _status(kernel.owner, kernel.slug, kernel.version)
            body = await self._call(f"{KERNELS}/GetKernelSessionStatus", asked)
            self._statuses.store(kernel.ref, body)
        return instances.observed(kernel.ref, body, kernel)

    async def _call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return await self._read("POST", path, json=body)


def _status(owner: str, slug: str, version: int) -> dict[str, Any]:
    return {"userName": owner, "kernelSlug": slug, "versionLabel": f"v{version}"}
