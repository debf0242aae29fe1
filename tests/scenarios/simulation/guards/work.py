"""Guards of work and people: what runs keeps running, and copies bring nobody back."""

from __future__ import annotations

from tests.scenarios.simulation.guards.guard import Edit, Guard, Law

MACHINES = "bot.rules.relocation.machines"
OFFERED = "tests/services/access/test_offered_sessions.py"
COPIES = "tests/services/access/test_people_of_copies.py"
MOVES = "tests/services/relocation/test_last_machine.py"
UNPLANNED, COMPLETENESS = "bot.rules.instances.unplanned_end", "providers.completeness"
GRACE, RULE = "tests/services/instances/test_grace.py", "tests/rules/instances/test_unplanned_end.py"
COLD, CREATES = "tests/services/market/test_cold.py", "tests/scenarios/faults/test_creates.py"
KEPT = "if plight.at_risk is AtRisk.NOTHING or plight.waiting_usd > plight.limit_usd:"

WORK = (
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
                "bot.rules.relocation.resume",
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
        (Edit("bot.rules.jobs.sight", "    if sight.shows_work:\n        return job\n", "    return job\n"),),
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
                "bot.rules.jobs.stored",
                "StoredJob(job.without_people().to_json())",
                "StoredJob(job.to_json())",
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
        (Edit("bot.services.relocation.start", " and session.owner == view.session.owner", ""),),
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
