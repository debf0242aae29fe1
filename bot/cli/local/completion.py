"""`gpu-shopper completion`: print a shell's completion of commands and options."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from typer._completion_shared import get_completion_script

from bot.cli.lazy import COMPLETE

PROGRAM = "gpu-shopper"


def completion(shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="Which shell reads it.")]) -> None:
    """Print the completion for a shell: eval "$(gpu-shopper completion bash)", or write it to its folder."""
    typer.echo(get_completion_script(prog_name=PROGRAM, complete_var=COMPLETE, shell=shell))
