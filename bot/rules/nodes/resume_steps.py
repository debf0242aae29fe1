"""Write the steps of a start-up that fetch a save and wait until the command may start."""

from __future__ import annotations

from typing import Final

#: The save is fetched in the first step, and the second one waits until the command may start.
CHECKPOINT_STEP: Final = "checkpoint"
START_STEP: Final = "start"
#: The most seconds of both steps; a migration gives up sooner.
WAIT_LIMIT_S: Final = 24 * 3600

#: ASKS is set in tests. The place comes from a store's own names, so it is only ever used as data.
_FETCH: Final = """\
{reads}asks=${{ASKS:-$STARTUP_FOLDER/asks}}
while :; do
  from=$(sed -n 's/^resume=//p' "$asks" 2>/dev/null | head -n 1)
  [ -z "$from" ] || break
  sleep 2
done
echo "The save came: $(date -u)"
printf '%s' "$from" >"$STARTUP_FOLDER/resume_from"
sed -n 's/^resume_step=//p' "$asks" 2>/dev/null | head -n 1 >"$STARTUP_FOLDER/resume_step"
mkdir -p "$STARTUP_FOLDER/resume"
command -v python3 >/dev/null 2>&1 || {{ echo "There is no python3, so the job fetches the save."; exit {left_out}; }}
RESUME_FROM=$from python3 - <<'PROGRAM' || exit
import os, sys, urllib.request
place, folder = os.environ["RESUME_FROM"], os.path.join(os.environ["STARTUP_FOLDER"], "resume")
scheme, _, rest = place.partition("://")
root, _, path = rest.partition("/")
try:
    if scheme == "hf":
        import huggingface_hub
        name, _, path = path.partition("/")
        only = [path, path + "/*"] if path else None
        huggingface_hub.snapshot_download(root + "/" + name, allow_patterns=only, local_dir=folder)
        hidden = os.path.join(folder, ".cache")
        fetched = sum(len(files) for at, _, files in os.walk(folder) if not at.startswith(hidden))
    elif scheme in ("s3", "gs"):
        import boto3, botocore, botocore.config, hashlib
        options, key = {{}}, os.environ.get("GS_ACCESS_KEY_ID")
        if scheme == "gs":
            at = os.environ.get("GS_ENDPOINT_URL", "https://storage.googleapis.com")
            options = {{"endpoint_url": at, "region_name": "auto", "aws_access_key_id": key}}
            options["aws_secret_access_key"] = os.environ.get("GS_SECRET_ACCESS_KEY")
            style = {{}} if key else {{"signature_version": botocore.UNSIGNED}}
            options["config"] = botocore.config.Config(s3={{"addressing_style": "path"}}, **style)
        bucket, fetched = boto3.resource("s3", **options).Bucket(root), 0
        for one in bucket.objects.filter(Prefix=path):
            if one.key == path or one.key.startswith(path.rstrip("/") + "/"):
                to = os.path.join(folder, one.key)
                if os.path.commonpath([folder, os.path.realpath(to)]) != os.path.realpath(folder):
                    continue
                os.makedirs(os.path.dirname(to), exist_ok=True)
                bucket.download_file(one.key, to)
                # S3's client compares a hash itself. Google's ETag is the MD5, except of a composed object.
                said, own = one.e_tag.strip('"'), hashlib.md5()
                if scheme == "gs" and len(said) == 32:
                    with open(to, "rb") as file:
                        for part in iter(lambda: file.read(1 << 20), b""):
                            own.update(part)
                    said = said == own.hexdigest()
                if os.path.getsize(to) != one.size or not said:
                    sys.exit(one.key + " differs from its store in size or hash.")
                fetched += 1
    else:
        to = os.path.join(folder, path.partition("?")[0].rpartition("/")[2] or "save")
        _, said = urllib.request.urlretrieve(place, to)  # It compares the size, where the server says one.
        if said.get("Content-Length") is None:
            print("The server doesn't say how large the save is, so the job fetches it.")
            sys.exit({left_out})
        fetched = 1
    if not fetched:
        sys.exit("There is no file at " + root + "/" + path + ".")
except Exception as error:
    if isinstance(error, ImportError):
        print("This machine has no client for the store (" + str(error) + "), so the job fetches the save.")
    elif type(error).__name__ == "NoCredentialsError":
        print("This machine has no credentials for the store, so the job fetches the save.")
    else:
        raise
    sys.exit({left_out})
PROGRAM
touch "$STARTUP_FOLDER/resume/.complete"
"""
START_SCRIPT: Final = """\
asks=${ASKS:-$STARTUP_FOLDER/asks}
until grep -qx start "$asks" 2>/dev/null; do sleep 2; done
echo "It may start."
"""
#: What stands before the command: from where it continues, and where its files are if they were fetched.
READS_RESUME: Final = """\
RESUME_FROM=$(cat "$STARTUP_FOLDER/resume_from") || exit
export RESUME_FROM
RESUME_STEP=$(cat "$STARTUP_FOLDER/resume_step" 2>/dev/null)
[ -z "$RESUME_STEP" ] || export RESUME_STEP
[ ! -e "$STARTUP_FOLDER/resume/.complete" ] || export RESUME_DIR="$STARTUP_FOLDER/resume"
"""


def fetch_script(*, reads_secrets: str, left_out: int) -> str:
    """Return the script that waits for the place of the save and fetches it, where a client of its store is there."""
    return _FETCH.format(reads=reads_secrets, left_out=left_out)
