"""Generate docs/policy.md: the policy file with every default."""

from __future__ import annotations

from dataclasses import fields

from bot.cli.pages.markdown import code, table, whole_page
from bot.rules.policy.policy import Policy
from bot.rules.policy.timing import Timing
from bot.settings.policy_file import default_of, example_of, plain

SAMPLE = """```yaml
policy:
  approvers: [U012AB3CD]
  max_hours: 12
timing:
  sweep_s: 30
```"""


def _rows(kind: type[Policy | Timing]) -> list[tuple[str, ...]]:
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


def page() -> str:
    """Return the page."""
    return whole_page(
        "Policy file",
        "Set `GPU_SHOPPER_POLICY` to the path of a YAML file. What it does not say keeps its default; a key that does "
        "not exist stops the program and names the line.",
        SAMPLE,
        "## `policy`: what a team allows",
        table(("key", "what it does", "default", "example"), _rows(Policy)),
        "## `timing`: how often to look, how long to wait (seconds)",
        table(("key", "what it is", "default", "least"), _rows(Timing)),
    )
