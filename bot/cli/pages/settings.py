"""Generate docs/settings.md with every environment variable, and docs/policy.md with every default."""

from __future__ import annotations

from dataclasses import fields

from bot.cli.pages.markdown import code, table, value_cell, whole_page
from bot.rules.policy.policy import Policy
from bot.rules.policy.timing import Timing
from bot.settings import known_variables
from bot.settings.policy_file import default_of, example_of, plain


def settings_table() -> str:
    """List every environment variable that the program reads."""
    rows = [(code(v.name), v.doc, value_cell(v.default, "" if v.secret else v.example)) for v in known_variables()]
    return table(("variable", "what it is", "value"), rows)


def page() -> str:
    return whole_page(
        "Settings",
        "The program reads these variables from the environment, and from a file `.env` in its working folder. The "
        "environment wins. A variable that begins with `GPU_SHOPPER_` and is not listed here stops the program: a "
        "typing error must not become a default. What your team allows is in the [policy file](policy.md).",
        settings_table(),
        "A cloud takes part when all of its credentials are set. `gpu-shopper doctor` names what is missing, and tries "
        "each credential.",
    )


SAMPLE = """```yaml
policy:
  approvers: [U012AB3CD]
  max_hours: 12
timing:
  sweep_s: 30
```"""


def _policy_rows(kind: type[Policy | Timing]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for item in fields(kind):
        default = plain(default_of(item))
        floor = item.metadata.get("floor")
        shown = f"Default: {code(_text(default))}. At least {floor:g}." if floor is not None else ""
        rows.append((code(item.name), str(item.metadata["doc"]), shown or value_cell(_text(default), example_of(item))))
    return rows


def _text(value: object) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def policy() -> str:
    """Return the page."""
    return whole_page(
        "Policy file",
        "Set `GPU_SHOPPER_POLICY` to the path of a YAML file. What you leave out keeps its default. If a key does not "
        "exist, the program refuses the file and names the line. A running bot takes up a good edit within seconds, "
        "except for `timing`.",
        SAMPLE,
        "## `policy`: what a team allows",
        table(("key", "what it does", "value"), _policy_rows(Policy)),
        "## `timing`: how often to look, how long to wait (seconds)",
        table(("key", "what it is", "value"), _policy_rows(Timing)),
    )
