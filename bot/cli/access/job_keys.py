"""Find the keys of a job file that no job has, with their lines and the nearest right key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import yaml

from bot import logs
from bot.rules.jobs.document import JobDocument
from bot.rules.jobs.facet_table import WORD_OF
from bot.rules.jobs.facets.gpus import Gpu, Resources
from bot.rules.jobs.facets.mounts import FileMount
from bot.rules.jobs.facets.queue import QueueMatrix
from bot.rules.jobs.work_words import WORK_KEYS
from bot.rules.values.bad_word import nearest

Path = tuple[str, ...]

_MOUNTS: Path = ("file_mounts",)
_WORDS = frozenset((*WORD_OF, *WORK_KEYS))
#: Where a mapping of a job file stands → its own keys; `*` is a key that the author of the file chooses.
_FIELDS: Mapping[Path, tuple[str, ...]] = {
    ("resources", "gpu"): tuple(Gpu.model_fields),
    ("resources",): tuple(Resources.model_fields),
    (): tuple(JobDocument.model_fields),
    ("work",): tuple(WORK_KEYS),
    (*_MOUNTS, "*"): tuple(FileMount.model_fields),
    ("queue",): tuple(QueueMatrix.model_fields),
}
#: Where the words of the /gpu language are keys, too.
_TAKES_WORDS: frozenset[Path] = frozenset({(), ("work",)})


def unknown_keys(node: yaml.Node | None, at: Path = ()) -> Iterator[tuple[int, str]]:
    """Yield `(line, sentence)` for each key of a job file that no job has; `node` is the mapping that stands `at`."""
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        name = str(key.value)
        if at in _FIELDS and not _known(at, name):
            yield key.start_mark.line + 1, _sentence(at, name)
        inside = (*at, "*" if at == _MOUNTS else name)
        if inside in _FIELDS or inside == _MOUNTS:
            yield from unknown_keys(value, inside)


def _known(at: Path, name: str) -> bool:
    if name in _FIELDS[at]:
        return True
    word = name.lower().replace("_", "-")
    return at in _TAKES_WORDS and (word in _WORDS or word.replace("-", "_") in _WORDS)


def _sentence(at: Path, name: str) -> str:
    """Say that there is no such key, and which one is near, where it belongs, or which keys there are."""
    place = at[:-1] if at[-1:] == ("*",) else at
    shown = ".".join((*place, logs.visible(name)[:40]))
    right = nearest(name, (*_FIELDS[at], *_WORDS) if at in _TAKES_WORDS else _FIELDS[at])
    if right:
        right = ".".join((*place, right))
    else:
        homes = [home for home, keys in _FIELDS.items() if name in keys and "*" not in home]
        right = ".".join((*homes[0], name)) if homes else name if name in _WORDS else ""
    hint = f"Did you mean {right}?" if right else f"The keys there are {', '.join(_FIELDS[at])}."
    return f"{shown} is no key of a job. {hint}"
