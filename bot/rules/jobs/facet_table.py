"""List the facets of a job. Their order is that of the words and keys in the docs, and of what approvers read."""

from __future__ import annotations

from collections.abc import Mapping

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

FACETS: tuple[JobFacet, ...] = (
    GPUS,
    WHEN,
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
    PROFILE,
    ATTEMPTS,
    IDLE,
    CHECKPOINT,
    VOLUME,
    LABEL,
)
WORDS: tuple[Word, ...] = tuple(word for facet in FACETS for word in facet.words)
#: Every name of a word → the word.
WORD_OF: Mapping[str, Word] = {name: word for word in WORDS for name in (word.key, *word.aliases)}
#: Names of the words that narrow the market further than GPUs, price and clouds do.
NARROWING: tuple[str, ...] = tuple(word.key for word in WORDS if word.narrows)
DOCUMENT_KEYS: tuple[Key, ...] = tuple(key for facet in FACETS for key in facet.keys)
