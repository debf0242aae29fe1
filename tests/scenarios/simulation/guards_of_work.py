"""Guards of the work: machines are kept while waiting is cheap, moves lose nothing, and no part counts as the whole.

Among them are those of restores: a part of the past is no whole ledger.
"""

from __future__ import annotations

from tests.scenarios.simulation.guard import Edit, Guard, Law

MACHINES = "bot.rules.migrations.machines"
OFFERED = "tests/services/access/test_offered_sessions.py"
COPIES = "tests/services/access/test_people_of_copies.py"
MOVES = "tests/services/migrations/test_last_machine.py"
UNPLANNED, COMPLETENESS = "bot.rules.instances.unplanned_end", "providers.completeness"
GRACE, RULE = "tests/services/instances/test_grace.py", "tests/rules/instances/test_unplanned_end.py"
COLD, CREATES = "tests/services/market/test_cold.py", "tests/scenarios/faults/test_creates.py"
KEPT = "if plight.at_risk is AtRisk.NOTHING or plight.waiting_usd > plight.limit_usd:"

LAUNCH, RECOVERY = "bot.services.instances.launch", "bot.services.recovery"
RESTORES, RECORDS = "tests/services/recovery/test_restores.py", "tests/services/recovery/test_records.py"
SIGNED = "tests/services/nodes/test_signed_ends.py"

_RESTORES = (
    Guard(
        "epoch",
        Law.OLDER,
        (
            Edit(
                f"{RECOVERY}.detection",
                "    return LedgerComparison(age, journal.events,",
                "    return LedgerComparison(None, journal.events,",
            ),
        ),
        test=f"{RESTORES}::test_what_people_had_ended_since_the_copy_is_not_bought_again",
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
                "        latest = with_latest_ends(rows, self.copy.rows)",
                "        latest = rows",
            ),
        ),
        test=f"{RESTORES}::test_an_extended_machine_lives_until_the_end_that_the_copy_of_ends_has",
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
)

WORK = (
    *_RESTORES,
    Guard(
        "completeness",
        Law.WHOLE,
        (
            Edit(
                COMPLETENESS, "return ProofOfWhole(self) if self.is_complete else None", "return ProofOfWhole(COMPLETE)"
            ),
        ),
        test=f"{COLD}::test_a_cloud_that_stays_away_is_named_and_nothing_is_cheapest",
    ),
    Guard(
        "grace",
        Law.LOSS,
        (Edit(UNPLANNED, KEPT, "if True:"),),
        test=f"{GRACE}::test_a_machine_whose_host_is_offline_and_costs_nothing_is_kept",
    ),
    Guard(
        "the most that a grace costs",
        Law.LOSS,
        (Edit(UNPLANNED, KEPT, "if plight.at_risk is AtRisk.NOTHING:"),),
        test=f"{RULE}::test_decisions",
    ),
    Guard(
        "a job that runs is work",
        Law.LOSS,
        (
            Edit(
                "bot.rules.nodes.checkins",
                "if is_busy_otherwise(found) or (watched.has_running_job and watched.idle_s is None):",
                "if is_busy_otherwise(found):",
            ),
        ),
        test=f"{GRACE}::test_a_job_with_idle_gpus_is_work_until_it_exits",
    ),
    Guard(
        "one rate limit is waited out",
        Law.LOSS,
        (Edit("bot.services.instances.launch", "if isinstance(limit, RateLimited):", "if False:"),),
        test=f"{CREATES}::test_a_rate_limit_on_the_create_is_waited_out_with_a_new_row",
    ),
    Guard(
        "last machine",
        Law.WORK,
        (
            Edit(
                MACHINES,
                "return SourceIs.LOST if is_lost else SourceIs.AWAY",
                "return SourceIs.LOST if source.is_over or source.is_still else SourceIs.HERE",
            ),
            Edit(
                MACHINES,
                "if source.state is not _S.RUNNING or source.is_silent:",
                "if source.state is not _S.RUNNING:",
            ),
        ),
        test=f"{MOVES}::test_a_source_that_falls_silent_leaves_its_run_to_the_target",
    ),
    Guard(
        "last copy",
        Law.WORK,
        (
            Edit(
                MACHINES,
                "return agent is not None and agent.lowest_step is not None and agent.lowest_step < (saved_step or 0)",
                "return False",
            ),
        ),
        test=f"{MOVES}::test_a_target_that_begins_anew_is_paused_and_the_source_goes_on_from_its_save",
    ),
    Guard(
        "only what continues the run counts as its copy",
        Law.WORK,
        (
            Edit(
                "bot.rules.migrations.resume",
                "        if self.counts:\n            return False\n",
                "        return False\n",
            ),
        ),
        test=f"{MOVES}::test_a_target_that_begins_anew_is_paused_and_the_source_goes_on_from_its_save",
    ),
    Guard(
        "a transfer ends what its earlier owner brought",
        Law.PEOPLE,
        (
            Edit("ledger.queries.people.transfers", "    await end_credentials(tx, session.request_id, at)\n", ""),
            Edit("ledger.queries.people.credentials", "        ~_since_then_transferred(),\n", ""),
        ),
        test=f"{COPIES}::test_a_copy_has_the_people_of_now",
    ),
    Guard(
        "an offered session shows facts only",
        Law.SIGHT,
        (
            Edit(
                "bot.services.access.authorization",
                "    if seen is Sight.FACTS and least is not Sight.FACTS:\n        raise only_offered(request)\n",
                "",
            ),
        ),
        test=f"{OFFERED}::test_a_repeat_would_copy_the_work_so_it_needs_the_acceptance",
    ),
    Guard(
        "facts of a job leave out the work",
        Law.SIGHT,
        (Edit("bot.rules.access.sight", "    if sight.shows_work:\n        return job\n", "    return job\n"),),
        test=f"{OFFERED}::test_who_is_offered_a_session_reads_its_facts_over_rest_and_no_work",
    ),
    Guard(
        "a job with a secret is refused",
        Law.SIGHT,
        (Edit("bot.rules.grammar.parser", "    if secret := _secret_error(line, pairs):", "    if secret := None:"),),
        test="tests/services/access/test_refused_secrets.py::test_rest_refuses_a_secret_and_stores_nothing",
    ),
    Guard(
        "a job is stored without keys, shares and secrets",
        Law.PEOPLE,
        (
            Edit(
                "ledger.kernel.columns",
                "storable_json(value.without_people().to_json())",
                "storable_json(value.to_json())",
            ),
        ),
        test=f"{COPIES}::test_a_copy_has_the_people_of_now",
    ),
    Guard(
        "both sides of a move have the same people",
        Law.PEOPLE,
        (
            Edit(
                "bot.services.access.sharing",
                "for other in await moving_with(tx, root):",
                "for other in ():",
            ),
        ),
        test=f"{COPIES}::test_while_a_run_moves_both_of_its_sides_have_the_same_people",
    ),
    Guard(
        "a session that got another owner is not moved",
        Law.PEOPLE,
        (Edit("bot.services.migrations.start", " and session.owner == view.session.owner", ""),),
        test=f"{COPIES}::test_a_session_that_got_another_owner_meanwhile_is_not_moved",
    ),
    Guard(
        "a create brings the keys of now",
        Law.PEOPLE,
        (
            Edit(
                "bot.services.instances.launch",
                "if not await key_holders.all_belong(tx, ctx.policy, work.session.id, work.keys):",
                "if False:",
            ),
        ),
        test="tests/services/instances/test_launch.py::test_who_leaves_while_a_launch_is_prepared_is_not_on_the_machine",
    ),
)
