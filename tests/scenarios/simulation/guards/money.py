"""Guards of amounts: what is booked, what an approval covers while it runs, and that no record is lost or changed."""

from __future__ import annotations

from tests.scenarios.simulation.guards.guard import Edit, Guard, Law

RECONCILE, TRUE_UP = "bot.services.instances.reconcile", "bot.services.billing.true_up"
TRANSITIONS, FAILOVER = "bot.services.instances.transitions", "bot.services.instances.failover"
BOOTS, POWER = "tests/scenarios/faults/test_boots.py", "tests/services/instances/test_power.py"
METERING, ENDS = "tests/services/billing/test_metering.py", "tests/scenarios/faults/test_ends.py"
UNDATED, UNSETTLED = "tests/services/instances/test_undated_ends.py", "tests/services/billing/test_unsettled.py"
TRIGGERS, TRIGGERED = "migrations.baseline.triggers", "tests/ledger/engine/test_triggers.py"
TRANSFERS, TRANSFER = "tests/services/sessions/test_transfer.py", "bot.services.sessions.transfer"
AUTHORITY = "tests/services/approvals/test_authority.py"
AUDITED = "tests/services/audit/test_authority_invariants.py"
HOLDS = "tests/services/checkpoints/test_verification.py"

_BOOKED = (
    Guard(
        "a listing takes back a call without a reply",
        Law.BOOKED,
        (
            Edit(
                RECONCILE,
                "(row.terminate_called_at if item.status is InstanceStatus.RUNNING else None)",
                "None",
            ),
        ),
        test=f"{UNDATED}::test_a_call_without_a_reply_is_no_evidence_once_its_cloud_shows_that_the_instance_runs",
    ),
    Guard(
        "what is booked behind the end is given back",
        Law.BOOKED,
        (
            Edit(
                "bot.services.billing.last_use",
                "*(_given_back(row, one) for one in surplus(booked, spans).values())",
                "",
            ),
        ),
        test=f"{UNSETTLED}::test_the_likely_end_is_booked_and_the_latest_one_is_held",
    ),
    Guard(
        "budgets hold the latest end",
        Law.DECISION,
        (
            Edit(
                "bot.services.budgets.enforcement",
                "reserved_usd, spent_usd = open_usd + unsettled[since], await",
                "reserved_usd, spent_usd = open_usd, await",
            ),
        ),
        test=f"{UNSETTLED}::test_the_likely_end_is_booked_and_the_latest_one_is_held",
    ),
    Guard(
        "one entry for one hour",
        Law.BOOKED,
        (
            Edit(
                "ledger.core.writes",
                '{"id": new_id("led", entry.at), **{name: getattr(entry, name) for name in _ENTRY}}',
                '{"id": (i := new_id("led", entry.at)), **{name: getattr(entry, name) for name in _ENTRY}, "key": i}',
            ),
        ),
        test=f"{METERING}::test_booking_again_changes_nothing",
    ),
    Guard(
        "a stop is booked at the stop",
        Law.BOOKED,
        (Edit(RECONCILE, '    if changes.get("billing_until") is not None:', "    if False:"),),
        test="tests/services/billing/test_stops.py::test_what_ran_before_a_stop_is_booked_at_the_stop",
    ),
    Guard(
        "the accepted termination ends the bill",
        Law.BOOKED,
        (
            Edit(
                "bot.services.billing.metering",
                "return min(row.terminate_acked_at or now, _listed_until(row, now))",
                "return now",
            ),
        ),
        test=f"{ENDS}::test_an_end_whose_proof_takes_hours_is_not_booked_on",
    ),
    Guard(
        "the reply to a termination counts without its claim",
        Law.BOOKED,
        (
            Edit(
                "bot.services.instances.termination",
                "            await _acknowledged(ctx, tx",
                "            if fresh.claim_token == held.token:\n                await _acknowledged(ctx, tx",
            ),
        ),
        test="tests/scenarios/faults/test_late_answers.py"
        "::test_a_reply_to_a_termination_counts_although_its_claim_is_lost",
    ),
    Guard(
        "the call of a termination is noted before it",
        Law.BOOKED,
        (Edit("bot.services.instances.termination", "            if notes_call:", "            if False:"),),
        test="tests/services/instances/test_lost.py::test_an_end_whose_reply_is_lost_is_booked_until_its_call",
    ),
    Guard(
        "a bill corrects only what the approved rate explains",
        Law.BOOKED,
        (
            Edit(
                TRUE_UP, "        if (one.differences or one.settles) and not one.above:", "        if one.differences:"
            ),
            Edit(TRUE_UP, "    return 0 if fresh.above else await", "    return await"),
        ),
        test="tests/services/billing/test_bills_by_day.py::test_more_than_the_approved_rate_is_booked_only_by_a_person",
    ),
    Guard(
        "what returns is booked from its earlier end on",
        Law.BOOKED,
        (
            Edit(
                "bot.services.instances.orphans",
                "        billing_from=find.booked_until or _made_at",
                "        billing_from=_made_at",
            ),
        ),
        test="tests/scenarios/faults/test_sweeps.py"
        "::test_an_instance_that_was_taken_for_gone_and_shows_up_again_is_not_booked_twice",
    ),
    Guard(
        "no hours are booked by a wrong clock",
        Law.CLOCK,
        (Edit(TRUE_UP, "    if clock_problem(ctx.clock):", "    if False:"),),
        test="tests/services/runtime/test_clock_guard.py::test_no_disk_is_booked_and_no_bill_is_read_in_doubt",
    ),
    Guard(
        "no transfer is accepted by a wrong clock",
        Law.CLOCK,
        (
            Edit(
                "bot.services.sessions.transfer",
                "    if doubt := clock_problem(ctx.clock):",
                "    if doubt := clock_problem(ctx.clock)[:0]:",
            ),
        ),
        test=f"{TRANSFERS}::test_a_clock_in_doubt_books_nothing_for_a_change_of_owner",
    ),
    Guard(
        "no change of owner is booked by a wrong clock",
        Law.CLOCK,
        (
            Edit(
                "bot.services.billing.within_hours",
                '    require_trusted(ctx.clock, "The change of owner")',
                "    require_trusted",
            ),
        ),
        test=f"{TRANSFERS}::test_a_change_of_owner_is_not_booked_while_the_clock_is_in_doubt",
    ),
)

_AMOUNTS = (
    Guard(
        "the rate is checked at the create",
        Law.DECISION,
        (
            Edit(
                "bot.rules.pricing.spend_limits",
                "    if billed_usd_h >= price_cap_usd_h + money.MICRO_USD:",
                "    if False:",
            ),
            Edit(TRANSITIONS, "    if step is PriceStep.END:\n", "    if False:\n"),
        ),
        test=f"{BOOTS}::test_a_rate_above_the_cap_ends_the_instance_and_is_asked_again",
    ),
    Guard(
        "no running instance ends by its price",
        Law.PRICE,
        (
            Edit(
                TRANSITIONS,
                "    was_ready = row.reachable_at is not None or before is not None",
                "    was_ready = False",
            ),
        ),
        test="tests/services/sessions/test_host_price.py"
        "::test_a_running_machine_is_not_ended_by_its_price_but_asked_about_and_ends_earlier",
    ),
    Guard(
        "the approved amount ends a session",
        Law.DECISION,
        (
            Edit(
                TRANSITIONS,
                "    return min(end, since + timedelta(seconds=paid_s(",
                "    return max(end, since + timedelta(seconds=0 * paid_s(",
            ),
        ),
        test="tests/services/sessions/test_expiration.py"
        "::test_a_limit_below_the_cost_of_the_hours_ends_the_session_when_it_is_used_up",
    ),
    Guard(
        "a checkpoint hold is reserved at the approval",
        Law.DECISION,
        (
            Edit(
                TRANSITIONS,
                "    kept_usd = set_aside_usd(Reserved",
                "    kept_usd = 0 * set_aside_usd(Reserved",
            ),
        ),
        test="tests/services/sessions/test_host_price.py"
        "::test_the_earlier_end_leaves_a_checkpoint_hold_its_time_at_the_new_rate",
    ),
    Guard(
        "a checkpoint hold ends with what was approved for it",
        Law.DECISION,
        (
            Edit(
                "bot.services.checkpoints.hold",
                "    return grant.total_cap_usd + money.share(await extension_cap(tx, row.session_id), nodes) - used",
                "    return grant.total_cap_usd + money.share(await extension_cap(tx, row.session_id), nodes)",
            ),
            Edit(
                "bot.services.checkpoints.hold",
                "    return min(ordered_at + most, rules.hold_ends_at(",
                "    return max(ordered_at + most, rules.hold_ends_at(",
            ),
        ),
        test=f"{HOLDS}::test_a_hold_is_reserved_when_it_is_approved_and_its_end_is_asked_about_and_comes_by_its_cap",
    ),
    Guard(
        "a replacement takes what remains of its approval",
        Law.DECISION,
        (Edit(FAILOVER, "longer_usd - (await booked(tx, last)).usd", "longer_usd"),),
        test=f"{METERING}::test_what_a_replacement_costs_comes_on_top_of_its_predecessor_at_its_own_rate",
    ),
    Guard(
        "a replacement keeps the approved end",
        Law.DECISION,
        (
            Edit(
                TRANSITIONS,
                "    kept = session.deadline if grant.kind == GrantKind.REPLACE or session.nodes > 1 else None",
                "    kept = session.deadline if session.nodes > 1 else None",
            ),
        ),
        test="tests/services/sessions/test_extension.py"
        "::test_what_replaces_a_machine_of_an_extended_session_holds_the_hours_of_its_own_approval",
    ),
    Guard(
        "the requester's limit is for all attempts",
        Law.DECISION,
        (
            Edit(
                "bot.rules.pricing.spend_limits",
                "    left = [limit - spent_usd for limit in (asked_usd, approver_usd) if limit is not None]",
                "    left = [limit for limit in (asked_usd, approver_usd) if limit is not None]",
            ),
        ),
        test="tests/services/grants/test_limits.py::test_the_requesters_most_is_for_all_attempts_together",
    ),
    Guard(
        "the parts of a run reach its tier together",
        Law.DECISION,
        (
            Edit(
                "bot.services.grants.approvers",
                "        max((worst_usd for worst_usd, _ in offers), default=Decimal(0)) + earlier.worst_usd,",
                "        max((worst_usd for worst_usd, _ in offers), default=Decimal(0)),",
            ),
        ),
        test=f"{AUTHORITY}::test_extensions_reach_the_tier_of_the_whole",
    ),
    Guard(
        "the hours of a run count together",
        Law.DECISION,
        (
            Edit(
                "bot.services.grants.authority",
                "    return Authority(usd, usd, hours)",
                "    return Authority(usd, usd, hours * 0)",
            ),
            Edit(
                "bot.services.grants.authority",
                "        session.hours,\n    )\n    return approved",
                "        Decimal(0),\n    )\n    return approved",
            ),
        ),
        test=f"{AUTHORITY}::test_again_from_its_checkpoint_counts_on_in_dollars_and_hours",
    ),
    Guard(
        "an approval stores the limits of its policy",
        Law.DECISION,
        (
            Edit(
                "bot.services.approvals.decisions",
                "        policy_limits=policy_limits(policy) if cover else None,",
                "        policy_limits=None,",
            ),
        ),
        test=f"{AUDITED}::test_a_part_without_the_approvals_of_the_tier_of_the_whole_is_found",
    ),
    Guard(
        "a new owner needs the approvals of the whole session",
        Law.DECISION,
        (
            Edit(
                TRANSFER,
                "    in_all = await authority.in_all(tx, view.request, now)",
                "    in_all = authority.EarlierAuthority(authority.Authority(*remaining(ctx, view, now)))",
            ),
        ),
        test=f"{TRANSFERS}::test_the_new_owner_needs_the_approvals_of_all_that_the_session_may_cost",
    ),
    Guard(
        "a new owner needs the approvals of the whole run",
        Law.DECISION,
        (
            Edit(
                TRANSFER,
                "    in_all = await authority.in_all(tx, view.request, now)",
                "    in_all = replace(await authority.in_all(tx, view.request, now), others=authority.NOTHING)",
            ),
        ),
        test=f"{TRANSFERS}::test_what_the_run_used_in_an_earlier_session_counts_for_the_new_owner",
    ),
    Guard(
        "a notification that became newer while it was sent is sent again",
        Law.RECORD,
        (
            Edit(
                "ledger.core.outbox", "        .where(*mine, Notification.version == version)", "        .where(*mine)"
            ),
        ),
        test="tests/services/outbox/test_dispatch.py::test_a_version_that_is_announced_during_the_sending_is_sent_too",
    ),
)

_IN_THE_DATABASE = (
    Guard(
        "what was recorded stays as it is",
        Law.RECORD,
        (
            Edit(
                TRIGGERS,
                "        for table in APPEND_ONLY\n        for change",
                "        for table in ()\n        for change",
            ),
        ),
        test=f"{TRIGGERED}::test_no_update",
    ),
    Guard(
        "no instance without a grant",
        Law.DECISION,
        (Edit(TRIGGERS, '        f"EXISTS (SELECT {HAS_GRANT})",\n', '        "1 = 1",\n'),),
        test=f"{TRIGGERED}::test_no_instance_without_a_grant",
    ),
    Guard(
        "no grant without enough approvals",
        Law.DECISION,
        (Edit(TRIGGERS, "        HAS_APPROVALS,\n", '        "1 = 1",\n'),),
        test=f"{TRIGGERED}::test_a_grant_needs_as_many_approvers_as_the_request_asks_for",
    ),
)

MONEY = (*_BOOKED, *_AMOUNTS, *_IN_THE_DATABASE)
