"""Everything that can go wrong at RunPod, as switches. The cloud's page of known troubles is the source of the list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http.client import responses
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from providers.sandbox.api import RateWindow, Refused
from providers.sandbox.faults import Answer, Fault, FaultTable, LostReply

TITLES = {**responses, 422: "Unprocessable Entity"}
NO_CAPACITY = (
    "There are no longer any instances available with the requested specifications. Please refresh and try again."
)
NO_SPOT = "There are no instances available with the request specifications. Please try again later."
NO_FREE_GPU = "There are not enough free GPUs on the host machine to start this pod."
LOW_BALANCE = "Your account balance is too low to rent a pod. Please add funds to your account."
SPEND_LIMIT = "This pod would exceed your account's spend limit."
INVALID_KEY = "invalid bearer token"
#: Window → (requests, seconds): the numbers of the documented example.
WINDOWS = {"minute": (60, 60), "hour": (3000, 3600), "day": (50000, 86400)}


def problem(status: int, detail: str, errors: tuple[str, ...] = (), headers: dict[str, str] | None = None) -> Response:
    """An RFC 9457 answer."""
    body: dict[str, Any] = {"title": TITLES.get(status, "Error"), "status": status, "detail": detail}
    if errors:
        body["errors"] = list(errors)
    return JSONResponse(body, status, headers, media_type="application/problem+json")


def says(status: int, detail: str) -> Answer:
    """The same answer, made anew for each call, because the gateway stamps it."""
    return lambda _: problem(status, detail)


class RunPodProblem(Refused):
    """An answer in the RFC 9457 form: `status`, `detail`, and the list `errors` of a 422."""

    def __init__(self, status: int, detail: str, errors: tuple[str, ...] = ()) -> None:
        super().__init__(problem(status, detail, errors))
        self.status, self.detail, self.errors = status, detail, errors


def rate_headers(windows: Iterable[RateWindow], now_s: float) -> dict[str, str]:
    """`RateLimit-Policy` and `RateLimit` as of now."""
    policy, state = [], []
    for window in windows:
        left = max(0, window.most - window.used(now_s))
        policy.append(f'"{window.name}";q={window.most};w={window.seconds:g}')
        state.append(f'"{window.name}";r={left};t={int(window.opens_s(now_s))}')
    return {"RateLimit-Policy": ", ".join(policy), "RateLimit": ", ".join(state)}


def bearer(request: Request) -> str | None:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key if scheme.lower() == "bearer" and key else None


def key_problem(request: Request, key: str | None, right: str) -> Response | None:
    """The refusal of a bot's user agent or a bad key; None when all is well."""
    if request.headers.get("user-agent", "").startswith("Python-urllib"):
        return Response("error code: 1010", 403, media_type="text/plain")
    if key is None:
        return problem(401, "missing bearer token")
    return None if key == right else problem(401, INVALID_KEY)


ACCESS_DENIED = "access denied"
TOO_MANY = "rate limit exceeded for the minute window"
WENT_WRONG = "Something went wrong. Please try again later."


#: A create that is refused: fault → (status, detail). The parameter `status` of an armed fault overrides the status.
REFUSALS: Mapping[str, tuple[int, str]] = {
    "no_capacity": (400, NO_CAPACITY),
    "low_balance": (402, LOW_BALANCE),
    "pool_forbidden": (403, "access to this gpu pool is not allowed for your account"),
    "spend_limit": (400, SPEND_LIMIT),
    "image_missing": (422, "The image was not found in its registry."),
    "create_conflict": (409, "conflict"),
}

DISTURBANCES: Mapping[str, str] = {
    "host_failure": "The host fails: the pod becomes ERROR.",
    "exit": "The platform ends the container: EXITED, the volume is billed on.",
    "vanish": "Somebody deletes the pod behind our back.",
    "dearer": "The pod's price rises by a fifth and is billed from now on.",
    "much_dearer": "The pod's price rises by three fifths and is billed from now on.",
    "outbid": "Somebody pays more for an interruptible pod: EXITED, the volume is billed on.",
    "credit_gone": "The balance falls below zero: pods without a network volume are terminated, others are stopped.",
    "credit_back": "Somebody pays: there is a balance again (the pod does not matter).",
    "deaf": "sshd stops answering, everything else stays as it was.",
}


def too_many(given: Mapping[str, Any]) -> Response:
    """A 429 with Retry-After."""
    return problem(429, TOO_MANY, headers={"Retry-After": str(given.get("retry_after", 7))})


def too_many_bare(_given: Mapping[str, Any]) -> Response:
    """A 429 of which the RateLimit header is the only hint."""
    windows = '"minute";r=0;t=11, "hour";r=2800;t=1812, "day";r=49500;t=45012'
    return problem(429, TOO_MANY, headers={"RateLimit": windows})


def broken(usual: int) -> Answer:
    """An error of the service, with the status that is asked for."""
    return lambda given: problem(int(given.get("status", usual)), WENT_WRONG)


def refusal(name: str, params: Mapping[str, object]) -> RunPodProblem:
    """The problem that the fault `name` answers a create with."""
    status, detail = REFUSALS[name]
    return RunPodProblem(int(str(params.get("status", status))), detail)


# fmt: off
FAULTS = FaultTable(
    Fault("unauthorized", "The key is refused: 401.", "", says(401, INVALID_KEY), calls="*"),
    Fault("forbidden", "The key may not do this: 403, access denied.", "", says(403, ACCESS_DENIED), calls="*"),
    Fault("rate_limited", "429 with Retry-After (parameter retry_after, default 7).", "", too_many, calls="*"),
    Fault("rate_limited_bare", "429 without Retry-After, but with the RateLimit header's windows.", "", too_many_bare,
        calls="*"),
    Fault("server_error", "An error without any effect (parameter status, default 500).", "", broken(500), calls="*"),
    Fault("create_auth", "A create is refused: 401.", "AuthFailed", says(401, INVALID_KEY)),
    Fault("create_forbidden", "A create is refused: 403, access denied.", "AuthFailed", says(403, ACCESS_DENIED)),
    Fault("create_429", "A create is answered 429 with Retry-After (parameter retry_after, default 7).", "RateLimited",
        too_many),
    Fault("create_429_bare", "A create is answered 429 with the RateLimit header only.", "RateLimited", too_many_bare),
    Fault("create_500", "A create is answered 500 and has no effect (parameter status).", "OutcomeUnknown",
        broken(500)),
    Fault("get_503", "Reading one pod answers 503.", "", says(503, WENT_WRONG)),
    Fault("list_503", "A page of the listing answers 503.", "", says(503, WENT_WRONG)),
    Fault("destroy_429", "A delete is answered 429 with Retry-After (parameter retry_after, default 7).", "", too_many),
    Fault("lost_reply", "The pod is made and the reply is cut off.", "OutcomeUnknown", spoils=LostReply(201),
        calls="create"),
    Fault("error_after_create", "The pod is made and the answer says 5xx (parameter status, default 503).",
        "OutcomeUnknown", spoils=broken(503), calls="create"),
    Fault("late_create", "The answer says 504 and the pod is made later (parameter after_s, default 200).",
        "OutcomeUnknown"),
    Fault("unreadable_reply", "The pod is made and the 201 holds no readable pod.", "OutcomeUnknown",
        spoils=lambda _: Response("<html><body>Created</body></html>", 201, media_type="text/html"), calls="create"),
    Fault("no_capacity", "400 with the sentence that no instance is left.", "NoCapacity"),
    Fault("low_balance", "402: the balance is too low.", "InsufficientFunds"),
    Fault("pool_forbidden", "403: the account may not use this GPU pool.", "NoCapacity"),
    Fault("spend_limit", "The account's spend limit refuses it (parameter status, default 400).", "QuotaExceeded"),
    Fault("image_missing", "422 in prose: the image is not in its registry.", "InvalidSpec"),
    Fault("create_conflict", "409 to a create, which is documented nowhere.", "OutcomeUnknown"),
    Fault("price_above", "The pod costs more than the catalogue says (parameter factor, default 1.5).", "ok"),
    Fault("list_lag", "The pod is missing from listings at first (parameter after_s, default 60).", "ok"),
    Fault("running_at_once", "RUNNING in the answer to the create, long before anything can be reached.", "ok"),
    Fault("sshd_lag", "The address is shown before sshd answers there (parameter after_s, default 90).", "ok"),
    Fault("never_boots", "RUNNING for ever, and no container starts.", "ok"),
    Fault("no_address", "The new pod's community host has no public address, so SSH never answers there.", "ok"),
    Fault("exit_loop", "The main process ends again and again (parameter every_s, default 20); billing goes on.", "ok"),
    Fault("page_error", "The second page of a listing answers 500."),
    Fault("small_pages", "A listing comes in pages of few rows (parameter rows, default 1)."),
    Fault("no_pagination", "A listing without the pagination object, as the older service answered."),
    Fault("volumes_short", "A listing of network volumes lacks some (parameter rows: how many it shows, default 0)."),
    Fault("mounted_volume_deleted", "204 to the delete of a network volume that a pod mounts, and it is gone."),
    Fault("delete_ignored", "204 to a delete, and the pod lives on."),
    Fault("action_ignored", "200 to an action, and nothing happens."),
    Fault("action_conflict", "409 to an action."),
    Fault("start_no_capacity", "400 to a start: the host's GPUs are taken."),
    Fault("stale_address", "After a start or restart the old SSH address is shown for 30 s."),
    Fault("spot_withdrawn", "GraphQL does not know podRentInterruptable: 400, as for any unknown field."),
    Fault("balance_retired", "GraphQL answers 410, as it will when it is retired.", "",
        says(410, "This API was retired."), calls="graphql"),
    aliases={
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
    },
)
# fmt: on
