"""Generate docs/capabilities.md: what each cloud can do, from the adapters."""

from __future__ import annotations

from dataclasses import fields

from bot.cli.pages.markdown import code, table, whole_page
from bot.clock import SystemClock
from providers.capabilities import BillingRule, Capabilities
from providers.registry import REGISTRY


def page() -> str:
    able = {
        name: entry.build(entry.config_class(), SystemClock(), None).capabilities for name, entry in REGISTRY.items()
    }
    rows = [
        (code(item.name), *(_text(getattr(able[name], item.name)) for name in able))
        for item in fields(Capabilities)
        if item.name not in ("billing", "rate_limits")
    ]
    billing = [
        (code(f"billing.{item.name}"), *(_text(getattr(able[name].billing, item.name)) for name in able))
        for item in fields(BillingRule)
    ]
    limits = ("`rate_limits`", *(_limits(able[n]) for n in able))
    return whole_page(
        "Capabilities of the clouds",
        "Code outside an adapter asks these and never the name of a cloud. Times are seconds. The words are explained "
        "at `Capabilities` and `BillingRule` in `providers/contract.py`; what was learned about each cloud is in "
        "`providers/profiles/`.",
        table(("capability", *able), [*rows, *billing, limits]),
    )


def _text(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _limits(able: Capabilities) -> str:
    """Describe the rate limits of each group of endpoints."""
    return "; ".join(f"{group}: {pace}" for group, pace in able.rate_limits.items()) or "none"
