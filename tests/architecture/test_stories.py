"""Where users of other tools lost money, and the tests that make each of these stories impossible here.

The stories are public threads of those projects. A test may be renamed; then its name is changed here too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

#: The threads that tell a story, and the tests: `file::name`, with the file's path under `tests`.
STORIES: Mapping[str, tuple[str, ...]] = {
    # A timer or a stop switch that does not hold.
    "runpodctl#330 runpodctl#331 runpod/docs#820: a cloud's own timer is accepted and does nothing": (
        "scenarios/processes/test_reasons.py::test_an_announced_end",
        "scenarios/faults/test_ends.py::test_the_end_is_enforced_by_a_process_that_slept_through_it_and_announced_before",
    ),
    "skypilot#9478: who is limited lifts the limit": (
        "services/sessions/test_extension.py::test_9478_nobody_lifts_the_limit_of_their_own_session",
        "rules/pricing/test_spend_limits.py::test_only_an_approver_lifts_an_approvers_limit",
    ),
    "skypilot#3569: a job that runs on keeps a machine beyond its time": (
        "scenarios/processes/test_reasons.py::test_an_announced_end",
    ),
    "skypilot#8395: idle workers are kept for ever": ("scenarios/processes/test_reasons.py::test_an_announced_end",),
    "skypilot#5946: the timer is lost when the status flips during the boot": (
        "services/sessions/test_expiration.py::test_the_approved_hours_count_from_the_send",
        "services/instances/test_health.py::test_trouble_that_passes_ends_nothing_and_is_not_told_again_and_again",
    ),
    "skypilot#10628 skypilot#1306: a loop that stalls counts as work": (
        "rules/nodes/test_checkins.py::test_idle_time_begins_when_no_gpu_works_and_a_node_knows_it_better_within_what_can_be_true",
    ),
    "dstack#3106 dstack#2383 dstack#955: the setting for idling is ignored, or there is none": (
        "rules/nodes/test_checkins.py::test_idle_ends_depend_on_the_kind_of_work",
        "scenarios/processes/test_reasons.py::test_an_announced_end",
    ),
    "dstack#1047: who is to stop the machine is away": (
        "services/sessions/test_expiration.py::test_1047_a_messenger_that_is_down_keeps_nothing_alive_and_ends_nothing_early",
        "scenarios/faults/test_ends.py::test_the_end_is_enforced_by_a_process_that_slept_through_it_and_announced_before",
    ),
    # Orphans.
    "dstack#3453: a crash between the create and the commit; a create that failed and exists": (
        "scenarios/processes/test_reasons.py::test_3453_an_orphan_is_told_to_its_people_and_ended_at_its_second_sighting",
        "scenarios/faults/test_sweeps.py::test_a_create_that_was_refused_and_made_all_the_same_is_ended",
        "scenarios/processes/test_every_cloud.py::test_a_process_that_is_killed_before_it_hears_of_its_create",
    ),
    "dstack#1551: nobody hears the machines, and they are taken for ended": (
        "services/sessions/test_idle_termination.py::test_1551_silence_that_nobody_could_hear_ends_nobody",
        "scenarios/faults/test_sweeps.py::test_a_listing_that_fails_changes_nothing",
    ),
    "dstack#2479 dstack#4030: a destroy fails and counts as done": (
        "scenarios/faults/test_ends.py::test_a_refused_destroy_is_ordered_again",
        "scenarios/faults/test_ends.py::test_a_destroy_that_is_taken_and_not_done_is_ordered_until_it_is_and_pages",
    ),
    "dstack#3449 dstack#2068: an end during the create leaves a machine": (
        "scenarios/faults/test_ends.py::test_an_end_during_the_create_ends_what_it_makes_and_asks_nobody",
        "scenarios/faults/test_ends.py::test_an_end_while_the_outcome_gave_no_answer_ends_what_is_found",
    ),
    "skypilot#4392 skypilot#2990 skypilot#2261 yomotsusaka#124: the create times out and its machine is left": (
        "scenarios/faults/test_creates.py::test_a_create_whose_answer_is_lost_is_adopted",
        "scenarios/faults/test_creates.py::test_a_create_that_lands_after_the_quarantine_is_destroyed_and_booked_as_a_loss",
    ),
    "marin-dna#564: a fresh client knows of no machine": (
        "services/instances/test_database_loss.py::test_from_an_empty_database_what_is_ours_is_found_kept_and_paid",
    ),
    "transformerlab#1897 firstmate#4307 LibreYOLO#505: who rented it is gone, or does not look at the result": (
        "scenarios/processes/test_reasons.py::test_an_announced_end",
        "scenarios/faults/test_sweeps.py::test_a_stray_whose_destroy_is_refused_is_ended_at_the_next_look",
    ),
    "a machine of somebody else is taken for ours": (
        "scenarios/faults/test_sweeps.py::test_what_is_not_ours_is_never_touched",
        "rules/values/test_labels.py::test_another_key_forges_and_another_deployment_is_foreign",
    ),
    "skypilot#6787: one look that fails ends a healthy machine": (
        "services/sessions/test_idle_termination.py::test_6787_a_machine_that_reports_is_not_absent_whatever_the_listing_says",
        "services/instances/test_health.py::test_a_listing_that_lies_for_minutes_costs_nobody_their_instance",
    ),
    # Prices.
    "skypilot#4904 skypilot#3794 skypilot#4914: what is shown is not what is billed": (
        "rules/pricing/test_spend_limits.py::test_a_fresh_price",
        "rules/pricing/test_spend_limits.py::test_the_rate_that_a_cloud_bills",
    ),
    "skypilot#3615: a price of zero": (
        "rules/market/test_ranking.py::test_a_price_of_zero_never_wins",
        "rules/pricing/test_spend_limits.py::test_a_missing_price_is_bad_data_even_at_a_free_cloud",
    ),
    "dstack#1886 skypilot#8766: the most that was named is passed": (
        "rules/pricing/test_spend_limits.py::test_the_price_cap_never_passes_the_price_that_the_requester_named",
    ),
    "dstack#1890: a bid is a multiple of what was shown": (
        "providers/clouds/vast/test_instances_and_offers.py::test_a_bid_row_is_priced_by_its_lowest_bid",
        "providers/clouds/vast/test_adapter.py::test_a_spot_instance_pays_its_bid",
    ),
    "skypilot#2780 skypilot#7405 skypilot#1645 skypilot#2312: history is priced anew": (
        "rules/billing/test_metering.py::test_what_was_accrued_never_changes",
        "ledger/engine/test_triggers.py::test_no_update",
    ),
    "dstack#2498: storage is not in the cost": (
        "contract/test_offers.py::test_offers_are_priced_for_the_whole_offer_with_the_disk",
        "services/billing/test_metering.py::test_hours_and_the_rest_add_up_to_the_bill",
    ),
    # Budgets, launches, storage.
    "skypilot#7837: there is no budget": (
        "services/budgets/test_enforcement.py::test_7837_two_hundred_approvals_at_once_against_a_budget_for_ten_are_ten",
    ),
    "skypilot#7321 skypilot#7336 dstack#2809: it never gets ready": (
        "scenarios/faults/test_boots.py::test_what_never_boots_is_ended_booked_and_replaced_from_the_same_approval",
    ),
    "skypilot#7318 skypilot#6051: it is killed by hand, or lost sight of, and nobody notices": (
        "scenarios/processes/test_reasons.py::test_what_the_cloud_lost_is_told_when_it_is_proved",
    ),
    "dstack#3608 dstack#2917: what was lost is tried again for ever": (
        "scenarios/faults/test_boots.py::test_without_replacements_what_never_boots_is_asked_again",
        "services/instances/test_health.py::test_a_spot_instance_that_is_outbid_is_told_at_once_and_replaced_after_the_grace",
    ),
    "Dreambooth-Ion-Cannon#5 skypilot#9286: a stopped machine is taken to be free": (
        "rules/instances/test_power.py::test_9286_a_stop_that_saves_nothing_is_not_a_stop",
        "services/billing/test_downtime.py::test_a_stopped_machine_is_booked_on_where_its_gpu_stays_reserved",
    ),
    "skypilot#3300 skypilot#7168: nothing comes back after an interruption": (
        "services/instances/test_power.py::test_3300_a_start_takes_a_grant_that_adds_nothing_and_is_ready_when_it_is_reached",
        "services/instances/test_health.py::test_a_spot_instance_that_is_outbid_is_told_at_once_and_replaced_after_the_grace",
    ),
}


@pytest.mark.parametrize("story", list(STORIES))
def test_the_tests_of_a_story_exist(story: str) -> None:
    missing = []
    for one in STORIES[story]:
        path, _, name = one.partition("::")
        file = TESTS / path
        if not file.is_file() or not re.search(rf"^(async )?def {name}\(", file.read_text(), re.MULTILINE):
            missing.append(one)
    assert missing == []
