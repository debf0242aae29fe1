"""RunPod's interruptible pods over GraphQL: what they cost, the one call that rents one, and whether it still exists.

RunPod deleted the pages about them in May 2026, and REST v2 has no field for them. Its staff wrote that
`podRentInterruptable` is being removed. So the setting `RUNPOD_SPOT` is off unless somebody turns it on, and before
anything is offered a probe asks whether the call is still there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from ledger.kernel import money
from providers.adapter_helpers import clean, number, part
from providers.clouds.runpod import gpu_types, instances
from providers.clouds.runpod.errors import CAPACITY, CLOUD, SPEND_LIMIT, create_error
from providers.clouds.runpod.gpu_types import PriceField
from providers.clouds.runpod.offers import CatalogPage
from providers.contract import InstanceSpec, InstanceStatus, ObservedInstance, Offer
from providers.errors import (
    AuthFailed,
    InsufficientFunds,
    InvalidSpec,
    NoCapacity,
    OutcomeUnknown,
    ProviderError,
    QuotaExceeded,
    UnexpectedResponse,
    Unsupported,
)
from providers.gpus import table
from providers.gpus.constraint import GpuConstraint
from providers.http import HttpReply

CALL: Final = "podRentInterruptable"
SETTING: Final = "RUNPOD_SPOT"
WITHDRAWN: Final = "RunPod does not rent interruptible pods any more, so remove RUNPOD_SPOT"
#: A server validates all of a document before it runs any of it, and this one asks a pod for a field that none has. So
#: it rents nothing, and the complaint says whether the call itself is known.
PROBE: Final = f"mutation {{ {CALL}(input: {{bidPerGpu: 0.0}}) {{ id gpuShopperAsksForNothing }} }}"
RENT: Final = f"mutation Rent($input: PodRentInterruptableInput!) {{ {CALL}(input: $input) {{ id costPerHr }} }}"
#: The CUDA versions that a host may be asked for, the newest last.
CUDA_VERSIONS: Final = ("11.8", *(f"12.{minor}" for minor in range(10)), "13.0", "13.1", "13.2")
#: Decimals of a bid in dollars per hour. It is rounded down, so that the GPUs never cost more than was approved.
_BID_DIGITS: Final = 4


def is_known(reply: HttpReply) -> bool:
    """Read from the answer to the probe whether the call exists. `UnexpectedResponse` where it does not say."""
    said = " ".join(_messages(reply.body))
    if f'"{CALL}"' in said or reply.status == 410:
        return False
    if "gpuShopperAsksForNothing" in said:
        return True
    raise UnexpectedResponse(CLOUD, f"runpod answered {reply.status} when asked whether it rents interruptible pods")


def query(pages: Iterable[CatalogPage], constraint: GpuConstraint) -> dict[str, Any]:
    """The GraphQL body that asks for the lowest bid of every GPU on these pages, in one call."""
    return gpu_types.query(pages, constraint.cuda_min, PriceField.BID)


def found(body: Any, pages: Iterable[CatalogPage], constraint: GpuConstraint) -> tuple[Offer, ...]:
    """The interruptible offers of an answer to `query`, priced at the lowest bid that is accepted."""
    return tuple(
        replace(one, key=f"{one.key}/spot", spot=True, min_bid_usd_h=one.gpu_usd_h)
        for one in gpu_types.found(body, pages, constraint, PriceField.BID)
        if one.gpu_usd_h is not None
    )


def rent_body(spec: InstanceSpec, container_gb: int) -> dict[str, Any]:
    """The GraphQL body that rents one interruptible pod. Raises `InvalidSpec` as for every other pod."""
    pod = instances.create_body(spec, container_gb)
    bid = money.down((spec.bid_usd_h or Decimal(0)) / spec.offer.gpu_count, _BID_DIGITS)
    given: dict[str, Any] = {
        "name": pod["name"],
        "imageName": pod["image"],
        "cloudType": pod["cloud"],
        "gpuTypeId": pod["gpu"]["id"],
        "gpuCount": pod["gpu"]["count"],
        "containerDiskInGb": pod["disk"],
        "volumeInGb": pod["mounts"]["persistent"]["size"],
        "volumeMountPath": pod["mounts"]["persistent"]["path"],
        "ports": ",".join(pod["ports"]),
        "env": [{"key": key, "value": value} for key, value in pod["env"].items()],
        "dockerArgs": pod.get("args", ""),
        "startSsh": True,
        "supportPublicIp": True,
        "bidPerGpu": float(bid),
    }
    if spec.min_cuda is not None:
        given["allowedCudaVersions"] = [one for one in CUDA_VERSIONS if Decimal(one) >= spec.min_cuda]
    return {"query": RENT, "variables": {"input": given}}


def rented(reply: HttpReply, spec: InstanceSpec, secrets: Iterable[str]) -> ObservedInstance:
    """The pod that was rented. Raises a definite no only where the answer proves one, else `OutcomeUnknown`."""
    made = part(reply.body, "data", CALL)
    ref = made.get("id")
    if isinstance(ref, str) and ref:
        offer, cost = spec.offer, number(made.get("costPerHr"))
        gpu = table.canonical(CLOUD, offer.ticket["gpu_id"]) or offer.ticket["gpu_id"]
        price = None if cost is None else cost + offer.storage_usd_h
        return ObservedInstance(
            CLOUD, ref, spec.name, InstanceStatus.PENDING, "rented", gpu, offer.gpu_count, price, spot=True
        )
    raise _refusal(reply, list(secrets))


def _refusal(reply: HttpReply, secrets: list[str]) -> ProviderError:
    codes, said = _codes(reply.body), " ".join(_messages(reply.body))
    if reply.status == 400 and "GRAPHQL_VALIDATION_FAILED" in codes:
        # Validation comes before anything is run, so nothing was rented.
        return Unsupported(CLOUD, WITHDRAWN) if f'"{CALL}"' in said else InvalidSpec(CLOUD, clean(said, secrets))
    if reply.status != 200:
        return create_error(reply, secrets)
    if not codes and not said:
        return OutcomeUnknown(CLOUD, "runpod answered the create without a pod and without an error")
    text = said.lower()
    if "SUPPLY_CONSTRAINT" in codes or any(words in text for words in CAPACITY):
        return NoCapacity(CLOUD, "runpod has no free instance for this offer")
    if any(words in text for words in SPEND_LIMIT):
        return QuotaExceeded(CLOUD, "runpod refuses it because of the account's spend limit")
    if "INSUFFICIENT_BALANCE" in codes or "balance is too low" in text:
        return InsufficientFunds(CLOUD, "runpod refuses it because the account's balance is too low")
    if codes & {"UNAUTHORIZED", "UNAUTHENTICATED", "FORBIDDEN"}:
        return AuthFailed(CLOUD, "runpod does not let this API key rent interruptible pods")
    return OutcomeUnknown(CLOUD, "runpod answered the create with an error that does not tell its outcome")


def _errors(body: Any) -> list[Mapping[str, Any]]:
    errors = part(body).get("errors")
    return [one for one in errors if isinstance(one, dict)] if isinstance(errors, list) else []


def _messages(body: Any) -> list[str]:
    return [text for one in _errors(body) if isinstance(text := one.get("message"), str)]


def _codes(body: Any) -> set[str]:
    return {code for one in _errors(body) if isinstance(code := part(one, "extensions").get("code"), str)}
