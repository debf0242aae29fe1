"""What the clouds of a seed really have and bill, which the service cannot see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from providers.sandbox.engine import Engine, SandboxCloud, TrueInstance
from providers.sandbox.timeline import BilledTime


@dataclass
class Truth:
    """The clouds at which a seed rents, and the engine in which they run."""

    clouds: Mapping[str, SandboxCloud]
    engine: Engine

    @property
    def rented(self) -> int:
        """How many machines were made."""
        volumes = {one.ref for one in self.instances() if one.cloud not in self.clouds}
        return sum(1 for one in self.engine.creates if one.ref and one.ref not in volumes)

    def instances(self) -> list[TrueInstance]:
        """Every machine and volume that there ever was."""
        return [one for cloud in self.clouds.values() for one in cloud.instances()]

    def write(self, cloud: str, size_gb: int) -> None:
        """Somebody writes so much to every volume that is there, where the cloud bills what is on it."""
        sandbox: Any = self.clouds[cloud]
        for one in self.instances():
            if one.alive and one.cloud not in self.clouds and hasattr(sandbox, "file_systems"):
                sandbox.file_systems.fill(one.ref, size_gb)

    def alive(self) -> list[str]:
        """What really runs."""
        return [one.ref for one in self.instances() if one.alive]

    def meter(self, cloud: str, ref: str) -> BilledTime:
        """What a machine is really billed."""
        sandbox: Any = self.clouds[cloud]
        meter: BilledTime = sandbox.account.instances[int(ref) if cloud == "vast" else ref].meter
        return meter
