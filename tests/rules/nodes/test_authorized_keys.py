"""The block of people's keys in a machine's authorized_keys, and all other lines as they were."""

from __future__ import annotations

import base64
import hashlib

import pytest

from bot.rules.nodes.authorized_keys import (
    BEGIN,
    END,
    PersonKey,
    changed,
    fingerprint,
    login_problem,
    read_file,
    replace_command,
    sent,
    sentence,
)
from ledger.kernel.login_problem import LoginProblem
from ledger.kernel.people.key_problem import KeyProblem

ANN, BEN = "ssh-ed25519 QUFBQQ==", "ssh-rsa QkJCQg=="
MINE = "# mine\nssh-ed25519 TUlORQ== me@laptop\n"
ANNS, BENS = PersonKey(ANN, "operator:ann"), PersonKey(BEN, "slack:T1/U 2\n")
ANN_LINE = f"{ANN} operator:ann"


def block(*lines: str) -> str:
    return "".join(f"{line}\n" for line in (BEGIN, *lines, END))


def test_keys_are_added_in_one_block_and_removed_with_it() -> None:
    one = changed(MINE, [ANNS], [])
    assert one == MINE + block(ANN_LINE)
    assert changed(one, [ANNS], []) == one
    two = changed(one, [ANNS, BENS], [])
    assert two == MINE + block(ANN_LINE, f"{BEN} slack:T1/U_2_")
    assert changed(two, [BENS], [ANN]) == MINE + block(f"{BEN} slack:T1/U_2_")
    assert changed(two, [], [ANN, BEN]) == MINE
    assert changed("", [PersonKey(ANN)], []) == block(ANN)
    assert changed(block(ANN), [], []) == ""


def test_other_lines_stay_except_one_with_a_withdrawn_key() -> None:
    crlf = f"\xe9 a comment\r\n\r\n# {BEN}\r\n{MINE}"
    assert changed(crlf, [], [ANN]) == crlf
    # A missing last line end alone is no reason to write, and the block begins on a line of its own.
    assert changed("ssh-ed25519 TUlORQ==", [], []) == "ssh-ed25519 TUlORQ=="
    assert changed("ssh-ed25519 TUlORQ==", [ANNS], []) == "ssh-ed25519 TUlORQ==\n" + block(ANN_LINE)
    brought = f'{MINE}command="ls" {ANN} ann\n{BEN}\n'
    assert changed(brought, [ANNS, BENS], []) == brought
    assert changed(brought, [BENS], [ANN]) == f"{MINE}{BEN}\n"
    above_and_below = block(ANN_LINE) + MINE
    assert changed(above_and_below, [ANNS], []) == MINE + block(ANN_LINE)


@pytest.mark.parametrize(
    ("broken", "kept"),
    [
        (f"{BEGIN}\n{MINE}", MINE),
        (f"{MINE}{END}\n", MINE),
        (f"{BEGIN}\n{BEGIN}\n{ANN}\n{END}\n{MINE}{END}\n", MINE),
    ],
)
def test_a_marker_without_its_counterpart_goes_alone(broken: str, kept: str) -> None:
    assert changed(broken, [BENS], []) == kept + block(f"{BEN} slack:T1/U_2_")


def test_the_file_is_read_from_between_greetings() -> None:
    text = f"{MINE}\xff"
    printed = f"Welcome!\ngpu-shopper-begin\n{base64.encodebytes(text.encode('latin-1')).decode()}gpu-shopper-end\n"
    assert read_file(printed) == text
    assert read_file("gpu-shopper-begin\ngpu-shopper-end\n") == ""
    assert read_file("gpu-shopper-begin\nQQ=Q\ngpu-shopper-end\n") is None
    assert read_file("gpu-shopper-begin\nQUFB") is None
    assert hashlib.sha256(text.encode("latin-1")).hexdigest() in replace_command(text)
    assert base64.b64decode(sent(text)).decode("latin-1") == text


def test_names_and_reasons() -> None:
    assert fingerprint(ANN).startswith("SHA256:")
    assert fingerprint(ANN) != fingerprint(BEN)
    assert {login_problem(one).value for one in LoginProblem} == {one.value for one in LoginProblem}
    assert len({sentence(one) for one in KeyProblem}) == len(KeyProblem)
