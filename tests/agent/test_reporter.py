"""The reporter against a small server over HTTP: its tokens, its numbers, and answers that are wrong."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bot.agent import settings
from bot.agent.credentials import Credentials
from bot.agent.gpus import NvmlGpu, NvmlGpus, look
from bot.agent.job_files import JobFiles
from bot.agent.reporter import LAST_PAUSE_S, SECOND_S, Reporter
from bot.agent.self_termination import EndCall, calls, end_machine, send
from bot.agent.settings import CLOUD_URL
from bot.wire.checkin import MOST, CheckinAnswer
from bot.wire.codec import from_json
from tests.agent.service import BROKEN, TOKEN, Call, Service, checkin_answer, service

NONCE = "n" * 43
IDLE = NvmlGpus((NvmlGpu("RTX 4090", 24564, 0, 0.0, 31),), "570.1", "12.8")
BUSY = NvmlGpus((*IDLE.gpus, NvmlGpu("RTX 4090", 24564, 20000, 97.0, 70)))


@pytest.fixture
def here() -> Iterator[Service]:
    with service() as one:
        yield one


def reporter(here: Service, **changes: Any) -> Reporter:
    usual: dict[str, Any] = {"look": lambda: IDLE, "job": JobFiles(Path("/nowhere"))}
    return Reporter(settings.read(here.environment()), NONCE, **{**usual, **changes})


def test_the_boot_token_is_exchanged_once_and_the_first_check_in_waits_for_no_driver(here: Service) -> None:
    one = reporter(here)
    answer = one.check_in()
    assert answer is not None
    assert one.next_in_s == SECOND_S
    assert one.check_in() is not None
    assert one.next_in_s == 60
    first, second = here.calls
    assert (first.token, first.body["nonce"], first.body.get("utilisation")) == (TOKEN, NONCE, None)
    assert (second.token, second.body["utilisation"]) == ("gpuc_made", ["0.0"])
    assert "nonce" not in second.body
    assert second.body["seq"] > first.body["seq"]
    assert not first.agent.startswith("Python-urllib")


def test_check_ins_come_sooner_until_the_api_serves_or_for_a_while(here: Service) -> None:
    given = {"port": 8443, "certificate": "c", "key": "k"}
    here.answer = lambda call: (200, checkin_answer(call.body["seq"], api=given))
    one, pauses = reporter(here), list[float]()
    for _ in range(6):
        assert one.check_in() is not None
        pauses.append(one.next_in_s)
    assert pauses == [SECOND_S, 4, 8, 16, 60, 60]
    quick = reporter(here)
    quick.check_in()
    quick.api._served = {"port": 8443, "certificate_sha256": "0" * 64}
    quick.check_in()
    assert quick.next_in_s == 60


def test_a_refused_token_is_exchanged_again_with_the_same_nonce(here: Service) -> None:
    one = reporter(here)
    one.check_in()
    here.answer = lambda call: (401, {})
    assert one.check_in() is None
    assert "answered with 401" in one.problem
    here.answer = lambda call: (200, checkin_answer(call.body["seq"]))
    assert one.check_in() is not None
    assert (here.calls[-1].token, here.calls[-1].body["nonce"]) == (TOKEN, NONCE)


def test_a_calendar_clock_that_was_set_back_locks_nobody_out(here: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    one = reporter(here, seq=0)
    monkeypatch.setattr(time, "time_ns", lambda: 5_000_000)
    here.answer = lambda call: (409, {"code": "replayed", "data": {"seq": "900000"}})
    assert one.check_in() is None
    here.answer = lambda call: (200, checkin_answer(call.body["seq"]))
    assert one.check_in() is not None
    assert here.calls[-1].body["seq"] == 900_001


def test_a_restarted_reporter_goes_on_counting(here: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    reporter(here, seq=41).check_in()
    assert here.calls[0].body["seq"] == 42


def test_an_answer_that_somebody_held_back_is_not_passed_on(here: Service) -> None:
    one = reporter(here)
    old = checkin_answer(7)
    here.answer = lambda call: (200, old)
    answer = one.check_in()
    assert answer is not None
    assert one.signed(answer) == {}
    passed = one.signed(from_json(CheckinAnswer, checkin_answer(one.seq)))
    assert passed["message"] == checkin_answer(one.seq)["deadline"]["message"]
    assert passed["at_boot_s"] > 0


@pytest.mark.parametrize(
    "deadline", [None, 7, {}, {"message": "{", "signature": "x"}, {"message": "[]", "signature": ""}]
)
def test_an_answer_without_a_readable_end_passes_nothing_on(here: Service, deadline: object) -> None:
    assert reporter(here).signed(from_json(CheckinAnswer, {"deadline": deadline}, is_lenient=True)) == {}


@pytest.mark.parametrize(
    ("status", "body"),
    [(500, {}), (404, b"<html>"), (200, b"no json"), (200, []), (307, {}), (200, b"\xff"), (BROKEN, {})],
)
def test_another_answer_is_a_failure_that_is_tried_again_ever_later(here: Service, status: int, body: Any) -> None:
    one = reporter(here)
    here.answer = lambda call: (status, body)
    pauses = []
    for _ in range(7):
        assert one.check_in() is None
        pauses.append(one.next_in_s)
    assert pauses == [2, 4, 8, 16, 32, LAST_PAUSE_S, LAST_PAUSE_S]
    assert one.problem
    assert {call.path for call in here.calls} == {"/agent/v1/checkin"}


@pytest.mark.parametrize("asks", [None, 7, "save", {}])
def test_asks_that_are_no_list_ask_nothing(here: Service, tmp_path: Path, asks: Any) -> None:
    here.answer = lambda call: (200, checkin_answer(call.body["seq"], asks=asks))
    assert reporter(here, job=JobFiles(tmp_path)).check_in() is not None
    assert (tmp_path / "asks").read_text() == ""


@pytest.mark.parametrize(("asked", "waits_s"), [(5, 5), (0, 1), (10**9, 3600), ("x", 60), (None, 60)])
def test_the_service_says_when_to_report_again(here: Service, asked: Any, waits_s: float) -> None:
    one = reporter(here)
    one.check_in()
    here.answer = lambda call: (200, checkin_answer(call.body["seq"], next_in_s=asked))
    one.check_in()
    assert one.next_in_s == waits_s


def test_version_two_goes_to_a_service_of_before_as_version_one(here: Service) -> None:
    one = reporter(here)
    here.answer = lambda call: (422, {}) if "machine" in call.body else (200, checkin_answer(call.body["seq"]))
    assert one.check_in() is None
    assert one.check_in() is not None
    assert [call.body.get("v") for call in here.calls] == [2, None]


def test_the_job_reads_what_is_asked_and_reports_how_far_it_is(here: Service, tmp_path: Path) -> None:
    job = JobFiles(tmp_path)
    job.prepare()
    (tmp_path / "job/report.json").write_text('{"step": 7, "job": "done", "seq": 1}')
    here.answer = lambda call: (200, checkin_answer(call.body["seq"], asks=["save", "upload"]))
    one = reporter(here, job=job)
    one.check_in()
    assert (here.calls[0].body["step"], here.calls[0].body["job"], here.calls[0].body["seq"]) == (7, "done", one.seq)
    assert (tmp_path / "asks").read_text() == "save\nupload\n"


def test_an_interruption_is_reported(here: Service) -> None:
    one = reporter(here, interruption="it shuts down")
    one.check_in()
    assert here.calls[0].body["machine"]["interruption"] == "it shuts down"


def test_nobody_answers() -> None:
    with service() as gone:
        one = reporter(gone)
    assert one.check_in() is None
    assert "can't be reached" in one.problem


def test_gpus_are_idle_since_none_of_them_works(here: Service) -> None:
    seen = [IDLE, IDLE, BUSY, IDLE, NvmlGpus(problem="no driver")]
    one = reporter(here, look=lambda: seen.pop(0))
    for _ in range(6):
        one.check_in()
    since = [call.body.get("idle_since") for call in here.calls]
    assert since[0] is None
    assert since[1] is not None
    assert since[1] == since[2]
    assert since[3] is None
    assert since[4] not in (None, since[1])
    assert since[5] is None


def test_a_machine_without_a_driver_has_no_gpus_and_says_why() -> None:
    found = look()
    assert bool(found.gpus) is not bool(found.problem)


# ── ending the machine ─────────────────────────────────────────────────────────────────────────────────────────────


def test_calls_that_end_vast_and_runpod() -> None:
    vast = calls({"CONTAINER_ID": "77", "CONTAINER_API_KEY": "k"})
    assert [(one.method, one.url) for one in vast] == [
        ("DELETE", "https://console.vast.ai/api/v0/instances/77/"),
        ("PUT", "https://console.vast.ai/api/v0/instances/77/"),
    ]
    runpod = calls({"RUNPOD_POD_ID": "a/b", "RUNPOD_API_KEY": "k"})
    assert [(one.method, one.url) for one in runpod] == [
        ("DELETE", "https://api.runpod.io/v2/pods/a%2Fb"),
        ("POST", "https://api.runpod.io/graphql"),
        ("POST", "https://api.runpod.io/v2/pods/a%2Fb/action"),
    ]


def test_the_calls_are_tried_in_turn_and_all_of_them_from_the_third_time(here: Service) -> None:
    environment = {"RUNPOD_POD_ID": "p", "RUNPOD_API_KEY": "secret", CLOUD_URL: here.url}
    here.answer = lambda call: (403, {}) if call.method == "DELETE" else (200, {"data": None})
    assert end_machine(environment, 1) == ""
    assert [call.path for call in here.calls] == ["/v2/pods/p", "/graphql"]
    assert {call.token for call in here.calls} == {"secret"}
    here.calls.clear()
    assert end_machine(environment, 3) == ""
    assert [call.path for call in here.calls] == ["/v2/pods/p", "/graphql", "/v2/pods/p/action"]


def test_a_cloud_that_refuses_or_is_cut_off_is_named_without_the_key(here: Service) -> None:
    environment = {"RUNPOD_POD_ID": "p", "RUNPOD_API_KEY": "secret", CLOUD_URL: here.url}
    here.answer = lambda call: (200, {"errors": [{"message": "no"}]}) if call.path == "/graphql" else (401, {})
    said = end_machine(environment, 1)
    assert "DELETE /v2/pods/p was answered with 401; POST /graphql was refused" in said
    assert "tries again" in said
    cut = end_machine({**environment, CLOUD_URL: "http://127.0.0.1:9"}, 1)
    assert "did not get through" in cut
    assert "secret" not in said + cut


def test_an_answer_that_is_no_http_does_not_keep_the_next_call_from_being_tried(here: Service) -> None:
    here.answer = lambda call: (BROKEN, {}) if call.method == "DELETE" else (200, {})
    assert end_machine({"CONTAINER_ID": "7", "CONTAINER_API_KEY": "k", CLOUD_URL: here.url}, 1) == ""
    assert [call.method for call in here.calls] == ["DELETE", "PUT"]


def test_a_key_follows_no_redirect(here: Service) -> None:
    here.answer = lambda call: (307, {})
    assert "answered with 307" in send(EndCall("DELETE", f"{here.url}/x", "secret"))
    assert [call.path for call in here.calls] == ["/x"]


def test_secrets_are_asked_for_with_the_exchanged_token_until_they_came(here: Service, tmp_path: Path) -> None:
    one = reporter(here, credentials=Credentials(tmp_path / "agent/credentials.sh", "boot"))
    one.check_in()
    assert "wants_secrets" not in here.calls[-1].body  # The boot token is in the environment of every program.
    one.check_in()
    assert here.calls[-1].body["wants_secrets"] is True
    assert one.credentials is not None
    assert one.credentials.names() is None
    here.answer = lambda call: (200, checkin_answer(call.body["seq"], secrets={"HF_TOKEN": "x"}))
    one.check_in()
    assert one.credentials.names() == frozenset({"HF_TOKEN"})
    one.check_in()
    assert "wants_secrets" not in here.calls[-1].body
    assert "hf_canary" not in repr(one)


def test_the_newest_signed_end_is_shown_until_a_service_of_before_refuses_it(here: Service) -> None:
    signed = {"message": "", "signature": "c2lnbmVk"}

    def answer(end_s: int | None) -> None:
        def reply(call: Call) -> tuple[int, dict[str, Any]]:
            signed["message"] = json.dumps({"deadline_s": end_s, "n": call.body["seq"]})
            return 200, checkin_answer(call.body["seq"], deadline=dict(signed))

        here.answer = reply

    one = reporter(here)
    answer(1_000)
    checkin = one.check_in()
    assert checkin is not None
    shown = dict(signed)
    assert one.signed(checkin)["message"] == shown["message"]
    assert "signed_end" not in here.calls[-1].body
    answer(None)  # It keeps the end that it has.
    checkin = one.check_in()
    assert checkin is not None
    assert here.calls[-1].body["signed_end"] == shown
    assert one.signed(checkin)["message"] != shown["message"]
    one.check_in()
    assert here.calls[-1].body["signed_end"] == shown
    here.answer = lambda call: (422, {})
    assert one.check_in() is None
    answer(1_000)
    assert one.check_in() is not None
    assert "signed_end" not in here.calls[-1].body
    assert here.calls[-1].body["v"] == 2


def test_a_number_that_is_too_great_ends_no_reporter(here: Service) -> None:
    here.answer = lambda _: (409, {"data": {"seq": MOST}})
    one = reporter(here)
    assert [one.check_in() for _ in range(3)] == [None] * 3
    assert [call.body["seq"] for call in here.calls[1:]] == [MOST] * 2


def test_an_answer_that_is_no_object_is_not_ours(here: Service) -> None:
    here.answer = lambda _: (200, ["x"])
    one = reporter(here)
    assert one.check_in() is None
    assert one.problem.endswith("did not answer as GPU Shopper does")
