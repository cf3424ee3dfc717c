"""Turns and batches: clients take turns, and what arrives together is computed together on one thread."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Generic, NamedTuple, TypeVar

from vitreous.addons.serving.limits import Refused

LONGEST = 0.5  # seconds of a batch of several questions
REMEMBERED = 8  # batches whose sizes and seconds predict the next one's
Item = TypeVar("Item")
Question = TypeVar("Question")
Answer = TypeVar("Answer")


class Asker(NamedTuple):
    """Who asks: the client's address, and a number for each of its requests."""

    client: str
    request: int


class FairQueue(Generic[Item]):
    """A queue in which clients take turns, and so do the requests of each of them: one item at a time. Who
    brings one image waits neither for all images of another client nor for all of another request."""

    def __init__(self) -> None:
        self.clients: dict[str, dict[int, deque[Item]]] = {}  # in the order of their turns
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def put(self, asker: Asker, item: Item) -> None:
        self.clients.setdefault(asker.client, {}).setdefault(asker.request, deque()).append(item)
        self.count += 1

    def first(self) -> Item:
        """Return what `take` would."""
        requests = next(iter(self.clients.values()))
        return next(iter(requests.values()))[0]

    def take(self) -> Item:
        """Remove and return the item whose turn it is; its client and its request go to the end."""
        client, requests = next(iter(self.clients.items()))
        request, items = next(iter(requests.items()))
        item = items.popleft()
        self.count -= 1
        del self.clients[client], requests[request]
        if items:
            requests[request] = items
        if requests:
            self.clients[client] = requests
        return item


class Turns:
    """So many places, which clients take in turn."""

    def __init__(self, places: int) -> None:
        self.free = places
        self.waiting = FairQueue[asyncio.Future[None]]()

    @asynccontextmanager
    async def turn(self, asker: Asker) -> AsyncIterator[None]:
        """A place, for as long as the context lasts."""
        if self.free:
            self.free -= 1
        else:
            mine = asyncio.get_running_loop().create_future()
            self.waiting.put(asker, mine)
            try:
                await mine
            except asyncio.CancelledError:
                if mine.done() and not mine.cancelled():  # the place came at the same moment
                    self.leave()
                raise
        try:
            yield
        finally:
            self.leave()

    def leave(self) -> None:
        """Hand a place to whose turn it is."""
        while self.waiting:
            following = self.waiting.take()
            if not following.done():  # else it was given up
                following.set_result(None)
                return
        self.free += 1


class Room:
    """How many images may be inside at once: accepted, and neither answered nor given up.

    Args:
        status: of the refusal while there is no room.
        changed: called with how many there are, when that changes.
    """

    def __init__(
        self, most: int, status: int = 503, changed: Callable[[int], None] = lambda inside: None
    ) -> None:
        self.most, self.status, self.changed = most, status, changed
        self.inside = 0
        self.latest = 1.0  # seconds that the last request took: about what a full house needs to empty

    @contextmanager
    def admit(self, count: int) -> Iterator[None]:
        """Room for `count` images, for as long as the context lasts. Raises Refused: there is less; none of
        them is taken."""
        if self.inside + count > self.most:
            seconds = min(max(math.ceil(self.latest), 1), 60)
            sentence = f"the server is busy: ask again in {seconds} s"
            raise Refused(self.status, sentence, Retry_After=str(seconds))
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
    Questions are taken in turn (`FairQueue`), and a batch takes no longer than `LONGEST` where one question
    does not. A question that was given up (its task was cancelled) is left out. When a batch fails, each of
    its questions is tried alone, so that one that cannot be answered fails by itself.

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
        self.waiting = FairQueue[Waiting[Question, Answer]]()
        self.arrived = asyncio.Event()
        self.sizes: deque[int] = deque([1], maxlen=REMEMBERED)
        self.each: deque[float] = deque(maxlen=REMEMBERED)  # seconds of a question in the latest batches
        self.running: asyncio.Task[None] | None = None

    async def ask(self, question: Question, asker: Asker) -> Answer:
        """The answer, or what `work` raised. Cancelling gives the question up."""
        loop = asyncio.get_running_loop()
        waiting = Waiting[Question, Answer](question, loop.create_future(), loop.time())
        self.waiting.put(asker, waiting)
        self.arrived.set()
        if self.running is None or self.running.done():
            self.running = loop.create_task(self.answer_all())
        return await waiting.answer

    async def answer_all(self) -> None:
        """Answer until no request waits."""
        while self.waiting:
            await self.gather()
            if batch := self.take_batch():
                await self.answer(batch)

    async def gather(self) -> None:
        """Wait for as much company as there was lately, or until the first question has waited enough."""
        loop = asyncio.get_running_loop()
        begins = self.waiting.first().since + self.max_wait
        expected = min(max(self.sizes), self.max_batch)
        while len(self.waiting) < expected and loop.time() < begins:
            self.arrived.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(begins):
                    await self.arrived.wait()

    def take_batch(self) -> list[Waiting[Question, Answer]]:
        """The next batch; perhaps empty, when all that waited was given up."""
        # The least of them: where the machine stalls once, small batches after it would make a queue.
        each = min(self.each, default=0.0) or LONGEST / self.max_batch
        most = min(self.max_batch, max(int(LONGEST / each), 1))
        batch: list[Waiting[Question, Answer]] = []
        while self.waiting and len(batch) < most:
            waiting = self.waiting.take()
            if not waiting.answer.done():
                batch.append(waiting)
        # Questions that wait after a full batch count, too.
        self.sizes.append(len(batch) + len(self.waiting))
        return batch

    async def answer(self, batch: list[Waiting[Question, Answer]]) -> None:
        """Compute a batch and hand the answers out."""
        loop = asyncio.get_running_loop()
        questions = [each.question for each in batch]
        began = time.monotonic()
        try:
            answers = await loop.run_in_executor(self.executor, self.work, questions)
        except Exception as error:  # whatever it is belongs to the one who asked
            if len(batch) > 1:
                for each in batch:
                    await self.answer([each])
            elif not batch[0].answer.done():
                batch[0].answer.set_exception(error)
            return
        seconds = time.monotonic() - began
        self.each.append(seconds / len(batch))
        self.observe(len(batch), seconds)
        for each, answer in zip(batch, answers, strict=True):
            if not each.answer.done():
                each.answer.set_result(answer)
