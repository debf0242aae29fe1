"""Labels survive any human part, cannot be forged, and never mix up two deployments."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rules.values.labels import (
    LABEL_LENGTH,
    MAX_COUNTER,
    LabelKey,
    LabelKind,
    LabelReading,
    human_part,
    instance_name,
)
from ledger.kernel.ids import BASE32

KEY = LabelKey("prd1", b"0123456789abcdef")
REQUEST = "req_01hzy3k9qxvbm7wt"
LABEL = KEY.mint(REQUEST, 3)

REQUEST_IDS = st.text(BASE32, min_size=16, max_size=16)
NUMBERS = st.integers(0, MAX_COUNTER)
HUMANS = st.text(max_size=80)


def test_a_label_has_fixed_parts() -> None:
    assert re.fullmatch(rf"prd1-01hzy3k9qxvbm7wt-03-[{BASE32}]{{10}}", LABEL)
    assert len(LABEL) == LABEL_LENGTH == 35


def test_the_same_instance_always_has_the_same_label() -> None:
    assert KEY.mint("01hzy3k9qxvbm7wt", 3) == LABEL


@given(request_id=REQUEST_IDS, n=NUMBERS, human=HUMANS)
def test_what_is_minted_is_read_back_from_any_name(request_id: str, n: int, human: str) -> None:
    label = KEY.mint(request_id, n)
    name = instance_name(human, label, 64, "-_")
    assert KEY.read(name) == LabelReading(LabelKind.OURS, label, "prd1", request_id, n)
    assert KEY.read(name.upper()).kind is LabelKind.OURS


@given(place=st.integers(5, LABEL_LENGTH - 1), char=st.sampled_from(BASE32))
def test_a_changed_label_is_a_forgery(place: int, char: str) -> None:
    changed = LABEL[:place] + char + LABEL[place + 1 :]
    if changed == LABEL:
        return
    expected = LabelKind.NONE if LABEL[place] == "-" else LabelKind.FORGED
    assert KEY.read(changed).kind is expected


@given(request_id=REQUEST_IDS, n=NUMBERS, mac=st.text(BASE32, min_size=10, max_size=10))
def test_a_guessed_mac_is_a_forgery(request_id: str, n: int, mac: str) -> None:
    made = KEY.mint(request_id, n)
    if mac != made[-10:]:
        assert KEY.read(made[:-10] + mac).kind is LabelKind.FORGED


def test_another_key_forges_and_another_deployment_is_foreign() -> None:
    assert LabelKey("prd1", b"another key here").read(LABEL).kind is LabelKind.FORGED
    foreign = LabelKey("dev1", KEY.key).read(LABEL)
    assert (foreign.kind, foreign.deployment) == (LabelKind.FOREIGN_DEPLOYMENT, "prd1")


@pytest.mark.parametrize(
    "name",
    [None, "", "my-machine", LABEL[1:], LABEL + "x", LABEL + "-", "x" + LABEL, LABEL + "\n", LABEL + " ", "a-b-c"],
)
def test_a_name_without_a_label_has_none(name: str | None) -> None:
    assert KEY.read(name) == LabelReading(LabelKind.NONE)


def test_only_the_right_end_counts() -> None:
    other = KEY.mint("0000000000000000", 0)
    assert KEY.read(f"{other}-{LABEL}").label == LABEL


def test_the_key_is_not_shown() -> None:
    assert "abcdef" not in repr(KEY)


@pytest.mark.parametrize("deployment", ["prd", "prod1", "PRD1", "prdl", "pr-1", ""])
def test_a_deployment_name_is_four_characters(deployment: str) -> None:
    with pytest.raises(ValueError, match="deployment name must be 4 characters"):
        LabelKey(deployment, KEY.key)


def test_a_short_key_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 16 bytes"):
        LabelKey("prd1", b"short")


@pytest.mark.parametrize(("request_id", "n"), [("req_short", 0), (REQUEST, -1), (REQUEST, MAX_COUNTER + 1)])
def test_what_fits_no_label_is_refused(request_id: str, n: int) -> None:
    with pytest.raises(ValueError, match=r"request id ends|between 0 and 1023"):
        KEY.mint(request_id, n)


# ── names ────────────────────────────────────────────────────────────────────────────────────────

TEMPLATE = "{project}-{model}-{count}x{gpu}"


@pytest.mark.parametrize(
    ("model", "count", "gpu", "made"),
    [
        ("moe", 8, "RTX3090", "mosaic-moe-8x3090"),
        (None, 4, "A100-SXM-80GB", "mosaic-4xa100-sxm-80gb"),
        ("", 1, "RTXPRO6000-S", "mosaic-1xrtxpro6000-s"),
    ],
)
def test_the_human_part(model: str | None, count: int, gpu: str, made: str) -> None:
    assert human_part(TEMPLATE, "mosaic", model, count, gpu) == made


def test_a_model_with_braces_is_not_read_as_a_template() -> None:
    assert human_part(TEMPLATE, "p", "{gpu}", 1, "T4") == "p-{gpu}-1xt4"


def test_an_unknown_placeholder_names_those_that_exist() -> None:
    with pytest.raises(ValueError, match=r"\{user\}; it knows \{project\}, \{model\}, \{count\}, \{gpu\}"):
        human_part("{user}-{gpu}", "p", None, 1, "T4")


@pytest.mark.parametrize(
    ("human", "most", "extra", "kept"),
    [
        ("mosaic-moe-8x3090", 191, "-_", "mosaic-moe-8x3090-"),
        ("a_b.c d", 191, "-_", "a_b-c-d-"),
        ("a_b.c d", 191, "-", "a-b-c-d-"),
        ("abcdef", LABEL_LENGTH + 4, "-", "abc-"),
        ("ab-def", LABEL_LENGTH + 4, "-", "ab-"),
        ("abcdef", LABEL_LENGTH + 1, "-", ""),
        ("abcdef", LABEL_LENGTH, "-", ""),
        ("---", 191, "-", ""),
        ("é", 191, "-", ""),
        ("a]b^c", 191, "-]^", "a]b^c-"),
    ],
)
def test_the_human_part_is_cut_and_the_label_never(human: str, most: int, extra: str, kept: str) -> None:
    assert instance_name(human, LABEL, most, extra) == kept + LABEL


@given(human=HUMANS, most=st.integers(LABEL_LENGTH, 200), extra=st.sampled_from(["-", "-_", "-_.", "-]^\\"]))
def test_every_name_fits_its_cloud(human: str, most: int, extra: str) -> None:
    name = instance_name(human, LABEL, most, extra)
    assert len(name) <= most
    assert name.endswith(LABEL)
    assert set(name) <= set(string.ascii_letters + string.digits + extra)
    assert name[0].isalnum()


@pytest.mark.parametrize(("most", "extra"), [(LABEL_LENGTH - 1, "-"), (191, "_")])
def test_a_cloud_that_cannot_carry_a_label_is_refused(most: int, extra: str) -> None:
    with pytest.raises(ValueError, match="carries no label"):
        instance_name("a", LABEL, most, extra)
