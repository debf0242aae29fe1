"""The credentials of the tests are canaries: whatever any test makes the program say, none of them may be in it.

Registered with every run of the suite. What is logged, from INFO on and before anything is redacted, and what a test
prints is searched; a test that made the program say one fails, whatever else it found.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import pytest

from ledger.kernel.clock import Clock
from providers.sandbox.sandboxes import sandboxes
from tests.support.clock import SteppedClock

#: What a process of the bot is given besides the credentials of the clouds.
SLACK_SIGNING, SLACK_TOKEN, LABEL_KEY = "5e0f1c2d3b4a59687766554433221100", "xoxb-2-e2e-5e0f1c2d3b4a", "ab" * 32
STORES: Mapping[str, str] = {
    "HF_TOKEN": "hf_canaryCanaryCanaryCanary0123456789",
    "AWS_ACCESS_KEY_ID": "AKIACANARYCANARY0123",
    "AWS_SECRET_ACCESS_KEY": "canary/secret+of/a+bucket/0123456789abcd",
}
#: Our own loggers, and the one that would name every address that is called.
WATCHED = ("bot", "providers", "ledger", "httpx")
#: Parts of the names of variables that hold a credential.
_SECRET_NAMES = ("KEY", "TOKEN")


def of_clouds(clock: Clock | None = None) -> frozenset[str]:
    """The credentials that the sandboxes of all registered clouds take."""
    given: dict[str, str] = {}
    for cloud in sandboxes(clock or SteppedClock()).values():
        given |= cloud.environment("http://127.0.0.1")
    return secret_values(given)


def secret_values(environment: Mapping[str, str]) -> frozenset[str]:
    """The values of an environment that are credentials, by their names; addresses are none."""
    return frozenset(
        value for name, value in environment.items() if name.endswith(_SECRET_NAMES) and not urlsplit(value).scheme
    )


def said(text: str, secrets: Iterable[str]) -> list[str]:
    """The beginnings of those secrets that occur in a text."""
    return sorted(f"{secret[:8]}…" for secret in secrets if secret in text)


class Watch(logging.Handler):
    """A plugin of pytest, and the handler that hears every record of a run."""

    def __init__(self, secrets: Collection[str]) -> None:
        super().__init__()
        self._secrets = frozenset(secrets)
        self._heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Search one record with its traceback and its further fields."""
        try:
            text = f"{record.getMessage()} {record.__dict__}"
        except (TypeError, ValueError):
            text = f"{record.msg} {record.__dict__}"
        if record.exc_info and record.exc_info[1] is not None:
            text += "".join(_chain(record.exc_info[1]))
        self._heard += [f"{secret} in a record of {record.name}" for secret in said(text, self._secrets)]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Fail a test that made the program say a secret."""
        report = yield
        told, self._heard = self._heard, []
        told += [f"{secret} in {name}" for name, text in report.sections for secret in said(text, self._secrets)]
        if told:
            report.outcome = "failed"
            report.longrepr = "a secret was said: " + "; ".join(dict.fromkeys(told))
        return report


def _chain(error: BaseException) -> Iterable[str]:
    """What an error and those behind it say."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield f" {at!r} {at}"
        at = at.__cause__ or at.__context__


def watch(config: Any) -> Watch:
    """Search everything that this run says."""
    made = Watch({*of_clouds(), SLACK_SIGNING, SLACK_TOKEN, LABEL_KEY, *STORES.values()})
    logging.getLogger().addHandler(made)
    for name in WATCHED:
        logging.getLogger(name).setLevel(logging.INFO)
    config.pluginmanager.register(made, "canaries")
    return made
