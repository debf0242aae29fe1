"""Every fault of the Vast.ai sandbox, as data, and the answers that need no state."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from starlette.responses import JSONResponse, PlainTextResponse, Response

from providers.sandbox.faults import (
    GARBAGE,
    LOST_REQUEST,
    UNAVAILABLE,
    Fault,
    FaultTable,
    LostReply,
    common,
    html,
    per_group,
)

#: Endpoint groups and the seconds that the documentation asks between two calls of one group.
THRESHOLDS_S: Mapping[str, float] = {
    "create": 4.5,
    "get": 2.0,
    "list": 1.0,
    "state": 1.0,
    "destroy": 3.0,
    "bid": 5.5,
    "charges": 1.0,
    "search": 6.0,
    "user": 0.0,
}
#: What can happen to an instance from outside.
DISTURBANCES: Mapping[str, str] = {
    "outbid_a": "a spot instance is outbid: stopped, and meant to be stopped",
    "outbid_b": "a spot instance is outbid: stopped, and still meant to run",
    "outbid_over": "the bid wins again and the instance resumes",
    "offline": "the host loses contact; nothing is billed",
    "online": "the host is back",
    "vanish": "the instance is gone without anybody's asking",
    "expire": "the host's listing ends: stopped for good",
    "dearer": "its price, or the bid for it, rises by a fifth and is billed from now on",
    "much_dearer": "its price, or the bid for it, rises by three fifths and is billed from now on",
    "gpu_taken": "somebody rents the GPUs of this stopped instance",
    "credit_gone": "the account's credit falls below zero and everything stops (the instance does not matter)",
    "credit_back": "somebody pays: there is credit again (the instance does not matter)",
}


def envelope(status: int, error: str, msg: str, **more: Any) -> JSONResponse:
    """The usual error body."""
    return JSONResponse({"success": False, "error": error, "msg": msg, **more}, status)


def too_often(form: str, threshold_s: float, retry_after: Any = None) -> Response:
    """A 429 in one of its four documented forms, with `Retry-After` when given."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    said = f"API requests too frequent endpoint threshold={threshold_s}"
    if form == "text":
        return PlainTextResponse("API requests too frequent", 429, headers)
    if form == "threshold":
        return PlainTextResponse(f"API requests too frequent: endpoint threshold={threshold_s}", 429, headers)
    if form == "detail":
        return JSONResponse({"detail": said}, 429, headers)
    return JSONResponse({"success": False, "error": "rate_limit_exceeded", "msg": said}, 429, headers)


def search_quota(now: datetime) -> Response:
    """The daily search quota is used up until UTC midnight."""
    midnight = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    headers = {"X-RateLimit-Reset": str(int(midnight.timestamp()))}
    body = {"success": False, "error": "search_quota_exceeded", "msg": "Daily search quota exceeded."}
    return JSONResponse(body, 429, headers)


def not_authorised(form: str = "404") -> JSONResponse:
    """A refused key, in one of the forms that were seen."""
    text = "This action requires login." if form == "403" else "Invalid user key"
    return envelope(int(form), "auth_error", text)


def stale(offer_id: int | str, status: int = 400) -> JSONResponse:
    """The offer is not there: 400 in practice, 404 in the documents, 410 for a race."""
    text = f"error 404/3603: no_such_ask  Instance type by id {offer_id} is not available."
    if status == 410:
        text = f"error 410/3907: no_such_ask  Instance type {offer_id} is no longer available."
    return envelope(status, "invalid_args" if status == 400 else "no_such_ask", text, ask_id=int(offer_id))


def no_such_instance(ref: int) -> JSONResponse:
    """Destroyed or never made."""
    return envelope(404, "no_such_instance", f"Instance {ref} not found.")


LACKS_CREDIT = envelope(400, "insufficient_credit", "Your account lacks credit; see the billing page.")
BAD_DISK = envelope(400, "invalid_args", "error 400/3467: Invalid args: disk")

#: Everything that can go wrong; parameters are in brackets.
# fmt: off
FAULTS = FaultTable(
    *per_group(THRESHOLDS_S, "auth", "the key is refused [form=404|403|401]",
        lambda given: not_authorised(str(given.get("form", "404"))), "AuthFailed"),
    *per_group(THRESHOLDS_S, "429", "refused for calling too often [form=text|threshold|detail|json, retry_after]",
        lambda given: too_often(str(given.get("form", "json")), THRESHOLDS_S[given["group"]], given.get("retry_after")),
        "RateLimited"),
    *per_group(THRESHOLDS_S, "503", "answered 503 without doing anything", UNAVAILABLE, "OutcomeUnknown"),
    common("create_503_after", spoils=UNAVAILABLE),
    common("create_no_credit", refuses=LACKS_CREDIT),
    LOST_REQUEST,
    Fault("create_half_made", "200 with success false, and a stopped instance that bills its disk", "ok"),
    Fault("create_garbage", "the instance is made and the answer is not JSON", "OutcomeUnknown",
        spoils=PlainTextResponse("OK")),
    Fault("create_no_id", "200 with success true, no id, and nothing made", "OutcomeUnknown",
        JSONResponse({"success": True})),
    Fault("create_redirect", "a 308 that nobody should follow with a create", "OutcomeUnknown",
        lambda given: Response(status_code=308, headers={"Location": f"/vast/api/v0/asks/{given['offer']}/"})),
    Fault("create_429_gateway", "a 429 page of some gateway in front, in none of the documented forms",
        "OutcomeUnknown", html("slow down", 429)),
    Fault("create_unknown_400", "a 400 with an error code that nobody documented", "OutcomeUnknown",
        envelope(400, "quantum_flux", "error 400/9999: something new")),
    Fault("create_stale_offer", "the offer is gone: 400 invalid_args with no_such_ask in the text", "NoCapacity",
        lambda given: stale(given["offer"], 400)),
    Fault("create_stale_404", "the offer is gone: 404 no_such_ask, the documented form", "NoCapacity",
        lambda given: stale(given["offer"], 404)),
    Fault("create_race_410", "somebody else took the offer in between: 410 no_such_ask", "NoCapacity",
        lambda given: stale(given["offer"], 410)),
    Fault("create_429_text", "429 as plain text", "RateLimited", too_often("text", 4.5)),
    Fault("create_429_threshold", "429 as plain text with the threshold", "RateLimited",
        too_often("threshold", 4.5, 7)),
    Fault("create_429_detail", "429 as JSON with only `detail`", "RateLimited", too_often("detail", 4.5)),
    Fault("create_auth_403", "403 auth_error: login required", "AuthFailed", not_authorised("403")),
    Fault("create_auth_401", "401 auth_error", "AuthFailed", not_authorised("401")),
    Fault("create_spend_rate_limit", "a new account's spend rate limit", "QuotaExceeded",
        envelope(400, "spend_rate_limit", "Spend rate limit reached.")),
    Fault("create_bad_args", "400 invalid_args with nothing about the offer", "InvalidSpec", BAD_DISK),
    Fault("create_bad_bid", "400 invalid_price", "InvalidSpec",
        envelope(400, "invalid_price", "error 400/3490: invalid_price Bid too high.")),
    Fault("create_not_own", "403 invalid_args: a host account may not rent from others", "InvalidSpec",
        lambda given: envelope(403, "invalid_args", f"error 403/3586: Offer {given['offer']} is not your own.")),
    Fault("create_get_lag", "reading the new instance by id answers null for a while [after_s=60]", "ok"),
    Fault("null_status", "the new instance has no status for a while [after_s=60]", "ok"),
    Fault("uptime_hidden", "the API never says for how long the new instance has run", "ok"),
    Fault("boot_error", "the new instance reports a failure instead of running", "ok"),
    Fault("pull_error", "the image of the new instance cannot be pulled", "ok"),
    Fault("other_gpu", "the new instance has other GPUs than its offer said [gpu=RTX3090]", "ok"),
    Fault("search_quota", "429 search_quota_exceeded with X-RateLimit-Reset at the next UTC midnight"),
    Fault("search_empty", "200 with no offers", refuses=JSONResponse({"offers": []})),
    Fault("search_garbage", "200 with something that is not JSON", refuses=GARBAGE),
    Fault("get_null", "an existing instance reads as null", refuses=JSONResponse({"instances": None})),
    Fault("list_empty", "200 with no rows although there are instances, and a total that says so"),
    Fault("list_truncated", "the first page says that it is the last"),
    Fault("list_bad_token", "the token of the next page is refused"),
    Fault("list_garbage", "200 with something that is not JSON", refuses=GARBAGE),
    Fault("charges_cut", "the rows of the bill are cut to the asked days, with the amounts of these days alone"),
    Fault("destroy_lost_reply", "the instance is destroyed and the reply never arrives", spoils=LostReply()),
    Fault("start_queued", "the GPU is taken: 200 with success false, and the start fires later [flips_s]"),
    Fault("destroy_503_after", "the instance is destroyed and the answer is 503", spoils=UNAVAILABLE),
)
# fmt: on
