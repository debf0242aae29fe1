"""Check the bounds of a job; readers of words and services refuse what is outside with the same sentence."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Final, NamedTuple

from bot.rules.policy.policy import Policy
from bot.rules.values import secret_text
from bot.rules.values.reply_code import ReplyCode
from ledger.kernel.ports import Port

MOST_USD: Final = Decimal(1_000_000)
SSH_PORT: Final = 22
#: Hosts at Vast.ai may have few ports to give.
MOST_PORTS: Final = 10
MOST_SHARED: Final = 5
#: Machines of one set.
MOST_NODES: Final = 4


class BoundsVerdict(NamedTuple):
    """Say why a value is refused: a stable code, and the sentence for people."""

    code: ReplyCode
    sentence: str


def gpu_count(least: int, most: int, policy: Policy) -> BoundsVerdict | None:
    """Say what is wrong with `least` to `most` GPUs."""
    if least < 1:
        return BoundsVerdict(ReplyCode.GPU_COUNT, "At least one GPU is needed.")
    if most < least:
        return BoundsVerdict(ReplyCode.GPU_COUNT, f"“{least}-{most}” runs backwards; write the smaller number first.")
    if most > policy.max_gpus:
        return BoundsVerdict(ReplyCode.GPU_COUNT, f"{most} GPUs are above the limit of {policy.max_gpus}.")
    return None


def nodes(count: int) -> BoundsVerdict | None:
    """Say what is wrong with the number of machines of a set."""
    if not 1 <= count <= MOST_NODES:
        return BoundsVerdict(ReplyCode.BAD_NODES, f"A set has 2 to {MOST_NODES} machines, and not {count}.")
    return None


def money(amount_usd: Decimal) -> BoundsVerdict | None:
    """Say what is wrong with the most that a job may cost."""
    if amount_usd.is_nan() or amount_usd == 0:
        return BoundsVerdict(ReplyCode.BAD_AMOUNT, "An amount of money must be above zero.")
    if amount_usd < 0:
        return BoundsVerdict(ReplyCode.BAD_AMOUNT, "An amount of money cannot be negative.")
    if amount_usd > MOST_USD:
        return BoundsVerdict(
            ReplyCode.BAD_AMOUNT, "An amount of money above $1,000,000 is not believed; write $50 or 0.75."
        )
    return None


def reliability(share: Decimal, said: str = "") -> BoundsVerdict | None:
    """Say what is wrong with the least reliability; `said` is what was typed."""
    if share.is_nan() or not 0 <= share <= 1:
        return BoundsVerdict(ReplyCode.BAD_RELIABILITY, f"{said or share} is not a reliability; write 0.98 or 98%.")
    return None


def reason(text: str, policy: Policy) -> BoundsVerdict | None:
    """Say what is wrong with a reason: its length, or a secret in it."""
    most = policy.max_reason_chars
    if len(text) > most:
        return BoundsVerdict(
            ReplyCode.REASON_TOO_LONG, f"The reason has {len(text):,} characters; {most:,} is the most."
        )
    wrong = secret_text.problem(secret_text.REASON, text)
    return BoundsVerdict(ReplyCode.SECRET_IN_TEXT, wrong) if wrong else None


def ports(named: Sequence[Port]) -> BoundsVerdict | None:
    """Say what is wrong with the ports that a job names."""
    numbers = [port.number for port in named]
    if SSH_PORT in numbers:
        return BoundsVerdict(ReplyCode.BAD_WORD, "Port 22 is always open for SSH, so leave it out.")
    for number in numbers:
        if numbers.count(number) > 1:
            return BoundsVerdict(ReplyCode.BAD_WORD, f"Port {number} is named twice. Keep one of the two.")
    if len(numbers) > MOST_PORTS:
        return BoundsVerdict(ReplyCode.BAD_WORD, f"{len(numbers)} ports are above the limit of {MOST_PORTS}.")
    return None
