"""Every fault of the TensorDock sandbox, as data, and the answers that need no state."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from starlette.responses import JSONResponse, PlainTextResponse, Response

from providers.sandbox.faults import COMMON_FAULTS

CALLS_A_MINUTE = 100
GROUPS = ("search", "create", "get", "list", "stop", "start", "destroy", "secrets", "v0")
_GENERIC = {
    "429": "refused for calling too often [form=json|html, retry_after (null: no such header)]",
    "503": "answered 503 with an HTML page, without doing anything",
    "auth": "the token is refused, as happens at random to valid ones too: 401",
}
NO_NODES = "No available nodes found"
#: What a create may meet: name → the error class that an adapter must raise, or "ok".
CREATE_FAULTS: Mapping[str, str] = {
    "create_lost_reply": "OutcomeUnknown",
    "create_lost_request": "OutcomeUnknown",
    "create_503": "OutcomeUnknown",
    "create_503_after": "OutcomeUnknown",
    "create_lands_late": "OutcomeUnknown",
    "create_garbage": "OutcomeUnknown",
    "create_no_id": "OutcomeUnknown",
    "create_half_made": "OutcomeUnknown",
    "create_deploy_failed": "OutcomeUnknown",
    "create_500_inside": "OutcomeUnknown",
    "create_unknown_400": "OutcomeUnknown",
    "create_unknown_inside": "OutcomeUnknown",
    "create_redirect": "OutcomeUnknown",
    "create_stale_offer": "NoCapacity",
    "create_hostnode_gone": "NoCapacity",
    "create_no_ips": "NoCapacity",
    "create_out_of_stock": "NoCapacity",
    "create_429": "RateLimited",
    "create_429_html": "RateLimited",
    "create_auth": "AuthFailed",
    "create_auth_html": "AuthFailed",
    "create_forbidden": "AuthFailed",
    "create_no_credit": "InsufficientFunds",
    "create_402": "InsufficientFunds",
    "create_limit": "QuotaExceeded",
    "create_bad_args": "InvalidSpec",
    "create_bad_args_inside": "InvalidSpec",
    "create_ratio": "InvalidSpec",
    "create_no_port_22": "InvalidSpec",
    "create_slow": "ok",
    "create_says_creating": "ok",
    "create_get_lag": "ok",
    "create_list_lag": "ok",
    "price_higher_than_quoted": "ok",
    "never_boots": "ok",
    "boot_error": "ok",
    "late_address": "ok",
    "ports_ignored": "ok",
    "running_before_reachable": "ok",
}
#: Faults by name with one sentence each.
FAULTS: Mapping[str, str] = {
    **{f"{group}_{kind}": f"{group}: {what}" for group in GROUPS for kind, what in _GENERIC.items()},
    **COMMON_FAULTS,
    "create_lost_request": "the connection drops before anything is made",
    "create_garbage": "the machine is made and the answer is an HTML page with 200",
    "create_no_id": "200 with data without an id, and nothing made",
    "create_half_made": "200 with an error and an id: the machine exists",
    "create_deploy_failed": "200 with status 400: virtual machine deployment failed",
    "create_500_inside": "200 with status 500 inside",
    "create_unknown_400": "a 400 whose text nobody documented",
    "create_unknown_inside": "200 with status 400 and a text that nobody documented",
    "create_redirect": "a 308 that nobody should follow with a create",
    "create_stale_offer": "200 with status 400: no available nodes found, although the location was listed",
    "create_hostnode_gone": "200 with status 400: hostnode unavailable",
    "create_no_ips": "200 with status 400: no available public IPs",
    "create_out_of_stock": "a 409 that says out of stock",
    "create_429_html": "429 as an HTML page without Retry-After",
    "create_auth_html": "401 as an HTML page",
    "create_forbidden": "403",
    "create_402": "402 without any text",
    "create_limit": "400: an account limit is reached",
    "create_bad_args": "400 with the validator's list of code, message and path",
    "create_bad_args_inside": "the same with 200",
    "create_ratio": "200 with status 400: RAM per GPU exceeds ratio limit",
    "create_no_port_22": "200 with status 400: port 22 must be forwarded",
    "create_slow": "the answer comes after more than a minute [after_s=70]",
    "create_says_creating": "201, with the status of the new machine as creating [status=creating]",
    "create_get_lag": "reading the new machine by id answers 404 for a while [after_s=60]",
    "boot_error": "the new machine ends in the status error",
    "late_address": "the new machine runs for a while without an address [after_s=60]",
    "ports_ignored": "the location ignores forwarded ports: none is ever shown, and SSH never answers",
    "search_empty": "200 with no locations",
    "search_garbage": "200 with something that is not JSON",
    "search_error_inside": "200 with status 500 and an error instead of locations",
    "get_missing": "an existing machine answers 404 to a read by id",
    "get_wrapped": "the machine comes inside `data`",
    "get_missing_inside": "200 with status 404 inside",
    "list_documented": "the listing in the documented shape: no more than names and statuses",
    "list_attributes": "the listing in the shape of the page for beginners, under attributes",
    "list_bare": "the listing as a bare array",
    "list_garbage": "200 with something that is not JSON",
    "list_error_inside": "200 with status 500 and an error instead of a list",
    "list_unknown_shape": "200 with an object that holds no list",
    "stop_releases": "a stop gives the GPU back: StoppedDisassociated, and only the disk is billed",
    "start_no_nodes": "a start finds no GPU: 200 with status 400, and the machine stays stopped",
    "destroy_lost_reply": "the machine is deleted and the reply never arrives",
    "destroy_503_after": "the machine is deleted and the answer is 503",
    "destroy_error_inside": "200 with status 500 and an error, and nothing is deleted",
    "v0_html": "the older API answers 200 with an HTML page",
    "v0_words": "the older API says success as a word",
}
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
}


def failed(text: str, status: int = 400) -> Response:
    """An error as it usually comes: with 200."""
    return JSONResponse({"status": status, "error": text})


def refused(status: int, text: str) -> Response:
    """An error with its own status."""
    return JSONResponse({"error": text}, status)


def page(status: int) -> Response:
    """What a gateway says."""
    return PlainTextResponse(f"<html><body>{status}</body></html>", status, media_type="text/html")


def too_often(form: str = "json", retry_after: object = 5) -> Response:
    """A 429. Neither its body nor its headers are documented."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    if form == "html":
        return PlainTextResponse("<html>429</html>", 429, headers, media_type="text/html")
    return JSONResponse({"error": "Too many requests"}, 429, headers)


def unauthorised() -> Response:
    """A refused token."""
    return refused(401, "Unauthorized")


def missing(what: str = "Instance") -> Response:
    """An object that is not there."""
    return refused(404, f"{what} not found")


def invalid(path: str, message: str, status: int = 400) -> Response:
    """The validator's form."""
    return JSONResponse([{"code": "invalid_type", "message": message, "path": path.split(".")}], status)


#: Refusals of a create that need nothing else.
CREATE_REFUSALS: Mapping[str, Callable[[], Response]] = {
    "create_stale_offer": lambda: failed(NO_NODES),
    "create_hostnode_gone": lambda: failed("Hostnode unavailable"),
    "create_no_ips": lambda: failed("No available public IPs"),
    "create_out_of_stock": lambda: refused(409, "Out of stock"),
    "create_429_html": lambda: too_often("html", None),
    "create_auth_html": lambda: page(401),
    "create_forbidden": lambda: refused(403, "Forbidden"),
    "create_no_credit": lambda: failed("Your balance must be at least $1 to deploy"),
    "create_402": lambda: page(402),
    "create_limit": lambda: refused(400, "Instance limit reached"),
    "create_bad_args": lambda: invalid("data.attributes.resources.storage_gb", "Number must be at least 100"),
    "create_bad_args_inside": lambda: invalid("data.attributes.image", "Required", 200),
    "create_ratio": lambda: failed("RAM per GPU exceeds ratio limit"),
    "create_no_port_22": lambda: failed("SSH port (22) must be forwarded for Ubuntu VMs"),
    "create_no_id": lambda: JSONResponse({"data": {"type": "virtualmachine"}}),
    "create_deploy_failed": lambda: failed("Virtual machine deployment failed"),
    "create_500_inside": lambda: failed("Internal server error", 500),
    "create_unknown_400": lambda: refused(400, "Something new"),
    "create_unknown_inside": lambda: failed("Something new"),
    "create_redirect": lambda: Response(status_code=308, headers={"Location": "/elsewhere"}),
}
