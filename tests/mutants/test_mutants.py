"""The comparison of two suites, on a small repository of its own: what only the old tests kill is named."""

from __future__ import annotations

import ast
import subprocess
import time
from pathlib import Path

import pytest

from tests.mutants.draw import Change, Draw, Function, Mutant, Shapes, original, plainly_called, shape
from tests.mutants.suites import OutOfTimeError, Store, Suite
from tests.mutants.table import Found, survivors, table

PATH = "bot/rules/billing/price.py"
SOURCE = '''
def price(hours: int, rate: int) -> int:
    """Say what hours cost."""
    return hours * rate + 1


class Bill:
    def __init__(self) -> None:
        self.sum = 0

    def add(self, amount: int, *, twice: bool = False) -> int:
        self.sum += amount + (amount if twice else 0)
        return self.sum

    @property
    def empty(self) -> bool:
        return self.sum == 0
'''
#: The same with other names.
MOVED = SOURCE.replace("price", "cost").replace("hours", "spent").replace("Say what", "What")
TESTS = """
from bot.rules.billing.price import Bill, price


def test_price() -> None:
    assert price(2, 3) == 7


def test_bill() -> None:
    bill = Bill()
    assert bill.add(2) == 2
"""
STRICT = TESTS + "    assert bill.add(1, twice=True) == 4\n"
ONCE = """
from pathlib import Path
from bot.rules.billing.price import price


def test_once() -> None:
    price(1, 1)
    Path("once").touch(exist_ok=False)
"""
CONFTEST = """
import pytest


class Databases:
    _number = iter(())


@pytest.fixture(scope="session")
def pg_template():
    return Databases()


@pytest.fixture(scope="session")
def sqlite_template():
    return None
"""


def function(source: str) -> Function:
    """The only function of a source."""
    (found,) = ast.parse(source).body
    assert isinstance(found, Function)
    return found


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ("def g(b):\n    return max(b.units, 2)", True),
        ("def f(a):\n    'Its docstring may differ.'\n    return max(a.size, 2)", True),
        ("def f(a):\n    return min(a.size, 2)", False),
        ("def f(a):\n    return max(a.size, 3)", False),
        ("def f(a):\n    return max(a.a, 2)", False),
        ("async def f(a):\n    return max(a.size, 2)", False),
    ],
)
def test_a_shape_leaves_names_out(changed: str, same: bool) -> None:
    assert (shape(function("def f(a):\n    return max(a.size, 2)")) == shape(function(changed))) is same


def test_a_function_is_found_where_it_went() -> None:
    shapes = Shapes(
        {"a.py": "def one(x):\n    return x\n\ndef two(y):\n    return y\n", "b.py": "def one(z):\n    pass\n"}
    )
    form = shape(function("def f(a):\n    return a"))
    assert shapes.find("a.py", "two", form) == ("a.py", "two")
    assert shapes.find("gone.py", "one", form) == ("a.py", "one")
    assert shapes.find("gone.py", "three", form) is None  # Two functions have this shape, and neither this name.
    assert shapes.find("gone.py", "three", shape(function("def f(a):\n    pass"))) == ("b.py", "one")


def test_a_mutant_is_the_same_change_in_both_commits() -> None:
    draw = Draw({PATH: SOURCE}, {PATH: SOURCE}, {PATH: MOVED})
    count, drawn = draw.draw("bot/rules/billing", 1000, 1)
    assert count == len(drawn) > 10
    assert {(one.old.name, one.new.name) for one in drawn} == {
        ("price", "cost"), ("Bill.__init__", "Bill.__init__"), ("Bill.add", "Bill.add")
    }  # fmt: skip
    for one in drawn:
        renamed = one.old.source.replace("price", "cost").replace("hours", "spent").replace("Say what", "What")
        assert renamed == one.new.source
        compile(one.new.source, "mutant", "exec")
    assert draw.draw("bot/rules/billing", 5, 1)[1] == drawn[:5]
    assert draw.draw("bot/rules/billing", 1000, 2)[1] != drawn


def test_a_property_is_left_as_it_is() -> None:
    (bill,) = [node for node in ast.parse(SOURCE).body if isinstance(node, ast.ClassDef)]
    assert [plainly_called(one) for one in bill.body if isinstance(one, Function)] == [True, True, False]


def test_a_row_that_was_cut_off_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "kept/rows.jsonl"
    Store(path).add({"n": 1})
    with path.open("a") as file:
        file.write('{"n": 2, "out')
    store = Store(path)
    store.add({"n": 3})
    assert [*store.rows()] == [{"n": 1}, {"n": 3}]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits: the first one tests more."""
    root = tmp_path / "repository"
    packages = dict.fromkeys((f"{folder}/__init__.py" for folder in ("bot", "bot/rules", "bot/rules/billing")), "")
    files = {PATH: SOURCE, "tests/conftest.py": CONFTEST, "pytest.ini": "[pytest]\nmarkers = slow\n", **packages}
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    subprocess.run(["git", "-C", str(root), "init", "-q"], check=True)
    for text in (STRICT, TESTS):
        (root / "tests/test_price.py").write_text(text)
        commit(root)
    return root


def commit(root: Path) -> None:
    """Commit what is there."""
    git = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "one"], check=True)


def suite(root: Path, commit: str, scratch: Path, seconds: float = 100.0) -> Suite:
    """The tests of one commit of the small repository."""
    return Suite(root, commit, scratch, ["tests"], 1, time.monotonic() + seconds)


@pytest.mark.slow
def test_a_change_that_hangs_or_ends_the_process_is_killed(repository: Path, tmp_path: Path) -> None:
    head = "def price(hours, rate):\n"
    sources = {
        "loops": "    while True:\n        pass",
        "loops without an alarm": "    __import__('signal').setitimer(0, 0)\n    while True:\n        pass",
        "exits": "    __import__('os')._exit(0)",
        "is no function": "",
        "is the same": "    return hours * rate + 1",
    }
    ended = {}
    with suite(repository, "HEAD", tmp_path / "scratch") as tests:
        tests.patience = (0.5, 1.0, 1.0)
        tests.reach([original(PATH, "price", SOURCE)], Store(tmp_path / "reach.jsonl"))
        for number, (name, body) in enumerate(sources.items()):
            change = Change(PATH, "price", head + body if body else "price = 1")
            mutant = Mutant("bot/rules/billing", number, change, change, "")
            ended[name] = tests.judge([(mutant, change)], Store(tmp_path / "ended.jsonl"), 20.0)[mutant.name]
    assert [row["outcome"] for row in ended.values()] == ["killed", "killed", "killed", "broken", "survived"]
    assert "Timeout" in ended["loops"]["how"]
    assert ended["loops without an alarm"]["how"] == "killed after its time"
    assert ended["exits"]["how"] == "ended the process"


@pytest.mark.slow
def test_what_fails_by_itself_kills_nothing(repository: Path, tmp_path: Path) -> None:
    (repository / "tests/test_once.py").write_text(ONCE)
    commit(repository)
    change = original(PATH, "price", SOURCE)
    same = Mutant("bot/rules/billing", 0, change, change, "")
    with suite(repository, "HEAD", tmp_path / "scratch") as tests:
        tests.reach([change], Store(tmp_path / "reach.jsonl"))
        assert tests.failing == []
        ended = tests.judge([(same, change)], Store(tmp_path / "ended.jsonl"), 20.0)
        assert tests.failing == ["tests/test_once.py::test_once"]
    assert [row["outcome"] for row in ended.values()] == ["survived"]
    assert [row["outcome"] for row in Store(tmp_path / "ended.jsonl").rows()] == ["killed", "survived"]


@pytest.mark.slow
def test_a_run_that_is_out_of_time_goes_on_where_it_was(repository: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "reach.jsonl")
    places = [original(PATH, "price", SOURCE)]
    with pytest.raises(OutOfTimeError), suite(repository, "HEAD", tmp_path / "scratch", seconds=-1) as tests:
        tests.reach(places, store)
    assert not (tmp_path / "scratch").exists()
    store.add({"test": "tests/test_price.py::test_bill", "failed": False, "seconds": 9.0, "reached": [0]})
    with suite(repository, "HEAD", tmp_path / "scratch") as tests:
        tests.reach(places, store)
        assert tests.calling == {
            f"{PATH}::price": ["tests/test_price.py::test_price", "tests/test_price.py::test_bill"]
        }


@pytest.mark.slow
def test_what_only_the_old_tests_kill_is_named(repository: Path, tmp_path: Path) -> None:
    pool, drawn = Draw({PATH: SOURCE}, {PATH: SOURCE}, {PATH: SOURCE}).draw("bot/rules/billing", 1000, 1)
    places = [original(PATH, name, SOURCE) for name in ("price", "Bill.__init__", "Bill.add")]
    ended = {}
    for commit in ("HEAD~1", "HEAD"):
        store, scratch = Store(tmp_path / f"{commit}.jsonl"), tmp_path / commit
        with suite(repository, commit, scratch) as tests:
            tests.reach(places, Store(tmp_path / f"{commit}-reach.jsonl"))
            assert tests.calling[f"{PATH}::price"] == ["tests/test_price.py::test_price"]
            assert tests.calling[f"{PATH}::Bill.add"] == ["tests/test_price.py::test_bill"]
            ended[commit] = tests.judge([(one, one.new) for one in drawn], store, 20.0)
            assert tests.judge([(one, one.new) for one in drawn], store, 20.0) == ended[commit]
        assert len([*store.rows()]) == len(drawn)
        assert not scratch.exists()
    found = {"bot/rules/billing": Found(pool, drawn, ended["HEAD~1"], ended["HEAD"])}
    lost = {one.diff for one in found["bot/rules/billing"].lost}
    assert any("amount + (amount if twice" in diff and "amount - (amount if" in diff for diff in lost)
    assert all("twice" in diff for diff in lost)
    text = table(found)
    killed = [sum(row["outcome"] == "killed" for row in rows.values()) for rows in ended.values()]
    assert text[1].split() == ["bot/rules/billing", *map(str, (pool, len(drawn), *killed, len(lost)))]
    assert len(text) == 2 + 3 * len(lost)
    assert not {line.split()[0] for line in survivors(found)} & {one.name for one in found["bot/rules/billing"].lost}
