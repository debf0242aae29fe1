"""The adapter: which call is made for which verb of the contract."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from ledger.kernel.clock import Clock
from ledger.kernel.grant import Grant
from ledger.kernel.job import GpuConstraint
from ledger.kernel.network_guard import forbid_in_transaction
from providers.adapter_helpers import only, ruled, same
from providers.capabilities import BillingRule, BillingStart, Capabilities
from providers.clouds.kaggle import instances
from providers.clouds.kaggle.config import KaggleConfig
from providers.clouds.kaggle.errors import CLOUD, call_error, pushed
from providers.clouds.kaggle.output import RunOutput, page
from providers.clouds.kaggle.quota import WEEK, Quota, gpu_quota, hours
from providers.clouds.kaggle.status_cache import Statuses
from providers.contract import (
    Balance,
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
    InvalidSpec,
    NotSent,
    OutcomeUnknown,
    ProviderError,
    QuotaExceeded,
    UnexpectedResponse,
    Unsupported,
)
from providers.http import CloudHttp, Reply, fingerprint
from providers.rate_limits import LocalPacer, Pace, Pacer, Pacing

KEY_PAGE = "https://www.kaggle.com/settings"
KERNELS = "/v1/kernels.KernelsApiService"
PUSH = f"{KERNELS}/SaveKernel"
COMPETITIONS = "/v1/competitions.CompetitionApiService/ListCompetitions"
INTROSPECT = "/v1/security.OAuthService/IntrospectToken"
#: The official client's own page size; whether larger ones are honoured is not documented.
PAGE_SIZE = 20
#: More pages than any account has; reaching it means that the tokens lead nowhere.
PAGES_MAX = 200

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
    images=False,
    page_url="https://www.kaggle.com/code/{0}/{1}",
    batch=True,
    run_max_s=int(instances.SESSION_MAX.total_seconds()),
    free=True,
    # No call ends a run: its own exit, the pushed timeout, or a person on the web page does.
    meter_stop_verb="manual",
    billing=BillingRule(quantum_s=1, minimum_s=0, starts=BillingStart.RUNNING, storage_while_stopped=False),
    visibility_lag_s=60,
    boot_expected_s=300,
    # A run may wait in the queue for the whole allowance that its deadline leaves it.
    boot_deadline_s=int(instances.QUEUE_ALLOWANCE.total_seconds()),
    name_max=instances.SLUG_MAX,
    name_extra_chars="-",
    rate_limits=RATE_LIMITS,
)


class KaggleProvider:
    """One Kaggle account. The provider contract says what each method promises."""

    name = CLOUD
    capabilities = CAPABILITIES

    def __init__(self, config: KaggleConfig, clock: Clock, pacer: Pacer | None = None) -> None:
        self._config = config
        self._clock = clock
        self._owner = config.username
        self._session_max_s = int(config.session_max_h * 3600)
        token, key = config.api_token.get_secret_value(), config.key.get_secret_value()
        self._secrets = tuple(secret for secret in (token, key, config.authorization) if secret)
        self.account = fingerprint(token or f"{config.username}:{key}")
        pacer = pacer or LocalPacer(clock)
        self._statuses = Statuses(clock, STATUS_EVERY * pacer.scale)
        pacing = Pacing(CLOUD, self.account, RATE_LIMITS, pacer, lambda *_: ("any",))
        headers = {"Authorization": config.authorization}
        self._http = CloudHttp(CLOUD, config.base_url, headers, clock, pacing=pacing)

    # ── looking ──────────────────────────────────────────────────────────────────────────────────

    async def offers(
        self, constraint: GpuConstraint, *, disk_gb: int, spot: bool | None, pages: int = 1
    ) -> tuple[Offer, ...]:
        """At most one: what is left of the week's hours, while a session is free. The disk comes with the session."""
        if spot is True or not instances.wanted(constraint):
            return ()
        at = self._clock.now()
        quota = await self.quota()
        left_s = None if quota is None else quota.left_s
        if left_s is not None and left_s < instances.TIMEOUT_MIN_S:
            return ()
        if await self.active() >= self._config.sessions_max:
            return ()
        return (instances.offer(at, left_s, self._session_max_s, "" if quota is None else quota.warning),)

    async def requote(self, offer: Offer, *, disk_gb: int) -> Offer | None:
        """There is one offer at most."""
        return same(await self.offers(only(offer), disk_gb=disk_gb, spot=offer.spot), offer)

    async def quota(self) -> Quota | None:
        """This week's GPU hours; None when Kaggle does not tell them. Read it before and after a run to account it."""
        return gpu_quota(await self._call(f"{KERNELS}/GetAcceleratorQuotaStatistics", {}))

    async def active(self) -> int:
        """How many GPU runs of the account are queued or running now. A run older than any session is not."""
        return await self._active(await self._kernels())

    async def find(self, name_suffix: str) -> tuple[ObservedInstance, ...] | NotSeen:
        """Kaggle's own search is by likeness, so this reads all kernels and asks for the status of those that fit."""
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
        reply = await self._post(f"{KERNELS}/GetKernelSessionStatus", _status(owner, slug, version))
        error = call_error(reply, self._clock.now(), self._secrets)
        if isinstance(error, InvalidSpec) and 404 in {reply.status, _code(reply)}:
            return NotSeen(CLOUD, at)
        if isinstance(error, AuthFailed) and 403 in {reply.status, _code(reply)}:
            await self.quota()
            return NotSeen(CLOUD, at)
        if error is not None:
            raise error
        seen = instances.observed(ref, self._http.json(reply))
        self._statuses.heard(ref, reply.body)
        return seen

    async def list(self) -> Listing:
        """Every kernel with the status of its newest run. It proves no absence: runs themselves cannot be listed."""
        at = self._clock.now()
        items = [await self._observed(kernel) for kernel in await self._kernels()]
        return Listing(CLOUD, self.account, at, tuple(items), proves_absence=False)

    async def output(self, ref: str) -> RunOutput:
        """What a run left: all its files and its log; both empty until it is over. Raises as `list` does."""
        owner, slug, version = instances.split(ref)
        asked = _status(owner, slug, version)
        files: dict[str, str] = {}
        log = token = ""
        for _ in range(PAGES_MAX):
            body = await self._call(f"{KERNELS}/ListKernelSessionOutput", {**asked, "pageToken": token})
            part, following = page(body)
            files |= dict(part.files)
            log = log or part.log
            if not following:
                return RunOutput(tuple(files.items()), log)
            if following == token:
                break
            token = following
        raise UnexpectedResponse(CLOUD, "kaggle's list of output files does not end")

    # ── acting ───────────────────────────────────────────────────────────────────────────────────

    async def prepare(self, spec: InstanceSpec, grant: Grant) -> InstanceSpec:
        """Quota and active runs are read; whatever goes wrong there is a definite no. Then the push's turn.

        A kernel that has the name already means that this grant's push was sent before, so its outcome is unknown and
        nothing is sent: a second push would start a second run.
        """
        forbid_in_transaction("kaggle create")
        timeout = instances.timeout_s(grant, self._session_max_s)
        try:
            owner = await self._username()
            instances.push_body(spec, owner, timeout, self._clock.now())
            existing = await self._kernels()
            sent_before = any(spec.name.lower() in (kernel.slug, kernel.name.lower()) for kernel in existing)
            if not sent_before:
                await self._afford(timeout, existing)
        except ProviderError as error:
            if error.definite_no:
                raise
            raise NotSent(
                CLOUD, f"kaggle could not be checked first ({error.message}), so nothing was pushed"
            ) from error
        if sent_before:
            raise OutcomeUnknown(CLOUD, "kaggle has a kernel of this name already, so the push was sent before")
        await self._http.turn("POST", PUSH)
        return replace(spec, ready={"owner": owner})

    async def create(self, spec: InstanceSpec, grant: Grant) -> ObservedInstance:
        """One push of a new kernel, with the timeout that the grant's hours give."""
        if spec.ready is None:
            spec = await self.prepare(spec, grant)
        timeout = instances.timeout_s(grant, self._session_max_s)
        body = instances.push_body(spec, (spec.ready or {})["owner"], timeout, self._clock.now())
        reply = await self._http.send_once("POST", PUSH, json=body)
        made = pushed(reply, self._clock.now(), (*self._secrets, *spec.env.values()))
        return instances.fresh(made.path, made.version, spec.name)

    async def _afford(self, asked_s: int, existing: tuple[instances.Kernel, ...]) -> None:
        """`QuotaExceeded` when the week's hours or the sessions do not suffice as far as Kaggle tells."""
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

    async def stop(self, ref: str) -> None:
        """There is none."""
        raise Unsupported(CLOUD, "Kaggle cannot stop a run; it ends by itself or by its timeout")

    async def start(self, ref: str) -> None:
        """There is none."""
        raise Unsupported(CLOUD, "Kaggle cannot start a run again; a new run needs a new approval")

    async def restart(self, ref: str) -> None:
        """There is none."""
        raise Unsupported(CLOUD, "Kaggle cannot restart a run; a new run needs a new approval")

    async def terminate(self, ref: str) -> bool:
        """False for a run that is over; `Unsupported` for any other, because Kaggle has no usable cancel.

        Deleting the kernel is not offered instead: it destroys the results, and whether it ends the session is not
        documented.
        """
        seen = await self.get(ref)
        if isinstance(seen, ObservedInstance) and seen.status is InstanceStatus.TERMINATED:
            return False
        raise Unsupported(
            CLOUD, "Kaggle cannot cancel a run; it ends by itself, by its timeout, or by hand on kaggle.com"
        )

    # ── money ────────────────────────────────────────────────────────────────────────────────────

    async def balance(self) -> Balance:
        """There is no money in it."""
        raise Unsupported(CLOUD, "Kaggle is free and has no balance; it counts GPU hours per week")

    async def charges(self, since: datetime, until: datetime) -> tuple[Charge, ...]:
        """The GPU hours that were used of this week's quota, at no price: Kaggle tells of no other week."""
        quota, now = await self.quota(), self._clock.now()
        if quota is None:
            return ()
        end = quota.refreshes_at or now
        line = quota.charge(end - WEEK, min(end, now))
        return ruled([line] if line.end > since and line.start < until else [], CAPABILITIES.billing)

    async def preflight(self) -> Preflight:
        """Credentials by the quota call, liveness by the list of competitions; a warning when few hours are left."""
        if self._config.missing:
            return self._report(
                ok=False, problem="Set these two, or KAGGLE_API_TOKEN alone.", missing=self._config.missing
            )
        try:
            await self._username()
            quota = await self.quota()
            await self._call(COMPETITIONS, {"page": 1, "pageSize": 1})
            active = await self.active()
        except ProviderError as error:
            return self._report(ok=False, problem=error.message, code=error.code)
        if quota is None:
            return self._report(ok=True, problem="Kaggle does not tell how many GPU hours are left this week.")
        if active >= self._config.sessions_max:
            return self._report(
                ok=True, problem=f"{active} GPU sessions are running; no other can start now. {quota.warning}".strip()
            )
        return self._report(ok=True, problem=quota.warning)

    def _report(self, *, ok: bool, problem: str, missing: tuple[str, ...] = (), code: str = "") -> Preflight:
        account = "" if missing else self.account
        return Preflight(CLOUD, ok=ok, missing=missing, where=KEY_PAGE, problem=problem, account=account, code=code)

    async def close(self) -> None:
        """Release connections."""
        await self._http.close()

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
            self._statuses.heard(kernel.ref, body)
        return instances.observed(kernel.ref, body, kernel)

    async def _call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The object that a call answers; raises what any other answer means."""
        reply = await self._post(path, body)
        error = call_error(reply, self._clock.now(), self._secrets)
        if error is not None:
            raise error
        answer = self._http.json(reply)
        if not isinstance(answer, dict):
            raise UnexpectedResponse(CLOUD, "kaggle's answer is not a JSON object")
        return answer

    async def _post(self, path: str, body: dict[str, Any]) -> Reply:
        return await self._http.read("POST", path, json=body)


def _status(owner: str, slug: str, version: int) -> dict[str, Any]:
    return {"userName": owner, "kernelSlug": slug, "versionLabel": f"v{version}"}


def _code(reply: Reply) -> int | None:
    code = reply.body.get("code") if isinstance(reply.body, dict) else None
    return code if isinstance(code, int) else None
