"""The fixed vocabularies: every word is used, has its label, and is written out nowhere else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from pathlib import Path

import pytest

from bot.rules.approvals.decision import _CLOSED
from bot.rules.instances.power import PowerAction
from bot.rules.nodes.checkins import grace_s
from bot.rules.policy.policy import Policy
from bot.rules.values.reply_code import ReplyCode
from bot.services.checkpoints import hold
from bot.services.instances import power
from bot.services.outbox import barrier
from bot.slack.render import RENDERERS
from ledger.core.moves import MOVED
from ledger.kernel.checkpoint_step import BEHIND, WAITS, CheckpointStep
from ledger.kernel.end_reason import APPROVED, EARLY, WENT_WELL, WENT_WRONG, EndGroup, EndReason, Grace
from ledger.kernel.entry_kind import SPENT, USED, EntryKind
from ledger.kernel.event_kind import EventKind
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import (
    ANNOUNCES,
    CLAIM_GOES_ON,
    LEGAL,
    NOTHING_DUE,
    UNDECIDED,
    NotificationKind,
    RequestState,
    is_terminal,
)
from ledger.kernel.vocabulary import Vocabulary

ROOT = Path(__file__).resolve().parent.parent
VOCABULARIES = (RequestKind, EndReason, EndGroup, EntryKind, CheckpointStep, EventKind, NotificationKind, ReplyCode)
#: Columns and fields that hold words of these vocabularies.
HOLDERS = {"kind", "end_code", "early_end_code", "outcome_code", "checkpoint_step", "code"}


@cache
def production() -> tuple[tuple[str, ast.Module], ...]:
    files = [path for folder in ("bot", "ledger") for path in sorted((ROOT / folder).rglob("*.py"))]
    return tuple((path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))) for path in files)


@cache
def spoken_of() -> frozenset[tuple[str, str, str]]:
    """`(module, class, member)` wherever production code names a member of a class."""
    return frozenset(
        (path, node.value.id, node.attr)
        for path, tree in production()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    )


@pytest.mark.parametrize("vocabulary", [one for one in VOCABULARIES if one is not EndGroup])
def test_every_word_is_used(vocabulary: type[StrEnum]) -> None:
    home = vocabulary.__module__.replace(".", "/") + ".py"
    used = {member for path, name, member in spoken_of() if name == vocabulary.__name__ and path != home}
    assert [word.name for word in vocabulary if word.name not in used] == []


def test_every_group_of_ends_has_a_reason() -> None:
    assert {reason.group for reason in EndReason} == set(EndGroup)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_every_word_has_a_label_for_people(vocabulary: type[Vocabulary]) -> None:
    for word in vocabulary:
        assert word.label.strip() == word.label != ""
        assert word.label.isprintable()


def test_a_word_without_its_label_is_refused() -> None:
    with pytest.raises(TypeError, match="has no label"):
        Vocabulary("Bad", {"WORD": "word"})  # type: ignore[arg-type] # Enum takes members so.
    for vocabulary in (EndReason, NotificationKind):
        make = vars(vocabulary)["__new_member__"]
        with pytest.raises(TypeError, match="needs a label"):
            make(vocabulary, "word", "a word")


def test_a_reason_says_how_the_work_went_or_that_its_time_was_up_in_one_way_only() -> None:
    assert not APPROVED & WENT_WELL
    assert not WENT_WELL & WENT_WRONG
    assert {reason for reason in EndReason if reason.grace is not Grace.NONE} == EARLY


def test_every_grace_is_the_policys_own() -> None:
    policy = Policy(done_grace_s=1, unresponsive_grace_s=2, idle_grace_s=3)
    seconds = {grace: grace_s(policy, grace) for grace in Grace}
    assert seconds == {Grace.NONE: 0, Grace.DONE: 1, Grace.SILENT: 2, Grace.IDLE: 3}


def test_every_step_and_every_order_has_its_event() -> None:
    assert {hold._event(step) for step in CheckpointStep} == {
        EventKind(f"checkpoint.{step}") for step in CheckpointStep
    }
    assert {power._event(order) for order in PowerAction} == {EventKind(f"instance.{order}") for order in PowerAction}
    assert {kind.value for kind in MOVED.values()} == {kind for kind in EventKind if kind.endswith(".moved")} - {
        EventKind.INSTANCE_ACCOUNT_MOVED,
        EventKind.ORPHAN_ACCOUNT_MOVED,
    }


def test_the_tables_know_every_word() -> None:
    assert set(CheckpointStep) == WAITS | BEHIND
    assert not WAITS & BEHIND
    assert set(USED) < set(SPENT) < set(EntryKind)
    assert set(LEGAL) == set(ANNOUNCES) == set(MOVED)
    assert set(RENDERERS) == set(NotificationKind)
    assert set(_CLOSED) == set(RequestState) - UNDECIDED
    for machine, states in NOTHING_DUE.items():
        assert not states & CLAIM_GOES_ON.get(machine, frozenset())
        assert {state for state in LEGAL[machine] if is_terminal(state)} <= states


def test_a_termination_waits_for_the_kinds_that_say_so() -> None:
    tree = ast.parse(Path(barrier.__file__).read_text(encoding="utf-8"))
    waited_for = {
        call.args[0].attr
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and getattr(call.func, "id", "") == "Said"
        and isinstance(call.args[0], ast.Attribute)
    }
    assert waited_for == {kind.name for kind in NotificationKind if kind.delays_termination}


def literals(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Texts that stand where a word of a vocabulary belongs: compared with a holder, or given to one."""
    for node in ast.walk(tree):
        found: list[ast.expr] = []
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute) and node.left.attr in HOLDERS:
            found = node.comparators
        elif isinstance(node, ast.keyword) and node.arg in HOLDERS:
            found = [node.value]
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            found = [value for key, value in pairs if isinstance(key, ast.Constant) and key.value in HOLDERS]
        for one in found:
            inside = one.elts if isinstance(one, ast.Tuple | ast.List | ast.Set) else [one]
            yield from (
                (one.lineno, text.value)
                for text in inside
                if isinstance(text, ast.Constant) and isinstance(text.value, str)
            )


def test_no_word_is_written_out() -> None:
    """The practice workspace is left out: it answers with the codes of Slack, and some of them are spelled alike."""
    words = {str(word) for vocabulary in VOCABULARIES for word in vocabulary}
    found = [
        f"{path}:{line}: {text}"
        for path, tree in production()
        if not path.startswith("bot/practice/")
        for line, text in literals(tree)
        if text in words
    ]
    assert found == []
