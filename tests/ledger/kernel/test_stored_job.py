"""A job as it is stored: JSON, which somebody else reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ledger.kernel.stored_job import StoredJob

read: list[str] = []


def hours(data: Mapping[str, Any]) -> str:
    read.append("hours")
    return str(data["hours"])


def names(data: Mapping[str, Any]) -> tuple[str, ...]:
    read.append("names")
    return tuple(data)


def test_each_reader_gets_its_own_value_and_reads_a_row_once() -> None:
    read.clear()
    stored = StoredJob({"hours": "2"})
    assert (stored.read(hours), stored.read(hours), read) == ("2", "2", ["hours"])
    assert (stored.read(names), stored.read(hours)) == (("hours",), "2")


def test_jobs_are_equal_where_their_json_is() -> None:
    stored = StoredJob({"hours": "2"})
    stored.read(hours)
    assert stored == StoredJob({"hours": "2"})
    assert stored != StoredJob({"hours": "3"})
    assert repr(stored) == "StoredJob(json={'hours': '2'})"
