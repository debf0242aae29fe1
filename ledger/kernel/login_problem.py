"""List why a command did not run on a machine that GPU Shopper logs in to."""

from __future__ import annotations

from enum import StrEnum


class LoginProblem(StrEnum):
    """Say why a command did not run to its end. The value is stored with the check of a machine's GPUs."""

    UNREACHABLE = "unreachable"
    WRONG_HOST_KEY = "wrong_host_key"
    REFUSED = "refused"
    #: The login worked, and the command did not end in time.
    NO_ANSWER = "no_answer"
