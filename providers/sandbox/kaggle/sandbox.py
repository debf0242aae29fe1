"""The sandbox as the shared engine sees it: faults, truth, moves from outside, and the push."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from providers.sandbox.engine import CreateCall, SandboxCloud, TrueInstance
from providers.sandbox.faults import LostReply
from providers.sandbox.kaggle import faults
from providers.sandbox.kaggle.account import FINAL, SESSIONS_MAX, WEEK_S, Account, Plan, Run
from providers.sandbox.kaggle.routes_kernels import Kernels
from providers.sandbox.kaggle.transport import Asked, Refused, Wire, address

NINE_HOURS_S = 9 * 3600
KEY = "t4x2"
#: How long a pushed program works when nothing else is said.
WORK_S = 600.0


class KaggleSandbox(SandboxCloud):
    """Kaggle as of November 2026: remote calls and classic paths, key and token, two GPU sessions, 30 hours a week."""

    name = "kaggle"
    FAULTS = faults.FAULTS
    ALIASES = faults.ALIASES
    CREATE_FAULTS = faults.CREATE_FAULTS
    DISTURBANCES = faults.DISTURBANCES
    USERNAME = "simuser"
    API_KEY = "5a9d0b0c5a9d0b0c5a9d0b0c5a9d0b0c"
    API_TOKEN = "KGAT_SANDBOX0000000000000000000000"  # noqa: S105 # The sandbox's own, good nowhere else.
    STAPLE = "T4"
    STAPLE_COUNT = 2
    COUNTS = (2,)
    VARIED = False
    PACED = False
    PAGED = False

    account: Account
    #: How long the programs pushed from now on work before they end by themselves, in seconds.
    work_s: float
    #: The push that is being answered; nothing waits between its note and its answer.
    _call: CreateCall

    def reset(self) -> None:
        """Back to an account without kernels and with all its hours."""
        self.account = Account(self.USERNAME)
        self.work_s = WORK_S

    def environment(self, url: str) -> dict[str, str]:
        """For the adapter. The official client has no setting for the address: patch its table to `url`."""
        return {
            "KAGGLE_USERNAME": self.USERNAME,
            "KAGGLE_KEY": self.API_KEY,
            "KAGGLE_API_TOKEN": self.API_TOKEN,
            "KAGGLE_API_URL": url,
        }

    def routes(self) -> list[BaseRoute]:
        """The calls, the log streams and the signed files."""
        kernels = Kernels(lambda: self.account, self.fault, lambda: self.now, self.API_TOKEN)
        credentials = (self.USERNAME, self.API_KEY, self.API_TOKEN)
        handlers = {**kernels.handlers(), "SaveKernel": self.save}
        wire = Wire(handlers, self.fault, lambda: self.now, credentials, self._note)
        logs = wire.endpoint("GetKernelSessionLogsStream", kernels.logs)

        async def signed(request: Any) -> Response:
            given = {**request.query_params, **request.path_params}
            return kernels.signed(Asked(given, address(request)))

        return [
            *wire.routes(),
            *[Route(f"{p}/v1/kernels/logs/stream/{{owner}}/{{slug}}", logs, methods=["GET"]) for p in ("", "/api")],
            Route("/signed/{owner}/{slug}/{version}/{file}", signed, methods=["GET"]),
        ]

    # ── pushing ──────────────────────────────────────────────────────────────────────────────────

    def _note(self, method: str, asked: Asked) -> None:
        """A push is a create call whatever is decided about it; nothing else is."""
        if method == "SaveKernel":
            name, shape = asked.text("slug").partition("/")[2], asked.text("machineShape")
            self._call = self.engine.note_create(self.name, name, shape)
            self._call.outcome = "refused"

    def save(self, asked: Asked) -> Response:
        """`SaveKernel`: a new version with a session of its own, or a refusal in `error` under status 200."""
        source, call = asked.body, self._call
        slug = str(source.get("slug") or "")
        self._check(source, slug)
        sentence = self._refusal(bool(source.get("machineShape") or source.get("enableGpu")))
        if sentence:
            return JSONResponse({"errorNullable": sentence, "error": sentence, "hasError": True, **_NOTHING})
        late = self.fault("late_push")
        run = self._start(slug.partition("/")[2], source, 0.0 if late is None else float(late.get("after_s", 200)))
        call.ref, call.outcome = run.ref, "committed" if late is None else "pending"
        spoiled = self._spoiled(call)
        return JSONResponse(self._answer(run)) if spoiled is None else spoiled

    def _check(self, source: dict[str, Any], slug: str) -> None:
        """Raises `Refused` for what the service cannot file."""
        owner, _, name = slug.partition("/")
        if owner != self.USERNAME:
            raise Refused(403, "Permission 'kernels.update' was denied")
        if not re.fullmatch(r"[a-z0-9-]{5,}", name) or len(str(source.get("newTitle") or "")) < 5:
            raise Refused(400, "The kernel's slug and title must be at least five characters")
        if source.get("language") not in ("python", "r", "rmarkdown"):
            raise Refused(400, "The language is not supported")
        if source.get("kernelType") not in ("script", "notebook") or not source.get("text"):
            raise Refused(400, "The kernel has no source of a supported type")

    def _refusal(self, gpu: bool) -> str:
        for name, sentence in faults.REFUSALS.items():
            if self.fault(name) is not None:
                return sentence
        if gpu and self.account.active(self.now) >= SESSIONS_MAX:
            return faults.SESSIONS_FULL
        if gpu and self.account.used_s(self.now) >= WEEK_S:
            return faults.WEEK_FULL
        return ""

    def _start(self, slug: str, source: dict[str, Any], after_s: float) -> Run:
        timing = self.engine.timing
        lag = self.fault("list_lag")
        listed_s = timing.list_lag_s if lag is None else float(lag.get("after_s", 60))
        at = self.now + timedelta(seconds=after_s)
        if self.fault("other_slug") is not None:
            slug = f"k-{slug}"
        run = self.account.push(slug, source, at, at + timedelta(seconds=listed_s))
        run.status_absent = self.fault("status_absent") is not None
        run.old_words = self.fault("old_words") is not None
        run.stuck = self.fault("stuck_running") is not None
        run.cap_s = NINE_HOURS_S if self.fault("nine_hours") is not None else run.cap_s
        run.begin(self._plan(run))
        return run

    def _plan(self, run: Run) -> Plan:
        queue_s = None if self.fault("queued_for_ever") is not None else self.engine.timing.boot_s
        fails = self.fault("run_fails")
        if fails is not None:
            run.failure = "Your notebook exited with code 1."
            return Plan(queue_s, float(fails.get("after_s", 30)), fails=True)
        return Plan(queue_s, None if self.fault("runs_over") is not None else self.work_s)

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

    def _spoiled(self, call: CreateCall) -> Response | None:
        """What is answered instead while a fault of the reply is armed."""
        if call.outcome == "pending":
            return Refused(504, "Deadline exceeded").answer()
        if self.fault("lost_reply") is not None:
            return LostReply()
        broken = self.fault("error_after_push")
        if broken is not None:
            return Refused(int(broken.get("status", 503)), faults.WENT_WRONG).answer()
        if self.fault("unreadable_reply") is not None:
            return Response("<html><body>OK</body></html>", media_type="text/html")
        return None

    # ── the truth ────────────────────────────────────────────────────────────────────────────────

    def reachable(self) -> list[str]:
        """Nothing: there is no SSH."""
        return []

    def instances(self) -> list[TrueInstance]:
        """Every run that has landed; all of them cost nothing."""
        now = self.now
        return [
            TrueInstance(
                cloud=self.name,
                ref=run.ref,
                name=run.slug,
                status=run.status.at(now),
                gpu="T4" if run.shape else "",
                gpu_count=2 if run.shape else 0,
                created_at=run.pushed_at,
                ended_at=run.ended_at if run.status.at(now) in FINAL else None,
                gpu_s=run.meter.seconds("gpu", now),
                gpu_usd=Decimal(0),
                storage_usd=Decimal(0),
            )
            for run in sorted(self.account.runs, key=lambda run: run.pushed_at)
            if run.pushed_at <= now
        ]

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

    def disturb(self, ref: str, what: str) -> None:
        """Do one of `DISTURBANCES` to a run. KeyError for an unknown run or word."""
        run = {run.ref: run for run in self.account.runs}[ref]
        if what == "fail":
            run.end(self.now, "ERROR", "Your notebook exited with code 1.")
        elif what == "cancel":
            run.end(self.now, "CANCEL_ACKNOWLEDGED")
        elif what == "vanish":
            run.end(self.now, "CANCEL_ACKNOWLEDGED")
            run.deleted = True
        elif what == "stick":
            run.stuck = True
        else:
            raise KeyError(what)


_NOTHING = {"ref": "", "url": "", "versionNumber": 0, "hasVersionNumber": False, "kernelId": 0}
