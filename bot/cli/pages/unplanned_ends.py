"""Generate docs/unplanned-ends.md: what happens to a machine that would end although nobody asked for that."""

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
        "An end is unplanned when no person requested it: a host is offline, a spot machine is outbid, or credit is "
        "used up. One rule says what happens then. It weighs what waiting costs, what would be lost, and the cause. "
        "The tables on this page are made by calling that rule.",
        "## While waiting is cheap",
        f"Waiting is cheap while its cost until the approved end is at most `grace_usd`. Without that setting, the "
        f"limit is {int(SHARE * 100)}% of the approved total, and at least {usd(LEAST_USD)}. The limit is never more "
        "than the approval still covers. Meanwhile a cloud bills nothing, the disk, or the full rate.",
        table(
            ("cause", *(f"would be lost: {risk.label}" for risk in AtRisk)),
            [(cause.label, *(_cell(cause, risk) for risk in AtRisk)) for cause in Cause],
        ),
        "A replacement is launched only while the approval has an amount and a replacement left. Otherwise the machine "
        "is kept, and people are asked. The replacement is launched after `broken_grace_s`, or at once when somebody "
        "chooses it. When machines share a queue and one fails, nothing is lost: the others run its commands.",
        "## When waiting costs more",
        "Whatever the cause is, GPU Shopper notifies people and ends the machine after `broken_grace_s`. In any case a "
        "machine ends at its approved end at the latest.",
        "## What people choose",
        "The owner, a fallback contact or an approver chooses: by a button, `gpu-shopper grace` or "
        "`POST /sessions/{session}/grace`.",
        table(("button", "choice", "what happens to the machine"), _choices()),
        "## How a grace ends",
        table(("outcome", "meaning"), [(code(outcome), outcome.label) for outcome in GraceOutcome]),
        "## States",
        "A machine in grace stays *live* in the ledger, and lists say what is wrong with it. A session may have "
        "a machine in grace and its replacement at once. Then the session shows the replacement, and each machine has "
        "its own grant. If the first machine works again, GPU Shopper stops it. So only one of the two works, and both "
        "disks stay. If the replacement fails, the session returns to the first machine.",
        "## Unresponsive and idle machines",
        "While its SSH port answers, a machine doesn't end because its agent is unresponsive. A job that GPU Shopper "
        "started is work until it exits, unless its request says `idle=30m`. A machine that starts up, copies files, "
        "waits or saves is not idle.",
    )
