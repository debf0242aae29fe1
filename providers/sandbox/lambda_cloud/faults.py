"""Every fault of the Lambda sandbox, as data, and the answers that need no state."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import JSONResponse, PlainTextResponse, Response

from providers.sandbox.faults import Fault, FaultTable, LostReply, common, per_group

GROUPS = ("search", "create", "get", "list", "destroy", "restart", "keys", "audit", "misc")
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


def conflict() -> Response:
    """Another action on the instance is under way."""
    return error(409, "global/conflict", "The request conflicts with the current state of the resource.")


def wrong_region() -> Response:
    """A file system that a launch names is elsewhere."""
    code = "instance-operations/launch/file-system-in-wrong-region"
    return error(400, code, "The filesystem is in another region.")


#: Everything that can go wrong; parameters are in brackets.
# fmt: off
FAULTS = FaultTable(
    *per_group(GROUPS, "auth", "the key is refused: 401 global/invalid-api-key", lambda _: not_authorised(),
        "AuthFailed"),
    *per_group(GROUPS, "429", "refused for calling too often [form=json|html, retry_after (null: no such header)]",
        lambda given: too_often(str(given.get("form", "json")), given.get("retry_after", 1)), "RateLimited"),
    *per_group(GROUPS, "503", "answered 503 without doing anything", lambda _: unavailable(), "OutcomeUnknown"),
    *per_group(GROUPS, "inactive", "the account is inactive: 403 global/account-inactive", lambda _: inactive(),
        "InsufficientFunds"),
    *per_group(GROUPS, "provider", "a provider/internal-unavailable error [status=500]",
        lambda given: provider_error(int(given.get("status", 500))), "OutcomeUnknown"),
    common("create_503_after", spoils=lambda _: unavailable()),
    Fault("create_lost_request", "the connection drops before anything is made", "OutcomeUnknown",
        lambda _: LostReply()),
    Fault("create_500_after", "the instance is made and the answer is 500 global/internal-error", "OutcomeUnknown",
        spoils=lambda _: error(500, "global/internal-error", "An internal server error occurred.")),
    Fault("create_garbage", "the instance is made and the answer is not JSON", "OutcomeUnknown",
        spoils=lambda _: garbage()),
    Fault("create_no_id", "200 without any instance id, and nothing made", "OutcomeUnknown",
        lambda _: JSONResponse({"data": {"instance_ids": []}})),
    Fault("create_two", "two instances are made", "OutcomeUnknown"),
    Fault("create_409", "409 global/conflict, which is not documented for a launch", "OutcomeUnknown",
        lambda _: conflict()),
    Fault("create_redirect", "a 308 that nobody should follow with a create", "OutcomeUnknown",
        lambda _: Response(status_code=308, headers={"Location": "/elsewhere"})),
    Fault("create_unknown_400", "a 400 with an error code that nobody documented", "OutcomeUnknown",
        lambda _: error(400, "global/quantum-flux", "Something new.")),
    Fault("create_gateway_400", "a 400 page of something in between", "OutcomeUnknown",
        lambda _: PlainTextResponse("<html>400 Bad Request</html>", 400, media_type="text/html")),
    Fault("create_stale_offer", "400 insufficient-capacity although the region was offered: somebody was faster",
        "NoCapacity", lambda _: no_capacity()),
    Fault("create_429_html", "429 as an HTML page, with Retry-After", "RateLimited", lambda _: too_often("html", 12)),
    Fault("create_429_bare", "429 as JSON without Retry-After", "RateLimited", lambda _: too_often("json", None)),
    Fault("create_forbidden", "403 global/forbidden", "AuthFailed",
        lambda _: error(403, "global/forbidden", "Forbidden.")),
    Fault("create_bad_address", "403 global/invalid-address: the billing address is invalid", "InsufficientFunds",
        lambda _: error(403, "global/invalid-address", "Your billing address is invalid.")),
    Fault("create_quota", "400 global/quota-exceeded", "QuotaExceeded",
        lambda _: error(400, "global/quota-exceeded", "Quota exceeded.", "Contact Support to increase your quota.")),
    Fault("create_bad_args", "400 global/invalid-parameters", "InvalidSpec", lambda _: invalid()),
    Fault("create_wrong_region", "400 file-system-in-wrong-region", "InvalidSpec", lambda _: wrong_region()),
    Fault("create_key_missing", "404 global/object-does-not-exist: somebody deleted the SSH key meanwhile",
        "InvalidSpec", lambda _: missing("SSH key")),
    Fault("create_key_missing_400", "the same as 400, as the documents list it too", "InvalidSpec",
        lambda _: missing("SSH key", 400)),
    Fault("create_get_lag", "reading the new instance by id answers 404 for a while [after_s=60]", "ok"),
    Fault("price_live", "the instance shows today's price of its type, not the one it was launched at", "ok"),
    Fault("billed_from_active", "billing starts when the new instance becomes active, not at the launch", "ok"),
    Fault("boots_unhealthy", "the new instance becomes unhealthy instead of active", "ok"),
    Fault("no_private_ip", "the new instance never has a private_ip, as was seen in us-south-1", "ok"),
    Fault("tags_hidden", "the API never shows the tags of the new instance", "ok"),
    Fault("terminate_refused_while_booting", "409 to a terminate while the new instance boots", "ok"),
    Fault("keys_added_meanwhile", "another client registers the same key first: global/duplicate"),
    Fault("keys_taken_once", "global/duplicate for a key that the account has under another name"),
    Fault("keys_garbage", "200 with something that is not JSON for SSH keys", refuses=lambda _: garbage()),
    Fault("search_empty", "200 with no instance types", refuses=lambda _: JSONResponse({"data": {}})),
    Fault("search_garbage", "200 with something that is not JSON", refuses=lambda _: garbage()),
    Fault("get_missing", "an existing instance answers 404 to a read by id", refuses=lambda _: missing()),
    Fault("list_empty", "200 with an empty list although there are instances",
        refuses=lambda _: JSONResponse({"data": []})),
    Fault("list_garbage", "200 with something that is not JSON", refuses=lambda _: garbage()),
    Fault("destroy_lost_reply", "the instance is terminated and the reply never arrives",
        spoils=lambda _: LostReply()),
    Fault("destroy_503_after", "the instance is terminated and the answer is 503", spoils=lambda _: unavailable()),
    Fault("destroy_again_404", "a second terminate answers 404 while the instance is still listed"),
    Fault("destroy_unnamed", "200 with an empty list of terminated instances, and nothing is terminated",
        refuses=lambda _: JSONResponse({"data": {"terminated_instances": []}})),
    Fault("terminated_lingers", "the terminated instance stays listed as terminated [after_s=120]"),
    Fault("restart_conflict", "409 global/conflict to a restart", refuses=lambda _: conflict()),
    Fault("audit_small_pages", "the audit log comes in pages of few events [rows=1]"),
    aliases={"create_no_credit": "create_inactive"},
)
# fmt: on
