"""What both agents are asked follows from the step: the source is silent before the target may start."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from bot.rules.checkpoints.verification import Newest, StoreLocation
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.startup_plan import plan_startup
from bot.rules.relocation.asks import MovedFrom, MovedTo, as_source, as_target, idles_on_purpose
from bot.rules.relocation.resume import Resume, TargetPlace, own_place, resume_of, resume_place
from bot.rules.relocation.text import progress_line
from bot.wire.checkin import NodeInstruction
from ledger.kernel.steps.relocation_step import TARGET_MAY_RUN, MigrationStep
from providers.gpus.constraint import GpuConstraint
from tests.support.clock import START

_M, _I = MigrationStep, NodeInstruction
ENDS = (_I.SAVE, _I.UPLOAD, _I.STOP)


@pytest.mark.parametrize("step", list(_M))
def test_no_step_lets_both_train(step: MigrationStep) -> None:
    """Where the target may start, or may have, the source is asked to pause and to save nothing."""
    source = as_source((), MovedFrom(step, may_have_started=step in TARGET_MAY_RUN))
    target = as_target((), MovedTo(step, "s3://b/run/step-9"))
    # A target that still reports after a failed move is all that is left of the run.
    if "start" in target and step is not _M.FAILED:
        assert source == ("pause",)
    if step in TARGET_MAY_RUN:
        assert ("start" in target, as_source(ENDS, MovedFrom(step))) == (True, ("pause", "stop"))


@pytest.mark.parametrize("step", list(_M))
def test_both_machines_may_be_idle_while_the_run_moves(step: MigrationStep) -> None:
    """Before anything is ordered, and afterwards, a machine that does nothing is idle like every other."""
    assert idles_on_purpose(step) is (step not in {_M.CHECKED, _M.DONE, _M.FAILED})


def test_the_source_saves_once_and_resumes_after_a_failure() -> None:
    assert as_source((), MovedFrom(_M.READY)) == ("save", "upload", "pause")
    assert as_source(ENDS, MovedFrom(_M.READY)) == ENDS
    assert as_source((), MovedFrom(_M.VERIFIED)) == ("pause",)
    assert as_source((), MovedFrom(_M.ENDING)) == ()
    assert as_source((), MovedFrom(_M.ENDING, may_have_started=True)) == ("pause",)
    assert as_source((), MovedFrom(_M.FAILED, may_have_started=True)) == ()
    assert as_source(ENDS, None) == ENDS


def test_the_target_learns_the_save_first_and_saves_nothing_after_a_failure() -> None:
    assert as_target((), MovedTo(_M.READY, "x")) == ()
    assert as_target((), MovedTo(_M.VERIFIED, "x")) == ("resume=x",)
    assert as_target((), MovedTo(_M.VERIFIED, "x", 9)) == ("resume=x", "resume_step=9")
    assert as_target((), MovedTo(_M.PRESENT, "x")) == ("resume=x", "start")
    assert as_target(ENDS, MovedTo(_M.ENDING, "x")) == ("stop",)
    assert as_target(ENDS, MovedTo(_M.FAILED, "x")) == (*ENDS, "resume=x", "start")
    assert as_target(ENDS, MovedTo(_M.DONE, "x")) == as_target(ENDS, None) == ENDS


@pytest.mark.parametrize("step", list(_M))
def test_a_target_that_did_not_continue_from_its_save_is_paused(step: MigrationStep) -> None:
    asks, ends = (as_target(normal, MovedTo(step, "x", 9, began_below=True)) for normal in ((), ENDS))
    if step in (_M.ADVANCED, _M.DESTROYED, _M.DONE):
        assert "pause" not in asks
    else:
        assert (asks, ends) == (("pause",), ("pause", "stop"))


def test_the_place_where_a_target_saves_and_when_it_counts() -> None:
    assert own_place("S3://bucket/run/", "abc123") == "s3://bucket/run/moved-abc123"
    assert own_place("hf://org/name", "abc123") == "hf://org/name/moved-abc123"
    assert own_place("https://x.example/a.pt?sig=1", "abc123") is own_place(None, "abc123") is None
    for step, began_at, counts in (
        (_M.STARTED, (), False),
        (_M.STARTED, (10,), False),
        (_M.STARTED, (410,), True),
        (_M.FAILED, (10, 410), False),
        (_M.FAILED, (), False),
        (_M.FAILED, (411,), True),
        (_M.DONE, (), True),
        (_M.DONE, (10,), True),
    ):
        assert TargetPlace("s3://b/run/moved-x", step, 410, began_at).counts is counts, (step, began_at)
    # What a target saved that began anew is no checkpoint of the run, wherever it saved it.
    hour = timedelta(hours=1)
    anew = TargetPlace("s3://b/run/moved-x", _M.FAILED, 410, (10,), START, START + hour)
    assert anew.hides("s3://b/run/moved-x/step-1", START - hour)
    assert not anew.hides("s3://b/run/moved-xy/step-1", START - hour)
    assert [anew.hides("s3://b/run/step-1", START + hours * hour) for hours in (-1, 0, 1, 2)] == [
        False,
        True,
        True,
        False,
    ]
    waits = TargetPlace("s3://b/run/moved-x", _M.STARTED, 410, (), START)
    assert (waits.hides("s3://b/run/step-1", START), waits.hides("s3://b/run/moved-x/a", START)) == (False, True)
    assert not TargetPlace("s3://b/run/moved-x", _M.STARTED, 410, (410,)).hides("s3://b/run/moved-x/a", START)


def test_the_place_to_resume_from() -> None:
    s3, hub = StoreLocation("s3", "bucket", "run"), StoreLocation("hf", "org/name", "")
    web = StoreLocation("https", "https://x.example/a.pt?sig=1", "")

    def place(where: StoreLocation, path: str) -> str:
        return resume_place("s3://bucket/run", where, Newest(path, 1, START))

    assert place(s3, "run/step-9/model.pt") == "s3://bucket/run/step-9"
    assert place(s3, "run/last.pt") == "s3://bucket/run/last.pt"
    assert place(hub, "checkpoint-1/a/b.pt") == "hf://org/name/checkpoint-1"
    assert place(s3, "run/my model.pt") == "s3://bucket/run"
    assert resume_place("https://x.example/a.pt?sig=1", web, Newest("a.pt", 1, START)) == "https://x.example/a.pt?sig=1"


def test_a_start_up_waits_for_the_save_until_the_run_may_start() -> None:
    job = JobRequest(GpuConstraint(), Decimal(2), run="python t.py", secrets=("HF_TOKEN",))
    assert (resume_of(None, "x"), resume_of(_M.READY, "x")) == (None, Resume())
    assert resume_of(_M.DONE, "x") == resume_of(_M.PRESENT, "x") == Resume("x")
    assert Resume().variables == {}
    assert Resume("x", 9).variables == {"RESUME_FROM": "x", "RESUME_STEP": "9"}
    assert resume_of(_M.FAILED, "x", 9) == Resume("x", 9)
    plan = plan_startup("ins_1", job, {}, waits=True)
    assert plan is not None
    assert [one.name for one in plan.steps][-3:] == ["checkpoint", "start", "run"]
    run = plan.steps[-1]
    assert "start" in run.needs
    assert "resume_from" in run.script
    now = plan_startup("ins_1", job, {}, resume=Resume("s3://b/run/step-9").variables)
    assert now is not None
    assert now.environment["RESUME_FROM"] == "s3://b/run/step-9"
    assert "checkpoint" not in [one.name for one in now.steps]
    bare = plan_startup("ins_1", JobRequest(GpuConstraint(), job.hours, install="train"), {}, waits=True)
    assert bare is not None
    assert "checkpoint" not in [one.name for one in bare.steps]
    stack = plan_startup("ins_1", JobRequest(GpuConstraint(), job.hours, run="x", install="train"), {}, waits=True)
    assert stack is not None
    assert "checkpoint" in [one.name for one in stack.steps]


def test_how_far_it_is_in_words() -> None:
    def said(step: MigrationStep, *, is_target: bool = False, note: str = "It still boots.") -> str:
        return progress_line(step, note, "aaaaaa", "bbbbbb", is_target=is_target)

    assert said(_M.READY) == "Move to bbbbbb: 3 of 8 steps done, the new machine is ready. It still boots."
    assert said(_M.READY, is_target=True, note=_M.READY.label).startswith("Move from aaaaaa: 3 of 8 steps done")
    assert said(_M.ENDING, note="") == "Move to bbbbbb: failed."
    assert said(_M.DONE) == "Its run moved to bbbbbb."
    assert said(_M.DONE, is_target=True) == "Its run came from aaaaaa."
