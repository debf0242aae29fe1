"""What people read in each state, word by word where it matters."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from bot.rules.access.sight import Sight
from bot.rules.jobs import job_text
from bot.rules.jobs.facets.limits import SpotPolicy
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.stored import stored_job
from bot.rules.policy.policy import Policy
from bot.services.nodes.connection import ssh_command
from bot.slack.blocks import elements, job, progress
from bot.slack.blocks.progress import request_result
from bot.slack.blocks.request import CardFacts, request_message
from bot.slack.blocks.session import session_ending, session_ready_and_ended, status
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import InstanceState, RequestState, SessionState
from ledger.models import Approval, Instance, Request, Session
from ledger.queries.views import RequestView, SessionView
from providers.clouds.kaggle.adapter import CAPABILITIES as KAGGLE
from providers.gpus.constraint import GpuConstraint
from tests.support.clock import START

JOB = JobRequest(gpu=GpuConstraint(("A100-80GB",), 4, 4), hours=Decimal(6), reason="fine-tune")


def instance(state: InstanceState, **columns: Any) -> Instance:
    facts = {"n": 1, "cloud": "vast", "name": "gpu-4xA100-label", "price_usd_h": Decimal("4.2")}
    facts |= {"storage_usd_h": Decimal("0.02"), "offer": {}}
    texts = {"outcome": "", "status": "", "status_text": ""}
    return Instance(state=state, **(facts | texts | columns))


def session(state: SessionState, **columns: Any) -> Session:
    facts = {"id": "ses_06gztrs92h000000", "request_id": "req_06gztrs92hymabv2", "hours": "6", "end_reason": ""}
    facts["owner"] = "slack:T1/U0ALICE"
    return Session(state=state, gpu="A100-80GB", gpu_count=4, nodes=1, **(facts | columns))


def view(state: RequestState, of: Session | None = None, *rows: Instance, **columns: Any) -> RequestView:
    facts: dict[str, Any] = {
        "id": "req_06gztrs92hymabv2",
        "kind": RequestKind.PROVISION,
        "quote_version": 1,
        "requester": "slack:T1/U0ALICE",
        "job": stored_job(JOB),
        "reason": "fine-tune",
        "rule": "Needs 1 approval.",
        "required_approvals": 1,
        "expires_at": START + timedelta(hours=2),
        "created_at": START,
        "outcome": "",
    }
    request = Request(state=state, **(facts | columns))
    return RequestView(request, None, (), (), (), of, rows, None, None)


def text_of(shown: RequestView, cost_usd: Decimal | None = None) -> str:
    message = request_message(shown, Policy(approvers=("U0BOB",)), CardFacts(cost_usd=cost_usd))
    return "\n".join([message.text, *map(str, message.blocks)])


def test_quoting_says_what_happens() -> None:
    assert "Looking for offers" in text_of(view(RequestState.QUOTING))
    assert "*Asked again*: The price moved." in text_of(view(RequestState.QUOTING, outcome="The price moved."))


def test_nobody_who_could_approve_is_said() -> None:
    message = request_message(view(RequestState.PENDING), Policy())
    assert "Nobody can approve this: the policy names no other approver" in message.text


def test_what_holds_for_all_attempts_is_shown_where_it_is_asked_again() -> None:
    votes = (
        Approval(quote_version=1, decision="approve", approver="slack:T1/U0BOB", limit_usd=Decimal(4)),
        Approval(quote_version=1, decision="approve", approver="slack:T1/U0CAROL", limit_usd=None),
    )
    again = view(RequestState.PENDING, quote_version=2, outcome="The offer is gone.")
    shown = text_of(replace(again, approvals=votes), Decimal("1.25"))
    assert "At most $4.00 for all attempts, set by <@U0BOB>." in shown
    assert "Earlier attempts cost $1.25." in shown
    assert "attempts" not in text_of(again, Decimal(0))


_I, _S = InstanceState, SessionState
LOGS_IN: dict[str, Any] = {"ref": "77", "ssh_host": "h", "live_at": START, "login_key": "k", "host_key_at": START}
FOUND = {"at": START.isoformat(), "gpus": [{"gpu": "T4", "memory_gb": "15"}], "driver": "550.54"}


@pytest.mark.parametrize(
    ("state", "columns", "said", "unsaid"),
    [
        (_I.READY, {}, "Launching on Vast", "confirmed"),
        (_I.SENDING, {}, "Vast has not confirmed it yet", "confirmed instance"),
        (_I.REJECTED, {"outcome": "the offer is gone"}, "Vast did not launch it: the offer is gone", "confirmed"),
        (_I.UNKNOWN, {}, "*Outcome unknown*", "confirmed"),
        (_I.TOMBSTONE, {}, "*not provisioned*", "confirmed"),
        (
            _I.LIVE,
            {"ref": "77", "status": "booting", "status_text": "<b>"},
            "Booting on Vast: &lt;b&gt;.",
            "Ready",
        ),
        (_I.LIVE, {"ref": "77", "status": "booting", "status_text": "STARTING"}, "Booting on Vast.", "STARTING"),
        (_I.LIVE, {"ref": "77", "ssh_host": "h", "live_at": START}, "Waiting for SSH to answer", "Ready"),
        (_I.LIVE, LOGS_IN, "SSH answers. Checking the GPUs.", "Waiting for SSH"),
        (_I.LIVE, {**LOGS_IN, "gpu_check": {"problem": "refused"}}, "GPU Shopper can't log in yet", "Waiting for SSH"),
        (_I.LIVE, {**LOGS_IN, "gpu_check": FOUND}, "Waiting for SSH to answer", "Checking"),
        (_I.LIVE, {"ref": "77", "ssh_host": "h", "reachable_at": START}, "Reachable over SSH", "Booting"),
        (_I.LIVE, {**LOGS_IN, "reachable_at": START, "gpu_check": FOUND}, ": 1 × T4, driver 550.54.", "Booting"),
        (_I.TERMINATING, {"ref": "77", "outcome": "asked."}, "Ending (asked); Vast still lists it", "Ready"),
        (_I.GONE, {"ref": "77", "ended_at": START}, "Terminated", "Booting"),
        (_I.STOPPED, {"ref": "77"}, "confirmed instance", "Booting"),
    ],
)
def test_each_step_says_what_is_known_and_no_more(
    state: InstanceState, columns: dict[str, Any], said: str, unsaid: str
) -> None:
    shown = view(RequestState.APPROVED, session(_S.PROVISIONING), instance(state, **columns))
    told = "\n".join(progress.lines(shown))
    assert said in told
    assert unsaid not in told


def test_a_second_order_is_numbered() -> None:
    shown = view(RequestState.APPROVED, session(_S.PROVISIONING), instance(_I.REJECTED), instance(_I.READY, n=2))
    assert "Launching on Vast (attempt 2)." in progress.lines(shown)[-1]


@pytest.mark.parametrize(
    ("of", "row", "said"),
    [
        (None, None, "Approved"),
        (session(_S.QUEUED), None, "Approved, waiting to launch"),
        (session(_S.QUEUED), instance(_I.REJECTED), "Trying the next offer"),
        (session(_S.PROVISIONING), instance(_I.SENDING), "Launching"),
        (session(_S.PROVISIONING), instance(_I.UNKNOWN), "Outcome unknown, not provisioned"),
        (session(_S.PROVISIONING), instance(_I.LIVE), "Booting"),
        (session(_S.PROVISIONING), instance(_I.LIVE, reachable_at=START), "Reachable"),
        (session(_S.RUNNING), instance(_I.LIVE), "Running"),
        (session(_S.TERMINATING), instance(_I.TERMINATING), "Ending"),
        (session(_S.TERMINATED), instance(_I.GONE), "Ended"),
        (session(_S.FAILED), instance(_I.GONE), "Failed"),
    ],
)
def test_the_headline(of: Session | None, row: Instance | None, said: str) -> None:
    shown = view(RequestState.APPROVED, of, *([row] if row is not None else []))
    assert said in progress.headline(shown)
    assert said in text_of(shown)


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (session(_S.RUNNING, ready_at=START, deadline=START), "*Ready*"),
        (session(_S.STOPPED), "*Stopped*"),
        (session(_S.TERMINATED, ended_at=START, end_reason="Ended on request."), "*Ended*"),
        (session(_S.FAILED, end_reason="no offer left"), "*Failed* (no offer left). Total: &lt;$0.01."),
    ],
)
def test_how_a_session_stands(of: Session, said: str) -> None:
    assert said in "\n".join(progress.lines(view(RequestState.APPROVED, of), Decimal("0.001")))


def test_the_reason_of_an_end_stands_once_and_another_reason_of_an_instance_stays() -> None:
    of = session(_S.TERMINATED, ended_at=START, end_reason="Ended on request.")
    lost = instance(_I.GONE, outcome="The cloud lost it.")
    last = instance(_I.GONE, n=2, outcome="Ended on request.")
    told = "\n".join(progress.lines(view(RequestState.APPROVED, of, lost, last)))
    assert (told.count("Ended on request"), told.count("The cloud lost it")) == (1, 1)
    assert ":white_check_mark: Terminated." in told


def test_an_approval_by_the_policy_names_it() -> None:
    told = text_of(view(RequestState.APPROVED, decided_by="system:policy"))
    assert "*Approved* by the policy" in told
    assert "*Approved* by the policy" in text_of(view(RequestState.APPROVED))


def test_closed_requests_name_who_and_why() -> None:
    closed: dict[str, Any] = {"decided_by": "operator:ada", "decided_at": START, "outcome": "too *dear*"}
    told = text_of(view(RequestState.REJECTED, **closed))
    assert "*Rejected* by operator ada" in told
    assert "too ∗dear∗" in told
    assert "*Cancelled* by API key k1" in text_of(view(RequestState.CANCELLED, decided_by="consumer:k1"))
    assert ":mag: No cloud has one." in text_of(view(RequestState.UNAVAILABLE, outcome="No cloud has one."))


def test_results() -> None:
    ended = view(RequestState.APPROVED, session(_S.TERMINATED, end_reason="Ended on request."), instance(_I.GONE))
    assert request_result(ended, "terminated").text.endswith("ended. Ended on request.")
    lost = request_result(view(RequestState.APPROVED, session(_S.FAILED), instance(_I.TOMBSTONE)), "tombstone").text
    assert "*outcome unknown, not provisioned*. Vast never showed" in lost
    ready = request_result(view(RequestState.APPROVED, session(_S.RUNNING, deadline=START)), "running").text
    assert "is ready at the cloud until <!date^" in ready


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        (GpuConstraint(("A100-80GB", "H100-SXM"), 2, 4), "2–4× A100-80GB or H100-SXM"),
        (GpuConstraint((), 1, 1, Decimal(40), None), "1× any GPU with 40 GB or more"),
        (GpuConstraint((), 1, 1, None, Decimal(24)), "1× any GPU with 24 GB or less"),
        (GpuConstraint((), 1, 1, Decimal(24), Decimal(48)), "1× any GPU with 24 to 48 GB"),
        (GpuConstraint((), 1, 1, Decimal(24), Decimal(24)), "1× any GPU with 24 GB"),
        (GpuConstraint(("a", "b", "c", "d", "e", "f"), 1, 1), "1× a or b or c or d or others"),
    ],
)
def test_gpus_in_words(gpu: GpuConstraint, said: str) -> None:
    assert job_text.gpus(gpu) == said


def test_every_limit_is_shown() -> None:
    full = replace(
        JOB,
        spot=SpotPolicy.ANY,
        budget_cap_usd=Decimal(50),
        max_price_usd_h=Decimal("2.5"),
        candidates=("vast",),
        regions=("EU",),
        min_reliability=Decimal("0.98"),
        memory_gb_total_min=Decimal(160),
        verified_only=True,
        min_cuda=Decimal("12.4"),
        min_capability=Decimal("8.9"),
        min_available_s=129_600,
        offer_id="vast:1",
        image="pytorch",
        model="7B",
    )
    assert job.details(full) == (
        "disk 50 GB · spot or on-demand · at most $50.00 in all · at most $2.50/h · clouds vast · regions EU · "
        "reliability 98% or more · verified machines only · 160 GB or more in all · CUDA 12.4 or newer · "
        "compute capability 8.9 or more · there for 36 h or more · only offer vast:1 · model 7B · image pytorch"
    )


def test_how_to_connect() -> None:
    row = instance(_I.LIVE, ssh_host="ssh4.example.com", ssh_port=2222, ssh_user="root")
    running = session(_S.RUNNING, deadline=START)
    shown = SessionView(running, view(RequestState.APPROVED).request, row, None, Decimal(0), None)
    told = all_text_of(session_ready_and_ended.ready(shown, "/gpu"))
    for part in ("`ssh -p 2222 root@ssh4.example.com`", "$4.20/h", "6 hours", "`/gpu terminate ymabv2`"):
        assert part in told
    assert "port `2222`" not in told
    more = all_text_of(status.details(shown, Policy(), START, Sight.OWN))
    for part in ("Host `ssh4.example.com`", "port `2222`", "user `root`"):
        assert part in more
    assert "Host" not in all_text_of(status.details(shown, Policy(), START, Sight.ALL))
    assert "no SSH address" in session_ready_and_ended.ready(replace(shown, instance=instance(_I.LIVE)), "/gpu").text
    assert "is ready" in session_ready_and_ended.ready(replace(shown, instance=None), "/gpu").text


def all_text_of(message: elements.Message) -> str:
    return "\n".join([message.text, *map(str, message.blocks)])


@pytest.mark.parametrize(("host", "user"), [("-oProxyCommand=x", "root"), ("h; rm -rf /", "root"), ("host", "$(x)")])
def test_a_host_that_is_no_host_is_not_put_into_a_command(host: str, user: str) -> None:
    row = instance(_I.LIVE, ssh_host=host, ssh_port=22, ssh_user=user)
    assert ssh_command(row) == "ssh -p 22 (host and user: see its details)"


def about(shown: SessionView, **columns: Any) -> session_ending.Ending:
    end = shown.session.deadline
    facts: dict[str, Any] = {"end_s": int(end.timestamp()) if end else 0, "cost_usd": Decimal("3.5")}
    rest: dict[str, Any] = {"cap_usd": Decimal(30), "why": "The approved 6 hours are over.", "inside": False}
    return session_ending.Ending(shown, **(facts | rest | {"waiting": False} | columns))


def labels(message: elements.Message) -> list[str]:
    return [b["text"]["text"] for block in message.blocks if block["type"] == "actions" for b in block["elements"]]


def test_an_early_end_says_why_and_has_its_three_buttons_until_it_does_not_stand_any_more() -> None:
    early_end_at = START + timedelta(minutes=5)
    running = session(
        _S.RUNNING, deadline=START + timedelta(hours=1), early_end_at=early_end_at, early_end_reason="It <idles>."
    )
    shown = SessionView(running, view(RequestState.APPROVED).request, instance(_I.LIVE), None, Decimal(0), None)
    about_it = session_ending.IdleWarningFacts(shown, int(early_end_at.timestamp()), Decimal("3.5"), Decimal(30))
    message = session_ending.idle_warning(about_it, START)
    assert labels(message) == ["Keep 1 h", "It is done", "End it now"]
    for part in ("5 minutes left", "It &lt;idles&gt;.", "$3.50 of at most $30.00", "<@U0ALICE>"):
        assert part in message.text
    for end_s in (0, int(early_end_at.timestamp()) + 1):
        assert "keeps running" in session_ending.idle_warning(replace(about_it, end_s=end_s), START).text
    running.state = _S.TERMINATING
    assert "is ending" in session_ending.idle_warning(about_it, START).text
    running.state = _S.TERMINATED
    assert session_ending.idle_warning(about_it, START).text == "The *4× A100-80GB* of <@U0ALICE> has ended."


def test_the_warning_says_what_when_why_what_it_cost_and_what_is_lost() -> None:
    row = instance(_I.LIVE)
    running = session(_S.RUNNING, deadline=START + timedelta(minutes=72))
    shown = SessionView(running, view(RequestState.APPROVED).request, row, None, Decimal(0), None)
    message = session_ending.ending(about(shown), "/gpu", START)
    for part in (
        "4× A100-80GB* at vast of <@U0ALICE> ends",
        "(1 h 12 min left)",
        "The approved 6 hours are over.",
        "$3.50 of at most $30.00",
        "Everything in / and /workspace will be deleted. Save what you need first.",
        "`/gpu extend ymabv2 2h`",
    ):
        assert part in message.text
    assert labels(message) == ["Ask for more time…", "It is done", "End it now"]
    assert labels(session_ending.ending(about(shown, inside=True), "/gpu", START))[0] == "Keep 1 hour"
    assert "waits for an approval" in session_ending.ending(about(shown, waiting=True), "/gpu", START).text
    mark = next(block for block in message.blocks if block["type"] == "actions")["elements"][0]["value"]
    assert mark == f"{running.id}/{about(shown).end_s}"
    assert "Final warning" in session_ending.final_warning(about(shown), START).text
    moved = session_ending.ending(about(shown, end_s=1), "/gpu", START)
    assert "now ends" in moved.text
    assert labels(moved) == []


def test_a_warning_after_the_end_is_one_line_about_the_past() -> None:
    over = SessionView(session(_S.TERMINATED), view(RequestState.APPROVED).request, None, None, Decimal(0), None)
    past = "The *4× A100-80GB* of <@U0ALICE> has ended."
    assert session_ending.ending(about(over), "/gpu", START).text == past
    assert session_ending.final_warning(about(over), START).text == "It has ended."
    assert session_ready_and_ended.ready_after_end(over.session).text == "Your *4× A100-80GB* has ended."
    ran = session(_S.TERMINATED, ready_at=START, ended_at=START + timedelta(minutes=90))
    assert session_ready_and_ended.ready_after_end(ran).text == "Your *4× A100-80GB* ran 1 h 30 min."
    again = replace(over, session=session(_S.QUEUED))
    assert "has new offers to approve" in session_ending.ending(about(again), "/gpu", START).text
    failed = replace(over, session=session(_S.FAILED, end_reason="No offer was left."))
    assert session_ready_and_ended.ended(failed, Decimal(0)).text.endswith(
        "failed. No offer was left. It cost nothing."
    )


def test_cutting_leaves_no_half_of_anything() -> None:
    assert elements.clip("short", 10) == "short"
    assert elements.clip("hello <@U0ALICE> there", 12) == "hello…"
    assert elements.clip("a &amp; b", 5) == "a…"
    assert elements.clip("<@U0A> " * 100, 50).endswith("<@U0A>…")


def test_people_and_places() -> None:
    assert elements.person("slack:T1/U0ALICE") == "<@U0ALICE>"
    assert elements.person("slack:T1/<!here>") == "&lt;!here&gt;"
    assert elements.person("system:ticker") == "GPU Shopper"
    assert elements.person("") == "somebody"
    assert elements.channel("C0GPU") == "<#C0GPU>"
    assert elements.channel("") == "a channel"
    assert elements.mentions(["U0BOB"] * 25).endswith("and others")
    assert elements.mentions(["S0TEAM", "operator:ada"]) == "<!subteam^S0TEAM>, operator ada"


def test_foreign_text_formats_nothing_but_stays_readable() -> None:
    assert elements.safe("*bold* _it_ ~no~ `code` RTX_4090 2*3") == "∗bold∗ ˍitˍ ∼no∼ ʼcodeʼ RTX_4090 2*3"
    assert elements.code("a`b") == "`aʼb`"
    assert elements.code("") == "`–`"


def test_a_run_that_nothing_can_end_has_no_ssh_and_no_button() -> None:
    row = instance(_I.LIVE, billing_from=START, billing_until=START + timedelta(minutes=90), reachable_at=START)
    running = session(_S.RUNNING, deadline=START + timedelta(hours=6))
    shown = SessionView(running, view(RequestState.APPROVED).request, row, None, Decimal(0), None)
    ready = session_ready_and_ended.ready(shown, "/gpu", KAGGLE)
    assert "There is no SSH" in ready.text
    assert "Its cloud can't end it" in ready.text
    told = session_ending.ending(about(shown, can_end=False), "/gpu", START)
    assert "Its cloud can't end it" in told.text
    assert not [block for block in (*ready.blocks, *told.blocks) if block["type"] == "actions"]
    assert "used about 1.5 hours of the quota" in session_ready_and_ended.ended(shown, Decimal(0), KAGGLE).text
    unseen = replace(shown, instance=instance(_I.LIVE))
    assert "It cost nothing." in session_ready_and_ended.ended(unseen, Decimal(0), KAGGLE).text
    assert "Vast reports that it runs" in "\n".join(progress.lines(view(RequestState.APPROVED, running, row), None))


@pytest.mark.parametrize(
    ("ref", "said"),
    [
        ("ada/run-1/3", "Its results are on <https://www.kaggle.com/code/ada/run-1|its page>."),
        ("ada/<x|y>/3", "<https://www.kaggle.com/code/ada/%3Cx%7Cy%3E|its page>"),
        ("odd", "of the quota."),
    ],
)
def test_the_end_of_a_run_names_the_page_of_what_it_left(ref: str, said: str) -> None:
    row = instance(_I.GONE, ref=ref, billing_from=START, billing_until=START + timedelta(hours=1))
    shown = SessionView(session(_S.TERMINATED), view(RequestState.APPROVED).request, row, None, Decimal(0), None)
    assert (
        said
        in session_ready_and_ended.ended(
            shown, Decimal(0), replace(KAGGLE, page_url="https://www.kaggle.com/code/{0}/{1}")
        ).text
    )
