"""Recognize secrets by their shape, and mask them: keys of services, and the signatures and passwords of addresses.

A presigned URL is a way to name a place, so its signature is masked where people read it. A key of a service names
nothing, so jobs that contain one are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

REDACTED: Final = "[redacted]"


@dataclass(frozen=True, slots=True)
class SecretShape:
    """The shape of one kind of secret: what people call it, and its pattern."""

    name: str
    pattern: re.Pattern[str]


def _shape(name: str, pattern: str, flags: int = 0) -> SecretShape:
    return SecretShape(name, re.compile(pattern, flags | re.ASCII))


#: Nothing that may belong to a longer word stands before a key: `task-…` is no `sk-…`, and `--hf_transfer` no `hf_…`.
_BEFORE: Final = r"(?<![A-Za-z0-9_-])"
#: Names of variables whose value is a secret.
_VARIABLE: Final = (
    "(?:[A-Z0-9]+_)*(?:TOKEN|SECRET|PASSWORD|PASSWD|PGPASSWORD|API_?KEY|ACCESS_KEY(?:_ID)?|SECRET_KEY|PRIVATE_KEY)"
)
#: Marks of a model's vocabulary, and numbers of them: `PAD_TOKEN=<pad>`, `MAX_TOKEN=512`.
_MARK: Final = (
    "(?:[A-Z0-9]+_)*(?:"
    + "|".join(
        (
            *("PAD", "EOS", "BOS", "UNK", "SEP", "CLS", "MASK", "MAX", "MIN", "NUM", "STOP", "START", "END", "IMAGE"),
            *("SPECIAL", "EXTRA", "PER", "NEXT", "FIRST", "LAST"),
        )
    )
    + ")_TOKEN"
)
#: Options of a program whose value is a secret.
_OPTION: Final = (
    "--(?:[a-z0-9]+[-_])*(?:api[-_]?key|password|passwd|secret|(?:hf|hub|auth|access|api|wandb|github)[-_]token)"
)
#: A value that is read elsewhere, or that says yes, no or a number; and the path of a file.
_NO_LITERAL: Final = (
    r"(?![\"']?(?:[$`<{]|(?:true|false|yes|no|on|off|none|null|\d{1,6})(?![^\s\"';&|]))|[\"']?[~.]{0,2}/[\w.-]+(?:/[\w.-]+)*"
    r"(?:[\s\"';&|]|$))"
)
_LITERAL: Final = r"(?:[\"'][^\"'\s]{3,}|[^\s\"';&|]{4,})"

#: Shapes of keys that are secrets wherever they stand.
KEYS: Final = (
    _shape("an AWS access key", _BEFORE + r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _shape("a Hugging Face token", _BEFORE + r"(?:hf|api_org)_[A-Za-z0-9]{30,}(?![A-Za-z0-9_])"),
    _shape("a GitHub token", _BEFORE + r"(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,})"),
    _shape("a GitLab token", _BEFORE + r"glpat-[A-Za-z0-9_-]{20,}"),
    _shape("a Slack token", r"xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{6,}|xapp-[A-Za-z0-9-]{6,}"),
    _shape(
        "an API key of a model's host",
        _BEFORE
        + r"sk-(?:(?:ant|proj|svcacct|admin|or-v1)-[A-Za-z0-9_-]{20,}"
        + r"|(?=[A-Za-z]*[0-9])[A-Za-z0-9]{20,}(?![A-Za-z0-9_-]))",
    ),
    _shape("a Google API key", _BEFORE + r"AIza[0-9A-Za-z_-]{35}"),
    _shape("a RunPod key", _BEFORE + r"rpa_[A-Za-z0-9]{6,}"),
    _shape("a Lambda key", _BEFORE + r"secret_[A-Za-z0-9-]{1,64}_[0-9a-f]{32}(?:\.[A-Za-z0-9]{16,64})?(?![A-Za-z0-9])"),
    _shape("a webhook secret", _BEFORE + r"whsec_[A-Za-z0-9+/=_-]{6,}"),
    _shape("a GPU Shopper key", _BEFORE + r"gpu[ackn]_[A-Za-z0-9_-]{6,}"),
    _shape("a signed token (JWT)", _BEFORE + r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
)
#: Secrets by what stands before them.
ASSIGNED: Final = (
    _shape("a user name and password", r"(?<=://)(?![^\s/@]*:(?:\$|%24))([^\s/:@\"'$]+:[^\s/@\"']+)(?=@)"),
    _shape(
        "an authorization header",
        r"(?i:\bbearer |\bauthorization:\s*basic )(?=[A-Za-z._~+/=-]*[0-9])[A-Za-z0-9._~+/=-]{16,}",
    ),
    _shape("a secret", rf"(?<![A-Za-z0-9_-])(?!{_MARK}=){_VARIABLE}=" + _NO_LITERAL + _LITERAL),
    _shape("a secret", _BEFORE + _OPTION + r"(?:=|\s+(?!-))" + _NO_LITERAL + _LITERAL),
)

#: Parameters of a URL that let anybody who reads them use it: of S3, Azure, Google Cloud, CloudFront, OSS and others.
_SIGNED: Final = (
    r"x-amz-signature|x-amz-credential|x-amz-security-token|awsaccesskeyid|signature|sig|x-goog-signature|x-goog-credential|"
    r"googleaccessid|x-oss-signature|x-oss-credential|x-oss-security-token|ossaccesskeyid|security-token|key-pair-id|policy|"
    r"hdnts|hdnea|__token__|[a-z0-9]*[-_]?token|api[-_]?key|apikey|password|passwd|secret|client[-_]secret|code|auth|authorization"
)
_PARAMETER: Final = re.compile(
    rf"((?:[?&]|%26|\\u0026)(?:amp;)?(?:{_SIGNED})(?:=|%3D))(?!\[redacted\])[^&\s\"'<>\\|;#)\]}}`]+",
    re.IGNORECASE | re.ASCII,
)
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^\s\"'<>;|]+", re.IGNORECASE | re.ASCII)
_USER: Final = re.compile(r"(?<=://)[^\s/:@\"'<>]*:[^\s/@\"'<>]+(?=@)")


def without_signatures(text: str) -> str:
    """Mask what makes an address in `text` usable: its signature, and its user name and password."""
    if "=" in text:
        text = _PARAMETER.sub(lambda match: f"{match[1]}{REDACTED}", text)
    return _USER.sub(REDACTED, text) if "@" in text else text


def without_signatures_in(value: Any) -> Any:
    """Mask the same in every text of a JSON value."""
    if isinstance(value, str):
        return without_signatures(value)
    if isinstance(value, dict):
        return {key: without_signatures_in(item) for key, item in value.items()}
    return [without_signatures_in(item) for item in value] if isinstance(value, list | tuple) else value


def without_keys(text: str, mark: str = REDACTED) -> str:
    """Mask every key of a service in `text`."""
    for shape in KEYS:
        text = shape.pattern.sub(mark, text)
    return text


def secret_in(text: str) -> str:
    """Name the first secret in `text` by its kind; "" where there is none. The signature of a URL is none."""
    unsigned = _URL.sub(lambda url: _PARAMETER.sub(lambda match: match[1], url[0]), text)
    return next((shape.name for shape in (*KEYS, *ASSIGNED) if shape.pattern.search(unsigned)), "")
