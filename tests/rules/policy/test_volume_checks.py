"""What may be asked of a network volume: its name, size, place and time."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rules.jobs import consumer_limits, network_volume
from bot.rules.jobs.consumer_limits import NotAllowed
from bot.rules.jobs.job import JobRequest
from bot.rules.policy import volume_checks
from bot.rules.policy.consumers import ConsumerPolicy
from bot.rules.values.reply_code import ReplyCode
from ledger.kernel.volume_name import volume_of
from providers.capabilities import Capabilities
from providers.gpus.constraint import GpuConstraint

PLAIN = Capabilities(stop=True, spot=False, labels=True, balance=True, charges=True, logs=False)
ABLE = {
    "runpod": PLAIN,
    "vast": PLAIN,
    "runpod-volumes": Capabilities(
        stop=False, spot=False, labels=True, balance=False, charges=True, logs=False, volume_gb=(10, 4096)
    ),
    "lambda-volumes": Capabilities(
        stop=False, spot=False, labels=True, balance=False, charges=False, logs=False, volume_gb=(1, 8192)
    ),
}


def job(
    name: str = "data", size: int = 200, hours: str = "48", clouds: tuple[str, ...] = ("runpod-volumes",)
) -> JobRequest:
    return network_volume.volume_job(name, size, Decimal(hours), clouds)


def test_a_job_for_a_volume_says_so_and_a_job_for_a_machine_does_not() -> None:
    assert job("Data").makes_volume == "data"
    assert volume_of("volume:data") == "data"
    assert volume_of("RTX4090") == ""
    for gpu in (GpuConstraint(), GpuConstraint(("RTX4090",)), GpuConstraint(("volume:a", "volume:b"))):
        assert JobRequest(gpu, Decimal(1)).makes_volume == ""
    assert JobRequest.from_json(job().to_json()) == job()


def test_what_is_right_passes_and_so_does_what_is_no_volume() -> None:
    assert network_volume.check_volume_job(job(), ABLE) is None
    assert network_volume.check_volume_job(job(size=5, clouds=("runpod-volumes", "lambda-volumes")), ABLE) is None
    assert network_volume.check_volume_job(JobRequest(GpuConstraint(), Decimal(2)), ABLE) is None


@pytest.mark.parametrize(
    ("asked", "code", "said"),
    [
        (job("d"), ReplyCode.BAD_VOLUME, "2 to 24 lowercase letters"),
        (job(size=9), ReplyCode.BAD_VOLUME, "10 to 4,096 GB"),
        (job(size=4097), ReplyCode.BAD_VOLUME, "not 4,097"),
        (job(hours="0.5"), ReplyCode.TOO_LONG, "1 hour to 365 days"),
        (job(hours="8761"), ReplyCode.TOO_LONG, "1 hour to 365 days"),
        (job(clouds=("vast-volumes",)), ReplyCode.NO_VOLUMES, "vast has no network volumes. These have them: runpod"),
        (job(clouds=("vast",)), ReplyCode.NO_VOLUMES, "vast has no network volumes"),
        (job(clouds=("tensordock",)), ReplyCode.NO_VOLUMES, "tensordock: not set up here. Choose from runpod, lambda."),
        (job(clouds=()), ReplyCode.NO_VOLUMES, "This deployment has no network volumes"),
    ],
)
def test_each_mistake_has_its_sentence(asked: JobRequest, code: ReplyCode, said: str) -> None:
    wrong = network_volume.check_volume_job(asked, ABLE)
    assert wrong is not None
    assert (wrong.code, said in wrong.sentence) == (code, True), wrong


def test_where_no_cloud_has_any_it_says_so() -> None:
    wrong = network_volume.check_volume_job(job(), {"vast": PLAIN})
    assert wrong is not None
    assert wrong.sentence == "runpod has no network volumes. No cloud that is set up here has them."


@given(st.from_regex(r"[a-z][a-z0-9-]{0,22}[a-z0-9]", fullmatch=True))
def test_every_name_of_the_form_is_taken(name: str) -> None:
    assert volume_checks.bad_name(name) is None
    assert network_volume.volume_job(name, 10).makes_volume == name


@given(st.text(max_size=30))
def test_a_name_that_is_taken_fits_a_path_and_a_label(name: str) -> None:
    if volume_checks.bad_name(name) is None:
        assert len(name) <= 24
        assert name.isascii()
        assert name == name.lower()
        assert "/" not in name


@given(st.decimals(allow_nan=True, allow_infinity=True))
def test_a_time_is_inside_a_year_or_refused(hours: Decimal) -> None:
    allowed = hours.is_finite() and 1 <= hours <= 8760
    assert (volume_checks.bad_time(hours) is None) is allowed


def test_a_program_rents_volumes_at_its_own_clouds_only() -> None:
    limits = ConsumerPolicy(clouds=("runpod",), gpus=("RTX4090",), max_hours=Decimal(4))
    assert consumer_limits.narrowed(job(), limits, "atlas") == job()
    with pytest.raises(NotAllowed):
        consumer_limits.narrowed(job(clouds=("lambda-volumes",)), limits, "atlas")
