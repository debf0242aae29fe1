"""What can go wrong in one seed: a random subset of all faults, each with its own rate, so that rare pairs meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from providers.sandbox.engine import SandboxCloud
from tests.scenarios.month.faults import AT_CREATE, BURSTS, WHILE_RUNNING, WhileRunning

#: What a seed may rent. Kaggle's runs end by themselves only.
CLOUDS = ("vast", "runpod", "lambda", "tensordock")


class WireFault(StrEnum):
    """What befalls one HTTP call on its way."""

    REFUSED = "no connection is made"
    LOST_REQUEST = "the connection breaks before the cloud reads the request"
    LOST_REPLY = "the cloud does it and the reply is lost"
    GATEWAY_BEFORE = "a gateway answers 503 instead of the cloud"
    GATEWAY_AFTER = "the cloud does it and a gateway answers 503"
    SLOW = "the call takes seconds"
    LATE = "the client gives up, and the request arrives later"
    STALE = "a listing is answered from a cache"


#: Sandbox faults of calls that may follow one another at any time, besides those of a create and of a burst.
_NAMES = """
    destroy_503 destroy_503_after destroy_lost_reply destroy_not_done destroy_429 delete_ignored list_empty
    list_garbage list_truncated list_503 list_429 list_lag get_503 get_garbage get_null search_503 search_empty
    search_garbage rate_limited server_error unreadable_reply page_error small_pages no_pagination
    terminated_lingers create_garbage create_no_id create_500_after create_half_made error_after_create
    create_out_of_stock no_capacity start_no_capacity create_get_lag create_lost_request create_redirect
    terminate_refused_while_booting destroy_again_404 list_unknown_shape list_error_inside sshd_lag no_address
    late_address create_slow
"""
AT_ANY_CALL = frozenset(_NAMES.split())
RATES = (0.005, 0.02, 0.05, 0.1)


@dataclass(frozen=True)
class Profile:
    """The faults of one seed. Rates are of one call."""

    clouds: tuple[str, ...]
    replicas: int
    wire: Mapping[WireFault, float]
    sandbox: Mapping[str, Mapping[str, float]]
    disturbances: tuple[WhileRunning, ...]
    kills: int
    pauses: int
    clock_steps: int
    slack_outages: int
    dark: int
    repricings: int
    latency_s: float


def draw(random: Random, clouds: Mapping[str, SandboxCloud]) -> Profile:
    """Draw a profile."""
    chosen = tuple(random.sample(CLOUDS, random.choice((1, 1, 2, 2, 3))))
    is_quiet = random.random() < 0.1
    known = AT_ANY_CALL | {one.name for one in AT_CREATE} | {one.name for one in BURSTS}
    sandbox = {}
    for cloud in chosen:
        table = clouds[cloud].FAULTS
        names = sorted(name for name in {table.own_name(name) for name in known} if name in table)
        picked = [name for name in names if random.random() < 0.2]
        if "never_boots" in picked:
            # Together they are an instance that nobody can ever terminate, which no cloud has.
            picked = [name for name in picked if name != "terminate_refused_while_booting"]
        sandbox[cloud] = {} if is_quiet else {name: random.choice(RATES) for name in picked}
    there = [one for one in WHILE_RUNNING if one.cloud in chosen and random.random() < 0.4]
    return Profile(
        clouds=chosen,
        replicas=random.choice((1, 1, 1, 1, 1, 2, 2, 3)),
        wire={} if is_quiet else {one: random.choice(RATES) for one in WireFault if random.random() < 0.35},
        sandbox=sandbox,
        disturbances=() if is_quiet else tuple(there),
        kills=random.choice((2, 3, 4)),
        pauses=random.choice((0, 0, 1, 2)),
        clock_steps=random.choice((0, 0, 0, 1)),
        slack_outages=random.choice((0, 0, 1)),
        dark=random.choice((0, 0, 1)),
        repricings=random.choice((0, 1, 2)),
        latency_s=random.choice((0.0, 0.05, 0.5)),
    )
