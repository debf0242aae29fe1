"""The file of the models' profiles: the shipped example, edits of it, and what is wrong with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.settings.policy_file import PolicyFileError, read_policy_file
from bot.settings.policy_watch import PolicyWatch

SHIPPED = Path(__file__).parents[2] / "docs/instance_profiles.yaml"


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    file = tmp_path / "policy.yml"
    file.write_text("policy: {instance_profiles: models.yaml}")
    (tmp_path / "models.yaml").write_text(SHIPPED.read_text())
    return file


def test_the_shipped_profiles_have_three_models_and_moe_one_config(policy: Path) -> None:
    found = read_policy_file(policy)
    profiles = found.policy.instance_profiles
    assert list(profiles) == ["gpt2", "dense", "moe"]
    assert (profiles["moe"].configs, profiles["moe"].disk) == (("mosaic_small_resume.yaml",), "64GB")
    assert found.beside == (policy.parent / "models.yaml",)


def test_an_edit_of_the_profiles_is_noticed_as_one_of_the_policy_is(policy: Path) -> None:
    watch = PolicyWatch(policy)
    assert watch.edited() is None
    (policy.parent / "models.yaml").write_text("moe: {gpu: A100}")
    found = watch.edited()
    assert found is not None
    assert list(found.policy.instance_profiles) == ["moe"]
    assert watch.edited() is None
    policy.write_text("policy: {instance_profiles: others.yaml}")
    (policy.parent / "others.yaml").write_text("dense: {gpu: A100}")
    assert watch.edited() is not None
    (policy.parent / "others.yaml").write_text("dense: {gpu: H100, disk: 90GB}")
    found = watch.edited()
    assert found is not None
    assert found.policy.instance_profiles["dense"].disk == "90GB"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("moe: {gpu: A100, config: [a.yaml]}", "moe.config is no key of a profile; there are gpu, disk, configs"),
        ("moe: {disk: 64GB}", "moe.gpu: "),
        ("moe: {gpu: A100, disk: 64}", "moe.disk: "),
        ("moe: A100", "expected a name and its profile. Example: moe: {gpu: 8xRTX3090, disk: 64GB"),
        ("[moe]", "expected a name and its profile."),
        ("moe: {", "this is not YAML"),
        ("moe: {gpu: 8xRTX9999}", "instance_profiles.moe: “RTX9999” is not a GPU"),
        ("My Model: {gpu: A100}", "instance_profiles: `My Model` is not a name"),
    ],
)
def test_wrong_profiles_stop_the_policy_with_a_right_example(policy: Path, text: str, sentence: str) -> None:
    (policy.parent / "models.yaml").write_text(text)
    with pytest.raises(PolicyFileError) as refused:
        read_policy_file(policy)
    assert sentence in str(refused.value)


def test_a_missing_file_and_a_table_in_its_place_are_refused(policy: Path) -> None:
    (policy.parent / "models.yaml").unlink()
    with pytest.raises(PolicyFileError, match="the profiles cannot be read"):
        read_policy_file(policy)
    policy.write_text("policy: {instance_profiles: {moe: {gpu: A100}}}")
    with pytest.raises(PolicyFileError, match=r"instance_profiles names a file\. Example: .*instance_profiles\.yaml"):
        read_policy_file(policy)
