"""Every fault of the Vast.ai sandbox, as data, and the answers that need no state."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from starlette.responses import JSONResponse, PlainTextResponse, Response

from providers.sandbox.faults import COMMON_FAULTS

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
SEARCHES_A_MINUTE = 10
_GENERIC = {
    "429": "refused for calling too often [form=text|threshold|detail|json, retry_after]",
    "503": "answered 503 without doing anything",
    "auth": "the key is refused [form=404|403|401]",
}
#: What a create may meet: name → the error class that an adapter must raise, or "ok".
CREATE_FAULTS: Mapping[str, str] = {
    "create_lost_reply": "OutcomeUnknown",
    "create_lost_request": "OutcomeUnknown",
    "create_503": "OutcomeUnknown",
    "create_503_after": "OutcomeUnknown",
    "create_lands_late": "OutcomeUnknown",
    "create_half_made": "OutcomeUnknown",
    "create_garbage": "OutcomeUnknown",
    "create_no_id": "OutcomeUnknown",
    "create_redirect": "OutcomeUnknown",
    "create_429_gateway": "OutcomeUnknown",
    "create_unknown_400": "OutcomeUnknown",
    "create_stale_offer": "NoCapacity",
    "create_stale_404": "NoCapacity",
    "create_race_410": "NoCapacity",
    "create_429": "RateLimited",
    "create_429_text": "RateLimited",
    "create_429_threshold": "RateLimited",
    "create_429_detail": "RateLimited",
    "create_auth": "AuthFailed",
    "create_auth_403": "AuthFailed",
    "create_auth_401": "AuthFailed",
    "create_no_credit": "InsufficientFunds",
    "create_spend_rate_limit": "QuotaExceeded",
    "create_bad_args": "InvalidSpec",
    "create_bad_bid": "InvalidSpec",
    "create_not_own": "InvalidSpec",
    "create_get_lag": "ok",
    "create_list_lag": "ok",
    "price_higher_than_quoted": "ok",
    "never_boots": "ok",
    "null_status": "ok",
    "uptime_hidden": "ok",
    "boot_error": "ok",
    "pull_error": "ok",
    "running_before_reachable": "ok",
    "other_gpu": "ok",
}
#: Faults by name with one sentence each.
FAULTS: Mapping[str, str] = {
    **{f"{group}_{kind}": f"{group}: {what}" for group in THRESHOLDS_S for kind, what in _GENERIC.items()},
    **COMMON_FAULTS,
    "create_lost_request": "the connection drops before anything is made",
    "create_half_made": "200 with success false, and a stopped instance that bills its disk",
    "create_garbage": "the instance is made and the answer is not JSON",
    "create_no_id": "200 with success true, no id, and nothing made",
    "create_redirect": "a 308 that nobody should follow with a create",
    "create_429_gateway": "a 429 page of some gateway in front, in none of the documented forms",
    "create_unknown_400": "a 400 with an error code that nobody documented",
    "create_stale_offer": "the offer is gone: 400 invalid_args with no_such_ask in the text",
    "create_stale_404": "the offer is gone: 404 no_such_ask, the documented form",
    "create_race_410": "somebody else took the offer in between: 410 no_such_ask",
    "create_429_text": "429 as plain text",
    "create_429_threshold": "429 as plain text with the threshold",
    "create_429_detail": "429 as JSON with only `detail`",
    "create_auth_403": "403 auth_error: login required",
    "create_auth_401": "401 auth_error",
    "create_spend_rate_limit": "a new account's spend rate limit",
    "create_bad_args": "400 invalid_args with nothing about the offer",
    "create_bad_bid": "400 invalid_price",
    "create_not_own": "403 invalid_args: a host account may not rent from others",
    "create_get_lag": "reading the new instance by id answers null for a while [after_s=60]",
    "null_status": "the new instance has no status for a while [after_s=60]",
    "uptime_hidden": "the API never says for how long the new instance has run",
    "boot_error": "the new instance reports a failure instead of running",
    "pull_error": "the image of the new instance cannot be pulled",
    "other_gpu": "the new instance has other GPUs than its offer said [gpu=RTX3090]",
    "search_quota": "429 search_quota_exceeded with X-RateLimit-Reset at the next UTC midnight",
    "search_empty": "200 with no offers",
    "search_garbage": "200 with something that is not JSON",
    "get_null": "an existing instance reads as null",
    "list_empty": "200 with no rows although there are instances, and a total that says so",
    "list_truncated": "the first page says that it is the last",
    "list_bad_token": "the token of the next page is refused",
    "list_garbage": "200 with something that is not JSON",
    "destroy_lost_reply": "the instance is destroyed and the reply never arrives",
    "start_queued": "the GPU is taken: 200 with success false, and the start fires later [flips_s]",
    "destroy_503_after": "the instance is destroyed and the answer is 503",
}
#: What a price that rises is multiplied by.
DEARER: Mapping[str, Decimal] = {"dearer": Decimal("1.2"), "much_dearer": Decimal("1.6")}
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


def stale(offer_id: int, status: int = 400) -> JSONResponse:
    """The offer is not there: 400 in practice, 404 in the documents, 410 for a race."""
    if status == 410:
        text = f"error 410/3907: no_such_ask  Instance type {offer_id} is no longer available."
        return envelope(410, "no_such_ask", text, ask_id=offer_id)
    error = "invalid_args" if status == 400 else "no_such_ask"
    text = f"error 404/3603: no_such_ask  Instance type by id {offer_id} is not available."
    return envelope(status, error, text, ask_id=offer_id)


def lacks_credit() -> JSONResponse:
    """No credit, no instance."""
    return envelope(400, "insufficient_credit", "Your account lacks credit; see the billing page.")


def unavailable() -> Response:
    """What a gateway says."""
    return PlainTextResponse("<html>503 Service Temporarily Unavailable</html>", 503, media_type="text/html")


def no_such_instance(ref: int) -> JSONResponse:
    """Destroyed or never made."""
    return envelope(404, "no_such_instance", f"Instance {ref} not found.")


#: Refusals of a create that need nothing but the offer's id.
CREATE_REFUSALS: Mapping[str, Any] = {
    "create_stale_offer": lambda ask: stale(ask, 400),
    "create_stale_404": lambda ask: stale(ask, 404),
    "create_race_410": lambda ask: stale(ask, 410),
    "create_429_text": lambda _: too_often("text", 4.5),
    "create_429_threshold": lambda _: too_often("threshold", 4.5, 7),
    "create_429_detail": lambda _: too_often("detail", 4.5),
    "create_429_gateway": lambda _: PlainTextResponse("<html>slow down</html>", 429, media_type="text/html"),
    "create_auth_403": lambda _: not_authorised("403"),
    "create_auth_401": lambda _: not_authorised("401"),
    "create_no_credit": lambda _: lacks_credit(),
    "create_spend_rate_limit": lambda _: envelope(400, "spend_rate_limit", "Spend rate limit reached."),
    "create_bad_args": lambda _: envelope(400, "invalid_args", "error 400/3467: Invalid args: disk"),
    "create_bad_bid": lambda _: envelope(400, "invalid_price", "error 400/3490: invalid_price  Bid too high."),
    "create_not_own": lambda ask: envelope(403, "invalid_args", f"error 403/3586: Offer {ask} is not your own."),
    "create_no_id": lambda _: JSONResponse({"success": True}),
    "create_redirect": lambda ask: Response(status_code=308, headers={"Location": f"/vast/api/v0/asks/{ask}/"}),
    "create_unknown_400": lambda _: envelope(400, "quantum_flux", "error 400/9999: something new"),
}
