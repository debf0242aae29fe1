"""Store credentials in the keyring of the operating system; `.env` then holds a reference to each.

The library is imported when a credential is stored or a reference is read, so that other commands do not wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SERVICE = "gpu-shopper"
#: The value in `.env` of a credential that is in the keyring.
REFERENCE = f"keyring:{SERVICE}"


class NoKeyring(ValueError):
    """The keyring cannot be used, or lacks the credential; the message says what to do."""


def store(variable: str, value: str) -> None:
    """Store a credential in the keyring. Raises `NoKeyring`."""
    _asked(lambda library: library.set_password(SERVICE, variable, value))


def forget(variable: str) -> None:
    """Delete a credential from the keyring; a missing one is no error. Raises `NoKeyring`."""

    def gone(library: Any) -> None:
        if library.get_password(SERVICE, variable) is not None:
            library.delete_password(SERVICE, variable)

    _asked(gone)


def resolved(found: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with every reference replaced by its credential from the keyring. Raises `NoKeyring`."""
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
