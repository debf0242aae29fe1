"""`volume …` and `volume=`: what is read, and the place and sentence of each mistake."""

from __future__ import annotations

from decimal import Decimal

import pytest

from bot.rules.grammar.parser import GrammarError, ParsedCommand, parse
from bot.rules.jobs.job import JobRequest
from bot.rules.policy.policy import Policy


def read(line: str) -> ParsedCommand:
    found = parse(line, Policy())
    assert isinstance(found, ParsedCommand), found
    return found


def made(line: str) -> JobRequest:
    job = read(line).job
    assert job is not None
    return job


@pytest.mark.parametrize(
    ("line", "size", "hours", "clouds", "regions", "reason"),
    [
        ("volume create data 200GB", 200, 336, (), (), ""),
        ("volume create Data 200 for=14d", 200, 336, (), (), ""),
        ("volumes create data 1.5TB cloud=runpod region=US-KS-2 for=36h", 1500, 36, ("runpod",), ("US-KS-2",), ""),
        ("volume create data 20g time=2d the new corpus a=b", 20, 48, (), (), "the new corpus a=b"),
    ],
)
def test_a_volume_is_asked_for(
    line: str, size: int, hours: int, clouds: tuple[str, ...], regions: tuple[str, ...], reason: str
) -> None:
    job = made(line)
    assert (job.makes_volume, job.disk_gb, int(job.hours)) == ("data", size, hours)
    assert (job.candidates, job.regions, job.reason) == (clouds, regions, reason)
    assert read(line).action == "create"


def test_the_other_actions_are_read() -> None:
    assert (read("volume").action, read("volume list").action) == ("list", "list")
    more = read("volume extend data 7d the run is late")
    assert (more.action, more.target, more.hours, more.text) == ("extend", "data", Decimal(168), "the run is late")
    assert (read("volume delete data").action, read("volume delete DATA").target) == ("delete", "data")


@pytest.mark.parametrize(
    ("line", "word", "said"),
    [
        ("volume crate data 20GB", "crate", "Did you mean create?"),
        ("volume list all", "all", "with nothing after it"),
        ("volume delete", "", "Name the volume"),
        ("volume delete D_1", "D_1", "is not a volume name"),
        ("volume delete data now", "now", "Name one volume only"),
        ("volume create data", "", "write the size"),
        ("volume create data huge", "huge", "write the size"),
        ("volume create data 0GB", "0GB", "write the size"),
        ("volume create data 1.5GB", "1.5GB", "write the size"),
        ("volume create data 20GB for=soon", "for=soon", "is not a time"),
        ("volume create data 20GB for=999d", "for=999d", "365 days"),
        ("volume create data 20GB cloud=moon", "cloud=moon", "is not a cloud"),
        ("volume create data 20GB region=!", "region=!", "region"),
        (f"volume create data 20GB {'x' * 5000}", "x" * 5000, "is the most"),
        ("volume extend data", "", "for how much longer"),
        ("volume extend data soon", "soon", "is not a time"),
        ("provision 4090 2h volume=D_1", "volume=D_1", "is not a volume name"),
    ],
)
def test_a_mistake_is_shown_at_its_word(line: str, word: str, said: str) -> None:
    found = parse(line, Policy())
    assert isinstance(found, GrammarError)
    assert (found.word, said in found.message) == (word, True), found


def test_a_machine_names_the_volume_that_it_mounts() -> None:
    job = made("provision 4090 2h volume=Data")
    assert (job.volume, job.volume_session, job.makes_volume) == ("data", None, "")
