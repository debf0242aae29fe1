"""Name instances: a human part, one hyphen, and a machine label that nobody without the key can forge.

The machine label is `<deployment 4>-<request 16>-<n 2>-<mac 10>` in fixed-width lower base32, so it is read from the
right end of whatever name a cloud shows. The MAC is HMAC-SHA256 (RFC 2104) over the first three parts, cut to 50 bits;
its key lives outside the database, so a label can be believed after the database is lost.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ledger.kernel.ids import BASE32, ID_LENGTH, bare_id, base32

DEPLOYMENT_LENGTH, COUNTER_LENGTH, MAC_LENGTH = 4, 2, 10
LABEL_LENGTH = DEPLOYMENT_LENGTH + ID_LENGTH + COUNTER_LENGTH + MAC_LENGTH + 3
MAX_COUNTER = 32**COUNTER_LENGTH - 1
SHORTEST_KEY = 16
#: Files of the data folder with the identity of a deployment: its label key and its name.
KEY_FILE, DEPLOYMENT_FILE = "label.key", "deployment.id"

_PARTS = "-".join(f"([{BASE32}]{{{n}}})" for n in (DEPLOYMENT_LENGTH, ID_LENGTH, COUNTER_LENGTH, MAC_LENGTH))
_LABEL = re.compile(rf"(?:^|-){_PARTS}\Z")


class LabelKind(StrEnum):
    OURS = "ours"
    FORGED = "forged"
    FOREIGN_DEPLOYMENT = "foreign_deployment"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class LabelReading:
    """Hold what a name says. `request_id` (without a prefix) and `n` are believed only when `kind` is OURS."""

    kind: LabelKind
    label: str = ""
    deployment: str = ""
    request_id: str = ""
    n: int = 0


@dataclass(frozen=True, slots=True)
class LabelKey:
    """Mint and read the labels of one deployment.

    `deployment` is four base32 characters, `key` at least 16 bytes.
    """

    deployment: str
    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        """Raise ValueError when the deployment's name or the key cannot make labels."""
        if not re.fullmatch(rf"[{BASE32}]{{{DEPLOYMENT_LENGTH}}}", self.deployment):
            raise ValueError(f"the deployment name must be {DEPLOYMENT_LENGTH} characters of {BASE32}, such as prd1")
        if len(self.key) < SHORTEST_KEY:
            raise ValueError(f"the label key must have at least {SHORTEST_KEY} bytes")

    def mint(self, request_id: str, n: int) -> str:
        """Mint the label of the `n`-th instance (0 to 1023) of a request, whose id may carry its prefix."""
        bare = bare_id(request_id)
        if not re.fullmatch(rf"[{BASE32}]{{{ID_LENGTH}}}", bare):
            raise ValueError(f"a request id ends in {ID_LENGTH} characters of {BASE32}")
        if not 0 <= n <= MAX_COUNTER:
            raise ValueError(f"the number of an instance lies between 0 and {MAX_COUNTER}")
        body = f"{self.deployment}-{bare}-{base32(n, COUNTER_LENGTH)}"
        return f"{body}-{self._mac(body)}"

    def read(self, name: str | None) -> LabelReading:
        """Read the label at the right end of a name; clouds that change the case of names are understood."""
        found = _LABEL.search((name or "").lower())
        if found is None:
            return LabelReading(LabelKind.NONE)
        deployment, request_id, counter, mac = found.groups()
        body = f"{deployment}-{request_id}-{counter}"
        kind = LabelKind.OURS if hmac.compare_digest(mac, self._mac(body)) else LabelKind.FORGED
        if deployment != self.deployment:
            kind = LabelKind.FOREIGN_DEPLOYMENT
        n = BASE32.index(counter[0]) * 32 + BASE32.index(counter[1])
        return LabelReading(kind, f"{body}-{mac}", deployment, request_id, n)

    def _mac(self, body: str) -> str:
        digest = hmac.digest(self.key, body.encode(), "sha256")
        return base32(int.from_bytes(digest[:8]) >> (64 - 5 * MAC_LENGTH), MAC_LENGTH)


def human_part(template: str, project: str, model: str | None, count: int, gpu: str) -> str:
    """Write the readable part of a name: `mosaic-moe-8x3090` from `{project}-{model}-{count}x{gpu}`.

    A part that is not known leaves no hyphen behind. ValueError for a placeholder that does not exist.
    """
    values: Mapping[str, str] = {
        "project": project,
        "model": model or "",
        "count": str(count),
        "gpu": re.sub(r"^rtx(?=\d)", "", gpu.lower()),
    }

    def fill(match: re.Match[str]) -> str:
        if match[1] not in values:
            known = ", ".join(f"{{{name}}}" for name in values)
            raise ValueError(f"name_template does not know {{{match[1]}}}; it knows {known}")
        return values[match[1]]

    return re.sub(r"-{2,}", "-", re.sub(r"\{([^{}]*)\}", fill, template)).strip("-")


def instance_name(human: str, label: str, name_max: int, extra_chars: str) -> str:
    """Fit `<human>-<label>` into the cloud's length and charset: the human part is cut and cleaned, the label never.

    `extra_chars` are the characters that the cloud allows besides letters and digits. ValueError when the cloud cannot
    carry a label at all.
    """
    if "-" not in extra_chars or name_max < LABEL_LENGTH:
        raise ValueError(f"a cloud whose names hold no hyphen or fewer than {LABEL_LENGTH} characters carries no label")
    allowed = re.escape(extra_chars)
    cleaned = re.sub(r"-{2,}", "-", re.sub(rf"[^A-Za-z0-9{allowed}]", "-", human))
    room = name_max - len(label) - 1
    # Names start with a letter or a digit everywhere, so separators at either end go.
    kept = re.sub(r"^[^A-Za-z0-9]+|[^A-Za-z0-9]+$", "", cleaned[: max(room, 0)])
    return f"{kept}-{label}" if kept else label
