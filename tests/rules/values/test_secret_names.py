"""Names and values of secrets: what a variable can hold, and nothing that would change how a machine works."""

from __future__ import annotations

import pytest

from bot.rules.values import secret_names


@pytest.mark.parametrize("name", ["A", "HF_TOKEN", "WANDB_API_KEY", "K8S_2", "A" * 64, "PATHS", "MY_PATH", "USERS"])
def test_plain_names_are_taken(name: str) -> None:
    assert secret_names.name_problem(name) == ""


@pytest.mark.parametrize(
    "name", ["", "hf_token", "1A", "_A", "A-B", "A B", "A" * 65, "Ä", "A\n", "A=1", "$(id)", "A;id", "٣", "\x1b[2J"]
)
def test_other_names_are_refused_with_an_example(name: str) -> None:
    said = secret_names.name_problem(name)
    assert "HF_TOKEN" in said
    assert said == secret_names.name_problem("another wrong one")


@pytest.mark.parametrize(
    "name",
    ["PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "BASH_ENV", "ENV", "IFS", "HOME", "GPU_SHOPPER_CHECKIN_URL", "CRED_FILE",
     "PYTHONPATH", "DATA_DIR", "PROJECT_REPO_DIR", "CONTAINER_API_KEY", "RUNPOD_POD_ID", "SSH_AUTH_SOCK", "LC_ALL"],
)  # fmt: skip
def test_variables_of_the_machine_are_refused(name: str) -> None:
    assert secret_names.name_problem(name).startswith(f"{name} is a variable of the machine itself")


def test_a_job_names_each_secret_once_and_at_most_sixteen() -> None:
    assert secret_names.names_problem(()) == ""
    assert secret_names.names_problem([f"A{n}" for n in range(16)]) == ""
    assert secret_names.names_problem([f"A{n}" for n in range(17)]) == "17 secrets are above the limit of 16."
    assert secret_names.names_problem(["A", "B", "A"]) == "A is named twice. Keep one of the two."
    assert "A secret is named with" in secret_names.names_problem(["A", "a"])


def test_a_value_is_text_of_at_most_eight_kib_and_never_repeated() -> None:
    assert secret_names.value_problem("x") == ""
    assert secret_names.value_problem("two\nlines 'and' \"quotes\" $HOME `id` ä") == ""
    assert secret_names.value_problem("x" * 8192) == ""
    for value in ("", "x" * 8193, "ä" * 4097, "hidden\x00", "hidden\ud800"):
        said = secret_names.value_problem(value)
        assert said
        assert "hidden" not in said
