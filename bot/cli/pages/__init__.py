"""Generate the pages under `docs/` from the code, so that they always match what the program does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from bot.cli.pages import api, clouds, codes, commands, schemas, settings, unplanned_ends, webhooks, words

#: File name under `docs/` → the function that writes it.
PAGES: Mapping[str, Callable[[], str]] = MappingProxyType(
    {
        "settings.md": settings.page,
        "policy.md": settings.policy,
        "notifications.md": codes.notifications,
        "errors.md": codes.page,
        "grammar.md": words.grammar,
        "ids.md": words.ids,
        "capabilities.md": clouds.page,
        "unplanned-ends.md": unplanned_ends.page,
        "programs/webhooks.md": webhooks.page,
        **clouds.pages(),
        "api.md": api.page,
        "cli.md": commands.page,
        "openapi.json": api.openapi,
        **schemas.SCHEMAS,
    }
)
