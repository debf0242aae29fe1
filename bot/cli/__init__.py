"""Provide the command line: one file per subject, imported only when its command runs."""

from bot.cli.lazy import build

__all__ = ["main"]


def main() -> None:
    """Run the installed program `gpu-shopper`."""
    build()()
