"""List why people's SSH keys could not be written on a running machine."""

from __future__ import annotations

from enum import StrEnum


class KeyProblem(StrEnum):
    """Say why the last attempt to write the keys failed. The value is stored with each key."""

    UNREACHABLE = "unreachable"
    WRONG_HOST_KEY = "wrong_host_key"
    REFUSED = "refused"
    NO_ANSWER = "no_answer"
    #: Its file of keys is missing, too large, or could not be read.
    UNREADABLE = "unreadable"
    #: It could not be replaced, or somebody changed it at the same time.
    NOT_WRITTEN = "not_written"
