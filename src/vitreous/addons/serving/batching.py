"""Batches: what arrives together is computed together, on one thread."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

REMEMBERED = 8  # batches whose sizes predict the next one's
Question = TypeVar("Question")
Answer = TypeVar("Answer")


class Waiting(NamedTuple, Generic[Question, Answer]):
    """A question, where its answer goes, and when it came (seconds of the loop's clock)."""

    question: Question
    answer: asyncio.Future[Answer]
    since: float


@dataclass(eq=False)
class Batcher(Generic[Question, Answer]):
    """Joins questions into batches.

    A batch begins when the one before is done, and it is as large as the largest of the last few or its first
    question has waited for `max_wait` seconds: who is alone does not wait for company that never comes. A
    question that was given up (its task was cancelled) is left out. When a batch fails, each of its questions
    is tried alone, so that one that cannot be answered fails by itself.
    """

    work: Callable[[Sequence[Question]], Sequence[Answer]]  # from questions to as many answers
    executor: Executor  # where it runs
    max_batch: int  # questions
    max_wait: float  # seconds
    observe: Callable[[int, float], None]  # called after each batch with its size and its seconds

    def __post_init__(self) -> None:
        self.waiting: deque[Waiting[Question, Answer]] = deque()
        self.arrived = asyncio.Event()
        self.sizes: deque[int] = deque([1], maxlen=REMEMBERED)
        self.running: asyncio.Task[None] | None = None

    async def ask(self, question: Question) -> Answer:
        """Return the answer, or raise what `work` raised. Cancelling gives the question up."""
        loop = asyncio.get_running_loop()
        waiting = Waiting[Question, Answer](question, loop.create_future(), loop.time())
        self.waiting.append(waiting)
        self.arrived.set()
        if self.running is None or self.running.done():
            self.running = loop.create_task(self.answer_all())
        return await waiting.answer

    async def answer_all(self) -> None:
        """Answer until no question waits. Before each batch, wait for as much company as there was lately, or
        until the first question has waited enough."""
        loop = asyncio.get_running_loop()
        while self.waiting:
            begins = self.waiting[0].since + self.max_wait
            expected = min(max(self.sizes), self.max_batch)
            while len(self.waiting) < expected and loop.time() < begins:
                self.arrived.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(begins):
                        await self.arrived.wait()
            batch: list[Waiting[Question, Answer]] = []
            while self.waiting and len(batch) < self.max_batch:
                waiting = self.waiting.popleft()
                if not waiting.answer.done():
                    batch.append(waiting)
            # Those that wait after a full batch count as well.
            self.sizes.append(len(batch) + len(self.waiting))
            if batch:
                await self.answer(batch)

    async def answer(self, batch: list[Waiting[Question, Answer]]) -> None:
        """Compute a batch and hand the answers out."""
        loop = asyncio.get_running_loop()
        questions = [each.question for each in batch]
        began = time.monotonic()
        try:
            answers = await loop.run_in_executor(self.executor, self.work, questions)
        except Exception as error:
            # Whatever is raised belongs to the one who asked.
            if len(batch) > 1:
                for each in batch:
                    await self.answer([each])
            elif not batch[0].answer.done():
                batch[0].answer.set_exception(error)
            return
        self.observe(len(batch), time.monotonic() - began)
        for each, answer in zip(batch, answers, strict=True):
            if not each.answer.done():
                each.answer.set_result(answer)
