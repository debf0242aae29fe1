"""Which credentials a checkpoint location needs."""

from __future__ import annotations

import pytest

from bot.rules.checkpoints.stores import STORES, may_be_public, missing_variables, not_listed, not_public

EVERY = {name for store in STORES for name in store.variables}


@pytest.mark.parametrize("location", [None, "", "/workspace/ckpt", "hf", "s3", "gs://bucket/x", "hf://org/model"])
def test_nothing_is_missing(location: str | None) -> None:
    assert missing_variables(location, EVERY) is None


@pytest.mark.parametrize(
    ("location", "given", "says"),
    [
        ("S3://bucket/x", (), "https://console.aws.amazon.com/iam/home#/security_credentials"),
        ("gs://bucket/x", ("GS_ACCESS_KEY_ID",), "need GS_SECRET_ACCESS_KEY, which is not set where this service runs"),
        ("s3://bucket/x", (), "need AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, which are not set"),
        ("s3://bucket/x", ("AWS_ACCESS_KEY_ID",), "need AWS_SECRET_ACCESS_KEY, which is not set"),
    ],
)
def test_what_is_missing_is_named_with_its_place(location: str, given: tuple[str, ...], says: str) -> None:
    assert says in str(missing_variables(location, given))
    assert missing_variables("/on/the/machine", given) is None


@pytest.mark.parametrize(
    ("location", "given", "public"),
    [
        ("hf://org/model", (), True),
        ("HF://org/model", (), True),
        ("gs://bucket/x", (), True),
        ("hf://org/model", EVERY, False),
        ("gs://bucket/x", EVERY, False),
        ("s3://bucket/x", (), False),
        ("/on/the/machine", (), False),
        (None, (), False),
        ("hf", (), False),
    ],
)
def test_a_public_place_of_the_hub_or_of_google_needs_no_credentials(
    location: str | None, given: tuple[str, ...], *, public: bool
) -> None:
    assert may_be_public(location, given) == public
    if public:
        assert missing_variables(location, given) is None
        said = not_public(str(location), given, "it answered 403")
        assert said.startswith(
            f"Checkpoints at {location} are not public: it answered 403. To read them, this service needs "
        )
        assert "not set where this service runs" in said


@pytest.mark.parametrize(
    ("location", "places", "listed"),
    [
        ("s3://bucket/runs/7", ("s3://bucket/runs",), True),
        ("S3://bucket/runs/", ("hf://org", "s3://bucket/runs/"), True),
        ("hf://org/model", ("hf://org",), True),
        ("s3://bucket/runs2", ("s3://bucket/runs",), False),
        ("s3://bucket2/runs", ("s3://bucket",), False),
        ("s3://bucket/runs/../payroll", ("s3://bucket/runs",), False),
        ("hf://bucket/runs", ("s3://bucket/runs",), False),
        ("gs://bucket/runs", ("gs://bucket",), True),
        ("gs://bucket/runs", ("s3://bucket",), False),
        ("s3://bucket", ("s3://bucket/runs",), False),
        ("s3://bucket/runs", (), False),
        ("https://example.com/model.pt", (), True),
        ("/workspace/out", (), True),
        (None, (), True),
    ],
)
def test_a_place_is_listed_with_everything_below_it(
    location: str | None, places: tuple[str, ...], *, listed: bool
) -> None:
    assert (not_listed(location, places) is None) == listed
