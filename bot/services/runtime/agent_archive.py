"""Read the agent's archive, which rented machines fetch from here and run once its SHA-256 is right."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

#: Where `make agent` writes it in a checkout.
BUILT = Path(__file__).parents[3] / "dist" / "gpu-shopper-agent.pyz"
#: Where it is served, to everybody: it holds no secret.
PATH = "/agent.pyz"
NOT_BUILT = "No agent is built here. `make agent` builds it; GPU_SHOPPER_AGENT_FILE names one that is elsewhere."


@dataclass(frozen=True, slots=True)
class AgentArchive:
    """The archive and its hash."""

    content: bytes = field(repr=False)
    sha256: str

    @classmethod
    def read(cls, file: Path | None) -> AgentArchive | None:
        """Read the named file, or the one that `make agent` built; None where there is none.

        Raises ValueError for a named file that can't be read.
        """
        try:
            content = (file or BUILT).read_bytes()
        except OSError as error:
            if file is None:
                return None
            raise ValueError(f"GPU_SHOPPER_AGENT_FILE: {file} can't be read ({error.strerror}).") from error
        return cls(content, hashlib.sha256(content).hexdigest())
