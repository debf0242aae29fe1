"""The agents on the sandboxes' machines: small programs that check in wherever their environment says so.

A machine that answers and whose environment names an endpoint and a token has one. It reports on the sandbox's clock,
does what it is asked, and believes a deadline only when its signature is right and newer than the last. What it does
is set from outside: `tell` makes it idle, silent, faster, or done.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import httpx
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from ledger.kernel.clock import Clock
from providers.sandbox.node_api import NodeApi

URL, TOKEN, KEY = "GPU_SHOPPER_CHECKIN_URL", "GPU_SHOPPER_CHECKIN_TOKEN", "GPU_SHOPPER_CHECKIN_KEY"
TIMEOUT_S = 3.0
ENV_FILE = "/env"
#: The host key of a machine whose address shows another one.
HIDDEN_HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEhpZGRlbiBob3N0IGtleSBvZiBhIG1hY2hpbmUgLi4u"


def exported(cloud_init: Any) -> Mapping[str, str]:
    """The variables that a cloud-init document, as text or as its value, lets its machine export."""
    return _exported(cloud_init if isinstance(cloud_init, str) else f"\n{json.dumps(cloud_init)}")


@lru_cache(maxsize=256)
def _exported(text: str) -> Mapping[str, str]:
    """Kept, because it is asked at every request to a cloud and reading it takes longer than many an answer."""
    try:
        cloud_init = json.loads(text.partition("\n")[2] or "{}")
    except ValueError:
        return {}
    files = cloud_init.get("write_files") or () if isinstance(cloud_init, Mapping) else ()
    found: dict[str, str] = {}
    for file in files:
        if str(file.get("path", "")).endswith(ENV_FILE):
            words = shlex.split(str(file.get("content", "")))
            found |= dict(word.split("=", 1) for word in words if "=" in word)
    return MappingProxyType(found)


@dataclass
class SandboxAgent:
    """One agent. What it reports is in its fields; what the last answer said is in `asks` and `deadline`."""

    env: Mapping[str, str]
    next_at: datetime
    seq: int = 0
    utilisation: list[float] = field(default_factory=lambda: [93.0])
    job: str = "running"
    #: The exit code of a job that ended, where it knows it.
    job_exit_code: int | None = None
    #: Above 1 where it was started again.
    job_attempt: int | None = None
    #: Steps are counted on the sandbox's clock while the job runs.
    step: float = 0.0
    steps_per_s: float = 2.0
    target_step: int | None = None
    tokens_per_s: float | None = 4200.0
    idle_since: datetime | None = None
    silent: bool = False
    saved_step: int | None = None
    saved_at: datetime | None = None
    asks: tuple[str, ...] = ()
    #: The commands that its last answer dealt to it, by their numbers.
    commands: dict[int, str] = field(default_factory=dict)
    deadline: datetime | None = None
    #: The number of the last answer whose signature was right.
    believed: int = 0
    #: The status of the last answer; 0 when there was none.
    status: int = 0
    worked_at: datetime | None = None
    #: What it has in memory only, and loses with its machine's power: a nonce, and the token that it is exchanged for.
    #: An agent of before has no nonce, and goes on with the token of its environment.
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    token: str = field(default="", repr=False)
    #: The API that it serves itself, once it was told to.
    api: NodeApi | None = None
    #: What its last answer said was wrong with its word about that.
    api_problem: str = ""
    #: More fields of its check-ins, in version 2.
    more: dict[str, Any] = field(default_factory=dict)
    #: What it reports of its machine, in version 2 of a check-in; version 1 without it.
    machine: dict[str, Any] | None = None

    def work(self, now: datetime) -> None:
        """Let the job go on until now."""
        if self.worked_at is not None and self.job == "running" and any(self.utilisation):
            self.step += (now - self.worked_at).total_seconds() * self.steps_per_s
        self.worked_at = now

    def report(self) -> dict[str, Any]:
        """The body of the next check-in."""
        self.seq += 1
        body: dict[str, Any] = {
            "seq": self.seq,
            "utilisation": self.utilisation,
            "job": self.job,
            "step": int(self.step),
            "target_step": self.target_step,
            "tokens_per_s": self.tokens_per_s,
            "idle_since": self.idle_since.isoformat() if self.idle_since else None,
        }
        if self.job_exit_code is not None:
            body["job_exit_code"] = self.job_exit_code
        if self.job_attempt is not None:
            body["job_attempt"] = self.job_attempt
        if self.nonce and not self.token:
            body["nonce"] = self.nonce
        if self.saved_at is not None:
            body["checkpoint"] = {"step": self.saved_step, "at": self.saved_at.isoformat()}
        if self.machine is not None:
            body |= {"v": 2, "machine": self.machine}
        if self.more:
            body |= {"v": 2, **self.more}
        if self.api is not None:
            body["api"] = {"port": self.api.port, "certificate_sha256": self.api.certificate_sha256}
        return body

    def obey(self, answer: Mapping[str, Any], now: datetime) -> None:
        """Do what the answer asks for, and believe its deadline when its signature says that it may."""
        self.asks, self.api_problem = tuple(answer["asks"]), str(answer.get("api_problem", ""))
        self.token = str(answer.get("token") or self.token)
        self.commands = {int(number): str(text) for number, text in answer.get("commands") or ()}
        if "save" in self.asks:
            self.saved_step, self.saved_at = int(self.step), now
        if "pause" in self.asks or "stop" in self.asks:
            self.utilisation = [0.0 for _ in self.utilisation]
        told = answer["deadline"]
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(self.env[KEY]))
        try:
            key.verify(base64.b64decode(told["signature"]), told["message"].encode())
        except InvalidSignature:
            return
        said = json.loads(told["message"])
        if said["n"] > self.believed:
            self.believed = said["n"]
            if self.api is not None:
                self.api.token_sha256 = said.get("api_token_sha256")
            end_s = said["deadline_s"]
            self.deadline = datetime.fromtimestamp(end_s, tz=now.tzinfo) if end_s is not None else None

    async def serve(self) -> NodeApi:
        """Serve an API of its own from now on, with a new certificate each time."""
        self.api = self.api or NodeApi()
        await self.api.start()
        return self.api

    async def leave(self) -> None:
        """End with its machine."""
        if self.api is not None:
            await self.api.close()


class Nodes:
    """The agents of all sandboxes of one process, by the key of their machine's SSH port."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._client: httpx.AsyncClient | None = None
        self.running: dict[str, SandboxAgent] = {}
        #: How far the agent of each token has counted.
        self._counted: dict[str, int] = {}
        #: All agents report together, at multiples of so many seconds, instead of when their answers ask for it; 0: as
        #: their answers ask. A run over weeks sets it.
        self.every_s = 0.0
        #: Whether new agents exchange the token of their environment; agents of before do not.
        self.exchange = True

    async def match(
        self, prefix: str, environments: Mapping[str, Mapping[str, str]], other_host_key: Collection[str] = ()
    ) -> None:
        """Run agents on exactly these machines among those whose key starts so, and let those report that are due.

        Those of `other_host_key` report another host key than their address shows.
        """
        now = self._clock.now()
        for key in [key for key in self.running if key.startswith(prefix) and key not in environments]:
            gone = self.running.pop(key)
            self._counted[gone.env[TOKEN]] = gone.seq
            await gone.leave()
        for key, env in environments.items():
            if key not in self.running and URL in env and TOKEN in env:
                # After a restart it goes on counting, as an agent does that counts milliseconds.
                started = self.running[key] = SandboxAgent(env, now, seq=self._counted.get(env[TOKEN], 0))
                if key in other_host_key:
                    started.machine = {"host_key": HIDDEN_HOST_KEY}
                if not self.exchange:
                    started.nonce = ""
        due = [node for key, node in self.running.items() if key.startswith(prefix) and now >= node.next_at]
        await asyncio.gather(*(self._check_in(node, now) for node in due))

    def configure(self, key: str, **changes: Any) -> SandboxAgent:
        """Change what an agent does. KeyError for a machine without one, AttributeError for a word it does not know."""
        node = self.running[key]
        for name, value in changes.items():
            getattr(node, name)
            setattr(node, name, value)
        return node

    async def _check_in(self, node: SandboxAgent, now: datetime) -> None:
        node.next_at = self._next(now, 60)
        node.work(now)
        if node.silent:
            return
        if self._client is None:
            self._client = httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False)
        token = {"Authorization": f"Bearer {node.token or node.env[TOKEN]}"}
        try:
            answer = await self._client.post(node.env[URL], json=node.report(), headers=token)
        except httpx.HTTPError:
            node.status = 0
            return
        node.status = answer.status_code
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            node.token = ""  # The next check-in shows the nonce again.
        if answer.status_code == httpx.codes.OK:
            said = answer.json()
            node.next_at = self._next(now, said["next_in_s"])
            node.obey(said, now)

    def _next(self, now: datetime, asked_s: float) -> datetime:
        if not self.every_s:
            return now + timedelta(seconds=asked_s)
        return now + timedelta(seconds=self.every_s - now.timestamp() % self.every_s)

    async def close(self) -> None:
        for node in self.running.values():
            await node.leave()
        self.running.clear()
        if self._client is not None:
            await self._client.aclose()
            self._client = None
