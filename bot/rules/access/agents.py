"""Name the header by which a program says that an AI agent, or a program that acts for a person, sends a call."""

from __future__ import annotations

from typing import Final

#: With this header, whatever its value, a call has fewer rights and never more: nobody needs to prove it.
AGENT_HEADER: Final = "X-GPU-Shopper-Agent"
#: With this set, every call of the command line has the header.
AGENT_VARIABLE: Final = "GPU_SHOPPER_AGENT"
