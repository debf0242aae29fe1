"""The network volume that a machine mounts: `volume=data`."""

from __future__ import annotations

from dataclasses import dataclass

from bot.rules.jobs.facet import Fields, JobFacet, Key, Text, Word
from bot.rules.policy import volume_checks
from bot.rules.policy.policy import Policy
from bot.rules.values.bad_word import BadWord


@dataclass(frozen=True, kw_only=True)
class VolumeFields:
    """Which network volume its machine gets."""

    #: The name that its owner gave it, and the session that it belongs to.
    volume: str | None = None
    volume_session: str | None = None


def _read_name(text: str, _policy: Policy) -> Fields:
    """Read the name of a volume; whether it exists is checked when the request is made."""
    name = text.strip().lower()
    if wrong := volume_checks.bad_name(name):
        raise BadWord(wrong.sentence)
    return {"volume": name}


VOLUME = JobFacet(
    fields=VolumeFields,
    are_facts=True,
    words=(Word("volume", "NAME", "Your network volume to mount.", "volume=data", _read_name),),
    keys=(
        Key(
            "volume",
            Text | None,
            "The network volume to mount, by its name. Only offers in its region are considered.",
            examples=["data"],
        ),
    ),
)
