"""The command line: one file per noun, loaded only when its command is called."""

from bot.cli.lazy import build

__all__ = ["main"]


def main() -> None:
    """What the installed program `gpu-shopper` runs."""
    build()()
