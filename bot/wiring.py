"""Construct and close everything, in this one place (the composition root).

`close` takes apart what `build_context` makes, in reverse order.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from bot import logs
from bot.outbound import ssh_login, ssh_probe
from bot.outbound.checkpoint_stores import Stores
from bot.outbound.model_hub import ModelHub
from bot.outbound.ssh_login import Followed, Ran, SshLogin
from bot.rules.policy.policy import Policy
from bot.rules.policy.timing import Timing
from bot.rules.values.labels import LabelKey
from bot.services.market import host_history
from bot.services.market.catalog import Catalog, ReadHosts, ReadModel, ReadRuns, no_hosts, no_models, no_runs
from bot.services.plans import session_times
from bot.services.runtime.agent_archive import NOT_BUILT, AgentArchive
from bot.services.runtime.clock_guard import GuardedClock
from bot.services.runtime.context import Context
from bot.services.runtime.ports import Reached
from bot.services.runtime.rate_limits import LedgerPacer
from bot.services.webhooks.subscriptions import egress_of
from bot.settings import Settings, identity, read_policy_file
from bot.settings.identity import KEY_BYTES
from bot.settings.policy_file import PolicyFile
from ledger.core.inbox import InboxWriter
from ledger.engine.db import Database
from ledger.kernel.clock import Clock
from ledger.kernel.login_problem import LoginProblem
from providers.contract import Provider
from providers.profiles import model
from providers.rate_limits import Pacer
from providers.registry import REGISTRY

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SshReach:
    """Implement the `Reach` port with real SSH connections."""

    timeout_s: float

    async def probe(self, host: str, port: int) -> Reached:
        """Connect, read the greeting, close. Never raises for a network failure."""
        return Reached(*await ssh_probe.ssh_banner(host, port, self.timeout_s))

    async def host_key(self, host: str, port: int, kind: str | None = None) -> str | None:
        """Return the host key by a key exchange; None when there is none. Never raises for a network failure."""
        return await ssh_probe.host_key(host, port, self.timeout_s, kind)

    async def run(self, login: SshLogin, command: str, *, stdin: str = "", timeout_s: float) -> Ran:
        """Log in, accepting the known host key only, and run one command."""
        return await ssh_login.run(login, command, stdin=stdin, timeout_s=timeout_s)

    async def follow(self, login: SshLogin, command: str, *, timeout_s: float) -> Followed | LoginProblem:
        """Log in, accepting the known host key only, and return a command that keeps running."""
        return await ssh_login.follow(login, command, timeout_s=timeout_s)


def build_providers(settings: Settings, clock: Clock, pacer: Pacer) -> dict[str, Provider]:
    """Build the adapters of each cloud whose credentials are set, in the order of the registry; volumes come last."""
    machines: dict[str, Provider] = {}
    volumes: dict[str, Provider] = {}
    for name, entry in REGISTRY.items():
        if name in settings.clouds:
            built = entry.build_all(settings.clouds[name], clock, pacer)
            machines[name] = built.pop(name)
            volumes |= built
    return {**machines, **volumes}


def build_public(settings: Settings, clock: Clock, pacer: Pacer) -> dict[str, Provider]:
    """Build an adapter without a key for each cloud that shows offers to anybody. Nothing can be rented by these.

    They are for showing a market and are never part of a context. Practice asks nobody outside this machine.
    """
    configs = {} if settings.practice else settings.keyless
    return {name: REGISTRY[name].build(config, clock, pacer) for name, config in configs.items()}


def build_catalog(
    providers: Mapping[str, Provider],
    clock: Clock,
    timing: Timing,
    read_runs: ReadRuns = no_runs,
    stores: Collection[str] = (),
    read_model: ReadModel = no_models,
    read_hosts: ReadHosts = no_hosts,
) -> Catalog:
    """Build the market of these clouds, which also names the clouds without credentials; own runs correct its plans."""
    unused = [name for name in REGISTRY if name not in providers]
    return Catalog(providers, clock, timing.offers_timeout_s, unused, read_runs, stores, read_model, read_hosts)


def build_context(
    settings: Settings, clock: Clock, *, file: PolicyFile | None = None, pacer: Pacer | None = None
) -> Context:
    """Build everything that services use. Opens no connection; raises `ValueError` for unusable settings.

    The clock is guarded unless it is already. `file` is the policy file as it was read before, and `pacer` hands out
    turns without the ledger.
    """
    clock = clock if isinstance(clock, GuardedClock) else GuardedClock(clock)
    logs.register_secrets(settings.secrets())
    file = file or read_policy_file(settings.policy, practice=settings.practice)
    labels = build_labels(settings)
    db = Database(settings.database)
    providers = build_providers(settings, clock, pacer or LedgerPacer(db, clock, file.timing.pace))
    for name in providers:
        model.load(name)  # The services read this model, so it must be loadable before anything is rented.
    node_url, stores = settings.node_url or "", settings.stores
    policy, timing = file.policy, file.timing
    checkpoints = Stores(settings.store_secrets(), s3_url=settings.aws_endpoint_url_s3, egress=egress_of(file.policy))
    ctx = assemble(
        db, clock, providers, labels, policy=policy, timing=timing, node_url=node_url, stores=stores,
        read_model=build_model_hub(settings, clock).config,
    )  # fmt: skip
    return replace(ctx, checkpoints=checkpoints, agent=read_agent(settings))


def build_ends_context(settings: Settings, clock: Clock, file: PolicyFile, pacer: Pacer) -> Context:
    """Build what the end watchdog uses: the ledger, the clouds and the stores.

    It mints and reads no label, so it needs no label key: a lost one must keep no machine alive.
    """
    clock = clock if isinstance(clock, GuardedClock) else GuardedClock(clock)
    db = Database(settings.database)
    no_labels = LabelKey("0000", secrets.token_bytes(KEY_BYTES))
    providers = build_providers(settings, clock, pacer)
    ctx = assemble(db, clock, providers, no_labels, policy=file.policy, timing=file.timing)
    stores = Stores(settings.store_secrets(), s3_url=settings.aws_endpoint_url_s3, egress=egress_of(file.policy))
    return replace(ctx, checkpoints=stores)


def build_model_hub(settings: Settings, clock: Clock) -> ModelHub:
    """Build the reader of the models that only the Hub knows. Practice never leaves this machine."""
    token = settings.hf_token.get_secret_value() if settings.hf_token is not None else ""
    return ModelHub("" if settings.practice else settings.hf_endpoint, clock, token)


def read_agent(settings: Settings) -> AgentArchive | None:
    """Return the program for rented machines; None where they can't reach this service, or none is built."""
    if not settings.node_url:
        return None
    found = AgentArchive.read(settings.agent_file)
    if found is None:
        log.warning("%s Rented machines run none until then.", NOT_BUILT)
    return found


def build_labels(settings: Settings) -> LabelKey:
    """Return the deployment's label key, created and stored beside the database when no setting gives it."""
    key_hex = settings.label_key.get_secret_value() if settings.label_key else None
    labels = identity(settings.identity_dir, key_hex=key_hex, deployment=settings.deployment)
    logs.register_secrets([labels.key.hex()])
    return labels


def assemble(
    db: Database,
    clock: Clock,
    providers: Mapping[str, Provider],
    labels: LabelKey,
    *,
    policy: Policy,
    timing: Timing,
    node_url: str = "",
    stores: Collection[str] = (),
    read_model: ReadModel = no_models,
) -> Context:
    """Build a context from existing parts, for `build_context` and for tests that run in one process."""
    return Context(
        db=db,
        clock=clock,
        policy=policy,
        timing=timing,
        providers=providers,
        catalog=build_catalog(
            providers,
            clock,
            timing,
            session_times.reader(db, clock),
            stores,
            read_model,
            host_history.reader(db, clock),
        ),
        labels=labels,
        reach=SshReach(timing.reach_timeout_s),
        inbox=InboxWriter(db, timedelta(seconds=timing.claim_ttl_s)),
        node_url=node_url,
    )


async def close(ctx: Context) -> None:
    """Store accepted messages, then close every connection."""
    await ctx.inbox.drain()
    await ctx.catalog.close()
    for provider in ctx.providers.values():
        await provider.close()
    await ctx.db.close()
