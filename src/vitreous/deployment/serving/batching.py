"""Dynamic batching: requests that arrive together are computed together, in order, on one thread."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from typing import Generic, NamedTuple, TypeVar

from vitreous.deployment.serving.endpoints import Refused

LONGEST = 0.5  # seconds of a batch of several questions
REMEMBERED = 8  # batches whose sizes and seconds predict the next one's
Question = TypeVar("Question")
Answer = TypeVar("Answer")


class Full(Refused):
    """No room for more. retry_after: whole seconds until there may be."""

    def __init__(self, retry_after: int) -> None:
        sentence = f"the server is busy: ask again in {retry_after} s"
        super().__init__(503, sentence, {"Retry-After": str(retry_after)})
        self.retry_after = retry_after


class Room:
    """How many questions may be inside at once: accepted, and neither answered nor given up.

    Args:
        changed: called with how many there are, when that changes.
    """

    def __init__(self, most: int, changed: Callable[[int], None] = lambda inside: None) -> None:
        self.most, self.changed = most, changed
        self.inside = 0
        self.latest = 1.0  # seconds that the last request took: about what a full house needs to empty

    @contextmanager
    def admit(self, count: int) -> Iterator[None]:
        """Room for `count` questions, for as long as the context lasts. Raises Full: there is less; none of
        them is taken."""
        if self.inside + count > self.most:
            raise Full(min(max(math.ceil(self.latest), 1), 60))
        began = time.monotonic()
        self.inside += count
        self.changed(self.inside)
        try:
            yield
        finally:
            self.inside -= count
            self.changed(self.inside)
            self.latest = time.monotonic() - began


class Waiting(NamedTuple, Generic[Question, Answer]):
    """A question, where its answer goes, and when it came (seconds of the loop's clock)."""

    question: Question
    answer: asyncio.Future[Answer]
    since: float


class Batcher(Generic[Question, Answer]):
    """Joins questions into batches.

    A batch begins when the one before is done, and it is as large as the largest of the last few or its first
    question has waited for `max_wait` seconds: who is alone does not wait for company that never comes.
    Requests take turns, one question of each at a time, and a batch takes no longer than `LONGEST` where one
    question does not: a request of one image waits neither for all of another's images nor for long. A
    question that was given up (its task was cancelled) is left out. When a batch fails, each of its questions
    is tried alone, so that one that cannot be answered fails by itself.

    Args:
        work: from questions to as many answers; runs in `executor`.
        max_batch: questions in one batch.
        max_wait: seconds.
        observe: called after each batch with its size and its seconds.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Question]], Sequence[Answer]],
        *,
        executor: Executor,
        max_batch: int,
        max_wait: float,
        observe: Callable[[int, float], None] = lambda size, seconds: None,
    ) -> None:
        self.work = work
        self.executor = executor
        self.max_batch = max_batch
        self.max_wait = max_wait
        self.observe = observe
        self.waiting: dict[Hashable, deque[Waiting[Question, Answer]]] = {}  # by request, the next one first
        self.count = 0
        self.each: deque[float] = deque(maxlen=REMEMBERED)  # seconds of a question in the latest batches
        self.began: float | None = None  # when the batch that is computed began, by the monotonic clock
        self.arrived = asyncio.Event()
        self.sizes: deque[int] = deque([1], maxlen=REMEMBERED)

    async def ask(self, question: Question, request: Hashable = None) -> Answer:
        """The answer, or what `work` raised. Cancelling gives the question up.

        Args:
            request: questions of one request take one turn together.
        """
        loop = asyncio.get_running_loop()
        waiting = Waiting[Question, Answer](question, loop.create_future(), loop.time())
        self.waiting.setdefault(request, deque()).append(waiting)
        self.count += 1
        self.arrived.set()
        return await waiting.answer

    async def run(self) -> None:
        """Answer until cancelled."""
        while True:
            if batch := await self.gathered():
                await self.answer(batch)

    async def gathered(self) -> list[Waiting[Question, Answer]]:
        """The next batch; perhaps empty, when all that waited was given up."""
        loop = asyncio.get_running_loop()
        while not self.waiting:
            self.arrived.clear()
            await self.arrived.wait()
        begins = next(iter(self.waiting.values()))[0].since + self.max_wait
        expected = min(max(self.sizes), self.max_batch)
        while self.count < expected and loop.time() < begins:
            self.arrived.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(begins):
                    await self.arrived.wait()
        # The least of them: where the machine stalls once, small batches after it would make a queue.
        each = min(self.each, default=0.0) or LONGEST / self.max_batch
        most = min(self.max_batch, max(int(LONGEST / each), 1))
        batch: list[Waiting[Question, Answer]] = []
        while self.waiting and len(batch) < most:
            request = next(iter(self.waiting))
            questions = self.waiting.pop(request)
            first = questions.popleft()
            self.count -= 1
            if questions:
                self.waiting[request] = questions  # after the others
            if not first.answer.done():
                batch.append(first)
        # Questions that wait after a full batch count, too.
        self.sizes.append(len(batch) + self.count)
        return batch

    async def answer(self, batch: list[Waiting[Question, Answer]]) -> None:
        """Compute a batch and hand the answers out."""
        loop = asyncio.get_running_loop()
        questions = [each.question for each in batch]
        self.began = began = time.monotonic()
        try:
            answers = await loop.run_in_executor(self.executor, self.work, questions)
        except Exception as error:  # whatever it is belongs to the one who asked
            if len(batch) > 1:
                for each in batch:
                    await self.answer([each])
            elif not batch[0].answer.done():
                batch[0].answer.set_exception(error)
            return
        finally:
            self.began = None
        seconds = time.monotonic() - began
        self.each.append(seconds / len(batch))
        self.observe(len(batch), seconds)
        for each, answer in zip(batch, answers, strict=True):
            if not each.answer.done():
                each.answer.set_result(answer)
