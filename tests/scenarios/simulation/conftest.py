"""What a killed process of a seed left behind is cleaned up within its own test."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest
from sqlalchemy.exc import SAWarning


@pytest.fixture
def cleaned_up() -> Iterator[None]:
    """Collect the connections that a killed process gave nobody back: a later test would be warned of them."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SAWarning)
        gc.collect()
