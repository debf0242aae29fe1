"""`gpu-shopper version`: print the version."""

from __future__ import annotations

import platform
from importlib import metadata

import typer


def version() -> None:
    """Print the version of this program and of Python."""
    typer.echo(f"gpu-shopper {metadata.version('gpu-shopper')} (Python {platform.python_version()})")
