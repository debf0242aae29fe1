"""Generate docs/settings.md and the same table in the README."""

from __future__ import annotations

from bot.cli.pages.markdown import code, table, whole_page
from bot.settings import known_variables


def settings_table() -> str:
    """List every environment variable that the program reads."""
    rows = [
        (code(v.name), v.doc, code(v.default) if v.default else "none", "" if v.secret else code(v.example))
        for v in known_variables()
    ]
    return table(("variable", "what it is", "default", "example"), rows)


def page() -> str:
    """Return the page."""
    return whole_page(
        "Settings",
        "Read from the environment and from a file `.env` in the working folder; the environment wins. A variable that "
        "begins with `GPU_SHOPPER_` and is not listed here stops the program, so that a typing error is not a default. "
        "What a team allows is not here but in the policy file: see [policy.md](policy.md).",
        settings_table(),
        "A cloud takes part when all of its credentials are set. `gpu-shopper doctor` says what is missing and whether "
        "what is there works.",
    )
