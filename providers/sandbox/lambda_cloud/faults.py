"""Every fault of the Lambda sandbox, as data, and the answers that need no state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from providers.sandbox.faults import (
    GARBAGE,
    LOST_REQUEST,
    REDIRECT,
    UNAVAILABLE,
    Fault,
    FaultTable,
    LostReply,
    common,
    html,
    per_group,
    too_often,
)

GROUPS = ("search", "create", "get", "list", "destroy", "restart", "keys", "audit", "misc")
#: What can happen to an instance from outside.
DISTURBANCES: Mapping[str, str] = {
    "unhealthy": "the instance fails its health checks; billing goes on",
    "healthy": "it passes them again",
    "preempted": "the instance is preempted for good; nothing is billed any more",
    "vanish": "the instance is gone without anybody's asking",
    "shutdown": "somebody shuts the system down from inside: no SSH, and billing goes on",
    "account_inactive": "the account is put on hold: launches are refused (the instance does not matter)",
    "account_active": "the account is active again (the instance does not matter)",
}


def error(status: int, code: str, message: str, suggestion: str | None = None) -> Response:
    """The error envelope. Only the code is stable."""
    body = {"code": code, "message": message} | ({"suggestion": suggestion} if suggestion else {})
    return JSONResponse({"error": body}, status)


def missing(what: str = "Specified instance", status: int = 404) -> Response:
    """An object that is not there."""
    return error(status, "global/object-does-not-exist", f"{what} does not exist.")


NOT_FOUND = error(404, "global/not-found", "The requested resource was not found.")


def provider_error(given: Mapping[str, Any]) -> Response:
    """An error of the layer below; its status is documented nowhere."""
    status = int(given.get("status", 500))
    return error(status, "provider/internal-unavailable", "Provider unavailable", "Try again shortly")


NOT_AUTHORISED = error(
    401,
    "global/invalid-api-key",
    "API key was invalid, expired, or deleted.",
    "Check your API key or create a new one, then try again.",
)
#: An account without a verified address or a payment method.
INACTIVE = error(
    403,
    "global/account-inactive",
    "Your account is inactive.",
    "Make sure you have verified your email address and have a valid payment method.",
)
NO_CAPACITY = error(
    400, "instance-operations/launch/insufficient-capacity", "Not enough capacity to fulfill launch request."
)
INVALID = error(400, "global/invalid-parameters", "Invalid request data.")
CONFLICT = error(409, "global/conflict", "The request conflicts with the current state of the resource.")
WRONG_REGION = error(
    400, "instance-operations/launch/file-system-in-wrong-region", "The filesystem is in another region."
)
SLOW_DOWN = {"error": {"code": "global/rate-limited", "message": "Too many requests."}}
too_many = too_often(SLOW_DOWN, "429 Too Many Requests", 1)

#: Everything that can go wrong; parameters are in brackets.
# fmt: off
FAULTS = FaultTable(
    *per_group(GROUPS, "auth", "the key is refused: 401 global/invalid-api-key", NOT_AUTHORISED, "AuthFailed"),
    *per_group(GROUPS, "429", "refused for calling too often [form=json|html, retry_after (null: no such header)]",
        too_many, "RateLimited"),
    *per_group(GROUPS, "503", "answered 503 without doing anything", UNAVAILABLE, "OutcomeUnknown"),
    *per_group(GROUPS, "inactive", "the account is inactive: 403 global/account-inactive", INACTIVE,
        "InsufficientFunds"),
    *per_group(GROUPS, "provider", "a provider/internal-unavailable error [status=500]", provider_error,
        "OutcomeUnknown"),
    common("create_503_after", spoils=UNAVAILABLE),
    LOST_REQUEST,
    Fault("create_500_after", "the instance is made and the answer is 500 global/internal-error", "OutcomeUnknown",
        spoils=error(500, "global/internal-error", "An internal server error occurred.")),
    Fault("create_garbage", "the instance is made and the answer is not JSON", "OutcomeUnknown", spoils=GARBAGE),
    Fault("create_no_id", "200 without any instance id, and nothing made", "OutcomeUnknown",
        JSONResponse({"data": {"instance_ids": []}})),
    Fault("create_two", "two instances are made", "OutcomeUnknown"),
    Fault("create_409", "409 global/conflict, which is not documented for a launch", "OutcomeUnknown", CONFLICT),
    REDIRECT,
    Fault("create_unknown_400", "a 400 with an error code that nobody documented", "OutcomeUnknown",
        error(400, "global/quantum-flux", "Something new.")),
    Fault("create_gateway_400", "a 400 page of something in between", "OutcomeUnknown", html("400 Bad Request", 400)),
    Fault("create_stale_offer", "400 insufficient-capacity although the region was offered: somebody was faster",
        "NoCapacity", NO_CAPACITY),
    Fault("create_429_html", "429 as an HTML page, with Retry-After", "RateLimited",
        too_many({"form": "html", "retry_after": 12})),
    Fault("create_429_bare", "429 as JSON without Retry-After", "RateLimited", too_many({"retry_after": None})),
    Fault("create_forbidden", "403 global/forbidden", "AuthFailed", error(403, "global/forbidden", "Forbidden.")),
    Fault("create_bad_address", "403 global/invalid-address: the billing address is invalid", "InsufficientFunds",
        error(403, "global/invalid-address", "Your billing address is invalid.")),
    Fault("create_quota", "400 global/quota-exceeded", "QuotaExceeded",
        error(400, "global/quota-exceeded", "Quota exceeded.", "Contact Support to increase your quota.")),
    Fault("create_bad_args", "400 global/invalid-parameters", "InvalidSpec", INVALID),
    Fault("create_wrong_region", "400 file-system-in-wrong-region", "InvalidSpec", WRONG_REGION),
    Fault("create_key_missing", "404 global/object-does-not-exist: somebody deleted the SSH key meanwhile",
        "InvalidSpec", missing("SSH key")),
    Fault("create_key_missing_400", "the same as 400, as the documents list it too", "InvalidSpec",
        missing("SSH key", 400)),
    Fault("create_get_lag", "reading the new instance by id answers 404 for a while [after_s=60]", "ok"),
    Fault("price_live", "the instance shows today's price of its type, not the one it was launched at", "ok"),
    Fault("billed_from_active", "billing starts when the new instance becomes active, not at the launch", "ok"),
    Fault("boots_unhealthy", "the new instance becomes unhealthy instead of active", "ok"),
    Fault("no_private_ip", "the new instance never has a private_ip, as was seen in us-south-1", "ok"),
    Fault("tags_hidden", "the API never shows the tags of the new instance", "ok"),
    Fault("terminate_refused_while_booting", "409 to a terminate while the new instance boots", "ok"),
    Fault("keys_added_meanwhile", "another client registers the same key first: global/duplicate"),
    Fault("keys_taken_once", "global/duplicate for a key that the account has under another name"),
    Fault("keys_garbage", "200 with something that is not JSON for SSH keys", refuses=GARBAGE),
    Fault("search_empty", "200 with no instance types", refuses=JSONResponse({"data": {}})),
    Fault("search_garbage", "200 with something that is not JSON", refuses=GARBAGE),
    Fault("get_missing", "an existing instance answers 404 to a read by id", refuses=missing()),
    Fault("list_empty", "200 with an empty list although there are instances", refuses=JSONResponse({"data": []})),
    Fault("list_garbage", "200 with something that is not JSON", refuses=GARBAGE),
    Fault("destroy_lost_reply", "the instance is terminated and the reply never arrives", spoils=LostReply()),
    Fault("destroy_503_after", "the instance is terminated and the answer is 503", spoils=UNAVAILABLE),
    Fault("destroy_again_404", "a second terminate answers 404 while the instance is still listed"),
    Fault("destroy_unnamed", "200 with an empty list of terminated instances, and nothing is terminated",
        refuses=JSONResponse({"data": {"terminated_instances": []}})),
    Fault("terminated_lingers", "the terminated instance stays listed as terminated [after_s=120]"),
    Fault("restart_conflict", "409 global/conflict to a restart", refuses=CONFLICT),
    Fault("volumes_short", "a listing of file systems lacks some [rows=0: how many it shows]"),
    Fault("audit_small_pages", "the audit log comes in pages of few events [rows=1]"),
    aliases={"create_no_credit": "create_inactive"},
)
# fmt: on
