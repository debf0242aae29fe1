"""The sandbox as the shared engine sees it: faults, credentials, moves from outside, and the push."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from providers.sandbox.api import json_of
from providers.sandbox.kaggle import faults
from providers.sandbox.kaggle.account import SESSIONS_MAX, WEEK_S, KaggleAccount, Run
from providers.sandbox.kaggle.routes_kernels import KaggleCall, KaggleKernels, no

KEY = "t4x2"
#: How long a pushed program works when nothing else is said.
WORK_S = 600.0
#: How the address of the call ends that needs no credentials, in both its forms.
INTROSPECT = ("IntrospectToken", "oauth2/introspect")


class KaggleSandbox(KaggleKernels):
    """Kaggle as of November 2026: remote calls and classic paths, key and token, two GPU sessions, 30 hours a week."""

    name = "kaggle"
    FAULTS = faults.FAULTS
    DISTURBANCES = faults.DISTURBANCES
    USERNAME = "simuser"
    API_KEY = "5a9d0b0c5a9d0b0c5a9d0b0c5a9d0b0c"
    STAPLE = "T4"
    STAPLE_COUNT = 2
    COUNTS = (2,)
    VARIED = False
    PACED = False
    PAGED = False

    #: How long the programs pushed from now on work before they end by themselves, in seconds.
    work_s: float

    def reset(self) -> None:
        self.account = KaggleAccount(self, self.USERNAME)
        self.work_s = WORK_S

    def environment(self, url: str) -> dict[str, str]:
        """For the adapter. The official client has no setting for the address: patch its table to `url`."""
        return {
            "KAGGLE_USERNAME": self.USERNAME,
            "KAGGLE_KEY": self.API_KEY,
            "KAGGLE_API_TOKEN": self.API_TOKEN,
            "KAGGLE_API_URL": url,
        }

    # ── the gateway ──────────────────────────────────────────────────────────────────────────────

    def key_refusal(self, request: Request, group: str) -> Response | None:
        """User name and key, or a token; asking whose token it is needs neither."""
        basic = base64.b64encode(f"{self.USERNAME}:{self.API_KEY}".encode()).decode()
        good = {f"Basic {basic}", f"Bearer {self.API_TOKEN}"}
        known = request.headers.get("authorization") in good or request.url.path.endswith(INTROSPECT)
        return None if known else faults.REFUSED

    async def body_of(self, request: Request) -> Any:
        """The body together with the query and the path, which a classic call uses instead."""
        body = await json_of(request)
        return {**request.query_params, **request.path_params, **body} if isinstance(body, dict) else None

    def ordered(self, request: Request, body: Mapping[str, Any]) -> tuple[str | None, str]:
        """An offer is a shape."""
        return str(body.get("slug") or "").partition("/")[2], str(body.get("machineShape") or "")

    def malformed(self) -> Response:
        return faults.error(400, "the body is not a JSON object")

    def answer_late(self) -> Response:
        return faults.error(504, "Deadline exceeded")

    # ── pushing ──────────────────────────────────────────────────────────────────────────────────

    def save(self, asked: KaggleCall) -> Response:
        source = asked.body
        slug = str(source.get("slug") or "")
        self._check(source, slug)
        if source.get("machineShape") or source.get("enableGpu"):
            if self.account.active(self.now) >= SESSIONS_MAX:
                return faults.sentence(faults.SESSIONS_FULL)
            if self.account.used_s(self.now) >= WEEK_S:
                return faults.sentence(faults.WEEK_FULL)
        lands_in_s = self.lands_in_s()
        run = self._start(slug.partition("/")[2], source, lands_in_s)
        self.committed(run.ref, lands_in_s)
        return JSONResponse(self._answer(run))

    def _check(self, source: dict[str, Any], slug: str) -> None:
        """Raises `Refused` for what the service cannot file."""
        owner, _, name = slug.partition("/")
        if owner != self.USERNAME:
            raise no(403, "Permission 'kernels.update' was denied")
        if not re.fullmatch(r"[a-z0-9-]{5,}", name) or len(str(source.get("newTitle") or "")) < 5:
            raise no(400, "The kernel's slug and title must be at least five characters")
        if source.get("language") not in ("python", "r", "rmarkdown"):
            raise no(400, "The language is not supported")
        if source.get("kernelType") not in ("script", "notebook") or not source.get("text"):
            raise no(400, "The kernel has no source of a supported type")

    def _start(self, slug: str, source: dict[str, Any], after_s: float) -> Run:
        listed_s = self.account.lag_s("create_list_lag", self.engine.timing.list_lag_s)
        at = self.now + timedelta(seconds=after_s)
        if self.fault("other_slug") is not None:
            slug = f"k-{slug}"
        run = self.account.push(slug, source, at, at + timedelta(seconds=listed_s))
        run.stuck = self.fault("stuck_running") is not None
        queue_s = None if self.fault("queued_for_ever") is not None else self.engine.timing.boot_s
        fails = self.fault("run_fails")
        if fails is not None:
            run.failure = "Your notebook exited with code 1."
            run.begin(queue_s, float(fails.get("after_s", 30)), fails=True)
        else:
            run.begin(queue_s, None if self.fault("runs_over") is not None else self.work_s)
        return run

    def _answer(self, run: Run) -> dict[str, Any]:
        body: dict[str, Any] = {
            "ref": f"/code/{run.owner}/{run.slug}",
            "url": f"https://www.kaggle.com/code/{run.owner}/{run.slug}",
            "versionNumber": run.version,
            "kernelId": len(self.account.runs),
        }
        if self.fault("invalid_source") is not None:
            body["invalidDatasetSources"] = ["simuser/missing"]
        if self.fault("error_with_version") is not None:
            body |= {"error": faults.WENT_WRONG, "hasError": True}
        return body

    # ── moves from outside ───────────────────────────────────────────────────────────────────────

    def reprice(self, key: str, factor: Decimal) -> int:
        """The price is $0 and stays so; the one offer counts as changed."""
        return int(key in ("*", KEY) and factor.is_finite())

    def withdraw(self, key: str) -> int:
        """The offer goes by using up the week's hours."""
        if key not in ("*", KEY):
            return 0
        self.account.use_up(self.now)
        return 1

    def happen(self, ref: str, what: str) -> None:
        run = self.account.instances[ref]
        if what == "fail":
            run.finish(self.now, "ERROR", "Your notebook exited with code 1.")
        elif what == "cancel":
            run.finish(self.now, "CANCEL_ACKNOWLEDGED")
        elif what == "vanish":
            run.finish(self.now, "CANCEL_ACKNOWLEDGED")
            run.deleted = True
        else:
            run.stuck = True
