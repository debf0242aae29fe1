"""Guards of restores and starts: an older ledger buys nothing twice, and a start that can't serve still ends."""

from __future__ import annotations

from tests.scenarios.simulation.guards.guard import Edit, Guard, Law

LAUNCH, RECOVERY = "bot.services.instances.launch", "bot.services.recovery"
RESTORES, RECORDS = "tests/services/recovery/test_restores.py", "tests/services/recovery/test_records.py"
FAILOVER = "tests/services/recovery/test_database_failover.py"
LOST = "tests/services/recovery/test_lost_records.py"
SIGNED = "tests/services/nodes/test_signed_ends.py"
UNCONFIRMED = "tests/services/recovery/test_unconfirmed_clock.py"
STARTS = "tests/test_startup.py"
ENDS_ONLY = "tests/services/sessions/test_ends_only.py"

_RESTORES = (
    Guard(
        "epoch",
        Law.OLDER,
        (
            Edit(
                "bot.services.runtime.ledger_comparison",
                "    return LedgerComparison(age, journal.events,",
                "    return LedgerComparison(None, journal.events,",
            ),
        ),
        test=f"{RESTORES}::test_what_people_had_ended_since_the_copy_is_not_bought_again",
        seed=5050,
    ),
    Guard(
        "a confirmed clock dates an older ledger",
        Law.OLDER,
        (
            Edit(
                f"{RECOVERY}.detection",
                "    undated, is_new_time = approved_now(ctx.clock) is None, False",
                "    undated, is_new_time = False, False",
            ),
        ),
        test=f"{UNCONFIRMED}::test_what_was_approved_before_is_void_also_when_a_wrong_clock_noticed_the_age",
    ),
    Guard(
        "the epoch before the create",
        Law.OLDER,
        (Edit(LAUNCH, "    elif not committed.is_covered:", "    elif False:"),),
        test=f"{RECORDS}::test_while_the_epoch_can_not_be_written_a_launch_waits_and_an_end_comes",
    ),
    Guard(
        "latest record",
        Law.OLDER,
        (
            Edit(
                f"{RECOVERY}.detection",
                "        await ends_at(tx, session, until, now)",
                "        await ends_at(tx, session, session.deadline, now)",
            ),
            Edit(
                "bot.services.sessions.end_watchdog",
                "        latest = with_latest_ends(rows, records, compared.older_since or now)",
                "        latest = rows",
            ),
        ),
        test=f"{RESTORES}::test_an_extended_machine_lives_until_the_end_that_the_copy_of_ends_has",
    ),
    Guard(
        "an older ledger's own end is no record",
        Law.OLDER,
        (
            Edit(
                "bot.services.sessions.end_watchdog",
                "        records = still_lacking(rows, self.copy.records_beside(is_noted=is_noted))",
                "        records = self.copy.rows",
            ),
        ),
        test=f"{RESTORES}::test_an_end_that_is_shortened_beside_an_older_ledger_stays_short",
    ),
    Guard(
        "a record of an empty ledger",
        Law.OLDER,
        (
            Edit(
                f"{RECOVERY}.detection",
                "(empty_at is not None and first >= empty_at)",
                "empty_at is not None",
            ),
        ),
        test=f"{LOST}::test_records_of_an_empty_ledger_do_not_prove_one_that_was_used_before",
    ),
    Guard(
        "an agent keeps its latest end",
        Law.OLDER,
        (
            Edit(
                "bot.services.nodes.signed_ends",
                "    if is_older and (signed is None",
                "    if False and (signed is None",
            ),
        ),
        test=f"{SIGNED}::test_beside_an_older_ledger_an_agent_keeps_the_latest_end_that_it_has",
    ),
    Guard(
        "approvals from before a restore buy nothing",
        Law.OLDER,
        (
            Edit(
                f"{RECOVERY}.acceptance",
                "    launches = await launches_approved_before(tx, noticed_at)",
                "    launches = []",
            ),
        ),
        test=f"{RESTORES}::test_what_people_had_ended_since_the_copy_is_not_bought_again",
    ),
    Guard(
        "pages before an end that no record dates",
        Law.OLDER,
        (
            Edit(
                f"{RECOVERY}.detection",
                "        return None\n    return LedgerAge(AgeEvidence.NO_RECORD)",
                "        return None\n    return None",
            ),
        ),
        test=f"{RESTORES}::test_without_any_record_operators_are_paged_twice_before_anything_ends",
    ),
    Guard(
        "an acceptance stays",
        Law.OLDER,
        (
            Edit(
                f"{RECOVERY}.detection",
                "    return last is not None and (compared.accepted",
                "    return last is None and (compared.accepted",
            ),
        ),
        test="tests/services/recovery/test_acceptance.py"
        "::test_a_comparison_from_before_the_acceptance_begins_nothing_again",
    ),
    Guard(
        "an acceptance names its records",
        Law.OLDER,
        (Edit("bot.rules.instances.ledger_age", "min(self.at, last + SAME_TIME)", "self.at"),),
        test="tests/services/recovery/test_acceptance.py::test_an_acceptance_by_a_clock_ahead_hides_no_later_restore",
    ),
    Guard(
        "the commit to send compares the ledger",
        Law.OLDER,
        (
            Edit(
                "bot.services.instances.launch_spec",
                "(await compare(tx, ctx.epoch.entries())).stops_launches:",
                "(await compare(tx, ())).stops_launches:",
            ),
        ),
        test=f"{FAILOVER}::test_a_commit_to_send_compares_the_ledger_with_its_epoch",
    ),
    Guard(
        "label before a row that this process has sent",
        Law.OLDER,
        (Edit("bot.services.instances.unknown_outcome", "    if row.id in ctx.sent_at_s:", "    if False:"),),
        test=f"{FAILOVER}::test_what_this_process_has_just_sent_is_never_sent_again",
    ),
    Guard(
        "a used ledger without a record",
        Law.OLDER,
        (
            Edit(
                "ledger.queries.recovery.older",
                "    return await tx.scalar(select(func.min(Request.created_at)))",
                "    return await tx.scalar(select(func.min(Instance.sent_at)))",
            ),
        ),
        test=f"{LOST}::test_a_request_that_is_open_in_the_copy_is_not_approved_by_the_policy",
    ),
)

_OF_STARTS = (
    Guard(
        "a start on another schema waits",
        Law.WITHOUT_LEDGER,
        (Edit("bot.startup", "        if isinstance(error, schema.SchemaError):", "        if False:"),),
        test=f"{STARTS}::test_a_start_that_cannot_serve_says_why",
    ),
    Guard(
        "a ledger of another schema is not touched",
        Law.WITHOUT_LEDGER,
        (
            Edit(
                "bot.services.sessions.end_watchdog",
                "        if self.refused:\n            return Read(self.copy.rows, from_copy=True)\n",
                "",
            ),
        ),
        test=f"{ENDS_ONLY}::test_a_ledger_that_this_program_cannot_work_on_is_neither_read_nor_written",
    ),
    Guard(
        "a newer schema says who can work on it",
        Law.RECORD,
        (Edit("migrations.run", "bool(at.readable_from) and at.readable_from <= newest()", "newest()"),),
        test="tests/ledger/engine/test_migrations.py::test_a_ledger_says_which_older_programs_can_work_on_it",
    ),
    Guard(
        "no new label key in the place of a lost one",
        Law.WITHOUT_LEDGER,
        (Edit("bot.label_key", "    if (settings.identity_dir / NAME).exists() or", "    if"),),
        test=f"{STARTS}::test_a_start_that_cannot_serve_says_why",
    ),
    Guard(
        "no new label key beside a ledger with instances",
        Law.WITHOUT_LEDGER,
        (Edit("bot.label_key", ".exists() or await _has_lived(settings):", ".exists():"),),
        test=f"{STARTS}::test_a_new_data_folder_beside_a_ledger_with_instances_makes_no_second_key",
    ),
    Guard(
        "pages before an end from a copy of unknown age",
        Law.WITHOUT_LEDGER,
        (
            Edit(
                "bot.services.sessions.copy_use",
                "        return mark.at > copy.read_at - MARKED or (not mark.has_stopped and mark.at >= now - ALIVE)",
                "        return False",
            ),
        ),
        test=f"{ENDS_ONLY}"
        "::test_after_a_replica_that_worked_and_stopped_the_copy_waits_for_two_pages_or_for_the_others",
    ),
    Guard(
        "who made the copy is not another replica",
        Law.WITHOUT_LEDGER,
        (
            Edit(
                "bot.services.sessions.copy_use",
                "            return mark.at > copy.read_at + MAKER",
                "            return True",
            ),
        ),
        test=f"{ENDS_ONLY}::test_the_process_that_made_the_copy_is_not_another_one_also_hours_later",
    ),
    Guard(
        "no doubt by an unconfirmed clock",
        Law.CLOCK,
        (
            Edit(
                "bot.services.sessions.copy_use",
                "        now = approved_now(ctx.clock)",
                "        now = ctx.clock.now()",
            ),
        ),
        test=f"{ENDS_ONLY}::test_a_clock_that_no_cloud_has_confirmed_raises_no_doubt_about_the_copy",
    ),
    Guard(
        "a disk that hangs delays no end",
        Law.WITHOUT_LEDGER,
        (Edit("bot.services.runtime.epoch", "within(WRITE_S, self.save)", "within(3600, self.save)"),),
        test=f"{ENDS_ONLY}::test_a_disk_that_hangs_delays_no_end",
    ),
    Guard(
        "a disk that can be written again",
        Law.WITHOUT_LEDGER,
        (Edit("ledger.engine.db", 'anew."""\n        await self.close()', 'anew."""'),),
        test="tests/ledger/engine/test_read_only_disk.py::test_no_connection_stays_open_when_they_are_opened_anew",
    ),
    Guard(
        "a cloud is read when the clock jumps",
        Law.CLOCK,
        (Edit("bot.services.sessions.end_watchdog", "        await self._settle_the_time(read.rows)\n", ""),),
        test=f"{ENDS_ONLY}::test_a_cloud_is_read_for_the_time_when_the_clock_jumps",
    ),
    Guard(
        "not ready before the clock is confirmed",
        Law.CLOCK,
        (Edit("bot.api.health", "ADVISORY = frozenset({CLOCK})", "ADVISORY = frozenset({CLOCK, CONFIRMED})"),),
        test="tests/api/test_health.py::test_a_clock_that_no_cloud_has_confirmed_yet_is_not_ready",
    ),
    Guard(
        "a restore waits for the end of the service",
        Law.RECORD,
        (
            Edit(
                "bot.services.backups.restore",
                "        with serve_lock(place.ledger):",
                "        with serve_lock(None):",
            ),
            Edit("bot.services.backups.restore", "if server is not None and server.state.connected:", "if False:"),
        ),
        test="tests/services/backups/test_restore.py::test_a_ledger_in_use_stays_and_so_does_its_epoch",
    ),
    Guard(
        "in doubt a restore leaves its mark",
        Law.RECORD,
        (Edit("bot.services.backups.files", "        if swap.may_have_happened:", "        if False:"),),
        test="tests/services/backups/test_restore.py::test_a_restore_that_fails_after_the_swap_leaves_its_mark",
    ),
    Guard(
        "a restored ledger is known as older",
        Law.RECORD,
        (Edit("bot.services.runtime.epoch", "(*newest.values(), mark)", "tuple(newest.values())"),),
        test="tests/services/backups/test_restore.py"
        "::test_it_comes_back_into_an_empty_folder_with_its_key_and_its_records",
    ),
)

RESTORING = (*_RESTORES, *_OF_STARTS)
