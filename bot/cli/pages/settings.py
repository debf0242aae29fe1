"""Generate docs/settings.md with every environment variable, and docs/policy.md with every default."""

from __future__ import annotations

from dataclasses import fields

from bot.cli.pages.markdown import code, table, whole_page
from bot.rules.policy.policy import Policy
from bot.rules.policy.timing import Timing
from bot.settings import known_variables
from bot.settings.policy_file import default_of, example_of, plain


def settings_table() -> str:
    """List every environment variable that the program reads."""
    rows = [
        (code(v.name), v.doc, code(v.default) if v.default else "none", "" if v.secret else code(v.example))
        for v in known_variables()
    ]
    return table(("variable", "what it is", "default", "example"), rows)


def page() -> str:
    return whole_page(
        "Settings",
        "Read from the environment and from a file `.env` in the working folder; the environment wins. A variable that "
        "begins with `GPU_SHOPPER_` and is not listed here stops the program, so that a typing error is not a default. "
        "What a team allows is not here but in the policy file: see [policy.md](policy.md).",
        settings_table(),
        "A cloud takes part when all of its credentials are set. `gpu-shopper doctor` says what is missing and whether "
        "what is there works.",
    )


SAMPLE = """```yaml
policy:
  approvers: [U012AB3CD]
  max_hours: 12
timing:
  sweep_s: 30
```"""


def _policy_rows(kind: type[Policy | Timing]) -> list[tuple[str, ...]]:
    rows = []
    for item in fields(kind):
        default = plain(default_of(item))
        floor = item.metadata.get("floor")
        cells = [code(item.name), str(item.metadata["doc"]), code(_text(default))]
        rows.append((*cells, f"{floor:g}" if floor is not None else code(example_of(item))))
    return rows


def _text(value: object) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def policy() -> str:
    """Return the page."""
    return whole_page(
        "Policy file",
        "Set `GPU_SHOPPER_POLICY` to the path of a YAML file. What it does not say keeps its default; a key that does "
        "not exist stops the program and names the line.",
        SAMPLE,
        "## `policy`: what a team allows",
        table(("key", "what it does", "default", "example"), _policy_rows(Policy)),
        "## `timing`: how often to look, how long to wait (seconds)",
        table(("key", "what it is", "default", "least"), _policy_rows(Timing)),
    )
