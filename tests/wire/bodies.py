"""The bodies that the golden files hold, as the wire's own objects."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from bot.wire.checkin import (
    Checkin,
    CheckinAnswer,
    Checkpoint,
    GpuReport,
    MachineReport,
    QueueCounts,
    ReportedResult,
    SignedDeadline,
    SignedMessage,
    StartupStep,
    StepOutcome,
    Work,
)
from bot.wire.node_api import NodeApiClaim, NodeIdentity
from bot.wire.queue import PlannedQueue
from bot.wire.startup_plan import PlannedServer, PlannedStep, StartupPlan
from tests.agent.signing import signed

GOLDEN = Path(__file__).parent / "golden"
AT = datetime(2026, 3, 2, 9, 40, tzinfo=UTC)
MACHINE = MachineReport(
    gpus=(GpuReport("NVIDIA GeForce RTX 4090", 24564, 61),),
    driver="570.86",
    cuda="12.8",
    disk_free_gb=80,
    host_key="ssh-ed25519 AAAA",
    startup_step="directories",
    startup_s=3,
    exit_code=1,
    log_tail="mkdir: no space",
    interruption="it shuts down",
    cpu_percent=Decimal("3.4"),
    network_kb_s=12,
    logins=1,
    last_login_at=AT,
    steps=(StartupStep("run", StepOutcome.FAILED, 41, 128),),
)
CHECKIN = Checkin(
    v=2,
    seq=1772442000000,
    utilisation=(Decimal("93.5"), Decimal(0)),
    job=Work.SAVING,
    job_exit_code=137,
    job_attempt=2,
    step=12000,
    target_step=50000,
    tokens_per_s=Decimal("4200.5"),
    idle_since=AT,
    checkpoint=Checkpoint(11500, AT),
    queue=QueueCounts(4, 1, 7, 2),
    results=(
        ReportedResult(index=1, number=3, gpu=0, exit_code=4, attempts=2, started_at=AT, ended_at=AT, log_tail="x"),
    ),
    api=NodeApiClaim("ab" * 32, 8443, "https://203.0.113.7:8443"),
    machine=MACHINE,
    wants_startup=True,
    wants_secrets=True,
    signed_end=SignedMessage('{"n":7}', "c2lnbmVk"),
    nonce="n" * 43,
)
PLAN = StartupPlan(
    "start-ins_1",
    {"DATA_DIR": "/data"},
    (
        PlannedStep("environment", "true", 30),
        PlannedStep(
            "run",
            "python train.py",
            60,
            job=True,
            needs=("repo",),
            secrets=("HF_TOKEN",),
            attempts=3,
            retry_codes=(75,),
            queue=PlannedQueue(((2, "a"), (5, "b")), 2, done=3, failed=1, dealt_of=6),
        ),
        PlannedStep("serve", "exit 77", 1800, serve=PlannedServer(("vllm", "{port}"), "org/tiny")),
    ),
)
_SIGNED = signed(n=1772442000000, left_s=3600)
ANSWER = CheckinAnswer(
    seq=1772442000000,
    ends_at=AT,
    deadline=SignedDeadline(_SIGNED.message, _SIGNED.signature),
    asks=("save", "upload"),
    next_in_s=10,
    token="gpuc_made",
    api=NodeIdentity(8443, "certificate", "key"),
    startup={},
    secrets={"HF_TOKEN": "value"},
    results_taken=2,
    commands=((7, "echo 7"),),
    api_problem="Say the port of the API, or its url.",
)
BODIES = {"checkin": CHECKIN, "startup_plan": PLAN, "answer": ANSWER}
