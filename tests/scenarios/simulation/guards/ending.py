"""Guards of ends: gone means proved, what is ours is never forgotten, and nothing ends unannounced."""

from __future__ import annotations

from tests.scenarios.simulation.guards.guard import Edit, Guard, Law

RECONCILE, ORPHANS = "bot.services.instances.reconcile", "bot.services.instances.orphans"
PROOF = "ledger.kernel.proof"
SWEEPS, ENDS = "tests/scenarios/faults/test_sweeps.py", "tests/scenarios/faults/test_ends.py"
CREATES, RETURNS = "tests/scenarios/faults/test_creates.py", "tests/scenarios/faults/test_returns.py"
LOST = "tests/services/instances/test_lost.py"
VOLUMES = "tests/services/sessions/volumes"

_SECOND_LOOK = Edit(
    RECONCILE,
    "if proof is not None and (row.state in RUNNING_STATES or row.checkpoint_step in WAITS):",
    "if False:",
)

_PROOFS = (
    Guard(
        "three absences over a minute",
        Law.GONE,
        (
            Edit(PROOF, "len(counted) < rule.count:", "not counted:"),
            Edit(PROOF, "if counted[-1] - counted[0] < rule.over:", "if False:"),
        ),
        test="tests/ledger/kernel/test_values.py::test_less_does_not",
    ),
    Guard(
        "a move to gone needs a proof",
        Law.GONE,
        (Edit("ledger.core.moves", "    if to is InstanceState.GONE and proof is None:", "    if False:"),),
        test="tests/ledger/core/test_moves.py::test_gone_needs_a_proof",
    ),
    Guard(
        "absences count from the order on",
        Law.GONE,
        (
            Edit(RECONCILE, "if ordered_at is not None and absence.at < ordered_at:", "if False:"),
            Edit(
                RECONCILE,
                "counted = [one for one in absences if ordered_at is None or one.at >= ordered_at]",
                "counted = absences",
            ),
        ),
        test=f"{LOST}::test_a_listing_that_was_requested_before_the_order_does_not_date_the_end",
    ),
    Guard(
        "a heartbeat outvotes the listings",
        Law.GONE,
        (
            Edit(RECONCILE, "        heartbeat_at = await last_heartbeat_at(ctx, row)", "        heartbeat_at = None"),
            _SECOND_LOOK,
        ),
        test="tests/services/sessions/test_idle_termination.py"
        "::test_6787_a_machine_that_reports_is_not_absent_whatever_the_listing_says",
    ),
    Guard(
        "second look before a loss",
        Law.GONE,
        (_SECOND_LOOK,),
        test="tests/services/instances/test_health.py::test_a_listing_that_lies_for_minutes_costs_nobody_their_instance",
    ),
    Guard(
        "second look before an orphan counts as gone",
        Law.GONE,
        (Edit(ORPHANS, "    if proof is not None and await _is_still_there(ctx, provider, orphan):", "    if False:"),),
        test=f"{RETURNS}::test_a_quarantined_orphan_whose_ssh_port_answers_does_not_count_as_gone",
    ),
    Guard(
        "visibility lag of a new instance",
        Law.GONE,
        (
            Edit(RECONCILE, "return listing.at - (row.live_at or row.created_at) > lag", "return True"),
            _SECOND_LOOK,
        ),
        test=f"{LOST}::test_a_cloud_whose_listings_lag_loses_nothing_meanwhile",
    ),
    Guard(
        "only listings of its own account prove an end",
        Law.GONE,
        (
            Edit(RECONCILE, "    rows = [row for row in every if row.account == provider.account]", "    rows = every"),
            Edit(RECONCILE, " or listing.account != row.account:", ":"),
            Edit(PROOF, "if len({a.account for a in absences}) != 1 or len(counted)", "if len(counted)"),
            _SECOND_LOOK,
        ),
        test="tests/services/instances/test_key_rotation.py"
        "::test_another_account_takes_over_nothing_and_a_stray_seen_under_two_keys_is_one",
    ),
    Guard(
        "a new key is known by what it lists",
        Law.GONE,
        (
            Edit(
                "bot.services.instances.key_rotation",
                "if read.kind is LabelKind.OURS and read.label == row.label}",
                "if read}",
            ),
        ),
        test="tests/services/instances/test_key_rotation.py::test_the_same_id_with_another_label_proves_no_account",
    ),
    Guard(
        "circuit breaker",
        Law.GONE,
        (Edit("bot.rules.instances.circuit_breaker", "    if live < FLEET:", "    if live >= 0:"),),
        test=f"{SWEEPS}::test_half_a_fleet_that_is_missing_at_once_is_not_believed",
    ),
    Guard(
        "a later listing wins",
        Law.GONE,
        (Edit(RECONCILE, "if row.unbilled_at is not None and at < row.unbilled_at:", "if False:"),),
        test="tests/services/instances/test_power.py"
        "::test_a_look_that_answers_late_starts_nothing_and_a_stop_replaces_a_start",
    ),
    Guard(
        "list before read",
        Law.GONE,
        (
            Edit(RECONCILE, "RUNNING_STATES = frozenset({", "EARLY: dict = {}\nRUNNING_STATES = frozenset({"),
            Edit(
                RECONCILE,
                "    try:\n        listing = await provider.list()\n",
                "    async with ctx.db.read() as tx:\n"
                '        found = await tx.scalars(__import__("sqlalchemy").select(Instance))\n'
                "        EARLY[cloud] = {row.label: row for row in found}\n"
                "        every, orphans = await open_instances(tx, cloud, FEW)\n"
                "    try:\n        listing = await provider.list()\n",
            ),
            Edit(
                RECONCILE,
                "    async with ctx.db.read() as tx:\n        every, orphans = await open_instances(tx, cloud, FEW)\n"
                "    rekeyed =",
                "    rekeyed =",
            ),
            Edit(
                ORPHANS,
                "    rows = await instances_by_label(tx, [reading.label for _, reading in ours])",
                '    rows = __import__("sys").modules["bot.services.instances.reconcile"].EARLY[listing.cloud]',
            ),
        ),
        test="tests/services/instances/test_launch.py::test_what_is_launched_during_a_listing_is_no_orphan",
    ),
    Guard(
        "termination repeats until the proof",
        Law.GONE,
        (
            Edit(
                "bot.services.instances.termination",
                "await release(tx, Instance, held, due_at=now + timedelta(seconds=pause_s), **back)",
                "await release(tx, Instance, held, due_at=None, **back)",
            ),
        ),
        test=f"{ENDS}::test_a_refused_destroy_is_ordered_again",
    ),
    Guard(
        "an end during the create ends what it makes",
        Law.ORPHANS,
        (
            Edit(
                "bot.services.instances.transitions",
                "        await end_instance(tx, row, session.end_code, session.end_reason, now, SYSTEM)",
                "        pass",
            ),
        ),
        test=f"{ENDS}::test_an_end_during_the_create_ends_what_it_makes_and_asks_nobody",
    ),
)

_ORPHANS = (
    Guard(
        "orphans are looked for in each listing",
        Law.ORPHANS,
        (Edit(ORPHANS, "        if not finds and not any_open:\n", "        if True:\n"),),
        test=f"{SWEEPS}::test_a_create_that_was_refused_and_made_all_the_same_is_ended",
    ),
    Guard(
        "what lands after its row was closed is an orphan",
        Law.ORPHANS,
        (
            Edit(
                ORPHANS,
                "        return listing.proves_absence or find.row.ref != find.item.ref",
                "        return False",
            ),
        ),
        test=f"{CREATES}::test_a_create_that_lands_after_the_quarantine_is_destroyed_and_booked_as_a_loss",
    ),
    Guard(
        "the second instance of one create is an orphan",
        Law.ORPHANS,
        (
            Edit(
                ORPHANS,
                "    return find.row.ref is not None and find.row.ref != find.item.ref",
                "    return False",
            ),
        ),
        test=f"{CREATES}::test_a_second_instance_of_one_create_is_destroyed_and_the_first_is_kept",
    ),
    Guard(
        "what is not ours is never touched",
        Law.ORPHANS,
        (Edit(ORPHANS, "if r.kind is LabelKind.OURS and i.status", "if i.status"),),
        test=f"{SWEEPS}::test_what_is_not_ours_is_never_touched",
    ),
    Guard(
        "an orphan that the ledger does not know waits for an operator",
        Law.ORPHANS,
        (
            Edit(
                ORPHANS,
                "return not self.condemned_before and wanted",
                "return False",
            ),
        ),
        test=f"{SWEEPS}::test_an_instance_of_ours_without_a_row_is_reported_and_never_ended",
    ),
    Guard(
        "two sightings before an orphan is ended",
        Law.ORPHANS,
        (
            Edit(
                ORPHANS,
                "now - orphan.first_seen_at >= timedelta(seconds=ctx.timing.orphan_apart_s)",
                "now >= orphan.first_seen_at",
            ),
        ),
        test=f"{CREATES}::test_a_second_instance_of_one_create_is_destroyed_and_the_first_is_kept",
    ),
    Guard(
        "a lost instance that returns runs until its approved end",
        Law.ORPHANS,
        (
            Edit(
                ORPHANS,
                "return replace(find, returned=True, wanted=row.id in ends and now < ends[row.id])",
                "return find",
            ),
        ),
        test="tests/services/instances/test_health.py"
        "::test_what_was_lost_and_is_there_again_is_kept_for_an_operator_until_its_approved_end",
    ),
    Guard(
        "in recovery mode only people and approved ends end anything",
        Law.ORPHANS,
        (Edit("bot.rules.instances.recovery_mode", "    if asked_at < began_at:", "    if True:"),),
        test="tests/services/runtime/test_recovery_mode.py"
        "::test_meanwhile_a_look_ends_nothing_and_people_and_approved_ends_do",
    ),
)

_ANNOUNCED = (
    Guard(
        "a termination waits for its notification",
        Law.ANNOUNCED,
        (
            Edit(
                "bot.services.outbox.barrier",
                "return wait_ends_at if await unheard(tx, said) else None",
                "return None",
            ),
        ),
        test="tests/services/outbox/test_barrier.py"
        "::test_an_end_by_somebody_else_waits_for_one_attempt_and_at_most_ten_seconds",
    ),
    Guard(
        "a warning before the end",
        Law.ANNOUNCED,
        (
            Edit(
                "bot.services.sessions.expiration",
                "if now >= session.deadline and session.warned_at is not None and may_end:",
                "if now >= session.deadline:",
            ),
        ),
        test="tests/services/sessions/test_expiration.py::test_an_end_that_nobody_was_told_of_is_announced_before_the_act",
    ),
    Guard(
        "a checkpoint is verified before the termination",
        Law.ANNOUNCED,
        (
            Edit(
                "bot.services.instances.termination",
                "        waits_until = waits_until or await verification.waits_until(ctx, row, now)",
                "        pass",
            ),
        ),
        test="tests/services/checkpoints/test_verification.py"
        "::test_what_is_never_saved_is_stopped_with_its_disk_until_its_owner_ends_it",
    ),
    Guard(
        "a notification that failed is sent again",
        Law.ANNOUNCED,
        (
            Edit(
                "bot.services.outbox.dispatch",
                "            due_at = _next_try(ctx, now, tries, error)",
                "            due_at = None",
            ),
        ),
        test="tests/services/outbox/test_dispatch.py::test_failures_back_off_and_a_hint_is_obeyed",
    ),
    Guard(
        "a wrong clock ends nothing",
        Law.CLOCK,
        (Edit(RECONCILE, "    if doubt := clock_problem(ctx.clock):", '    if doubt := "":'),),
        test="tests/services/runtime/test_clock_guard.py::test_a_listing_ends_and_closes_nothing_in_doubt",
    ),
    Guard(
        "overdue ends without a ledger",
        Law.WITHOUT_LEDGER,
        (
            Edit(
                "bot.services.sessions.end_watchdog",
                "        overdue = [one for one in read.rows if self._due(one, self.ctx.clock.now()) is not None]",
                "        overdue = []",
            ),
        ),
        test="tests/services/sessions/test_end_watchdog.py::test_an_approved_end_comes_while_the_ledger_takes_no_write",
    ),
    Guard(
        "no network call in a transaction",
        Law.NETWORK,
        (Edit("ledger.kernel.network_guard", "    if _IN_TRANSACTION.get():", "    if False:"),),
        test="tests/ledger/engine/test_db.py::test_ports_refuse_to_run_inside_a_transaction",
    ),
)

_VOLUMES = (
    Guard(
        "an hour of own reads before a volume is lost",
        Law.DATA,
        (
            Edit(
                "bot.services.instances.volume_absence",
                "return ctx.timing.absence_rule if is_deleted else ctx.timing.volume_absence_rule",
                "return ctx.timing.absence_rule",
            ),
        ),
        test=f"{VOLUMES}/test_volume_lookup.py::test_one_that_vanishes_closes_its_record_and_is_not_replaced",
    ),
    Guard(
        "a volume is read by its own id",
        Law.DATA,
        (
            Edit(
                "bot.services.instances.volume_absence",
                "    if not isinstance(seen, NotSeen) and seen.status is not InstanceStatus.TERMINATED:",
                "    if False:",
            ),
        ),
        test=f"{VOLUMES}/test_absence.py::test_a_listing_that_stays_short_loses_no_volume",
    ),
    Guard(
        "a volume that returns is not deleted",
        Law.DATA,
        (Edit(ORPHANS, "or self.may_hold_data\n        return not", "\n        return not"),),
        test=f"{VOLUMES}/test_absence.py::test_one_that_returns_after_it_counted_as_gone_is_kept_for_people",
    ),
    Guard(
        "a mounted volume is not deleted",
        Law.DATA,
        (
            Edit(
                "providers.volume_adapter", "        if users := await self.mounted_by(ref):", "        if users := ():"
            ),
        ),
        test=f"{VOLUMES}/test_absence.py::test_one_that_a_machine_of_somebody_mounts_is_not_deleted_and_its_owner_is_told",
    ),
    Guard(
        "its amount alone deletes no volume",
        Law.DATA,
        (Edit("bot.rules.sessions.volume_end", "max(begins + DAY, min(begins + grace, paid + unpaid))", "paid"),),
        test=f"{VOLUMES}/test_growth.py::test_its_amount_alone_never_deletes_it",
    ),
)

ENDING = (*_PROOFS, *_ORPHANS, *_ANNOUNCED, *_VOLUMES)
