"""Network volumes of a sandbox's account: what is billed whether or not a machine uses it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from providers.sandbox.account import SandboxInstance


@dataclass(kw_only=True)
class NetworkVolume(SandboxInstance):
    """A volume in one region. Its meter bills storage from the create to the delete."""

    gpu: str = "volume"
    gpu_count: int = 1
    size_gb: Decimal
    region: str

    def status(self, now: datetime) -> str:
        return "deleted" if self.ended_at is not None else "there"

    def reachable(self, now: datetime) -> bool:
        return False

    def listed(self, now: datetime) -> bool:
        """Whether the listing shows it."""
        return self.exists(now) and now >= self.listed_at


def present(volumes: dict[Any, NetworkVolume], ref: Any, now: datetime) -> NetworkVolume | None:
    """The volume of this id, if it is there now."""
    volume = volumes.get(ref)
    return volume if volume is not None and volume.exists(now) else None
