"""What Kaggle's answers mean: the tables of a push and of other calls, quota strings, statuses and lists."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from providers.clouds.kaggle.adapter import KaggleConfig, KaggleProvider
from providers.clouds.kaggle.errors import Pushed, call_error, pushed, retry_after_s
from providers.clouds.kaggle.instances import kernels, observed, push_body
from providers.clouds.kaggle.quota import gpu_quota
from providers.contract import InstanceStatus, Listing
from providers.errors import (
    AuthFailed,
    InvalidSpec,
    NotSent,
    OutcomeUnknown,
    ProviderError,
    QuotaExceeded,
    RateLimited,
    Unavailable,
    UnexpectedResponse,
)
from providers.http import HttpReply
from tests.providers.clouds.kaggle.served import grant, spec
from tests.providers.scripted import NOT_JSON, answer, playing
from tests.support.clock import START, SteppedClock

GOOD = {"ref": "/code/ada/train-7f3c", "versionNumber": 1}
REFUSED = {"ref": "", "url": "", "versionNumber": 0, "hasError": True}


def reply(body: Any, status: int = 200, **headers: str) -> HttpReply:
    return HttpReply(status, {k.replace("_", "-"): v for k, v in headers.items()}, "", body)


def no(code: int, message: str = "no") -> dict[str, Any]:
    return {"code": code, "message": message}


PUSHES: list[tuple[HttpReply, type[ProviderError]]] = [
    (reply({**REFUSED, "error": "Maximum batch GPU session count of 2 reached."}), QuotaExceeded),
    (reply({**REFUSED, "error": "Maximum batch CPU session count of 5 reached."}), QuotaExceeded),
    (reply({**REFUSED, "errorNullable": "Maximum weekly GPU quota of 30.00 hours reached."}), QuotaExceeded),
    (reply({**REFUSED, "error": "Something else."}), InvalidSpec),
    (reply({**GOOD, "error": "Something else."}), OutcomeUnknown),
    (reply({**GOOD, "invalidDatasetSources": ["ada/data"]}), OutcomeUnknown),
    (reply({**GOOD, "versionNumber": 0}), OutcomeUnknown),
    (reply({**GOOD, "versionNumber": True}), OutcomeUnknown),
    (reply({**GOOD, "versionNumber": "1"}), OutcomeUnknown),
    (reply({**GOOD, "ref": "/code/ada"}), OutcomeUnknown),
    (reply({"versionNumber": 1}), OutcomeUnknown),
    (reply({}), OutcomeUnknown),
    (reply(None), OutcomeUnknown),
    (reply([]), OutcomeUnknown),
    (reply(None, 204), OutcomeUnknown),
    (reply(None, 302), OutcomeUnknown),
    (reply(no(400), 400), InvalidSpec),
    (reply(None, 400), OutcomeUnknown),
    (reply(no(401), 401), AuthFailed),
    (reply(no(403), 403), AuthFailed),
    (reply(no(403)), AuthFailed),
    (reply(None, 403), OutcomeUnknown),
    (reply(no(404), 404), InvalidSpec),
    (reply(no(409), 409), OutcomeUnknown),
    (reply(no(413), 413), InvalidSpec),
    (reply(no(422), 422), InvalidSpec),
    (reply(no(429), 429), RateLimited),
    (reply(None, 429), RateLimited),
    (reply(no(429)), RateLimited),
    (reply(no(500), 500), OutcomeUnknown),
    (reply(no(503)), OutcomeUnknown),
    (reply(None, 504), OutcomeUnknown),
]


@pytest.mark.parametrize(("said", "error"), PUSHES)
def test_every_no_and_every_doubt_of_a_push(said: HttpReply, error: type[ProviderError]) -> None:
    with pytest.raises(ProviderError) as caught:
        pushed(said, START)
    assert type(caught.value) is error


@pytest.mark.parametrize("ref", ["/code/ada/train-7f3c", "ada/train-7f3c"])
def test_a_yes_has_a_path_and_a_version(ref: str) -> None:
    assert pushed(reply({**GOOD, "ref": ref, "error": "", "invalidTags": []}), START) == Pushed("ada/train-7f3c", 1)


def test_secrets_are_cut_out_of_what_kaggle_says() -> None:
    said = reply({**REFUSED, "error": "bad \n line: swordfish " + "x" * 500})
    with pytest.raises(InvalidSpec) as caught:
        pushed(said, START, ["swordfish", ""])
    assert "swordfish" not in caught.value.message
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 250


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (reply(no(400), 400), InvalidSpec),
        (reply(no(401), 401), AuthFailed),
        (reply(no(403)), AuthFailed),
        (reply(no(404), 404), InvalidSpec),
        (reply(no(429)), RateLimited),
        (reply(no(408), 408), Unavailable),
        (reply(None, 500), Unavailable),
        (reply(no(500)), Unavailable),
        (reply(None, 302), UnexpectedResponse),
        (reply(no(418), 418), UnexpectedResponse),
    ],
)
def test_every_other_call(said: HttpReply, error: type[ProviderError]) -> None:
    assert type(call_error(said, START)) is error


def test_a_success_is_no_error() -> None:
    assert call_error(reply({}), START) is None
    assert call_error(reply({"code": 0}), START) is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        ("Mon, 02 Mar 2026 09:00:30 GMT", 30.0),
        ("Mon, 02 Mar 2026 09:00:30 -0000", 30.0),
        ("Mon, 02 Mar 2026 08:00:00 GMT", 0.0),
        ("-1", None),
        ("inf", None),
        ("soon", None),
        ("", None),
    ],
)
def test_retry_after_in_both_forms(value: str, seconds: float | None) -> None:
    assert retry_after_s(value, START) == seconds


# ── quota ────────────────────────────────────────────────────────────────────────────────────────


def test_the_quota_is_read_from_durations() -> None:
    gpu = {"timeUsed": "18000.5s", "timeReserved": "3600s", "totalTimeAllowed": "108000s"}
    quota = gpu_quota({"quotaRefreshTime": "2026-11-28T00:00:00Z", "gpuQuota": gpu})
    assert quota is not None
    assert quota.left_s == Decimal("86399.5")
    assert quota.refreshes_at == datetime(2026, 11, 28, tzinfo=UTC)
    assert quota.warning == ""


@pytest.mark.parametrize(
    "body",
    [
        None,
        {},
        {"gpuQuota": None},
        {"gpuQuota": {}},
        {"gpuQuota": {"totalTimeAllowed": 108000}},
        {"gpuQuota": {"totalTimeAllowed": "30h"}},
        {"gpuQuota": {"totalTimeAllowed": "1s", "timeUsed": "-1s"}},
    ],
)
def test_an_unreadable_quota_is_unknown(body: Any) -> None:
    assert gpu_quota(body) is None


@given(used=st.integers(0, 200_000), allowed=st.integers(1, 200_000))
def test_a_warning_comes_with_the_last_tenth_and_never_before(used: int, allowed: int) -> None:
    quota = gpu_quota({"gpuQuota": {"timeUsed": f"{used}s", "totalTimeAllowed": f"{allowed}s"}})
    assert quota is not None
    assert quota.left_s == max(allowed - used, 0)
    assert bool(quota.warning) is (used * 10 >= allowed * 9)


# ── runs and lists ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("QUEUED", InstanceStatus.PENDING),
        ("KERNEL_WORKER_STATUS_RUNNING", InstanceStatus.RUNNING),
        ("KernelWorkerStatus.COMPLETE", InstanceStatus.TERMINATED),
        ("running", InstanceStatus.RUNNING),
        ("error", InstanceStatus.TERMINATED),
        ("cancelAcknowledged", InstanceStatus.TERMINATED),
        ("CANCEL_REQUESTED", InstanceStatus.RUNNING),
        ("NEW_SCRIPT", InstanceStatus.PENDING),
        ("", InstanceStatus.PENDING),
        (0, InstanceStatus.PENDING),
        ("DREAMING", InstanceStatus.PENDING),
        (7, InstanceStatus.PENDING),
    ],
)
def test_status_words(word: Any, status: InstanceStatus) -> None:
    assert observed("ada/train/1", {"status": word}).status is status


@pytest.mark.parametrize("body", [None, [], {"status": None}, {"status": True}])
def test_no_status_is_no_run(body: Any) -> None:
    with pytest.raises(UnexpectedResponse):
        observed("ada/train/1", body)


@pytest.mark.parametrize(
    "body", [[], {"kernels": {}}, {"kernels": [{}]}, {"kernels": [{"ref": "ada"}]}, {"kernels": [7]}]
)
def test_a_list_without_kernels_is_none(body: Any) -> None:
    with pytest.raises(UnexpectedResponse):
        kernels(body)


def test_an_empty_list_may_be_left_out_and_times_may_lack_a_zone() -> None:
    assert kernels({}) == ()
    rows = [{"ref": "ada/one", "lastRunTime": "2026-03-02T08:00:00", "currentVersionNumber": 3}, {"ref": "ada/two"}]
    one, two = kernels({"kernels": rows})
    assert (one.ref, one.last_run_at) == ("ada/one/3", START - timedelta(hours=1))
    assert (two.ref, two.last_run_at, two.may_run(START)) == ("ada/two/1", None, True)
    assert not one.may_run(START + timedelta(days=1))
    assert kernels({"kernels": [{"ref": "ada/odd", "lastRunTime": "soon"}]})[0].last_run_at is None


def test_an_offer_of_another_cloud_cannot_be_pushed() -> None:
    given = spec()
    foreign = spec(offer=type(given.offer)("vast", "7", "T4", 2, Decimal(16), "any", False, Decimal(1), START))
    with pytest.raises(InvalidSpec, match="does not come from kaggle"):
        push_body(foreign, "ada", 3600, START)


def test_a_listing_of_a_batch_cloud_proves_no_absence() -> None:
    assert Listing("kaggle", "a", START, ()).absence("ref", "name") is not None
    assert Listing("kaggle", "a", START, (), proves_absence=False).absence("ref", "name") is None


# ── settings and broken answers ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("field", ["username", "api_key", "api_token"])
def test_a_credential_that_cannot_be_sent_is_refused_without_being_shown(field: str) -> None:
    with pytest.raises(ValidationError, match="printable ASCII") as caught:
        KaggleConfig(**{field: "hunter2 with spaces"})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "script",
    [
        [NOT_JSON],
        [answer([])],
        [answer({"kernels": [{"ref": f"ada/k-{n}"} for n in range(20)], "nextPageToken": "same"})],
        [answer({"kernels": [], "nextPageToken": 7})],
    ],
    ids=["no json", "no object", "a token that leads nowhere", "a token that is none"],
)
async def test_answers_that_prove_nothing(script: list[bytes]) -> None:
    async with playing(*script) as played:
        config = KaggleConfig(username="ada", api_key="0" * 32, base_url=f"http://127.0.0.1:{played.port}")
        provider = KaggleProvider(config, SteppedClock())
        with pytest.raises(UnexpectedResponse):
            await provider.list()
        with pytest.raises(NotSent):
            await provider.create(spec(), grant())
        await provider.close()
