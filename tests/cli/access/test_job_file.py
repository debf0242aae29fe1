"""The queue of a job file: a list, a template, or a file of commands beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from bot.cli.access.job_file import job_in


def job(folder: Path, queue: str) -> str:
    (folder / "job.yaml").write_text(f"resources: {{gpu: 4090}}\nhours: 2h\nqueue: {queue}\n")
    return str(folder / "job.yaml")


def test_a_file_of_commands_lies_beside_the_job_file(tmp_path: Path) -> None:
    (tmp_path / "commands.txt").write_text("# seeds\npython t.py --seed 1\n\npython t.py --seed 2\n")
    found = job_in(job(tmp_path, "commands.txt"))
    assert found["queue"] == ["python t.py --seed 1", "python t.py --seed 2"]


def test_lists_and_templates_are_passed_on(tmp_path: Path) -> None:
    assert job_in(job(tmp_path, "[a, b]"))["queue"] == ["a", "b"]
    assert job_in(job(tmp_path, "{run: 'a {x}', values: {x: [1]}}"))["queue"] == {"run": "a {x}", "values": {"x": [1]}}


@pytest.mark.parametrize(
    ("queue", "text", "said"),
    [
        ("missing.txt", None, "There is no file"),
        ("empty.txt", "# nothing\n", "has no commands. Write one a line."),
        ("{run: 'a {x}', valus: {x: [1]}}", None, "queue.valus is no key of a job. Did you mean queue.values?"),
    ],
)
def test_a_wrong_queue_says_what_is_right(
    tmp_path: Path, queue: str, text: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / queue).write_text(text)
    with pytest.raises(typer.Exit):
        job_in(job(tmp_path, queue))
    assert said in capsys.readouterr().err
