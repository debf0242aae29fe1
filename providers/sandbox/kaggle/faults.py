"""Everything that can go wrong at Kaggle, as switches, and the sentences that it says then."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from email.utils import format_datetime
from typing import Any

from starlette.responses import JSONResponse, Response

from providers.sandbox.faults import PRICE_FAULTS, SSH_FAULTS, Answer, Fault, FaultTable, LostReply, html

SESSIONS_FULL = "Maximum batch GPU session count of 2 reached."
WEEK_FULL = "Maximum weekly GPU quota of 30.00 hours reached."
UNAUTHENTICATED = "Unauthenticated"
DENIED = "Permission 'kernels.get' was denied"
TOO_MANY = "Too many requests"
WENT_WRONG = "Internal error"

DISTURBANCES: Mapping[str, str] = {
    "fail": "The program ends with an error now.",
    "cancel": "Somebody cancels the run on the web page.",
    "vanish": "Somebody deletes the kernel on the web page; its run ends.",
    "stick": "The status stays RUNNING from now on, whatever happens.",
}
_NOTHING = {"ref": "", "url": "", "versionNumber": 0, "hasVersionNumber": False, "kernelId": 0}


def error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """An error object: `{"code": …, "message": …}`."""
    return JSONResponse({"code": status, "message": message}, status, headers)


def sentence(text: str) -> Response:
    """A push that is refused with status 200."""
    return JSONResponse({"errorNullable": text, "error": text, "hasError": True, **_NOTHING})


def too_many(given: Mapping[str, Any]) -> Response:
    """A 429 with Retry-After in seconds."""
    return error(429, TOO_MANY, {"Retry-After": f"{float(given.get('retry_after', 7)):g}"})


def too_many_by_date(given: Mapping[str, Any]) -> Response:
    """A 429 with Retry-After as an HTTP date."""
    at = given["now"] + timedelta(seconds=float(given.get("retry_after", 7)))
    return error(429, TOO_MANY, {"Retry-After": format_datetime(at, usegmt=True)})


def broken(usual: int) -> Answer:
    """An error of the service, with the status that is asked for."""
    return lambda given: error(int(given.get("status", usual)), WENT_WRONG)


REFUSED = error(401, UNAUTHENTICATED)
DOWN = error(503, WENT_WRONG)
TOO_MANY_UNDER_200 = JSONResponse({"code": 429, "message": TOO_MANY})


#: Common faults that need SSH or a price do not exist here.
# fmt: off
FAULTS = FaultTable(
    Fault("unauthorized", "The credentials are refused: 401.", refuses=REFUSED, calls="*"),
    Fault("rate_limited", "429 with Retry-After in seconds (parameter retry_after, default 7).", refuses=too_many,
        calls="*"),
    Fault("rate_limited_date", "429 with Retry-After as an HTTP date (parameter retry_after in seconds, default 7).",
        refuses=too_many_by_date, calls="*"),
    Fault("rate_limited_bare", "429 without Retry-After.", refuses=error(429, TOO_MANY), calls="*"),
    Fault("rate_limited_200", "An error object of code 429 under HTTP 200.", refuses=TOO_MANY_UNDER_200, calls="*"),
    Fault("server_error", "An error without any effect (parameter status, default 500).", refuses=broken(500),
        calls="*"),
    Fault("create_auth", "A push is refused: 401.", "AuthFailed", REFUSED),
    Fault("create_forbidden", "A push is refused: 403.", "AuthFailed",
        error(403, "Permission 'kernels.update' was denied")),
    Fault("create_429", "A push is answered 429 with Retry-After (parameter retry_after, default 7).", "RateLimited",
        too_many),
    Fault("create_429_date", "A push is answered 429 with Retry-After as an HTTP date.", "RateLimited",
        too_many_by_date),
    Fault("create_429_200", "A push is answered 200 with an error object of code 429.", "RateLimited",
        TOO_MANY_UNDER_200),
    Fault("create_500", "A push is answered 500 and has no effect (parameter status).", "OutcomeUnknown", broken(500)),
    Fault("get_503", "Reading the status of a run answers 503.", refuses=DOWN),
    Fault("get_denied", "Reading the status of a run answers 403, as it does for a wrong slug.",
        refuses=error(403, DENIED)),
    Fault("list_503", "A page of the kernels answers 503.", "NotSent", refuses=DOWN),
    Fault("quota_503", "The quota answers 503.", "NotSent", refuses=DOWN),
    Fault("quota_missing", "The quota answer has no GPU part.", "ok"),
    Fault("quota_reserved", "A part of the quota is reserved (parameter seconds, default 3600)."),
    Fault("competitions_503", "The list of competitions answers 503.", refuses=DOWN),
    Fault("destroy_429", "A delete is answered 429 with Retry-After (parameter retry_after, default 7).",
        refuses=too_many),
    Fault("lost_reply", "The run is made and the reply is cut off.", "OutcomeUnknown", spoils=LostReply(),
        calls="create"),
    Fault("error_after_push", "The run is made and the answer says 5xx (parameter status, default 503).",
        "OutcomeUnknown", spoils=broken(503), calls="create"),
    Fault("late_push", "The answer says 504 and the run is made later (parameter after_s, default 200).",
        "OutcomeUnknown"),
    Fault("unreadable_reply", "The run is made and the 200 holds no JSON.", "OutcomeUnknown",
        spoils=html("<body>OK</body>"), calls="create"),
    Fault("sessions_full", "200 with the sentence that two sessions run already.", "QuotaExceeded",
        refuses=sentence(SESSIONS_FULL), calls="create"),
    Fault("week_full", "200 with the sentence that the week's hours are used.", "QuotaExceeded",
        refuses=sentence(WEEK_FULL), calls="create"),
    Fault("push_refused", "200 with a sentence of which nothing is documented.", "InvalidSpec",
        refuses=sentence("The kernel could not be saved."), calls="create"),
    Fault("invalid_source", "The run is made without a data set that it named.", "OutcomeUnknown"),
    Fault("error_with_version", "The run is made, and `error` holds a sentence too.", "OutcomeUnknown"),
    Fault("other_slug", "Kaggle files the kernel under another slug than was asked for.", "ok"),
    Fault("list_lag", "The kernel is missing from listings at first (parameter after_s, default 60).", "ok"),
    Fault("queued_for_ever", "The run never leaves the queue.", "ok"),
    Fault("status_absent", "While queued, the status is left out of the answer.", "ok"),
    Fault("old_words", "The status comes in the older spelling, lower camel case."),
    Fault("run_fails", "The program ends with an error (parameter after_s, default 30).", "ok"),
    Fault("runs_over", "The program never ends by itself: the session's timeout ends it.", "ok"),
    Fault("nine_hours", "The session ends after nine hours at the latest, not after twelve."),
    Fault("stuck_running", "The status stays RUNNING after the run is over."),
    Fault("delete_ignored", "A delete is acknowledged and does nothing."),
    Fault("delete_spares_run", "A delete removes the kernel, and its session runs on."),
    Fault("small_pages", "The kernels come in pages of few rows (parameter rows, default 1)."),
    Fault("no_page_token", "The kernels come in pages by number, without a token."),
    aliases={
    "create_lost_reply": "lost_reply",
    "create_503_after": "error_after_push",
    "create_lands_late": "late_push",
    "create_stale_offer": "sessions_full",
    "create_no_credit": "week_full",
    "create_list_lag": "list_lag",
    "search_503": "quota_503",
    "never_boots": "queued_for_ever",
    "destroy_not_done": "delete_ignored",
},
    lacks=SSH_FAULTS | PRICE_FAULTS,
)
# fmt: on
