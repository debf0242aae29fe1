"""What `code_size` counts: statements without docstrings, by package, the stage apart."""

from __future__ import annotations

import pytest

from tests.architecture.code_size import BOT, counted, main, package_of, present, report, statements

TEXT = '''
"""A module."""
import os

# A comment.
class Thing:
    """A class."""

    size: int = 1

    def grow(
        self,
        by: int,
    ) -> None:
        """A function."""
        if by:
            self.size += by; self.grow(0)
        else:
            "no docstring"
'''


def test_docstrings_comments_and_line_breaks_do_not_count() -> None:
    assert statements(TEXT) == 8
    assert statements("") == statements('"""Only a docstring."""') == 0


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("bot/main.py", "bot/*.py"),
        ("bot/slack/blocks/request.py", "bot/slack"),
        ("bot/cli/lazy.py", "bot/cli"),
        ("bot/cli/demo/command.py", "the stage"),
        ("bot/cli/local/sandbox.py", "the stage"),
        ("bot/practice/app.py", "the stage"),
        ("providers/sandbox/vast/sandbox.py", "the stage"),
        ("providers/registry.py", "providers"),
    ],
)
def test_each_file_is_in_one_row(name: str, row: str) -> None:
    assert package_of(name) == row


def test_the_packages_of_bot_are_added_up() -> None:
    sizes = counted({"bot/main.py": TEXT, "bot/slack/app.py": TEXT, "bot/practice/app.py": TEXT, "ledger/a.py": TEXT})
    assert sizes == {"bot/*.py": 8, "bot/slack": 8, BOT: 16, "the stage": 8, "ledger": 8}


def test_the_table_compares_with_a_commit() -> None:
    now = counted({"bot/main.py": TEXT, "bot/wire/a.py": TEXT})
    before = counted({"bot/main.py": f"{TEXT}\npass\npass"})
    out = [" ".join(line.split()) for line in report(now, before, "d8cb0526")]
    assert out[:4] == [
        "statements d8cb0526 now change",
        "bot/*.py 10 8 -20.0 %",
        "bot/wire 0 8 new",
        "bot without the stage 10 16 +60.0 %",
    ]


def test_without_a_commit_it_counts_what_lies_here(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    sizes = dict(line.rsplit(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert int(sizes[BOT].replace(",", "")) > 10_000


def test_the_product_is_read_whole() -> None:
    names = present()
    assert {"bot/main.py", "ledger/kernel/money.py", "providers/registry.py", "migrations/run.py"} <= set(names)
    assert not [name for name in names if name.startswith("tests")]
