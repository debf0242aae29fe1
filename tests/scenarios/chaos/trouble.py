"""What befalls the processes of a chaos run: kills, pauses, dark clouds, a lost ledger, full sockets."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from random import Random

from sqlalchemy import make_url

from tests.scenarios.chaos.place import Outages, Place, Replica, postmaster
from tests.scenarios.chaos.programs import press
from tests.scenarios.chaos.proxy import Point
from tests.scenarios.chaos.way_back import WayBack
from tests.scenarios.kills.commit_cuts import Way

KINDS = ("search", "create", "list", "destroy", "other")
#: Longer than a claim's life, which is 15 s here.
PAUSE_S = (16.0, 22.0)
DARK_S = (5.0, 25.0)
LOCK_S = (3.0, 20.0)
SOCKETS_S = 12.0
STEPS_S = (-7200, -600, -90, 90, 600, 10_800)
STEPPED_S = (8.0, 25.0)
FULL_S = (5.0, 25.0)
#: More idle connections than a process may have descriptors here.
SOCKETS = 1100
#: How long nobody has the new key.
KEYLESS_S = (3.0, 15.0)
KILLS_APART_S = (1.0, 5.0)
#: How long an account can't pay, a host is offline, and each create is refused.
BROKE_S, OFFLINE_S, REFUSED_S = (8.0, 40.0), (5.0, 40.0), (2.0, 15.0)
#: How an account can't pay, and can again. RunPod is left out: it terminates what is not paid.
CREDIT = {
    "vast": ("credit_gone", "credit_back"),
    "tensordock": ("credit_gone", "credit_back"),
    "lambda": ("account_inactive", "account_active"),
}
#: What a refusal asks to wait, in seconds; None: it does not say, or RunPod's usual.
RETRY_AFTER_S = (None, 1, 3, 8)


class Trouble:
    """Brings trouble until it is cancelled, each kind in its own rhythm."""

    def __init__(self, place: Place, db_url: str, random: Random, back: WayBack) -> None:
        self._place, self._db_url, self._random, self._back = place, db_url, random, back

    async def bring(self) -> None:
        """Run every kind beside each other. An error of one ends the run."""
        async with asyncio.TaskGroup() as group:
            for replica in self._place.replicas:
                group.create_task(self._kills(replica))
            group.create_task(self._again((40, 80), self._pause))
            group.create_task(self._again((20, 60), self._dark))
            group.create_task(self._again((45, 90), self._ledger))
            group.create_task(self._again((60, 120), self._sockets))
            group.create_task(self._again((30, 60), self._programs))
            group.create_task(self._again((25, 50), self._key))
            group.create_task(self._again((40, 80), self.replace_token))
            group.create_task(self._again((30, 70), self.break_credit))
            group.create_task(self._again((15, 40), self.lose_contact))
            group.create_task(self._again((10, 30), self.refuse_creates))
            group.create_task(self._again((15, 40), self._back.back_up))
            group.create_task(self._again((30, 80), self._back.restore))
            group.create_task(self._again((30, 90), self._back.start_previous))
            if self._place.cuts is not None:
                group.create_task(self._again((2, 8), self._commit))
            if self._place.sockets is not None:
                group.create_task(self._again((5, 20), self._place.sockets.disturb))
            if self._place.machine.has_clocks:
                group.create_task(self._again((40, 80), self._clock))
            if self._place.machine.has_disk:
                group.create_task(self._again((50, 90), self._disk))

    async def _again(self, apart_s: tuple[float, float], what: Callable[[], Coroutine[None, None, None]]) -> None:
        while True:
            await asyncio.sleep(self._random.uniform(*apart_s))
            await what()

    async def _kills(self, replica: Replica) -> None:
        while True:
            await asyncio.sleep(self._random.uniform(*KILLS_APART_S))
            point = Point(self._random.choice(KINDS), is_after=self._random.random() < 0.5)
            # Finished even if the run ends meanwhile, so that no replica stays dead.
            await asyncio.shield(self._place.kill(replica, point if self._random.random() < 0.8 else None))

    def _ready(self) -> Replica | None:
        ready = [replica for replica in self._place.replicas if replica.is_ready]
        return self._random.choice(ready) if ready else None

    async def _pause(self) -> None:
        replica = self._ready()
        if replica is not None:
            self._place.counts["process paused beyond its claims"] += 1
            await asyncio.shield(replica.pause(self._random.uniform(*PAUSE_S)))

    async def _dark(self) -> None:
        cloud = self._random.choice(list(self._place.clouds))
        self._place.counts["cloud unreachable"] += 1
        self._place.proxy.dark.add(cloud)
        self._place.no_cloud[cloud].begin()
        try:
            await asyncio.sleep(self._random.uniform(*DARK_S))
        finally:
            self._place.proxy.dark.discard(cloud)
            self._place.no_cloud[cloud].end()

    async def break_credit(self) -> None:
        """Let an account be unable to pay for a while: its machines are stopped, and launches are refused."""
        cloud = self._place.clouds[self._random.choice(list(CREDIT))]
        gone, back = CREDIT[cloud.name]
        self._place.counts["account unable to pay"] += 1
        cloud.disturb("", gone)
        try:
            await asyncio.sleep(self._random.uniform(*BROKE_S))
        finally:
            cloud.disturb("", back)

    async def lose_contact(self) -> None:
        """Let the host of a machine lose contact for a while."""
        cloud = self._place.clouds["vast"]
        refs = cloud.reachable()
        if not refs:
            return
        ref = self._random.choice(refs)
        self._place.counts["host offline"] += 1
        cloud.disturb(ref, "offline")
        try:
            await asyncio.sleep(self._random.uniform(*OFFLINE_S))
        finally:
            if any(each.alive and each.ref == ref for each in cloud.instances()):
                cloud.disturb(ref, "online")

    async def refuse_creates(self) -> None:
        """Refuse one create for calling too often, or each one for a while."""
        cloud = self._place.clouds[self._random.choice(list(self._place.clouds))]
        after_s = self._random.choice(RETRY_AFTER_S)
        is_once = self._random.random() < 0.5
        self._place.counts["create refused for calling too often"] += 1
        params = {} if after_s is None else {"retry_after": after_s}
        cloud.engine.faults.arm(cloud.name, "create_429", 1 if is_once else None, **params)
        try:
            await asyncio.sleep(self._random.uniform(*REFUSED_S))
        finally:
            cloud.engine.faults.disarm(cloud.name, "create_429")

    async def _ledger(self) -> None:
        """Lock the file as another program would, or kill a backend, after which the whole server recovers."""
        if self._db_url.startswith("sqlite"):
            self._place.counts["ledger locked"] += 1
            async with self._place.ledger_lock:
                await self._lock_file()
        else:
            self._place.counts["database crashed"] += 1
            main = postmaster(self._db_url)
            with suppress(ProcessLookupError, IndexError):
                os.kill(self._random.choice(_children(main)), signal.SIGKILL)

    async def _lock_file(self) -> None:
        held = sqlite3.connect(str(make_url(self._db_url).database), timeout=1, isolation_level=None)
        try:
            with suppress(sqlite3.OperationalError):
                held.execute("BEGIN IMMEDIATE")
                await asyncio.sleep(self._random.uniform(*LOCK_S))
        finally:
            held.close()

    async def _commit(self) -> None:
        """Let a process lose its connection in the middle of a COMMIT."""
        self._place.cut_commit(self._random.choice(list(Way)))

    async def _clock(self) -> None:
        """Set one replica's clock wrong for a while, by seconds that do harm in either direction."""
        replica, step_s = self._random.choice(self._place.replicas), self._random.choice(STEPS_S)
        self._place.counts["clock stepped"] += 1
        self._place.machine.step_clock(replica.number, step_s)
        try:
            await asyncio.sleep(self._random.uniform(*STEPPED_S))
        finally:
            self._place.machine.step_clock(replica.number, 0)

    async def _disk(self) -> None:
        """Fill the disk with the ledger's file or, where a server has the ledger, with the copies of what must end."""
        self._place.counts["disk full"] += 1
        with self._place.machine.full_disk():
            await asyncio.sleep(self._random.uniform(*FULL_S))

    async def _key(self) -> None:
        await self.replace_key(self._random.choice(list(self._place.clouds)))

    async def replace_key(self, name: str) -> None:
        """Replace a cloud's key while sessions run: the old one is refused until the processes have the new one."""
        cloud, old = self._place.clouds[name], self._place.clouds[name].API_KEY
        new = _another(old, self._random)
        self._place.counts["cloud's key replaced"] += 1
        # The classes have one key each; this one account gets another.
        vars(cloud)["API_KEY"] = new
        # Finished even if the run ends meanwhile: nothing could end its machines otherwise.
        await asyncio.shield(self._replaced(old, new, self._place.no_cloud[name]))

    async def replace_token(self) -> None:
        """Replace Slack's bot token likewise."""
        workspace = self._place.practice.workspace
        old, workspace.bot_token = workspace.bot_token, _another(workspace.bot_token, self._random)
        self._place.counts["Slack's token replaced"] += 1
        await asyncio.shield(self._replaced(old, workspace.bot_token, Outages()))

    async def _replaced(self, old: str, new: str, outage: Outages) -> None:
        outage.begin()
        await asyncio.sleep(self._random.uniform(*KEYLESS_S))
        await self._place.take_up(old, new)
        outage.end()

    async def _programs(self) -> None:
        """Let a program take every stream, every request at a time and every thread that resolves names."""
        replica = self._ready()
        if replica is not None and replica.served is not None:
            self._place.counts["a program's streams, requests and names exhausted"] += 1
            await press(replica.served.port, self._place.api_key, self._random)

    async def _sockets(self) -> None:
        """Open more idle connections than a process has descriptors, and keep them for a while."""
        replica = self._ready()
        if replica is None or replica.served is None:
            return
        self._place.counts["descriptors exhausted"] += 1
        opened: list[asyncio.StreamWriter] = []
        began = time.monotonic()
        try:
            while len(opened) < SOCKETS and time.monotonic() < began + SOCKETS_S:
                async with asyncio.timeout(1):
                    opened.append((await asyncio.open_connection("127.0.0.1", replica.served.port))[1])
            await asyncio.sleep(max(0.0, began + SOCKETS_S - time.monotonic()))
        except (OSError, TimeoutError):
            await asyncio.sleep(max(0.0, began + SOCKETS_S - time.monotonic()))
        finally:
            for writer in opened:
                writer.close()


def _another(key: str, random: Random) -> str:
    """Return a key that looks like this one."""
    return f"{key[:-6]}{random.getrandbits(24):06x}"


def _children(process: int) -> list[int]:
    """Return the processes that a process started."""
    text = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(number) for number in text.split()]
