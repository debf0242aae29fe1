"""The copy of files in front of the command of a cloud without an agent."""

from __future__ import annotations

from bot.rules.instances.file_mounts import before
from bot.rules.values.mounts import Mount, MountMode, run_without_agent


def copied(path: str, source: str) -> Mount:
    return Mount(MountMode.COPY, path, source)


def test_files_are_fetched_before_the_command() -> None:
    assert before((), "python a.py") == "python a.py"
    alone = before((copied("/data/a.tar", "https://example.com/a.tar?x='1'"),), "cat a")
    assert (
        " && mkdir -p /data && curl -fsSL --retry 3 -o /data/a.tar 'https://example.com/a.tar?x='\"'\"'1'\"'\"'' && "
        in alone
    )
    both = before((copied("/data", "s3://bucket/data"), copied("/w", "gs://bucket/w")), "python a.py; exit 3")
    assert both.startswith("{ command -v aws >/dev/null || { echo 'file_mounts: this image has no aws, which s3://")
    assert "mkdir -p /data && aws s3 cp" in both
    assert both.endswith("gs://bucket/w /w && { python a.py; exit 3\n}")
    at_the_top = before((copied("/a", "https://example.com/a"),), "x")
    assert " && mkdir -p / && curl -fsSL --retry 3 -o /a https://example.com/a && " in at_the_top


def test_a_program_copies_from_stores_whose_tools_an_image_may_have() -> None:
    assert run_without_agent(
        (copied("/a", "s3://bucket/a"), copied("/b", "gs://bucket/b"), copied("/c", "https://c/c"))
    )
    assert not run_without_agent((copied("/a", "hf://org/model"),))
    assert not run_without_agent((Mount(MountMode.MOUNT, "/a", "s3://bucket/a"),))
