"""List the stores outside of every cloud that keep checkpoints, and what is needed to write to them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Store:
    """Describe a store by the scheme of its locations: its credentials' variables, and where a person makes them."""

    scheme: str
    name: str
    variables: tuple[str, ...]
    where: str
    #: Whether its public places are read without credentials.
    has_public: bool = False


STORES = (
    Store("hf", "the Hugging Face Hub", ("HF_TOKEN",), "https://huggingface.co/settings/tokens", has_public=True),
    Store(
        "s3",
        "S3",
        ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
        "https://console.aws.amazon.com/iam/home#/security_credentials",
    ),
    Store(
        "gs",
        "Google Cloud Storage",
        ("GS_ACCESS_KEY_ID", "GS_SECRET_ACCESS_KEY"),
        "https://console.cloud.google.com/storage/settings;tab=interoperability",
        has_public=True,
    ),
)


def missing_variables(location: str | None, given: Collection[str]) -> str | None:
    """Say why checkpoints at `location` cannot be read whatever they are, or None.

    `given` are the variables that are set here. A path on the machine, and a store that is not listed here, needs
    nothing that could be missing. A store with public places may do without any, but not with half of them.
    """
    store, missing = _missing(location, given)
    if store is None or (store.has_public and len(missing) == len(store.variables)):
        return None
    return f"Checkpoints at {location} need {_set_them(store, missing)}"


def may_be_public(location: str | None, given: Collection[str]) -> bool:
    """Whether the service can read `location` only if everybody can: its credentials are not set here."""
    store, _ = _missing(location, given)
    return store is not None and store.has_public


def not_public(location: str, given: Collection[str], problem: str) -> str:
    """Say why a place can't be read without credentials; `problem` is what its store answered."""
    store, missing = _missing(location, given)
    needs = _set_them(store, missing) if store is not None else ""
    return f"Checkpoints at {location} are not public: {problem}. To read them, this service needs {needs}"


def _missing(location: str | None, given: Collection[str]) -> tuple[Store | None, list[str]]:
    """Return the store of a location with those of its variables that are not set; no store where none is missing."""
    scheme = (location or "").partition("://")[0].lower()
    store = next((one for one in STORES if one.scheme == scheme and location != scheme), None)
    missing = [name for name in store.variables if name not in given] if store else []
    return (store if missing else None), missing


def _set_them(store: Store, missing: list[str]) -> str:
    verb = "is" if len(missing) == 1 else "are"
    return (
        f"{' and '.join(missing)}, which {verb} not set where this service runs. "
        f"Create the credentials of {store.name} at {store.where}, set them there, and try again."
    )


def not_listed(location: str | None, places: Collection[str]) -> str | None:
    """Say why checkpoints at `location` must not be read with the service's credentials, or None.

    These may read more than the requester may: the policy lists the `places` that they are for, each with everything
    below it. A path on the machine and a URL are read without credentials.
    """
    scheme, _, rest = (location or "").partition("://")
    if scheme.lower() not in {one.scheme for one in STORES} or not rest:
        return None
    parts = rest.rstrip("/").split("/")
    for place in places:
        kind, _, allowed = place.partition("://")
        below = allowed.rstrip("/").split("/")
        if kind.lower() == scheme.lower() and parts[: len(below)] == below and ".." not in parts:
            return None
    listed = f"It lists {', '.join(sorted(places))}." if places else "It lists none."
    return (
        f"Checkpoints at {location} can't be read: the policy doesn't list that place under checkpoint_places. "
        f"{listed} Use one of these places, or ask an operator to add yours."
    )
