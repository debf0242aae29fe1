"""Cirrus in the registry for a while, or as a pytest plugin (`-p`) for a whole run."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from providers import cloud_names, registry
from providers.profiles import model
from providers.registry import ProviderEntry
from providers.sandbox.sandboxes import SANDBOXES
from tests.contract.example_cloud.adapter import CirrusConfig, CirrusProvider
from tests.contract.example_cloud.sandbox import CirrusSandbox

#: The registry line.
LINE = ProviderEntry(
    "cirrus", CirrusConfig, CirrusProvider, {"CIRRUS_API_KEY": "api_key"}, CirrusProvider.KEY_PAGE,
    {"CIRRUS_URL": "base_url"},
)  # fmt: skip


@contextmanager
def registered() -> Iterator[ProviderEntry]:
    """The registry with the sixth line, and the folder of profiles with the sixth page."""
    with tempfile.TemporaryDirectory() as folder:
        pages = Path(folder) / "profiles"
        shutil.copytree(model.FOLDER, pages)
        shutil.copy(Path(__file__).parent / "cirrus.md", pages)
        with (
            patch.object(model, "FOLDER", pages),
            patch.object(registry, "PROFILES", pages),
            patch.dict(SANDBOXES, {LINE.name: CirrusSandbox}),
        ):
            registry.register(LINE)
            try:
                yield LINE
            finally:
                registry._BY_NAME.pop(LINE.name)
                cloud_names._TITLES.pop(LINE.name)


_whole_run = registered()


def pytest_configure() -> None:
    """From before the first test is collected."""
    _whole_run.__enter__()


def pytest_unconfigure() -> None:
    """Until after the last."""
    _whole_run.__exit__(None, None, None)
