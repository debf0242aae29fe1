"""One rental takes no more SQL statements than is promised."""

from __future__ import annotations

from tests.bench.statements import AIM, report


async def test_a_rental_takes_no_more_statements_than_promised() -> None:
    lines = [line async for line in report()]
    named = {name.strip(): number for name, number, _ in lines}
    total = next(int(number) for name, number in named.items() if name.startswith("one rental"))
    assert total <= AIM, "\n".join(" ".join(line) for line in lines)
    assert total == sum(int(named[job]) for job in _jobs(lines))


def _jobs(lines: list[tuple[str, str, str]]) -> list[str]:
    """The names of the jobs, which stand before the functions."""
    names = [name.strip() for name, _, note in lines if not note]
    return [name for name in names if "." not in name and " " not in name]
