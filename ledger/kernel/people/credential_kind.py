"""List what a person brings to the machines of their request."""

from __future__ import annotations

from enum import StrEnum


class CredentialKind(StrEnum):
    """Say what a row of `session_credentials` is. The value is stored."""

    #: The one SSH key for its machines, in place of those that the owner has registered.
    SSH_KEY = "ssh_key"
    #: The name of a secret of its owner that the job gets as a variable. The value is never here.
    SECRET = "secret"  # noqa: S105  # A kind of row.
