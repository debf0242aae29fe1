"""Names that users chose: few at once, each for a while, and never in the threads of clouds and Slack."""

from __future__ import annotations

import asyncio
import socket

import pytest

from bot.outbound.names import PER_USER, THREADS, Names, ResolverBusy
from tests.support.slow_names import SLOW, slow_names

LIMIT_S = 5.0


async def test_a_name_gives_all_its_addresses() -> None:
    assert "127.0.0.1" in await Names().for_user("alice")("localhost", 443)
    with pytest.raises(OSError, match=r"."):
        await Names().for_user("alice")("no.such.name.invalid", 443)


async def test_a_user_has_some_threads_and_all_users_together_four() -> None:
    names = Names(wait_s=0.01)
    with slow_names() as asked:
        for user in ("mallory", "trudy"):
            for number in range(PER_USER):
                with pytest.raises(TimeoutError):
                    await names.for_user(user)(f"{user}{number}{SLOW}", 443)
            # Nobody waits for these any more, but the threads still do.
            with pytest.raises(ResolverBusy):
                await names.for_user(user)(f"{user}{SLOW}", 443)
        with pytest.raises(ResolverBusy):
            await names.for_user("alice")("localhost", 443)
        assert len(asked) == THREADS
        # A cloud's name is resolved as always.
        async with asyncio.timeout(LIMIT_S):
            assert await asyncio.get_running_loop().getaddrinfo("localhost", 443, type=socket.SOCK_STREAM)
    patient = Names()
    async with asyncio.timeout(LIMIT_S):
        assert await patient.for_user("mallory")("localhost", 443)
        while True:  # A thread is free as soon as its lookup has returned.
            try:
                await names.for_user("alice")("127.0.0.1", 443)
                break
            except ResolverBusy:
                await asyncio.sleep(0)
