"""What clouds name fits the columns that keep it, on PostgreSQL, which looks at lengths, too."""

from __future__ import annotations

import importlib
import pkgutil
import re
from typing import Any

import pytest

from bot.clock import SystemClock
from ledger.models import BillLine, Facet, Instance, Orphan, Session
from providers import clouds
from providers.contract import GPU_MAX, REF_MAX, InstanceStatus, ObservedInstance
from providers.errors import UnexpectedResponse
from providers.gpus.table import GPUS
from providers.registry import REGISTRY


def longest(pattern: re.Pattern[str]) -> int:
    """The most characters that a pattern matches."""
    return int(re._parser.parse(pattern.pattern, pattern.flags).getwidth()[1])  # type: ignore[attr-defined]


def holds(column: Any) -> int:
    """The most characters that a column holds."""
    return int(column.type.length)


def refs() -> dict[str, re.Pattern[str]]:
    """What the adapters' modules take for an id of an instance."""
    modules = [one.name for one in pkgutil.walk_packages(clouds.__path__, f"{clouds.__name__}.")]
    found = {name: getattr(importlib.import_module(name), "REF", None) for name in modules}
    return {name: pattern for name, pattern in found.items() if isinstance(pattern, re.Pattern)}


@pytest.mark.parametrize("model", [Instance, Orphan, BillLine])
def test_the_longest_id_fits(model: type[Instance | Orphan | BillLine]) -> None:
    assert holds(model.__table__.c.ref) == REF_MAX
    assert refs()
    assert {name: longest(one) for name, one in refs().items() if longest(one) > REF_MAX} == {}


def test_an_id_that_would_not_fit_is_no_answer() -> None:
    ObservedInstance("kaggle", "r" * REF_MAX, None, InstanceStatus.RUNNING)
    with pytest.raises(UnexpectedResponse, match="257 characters"):
        ObservedInstance("kaggle", "r" * (REF_MAX + 1), None, InstanceStatus.RUNNING)


@pytest.mark.parametrize("column", [Session.__table__.c.gpu, Facet.__table__.c.gpu])
def test_the_longest_gpu_fits(column: object) -> None:
    assert holds(column) == GPU_MAX
    assert max(map(len, GPUS)) <= GPU_MAX


@pytest.mark.parametrize("cloud", sorted(REGISTRY))
def test_the_longest_name_fits(cloud: str) -> None:
    able = REGISTRY[cloud].connect({}, SystemClock()).capabilities
    assert able.name_max <= holds(Instance.__table__.c.name)
    assert len(cloud) <= holds(Instance.__table__.c.cloud)
