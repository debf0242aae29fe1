"""Recognize secrets by their shape, and mask them: keys of services, and the signatures and passwords of addresses.

A presigned URL is a way to name a place, so its signature is masked where people read it. A key of a service names
nothing, so jobs that contain one are refused.

Texts of any length are searched while others wait, so each pattern takes a time that grows as the text does: what
begins it can't begin again inside it, and a repetition has a bound unless it is the last of its pattern.
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


def _shape(name: str, pattern: str) -> SecretShape:
    return SecretShape(name, re.compile(pattern, re.ASCII))


def _any_of(words: str) -> str:
    return f"(?:{words})"


#: Nothing that may belong to a longer word stands before a key: `task-…` is no `sk-…`, and `--hf_transfer` no `hf_…`.
_BEFORE: Final = r"(?<![A-Za-z0-9_-])"
#: A digit is among the next characters: `rpa_finetune` and `xoxo-training` have none.
_DIGIT: Final = r"(?=[A-Za-z_-]{0,60}[0-9])"
#: Nothing that makes it the name of a file follows.
_NO_FILE: Final = r"(?![A-Za-z0-9_-]|\.[a-z])"

#: Shapes of keys that are secrets wherever they stand.
KEYS: Final = (
    _shape("an AWS access key", _BEFORE + r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _shape("a Hugging Face token", _BEFORE + r"(?:hf|api_org)_[A-Za-z0-9]{30,200}(?![A-Za-z0-9_])"),
    _shape("a GitHub token", _BEFORE + r"(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,})"),
    _shape("a GitLab token", _BEFORE + r"glpat-[A-Za-z0-9_-]{20,}"),
    _shape("a Slack token", r"(?:xox[a-eprs](?:\.xox[a-z])?|xapp)-" + _DIGIT + r"[A-Za-z0-9-]{10,}"),
    _shape(
        "an API key of a model's host",
        _BEFORE
        + r"(?:sk-(?:(?:ant|proj|svcacct|admin|or-v1)-[A-Za-z0-9_-]{20,}"
        + r"|(?=[A-Za-z]{0,60}[0-9])[A-Za-z0-9]{20,200}(?![A-Za-z0-9_-]))"
        + r"|nvapi-[A-Za-z0-9_-]{30,}|r8_[A-Za-z0-9]{30,}|gsk_[A-Za-z0-9]{40,})",
    ),
    _shape("a key of a package registry", _BEFORE + r"(?:npm_[A-Za-z0-9]{30,}|pypi-AgE[A-Za-z0-9_-]{20,})"),
    _shape("a Databricks token", _BEFORE + r"dapi[0-9a-f]{32}(?![A-Za-z0-9])"),
    _shape("a Weights & Biases key", _BEFORE + r"wandb_v1_[A-Za-z0-9_]{30,}"),
    _shape("a Google API key", _BEFORE + r"AIza[0-9A-Za-z_-]{35}"),
    _shape("a RunPod key", _BEFORE + "rpa_" + _DIGIT + r"[A-Za-z0-9]{12,200}" + _NO_FILE),
    _shape("a Lambda key", _BEFORE + r"secret_[A-Za-z0-9-]{1,64}_[0-9a-f]{32}(?:\.[A-Za-z0-9]{16,64})?(?![A-Za-z0-9])"),
    _shape("a webhook secret", _BEFORE + r"whsec_[A-Za-z0-9+/=_-]{6,}"),
    _shape(
        "a webhook's address",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/_-]{20,}"
        r"|discord(?:app)?\.com/api/(?:v[0-9]{1,2}/)?webhooks/[0-9]{10,30}/[A-Za-z0-9_-]{30,}",
    ),
    _shape("a Telegram token", r"(?<![0-9])[0-9]{6,12}:AA[A-Za-z0-9_-]{30,}"),
    _shape("a GPU Shopper key", _BEFORE + "gpu[ackn]_" + _DIGIT + r"[A-Za-z0-9_-]{13,200}" + _NO_FILE),
    _shape(
        "a signed token (JWT)",
        _BEFORE + r"eyJ[A-Za-z0-9_-]{8,4000}\.eyJ[A-Za-z0-9_-]{8,8000}\.[A-Za-z0-9_-]{8,}",
    ),
)
#: Secrets by what stands before them; the group `value` is the secret, unless it is read elsewhere.
ASSIGNED: Final = (
    _shape(
        "a user name and password",
        r"(?<=://)(?<!hf://)[^\s/:@\"'$]{0,256}:(?P<value>[^\s/@\"']{1,512})(?=@)",
    ),
    _shape("a token in an address", r"(?<=://)(?=[A-Za-z_-]{0,60}[0-9])(?P<value>[A-Za-z0-9_-]{20,512})(?=@)"),
    _shape(
        "an authorization header",
        r"(?i:\bauthorization[\"']?:\s?[\"']?(?:bearer|basic|token|key)\s|\bbearer\s" + _DIGIT + r")"
        r"(?P<value>[A-Za-z0-9._~+/=-]{16,512})",
    ),
    _shape(
        "a Weights & Biases key",
        r"\bwandb\s{1,4}login(?:\s{1,4}-[A-Za-z-]{1,30}(?:=[^\s]{1,200})?){0,4}\s{1,4}(?P<value>[0-9a-f]{40})\b",
    ),
)

#: A name, what makes a value follow it, and as much of that value as tells what it is.
_NAMED: Final = re.compile(
    r"(?<![A-Za-z0-9_.-])(?P<option>--|configure\sset\s)?(?P<name>[A-Za-z_][A-Za-z0-9_.-]{0,99})"
    r"(?P<sign>\s=\s|=|[\"']?\s?:\s?|\s)(?=(?P<value>\"[^\"]{0,256}|'[^']{0,256}|[^\s\"';&|]{1,256}))",
    re.ASCII,
)
_PREFIX: Final = r"(?:[a-z0-9_.-]{0,99}[_.-])?"
#: Names whose value is a secret, whatever it looks like.
_SECRET_NAME: Final = re.compile(
    _PREFIX
    + _any_of(
        r"(?:pg)?password|passwd|api[_-]?key|access[_-]?key(?:[_-]?id)?|secret[_-]?key|private[_-]?key|"
        r"(?:client|app|webhook|jwt|signing)[_-]?secret|[a-z0-9]{1,60}_secret|(?-i:SECRET)|"
        r"(?:db|database|mysql|postgres|redis|mongo|smtp|ftp|user|admin|root)[_-]?(?:pass|pwd)|"
        r"(?:hf|hub|hugging_?face|auth|access|api|bearer|refresh|session|security|wandb|github|gh|gitlab|slack|bot)[_-]?token"
    ),
    re.IGNORECASE | re.ASCII,
)
#: Names whose value is a secret when it looks like one: `TRIGGER_TOKEN=ohwx_person` names a word.
_MAYBE_NAME: Final = re.compile(
    _PREFIX + _any_of("token|secret|pass|pwd|(?:account|storage|kaggle)[_-]?key"), re.IGNORECASE | re.ASCII
)
#: Names of passwords, which may be numbers.
_PASSWORD_NAME: Final = re.compile(r".{0,90}pass(?:word|wd)?|.{0,90}pwd", re.IGNORECASE)
_LOOKS_RANDOM: Final = re.compile(r"(?=[^0-9]{0,60}[0-9])(?=[^A-Za-z]{0,60}[A-Za-z])[A-Za-z0-9._~+/=-]{12,}", re.ASCII)
#: Words with a number at their end: `reserved_token_12`.
_SLUG: Final = re.compile(r"[a-z]+(?:[_-][a-z]+)*[_-]?[0-9]{0,4}", re.ASCII)
#: After this `--secret` is the name of a secret.
_NAMES_SECRETS: Final = "gcloud secrets"
#: Words of what stands where no secret is needed or shown: `EMPTY`, `not-needed`, `your_token_here`.
_PLACEHOLDER: Final = _any_of(
    r"empty|none|null|nil|dummy|not|no|needed|required|used|unused|set|changeme|change|me|fake|test|testing|example|"
    r"placeholder|todo|disabled|offline|local|only|your|my|the|a|an|key|api|token|secret|password|passwd|here|hf|sk|"
    r"openai|wandb|insert|replace|with|read|from|env|abc123|lm|studio|ollama|vllm|anything|true|false|yes|on|off|"
    r"x{3,200}|\*{3,200}|\.{3,200}"
)
#: What stands where a secret would: a placeholder, a variable, code that reads it, or the path of a file.
_NO_LITERAL: Final = re.compile(
    r"[$`<{\[=].*|-?[0-9.]{1,6}|(?:os|args|cfg|config|self|settings|process)\..*|[a-z_][a-z0-9_.]*[(\[].*"
    rf"|{_PLACEHOLDER}(?:[-_. ]{_PLACEHOLDER}){{0,7}}"
    r"|(?:~|\.{1,2})?/[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)*/?|(?-i:[a-z_.-]+(?:/[a-z_.-]+)+/?)"
    r"|[A-Za-z0-9_./~-]+\."
    + _any_of("txt|json|ya?ml|toml|ini|env|cfg|conf|pem|key|pub|crt|token|secret|pt|bin|py|sh|csv")
    # The name of a variable, with an underscore.
    + r"|(?-i:[A-Z][A-Z0-9]*_[A-Z0-9_]+)",
    re.IGNORECASE | re.ASCII | re.DOTALL,
)

#: Parameters of a URL that let anybody who reads them use it: of S3, Azure, Google Cloud, CloudFront, OSS and others.
_SIGNED: Final = _any_of(
    r"x-amz-signature|x-amz-credential|x-amz-security-token|awsaccesskeyid|signature|sig|x-goog-signature|"
    r"x-goog-credential|googleaccessid|x-oss-signature|x-oss-credential|x-oss-security-token|ossaccesskeyid|"
    r"q-signature|security-token|key-pair-id|policy|hdnts|hdnea|__token__|[a-z0-9]{0,40}[-_]?token|jwt|api[-_]?key|"
    r"auth-?key|password|passwd|secret|client[-_]secret|code|auth|authorization|key(?=(?:=|%3D)[A-Za-z0-9_%+=-]{24})"
)
_PARAMETER: Final = re.compile(
    rf"((?:[?&#]|%26|\\u0026)(?:amp;)?{_SIGNED}(?:=|%3D))(?!\[redacted\])[^&\s\"'<>\\|;#)\]}}`]+",
    re.IGNORECASE | re.ASCII,
)
_URL: Final = re.compile(r"://[^\s\"'<>;|]+", re.ASCII)
#: A user name and password, and over http a token alone; the user of `ssh://root@host` is none.
_USER: Final = re.compile(
    r"(?<=://)[^\s/:@\"'<>]{0,256}:[^\s/@\"'<>]{1,512}(?=@)|(?:(?<=http://)|(?<=https://))[A-Za-z0-9_.~%+=-]{8,512}(?=@)",
    re.ASCII,
)
#: Every pattern by which a text of any length is searched.
SEARCHES: Final = (*(shape.pattern for shape in (*KEYS, *ASSIGNED)), _NAMED, _PARAMETER, _URL, _USER)


def without_signatures(text: str) -> str:
    """Mask what makes an address in `text` usable: its signature, and its user name and password."""
    if "=" in text or "%3" in text:
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
    for shape in KEYS:
        if shape.pattern.search(unsigned):
            return shape.name
    for shape in ASSIGNED:
        if any(_is_literal(match["value"]) for match in shape.pattern.finditer(unsigned)):
            return shape.name
    return "a secret" if any(_names_secret(match) for match in _NAMED.finditer(unsigned)) else ""


def _names_secret(match: re.Match[str]) -> bool:
    """Whether a name has a secret as its value."""
    name, value, sign = match["name"], match["value"].lstrip("\"'"), match["sign"]
    surely = _SECRET_NAME.fullmatch(name) is not None
    if not surely and not _MAYBE_NAME.fullmatch(name):
        return False
    if sign.isspace() and (not match["option"] or value.startswith("-")):
        return False
    # The name of a secret is none.
    if name == "secret" and _NAMES_SECRETS in match.string[max(0, match.start() - 200) : match.start()]:
        return False
    if surely and _PASSWORD_NAME.fullmatch(name) and ":" not in sign and value.isdigit():
        return len(value) >= 4
    return _is_literal(value) and ((surely and ":" not in sign) or _looks_random(value))


def _is_literal(value: str) -> bool:
    """Whether a value is given itself: it is no variable, no path, and no word such as EMPTY."""
    return len(value) >= 4 and not _NO_LITERAL.fullmatch(value)


def _looks_random(value: str) -> bool:
    """Whether a value looks like a key: long, with letters and digits, and no words."""
    return _LOOKS_RANDOM.fullmatch(value) is not None and not _SLUG.fullmatch(value)
