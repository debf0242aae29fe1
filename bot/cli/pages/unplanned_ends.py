"""Generate docs/unplanned-ends.md: what happens to a machine that would end although nobody asked for it."""

from __future__ import annotations

from decimal import Decimal

from bot.cli.pages.markdown import code, table, whole_page
from bot.rules.instances.unplanned_end import LEAST_USD, SHARE, Plight, UnplannedEnd, decide
from bot.rules.values.phrases import usd
from ledger.kernel.steps.grace import AtRisk, Cause, GraceChoice, GraceOutcome

_CHEAP, _DEAR = Decimal(0), Decimal(2)


def _plight(
    cause: Cause, at_risk: AtRisk, waiting_usd: Decimal, *, job: bool = False, choice: GraceChoice | None = None
) -> Plight:
    """Make a plight that waits for an hour, at a limit of one dollar, whose approval covers a replacement."""
    return Plight(cause, at_risk, waiting_usd, Decimal(1), Decimal(1), restarts=job, can_replace=True, choice=choice)


def _cell(cause: Cause, at_risk: AtRisk) -> str:
    """Say what happens while waiting is cheap: the same for every machine, or by whether a job can start again."""
    plain, with_job = (decide(_plight(cause, at_risk, _CHEAP, job=job)) for job in (False, True))
    return plain.label if plain is with_job else f"{with_job.label} (a job), {plain.label} (no job)"


def _choices() -> list[tuple[str, str, str]]:
    rows = []
    for choice, button in (
        (GraceChoice.WAIT, "Wait"),
        (GraceChoice.REPLACE, "Replace, keep the disk"),
        (GraceChoice.GIVE_UP, "Give up"),
    ):
        ending = decide(_plight(Cause.HOST, AtRisk.DISK, _CHEAP, job=True, choice=choice))
        rows.append((f"*{button}*", code(choice), ending.label))
    return rows


def page() -> str:
    """Write the page."""
    dear = {decide(_plight(cause, risk, _DEAR, job=job)) for cause in Cause for risk in AtRisk for job in (True, False)}
    if dear != {UnplannedEnd.END}:
        raise ValueError("a machine whose waiting costs too much is not ended")
    return whole_page(
        "Unplanned ends",
        "One rule decides about each of them: what waiting costs, what would be lost, and whose cause it is. This page "
        "is made by calling it.",
        "## While waiting is cheap",
        f"Waiting is cheap while its cost until the approved end is at most `grace_usd`. Without that setting it is "
        f"{int(SHARE * 100)}% of the approved total and at least {usd(LEAST_USD)}, and never more than the approval "
        "still covers. Each cloud bills a machine in its own way meanwhile: nothing, its disk, or the full rate.",
        table(
            ("whose cause", *(f"lost: {risk.label}" for risk in AtRisk)),
            [(cause.label, *(_cell(cause, risk) for risk in AtRisk)) for cause in Cause],
        ),
        "A replacement needs the approval's remaining amount and one of its replacements. Without them, the machine is "
        "kept and people are asked. It is launched after `broken_grace_s`, or at once when somebody chooses it. Of "
        "machines that share a queue nothing is lost: the others run its commands.",
        "## When waiting costs more",
        f"Every machine is handled alike: {UnplannedEnd.END.label}, after `broken_grace_s` and a notification, as "
        "without grace. The approved end stays the latest end in any case.",
        "## What people choose",
        "The owner, a fallback contact or an approver chooses, by a button, `gpu-shopper grace` or "
        "`POST /sessions/{session}/grace`.",
        table(("button", "choice", "what happens to the machine"), _choices()),
        "## How a grace ends",
        table(("outcome", "meaning"), [(code(outcome), outcome.label) for outcome in GraceOutcome]),
        "## States",
        "A machine in grace stays *live* in the ledger, and lists say what is wrong with it. A session may have one "
        "beside its replacement: the replacement stands for the session, and each has a grant of its own. If the first "
        "machine works again, it is stopped, so that only one of them works and both disks stay. If the replacement "
        "fails, the session returns to the first machine.",
        "## Unresponsive and idle machines",
        "An unresponsive agent alone ends nothing while the SSH port answers. A job that GPU Shopper started is work "
        "until it exits, unless its request says `idle=30m`. A machine that starts up, copies files, waits or saves "
        "is not idle.",
    )
