"""Every fault of the Lambda sandbox, as data, and the answers that need no state."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from starlette.responses import JSONResponse, PlainTextResponse, Response

from providers.sandbox.faults import COMMON_FAULTS

#: Documented seconds between two calls, and between two launches.
CALL_S, LAUNCH_S = 1.0, 12.0
GROUPS = ("search", "create", "get", "list", "destroy", "restart", "keys", "audit", "misc")
_GENERIC = {
    "429": "refused for calling too often [form=json|html, retry_after (null: no such header)]",
    "503": "answered 503 without doing anything",
    "auth": "the key is refused: 401 global/invalid-api-key",
    "inactive": "the account is inactive: 403 global/account-inactive",
    "provider": "a provider/internal-unavailable error [status=500]",
}
#: What a launch may meet: name → the error class that an adapter must raise, or "ok".
CREATE_FAULTS: Mapping[str, str] = {
    "create_lost_reply": "OutcomeUnknown",
    "create_lost_request": "OutcomeUnknown",
    "create_503": "OutcomeUnknown",
    "create_503_after": "OutcomeUnknown",
    "create_500_after": "OutcomeUnknown",
    "create_provider": "OutcomeUnknown",
    "create_lands_late": "OutcomeUnknown",
    "create_garbage": "OutcomeUnknown",
    "create_no_id": "OutcomeUnknown",
    "create_two": "OutcomeUnknown",
    "create_409": "OutcomeUnknown",
    "create_redirect": "OutcomeUnknown",
    "create_unknown_400": "OutcomeUnknown",
    "create_gateway_400": "OutcomeUnknown",
    "create_stale_offer": "NoCapacity",
    "create_429": "RateLimited",
    "create_429_html": "RateLimited",
    "create_429_bare": "RateLimited",
    "create_auth": "AuthFailed",
    "create_forbidden": "AuthFailed",
    "create_inactive": "InsufficientFunds",
    "create_bad_address": "InsufficientFunds",
    "create_quota": "QuotaExceeded",
    "create_bad_args": "InvalidSpec",
    "create_wrong_region": "InvalidSpec",
    "create_key_missing": "InvalidSpec",
    "create_key_missing_400": "InvalidSpec",
    "create_get_lag": "ok",
    "create_list_lag": "ok",
    "price_higher_than_quoted": "ok",
    "price_live": "ok",
    "billed_from_active": "ok",
    "never_boots": "ok",
    "boots_unhealthy": "ok",
    "running_before_reachable": "ok",
    "no_private_ip": "ok",
    "tags_hidden": "ok",
    "terminate_refused_while_booting": "ok",
}
#: Common name → the name here.
ALIASES: Mapping[str, str] = {"create_no_credit": "create_inactive"}
#: Faults by name with one sentence each.
FAULTS: Mapping[str, str] = {
    **{f"{group}_{kind}": f"{group}: {what}" for group in GROUPS for kind, what in _GENERIC.items()},
    **{name: what for name, what in COMMON_FAULTS.items() if name not in ALIASES},
    "create_lost_request": "the connection drops before anything is made",
    "create_500_after": "the instance is made and the answer is 500 global/internal-error",
    "create_garbage": "the instance is made and the answer is not JSON",
    "create_no_id": "200 without any instance id, and nothing made",
    "create_two": "two instances are made",
    "create_409": "409 global/conflict, which is not documented for a launch",
    "create_redirect": "a 308 that nobody should follow with a create",
    "create_unknown_400": "a 400 with an error code that nobody documented",
    "create_gateway_400": "a 400 page of something in between",
    "create_stale_offer": "400 insufficient-capacity although the region was offered: somebody was faster",
    "create_429_html": "429 as an HTML page, with Retry-After",
    "create_429_bare": "429 as JSON without Retry-After",
    "create_forbidden": "403 global/forbidden",
    "create_bad_address": "403 global/invalid-address: the billing address is invalid",
    "create_quota": "400 global/quota-exceeded",
    "create_bad_args": "400 global/invalid-parameters",
    "create_wrong_region": "400 file-system-in-wrong-region",
    "create_key_missing": "404 global/object-does-not-exist: somebody deleted the SSH key meanwhile",
    "create_key_missing_400": "the same as 400, as the documents list it too",
    "create_get_lag": "reading the new instance by id answers 404 for a while [after_s=60]",
    "price_live": "the instance shows today's price of its type, not the one it was launched at",
    "billed_from_active": "billing starts when the new instance becomes active, not at the launch",
    "boots_unhealthy": "the new instance becomes unhealthy instead of active",
    "no_private_ip": "the new instance never has a private_ip, as was seen in us-south-1",
    "tags_hidden": "the API never shows the tags of the new instance",
    "terminate_refused_while_booting": "409 to a terminate while the new instance boots",
    "keys_added_meanwhile": "another client registers the same key first: global/duplicate",
    "keys_taken_once": "global/duplicate for a key that the account has under another name",
    "keys_garbage": "200 with something that is not JSON for SSH keys",
    "search_empty": "200 with no instance types",
    "search_garbage": "200 with something that is not JSON",
    "get_missing": "an existing instance answers 404 to a read by id",
    "list_empty": "200 with an empty list although there are instances",
    "list_garbage": "200 with something that is not JSON",
    "destroy_lost_reply": "the instance is terminated and the reply never arrives",
    "destroy_503_after": "the instance is terminated and the answer is 503",
    "destroy_again_404": "a second terminate answers 404 while the instance is still listed",
    "destroy_unnamed": "200 with an empty list of terminated instances, and nothing is terminated",
    "terminated_lingers": "the terminated instance stays listed as terminated [after_s=120]",
    "restart_conflict": "409 global/conflict to a restart",
    "audit_small_pages": "the audit log comes in pages of few events [rows=1]",
}
#: What can happen to an instance from outside.
DISTURBANCES: Mapping[str, str] = {
    "unhealthy": "the instance fails its health checks; billing goes on",
    "healthy": "it passes them again",
    "preempted": "the instance is preempted; nothing is billed any more",
    "vanish": "the instance is gone without anybody's asking",
    "shutdown": "somebody shuts the system down from inside: no SSH, and billing goes on",
    "account_inactive": "the account is put on hold: launches are refused (the instance does not matter)",
}


def error(status: int, code: str, message: str, suggestion: str | None = None) -> JSONResponse:
    """The error envelope. Only the code is stable."""
    body = {"code": code, "message": message} | ({"suggestion": suggestion} if suggestion else {})
    return JSONResponse({"error": body}, status)


def too_often(form: str = "json", retry_after: object = 1) -> Response:
    """A 429. Neither its body nor its headers are documented."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    if form == "html":
        return PlainTextResponse("<html>429 Too Many Requests</html>", 429, headers, media_type="text/html")
    body = {"error": {"code": "global/rate-limited", "message": "Too many requests."}}
    return JSONResponse(body, 429, headers)


def not_authorised() -> Response:
    """A wrong or missing key."""
    text = "API key was invalid, expired, or deleted."
    return error(401, "global/invalid-api-key", text, "Check your API key or create a new one, then try again.")


def inactive() -> Response:
    """An account without a verified address or a payment method."""
    hint = "Make sure you have verified your email address and have a valid payment method."
    return error(403, "global/account-inactive", "Your account is inactive.", hint)


def provider_error(status: int = 500) -> Response:
    """An error of the layer below; its status is documented nowhere."""
    return error(status, "provider/internal-unavailable", "Provider unavailable", "Try again shortly")


def unavailable() -> Response:
    """What a gateway says."""
    return PlainTextResponse("<html>503 Service Temporarily Unavailable</html>", 503, media_type="text/html")


def no_capacity() -> Response:
    """The region has no machine of this type."""
    text = "Not enough capacity to fulfill launch request."
    return error(400, "instance-operations/launch/insufficient-capacity", text)


def missing(what: str = "Specified instance", status: int = 404) -> Response:
    """An object that is not there."""
    return error(status, "global/object-does-not-exist", f"{what} does not exist.")


def invalid(message: str = "Invalid request data.") -> Response:
    """A malformed request."""
    return error(400, "global/invalid-parameters", message)


def garbage() -> Response:
    """A page where JSON was expected."""
    return PlainTextResponse("<html>hello</html>")


#: Refusals of a launch that need nothing else.
CREATE_REFUSALS: Mapping[str, Callable[[], Response]] = {
    "create_stale_offer": no_capacity,
    "create_429_html": lambda: too_often("html", 12),
    "create_429_bare": lambda: too_often("json", None),
    "create_forbidden": lambda: error(403, "global/forbidden", "Forbidden."),
    "create_bad_address": lambda: error(403, "global/invalid-address", "Your billing address is invalid."),
    "create_quota": lambda: error(
        400, "global/quota-exceeded", "Quota exceeded.", "Contact Support to increase your quota."
    ),
    "create_bad_args": invalid,
    "create_wrong_region": lambda: error(
        400, "instance-operations/launch/file-system-in-wrong-region", "The filesystem is in another region."
    ),
    "create_key_missing": lambda: missing("SSH key"),
    "create_key_missing_400": lambda: missing("SSH key", 400),
    "create_no_id": lambda: JSONResponse({"data": {"instance_ids": []}}),
    "create_409": lambda: error(409, "global/conflict", "The request conflicts with the current state."),
    "create_redirect": lambda: Response(status_code=308, headers={"Location": "/elsewhere"}),
    "create_unknown_400": lambda: error(400, "global/quantum-flux", "Something new."),
    "create_gateway_400": lambda: PlainTextResponse("<html>400 Bad Request</html>", 400, media_type="text/html"),
}
