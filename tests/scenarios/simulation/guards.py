"""The guards of the laws, each with the edit that removes it: the simulation must notice when one is missing.

An edit is a piece of the product's own text and what stands there instead. `mutated.py` plays seeds with the edit made,
in a process of its own, so that the product has no switch for it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Edit:
    """In `module`, `before` (which occurs once) becomes `after`."""

    module: str
    before: str
    after: str

    def made_in(self, text: str) -> str:
        """Return the module's text with this edit. ValueError unless `before` occurs in it once."""
        if text.count(self.before) != 1:
            raise ValueError(f"{self.module} has {text.count(self.before)} times: {self.before!r}")
        return text.replace(self.before, self.after)


@dataclass(frozen=True, slots=True)
class Guard:
    """One guard. `seed` is a seed that notices its absence; None while none was found among those that were played."""

    name: str
    law: str
    edits: tuple[Edit, ...]
    seed: int | None = None


LAUNCH, RECONCILE = "bot.services.instances.launch", "bot.services.instances.reconcile"
ORPHANS, MOVES, CLAIMS = "bot.services.instances.orphans", "ledger.core.moves", "ledger.core.claims"
ONE_CREATE, GONE, DECISION = "one row, one create", "gone means proved", "no spend without a decision"
CLOCK, ANNOUNCED, BOOKED = "a wrong clock spends nothing", "nothing ends unannounced", "the ledger is the bill"

_SENDS_AGAIN = Edit(LAUNCH, "if work.instance.state is InstanceState.SENDING:", "if False:")
_SENDING_TWICE = Edit(
    "ledger.kernel.states",
    "_I.SENDING: frozenset({_I.LIVE, _I.REJECTED, _I.UNKNOWN}),",
    "_I.SENDING: frozenset({_I.SENDING, _I.LIVE, _I.REJECTED, _I.UNKNOWN}),",
)

GUARDS = (
    Guard("one send: compare and swap to SENDING", ONE_CREATE, (_SENDS_AGAIN, _SENDING_TWICE), seed=5),
    Guard(
        "monotonic check before the send",
        ONE_CREATE,
        (Edit(LAUNCH, "if ctx.clock.monotonic() - committed_s >= SEND_WITHIN_S:", "if False:"),),
    ),
    Guard(
        "no second send after an unknown outcome",
        ONE_CREATE,
        (
            Edit(
                LAUNCH,
                "if error.definite_no and not isinstance(error, OutcomeUnknown):",
                "if True:",
            ),
        ),
        seed=2,
    ),
    Guard(
        "quarantine of an unknown outcome",
        ONE_CREATE,
        (
            Edit(
                "bot.services.instances.unknown_outcome",
                "return now - (instance.sent_at or instance.created_at) >= patience",
                "return True",
            ),
        ),
        seed=3,
    ),
    Guard(
        "three absences over a minute",
        GONE,
        (
            Edit("ledger.kernel.proof", "len(counted) < rule.count:", "not counted:"),
            Edit("ledger.kernel.proof", "if counted[-1] - counted[0] < rule.over:", "if False:"),
        ),
    ),
    Guard(
        "absences count from the order on",
        GONE,
        (
            Edit(RECONCILE, "if ordered_at is not None and absence.at < ordered_at:", "if False:"),
            Edit(
                RECONCILE,
                "counted = [one for one in absences if ordered_at is None or one.at >= ordered_at]",
                "counted = absences",
            ),
        ),
    ),
    Guard(
        "second look before a loss",
        GONE,
        (
            Edit(
                RECONCILE,
                "if proof is not None and (row.state in RUNNING_STATES or row.checkpoint_step in WAITS):",
                "if False:",
            ),
        ),
    ),
    Guard(
        "visibility lag of a new instance",
        GONE,
        (Edit(RECONCILE, "return listing.at - (row.live_at or row.created_at) > lag", "return True"),),
    ),
    Guard(
        "termination repeats until the proof",
        GONE,
        (
            Edit(
                "bot.services.instances.termination",
                "await release(tx, Instance, held, due_at=now + timedelta(seconds=pause_s), **back)",
                "await release(tx, Instance, held, due_at=None, **back)",
            ),
        ),
    ),
    Guard(
        "orphans are looked for in each listing",
        GONE,
        (Edit(ORPHANS, "        if not finds and not any_open:\n", "        if True:\n"),),
    ),
    Guard(
        "price cap at the send",
        DECISION,
        (Edit("bot.rules.pricing.spend_limits", "    if fresh_usd_h > price_cap_usd_h:", "    if False:"),),
    ),
    Guard(
        "an approval ends",
        DECISION,
        (Edit(LAUNCH, "if grant.state is not GrantState.OPEN or now >= grant.until:", "if False:"),),
    ),
    Guard(
        "no launch for a session that ends",
        DECISION,
        (
            Edit(
                LAUNCH,
                "        raise StaleMove(session.id, str(session.state), str(SessionState.PROVISIONING))",
                "        pass",
            ),
        ),
    ),
    Guard(
        "only approvers approve",
        DECISION,
        (
            Edit(
                "bot.rules.approvals.decision",
                "    return _in_place_of(policy, request, decider)",
                "    return None",
            ),
        ),
    ),
    Guard(
        "nobody approves their own request",
        DECISION,
        (
            Edit(
                "bot.rules.approvals.decision",
                "if decision is not Decision.CANCEL and own and not policy.allow_self_approval:",
                "if False:",
            ),
            Edit(
                "bot.rules.approvals.decision",
                "    return _in_place_of(policy, request, decider)",
                "    return None",
            ),
        ),
    ),
    Guard(
        "claim token",
        ONE_CREATE,
        (
            Edit(
                MOVES, "where.append(model.claim_token == claim)  # type: ignore[attr-defined] # Checked above.", "pass"
            ),
            Edit(
                CLAIMS,
                ".where(_key(model) == held.row_id, model.claim_token == held.token)",
                ".where(_key(model) == held.row_id)",
            ),
        ),
    ),
    Guard(
        "claims run out",
        GONE,
        (
            Edit(
                CLAIMS,
                "    free = or_(model.claim_until.is_(None), model.claim_until <= now)\n    return (model.state",
                "    free = model.claim_until.is_(None)\n    return (model.state",
            ),
        ),
    ),
    Guard(
        "clock guard",
        CLOCK,
        (
            Edit(
                "bot.services.runtime.clock_guard",
                "        if abs(wall - measured) > TOLERANCE:",
                "        if False:",
            ),
        ),
    ),
    Guard(
        "one entry for one hour",
        BOOKED,
        (
            Edit(
                "ledger.core.writes",
                '{"id": new_id("led", entry.at), **{name: getattr(entry, name) for name in _ENTRY}}',
                '{"id": (i := new_id("led", entry.at)), **{name: getattr(entry, name) for name in _ENTRY}, "key": i}',
            ),
        ),
    ),
    Guard(
        "a stop is booked at the stop",
        BOOKED,
        (Edit(RECONCILE, '    if changes.get("billing_until") is not None:', "    if False:"),),
    ),
    Guard(
        "the accepted termination ends the bill",
        BOOKED,
        (
            Edit(
                "bot.services.billing.metering",
                "return min(row.terminate_acked_at or now, _listed_until(row, now))",
                "return now",
            ),
        ),
    ),
    Guard(
        "a later listing wins",
        GONE,
        (Edit(RECONCILE, "if row.unbilled_at is not None and at < row.unbilled_at:", "if False:"),),
    ),
    Guard(
        "a termination waits for its notification",
        ANNOUNCED,
        (
            Edit(
                "bot.services.outbox.barrier",
                "return wait_ends_at if await unheard(tx, said) else None",
                "return None",
            ),
        ),
    ),
    Guard(
        "a warning before the end",
        ANNOUNCED,
        (
            Edit(
                "bot.services.sessions.expiration",
                "if now >= session.deadline and session.warned_at is not None:",
                "if now >= session.deadline:",
            ),
        ),
    ),
)
