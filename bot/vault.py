"""Credentials in the keyring of the operating system: where the credential would stand, a reference stands.

The library is loaded when a credential is stored or a reference is met, so that nobody else waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SERVICE = "gpu-shopper"
#: What `.env` says instead of a credential that is in the keyring.
REFERENCE = f"keyring:{SERVICE}"


class NoKeyring(ValueError):
    """The keyring cannot be used, or has not what was asked for; the message says what to do."""


def store(variable: str, value: str) -> None:
    """Keep a credential in the keyring. Raises `NoKeyring`."""
    _asked(lambda library: library.set_password(SERVICE, variable, value))


def forget(variable: str) -> None:
    """Take a credential out of the keyring; one that is not there is forgotten already. Raises `NoKeyring`."""

    def gone(library: Any) -> None:
        if library.get_password(SERVICE, variable) is not None:
            library.delete_password(SERVICE, variable)

    _asked(gone)


def resolved(found: Mapping[str, str]) -> dict[str, str]:
    """The same variables with every reference replaced by what is in the keyring. Raises `NoKeyring`."""
    return {name: _read(name) if value == REFERENCE else value for name, value in found.items()}


def _read(variable: str) -> str:
    value = _asked(lambda library: library.get_password(SERVICE, variable))
    if not value:
        raise NoKeyring(f"{variable}: the keyring of this user has no such credential; store it again there")
    return str(value)


def _asked(step: Any) -> Any:
    try:
        import keyring  # noqa: PLC0415 # Optional, and only needed where a credential is in the keyring.
        from keyring import errors  # noqa: PLC0415
    except ImportError as error:
        raise NoKeyring(
            "the keyring needs the library keyring: pip install 'gpu-shopper[keyring]'; without --keyring a credential "
            "is stored in .env, readable by you alone"
        ) from error
    try:
        return step(keyring)
    except errors.NoKeyringError as error:
        raise NoKeyring(
            "this machine has no keyring that can be used, as is usual on servers; without --keyring a credential is "
            "stored in .env, readable by you alone"
        ) from error
    except errors.KeyringError as error:
        raise NoKeyring(f"the keyring refuses ({type(error).__name__}); unlock it and try again") from error
