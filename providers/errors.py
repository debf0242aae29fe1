"""What a cloud can answer, as types. Nothing outside an adapter looks at the text of a cloud's error."""

from __future__ import annotations


class ProviderError(Exception):
    """A cloud did not do what was asked. `cloud` names it; the message is safe to show to people.

    `definite_no` is true when it is certain that the call had no effect. On a create this is what separates
    "try the next offer" from "the outcome is unknown".
    """

    code = "provider_error"
    definite_no = False

    def __init__(self, cloud: str, message: str) -> None:
        super().__init__(message)
        self.cloud = cloud
        self.message = message


class AuthFailed(ProviderError):
    """The credentials are missing, wrong or may not do this."""

    code = "auth_failed"
    definite_no = True


class NoCapacity(ProviderError):
    """The offer is gone, or no host is free for it."""

    code = "no_capacity"
    definite_no = True


class QuotaExceeded(ProviderError):
    """An account limit (instances, spend rate, weekly hours) forbids it."""

    code = "quota_exceeded"
    definite_no = True


class InsufficientFunds(ProviderError):
    """The account's credit does not cover it."""

    code = "insufficient_funds"
    definite_no = True


class InvalidSpec(ProviderError):
    """The cloud refuses what was sent as malformed or contradictory."""

    code = "invalid_spec"
    definite_no = True


class RateLimited(ProviderError):
    """A documented refusal to serve now. `retry_after_s` is None when the cloud does not say."""

    code = "rate_limited"
    definite_no = True

    def __init__(self, cloud: str, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(cloud, message)
        self.retry_after_s = retry_after_s


class NotSent(ProviderError):
    """The connection could not be made, so the request never left this machine."""

    code = "not_sent"
    definite_no = True


class Unavailable(ProviderError):
    """The cloud did not answer in time, or answered 5xx, to a call that changes nothing or may be repeated."""

    code = "unavailable"


class UnexpectedResponse(ProviderError):
    """The answer does not have the documented shape, so it proves nothing."""

    code = "unexpected_response"


class InUse(ProviderError):
    """Something uses the volume, so it was not deleted."""

    code = "in_use"
    definite_no = True


class Unsupported(ProviderError):
    """This cloud cannot do it; its capabilities say so."""

    code = "unsupported"
    definite_no = True


class OutcomeUnknown(ProviderError):
    """A create was sent and the answer does not say whether it took effect. Never send it again."""

    code = "outcome_unknown"
