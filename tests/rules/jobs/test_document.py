"""The job document, whose text a service remembers of each call."""

from __future__ import annotations

import hashlib

from bot.rules.jobs.document import JobDocument
from bot.rules.jobs.facet_table import DOCUMENT_KEYS, NARROWING, WORDS

BODY = {
    "resources": {"gpu": "A100:8", "disk": "200GB"},
    "hours": 2,
    "candidates": ["vast", "runpod"],
    "max_price": 2.5,
    "work": {"model": "7B"},
    "run": "python train.py",
    "file_mounts": {"/data": "s3://bucket/data"},
    "secrets": ["HF_TOKEN"],
    "reason": "try",
}
#: What the service of 2dadd62a stored of this body, to know the call when it is sent again with its idempotency key.
REMEMBERED = "1299722499264ba496364d45c89be4ef04b91e13ea30fbdb110dd1f45f7e38bc"


def test_a_call_that_an_earlier_service_remembers_has_the_same_text() -> None:
    text = JobDocument.model_validate(BODY).model_dump_json()
    assert hashlib.sha256(text.encode()).hexdigest() == REMEMBERED


def test_words_and_keys_are_in_the_order_in_which_people_need_them() -> None:
    assert [word.key for word in WORDS][:4] == ["gpu", "count", "nodes", "hours"]
    assert [key.name for key in DOCUMENT_KEYS][:3] == ["resources", "nodes", "candidates"]
    assert NARROWING[:3] == ("memory", "total", "region")
    assert len({word.key for word in WORDS}) == len(WORDS)
