"""Define, as protocols, what services need from outside.

The composition root supplies the implementations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bot.outbound.checkpoint_stores import StoredFile
from bot.outbound.ssh_login import Followed, Ran, SshLogin
from bot.rules.approvals.approvers import DeciderFacts
from ledger.kernel.actor import Actor
from ledger.kernel.login_problem import LoginProblem
from ledger.models import Notification


@dataclass(frozen=True, slots=True)
class Reached:
    """The result of a probe: `ok` when a TCP connect succeeded and the peer sent an SSH banner."""

    ok: bool
    detail: str


class Reach(Protocol):
    """Probe an SSH endpoint over the network, and log in to it."""

    async def probe(self, host: str, port: int) -> Reached:
        """Connect, read the banner, close. Never raises for a network failure; takes at most a few seconds."""
        ...

    async def host_key(self, host: str, port: int, kind: str | None = None) -> str | None:
        """The host's SSH key as one OpenSSH line, kind and base64, or None. Never raises; takes a few seconds.

        With `kind`, its key of that kind, or None where it has none.
        """
        ...

    async def run(self, login: SshLogin, command: str, *, stdin: str = "", timeout_s: float) -> Ran:
        """Log in and run one command. Never raises for what the host does; takes `timeout_s` at most."""
        ...

    async def follow(self, login: SshLogin, command: str, *, timeout_s: float) -> Followed | LoginProblem:
        """Log in and return a command that keeps running, or the problem. Never raises for what the host does."""
        ...


class CheckpointStores(Protocol):
    """Read checkpoints that are stored outside of the instances."""

    async def newest(self, scheme: str, root: str, path: str) -> StoredFile | None:
        """Return the newest file at a place, None where there is none.

        Raises `StoreUnreachable` when the store gave no answer.
        """
        ...

    async def files(self, scheme: str, root: str, path: str) -> tuple[StoredFile, ...]:
        """Return the newest files at a place, the newest first. Raises `StoreUnreachable`."""
        ...

    async def public_size(self, source: str) -> int | None:
        """Return the bytes of everything at a place that everybody may read; None where its store won't say."""
        ...


class People(Protocol):
    """Look up people in Slack for clients other than Slack."""

    async def looked_up(self, actor: Actor) -> DeciderFacts:
        """Return the facts that a decision is judged by.

        Never raises for a network failure: `known` is false then, and the decision is refused.
        """
        ...


@dataclass(frozen=True, slots=True)
class Delivered:
    """Where a notification is shown now."""

    channel: str
    ts: str | None


#: The error of a notification whose sender ended before it recorded the outcome: it may be shown already.
SENDER_DIED = "the process that was showing it ended before it noted the outcome"


class DeliveryFailed(Exception):
    """A message was not delivered: retry after `retry_after_s` (None: back off); never if it is `permanent`."""

    def __init__(self, message: str, *, retry_after_s: float | None = None, permanent: bool = False) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.permanent = permanent


class Messenger(Protocol):
    """Render a notification from state and deliver it as a new message, or as an edit of the existing one."""

    async def deliver(self, notification: Notification) -> Delivered:
        """Deliver it or raise `DeliveryFailed`. `notification.error` is the outcome of the last attempt."""
        ...
