"""Check the names and the values of secrets that a job gets as variables of its environment."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

#: The most secrets of one job, and the most that a person may store.
MOST_NAMED: Final = 16
MOST_STORED: Final = 100
#: The longest value. Linux takes 128 KiB in one variable; a token has a hundred bytes, and a key file a few thousand.
LONGEST_VALUE_BYTES: Final = 8192

_NAME: Final = re.compile(r"[A-Z][A-Z0-9_]{0,63}", re.ASCII)
#: Variables that decide which programs run, and those that the machine, its cloud or its start-up sets.
_TAKEN: Final = frozenset(
    {
        *("BASH_ENV", "ENV", "HOME", "HOSTNAME", "IFS", "LANG", "LOGNAME", "MAIL", "OLDPWD", "PATH", "PWD", "SHELL"),
        *("SHLVL", "TERM", "TMPDIR", "TZ", "USER", "CRED_FILE", "DATA_DIR", "PROJECT_REPO_DIR", "STARTUP_FOLDER"),
        *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NODE_OPTIONS"),
        *("PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONINSPECT", "PERL5LIB", "PERL5OPT"),
        *("GIT_EXEC_PATH", "GIT_SSH", "GIT_SSH_COMMAND"),
    }
)
_TAKEN_BEGINNINGS: Final = (
    "GPU_SHOPPER_",
    "LD_",
    "LC_",
    "DYLD_",
    "BASH_FUNC_",
    "SSH_",
    "CONTAINER_",
    "RUNPOD_",
    "VAST_",
)


def name_problem(name: str) -> str:
    """Say what is wrong with the name of a secret; "" when it is right."""
    if not _NAME.fullmatch(name):  # The text is not repeated, because people write a value there by mistake.
        return (
            "A secret is named with 1 to 64 capital letters, digits and underscores, a letter first, such as HF_TOKEN. "
            "Never write its value here."
        )
    if name in _TAKEN or name.startswith(_TAKEN_BEGINNINGS):
        return f"{name} is a variable of the machine itself, so no secret can have this name. Choose another one."
    return ""


def names_problem(names: Sequence[str]) -> str:
    """Say what is wrong with the names that a job lists; "" when they are right."""
    for name in names:
        if wrong := name_problem(name):
            return wrong
        if names.count(name) > 1:
            return f"{name} is named twice. Keep one of the two."
    if len(names) > MOST_NAMED:
        return f"{len(names)} secrets are above the limit of {MOST_NAMED}."
    return ""


def value_problem(value: str) -> str:
    """Say what is wrong with the value of a secret, without repeating any of it; "" when it is right."""
    if not value:
        return "The value is empty. Give the secret itself."
    if "\x00" in value:
        return "The value has a NUL character, which no variable can hold."
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "The value is no valid text. Encode it, for example with base64."
    if size > LONGEST_VALUE_BYTES:
        return f"The value has {size:,} bytes; {LONGEST_VALUE_BYTES:,} is the most."
    return ""
