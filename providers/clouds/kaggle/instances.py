"""Translation between Kaggle's kernels and the contract's types, both ways.

A run is one version of a kernel, and its id is `owner/slug/version`. The slug ends with the machine label.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from ledger.kernel.grant import Grant
from providers.adapter_helpers import clean, instant
from providers.clouds.kaggle.errors import CLOUD
from providers.contract import InstanceSpec, InstanceStatus, ObservedInstance, Offer, Stock
from providers.errors import InvalidSpec, UnexpectedResponse
from providers.gpus import table
from providers.gpus.constraint import GpuConstraint

#: "GPU T4 x2", the only shape that every verified account may push. A single T4 is not sold, the P100 is retired.
SHAPE = "NvidiaTeslaT4"
GPU, GPU_COUNT, KEY = "T4", 2, "t4x2"
REGION = "any"
SLUG = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*", re.ASCII)
SLUG_MIN, SLUG_MAX = 5, 50
REF = re.compile(r"([A-Za-z0-9_-]{1,64})/([A-Za-z0-9_-]{1,80})/([1-9]\d{0,5})", re.ASCII)
#: A shorter run is not worth a session: it would spend its time on the start.
TIMEOUT_MIN_S = 60
#: The longest session that Kaggle was ever seen to allow; a version whose run began longer ago is over.
SESSION_MAX = timedelta(hours=12, minutes=30)
#: Time that a run may wait in the queue before the deadline in its script cuts into its hours.
QUEUE_ALLOWANCE = timedelta(minutes=25)
FEW_HOURS_S = Decimal(3 * 3600)

STATUS: Mapping[str, InstanceStatus] = {
    "QUEUED": InstanceStatus.PENDING,
    "NEWSCRIPT": InstanceStatus.PENDING,
    "RUNNING": InstanceStatus.RUNNING,
    "CANCELREQUESTED": InstanceStatus.RUNNING,
    "CANCELACKNOWLEDGED": InstanceStatus.TERMINATED,
    "COMPLETE": InstanceStatus.TERMINATED,
    "ERROR": InstanceStatus.TERMINATED,
}


@dataclass(frozen=True, slots=True)
class Kernel:
    """One row of the list of kernels: no status and no session id are in it."""

    owner: str
    slug: str
    version: int
    last_run_at: datetime | None
    gpu: bool
    #: The title, which keeps the case that a slug loses.
    name: str

    @property
    def ref(self) -> str:
        return f"{self.owner}/{self.slug}/{self.version}"

    def may_run(self, now: datetime) -> bool:
        """False when its newest run began longer ago than any session lasts, whatever its status still says."""
        return self.last_run_at is None or now - self.last_run_at < SESSION_MAX


# ── to the cloud ─────────────────────────────────────────────────────────────────────────────────


def offer(at: datetime, left_s: Decimal | None, session_max_s: int, warning: str = "") -> Offer:
    """The one offer: two T4 at $0 for as long as quota and session cap allow (quota unknown: the cap alone)."""
    spec = table.GPUS[GPU]
    scarce = left_s is not None and left_s < FEW_HOURS_S
    return Offer(
        cloud=CLOUD,
        key=KEY,
        gpu=GPU,
        gpu_count=GPU_COUNT,
        memory_gb=Decimal(spec.memory_gb),
        region=REGION,
        spot=False,
        price_usd_h=Decimal(0),
        fetched_at=at,
        gpu_usd_h=Decimal(0),
        stock=None if left_s is None else Stock.LOW if scarce else Stock.HIGH,
        available_for_s=session_max_s if left_s is None else min(int(left_s), session_max_s),
        compute_capability=spec.compute_capability,
        warning=warning,
        ticket={"machine_shape": SHAPE},
    )


def wanted(constraint: GpuConstraint) -> bool:
    """Whether two T4 satisfy the names, the count and the memory per GPU."""
    memory = table.GPUS[GPU].memory_gb
    return (
        (not constraint.names or GPU in constraint.names)
        and constraint.count_min <= GPU_COUNT <= constraint.count_max
        and (constraint.memory_gb_min is None or memory >= constraint.memory_gb_min)
        and (constraint.memory_gb_max is None or memory <= constraint.memory_gb_max)
    )


def timeout_s(grant: Grant, session_max_s: int) -> int:
    """The session timeout of a push in seconds: the hours granted, or the session cap when that is shorter."""
    granted_s = int(grant.hours * 3600)
    if granted_s < TIMEOUT_MIN_S:
        raise InvalidSpec(CLOUD, f"a run of {granted_s} s is too short; grant at least 0.1 hours")
    return min(granted_s, session_max_s)


def push_body(spec: InstanceSpec, owner: str, timeout: int, now: datetime) -> dict[str, Any]:
    """The JSON of `SaveKernel`. Raises `InvalidSpec` for what Kaggle is known to refuse or to change silently."""
    shape = spec.offer.ticket.get("machine_shape")
    if shape is None:
        raise InvalidSpec(CLOUD, f"the offer {spec.offer.id} does not come from kaggle's adapter")
    if spec.offer.spot or spec.bid_usd_h is not None:
        raise InvalidSpec(CLOUD, "kaggle has no interruptible runs; ask for an on-demand offer")
    slug = spec.name.lower()
    if not SLUG.fullmatch(slug) or not SLUG_MIN <= len(spec.name) <= SLUG_MAX:
        # Kaggle would derive another slug from such a title, and the run could not be found by its name.
        raise InvalidSpec(
            CLOUD, f"a kaggle name is {SLUG_MIN} to {SLUG_MAX} of letters, digits and single hyphens, such as run-7f3c"
        )
    if not REF.fullmatch(f"{owner}/{slug}/1"):
        raise InvalidSpec(CLOUD, "kaggle has user names of up to 64 letters, digits, hyphens and underscores")
    if not spec.onstart.strip():
        raise InvalidSpec(CLOUD, "kaggle runs a program and nothing else; give the commands to run")
    return {
        "slug": f"{owner}/{slug}",
        "newTitle": spec.name,
        "text": script(spec, now + timedelta(seconds=timeout) + QUEUE_ALLOWANCE),
        "language": "python",
        "kernelType": "script",
        "kernelExecutionType": "SAVE_AND_RUN_ALL",
        "isPrivate": True,
        "enableGpu": True,
        "enableTpu": False,
        # The documented defaults of these two contradict each other, so both are always sent.
        "enableInternet": True,
        "sessionTimeoutSeconds": timeout,
        "machineShape": shape,
    }


_SCRIPT = """\
import base64, json, os, signal, subprocess, sys, time
DEADLINE = {deadline}
GIVEN = json.loads(base64.b64decode("{given}"))
left = DEADLINE - time.time()
if left <= 0:
    sys.exit("the hours of this run were over before it left the queue")
work = subprocess.Popen(["bash", "-c", GIVEN["run"]], env=dict(os.environ, **GIVEN["env"]), start_new_session=True)
try:
    code = work.wait(timeout=left)
except subprocess.TimeoutExpired:
    os.killpg(work.pid, signal.SIGKILL)
    sys.exit("the hours of this run are over")
sys.exit(code)
"""


def script(spec: InstanceSpec, deadline: datetime) -> str:
    """The program that is pushed: it runs the commands and kills them at `deadline` by the wall clock.

    The deadline bounds a run that waited in the queue, which the session timeout does not: that one counts from the
    start of the session. Commands and environment travel as base64, so that nothing in them can end the string.
    """
    given = json.dumps({"run": spec.onstart, "env": dict(spec.env)}).encode()
    return _SCRIPT.format(deadline=int(deadline.timestamp()), given=base64.b64encode(given).decode())


# ── from the cloud ───────────────────────────────────────────────────────────────────────────────


def split(ref: str) -> tuple[str, str, int]:
    """Owner, slug and version of a run's id; `InvalidSpec` for what is not one."""
    found = REF.fullmatch(ref)
    if found is None:
        raise InvalidSpec(CLOUD, "that is not an id of a kaggle run; one looks like ada/train-7f3c/1")
    return found[1], found[2], int(found[3])


def kernels(body: Any) -> tuple[Kernel, ...]:
    """One page of `ListKernels`. An empty list may be left out of the answer; a row without a ref raises."""
    rows = body.get("kernels", []) if isinstance(body, dict) else None
    if not isinstance(rows, list):
        raise UnexpectedResponse(CLOUD, "kaggle's answer has no list of kernels")
    return tuple(_kernel(row) for row in rows)


def _kernel(row: Any) -> Kernel:
    ref = row.get("ref") if isinstance(row, dict) else None
    owner, slash, slug = ref.removeprefix("/code/").partition("/") if isinstance(ref, str) else ("", "", "")
    if not slash or not owner or not slug or "/" in slug:
        raise UnexpectedResponse(CLOUD, "kaggle listed a kernel without a ref")
    version = row.get("currentVersionNumber")
    numbered = isinstance(version, int) and version >= 1
    gpu = row.get("enableGpu") is not False or bool(row.get("machineShape"))
    title = row.get("title")
    name = title if isinstance(title, str) and title else slug
    return Kernel(owner, slug, version if numbered else 1, instant(row.get("lastRunTime"), UTC), gpu, name)


def status_word(body: Any) -> str:
    """The status of a run without prefix, case and separators. The key may be absent for its default, QUEUED."""
    word = body.get("status", "QUEUED") if isinstance(body, dict) else None
    if isinstance(word, int) and not isinstance(word, bool):
        return "QUEUED" if word == 0 else str(word)
    if not isinstance(word, str):
        raise UnexpectedResponse(CLOUD, "kaggle's answer has no status of the run")
    bare = re.sub(r"[^A-Z]", "", word.upper())
    return bare.removeprefix("KERNELWORKERSTATUS") or "QUEUED"


def observed(ref: str, body: Any, kernel: Kernel | None = None) -> ObservedInstance:
    """One run from its status, with name and time of its kernel where that was listed.

    TERMINATED means that Kaggle's own status is final; an unknown word is PENDING.
    """
    word = status_word(body)
    why = body.get("failureMessage")
    text = f"{word}: {clean(why, ())}" if isinstance(why, str) and why else word
    status = STATUS.get(word, InstanceStatus.PENDING)
    succeeded = word == "COMPLETE" if status is InstanceStatus.TERMINATED else None
    known = (kernel.last_run_at, kernel.name) if kernel else (None, None)
    return replace(_instance(ref, status, text, *known), succeeded=succeeded)


def outlived(kernel: Kernel) -> ObservedInstance:
    """A kernel whose newest run began longer ago than a session can last."""
    return _instance(kernel.ref, InstanceStatus.TERMINATED, "older than any session", kernel.last_run_at, kernel.name)


def fresh(path: str, version: int, name: str) -> ObservedInstance:
    """What a confirmed push made."""
    return _instance(f"{path}/{version}", InstanceStatus.PENDING, "QUEUED", None, name)


def _instance(
    ref: str, status: InstanceStatus, text: str, began_at: datetime | None, name: str | None
) -> ObservedInstance:
    return ObservedInstance(
        cloud=CLOUD,
        ref=ref,
        name=name or ref.split("/")[1],
        status=status,
        status_text=text,
        gpu=GPU,
        gpu_count=GPU_COUNT,
        price_usd_h=Decimal(0),
        storage_usd_h=Decimal(0),
        region=REGION,
        created_at=began_at,
    )


@dataclass(frozen=True, slots=True)
class RunOutput:
    """File names with their addresses, which are secrets for some minutes, and the log, hostile until escaped.

    Both are empty while the run is not over.
    """

    files: tuple[tuple[str, str], ...]
    log: str


def page(body: dict[str, Any]) -> tuple[RunOutput, str]:
    """One page of `ListKernelSessionOutput`, and the token of the next one ("" on the last)."""
    rows, token = body.get("files", []), body.get("nextPageToken") or ""
    if not isinstance(rows, list) or not isinstance(token, str):
        raise UnexpectedResponse(CLOUD, "kaggle's answer has no list of output files")
    return RunOutput(tuple(map(_file, rows)), _text(body.get("log") or "")), token


def _file(row: Any) -> tuple[str, str]:
    name, url = (row.get("fileName"), row.get("url")) if isinstance(row, dict) else (None, None)
    if not isinstance(name, str) or not isinstance(url, str):
        raise UnexpectedResponse(CLOUD, "kaggle listed an output file without a name or an address")
    return name, url


def _text(log: Any) -> str:
    """The log is JSON text of events; what is not is passed on as it came."""
    if not isinstance(log, str):
        return ""
    try:
        events = json.loads(log)
    except ValueError:
        return log
    if not isinstance(events, list):
        return log
    return "".join(str(event.get("data", "")) for event in events if isinstance(event, dict))
