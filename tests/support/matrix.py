"""Which database each cloud is tested on, for tests whose rule has nothing to do with either.

Every such test runs on every cloud and on both databases, but not on every pair: the pairs take turns, so the number of
runs grows with the clouds and not with their product.
"""

from __future__ import annotations

from itertools import cycle

import pytest

from providers.registry import REGISTRY

CLOUDS = tuple(REGISTRY)
DATABASES = ("sqlite", "postgres")

every_cloud = pytest.mark.parametrize(
    ("db_url", "cloud"), list(zip(cycle(DATABASES), CLOUDS, strict=False)), indirect=["db_url"]
)
