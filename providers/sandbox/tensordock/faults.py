"""Every fault of the TensorDock sandbox, as data, and the answers that need no state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from providers.sandbox.faults import (
    LOST_REQUEST,
    REDIRECT,
    Fault,
    FaultTable,
    LostReply,
    common,
    html,
    per_group,
    too_often,
)

GROUPS = ("search", "create", "get", "list", "stop", "start", "destroy", "secrets", "v0", "public")
NO_NODES = "No available nodes found"
DEPLOY_FAILED = "Virtual machine deployment failed"
#: What can happen to a machine from outside.
DISTURBANCES: Mapping[str, str] = {
    "vanish": "the machine is gone without anybody's asking",
    "ghost": "the machine disappears from listing and reads, and is billed on",
    "ghost_over": "the machine shows again",
    "error": "the machine goes to the status error; it is billed on",
    "relocating": "the machine is moved to another node; no SSH meanwhile",
    "released": "the machine is stopped and its GPU given back",
    "gpu_taken": "somebody rents all GPUs of this kind at this location",
    "credit_gone": "the balance falls below zero: all machines stop, and 96 h later they are deleted",
    "credit_back": "somebody pays: there is credit again (the instance does not matter)",
}


def failed(text: str, status: int = 400) -> Response:
    """An error as it usually comes: with 200."""
    return JSONResponse({"status": status, "error": text})


def refused(status: int, text: str) -> Response:
    """An error with its own status."""
    return JSONResponse({"error": text}, status)


def page(status: int) -> Response:
    """What a gateway says."""
    return html(f"<body>{status}</body>", status)


def missing(what: str = "Instance") -> Response:
    """An object that is not there."""
    return refused(404, f"{what} not found")


def invalid(path: str, message: str, status: int = 400) -> Response:
    """The validator's form."""
    return JSONResponse([{"code": "invalid_type", "message": message, "path": path.split(".")}], status)


def half_made(given: Mapping[str, Any]) -> Response:
    """An error that names the machine which it made all the same."""
    data = {"type": "virtualmachine", "id": str(given["ref"])}
    return JSONResponse({"status": 400, "error": DEPLOY_FAILED, "data": data})


#: An error of the service inside a 200.
BROKEN = failed("Internal server error", 500)
V0_REFUSED = JSONResponse({"success": False, "error": "Invalid API key or token"})
LACKS_CREDIT = failed("Your balance must be at least $1 to deploy")
WRONG_RATIO = failed("RAM per GPU exceeds ratio limit")
NO_ADDRESSES = failed("No available public IPs")
#: Neither an own address nor a forwarded port.
PORT_22_MISSING = failed("SSH port (22) must be forwarded for Ubuntu VMs")
too_many = too_often({"error": "Too many requests"}, "429", 5)

#: Everything that can go wrong; parameters are in brackets.
# fmt: off
FAULTS = FaultTable(
    *per_group(GROUPS, "auth", "the token is refused, as happens at random to valid ones too: 401",
        refused(401, "Unauthorized"), "AuthFailed"),
    *per_group(GROUPS, "429", "refused for calling too often [form=json|html, retry_after (null: no such header)]",
        too_many, "RateLimited"),
    *per_group(GROUPS, "503", "answered 503 with an HTML page, without doing anything", page(503), "OutcomeUnknown"),
    Fault("v0_auth", "v0: the key is refused, with 200", refuses=V0_REFUSED),
    common("create_503_after", spoils=page(503)),
    common("create_no_credit", refuses=LACKS_CREDIT),
    LOST_REQUEST,
    Fault("create_garbage", "the machine is made and the answer is an HTML page with 200", "OutcomeUnknown",
        spoils=page(200)),
    Fault("create_no_id", "200 with data without an id, and nothing made", "OutcomeUnknown",
        JSONResponse({"data": {"type": "virtualmachine"}})),
    Fault("create_half_made", "200 with an error and an id: the machine exists", "OutcomeUnknown", spoils=half_made),
    Fault("create_deploy_failed", "200 with status 400: virtual machine deployment failed", "OutcomeUnknown",
        failed(DEPLOY_FAILED)),
    Fault("create_500_inside", "200 with status 500 inside", "OutcomeUnknown", BROKEN),
    Fault("create_unknown_400", "a 400 whose text nobody documented", "OutcomeUnknown", refused(400, "Something new")),
    Fault("create_unknown_inside", "200 with status 400 and a text that nobody documented", "OutcomeUnknown",
        failed("Something new")),
    REDIRECT,
    Fault("create_stale_offer", "200 with status 400: no available nodes found, although the location was listed",
        "NoCapacity", failed(NO_NODES)),
    Fault("create_hostnode_gone", "200 with status 400: hostnode unavailable", "NoCapacity",
        failed("Hostnode unavailable")),
    Fault("create_no_ips", "200 with status 400: no available public IPs", "NoCapacity", NO_ADDRESSES),
    Fault("create_out_of_stock", "a 409 that says out of stock", "NoCapacity", refused(409, "Out of stock")),
    Fault("create_429_html", "429 as an HTML page without Retry-After", "RateLimited",
        too_many({"form": "html", "retry_after": None})),
    Fault("create_auth_html", "401 as an HTML page", "AuthFailed", page(401)),
    Fault("create_forbidden", "403", "AuthFailed", refused(403, "Forbidden")),
    Fault("create_402", "402 without any text", "InsufficientFunds", page(402)),
    Fault("create_limit", "400: an account limit is reached", "QuotaExceeded", refused(400, "Instance limit reached")),
    Fault("create_bad_args", "400 with the validator's list of code, message and path", "InvalidSpec",
        invalid("data.attributes.resources.storage_gb", "Number must be at least 100")),
    Fault("create_bad_args_inside", "the same with 200", "InvalidSpec",
        invalid("data.attributes.image", "Required", 200)),
    Fault("create_ratio", "200 with status 400: RAM per GPU exceeds ratio limit", "InvalidSpec", WRONG_RATIO),
    Fault("create_no_port_22", "200 with status 400: port 22 must be forwarded", "InvalidSpec", PORT_22_MISSING),
    Fault("create_slow", "the answer comes after more than a minute [after_s=70]", "ok"),
    Fault("create_says_creating", "201, with the status of the new machine as creating [status=creating]", "ok"),
    Fault("create_get_lag", "reading the new machine by id answers 404 for a while [after_s=60]", "ok"),
    Fault("boot_error", "the new machine ends in the status error", "ok"),
    Fault("late_address", "the new machine runs for a while without an address [after_s=60]", "ok"),
    Fault("ports_ignored", "the location ignores forwarded ports: none is ever shown, and SSH never answers", "ok"),
    Fault("search_empty", "200 with no locations", refuses=JSONResponse({"data": {"locations": []}})),
    Fault("search_garbage", "200 with something that is not JSON", refuses=page(200)),
    Fault("search_error_inside", "200 with status 500 and an error instead of locations", refuses=BROKEN),
    Fault("get_missing", "an existing machine answers 404 to a read by id", refuses=missing()),
    Fault("get_wrapped", "the machine comes inside `data`"),
    Fault("get_missing_inside", "200 with status 404 inside", refuses=failed("Instance not found", 404)),
    Fault("list_documented", "the listing in the documented shape: no more than names and statuses"),
    Fault("list_attributes", "the listing in the shape of the page for beginners, under attributes"),
    Fault("list_bare", "the listing as a bare array"),
    Fault("list_garbage", "200 with something that is not JSON", refuses=page(200)),
    Fault("list_error_inside", "200 with status 500 and an error instead of a list", refuses=BROKEN),
    Fault("list_unknown_shape", "200 with an object that holds no list",
        refuses=JSONResponse({"data": {"type": "list"}})),
    Fault("stop_releases", "a stop gives the GPU back: StoppedDisassociated, and only the disk is billed"),
    Fault("start_no_nodes", "a start finds no GPU: 200 with status 400, and the machine stays stopped",
        refuses=failed(NO_NODES)),
    Fault("destroy_lost_reply", "the machine is deleted and the reply never arrives", spoils=LostReply()),
    Fault("destroy_503_after", "the machine is deleted and the answer is 503", spoils=page(503)),
    Fault("destroy_error_inside", "200 with status 500 and an error, and nothing is deleted", refuses=BROKEN),
    Fault("v0_html", "the older API answers 200 with an HTML page", refuses=page(200)),
    Fault("v0_words", "the older API says success as a word"),
)
# fmt: on
