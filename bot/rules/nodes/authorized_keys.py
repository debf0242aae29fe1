"""Change the lines of a machine's `authorized_keys`: people's keys in a block of GPU Shopper's own, all else as it was.

Text stands for bytes here, one character each (latin-1), so that a file of any encoding comes back unchanged.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ledger.kernel.login_problem import LoginProblem
from ledger.kernel.people.key_problem import KeyProblem

BEGIN = "# BEGIN GPU Shopper: it rewrites these lines. Put yours above or below."
END = "# END GPU Shopper"
#: How the marker lines begin, whatever a release says after that.
_BEGINS, _ENDS = "# BEGIN GPU Shopper", "# END GPU Shopper"
_NO_NAME = re.compile(r"[^A-Za-z0-9._:@/-]", re.ASCII)
_FRAME = re.compile(r"gpu-shopper-begin\s+([A-Za-z0-9+/=\s]*?)\s*gpu-shopper-end", re.ASCII)
#: Prints the file as base64 between two words, because a login shell may print a greeting of its own.
READ_COMMAND = 'echo gpu-shopper-begin && base64 "$HOME/.ssh/authorized_keys" && echo gpu-shopper-end'
#: Replaces the file by what stands on standard input, in base64, unless it is no longer the one that was read. `cp -p`
#: keeps mode and owner, and `mv` puts the whole file into place at once.
_REPLACE = (
    'f=$(readlink -f "$HOME/.ssh/authorized_keys") && cp -p "$f" "$f.gpu-shopper" && base64 -d > "$f.gpu-shopper" '
    '&& test "$(sha256sum < "$f" | cut -c1-64)" = {digest} && mv -f "$f.gpu-shopper" "$f"'
)
_SENTENCES = {
    KeyProblem.UNREACHABLE: "The machine does not answer.",
    KeyProblem.WRONG_HOST_KEY: "The machine shows another SSH host key than the known one.",
    KeyProblem.REFUSED: "The machine refuses GPU Shopper's own key.",
    KeyProblem.NO_ANSWER: "The machine did not answer in time.",
    KeyProblem.UNREADABLE: "The machine's ~/.ssh/authorized_keys can't be read.",
    KeyProblem.NOT_WRITTEN: "The machine's ~/.ssh/authorized_keys can't be changed.",
}
_OF_LOGIN = {
    LoginProblem.UNREACHABLE: KeyProblem.UNREACHABLE,
    LoginProblem.WRONG_HOST_KEY: KeyProblem.WRONG_HOST_KEY,
    LoginProblem.REFUSED: KeyProblem.REFUSED,
    LoginProblem.NO_ANSWER: KeyProblem.NO_ANSWER,
}


@dataclass(frozen=True, slots=True)
class PersonKey:
    """Hold one public key, kind and base64, and the reference of its person, which becomes the comment."""

    public_key: str
    person: str = ""


def fingerprint(public_key: str) -> str:
    """Return what `ssh-keygen -l` shows of a public key: `SHA256:…`."""
    digest = hashlib.sha256(base64.b64decode(public_key.split()[1])).digest()
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def changed(text: str, wanted: Sequence[PersonKey], withdrawn: Collection[str]) -> str:
    """Return the file with the keys that people may use, and without the `withdrawn` ones.

    The block between the marker lines is written anew. Of the other lines only those with a withdrawn key are left out:
    a create call put them there, or the person. A wanted key that stands outside the block is not written again.
    """
    gone = {_material(key) for key in withdrawn}
    lines = [line for line in _outside(text.split("\n")) if not gone & _words(line)]
    there = set().union(*map(_words, lines))
    missing = {_material(one.public_key): one for one in wanted if _material(one.public_key) not in there}
    while lines and not lines[-1]:
        lines.pop()
    if missing:
        lines += [BEGIN, *map(_line, missing.values()), END]
    new = "\n".join([*lines, ""]) if lines else ""
    return text if new.rstrip("\n") == text.rstrip("\n") else new


def _outside(lines: Sequence[str]) -> list[str]:
    """Return the lines outside of the block. A marker without its counterpart is left out alone."""
    kept: list[str] = []
    began: int | None = None
    for line in lines:
        if line.startswith(_BEGINS):
            began = len(kept)
        elif line.startswith(_ENDS):
            del kept[len(kept) if began is None else began :]
            began = None
        else:
            kept.append(line)
    return kept


def _words(line: str) -> set[str]:
    return set() if line.lstrip().startswith("#") else set(line.split())


def _material(public_key: str) -> str:
    return public_key.split()[1]


def _line(key: PersonKey) -> str:
    return f"{' '.join(key.public_key.split()[:2])} {_NO_NAME.sub('_', key.person)}".rstrip()


def read_file(output: str) -> str | None:
    """Return the file from what `READ_COMMAND` printed; None where it is not there as a whole."""
    found = _FRAME.search(output)
    if found is None:
        return None
    try:
        return base64.b64decode("".join(found[1].split()), validate=True).decode("latin-1")
    except binascii.Error:
        return None


def replace_command(before: str) -> str:
    """Return the command that replaces a file which still has the text `before`."""
    return _REPLACE.format(digest=hashlib.sha256(before.encode("latin-1")).hexdigest())


def sent(text: str) -> str:
    """Return a file's text as `replace_command` reads it."""
    return base64.b64encode(text.encode("latin-1")).decode()


def login_problem(problem: LoginProblem) -> KeyProblem:
    """Return the problem of writing keys that a failed login is."""
    return _OF_LOGIN[problem]


def sentence(problem: KeyProblem) -> str:
    """Say in one sentence why the keys could not be written."""
    return _SENTENCES[problem]
