"""The Vast.ai sandbox seen through its own URLs: auth, search, listings and the smaller endpoints."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import httpx
import pytest
import pytest_asyncio

from providers.errors import (
    RateLimited,
    Unavailable,
    UnexpectedResponse,
)
from providers.gpus.constraint import GpuConstraint
from tests.contract.served import DISK_GB, LABEL, Clouds, serving
from tests.providers.clouds.vast.served import Vast, bench, create
from tests.providers.read_offers import every_offer

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def clouds() -> AsyncIterator[Clouds]:
    async with serving() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def vast(clouds: Clouds) -> AsyncIterator[Vast]:
    async with bench(clouds) as fresh:
        yield fresh


# ── auth and routes ────────────────────────────────────────────────────────────────────────────────


async def test_the_two_auth_failures_have_their_own_status(vast: Vast) -> None:
    del vast.http.headers["Authorization"]
    status, body = await vast.ask("GET", "/api/v0/users/current")
    assert (status, body["error"], body["msg"]) == (403, "auth_error", "This action requires login.")
    status, body = await vast.ask("GET", "/api/v0/users/current", headers={"Authorization": "Bearer x"})
    assert (status, body["error"], body["msg"]) == (404, "auth_error", "Invalid user key")


async def test_the_old_listing_is_closed(vast: Vast) -> None:
    status, body = await vast.ask("GET", "/api/v0/instances/")
    assert (status, body["error"]) == (410, "deprecated_endpoint")


async def test_malformed_json_is_an_invalid_request(vast: Vast) -> None:
    status, body = await vast.ask("POST", "/api/v0/bundles/", content=b"{")
    assert (status, body["error"]) == (400, "invalid_request")


async def test_an_unknown_instance_reads_as_null(vast: Vast) -> None:
    assert await vast.ask("GET", "/api/v0/instances/7/") == (200, {"instances": None})
    status, body = await vast.ask("DELETE", "/api/v0/instances/7/", json={})
    assert (status, body["error"]) == (404, "no_such_instance")
    for path in ("/api/v0/instances/7/", "/api/v0/instances/reboot/7/", "/api/v0/instances/request_logs/7/"):
        status, body = await vast.ask("PUT", path, json={"state": "stopped"})
        assert (status, body["error"]) == (404, "no_such_instance")


# ── search ─────────────────────────────────────────────────────────────────────────────────────────


async def search(vast: Vast, **query: Any) -> list[dict[str, Any]]:
    status, body = await vast.ask("POST", "/api/v0/bundles/", json=query)
    assert status == 200
    rows: list[dict[str, Any]] = body["offers"]
    return rows


async def test_a_search_never_returns_more_than_64_rows(vast: Vast) -> None:
    assert len(await search(vast, limit=3000)) == 64
    assert len(await search(vast, limit=5)) == 5


async def test_names_need_spaces_and_ids_are_no_filter(vast: Vast) -> None:
    assert await search(vast, gpu_name={"eq": "RTX_4090"}) == []
    rows = await search(vast, gpu_name={"eq": "RTX 4090"})
    assert rows
    assert await search(vast, id={"eq": rows[0]["id"]}) == []
    assert len(await search(vast, ask_contract_id={"eq": rows[0]["id"]})) == 1


async def test_storage_follows_the_disk_that_was_asked(vast: Vast) -> None:
    one = {"gpu_name": {"eq": "RTX 3090"}, "order": [["dph_base", "asc"]], "limit": 1}
    (small,) = await search(vast, allocated_storage=10, **one)
    (large,) = await search(vast, allocated_storage=100, **one)

    assert small["id"] == large["id"]
    assert large["storage_total_cost"] == pytest.approx(large["storage_cost"] * 100 / 720, abs=1e-6)
    assert large["dph_total"] - small["dph_total"] == pytest.approx(large["storage_cost"] * 90 / 720, abs=2e-6)


@pytest.mark.parametrize(
    ("query", "check"),
    [
        ({"geolocation": {"in": ["US"]}}, lambda r: r["geolocation"].endswith("US")),
        ({"geolocation": {"notin": ["US"]}}, lambda r: not r["geolocation"].endswith("US")),
        ({"verified": {"eq": True}}, lambda r: r["verification"] == "verified"),
        ({"datacenter": {"neq": True}}, lambda r: r["hosting_type"] == 0),
        ({"num_gpus": {"gt": 2, "lt": 8}}, lambda r: r["num_gpus"] == 4),
        ({"reliability": {"gte": 0.98}}, lambda r: r["reliability2"] >= 0.98),
        ({"cuda_max_good": {"gte": 12.8}}, lambda r: r["cuda_max_good"] >= 12.8),
    ],
)
async def test_filters(vast: Vast, query: dict[str, Any], check: Any) -> None:
    rows = await search(vast, **query)
    assert rows
    assert all(check(row) for row in rows)


@pytest.mark.parametrize("query", [{"num_gpus": 1}, {"num_gpus": {"like": 1}}, {"shoe_size": {"eq": 1}}])
async def test_a_filter_that_is_none_is_refused(vast: Vast, query: dict[str, Any]) -> None:
    status, body = await vast.ask("POST", "/api/v0/bundles/", json=query)
    assert (status, body["error"]) == (400, "invalid_request")


async def test_all_three_search_urls_agree(vast: Vast) -> None:
    query = {"gpu_name": {"eq": "H200"}, "order": [["dph_total", "asc"]]}
    rows = await search(vast, **query)
    _, got = await vast.ask("GET", "/api/v0/bundles/", params={"q": json.dumps(query)})
    _, put = await vast.ask("PUT", "/api/v0/search/asks/", json={"select_cols": ["*"], "q": query})

    assert rows
    assert rows == got["offers"] == put["offers"]


async def test_the_market_has_rows_that_nobody_should_buy(vast: Vast) -> None:
    rows = await vast.provider.offers(vast.one, disk_gb=DISK_GB, spot=False)

    assert {o.price_usd_h for o in rows} >= {None, Decimal(0)}
    assert any(o.price_usd_h is not None and o.price_usd_h < 0 for o in rows)


async def test_overlapping_offers_vanish_and_come_back_under_new_ids(vast: Vast) -> None:
    before = {row["machine_id"]: row for row in await search(vast, num_gpus={"eq": 8}, gpu_name={"eq": "H100 SXM"})}
    wanted = next(iter(before.values()))
    machine = wanted["machine_id"]
    status, body = await vast.ask("PUT", f"/api/v0/asks/{wanted['id']}/", json={"image": "x", "disk": 20})
    assert (status, body["success"]) == (200, True)

    assert await search(vast, machine_id={"eq": machine}) == []
    await vast.ask("DELETE", f"/api/v0/instances/{body['new_contract']}/", json={})
    again = await search(vast, machine_id={"eq": machine}, num_gpus={"eq": 8})
    assert [row["id"] != wanted["id"] for row in again] == [True]


@pytest.mark.parametrize(
    ("fault", "expected"),
    [("search_garbage", UnexpectedResponse), ("search_quota", RateLimited), ("search_503", Unavailable)],
)
async def test_a_search_that_fails_is_an_error(vast: Vast, fault: str, expected: type[Exception]) -> None:
    vast.arm(fault, None)
    with pytest.raises(expected):
        await vast.provider.offers(vast.one, disk_gb=DISK_GB, spot=None)


async def test_the_daily_quota_says_when_it_ends(vast: Vast) -> None:
    vast.arm("search_quota")
    with pytest.raises(RateLimited) as caught:
        await vast.provider.offers(vast.one, disk_gb=DISK_GB, spot=False)

    assert caught.value.retry_after_s is not None
    assert 0 < caught.value.retry_after_s <= 86_400


async def test_an_empty_market_is_no_error(vast: Vast) -> None:
    vast.arm("search_empty")
    assert (await vast.provider.offers(vast.one, disk_gb=DISK_GB, spot=False)).items == ()


# ── listings and the bill ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("fault", ["list_empty", "list_truncated", "list_bad_token", "list_garbage"])
async def test_a_listing_that_is_not_complete_raises(vast: Vast, fault: str) -> None:
    for n in range(26):
        await vast.create(f"n{n}-{LABEL}")
    vast.arm(fault)
    with pytest.raises(UnexpectedResponse):
        await vast.provider.list()


async def test_listing_parameters(vast: Vast) -> None:
    for n in range(7):
        await create(vast, label=f"n{n}")
    _, all_of_them = await vast.ask("GET", "/api/v1/instances/")
    _, five = await vast.ask("GET", "/api/v1/instances/", params={"limit": "0"})
    _, one = await vast.ask("GET", "/api/v1/instances/", params={"select_filters": '{"label":{"eq":"n3"}}'})
    _, two = await vast.ask("GET", "/api/v1/instances/", params={"select_filters": '{"label":{"in":["n3","n4"]}}'})

    assert (len(all_of_them["instances"]), all_of_them["next_token"]) == (7, None)
    assert (five["instances_found"], five["total_instances"]) == (5, 7)
    assert [row["label"] for row in one["instances"]] == ["n3"]
    assert two["total_instances"] == 2
    _, rest = await vast.ask("GET", "/api/v1/instances/", params={"after_token": five["next_token"]})
    assert rest["instances_found"] == 2


@pytest.mark.parametrize(
    "params",
    [{"after_token": "%%%"}, {"select_filters": '{"dph_total":{"eq":1}}'}, {"select_filters": "{"}, {"limit": "x"}],
)
async def test_a_bad_listing_is_refused(vast: Vast, params: dict[str, str]) -> None:
    await create(vast)
    status, body = await vast.ask("GET", "/api/v1/instances/", params=params)
    assert (status, body["success"]) == (400, False)


async def test_charges_need_both_bounds_and_come_in_pages(vast: Vast) -> None:
    for _ in range(3):
        await create(vast)
    start = vast.clock.now().timestamp()
    vast.step(86_400)
    status, body = await vast.ask("GET", "/api/v0/charges/")
    assert (status, body["success"]) == (400, False)
    day = json.dumps({"day": {"gte": start, "lte": start + 2 * 86_400}})
    _, page = await vast.ask("GET", "/api/v0/charges/", params={"select_filters": day, "limit": "2"})
    assert (page["count"], page["total"]) == (2, 3)
    _, rest = await vast.ask(
        "GET", "/api/v0/charges/", params={"select_filters": day, "limit": "2", "after_token": page["next_token"]}
    )
    assert (rest["count"], rest["next_token"]) == (1, None)
    assert rest["results"][0]["items"][0]["type"] == "gpu"


@pytest.mark.parametrize("cut", [False, True])
async def test_a_bill_row_is_a_contract_by_whole_days_or_cut_to_the_asked_ones(vast: Vast, cut: bool) -> None:
    began = vast.clock.now().replace(hour=0, minute=0, second=0, microsecond=0)
    await create(vast)
    vast.step(5 * 86_400)
    if cut:
        vast.arm("charges_cut", times=None)
    asked = json.dumps({"day": {"gte": began.timestamp() + 2 * 86_400, "lte": began.timestamp() + 4 * 86_400 - 1}})
    _, page = await vast.ask("GET", "/api/v0/charges/", params={"select_filters": asked})
    (row,) = page["results"]
    assert all(type(row[name]) is int and row[name] % 86_400 == 0 for name in ("start", "end"))
    days = [(row[name] - began.timestamp()) / 86_400 for name in ("start", "end")]
    assert days == ([2, 3] if cut else [0, 5])
    assert row["description"].endswith("Charges - 2 days" if cut else "Charges - 6 days")
    hours = float(row["items"][0]["description"].partition(" hours")[0])
    assert (hours == 48) if cut else (119 < hours <= 120)


async def test_the_bill_comes_late(vast: Vast) -> None:
    vast.timing(charges_lag_s=600.0)
    start = vast.clock.now()
    await vast.running()
    vast.step(300)
    assert await vast.provider.charges(start, vast.clock.now()) == ()
    vast.step(3600)
    assert await vast.provider.charges(start, vast.clock.now())


# ── smaller endpoints ──────────────────────────────────────────────────────────────────────────────


async def test_keys_of_account_and_instance(vast: Vast) -> None:
    made = await vast.create()
    assert (await vast.ask("GET", "/api/v0/ssh/"))[0] == 404
    assert (await vast.ask("POST", "/api/v0/ssh/", json={}))[0] == 400
    _, added = await vast.ask("POST", "/api/v0/ssh/", json={"ssh_key": "ssh-ed25519 A"})
    assert added["key"]["public_key"] == "ssh-ed25519 A"
    assert len((await vast.ask("GET", "/api/v0/ssh/"))[1]) == 1
    path = f"/api/v0/instances/{made.ref}/ssh/"
    assert (await vast.ask("POST", path, json={}))[0] == 400
    assert (await vast.ask("POST", path, json={"ssh_key": "ssh-ed25519 B"}))[0] == 200
    _, keys = await vast.ask("GET", path)
    assert json.loads(keys["ssh_keys"]) == ["ssh-ed25519 B"]
    assert (await vast.ask("POST", "/api/v0/instances/7/ssh/", json={"ssh_key": "x"}))[0] == 404
    assert (await vast.ask("GET", "/api/v0/instances/7/ssh/"))[0] == 404


async def test_labels_and_states_are_checked(vast: Vast) -> None:
    made = await vast.create()
    path = f"/api/v0/instances/{made.ref}/"
    assert (await vast.ask("PUT", path, json={"label": "y"}))[1] == {"success": True}
    assert (await vast.seen(made.ref)).name == "y"
    assert (await vast.ask("PUT", path, json={"label": "x" * 1025}))[1]["error"] == "label_too_long"
    assert (await vast.ask("PUT", path, json={"state": "sideways"}))[1]["error"] == "invalid_args"


async def test_a_bid_can_be_raised(vast: Vast) -> None:
    running = await vast.running()
    path = f"/api/v0/instances/bid_price/{running.ref}/"
    assert (await vast.ask("PUT", path, json={"client_id": "me", "price": 0.0}))[1]["error"] == "invalid_args"
    assert (await vast.ask("PUT", path, json={"client_id": "me", "price": 0.77}))[0] == 200
    assert (await vast.ask("PUT", "/api/v0/instances/bid_price/7/", json={"price": 1}))[0] == 404
    seen = await vast.seen(running.ref)
    assert seen.price_usd_h is not None
    assert abs(seen.price_usd_h - Decimal("0.77")) < Decimal("0.05")


async def test_logs_are_fetched_from_the_url_that_was_given(vast: Vast) -> None:
    running = await vast.running()
    _, body = await vast.ask("PUT", f"/api/v0/instances/request_logs/{running.ref}/", json={"tail": "100"})
    async with httpx.AsyncClient(trust_env=False) as anybody:
        reply = await anybody.get(body["result_url"])
        missing = await anybody.get(body["result_url"] + "9")

    assert reply.status_code == 200
    assert "success, running" in reply.text
    assert missing.status_code == 404


async def test_a_range_of_prices_pages_by_price(vast: Vast) -> None:
    found = await every_offer(vast.provider, GpuConstraint(count_max=8), disk_gb=DISK_GB, spot=False)
    searches = [call for call in vast.engine.calls if call.path == "/api/v0/bundles/"]

    assert 3 <= len(searches) <= 9
    assert len(found) > 128


async def test_what_the_official_client_asks_beside_the_documented_calls(vast: Vast) -> None:
    await vast.running()
    _, names = await vast.ask("GET", "/api/v0/gpu_names/unique/")
    _, filters = await vast.ask("GET", "/api/v0/instances/filters/")

    assert "RTX 4090" in names["gpu_names"]
    assert [(f["actual_status"], f["gpu_name"]) for f in filters["filters"]] == [("running", "RTX 4090")]
    # It sends the numbers of a query as text.
    assert len(await search(vast, num_gpus={"eq": "8"}, gpu_name={"eq": "H200"})) > 0
    assert await search(vast, num_gpus={"eq": "eight"}) == []


async def test_ports_that_are_asked_for_are_mapped_and_listed(vast: Vast) -> None:
    _, made = await create(vast, env={"-p 10022:10022": "1", "A": "b"})
    vast.step()
    _, body = await vast.ask("GET", f"/api/v0/instances/{made['new_contract']}/")
    assert list(body["instances"]["ports"]) == ["22/tcp", "10022/tcp"]
    assert (await vast.seen(str(made["new_contract"]))).ssh is not None


async def test_a_search_needs_no_key_and_everything_else_does(vast: Vast) -> None:
    del vast.http.headers["Authorization"]
    assert len(await search(vast, limit=5)) == 5
    for key in ("total_flops", "ubuntu_version", "bw_nvlink"):
        assert await search(vast, **{key: {"gte": 0}}, limit=1)
    assert (await vast.ask("GET", "/api/v1/instances/"))[0] == 403


async def test_a_bid_without_a_price_becomes_one_that_wins(vast: Vast) -> None:
    offers = await vast.provider.offers(vast.one, disk_gb=DISK_GB, spot=True)
    offer = next(o for o in offers if o.price_usd_h and o.price_usd_h > 0)
    assert offer.min_bid_usd_h is not None
    body = {"image": "x", "disk": 20, "price": float(offer.min_bid_usd_h * 2)}
    _, made = await vast.ask("PUT", f"/api/v0/asks/{offer.key}/", json=body)
    path = f"/api/v0/instances/bid_price/{made['new_contract']}/"
    assert await vast.ask("PUT", path, json={"client_id": "me"}) == (200, {"success": True})
    _, read = await vast.ask("GET", f"/api/v0/instances/{made['new_contract']}/")
    row = read["instances"]
    assert row["dph_base"] == row["min_bid"] == float(offer.min_bid_usd_h)


async def test_a_key_is_changed_and_deleted(vast: Vast) -> None:
    _, first = await vast.ask("POST", "/api/v0/ssh/", json={"ssh_key": "a"})
    path = f"/api/v0/ssh/{first['key']['id']}/"
    assert (await vast.ask("PUT", path, json={"ssh_key": "b"}))[1]["key"]["public_key"] == "b"
    assert await vast.ask("DELETE", path) == (200, {"success": True})
    assert (await vast.ask("DELETE", path))[0] == 404
