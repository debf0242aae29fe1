"""Everything that can go wrong at RunPod, as switches. The cloud's page of known troubles is the source of the list."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from starlette.responses import Response

from providers.sandbox.runpod.account import LOW_BALANCE, NO_CAPACITY, SPEND_LIMIT
from providers.sandbox.runpod.responses import problem
from providers.sandbox.runpod.validation import Problem

INVALID_KEY = "invalid bearer token"
ACCESS_DENIED = "access denied"
TOO_MANY = "rate limit exceeded for the minute window"
WENT_WRONG = "Something went wrong. Please try again later."

FAULTS: Mapping[str, str] = {
    # Any call.
    "unauthorized": "The key is refused: 401.",
    "forbidden": "The key may not do this: 403, access denied.",
    "rate_limited": "429 with Retry-After (parameter retry_after, default 7).",
    "rate_limited_bare": "429 without Retry-After, but with the RateLimit header's windows.",
    "server_error": "An error without any effect (parameter status, default 500).",
    # The same for one kind of call.
    "create_auth": "A create is refused: 401.",
    "create_forbidden": "A create is refused: 403, access denied.",
    "create_429": "A create is answered 429 with Retry-After (parameter retry_after, default 7).",
    "create_429_bare": "A create is answered 429 with the RateLimit header only.",
    "create_500": "A create is answered 500 and has no effect (parameter status).",
    "get_503": "Reading one pod answers 503.",
    "list_503": "A page of the listing answers 503.",
    "destroy_429": "A delete is answered 429 with Retry-After (parameter retry_after, default 7).",
    # A create.
    "lost_reply": "The pod is made and the reply is cut off.",
    "error_after_create": "The pod is made and the answer says 5xx (parameter status, default 503).",
    "late_create": "The answer says 504 and the pod is made later (parameter after_s, default 200).",
    "unreadable_reply": "The pod is made and the 201 holds no readable pod.",
    "no_capacity": "400 with the sentence that no instance is left.",
    "low_balance": "402: the balance is too low.",
    "pool_forbidden": "403: the account may not use this GPU pool.",
    "spend_limit": "The account's spend limit refuses it (parameter status, default 400).",
    "image_missing": "422 in prose: the image is not in its registry.",
    "create_conflict": "409 to a create, which is documented nowhere.",
    "price_above": "The pod costs more than the catalogue says (parameter factor, default 1.5).",
    "list_lag": "The pod is missing from listings at first (parameter after_s, default 60).",
    "running_at_once": "RUNNING in the answer to the create, long before anything can be reached.",
    "sshd_lag": "The address is shown before sshd answers there (parameter after_s, default 90).",
    "never_boots": "RUNNING for ever, and no container starts.",
    "exit_loop": "The main process ends again and again (parameter every_s, default 20); billing goes on.",
    # Other calls.
    "page_error": "The second page of a listing answers 500.",
    "small_pages": "A listing comes in pages of few rows (parameter rows, default 1).",
    "no_pagination": "A listing without the pagination object, as the older service answered.",
    "delete_ignored": "204 to a delete, and the pod lives on.",
    "action_ignored": "200 to an action, and nothing happens.",
    "action_conflict": "409 to an action.",
    "start_no_capacity": "400 to a start: the host's GPUs are taken.",
    "stale_address": "After a start or restart the old SSH address is shown for 30 s.",
    "balance_retired": "GraphQL answers 410, as it will when it is retired.",
}

#: Fault → the error class that an adapter must raise from its create, or "ok".
CREATE_FAULTS: Mapping[str, str] = {
    "create_auth": "AuthFailed",
    "create_forbidden": "AuthFailed",
    "create_429": "RateLimited",
    "create_429_bare": "RateLimited",
    "create_500": "OutcomeUnknown",
    "lost_reply": "OutcomeUnknown",
    "error_after_create": "OutcomeUnknown",
    "late_create": "OutcomeUnknown",
    "unreadable_reply": "OutcomeUnknown",
    "no_capacity": "NoCapacity",
    "low_balance": "InsufficientFunds",
    "pool_forbidden": "NoCapacity",
    "spend_limit": "QuotaExceeded",
    "image_missing": "InvalidSpec",
    "create_conflict": "OutcomeUnknown",
    "price_above": "ok",
    "list_lag": "ok",
    "running_at_once": "ok",
    "sshd_lag": "ok",
    "never_boots": "ok",
    "exit_loop": "ok",
}

#: The common name of a fault → its name here.
ALIASES: Mapping[str, str] = {
    "create_lost_reply": "lost_reply",
    "create_503_after": "error_after_create",
    "create_lands_late": "late_create",
    "create_stale_offer": "no_capacity",
    "create_no_credit": "low_balance",
    "create_list_lag": "list_lag",
    "search_503": "server_error",
    "price_higher_than_quoted": "price_above",
    "running_before_reachable": "sshd_lag",
    "destroy_not_done": "delete_ignored",
}

#: What the gateway answers by itself: kind of call ("*" = every call) → its faults, with status and text.
GATEWAY: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "*": {
        "unauthorized": (401, INVALID_KEY),
        "forbidden": (403, ACCESS_DENIED),
        "rate_limited": (429, TOO_MANY),
        "rate_limited_bare": (429, TOO_MANY),
        "server_error": (500, WENT_WRONG),
    },
    "create": {
        "create_auth": (401, INVALID_KEY),
        "create_forbidden": (403, ACCESS_DENIED),
        "create_429": (429, TOO_MANY),
        "create_429_bare": (429, TOO_MANY),
        "create_500": (500, WENT_WRONG),
    },
    "get": {"get_503": (503, WENT_WRONG)},
    "list": {"list_503": (503, WENT_WRONG)},
    "destroy": {"destroy_429": (429, TOO_MANY)},
}

#: A create that is refused: fault → (status, detail). The parameter `status` of an armed fault overrides the status.
REFUSALS: Mapping[str, tuple[int, str]] = {
    "no_capacity": (400, NO_CAPACITY),
    "low_balance": (402, LOW_BALANCE),
    "pool_forbidden": (403, "access to this gpu pool is not allowed for your account"),
    "spend_limit": (400, SPEND_LIMIT),
    "image_missing": (422, "The image was not found in its registry."),
    "create_conflict": (409, "conflict"),
}

#: What a price that rises is multiplied by.
DEARER: Mapping[str, Decimal] = {"dearer": Decimal("1.2"), "much_dearer": Decimal("1.6")}
DISTURBANCES: Mapping[str, str] = {
    "host_failure": "The host fails: the pod becomes ERROR.",
    "exit": "The platform ends the container: EXITED, the volume is billed on.",
    "vanish": "Somebody deletes the pod behind our back.",
    "dearer": "The pod's price rises by a fifth and is billed from now on.",
    "much_dearer": "The pod's price rises by three fifths and is billed from now on.",
    "deaf": "sshd stops answering, everything else stays as it was.",
}


def gateway(name: str, status: int, detail: str, params: Mapping[str, object]) -> Response:
    """The answer of an armed fault of `GATEWAY`. Without Retry-After, the RateLimit header is the only hint."""
    headers = None
    if status == 429 and name.endswith("_bare"):
        headers = {"RateLimit": '"minute";r=0;t=11, "hour";r=2800;t=1812, "day";r=49500;t=45012'}
    elif status == 429:
        headers = {"Retry-After": str(params.get("retry_after", 7))}
    return problem(int(str(params.get("status", status))), detail, headers=headers)


def refusal(name: str, params: Mapping[str, object]) -> Problem:
    """The problem that the fault `name` answers a create with."""
    status, detail = REFUSALS[name]
    return Problem(int(str(params.get("status", status))), detail)
