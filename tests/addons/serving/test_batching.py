"""Questions are joined, kept in order, and given up without harm to the others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from vitreous.addons.serving import batching
from vitreous.addons.serving.batching import Batcher


class Doubler:
    """Doubles numbers, and remembers the batches it saw; fails on 13; waits for `gate` if there is one."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.threads: set[int] = set()
        self.gate: threading.Event | None = None

    def __call__(self, numbers: Sequence[int]) -> list[int]:
        if self.gate:
            self.gate.wait(60)
        self.threads.add(threading.get_ident())
        self.batches.append(list(numbers))
        if 13 in numbers:
            raise ValueError("unlucky")
        return [2 * number for number in numbers]


def with_batcher(work: Doubler, conversation: Any, *, max_batch: int = 4, max_wait: float = 0.05) -> Any:
    async def run() -> Any:
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher[int, int](work, executor, max_batch, max_wait, observe=lambda *found: None)
            return await conversation(batcher)

    return asyncio.run(run())


async def turn_over() -> None:
    """Let all other tasks go on until they wait."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_what_arrives_together_is_one_batch_in_order() -> None:
    work = Doubler()

    async def six(batcher: Batcher[int, int]) -> list[int]:
        return await asyncio.gather(*(batcher.ask(number) for number in range(6)))

    assert with_batcher(work, six) == [0, 2, 4, 6, 8, 10]
    assert work.batches == [[0, 1, 2, 3], [4, 5]]
    assert len(work.threads) == 1


def test_who_is_alone_does_not_wait() -> None:
    work = Doubler()

    async def one(batcher: Batcher[int, int]) -> list[int]:
        return [await asyncio.wait_for(batcher.ask(number), 60) for number in range(3)]

    assert with_batcher(work, one, max_batch=100, max_wait=1000.0) == [0, 2, 4]


def test_who_had_company_waits_for_it_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    work, now = Doubler(), [0.0]  # the clock of the batcher, and of what it waits by
    monkeypatch.setattr(batching, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def some(batcher: Batcher[int, int]) -> int:
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now[0])
        await asyncio.gather(*(batcher.ask(number) for number in range(3)))
        first = asyncio.create_task(batcher.ask(3))
        await turn_over()
        assert not first.done()
        await asyncio.gather(first, batcher.ask(4), batcher.ask(5))
        last = asyncio.create_task(batcher.ask(6))
        await turn_over()
        assert work.batches == [[0, 1, 2], [3, 4, 5]]
        now[0] += 1.0
        return await last

    assert with_batcher(work, some, max_wait=1.0) == 12
    assert work.batches == [[0, 1, 2], [3, 4, 5], [6]]


def test_one_that_fails_fails_alone() -> None:
    work = Doubler()

    async def three(batcher: Batcher[int, int]) -> list[Any]:
        return await asyncio.gather(*(batcher.ask(n) for n in (1, 13, 2)), return_exceptions=True)

    first, failed, last = with_batcher(work, three)
    assert (first, last) == (2, 4)
    assert isinstance(failed, ValueError)
    assert work.batches == [[1, 13, 2], [1], [13], [2]]


def test_what_was_given_up_is_not_computed() -> None:
    work = Doubler()
    work.gate = threading.Event()

    async def leave(batcher: Batcher[int, int]) -> list[int]:
        first = asyncio.create_task(batcher.ask(1))
        await asyncio.sleep(0.1)  # the first batch is under way
        given_up, kept = asyncio.create_task(batcher.ask(2)), asyncio.create_task(batcher.ask(3))
        await asyncio.sleep(0.05)
        given_up.cancel()
        assert work.gate
        work.gate.set()
        return [await first, await kept]

    assert with_batcher(work, leave, max_wait=0.0) == [2, 6]
    assert work.batches == [[1], [3]]


def test_giving_up_during_the_batch_harms_nobody() -> None:
    work = Doubler()
    work.gate = threading.Event()

    async def leave(batcher: Batcher[int, int]) -> int:
        tasks = [asyncio.create_task(batcher.ask(number)) for number in (1, 2)]
        await asyncio.sleep(0.1)
        tasks[0].cancel()
        assert work.gate
        work.gate.set()
        return await tasks[1]

    assert with_batcher(work, leave, max_wait=0.02) == 4
