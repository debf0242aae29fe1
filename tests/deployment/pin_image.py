"""Write the digest of the base image into the Dockerfile: `make pin-image`. Where no registry answers, change nothing.

The digest is that of the image for every processor (its index), so the pinned image builds wherever the tag did. It is
computed from what the registry sends, because a header can say anything.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

ROOT: Final = Path(__file__).resolve().parents[2]
HUB: Final = "https://registry-1.docker.io"
TIMEOUT_S: Final = 20
MOST_BYTES: Final = 4 * 1024 * 1024
#: An image for several processors, as OCI and as Docker name it.
INDEXES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_BASE: Final = re.compile(r"^(ARG PYTHON=)([a-z0-9./_-]+):([\w.-]{1,128})(@sha256:[0-9a-f]{64})?$", re.MULTILINE)
_PARAMETER: Final = re.compile(r'(realm|service|scope)="([^"]*)"')


class NoDigest(Exception):
    """No digest can be had; the message is a sentence."""


def pinned(dockerfile: str, registry: str) -> str:
    """Return the text of a Dockerfile with the digest of its base image. Raises `NoDigest`."""
    base = _BASE.search(dockerfile)
    if base is None:
        raise NoDigest("The Dockerfile names its base image in no line ARG PYTHON=name:tag.")
    digest = _digest(registry, base[2], base[3])
    return f"{dockerfile[: base.start()]}{base[1]}{base[2]}:{base[3]}@{digest}{dockerfile[base.end() :]}"


def _digest(registry: str, name: str, tag: str) -> str:
    """Return the digest of an image's index, as the registry has it now."""
    path = name if "/" in name else f"library/{name}"
    url = f"{registry}/v2/{path}/manifests/{tag}"
    try:
        try:
            kind, said, body = _get(url, Accept=", ".join(INDEXES))
        except HTTPError as error:
            if error.code != 401:
                raise
            token = _token(registry, error.headers.get("WWW-Authenticate", ""))
            kind, said, body = _get(url, Accept=", ".join(INDEXES), Authorization=f"Bearer {token}")
    except (OSError, ValueError) as error:  # Every failure of urllib is an OSError; a JSON that is none, a ValueError.
        raise NoDigest(
            f"No registry answered: {urlsplit(registry).netloc} ({getattr(error, 'reason', error)})."
        ) from error
    if kind not in INDEXES:
        raise NoDigest(f"The registry has no index of {name}:{tag} for several processors, so it can't be pinned.")
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    if said not in ("", digest):
        raise NoDigest(f"The registry says that {name}:{tag} is {said}, and sends {digest}.")
    return digest


def _token(registry: str, challenge: str) -> str:
    """Fetch the token for anonymous reading that a registry asks for."""
    words = dict(_PARAMETER.findall(challenge))
    realm = words.pop("realm", "")
    if urlsplit(realm).scheme not in ("https", urlsplit(registry).scheme):
        raise ValueError("it asks for a token from no address that can be trusted")
    found: Any = json.loads(_get(f"{realm}?{urlencode(words)}")[2])
    token = found.get("token") or found.get("access_token") if isinstance(found, dict) else None
    if token and isinstance(token, str):
        return token
    raise ValueError("it gave no token")


def _get(url: str, **headers: str) -> tuple[str, str, bytes]:
    """Return the kind of an answer, the digest that it names ("" for none), and its body."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError("its address is not one of the web")
    with urlopen(Request(url, headers=headers), timeout=TIMEOUT_S) as answer:  # noqa: S310 # The scheme is checked above.
        body: bytes = answer.read(MOST_BYTES + 1)
        if len(body) > MOST_BYTES:
            raise ValueError("its answer is too long")
        kind = answer.headers.get_content_type()
        return kind, answer.headers.get("Docker-Content-Digest", ""), body


def main(words: Sequence[str]) -> int:
    """Pin the image, or say why it is not pinned: then the exit code is 1, and the file is as before."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, default=ROOT / "Dockerfile")
    parser.add_argument("--registry", default=HUB)
    given = parser.parse_args(words)
    before = given.file.read_text(encoding="utf-8")
    try:
        after = pinned(before, given.registry)
    except NoDigest as error:
        print(f"{error} {given.file.name} is unchanged.", file=sys.stderr)
        return 1
    base = _BASE.search(after)
    if after == before:
        print(f"{given.file.name} names the newest digest already.")
        return 0
    given.file.write_text(after, encoding="utf-8")
    print(f"{given.file.name} now builds on {base[0].removeprefix(base[1]) if base else ''}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
