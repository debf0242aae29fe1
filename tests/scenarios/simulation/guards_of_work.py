"""Guards of the work: a move never leaves fewer machines than it found, and never fewer good copies."""

from __future__ import annotations

from tests.scenarios.simulation.guard import Edit, Guard, Law

MACHINES = "bot.rules.migrations.machines"
MOVES = "tests/services/migrations/test_last_machine.py"

WORK = (
    Guard(
        "last machine",
        Law.WORK,
        (
            Edit(
                MACHINES,
                "return SourceIs.LOST if source.is_over or source.is_still else SourceIs.AWAY",
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
)
