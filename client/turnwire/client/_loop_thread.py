"""An event loop in a thread, for code that blocks; and the way of a stream out of it.

Below: asyncio. Above: the transport for official SDKs that block. All users share one thread, which is started by the
first and ends with the last; a process that does not wait for that ends it at its exit.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

_HIGH_WATER: Final = 256 * 1024
"""Bytes that may wait for a reader before the stream is not asked for more."""
_JOIN_TIMEOUT: Final = 5.0
"""Seconds for what still runs when the loop ends."""


class LoopThread:
    """A running event loop in a daemon thread."""

    def __init__(self) -> None:
        """Starts the thread."""
        self.loop: Final = asyncio.new_event_loop()
        self._thread: Final = threading.Thread(target=self._run, name="turnwire-client", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine in the loop and waits for what it returns or raises. An interrupt cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """Cancels what runs, ends the loop and waits for the thread, a few seconds at most."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            if threading.current_thread() is not self._thread:
                self._thread.join(_JOIN_TIMEOUT)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self.loop.run_until_complete(asyncio.wait(tasks, timeout=_JOIN_TIMEOUT / 2))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            self.loop.close()


class _Shared:
    """The one thread of the process, while anybody uses it."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._thread: LoopThread | None = None
        self._users = 0

    def acquire(self) -> LoopThread:
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread()
            self._users += 1
            return self._thread

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users > 0 or self._thread is None:
                return
            thread, self._thread = self._thread, None
        thread.stop()

    def at_exit(self) -> None:
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()


_shared: Final = _Shared()
atexit.register(_shared.at_exit)


def acquire() -> LoopThread:
    """Returns the shared thread, started if it does not run. `release` it as often."""
    return _shared.acquire()


def release() -> None:
    """Ends the shared thread when nobody uses it any more."""
    _shared.release()


class Pipe:
    """Carries a stream of bytes from a generator in the loop to a thread that blocks.

    What has come while the thread was busy is handed to it at once: a fast stream costs no switch of threads per piece.
    """

    def __init__(
        self,
        source: AsyncGenerator[bytes, None],
        read_timeout: float | None,
        timed_out: Callable[[], Exception],
        cut_off: Callable[[], Exception],
    ) -> None:
        """Starts to read the source; in the loop's thread.

        Args:
            source: The stream; closed with the pipe.
            read_timeout: Seconds that a piece may take to come. None waits for ever.
            timed_out: Makes the exception for one that took longer.
            cut_off: Makes the exception for a stream that was ended before its end.
        """
        self._source: Final = source
        self._read_timeout: Final = read_timeout
        self._timed_out: Final = timed_out
        self._cut_off: Final = cut_off
        self._loop: Final = asyncio.get_running_loop()
        self._arrived: Final = threading.Condition()
        self._pieces: deque[bytes] = deque()
        self._waiting = 0
        self._ended = False
        self._failure: Exception | None = None
        self._room: Final = asyncio.Event()
        self._task: Final = self._loop.create_task(self._pump())

    def read(self) -> bytes:
        """Waits for more and returns everything that has come; empty at the end.

        Raises:
            Exception: What the source raised, the time-out, or that the pipe or its loop was closed.
        """
        with self._arrived:
            while not self._pieces and not self._ended:
                self._arrived.wait()
            data = b"".join(self._pieces)
            self._pieces.clear()
            full = self._waiting >= _HIGH_WATER
            self._waiting = 0
            failure = self._failure
        if full:
            self._in_loop(self._room.set)
        if not data and failure is not None:
            raise failure
        return data

    def close(self) -> None:
        """Closes the source, without waiting for that. Idempotent."""
        self._in_loop(self._task.cancel)

    def _in_loop(self, act: Callable[[], object]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act)

    async def _pump(self) -> None:
        failure: Exception | None = None
        try:
            while True:
                async with asyncio.timeout(self._read_timeout):
                    piece = await anext(self._source)
                self._room.clear()
                with self._arrived:
                    self._pieces.append(piece)
                    self._waiting += len(piece)
                    full = self._waiting >= _HIGH_WATER
                    self._arrived.notify()
                if full:
                    await self._room.wait()
        except StopAsyncIteration:
            pass
        except TimeoutError:
            failure = self._timed_out()
        except asyncio.CancelledError:
            failure = self._cut_off()
            raise
        except Exception as error:
            failure = error
        finally:
            with self._arrived:
                self._ended, self._failure = True, failure
                self._arrived.notify()
            await self._source.aclose()
