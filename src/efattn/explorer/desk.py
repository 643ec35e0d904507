"""Where requests to one model wait: one thread computes, and takes all that ask the same thing in one go.

    requests  ->  a line, of a limited length  ->  one engine call for those with the same key  ->  to each its answer

Nobody waits for company: a request that comes alone is answered alone, and while it is, others gather.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, final

from efattn.explorer.limits import Limits, Refused
from efattn.explorer.metrics import Metrics

AT_ONCE = 4_096  # rows that are computed together


@final
@dataclass(frozen=True)
class Question:
    """ask: the answer. Questions with the same key that is not None may be answered by `together`, which gives for each
    of their `asking` its answer or the error to raise; rows: of its table."""

    ask: Callable[[], Any]
    rows: int = 0
    key: Hashable = None
    asking: Any = None
    together: Callable[[Sequence[Any]], Sequence[Any]] | None = None


@final
class Desk:
    """Of one model."""

    def __init__(self, name: str, limits: Limits, metrics: Metrics) -> None:
        self.name, self.limits, self.metrics = name, limits, metrics
        self._line = deque[tuple[Question, asyncio.Future[Any]]]()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"efattn-{name}")
        self._working: asyncio.Task[None] | None = None

    async def answer(self, question: Question) -> Any:
        """What the question asks for; Refused where the line is too long, or it takes too long."""
        if len(self._line) >= self.limits.waiting:
            raise Refused(429, "busy", f"{len(self._line)} requests to this model are waiting already. Try again soon.")
        future = asyncio.get_running_loop().create_future()
        self._line.append((question, future))
        self.metrics.waiting += 1
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        try:
            return await asyncio.wait_for(future, self.limits.seconds)
        except TimeoutError:
            raise Refused(
                408, "time", f"There was no answer within {self.limits.seconds:g} s. Ask about fewer rows, or later."
            ) from None
        finally:
            self.metrics.waiting -= 1

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._line:
            several = self._next()
            if not several:
                continue
            questions = [question for question, _ in several]
            answers = await loop.run_in_executor(self._thread, self._answers, questions)
            for (_, future), answer in zip(several, answers, strict=True):
                if future.done():  # who asked did not wait
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)

    def _next(self) -> list[tuple[Question, asyncio.Future[Any]]]:
        """The first in the line, and those who ask the same, as long as there is room for their rows."""
        taken, left, rows = list[tuple[Question, asyncio.Future[Any]]](), deque[Any](), 0
        while self._line:
            question, future = self._line.popleft()
            if future.done():
                continue
            same = not taken or (question.key is not None and question.key == taken[0][0].key)
            if same and (not taken or rows + question.rows <= AT_ONCE):
                taken.append((question, future))
                rows += question.rows
            else:
                left.append((question, future))
        self._line.extend(left)
        return taken

    def _answers(self, questions: Sequence[Question]) -> list[Any]:
        """In the thread. One for each: its answer, or the exception that there was instead."""
        first = questions[0]
        self.metrics.add("efattn_engine_calls_total", model=self.name)
        self.metrics.add("efattn_engine_questions_total", len(questions), model=self.name)
        if first.together is not None and len(questions) > 1:
            try:
                return list(first.together([question.asking for question in questions]))
            except Exception as error:  # told to each of those who asked
                return [error] * len(questions)
        found = list[Any]()
        for question in questions:
            try:
                found.append(question.ask())
            except Exception as error:
                found.append(error)
        return found
