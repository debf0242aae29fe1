"""Guards of what is bought: one create a row, and none without a decision that covers it."""

from __future__ import annotations

from tests.scenarios.simulation.guards.guard import Edit, Guard, Law

LAUNCH, DECISIONS = "bot.services.instances.launch", "bot.services.approvals.decisions"
LAUNCH_SPEC = "bot.services.instances.launch_spec"
DECISION = "bot.rules.approvals.decision"
MOVES, CLAIMS = "ledger.core.moves", "ledger.core.claims"
CREATES, LATE = "tests/scenarios/faults/test_creates.py", "tests/scenarios/faults/test_late_answers.py"
REQUOTE, LAUNCHES = "tests/services/instances/test_requote.py", "tests/services/instances/test_launch.py"
OLDER = "tests/services/instances/test_older_ledger.py"
DECIDING = "tests/services/approvals/test_decisions.py"
AUTHORITY = "tests/services/approvals/test_authority.py"
RATE, CARDS = "tests/services/access/test_request_rate.py", "ledger.queries.people.request_cards"
REPEATED = "tests/services/notifications/test_repeated_request.py"
IN_SLACK = "tests/slack/messages/test_repeated_requests.py"

_IN_PLACE = Edit(DECISION, "    return _in_place_of(policy, request, decider)", "    return None")

_CREATES = (
    Guard(
        "one send: compare and swap before it",
        Law.ONE_CREATE,
        (
            Edit(LAUNCH, "if work.instance.state is InstanceState.SENDING:", "if False:"),
            Edit(
                "ledger.kernel.states",
                "_I.SENDING: frozenset({_I.LIVE, _I.REJECTED, _I.UNKNOWN}),",
                "_I.SENDING: frozenset({_I.SENDING, _I.LIVE, _I.REJECTED, _I.UNKNOWN}),",
            ),
        ),
        test=f"{CREATES}::test_a_process_that_dies_before_the_call_never_leads_to_a_second_one",
    ),
    Guard(
        "monotonic check before the send",
        Law.ONE_CREATE,
        (Edit(LAUNCH, "if ctx.clock.monotonic() - committed_s >= SEND_WITHIN_S:", "if False:"),),
        test=f"{LATE}::test_a_process_that_stood_still_after_its_commit_sends_nothing",
    ),
    Guard(
        "no second send after an unknown outcome",
        Law.ONE_CREATE,
        (Edit(LAUNCH, "if error.definite_no and not isinstance(error, OutcomeUnknown):", "if True:"),),
        seed=2,
        test=f"{CREATES}::test_a_create_whose_answer_is_lost_is_adopted",
    ),
    Guard(
        "quarantine of an unknown outcome",
        Law.ONE_CREATE,
        (
            Edit(
                "bot.services.instances.unknown_outcome",
                "return now - (instance.sent_at or instance.created_at) >= patience",
                "return True",
            ),
        ),
        seed=5,
        test=f"{CREATES}::test_a_create_that_lands_within_the_quarantine_is_adopted",
    ),
    Guard(
        "what was sent before the commit is not sent again",
        Law.ONE_CREATE,
        (Edit(LAUNCH, "    if sent_before:", "    if False:"),),
        test=f"{LAUNCHES}::test_what_was_sent_before_is_searched_for_and_not_sent_again",
    ),
    Guard(
        "label before an old row",
        Law.ONE_CREATE,
        (
            Edit(
                LAUNCH,
                "    claimed, held = len(held), await search_first(ctx, held)",
                "    claimed, held = len(held), held",
            ),
        ),
        test=f"{OLDER}::test_a_launch_that_was_sent_after_the_copy_is_adopted_and_not_sent_again",
    ),
    Guard(
        "what is known before the send refuses an unsent row only",
        Law.ONE_CREATE,
        (
            Edit(
                LAUNCH,
                "states, token = (SENT, None) if held is None else (frozenset({InstanceState.READY}), held.token)",
                "states, token = SENT | {InstanceState.READY}, None",
            ),
        ),
        test=f"{LATE}::test_what_a_paused_process_knew_before_the_send_does_not_refuse_what_another_one_sent",
    ),
    Guard(
        "claim token",
        Law.ONE_CREATE,
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
        test="tests/ledger/core/test_claims.py::test_a_claim_expires_and_its_late_result_is_discarded",
    ),
    Guard(
        "claims run out",
        Law.GONE,
        (
            Edit(
                CLAIMS,
                "    free = or_(model.claim_until.is_(None), model.claim_until <= now)\n    return (model.state",
                "    free = model.claim_until.is_(None)\n    return (model.state",
            ),
        ),
        test="tests/ledger/core/test_claims.py::test_a_claim_expires_and_its_late_result_is_discarded",
    ),
    Guard(
        "a row moves as the table says",
        Law.ONE_CREATE,
        (
            Edit(
                MOVES,
                "where = [model.id == row_id, model.state.in_(allowed), model.version == before.version]",
                "where = [model.id == row_id, model.version == before.version]",
            ),
        ),
        test="tests/ledger/core/test_moves.py::test_every_pair",
    ),
    Guard(
        "nothing is sent to another account",
        Law.ONE_CREATE,
        (
            Edit(
                LAUNCH, "elif provider is None or provider.account != work.instance.account:", "elif provider is None:"
            ),
        ),
        test="tests/services/instances/test_key_rotation.py::test_nothing_is_bought_under_another_key",
    ),
    Guard(
        "no launch for a session that ends",
        Law.DECISION,
        (
            Edit(
                LAUNCH_SPEC,
                "        raise StaleMove(session.id, str(session.state), str(SessionState.PROVISIONING))",
                "        pass",
            ),
            Edit(
                "bot.services.instances.termination",
                "    await reservations.withdraw_ready(tx, session_id, sentence, now, actor)",
                "    pass",
            ),
        ),
        test="tests/services/instances/test_launch.py::test_an_end_while_a_launch_is_prepared_sends_nothing",
    ),
    Guard(
        "nothing is bought in recovery mode",
        Law.DECISION,
        (
            Edit("bot.services.runtime.recovery_mode", "    return bool(await recovery(tx))", "    return False"),
            Edit("bot.services.runtime.ledger_comparison", "self.is_older or self.orphan_since is not None", "False"),
        ),
        test="tests/services/grants/test_hours_used.py"
        "::test_a_replacement_is_not_bought_after_the_approved_end_nor_in_recovery",
    ),
    Guard(
        "nothing is bought by a wrong clock",
        Law.CLOCK,
        (
            Edit(
                LAUNCH,
                "    if clock_problem(ctx.clock):\n        return 0  # Nothing is claimed",
                "    if False:\n        return 0  # Nothing is claimed",
            ),
            Edit(LAUNCH_SPEC, "    if clock_problem(ctx.clock) or (await compare(", "    if (await compare("),
        ),
        test="tests/services/runtime/test_clock_guard.py"
        "::test_ten_minutes_back_refuses_no_call_buys_nothing_and_is_paged_once",
    ),
    Guard(
        "clock guard",
        Law.CLOCK,
        (
            Edit(
                "bot.services.runtime.clock_guard", "        if abs(wall - measured) > TOLERANCE:", "        if False:"
            ),
        ),
        test="tests/services/runtime/test_clock_guard.py"
        "::test_a_wall_clock_that_jumps_is_not_followed_and_recovers_by_itself",
    ),
)

_DECISIONS = (
    Guard(
        "only approvers approve",
        Law.DECISION,
        (_IN_PLACE,),
        test=f"{DECIDING}::test_who_may_not_decide_is_told_why_and_changes_nothing",
    ),
    Guard(
        "nobody approves their own request",
        Law.DECISION,
        (
            Edit(
                DECISION,
                "if decision is not Decision.CANCEL and own and not policy.allow_self_approval:",
                "if False:",
            ),
            _IN_PLACE,
        ),
        test=f"{DECIDING}::test_nobody_decides_what_they_asked_for_under_another_name",
    ),
    Guard(
        "the group of approvers is read at the decision",
        Law.DECISION,
        (
            Edit(
                DECISION,
                "    if decision is Decision.CANCEL or is_approver_of(policy, decider, request.mandate):",
                "    if decision is Decision.CANCEL or is_approver(policy, decider):",
            ),
        ),
        test="tests/services/approvals/test_tiers.py::test_a_tier_names_its_group_its_number_and_the_next_one",
    ),
    Guard(
        "as many approvers as the policy wants",
        Law.DECISION,
        (Edit(DECISION, "    left = needed.required - len(people) - 1", "    left = 0"),),
        test=f"{DECIDING}::test_two_approvers_take_the_option_that_the_first_one_fixed",
    ),
    Guard(
        "the parts of a run count together",
        Law.DECISION,
        (Edit("bot.rules.approvals.authority", "    whole = spend + earlier", "    whole = spend"),),
        test=f"{AUTHORITY}::test_six_extensions_by_the_same_person_need_a_second_one",
    ),
    Guard(
        "a run continued from its checkpoint counts on",
        Law.DECISION,
        (
            Edit(
                "bot.services.requests.again",
                "    run_id = authority.run_of(earlier)",
                "    run_id = None and earlier.id",
            ),
        ),
        test=f"{AUTHORITY}::test_again_from_its_checkpoint_counts_on_in_dollars_and_hours",
    ),
    Guard(
        "a policy that others can change decides nothing",
        Law.DECISION,
        (
            Edit(
                "bot.settings.policy_file",
                "        reader = _Reader(path, read_guarded if spends else _read)",
                "        reader = _Reader(path, _read)",
            ),
        ),
        test="tests/settings/test_policy_watch.py::"
        "test_a_file_that_others_can_change_now_is_reported_once_and_mended_by_its_mode",
    ),
    Guard(
        "all names of a person are one requester and one approver",
        Law.DECISION,
        (Edit("bot.rules.approvals.approvers", "    for known in found:", "    for known in [actor]:"),),
        test=f"{DECIDING}::test_a_chain_of_names_is_one_person_who_approves_nothing_of_their_own",
    ),
    Guard(
        "an AI agent has no approver rights",
        Law.DECISION,
        (Edit("bot.api.dependencies", "    return who.as_agent() if is_agent else who", "    return who"),),
        test="tests/api/test_matrix.py::test_an_agent_with_an_approvers_key_approves_nothing_in_any_spelling",
    ),
    Guard(
        "the override above twelve hours",
        Law.DECISION,
        (Edit(DECISION, "    if needed.needs_override:", "    if False:"),),
        test="tests/services/approvals/test_override.py::test_the_override_alone_buys_nothing",
    ),
    Guard(
        "old buttons are dead",
        Law.DECISION,
        (
            Edit(
                DECISION,
                "    if what.decision is Decision.APPROVE and what.quote_version != request.quote_version:",
                "    if False:",
            ),
        ),
        test=f"{REQUOTE}::test_a_price_above_the_cap_is_asked_again_and_old_buttons_are_dead",
    ),
    Guard(
        "a large amount is typed",
        Law.DECISION,
        (
            Edit(
                DECISION, "    if refusal is None and (needed.confirm_amount or request.limit_binds):", "    if False:"
            ),
        ),
        test=f"{DECIDING}::test_a_large_amount_is_typed_to_confirm",
    ),
    Guard(
        "a decision is idempotent",
        Law.DECISION,
        (Edit(DECISIONS, "    if done is not None:\n        return done", "    if False:\n        return done"),),
        test=f"{DECIDING}::test_a_decision_whose_answer_was_lost_is_answered_as_done_and_never_taken_twice",
    ),
    Guard(
        "a request is idempotent",
        Law.DECISION,
        (
            Edit("bot.services.requests.submit", "        if known is not None:", "        if False:"),
            Edit("bot.services.requests.submit", "inbox_key=command.key,", 'inbox_key=f"{command.key}{request_id}",'),
        ),
        test="tests/services/requests/test_submit.py::test_the_same_message_asks_once",
    ),
    Guard(
        "price cap at the send",
        Law.DECISION,
        (Edit("bot.rules.pricing.spend_limits", "    if fresh_usd_h > price_cap_usd_h:", "    if False:"),),
        test=f"{REQUOTE}::test_a_price_above_the_cap_is_asked_again_and_old_buttons_are_dead",
    ),
    Guard(
        "an approval ends",
        Law.DECISION,
        (Edit(LAUNCH_SPEC, "if grant.state is not GrantState.OPEN or now >= grant.until:", "if False:"),),
        test=f"{REQUOTE}::test_an_approval_that_is_not_used_in_time_buys_nothing",
    ),
    Guard(
        "budgets",
        Law.DECISION,
        (Edit(DECISIONS, "    if room is not None and not room.verdict.allowed:", "    if False:"),),
        test="tests/services/budgets/test_enforcement.py"
        "::test_over_the_limit_nothing_is_recorded_and_what_ends_gives_its_rest_back",
    ),
    Guard(
        "what is reserved counts against a budget",
        Law.DECISION,
        (
            Edit(
                "bot.services.grants.reservations",
                'in the transaction that creates the grant."""\n    await book(',
                'in the transaction that creates the grant."""\n    return\n    await book(',
            ),
        ),
        test="tests/services/budgets/test_enforcement.py::test_what_runs_counts_once_as_spent_or_as_reserved",
    ),
)

_REQUESTS = (
    Guard(
        "a person's requests have a rate",
        Law.RATE,
        (Edit("bot.rules.policy.request_rate", "    if len(recent) < most:", "    if True:"),),
        test=f"{RATE}::test_pairs_of_request_and_cancel_are_refused_and_leave_a_handful_of_messages",
    ),
    Guard(
        "what a person requests for a program counts for the person",
        Law.RATE,
        (Edit("bot.services.access.request_rate", "for one in (actor, sent_by)", "for one in (actor,)"),),
        test=f"{RATE}::test_what_a_person_requests_for_programs_counts_for_that_person_too",
    ),
    Guard(
        "an open request keeps its message",
        Law.RATE,
        (Edit(CARDS, "        or_(Request.state.in_(_BY_ITSELF), withdrawn),\n", ""),),
        test=f"{REPEATED}::test_what_is_open_or_somebody_elses_or_elsewhere_keeps_its_message",
    ),
    Guard(
        "a request that somebody voted on keeps its message",
        Law.RATE,
        (
            Edit(
                CARDS,
                "        ~exists(votes.where(or_(part.id == Request.id, part.parent_id == Request.id))),\n",
                "",
            ),
        ),
        test=f"{REPEATED}::test_what_somebody_decided_keeps_its_message",
    ),
    Guard(
        "a repeat is shown where approvers read it",
        Law.RATE,
        (Edit(CARDS, "        ~exists(select(Notification.id).where(*_shown_elsewhere(first))),\n", ""),),
        test=f"{IN_SLACK}::test_a_repeat_never_follows_an_earlier_message_into_the_direct_messages_of_its_person",
    ),
    Guard(
        "a message shows its newest request",
        Law.RATE,
        (Edit(CARDS, "order_by(Request.card_turn.desc())", "order_by(Request.card_turn)"),),
        test=f"{REPEATED}::test_a_withdrawn_request_and_its_repeats_have_one_message",
    ),
)

BUYING = (*_CREATES, *_DECISIONS, *_REQUESTS)
