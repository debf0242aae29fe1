"""How long an unclear create is searched for."""

from __future__ import annotations

from datetime import timedelta

from bot.services.instances.unknown_outcome import quarantine
from providers.capabilities import Capabilities


def test_a_cloud_that_shows_instances_late_is_searched_longer() -> None:
    able = Capabilities(stop=True, spot=False, labels=True, balance=True, charges=True, logs=True, visibility_lag_s=60)
    assert quarantine(able) == timedelta(seconds=600)
    assert quarantine(able, floor_s=900) == timedelta(seconds=900)
