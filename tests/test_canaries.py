"""The watch over the suite's credentials: it hears records, their errors and what tests print, and fails the test."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.support.canaries import LABEL_KEY, STORES, Watch, of_clouds, said, secret_values

CANARY = "canary-0123-abcd"


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """A logger that only the watch of a test hears."""
    made = logging.getLogger("apart.from.all")
    made.propagate = False
    made.setLevel(logging.INFO)
    yield made
    made.handlers.clear()


def judged(watch: Watch, *sections: tuple[str, str]) -> pytest.TestReport:
    """A test that passed, as the watch reports it."""
    report = pytest.TestReport("a", ("a", 1, "a"), {}, "passed", None, "call", sections=list(sections))
    hook = watch.pytest_runtest_makereport()
    next(hook)
    with pytest.raises(StopIteration) as ended:
        hook.send(report)
    found: pytest.TestReport = ended.value.value
    return found


def test_a_secret_in_a_record_fails_the_test_that_made_it(log: logging.Logger) -> None:
    watch = Watch({CANARY})
    log.addHandler(watch)
    log.info("the key %s was refused", CANARY)
    log.info("a field", extra={"headers": {"authorization": CANARY}})
    try:
        raise ValueError("outside") from OSError(CANARY)
    except ValueError:
        log.exception("it failed")
    failed = judged(watch)
    assert (failed.outcome, str(failed.longrepr)) == (
        "failed",
        "a secret was said: canary-0… in a record of apart.from.all",
    )
    assert judged(watch).outcome == "passed"  # It is the matter of that test alone.


def test_what_a_test_prints_is_searched_too() -> None:
    watch = Watch({CANARY})
    assert judged(watch, ("Captured stdout call", "all is well")).outcome == "passed"
    failed = judged(watch, ("Captured stdout call", f"key={CANARY}"))
    assert "in Captured stdout call" in str(failed.longrepr)


def test_the_run_watches_the_credentials_of_every_cloud(request: pytest.FixtureRequest) -> None:
    running = request.config.pluginmanager.get_plugin("canaries")
    assert isinstance(running, Watch)
    assert running in logging.getLogger().handlers
    clouds = of_clouds()
    assert len(clouds) >= 7
    assert running._secrets >= {*clouds, LABEL_KEY, *STORES.values()}
    assert secret_values({"VAST_API_KEY": CANARY, "VAST_URL": "http://x", "KAGGLE_USERNAME": "ada"}) == {CANARY}
    assert said(f"…{CANARY}…", {CANARY, "another"}) == ["canary-0…"]
