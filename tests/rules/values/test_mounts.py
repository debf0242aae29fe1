"""Which files a job may have at which paths, and how it keeps them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rules.values.mounts import BadMount, Mount, MountMode, mounts_of, read_mounts

COPY = MountMode.COPY


def read(path: str, source: str = "s3://bucket/data", mode: MountMode | None = COPY) -> Mount:
    (found,) = read_mounts({path: (source, mode)})
    return found


@pytest.mark.parametrize(
    ("path", "source", "mode"),
    [
        ("/data", "s3://bucket/data", COPY),
        ("/data", "s3://bucket", MountMode.MOUNT),
        ("/mnt/in", "gs://my-bucket.x/a b".replace(" ", "_"), MountMode.MOUNT_CACHED),
        ("/root/models", "hf://org/model", COPY),
        ("/root/models", "hf://datasets/org/name/part/a.parquet", COPY),
        ("/workspace/a.tar", "https://example.com/a.tar?sig=1", COPY),
        ("/variants", "s3://bucket/x", COPY),
    ],
)
def test_a_right_one_is_kept_as_one_line(path: str, source: str, mode: MountMode) -> None:
    found = read(path, source, mode)
    assert found == Mount(mode, path, source)
    assert mounts_of((found.line,)) == (found,)
    assert found.needs_fuse == (mode is not COPY)
    assert found.scheme == source.partition("://")[0]
    assert "sig" not in found.shown


def test_people_read_what_comes_from_where() -> None:
    assert read("/data/").shown == "/data from s3://bucket/data"
    assert read("/data", mode=MountMode.MOUNT).shown == "/data from s3://bucket/data (MOUNT)"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("data", "'data' is not a path on the machine"),
        ("", "is not a path"),
        ("/a/../b", "is not a path"),
        ("/a/./b", "is not a path"),
        ("//a", "is not a path"),
        ("/a b", "is not a path"),
        ("/a;rm -rf", "is not a path"),
        ("/", "/ is reserved for the system"),
        ("/etc", "/etc is reserved"),
        ("/etc/", "/etc is reserved"),
        ("/usr/local/share/x", "is reserved for the system. Choose a folder such as /data"),
        ("/root", "/root is reserved"),
        ("/opt/gpu-shopper", "is reserved"),
        ("/opt/gpu-shopper/data", "is reserved"),
        ("/proc/1", "is reserved"),
        ("/srv", "is reserved"),
    ],
)
def test_a_wrong_path_is_refused(path: str, said: str) -> None:
    with pytest.raises(BadMount, match=said):
        read(path)


@pytest.mark.parametrize(
    ("source", "mode", "said"),
    [
        ("ftp://host/d", COPY, "is not a source; write it like s3://bucket/data"),
        ("http://example.com/a", COPY, "is not a source"),
        ("file:///etc/passwd", COPY, "is not a source"),
        ("/etc", COPY, "is not a source"),
        ("https://exa mple.com/", COPY, "is not a source"),
        ("https://ada:hunter2@example.com/a.tar", COPY, "has a user name or password in its address"),
        ("s3://bucket/../other", COPY, "is not a source"),
        ("s3://Bucket/x", COPY, "names no bucket"),
        ("gs://-/x", COPY, "names no bucket"),
        ("hf://org", COPY, "names no repository"),
        ("s3://bucket/d", None, "needs a mode; write mode: COPY"),
        (
            "hf://org/model",
            MountMode.MOUNT,
            "hf:// can't be mounted; only s3:// and gs:// can. For /data, write mode: COPY",
        ),
        ("https://example.com/a", MountMode.MOUNT_CACHED, "https:// can't be mounted"),
    ],
)
def test_a_wrong_source_or_mode_is_refused(source: str, mode: MountMode | None, said: str) -> None:
    with pytest.raises(BadMount, match=said):
        read("/data", source, mode)


@pytest.mark.parametrize("other", ["/data", "/data/more", "/data/"])
def test_overlapping_ones_are_refused(other: str) -> None:
    both = {"/data/x/..": ("s3://b1/d", COPY)} if other == "/data/x/.." else {}
    with pytest.raises(BadMount, match="overlap"):
        read_mounts({"/data/more/deep": ("s3://bucket/a", COPY), other: ("s3://bucket/b", COPY), **both})
    assert len(read_mounts({"/data": ("s3://bucket/a", COPY), "/data2": ("s3://bucket/b", COPY)})) == 2


@given(st.text(max_size=40), st.text(max_size=60), st.sampled_from([*MountMode, None]))
def test_whatever_is_written_is_read_or_refused(path: str, source: str, mode: MountMode | None) -> None:
    try:
        found = read(path, source, mode)
    except BadMount:
        return
    assert Mount.read(found.line) == found
