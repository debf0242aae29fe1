"""The sandbox by itself: both forms of every call, sessions and quota by the clock, outputs, logs, and the controls."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import httpx
import pytest
import pytest_asyncio

from providers.clouds.kaggle.adapter import KaggleConfig, KaggleProvider
from providers.sandbox.clock import SandboxTiming
from providers.sandbox.faults import COMMON_FAULTS, PRICE_FAULTS, SSH_FAULTS
from providers.sandbox.kaggle.account import EPOCH
from providers.sandbox.kaggle.faults import FAULTS
from providers.sandbox.kaggle.routes_kernels import GROUPS
from tests.providers.clouds.kaggle.served import CALL, SOURCE, Served, running

MINE = {"userName": "simuser", "kernelSlug": "my-kernel"}
#: Common faults that need SSH or a price, which Kaggle has not.
NOT_HERE = SSH_FAULTS | PRICE_FAULTS


@pytest_asyncio.fixture
async def kaggle() -> AsyncIterator[Served]:
    async with running() as served:
        yield served


async def status(served: Served, slug: str = "my-kernel", **more: Any) -> dict[str, Any]:
    reply = await served.call("GetKernelSessionStatus", {"userName": "simuser", "kernelSlug": slug, **more})
    body: dict[str, Any] = reply.json()
    return body


async def test_a_push_is_answered_as_observed(kaggle: Served) -> None:
    body = (await kaggle.push("my-kernel")).json()

    assert (body["ref"], body["versionNumber"]) == ("/code/simuser/my-kernel", 1)
    assert body["url"] == "https://www.kaggle.com/code/simuser/my-kernel"
    assert (await kaggle.push("my-kernel")).json()["versionNumber"] == 2


@pytest.mark.parametrize("prefix", ["/v1/kernels.KernelsApiService", "/api/v1/kernels.KernelsApiService"])
async def test_both_prefixes_of_a_remote_call(kaggle: Served, prefix: str) -> None:
    await kaggle.push("my-kernel")
    assert (await kaggle.http.post(f"{prefix}/GetKernelSessionStatus", json=MINE)).json() == {"status": "QUEUED"}


async def test_the_classic_paths(kaggle: Served) -> None:
    pushed = await kaggle.http.post("/api/v1/kernels/push", json={"slug": "simuser/my-kernel", **SOURCE})
    assert pushed.json()["versionNumber"] == 1
    assert (await kaggle.http.get("/api/v1/kernels/status", params=MINE)).json() == {"status": "QUEUED"}
    listed = await kaggle.http.get("/api/v1/kernels/list", params={"group": "PROFILE", "pageSize": "5"})
    assert [row["ref"] for row in listed.json()["kernels"]] == ["simuser/my-kernel"]
    assert (await kaggle.http.get("/api/v1/kernels/quota")).json()["gpuQuota"]["totalTimeAllowed"] == "108000s"
    assert (await kaggle.http.get("/api/v1/competitions/list")).json()["competitions"]
    pulled = (await kaggle.http.get("/api/v1/kernels/pull", params=MINE)).json()
    assert (pulled["blob"]["source"], pulled["metadata"]["currentVersionNumber"]) == ("print(1)\n", 1)
    kaggle.step(700)
    file = await kaggle.http.get("/api/v1/kernels/output/download/simuser/my-kernel/result.txt")
    assert file.text == "result of simuser/my-kernel/1\n"
    assert (await kaggle.http.get("/api/v1/kernels/output/download/simuser/my-kernel/no.txt")).status_code == 404
    assert (await kaggle.http.post("/api/v1/kernels/delete/simuser/my-kernel")).json() == {}
    assert (await kaggle.http.get("/api/v1/kernels/status", params=MINE)).status_code == 403


async def test_both_kinds_of_credentials_and_no_others(kaggle: Served) -> None:
    token = kaggle.cloud.API_TOKEN
    async with httpx.AsyncClient(base_url=kaggle.url, trust_env=False) as http:
        quota = f"{CALL}/GetAcceleratorQuotaStatistics"
        assert (await http.post(quota, json={}, headers={"Authorization": f"Bearer {token}"})).status_code == 200
        refused = await http.post(quota, json={}, auth=("simuser", "0" * 32))
        assert (refused.status_code, refused.json()["code"]) == (401, 401)
        assert (await http.post(quota, json={})).status_code == 401
        introspect = "/v1/security.OAuthService/IntrospectToken"
        assert (await http.post(introspect, json={"token": token})).json()["username"] == "simuser"
        assert (await http.post(introspect, json={"token": "KGAT_x"})).status_code == 400


async def test_a_run_walks_by_the_clock_and_its_timeout_is_kept(kaggle: Served) -> None:
    kaggle.arm("runs_over")
    await kaggle.push("my-kernel", sessionTimeoutSeconds=1000)
    assert await status(kaggle) == {"status": "QUEUED"}
    kaggle.step(3)
    assert await status(kaggle) == {"status": "RUNNING"}
    kaggle.step(999)
    assert await status(kaggle) == {"status": "RUNNING"}
    kaggle.step(1)
    ended = await status(kaggle)
    assert (ended["status"], "timeout" in ended["failureMessage"]) == ("ERROR", True)
    (run,) = kaggle.cloud.instances()
    assert (int(run.gpu_s), int(run.total_usd), run.alive) == (1000, 0, False)


@pytest.mark.parametrize(("fault", "hours"), [(None, 12), ("nine_hours", 9)])
async def test_no_session_outlives_the_cap(kaggle: Served, fault: str | None, hours: int) -> None:
    kaggle.arm("runs_over")
    if fault:
        kaggle.arm(fault)
    await kaggle.push("my-kernel", sessionTimeoutSeconds=99 * 3600)
    kaggle.step(3 + hours * 3600 - 1)
    assert (await status(kaggle))["status"] == "RUNNING"
    kaggle.step(1)
    assert (await status(kaggle))["status"] == "ERROR"


async def test_a_third_session_and_a_used_up_week_are_refused_under_200(kaggle: Served) -> None:
    await kaggle.push("first-one")
    await kaggle.push("second-one")
    third = await kaggle.push("third-one")
    assert (third.status_code, third.json()["error"]) == (200, "Maximum batch GPU session count of 2 reached.")
    assert third.json()["versionNumber"] == 0

    kaggle.step(3600)
    kaggle.cloud.withdraw("*")
    spent = (await kaggle.push("third-one")).json()
    assert spent["error"] == spent["errorNullable"] == "Maximum weekly GPU quota of 30.00 hours reached."
    assert (await kaggle.push("cpu-only", enableGpu=False, machineShape="")).json()["versionNumber"] == 1


async def test_the_week_begins_anew_on_saturday(kaggle: Served) -> None:
    assert EPOCH.weekday() == 5
    kaggle.cloud.withdraw("t4x2")
    body = (await kaggle.call("GetAcceleratorQuotaStatistics", {})).json()
    assert (body["gpuQuota"]["timeUsed"], body["quotaRefreshTime"]) == ("108000s", "2026-03-07T00:00:00Z")
    refresh = datetime(2026, 3, 7, tzinfo=UTC)
    kaggle.step((refresh - kaggle.clock.now()) / timedelta(seconds=1))
    assert (await kaggle.call("GetAcceleratorQuotaStatistics", {})).json()["gpuQuota"]["timeUsed"] == "0s"


async def test_a_retired_shape_runs_as_the_default_one(kaggle: Served) -> None:
    await kaggle.push("my-kernel", machineShape="NvidiaTeslaP100")
    (row,) = (await kaggle.call("ListKernels", {"group": "PROFILE"})).json()["kernels"]
    assert row["machineShape"] == "NvidiaTeslaT4"


async def test_only_the_own_group_shows_private_kernels(kaggle: Served) -> None:
    await kaggle.push("my-kernel")
    assert (await kaggle.call("ListKernels", {"group": "EVERYONE"})).json()["kernels"] == []
    assert (await kaggle.call("ListKernels", {"group": "PROFILE", "search": "zzz"})).json()["kernels"] == []
    assert (await kaggle.call("ListKernels", {"group": "PROFILE", "pageSize": "x"})).status_code == 400


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"slug": "somebody/my-kernel"}, 403),
        ({"slug": "simuser/abc"}, 400),
        ({"newTitle": "abc"}, 400),
        ({"language": "cobol"}, 400),
        ({"text": ""}, 400),
    ],
)
async def test_a_push_that_cannot_be_filed_is_refused(kaggle: Served, changes: dict[str, Any], code: int) -> None:
    body = {"slug": "simuser/my-kernel", **SOURCE, **changes}
    reply = await kaggle.call("SaveKernel", body)
    assert (reply.status_code, reply.json()["code"]) == (code, code)
    assert [call.outcome for call in kaggle.engine.creates] == ["refused"]


@pytest.mark.parametrize("text", ["{", "[]"])
async def test_a_body_that_is_no_object_is_refused(kaggle: Served, text: str) -> None:
    assert (await kaggle.http.post(f"{CALL}/ListKernels", content=text)).status_code == 400


async def test_a_wrong_slug_is_forbidden_and_a_wrong_label_is_missing(kaggle: Served) -> None:
    await kaggle.push("my-kernel")
    assert await status(kaggle, "other-kernel") == {"code": 403, "message": "Permission 'kernels.get' was denied"}
    assert (await status(kaggle, versionLabel="1"))["code"] == 404
    assert (await status(kaggle, versionLabel="v9"))["code"] == 404
    assert await status(kaggle, versionLabel="v1") == {"status": "QUEUED"}


async def test_output_comes_at_the_end_by_signed_addresses(kaggle: Served) -> None:
    await kaggle.push("my-kernel")
    early = (await kaggle.call("ListKernelSessionOutput", MINE)).json()
    assert (early["files"], early["log"]) == ([], "")
    assert (await kaggle.call("ListKernelFiles", MINE)).json() == {"files": []}
    kaggle.step(700)
    late = (await kaggle.call("ListKernelSessionOutput", MINE)).json()
    url = late["files"][0]["url"]
    assert json.loads(late["log"])[0]["data"] == "my-kernel v1 on NvidiaTeslaT4\n"
    assert (await kaggle.call("ListKernelFiles", MINE)).json()["files"][0]["name"] == "result.txt"
    async with httpx.AsyncClient(trust_env=False) as http:
        assert (await http.get(url)).text == "result of simuser/my-kernel/1\n"
        assert (await http.get(url.replace("sig=", "sig=0"))).status_code == 403
        kaggle.step(601)
        assert (await http.get(url)).status_code == 403


@pytest.mark.parametrize("prefix", ["", "/api"])
async def test_logs_are_a_stream_first_and_an_array_afterwards(kaggle: Served, prefix: str) -> None:
    await kaggle.push("my-kernel")
    kaggle.step(10)
    path = f"{prefix}/v1/kernels/logs/stream/simuser/my-kernel"
    live = await kaggle.http.get(path, params={"versionLabel": "v1"})
    assert live.headers["content-type"].startswith("text/event-stream")
    assert live.text.startswith('data: {"stream_name": "stdout"')
    assert live.text.endswith("data: END_OF_LOG\n\n")
    kaggle.step(700)
    assert (await kaggle.http.get(path)).json()[0]["stream_name"] == "stdout"


async def test_there_is_no_cancel(kaggle: Served) -> None:
    reply = await kaggle.call("CancelKernelSession", {"kernelSessionId": 1})
    assert (reply.status_code, reply.json()["message"]) == (403, "Permission 'kernelSessions.cancel' was denied")
    assert (await kaggle.call("CreateKernelSession", {"slug": "my-kernel"})).status_code == 403


@pytest.mark.parametrize(
    ("fault", "gone", "alive"),
    [(None, True, False), ("delete_ignored", False, True), ("delete_spares_run", True, True)],
)
async def test_what_a_delete_does_to_a_run(kaggle: Served, fault: str | None, gone: bool, alive: bool) -> None:
    await kaggle.push("my-kernel")
    kaggle.step(10)
    if fault:
        kaggle.arm(fault)
    assert (await kaggle.call("DeleteKernel", MINE)).status_code == 200
    assert ((await status(kaggle)).get("code") == 403) is gone
    assert kaggle.cloud.instances()[0].alive is alive


async def test_a_refused_delete_says_when_to_come_back(kaggle: Served) -> None:
    await kaggle.push("my-kernel")
    kaggle.arm("destroy_429", retry_after=3)
    assert (await kaggle.call("DeleteKernel", MINE)).headers["retry-after"] == "3"


@pytest.mark.parametrize(
    ("what", "shown"), [("fail", "ERROR"), ("cancel", "CANCEL_ACKNOWLEDGED"), ("stick", "RUNNING")]
)
async def test_disturbances_reach_the_status(kaggle: Served, what: str, shown: str) -> None:
    await kaggle.push("my-kernel")
    kaggle.step(10)
    kaggle.cloud.disturb("simuser/my-kernel/1", what)
    kaggle.step(3600)
    assert (await status(kaggle))["status"] == shown


async def test_a_vanished_kernel_and_unknown_orders(kaggle: Served) -> None:
    await kaggle.push("my-kernel")
    kaggle.cloud.disturb("simuser/my-kernel/1", "vanish")
    assert (await status(kaggle))["code"] == 403
    assert not kaggle.cloud.instances()[0].alive
    with pytest.raises(KeyError):
        kaggle.cloud.disturb("simuser/my-kernel/1", "explode")
    with pytest.raises(KeyError):
        kaggle.cloud.disturb("nobody/none/1", "fail")
    assert (kaggle.cloud.withdraw("a100"), kaggle.cloud.reprice("*", Decimal(2))) == (0, 1)


async def test_a_reset_forgets_everything(kaggle: Served) -> None:
    await kaggle.push("my-kernel")
    kaggle.cloud.withdraw("*")
    kaggle.cloud.reset()
    assert kaggle.cloud.instances() == []
    assert kaggle.cloud.account.used_s(kaggle.clock.now()) == 0
    assert kaggle.cloud.reachable() == []


async def test_listings_lag_behind_pushes() -> None:
    async with running(SandboxTiming.quick(list_lag_s=20)) as served:
        await served.push("my-kernel")
        assert (await served.call("ListKernels", {"group": "PROFILE"})).json()["kernels"] == []
        served.step(20)
        assert len((await served.call("ListKernels", {"group": "PROFILE"})).json()["kernels"]) == 1


async def test_the_environment_leads_an_adapter_here(kaggle: Served) -> None:
    given = kaggle.cloud.environment(kaggle.url)
    fields = {
        "KAGGLE_USERNAME": "username",
        "KAGGLE_KEY": "api_key",
        "KAGGLE_API_TOKEN": "api_token",
        "KAGGLE_API_URL": "base_url",
    }
    for without in ("KAGGLE_API_TOKEN", "KAGGLE_KEY"):
        config = {field: given[name] for name, field in fields.items() if name != without}
        provider = KaggleProvider(KaggleConfig.model_validate(config), kaggle.clock)
        assert (await provider.preflight()).ok
        await provider.close()


def test_the_table_of_faults_is_closed() -> None:
    answered = [fault for fault in FAULTS.values() if fault.refuses or fault.spoils]
    assert [fault.name for fault in answered if not any(map(fault.bites, GROUPS.values()))] == []
    assert set(FAULTS.aliases) <= set(COMMON_FAULTS)
    assert {FAULTS.own_name(name) for name in COMMON_FAULTS} - set(FAULTS) == NOT_HERE
