"""Generate docs/settings.md with every environment variable, and docs/policy.md with every default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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


HEAD = ("key", "what it does", "value")
#: The first key of each group → the group's heading; the keys of a group stand together in the code.
SUBJECTS: Mapping[str, str] = {
    "approvers": "Who approves",
    "auto_approve_below_usd": "Auto-approval",
    "two_approvers_above_usd": "Several approvers, escalation and delegation",
    "break_glass": "Start without an approval",
    "confirm_above_usd": "What an approval covers",
    "request_ttl_s": "How long a request waits",
    "failover": "Failover and replacement",
    "warn_before_end_s": "Warnings and overspend",
    "checkpoint_unverified": "Checkpoints",
    "end_when_unresponsive": "Idle, unresponsive and finished machines",
    "max_gpus": "Size of a request",
    "min_disk_gb": "Disks and images",
    "blocked_hosts": "What is never offered",
    "options_shown": "Estimates and ranking",
    "teams": "Teams and budgets",
    "consumers": "Programs and webhooks",
    "digest_at": "Digest",
    "cost_ledger_file": "Costs of other tools",
    "project": "Names of instances",
    "tick_s": "Jobs and listings",
    "absence_count": "Proof that an instance is gone",
    "boot_deadline_s": "Launch and boot",
    "offers_timeout_s": "Calls to clouds",
    "terminate_retry_s": "Terminations and approved ends",
    "claim_ttl_s": "Workers and messages",
}

SAMPLE = """```yaml
policy:
  approvers: [U012AB3CD]
  max_hours: 12
timing:
  sweep_s: 30
```"""


def _groups(kind: type[Policy | Timing]) -> Iterator[str]:
    """Yield the heading and the table of each group of keys."""
    rows: list[tuple[str, ...]] = []
    for item in fields(kind):
        default = plain(default_of(item))
        floor = item.metadata.get("floor")
        shown = f"Default: {code(_text(default))}. At least {floor:g}." if floor is not None else ""
        if item.name in SUBJECTS:
            if rows:
                yield table(HEAD, rows)
            yield f"### {SUBJECTS[item.name]}"
            rows = []
        rows.append((code(item.name), str(item.metadata["doc"]), shown or value_cell(_text(default), example_of(item))))
    yield table(HEAD, rows)


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
        "except for `timing`, and posts to the operators what changed.",
        "The file decides who spends. It and every folder above it must belong to root or to the user of the service, "
        "and nobody else may be able to write there. Otherwise `doctor` fails, a start only ends sessions, and a "
        "running bot keeps the policy that it has.",
        SAMPLE,
        "## `policy`: what a team allows",
        *_groups(Policy),
        "## `timing`: how often to look, how long to wait (seconds)",
        *_groups(Timing),
    )
