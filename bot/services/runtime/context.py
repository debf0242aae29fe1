"""Define the context that every service works with: the ledger, the clouds, the policy and the clock.

The composition root builds it once and passes it in; there are no globals.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from bot.rules.policy.policy import Policy
from bot.rules.policy.timing import Timing
from bot.rules.values.labels import LabelKey
from bot.services.market.catalog import Catalog
from bot.services.runtime.agent_archive import AgentArchive
from bot.services.runtime.backpressure import Pressure
from bot.services.runtime.epoch import Epoch
from bot.services.runtime.names import KnownNames
from bot.services.runtime.ports import CheckpointStores, People, Reach
from ledger.core.inbox import InboxWriter
from ledger.engine.db import Database
from ledger.kernel.clock import Clock
from providers.cloud_names import machines_of
from providers.contract import Provider


@dataclass(slots=True)
class Hints:
    """Events that wake the loops early when work became due.

    A missed event costs latency, never correctness.
    """

    requests: asyncio.Event = field(default_factory=asyncio.Event)
    instances: asyncio.Event = field(default_factory=asyncio.Event)
    sweep: asyncio.Event = field(default_factory=asyncio.Event)
    logins: asyncio.Event = field(default_factory=asyncio.Event)
    machine_keys: asyncio.Event = field(default_factory=asyncio.Event)
    sessions: asyncio.Event = field(default_factory=asyncio.Event)
    spend: asyncio.Event = field(default_factory=asyncio.Event)
    leftovers: asyncio.Event = field(default_factory=asyncio.Event)
    outbox: asyncio.Event = field(default_factory=asyncio.Event)
    inbox: asyncio.Event = field(default_factory=asyncio.Event)
    journal: asyncio.Event = field(default_factory=asyncio.Event)
    #: The clock is trusted again, or for the first time.
    clock: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True, eq=False)
class Context:
    """The ledger, the clouds, the policy and the clock that services use.

    Only `policy` ever changes: a good edit of the policy file replaces it. The end watchdog's own context takes up the
    file's timing as well, when the file could not be read before.
    """

    db: Database
    clock: Clock
    policy: Policy
    timing: Timing
    providers: Mapping[str, Provider]
    catalog: Catalog
    labels: LabelKey
    reach: Reach
    inbox: InboxWriter
    #: Where instances reach this service; empty: they cannot, so none of them has an agent.
    node_url: str = ""
    #: The program that they run, and fetch from there; None: none is built.
    agent: AgentArchive | None = None
    #: Reads checkpoints that are stored outside of the instances; None: none can be read, so no end waits for them.
    checkpoints: CheckpointStores | None = None
    #: Looks people up in Slack; None: this process has no Slack connection.
    people: People | None = None
    #: Names people in text that is read outside of Slack.
    names: KnownNames = field(default_factory=KnownNames)
    hints: Hints = field(default_factory=Hints)
    #: When this process last listed each cloud.
    listed_at: dict[str, datetime] = field(default_factory=dict)
    #: When this process last noted in the ledger that it listed a cloud.
    listing_noted_at: dict[str, datetime] = field(default_factory=dict)
    #: Since when this process, its clock in doubt, saw each create without an outcome, in monotonic seconds.
    undecided_since_s: dict[str, float] = field(default_factory=dict)
    #: When this process committed to send each create of the last minutes, in monotonic seconds.
    sent_at_s: dict[str, float] = field(default_factory=dict)
    pressure: Pressure = field(default_factory=Pressure)
    #: The newest events that the ledger must have, written outside of it; without folders nothing is written.
    epoch: Epoch = field(default_factory=Epoch)
    #: When this process began, in monotonic seconds of its clock; filled in where it isn't given.
    started_s: float = math.nan

    def __post_init__(self) -> None:
        """Note when this process began. A copy with other settings is still the same process."""
        if math.isnan(self.started_s):
            self.started_s = self.clock.monotonic()

    def is_older(self, at: datetime) -> bool:
        """Whether this process had not begun at a time of its trusted clock."""
        return (self.clock.now() - at).total_seconds() > self.clock.monotonic() - self.started_s

    @property
    def clouds(self) -> tuple[str, ...]:
        """Name the clouds that rent out machines."""
        return tuple(name for name, one in self.providers.items() if one.capabilities.volume_gb is None)

    @property
    def volumes(self) -> tuple[str, ...]:
        """Name the providers of network volumes."""
        return tuple(name for name, one in self.providers.items() if one.capabilities.volume_gb is not None)

    @property
    def volume_clouds(self) -> tuple[str, ...]:
        """Name the clouds that have network volumes."""
        return tuple(map(machines_of, self.volumes))
