"""`python -m tests.architecture.stage serve`: run the program where the stage can't be imported.

The stage is the practice workspace, the sandbox clouds and the demo, which the tests and `gpu-shopper demo` play on.
"""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

STAGE = ("bot.cli.demo", "bot.practice", "providers.sandbox")


def on_stage(module: str) -> bool:
    """Whether a module belongs to the stage."""
    return f"{module}.".startswith(tuple(f"{package}." for package in STAGE))


class NoStage(importlib.abc.MetaPathFinder):
    """Refuse every import of the stage, before the ordinary finders are asked."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise ImportError for a module of the stage; None for every other one."""
        if on_stage(fullname):
            raise ImportError(f"{fullname} belongs to the stage")
        return None


def main() -> None:
    """Run the program with the arguments of this one."""
    sys.meta_path.insert(0, NoStage())
    sys.argv[0] = "gpu-shopper"
    entry = __import__("bot.cli", fromlist=["main"])
    entry.main()


if __name__ == "__main__":
    main()
