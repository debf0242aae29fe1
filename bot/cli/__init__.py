"""Provide the command line: one file per subject, imported only when its command runs."""

from __future__ import annotations

import gc
import sys

from bot.cli.command_table import load
from bot.cli.top_help import print_help

__all__ = ["main"]


def main() -> None:
    """Run the installed program `gpu-shopper`."""
    if not print_help(sys.argv):
        gc.disable()  # What a command imports stays, and the garbage collector takes a quarter of the import.
        load("lazy").build()()
