"""Everything that can go wrong at Kaggle, as switches, and the sentences that it says then."""

from __future__ import annotations

from collections.abc import Mapping

SESSIONS_FULL = "Maximum batch GPU session count of 2 reached."
WEEK_FULL = "Maximum weekly GPU quota of 30.00 hours reached."
UNAUTHENTICATED = "Unauthenticated"
DENIED = "Permission 'kernels.get' was denied"
TOO_MANY = "Too many requests"
WENT_WRONG = "Internal error"

FAULTS: Mapping[str, str] = {
    # Any call.
    "unauthorized": "The credentials are refused: 401.",
    "rate_limited": "429 with Retry-After in seconds (parameter retry_after, default 7).",
    "rate_limited_date": "429 with Retry-After as an HTTP date (parameter retry_after in seconds, default 7).",
    "rate_limited_bare": "429 without Retry-After.",
    "rate_limited_200": "An error object of code 429 under HTTP 200.",
    "server_error": "An error without any effect (parameter status, default 500).",
    # One kind of call.
    "create_auth": "A push is refused: 401.",
    "create_forbidden": "A push is refused: 403.",
    "create_429": "A push is answered 429 with Retry-After (parameter retry_after, default 7).",
    "create_429_date": "A push is answered 429 with Retry-After as an HTTP date.",
    "create_429_200": "A push is answered 200 with an error object of code 429.",
    "create_500": "A push is answered 500 and has no effect (parameter status).",
    "get_503": "Reading the status of a run answers 503.",
    "get_denied": "Reading the status of a run answers 403, as it does for a wrong slug.",
    "list_503": "A page of the kernels answers 503.",
    "quota_503": "The quota answers 503.",
    "quota_missing": "The quota answer has no GPU part.",
    "quota_reserved": "A part of the quota is reserved (parameter seconds, default 3600).",
    "competitions_503": "The list of competitions answers 503.",
    "destroy_429": "A delete is answered 429 with Retry-After (parameter retry_after, default 7).",
    # A push.
    "lost_reply": "The run is made and the reply is cut off.",
    "error_after_push": "The run is made and the answer says 5xx (parameter status, default 503).",
    "late_push": "The answer says 504 and the run is made later (parameter after_s, default 200).",
    "unreadable_reply": "The run is made and the 200 holds no JSON.",
    "sessions_full": "200 with the sentence that two sessions run already.",
    "week_full": "200 with the sentence that the week's hours are used.",
    "push_refused": "200 with a sentence of which nothing is documented.",
    "invalid_source": "The run is made without a data set that it named.",
    "error_with_version": "The run is made, and `error` holds a sentence too.",
    "other_slug": "Kaggle files the kernel under another slug than was asked for.",
    "list_lag": "The kernel is missing from listings at first (parameter after_s, default 60).",
    # A run.
    "queued_for_ever": "The run never leaves the queue.",
    "status_absent": "While queued, the status is left out of the answer.",
    "old_words": "The status comes in the older spelling, lower camel case.",
    "run_fails": "The program ends with an error (parameter after_s, default 30).",
    "runs_over": "The program never ends by itself: the session's timeout ends it.",
    "nine_hours": "The session ends after nine hours at the latest, not after twelve.",
    "stuck_running": "The status stays RUNNING after the run is over.",
    "delete_ignored": "A delete is acknowledged and does nothing.",
    "delete_spares_run": "A delete removes the kernel, and its session runs on.",
    "small_pages": "The kernels come in pages of few rows (parameter rows, default 1).",
    "no_page_token": "The kernels come in pages by number, without a token.",
}

#: Fault → the error class that an adapter must raise from its create, or "ok".
CREATE_FAULTS: Mapping[str, str] = {
    "create_auth": "AuthFailed",
    "create_forbidden": "AuthFailed",
    "create_429": "RateLimited",
    "create_429_date": "RateLimited",
    "create_429_200": "RateLimited",
    "create_500": "OutcomeUnknown",
    "lost_reply": "OutcomeUnknown",
    "error_after_push": "OutcomeUnknown",
    "late_push": "OutcomeUnknown",
    "unreadable_reply": "OutcomeUnknown",
    "sessions_full": "QuotaExceeded",
    "week_full": "QuotaExceeded",
    "push_refused": "InvalidSpec",
    "invalid_source": "OutcomeUnknown",
    "error_with_version": "OutcomeUnknown",
    "quota_503": "NotSent",
    "list_503": "NotSent",
    "quota_missing": "ok",
    "other_slug": "ok",
    "list_lag": "ok",
    "queued_for_ever": "ok",
    "status_absent": "ok",
    "run_fails": "ok",
    "runs_over": "ok",
}

#: The common name of a fault → its name here. Those that need SSH or a price do not exist at Kaggle.
ALIASES: Mapping[str, str] = {
    "create_lost_reply": "lost_reply",
    "create_503_after": "error_after_push",
    "create_lands_late": "late_push",
    "create_stale_offer": "sessions_full",
    "create_no_credit": "week_full",
    "create_list_lag": "list_lag",
    "search_503": "quota_503",
    "never_boots": "queued_for_ever",
    "destroy_not_done": "delete_ignored",
}

#: What any call may be answered instead: kind of call ("*" = every call) → fault → (status, message).
GATEWAY: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "*": {
        "unauthorized": (401, UNAUTHENTICATED),
        "rate_limited": (429, TOO_MANY),
        "rate_limited_date": (429, TOO_MANY),
        "rate_limited_bare": (429, TOO_MANY),
        "rate_limited_200": (429, TOO_MANY),
        "server_error": (500, WENT_WRONG),
    },
    "SaveKernel": {
        "create_auth": (401, UNAUTHENTICATED),
        "create_forbidden": (403, "Permission 'kernels.update' was denied"),
        "create_429": (429, TOO_MANY),
        "create_429_date": (429, TOO_MANY),
        "create_429_200": (429, TOO_MANY),
        "create_500": (500, WENT_WRONG),
    },
    "GetKernelSessionStatus": {"get_503": (503, WENT_WRONG), "get_denied": (403, DENIED)},
    "ListKernels": {"list_503": (503, WENT_WRONG)},
    "GetAcceleratorQuotaStatistics": {"quota_503": (503, WENT_WRONG)},
    "ListCompetitions": {"competitions_503": (503, WENT_WRONG)},
    "DeleteKernel": {"destroy_429": (429, TOO_MANY)},
}

#: A push that is refused with status 200: fault → the sentence in `error`.
REFUSALS: Mapping[str, str] = {
    "sessions_full": SESSIONS_FULL,
    "week_full": WEEK_FULL,
    "push_refused": "The kernel could not be saved.",
}

DISTURBANCES: Mapping[str, str] = {
    "fail": "The program ends with an error now.",
    "cancel": "Somebody cancels the run on the web page.",
    "vanish": "Somebody deletes the kernel on the web page; its run ends.",
    "stick": "The status stays RUNNING from now on, whatever happens.",
}
