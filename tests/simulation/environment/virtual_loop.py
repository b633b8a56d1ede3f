"""An event loop with a virtual clock: nothing waits, and nothing runs in a thread.

When nothing is ready, the clock jumps to the next timer. Work for a thread runs at once. So a run
depends on nothing but its seed.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


MOST_TURNS = 20_000
"""More turns of the loop than any schedule needs."""


class Deadlock(Exception):
    """Nothing is ready, and no timer will make anything ready; or work never ends."""


class _Jump(selectors.BaseSelector):
    """A selector without files; a wait moves the virtual clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.turns = 0
        self._keys: dict[FileDescriptorLike, selectors.SelectorKey] = {}

    def register(
        self, fileobj: FileDescriptorLike, events: int, data: Any = None
    ) -> selectors.SelectorKey:
        file = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        self._keys[fileobj] = selectors.SelectorKey(fileobj, file, events, data)
        return self._keys[fileobj]

    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def get_map(self) -> Mapping[FileDescriptorLike, selectors.SelectorKey]:
        return self._keys

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("everything waits, and for nothing that could still happen")
        self.turns += 1
        if self.turns > MOST_TURNS:
            raise Deadlock(f"work never ends, {self.turns} turns of the loop")
        # A timer runs only after its time has passed.
        self.now_s = math.nextafter(self.now_s + max(0.0, timeout), math.inf)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """The event loop. `time()` starts at 0."""

    def __init__(self) -> None:
        self._jump = _Jump()
        self.born: list[asyncio.Task[Any]] = []
        super().__init__(self._jump)
        self.set_task_factory(self._bear)

    def time(self) -> float:
        return self._jump.now_s

    def forget_turns(self) -> None:
        """Restart the count of the loop's turns."""
        self._jump.turns = 0

    def living(self) -> list[asyncio.Task[Any]]:
        """Return the tasks that are not done, oldest first."""
        self.born = [task for task in self.born if not task.done()]
        return list(self.born)

    def run_in_executor(
        self,
        executor: Any,
        func: Callable[[Unpack[_Ts]], _T],
        *args: *_Ts,
    ) -> asyncio.Future[_T]:
        answer: asyncio.Future[_T] = self.create_future()
        try:
            answer.set_result(func(*args))
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            answer.set_exception(error)
        return answer

    def _bear(self, loop: asyncio.AbstractEventLoop, coro: Any, **named: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **named)
        self.born.append(task)
        return task
