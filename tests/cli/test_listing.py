"""A list: columns that fit, columns that are chosen, colours by meaning, and tab-separated values in a pipe."""

from __future__ import annotations

import io
from itertools import permutations
from operator import itemgetter

import httpx
import pytest
import typer
from rich.console import Console

from bot.cli.access.api_client import ApiClient
from bot.cli.terminal import listing as module
from bot.cli.terminal.layout import lines
from bot.cli.terminal.listing import ListColumns, chosen, listing, print_listing

HEAD = ("session", "state", "per hour", "owner")
COLUMNS: ListColumns[tuple[str, ...]] = tuple((name, itemgetter(place)) for place, name in enumerate(HEAD))
ROWS = (("4k7m2p", "running", "$0.350/h", "ada"), ("9x2q4d", "ended", "-", "slack\tT1/UBOB"))
SESSIONS = listing("There are no sessions.", COLUMNS, ROWS, ["The ledger is being restored."], extra=["per hour"])


@pytest.fixture(autouse=True)
def piped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing asks for a width: the tests' output is no terminal."""
    monkeypatch.delenv("COLUMNS", raising=False)


def test_a_pipe_gets_tab_separated_values_alone(capsys: pytest.CaptureFixture[str]) -> None:
    print_listing(SESSIONS)
    out, err = capsys.readouterr()
    assert out.splitlines() == ["4k7m2p\trunning\t$0.350/h\tada", "9x2q4d\tended\t\tslack\\x09T1/UBOB"]
    assert err == "The ledger is being restored.\n"
    print_listing(listing("There are no sessions.", COLUMNS, ()))
    assert capsys.readouterr() == ("", "There are no sessions.\n")


def test_each_cell_stands_under_the_heading_of_its_own_pair() -> None:
    columns: ListColumns[str] = (
        ("word", str),
        ("length", lambda word: str(len(word))),
        ("first", lambda word: word[0]),
    )
    for order in permutations(columns):
        view = listing("No words.", order, ["lambda", "vast"], extra=["length"])
        rows = [dict(zip(view.head, row, strict=True)) for row in view.rows]
        assert rows == [
            {"word": "lambda", "length": "6", "first": "l"},
            {"word": "vast", "length": "4", "first": "v"},
        ]
    with pytest.raises(ValueError, match=r"^no column has the heading size$"):
        listing("No words.", columns, ["vast"], extra=["size"])


def test_columns_are_chosen_in_the_order_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    print_listing(SESSIONS, "owner, Per-Hour,session")
    assert capsys.readouterr().out.splitlines()[0] == "ada\t$0.350/h\t4k7m2p"
    with pytest.raises(typer.Exit) as ended:
        chosen(SESSIONS, "owner,price")
    assert ended.value.exit_code == 2
    assert capsys.readouterr().err == 'There is no column "price". Columns: session,state,per-hour,owner.\n'


def test_a_terminal_gets_a_table_and_its_sentences(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_listing(SESSIONS)
    out, err = capsys.readouterr()
    assert [line.split() for line in out.splitlines()[:2]] == [
        ["session", "state", "per", "hour", "owner"],
        ["4k7m2p", "running", "$0.350/h", "ada"],
    ]
    assert (out.splitlines()[-1], err) == ("The ledger is being restored.", "")


def test_a_column_of_less_weight_is_left_out_where_it_does_not_fit() -> None:
    narrow = Console(file=io.StringIO(), width=26)
    wide = Console(file=io.StringIO(), width=60)
    rows = ROWS[:1]
    assert "per hour" in next(lines(HEAD, rows, wide, {"per hour"})).plain
    shown = [line.plain for line in lines(HEAD, rows, narrow, {"per hour"})]
    assert shown[0].split() == ["session", "state", "owner"]
    assert "$0.350/h" not in "".join(shown)
    kept = "".join(line.plain for line in lines(HEAD, rows, narrow))
    assert "per hour: $0.350/h" in kept


def test_a_long_heading_is_broken_before_a_cell_has_to_move() -> None:
    head, rows = ("GPU", "Spot $/Run", "On-Demand $/Run"), [("RTX4090", "$0.18", "$0.31")]
    for width, said in (
        (40, ["GPU      Spot $/Run  On-Demand $/Run", "RTX4090  $0.18       $0.31"]),
        (25, ["         Spot   On-Demand", "GPU      $/Run  $/Run", "RTX4090  $0.18  $0.31"]),
    ):
        assert [line.plain for line in lines(head, rows, Console(width=width))] == said


def test_states_have_colours_and_no_color_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn() -> str:
        out = io.StringIO()
        coloured = Console(file=out, width=80, force_terminal=True, highlight=False)
        for line in lines(HEAD, ROWS, coloured):
            coloured.print(line)
        return out.getvalue()

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[32mrunning\x1b[0m" in drawn()
    assert "\x1b[2mended\x1b[0m" in drawn()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in drawn()
    assert module.NONE == "-"


async def test_a_long_list_is_read_page_by_page() -> None:
    asked: list[tuple[int, str]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        limit, first = int(request.url.params["limit"]), int(request.url.params.get("cursor", "0"))
        asked.append((limit, request.url.params.get("cursor", "")))
        after = first + limit
        return httpx.Response(200, json={"items": list(range(first, after)), "next_cursor": str(after)})

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://here") as http:
        found = await ApiClient(http).pages("/sessions", 250, live="true")
    assert found == {"items": list(range(250)), "next_cursor": "250"}
    assert asked == [(100, ""), (100, "100"), (50, "200")]
