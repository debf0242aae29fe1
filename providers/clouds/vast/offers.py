"""Search: the query that a constraint becomes, and the offer that a row becomes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeGuard

from providers.adapter_helpers import fits, number
from providers.clouds.vast.errors import CLOUD
from providers.completeness import AnswerPart
from providers.contract import Copy, Offer
from providers.errors import UnexpectedResponse
from providers.gpus.constraint import GpuConstraint
from providers.gpus.table import GPUS, canonical, spellings

#: The service never returns more rows, whatever `limit` says.
ROWS_MAX = 64
MONTH_H = Decimal(720)
ON_DEMAND, BID = "on-demand", "bid"
#: Cards report less than nominal (15 360 MB on a 16 GB card) or, in binary units, more: the filter leaves room, and
#: the rows are checked again by nominal memory.
LEAST_MB_PER_GB, MOST_MB_PER_GB = 930, 1100
#: Why an answer does not hold everything.
MORE_PAGES = "Vast has more offers than one answer holds."
#: The key in a rest of a search that will always lack offers.
LACKS = "lacks"
MORE_AT_ONE_PRICE = "Vast has more offers at one price than it shows."


@dataclass(frozen=True, slots=True)
class SearchPage:
    """One answer to a search. `last_usd_h` is where the next one begins; empty where this one is the last."""

    kind: str
    offers: tuple[Offer, ...]
    last_usd_h: str = ""
    #: More offers have one price than an answer holds, so the next one would be this one again.
    is_stuck: bool = False


def page(kind: str, found: tuple[Offer, ...], rows: list[dict[str, Any]], above: float | None) -> SearchPage:
    """Return the page that these rows are. Fewer of them than an answer may hold are the last ones."""
    last = rows[-1].get("dph_total") if rows else None
    if len(rows) < ROWS_MAX:
        return SearchPage(kind, found)
    if not isinstance(last, int | float) or (above is not None and not last > above):
        return SearchPage(kind, found, is_stuck=True)
    return SearchPage(kind, found, repr(float(last)))


def copied_rest(copy: Copy, first: AnswerPart[Offer], constraint: GpuConstraint, disk_gb: int) -> tuple[Offer, ...]:
    """What a copy has of the pages behind a first answer: above its last price, so that what is gone stays gone."""
    rest, read = first.rest or {}, {(offer.key, offer.spot) for offer in first}
    found = []
    for copied in copy.offers:
        last = rest.get(BID if copied.spot else ON_DEMAND)
        if last is None or (copied.key, copied.spot) in read:
            continue
        offer = _with_disk(copied, disk_gb)
        new_enough = constraint.cuda_min is None or (
            offer.cuda_max is not None and offer.cuda_max >= constraint.cuda_min
        )
        priced = offer.price_usd_h is not None and offer.price_usd_h >= Decimal(last)
        if priced and new_enough and fits(offer, constraint, disk_gb):
            found.append(offer)
    return tuple(found)


def _with_disk(offer: Offer, disk_gb: int) -> Offer:
    """The same offer with a disk of another size, as a search for that size prices it."""
    storage = Decimal(offer.ticket["gb_month"]) * disk_gb / MONTH_H
    gpu, price = offer.gpu_usd_h, offer.price_usd_h
    if gpu is not None and price is not None and price > 0:
        price = gpu + storage
    return replace(offer, price_usd_h=price, storage_usd_h=storage, storage_stopped_usd_h=storage)


def gpu_names(constraint: GpuConstraint) -> tuple[str, ...]:
    """Vast.ai's spellings, with spaces, of the canonical names asked for; empty when none is asked or none is sold."""
    return tuple(dict.fromkeys(word for name in constraint.names for word in spellings(CLOUD, name)))


def query(
    constraint: GpuConstraint,
    *,
    disk_gb: int,
    kind: str,
    verified_only: bool,
    above_usd_h: float | None = None,
    machine_id: int | None = None,
) -> dict[str, Any]:
    """The body of `POST /bundles/`. `above_usd_h` is the cursor: the last price of the page before.

    `machine_id` leaves only the bundles of one machine, which are never more than a page.

    `allocated_storage` must equal the disk that is created later, or the printed price is not the price.
    """
    count = {"gte": constraint.count_min, "lte": constraint.count_max}
    body: dict[str, Any] = {
        "rentable": {"eq": True},
        "rented": {"eq": False},
        "external": {"eq": False},
        "num_gpus": {"eq": constraint.count_min} if constraint.count_min == constraint.count_max else count,
        "direct_port_count": {"gte": 1},
        "disk_space": {"gte": disk_gb},
        "order": [["dph_total", "asc"]],
        "type": kind,
        "allocated_storage": float(disk_gb),
        "limit": ROWS_MAX,
    }
    if verified_only:
        body["verified"] = {"eq": True}
    if constraint.names:
        body["gpu_name"] = {"in": list(gpu_names(constraint))}
    memory = {}
    if constraint.memory_gb_min is not None:
        memory["gte"] = int(constraint.memory_gb_min * LEAST_MB_PER_GB)
    if constraint.memory_gb_max is not None:
        memory["lte"] = int(constraint.memory_gb_max * MOST_MB_PER_GB)
    if memory:
        body["gpu_ram"] = memory
    if constraint.cuda_min is not None:
        body["cuda_max_good"] = {"gte": float(constraint.cuda_min)}
    if above_usd_h is not None:
        body["dph_total"] = {"gte": above_usd_h}
    if machine_id is not None:
        body["machine_id"] = {"eq": machine_id}
    return body


def rows(body: Any) -> list[dict[str, Any]]:
    """The rows of an answer; `UnexpectedResponse` when it has none of the documented shape."""
    found = body.get("offers") if isinstance(body, dict) else None
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise UnexpectedResponse(CLOUD, "Vast.ai's answer to a search has no list of offers")
    return found


def translate(
    found: list[dict[str, Any]], constraint: GpuConstraint, *, disk_gb: int, kind: str, at: datetime
) -> Iterator[Offer]:
    """The offers that really meet the constraint; some numeric filters were seen not to be applied.

    A row without an id cannot be rented and is left out. A bad price is passed on as it is.
    """
    for row in found:
        offer = _offer(row, disk_gb=disk_gb, kind=kind, at=at)
        if offer is not None and fits(offer, constraint, disk_gb):
            yield offer


def _offer(row: Mapping[str, Any], *, disk_gb: int, kind: str, at: datetime) -> Offer | None:
    key, count, spelling = row.get("id"), row.get("num_gpus"), row.get("gpu_name")
    if not is_id(key) or not is_id(count) or not isinstance(spelling, str):
        return None
    memory_gb = (number(row.get("gpu_ram")) or Decimal(0)) / 1024
    name = canonical(CLOUD, spelling, memory_gb)
    nominal = Decimal(GPUS[name].memory_gb) if name else Decimal(math.ceil(memory_gb))
    storage, gb_month = number(row.get("storage_total_cost")), number(row.get("storage_cost"))
    if storage is None:
        storage = (gb_month or Decimal(0)) * disk_gb / MONTH_H
    if gb_month is None:
        gb_month = storage * MONTH_H / disk_gb if disk_gb else Decimal(0)
    capability = number(row.get("compute_cap"))
    duration, disk_max = number(row.get("duration")), number(row.get("disk_space"))
    hosting = row.get("hosting_type")
    place = str(row.get("geolocation") or "").strip(" ,")
    return Offer(
        cloud=CLOUD,
        key=str(key),
        gpu=name or spelling,
        gpu_count=count,
        memory_gb=nominal,
        region=place,
        spot=kind == BID,
        price_usd_h=number(row.get("dph_total")),
        fetched_at=at,
        gpu_usd_h=number(row.get("min_bid" if kind == BID else "dph_base")),
        storage_usd_h=storage,
        # Hosts may price a stopped disk higher; the row does not say, so this is the least it will be.
        storage_stopped_usd_h=storage,
        egress_usd_gb=number(row.get("inet_up_cost")) or Decimal(0),
        ingress_usd_gb=number(row.get("inet_down_cost")) or Decimal(0),
        country=country(place),
        reliability=number(row.get("reliability2", row.get("reliability"))),
        available_for_s=None if duration is None else int(duration),
        machine_id=_text(row.get("machine_id")),
        host_id=_text(row.get("host_id")),
        verified=None if row.get("verification") is None else row["verification"] == "verified",
        datacenter=hosting >= 1 if isinstance(hosting, int) else None,
        cuda_max=number(row.get("cuda_max_good")),
        compute_capability=None if capability is None else capability / 100,
        vcpus=None if (cores := number(row.get("cpu_cores_effective"))) is None else int(cores),
        ram_gb=_ram_gb(row),
        disk_gb_max=None if disk_max is None else int(disk_max),
        download_mbps=number(row.get("inet_down")),
        upload_mbps=number(row.get("inet_up")),
        nvlink_gb_s=number(row.get("bw_nvlink")),
        pcie_gb_s=number(row.get("pcie_bw")),
        power_limit_w=number(row.get("gpu_max_power")),
        min_bid_usd_h=number(row.get("min_bid")),
        ticket={"ask": str(key), "gb_month": str(gb_month)},
    )


def is_id(value: Any) -> TypeGuard[int]:
    """True for a whole number above zero, which `True` is not."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def country(place: str) -> str | None:
    """The two letters at the end of "Texas, US"; None when there are none."""
    code = place.rpartition(",")[2].strip()
    return code if len(code) == 2 and code.isalpha() else None


def _ram_gb(row: Mapping[str, Any]) -> Decimal | None:
    """This offer's share of the machine's memory: the field is for the whole machine."""
    whole, mine, all_cores = (number(row.get(key)) for key in ("cpu_ram", "cpu_cores_effective", "cpu_cores"))
    if whole is None or mine is None or all_cores is None or all_cores < 1:
        return None
    return round(whole * mine / all_cores / 1000, 1)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
