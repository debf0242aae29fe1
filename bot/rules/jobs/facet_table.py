"""List the facets of a job, and all their words and keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bot.rules.jobs.facet import JobFacet, Key, Word
from bot.rules.jobs.facets.attempts import ATTEMPTS
from bot.rules.jobs.facets.checkpoint import CHECKPOINT
from bot.rules.jobs.facets.gpus import GPUS
from bot.rules.jobs.facets.idle import IDLE
from bot.rules.jobs.facets.image import IMAGE
from bot.rules.jobs.facets.install import INSTALL
from bot.rules.jobs.facets.label import LABEL
from bot.rules.jobs.facets.limits import LIMITS
from bot.rules.jobs.facets.mounts import MOUNTS
from bot.rules.jobs.facets.people import PEOPLE
from bot.rules.jobs.facets.ports import PORTS
from bot.rules.jobs.facets.profile import PROFILE
from bot.rules.jobs.facets.queue import QUEUE
from bot.rules.jobs.facets.repository import REPOSITORY
from bot.rules.jobs.facets.run import RUN
from bot.rules.jobs.facets.volume import VOLUME
from bot.rules.jobs.facets.when import WHEN
from bot.rules.jobs.facets.work import WORK

#: The order in which a job is checked, and in which approvers read of it.
FACETS: tuple[JobFacet, ...] = (
    LIMITS,
    WORK,
    IMAGE,
    PORTS,
    PEOPLE,
    INSTALL,
    REPOSITORY,
    MOUNTS,
    RUN,
    QUEUE,
    GPUS,
    PROFILE,
    ATTEMPTS,
    IDLE,
    CHECKPOINT,
    VOLUME,
    LABEL,
    WHEN,
)
#: The order of the words in the docs, by what people need first. A word that is not named comes last.
_WORD_ORDER = (
    "gpu", "count", "nodes", "hours", "memory", "max", "price", "below", "retry", "at", "until", "preset", "profile",
    "clouds", "region", "spot", "disk", "reliability", "total", "verified", "cuda", "capability", "available",
    "offer", "ports", "secrets", "volume", "share", "image", "workload", "model", "tokens", "run", "queue",
    "attempts", "retry-codes", "idle", "repo", "config", "run-dir", "install", "checkpoint", "label", "for",
)  # fmt: skip
#: The order of the keys of a document. It stays: a call that is sent again must have the text that a service stored.
_KEY_ORDER = (
    "resources", "nodes", "candidates", "candidates_order", "regions", "spot", "hours", "workload", "work",
    "budget", "max_price", "below", "retry", "at", "until", "preset", "reliability", "total_memory", "verified",
    "cuda", "capability", "available", "idle", "offer", "share", "image", "ports", "run", "queue", "attempts",
    "retry_codes", "profile", "config", "run_dir", "secrets", "volume", "repo", "install", "file_mounts",
    "checkpoint", "label", "reason", "consumer", "ssh_public_key",
)  # fmt: skip


def _place(order: Sequence[str], name: str) -> int:
    return order.index(name) if name in order else len(order)


WORDS: tuple[Word, ...] = tuple(
    sorted((word for facet in FACETS for word in facet.words), key=lambda word: _place(_WORD_ORDER, word.key))
)
#: Every name of a word → the word.
WORD_OF: Mapping[str, Word] = {name: word for word in WORDS for name in (word.key, *word.aliases)}
#: Names of the words that narrow the market further than GPUs, price and clouds do.
NARROWING: tuple[str, ...] = tuple(word.key for facet in (GPUS, LIMITS) for word in facet.words if word.narrows)
DOCUMENT_KEYS: tuple[Key, ...] = tuple(
    sorted((key for facet in FACETS for key in facet.keys), key=lambda key: _place(_KEY_ORDER, key.name))
)
