"""The display of long work: a progress bar after two seconds if stderr is a terminal, otherwise nothing."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar, TaskID

AFTER = 2.0  # seconds
_verbose = False
_started = time.perf_counter()


def be_verbose() -> None:
    """From now on, `tell` prints."""
    global _verbose
    _verbose = True


def tell(text: str) -> None:
    """Print a step, with the seconds since the start, on stderr; only with --verbose."""
    if _verbose:
        print(f"qmlir: {time.perf_counter() - _started:6.2f} s  {text}", file=sys.stderr)


@contextmanager
def counter(quiet: bool) -> Iterator[Callable[[str], None]]:
    """A progress bar for work in this process. Yields a function to call with the text of each step."""
    text = "loading"
    with Progress(lambda: text, quiet) as bar:

        def step(now: str) -> None:
            nonlocal text
            text = now
            bar.update()

        yield step


class Progress:
    """A bar that shows the current step. `step` returns it: `text`, or `text 3 of 12` for a bar with an end."""

    def __init__(self, step: Callable[[], str], quiet: bool = False) -> None:
        self.active = sys.stderr.isatty() and not quiet
        self._step, self._start = step, time.monotonic()
        self._shown: tuple[Bar, TaskID] | None = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, t: TracebackType | None) -> None:
        if self._shown is not None:
            self._shown[0].stop()

    def update(self) -> None:
        """Draw the current step, unless it is too early or the bar is off."""
        if not self.active or time.monotonic() - self._start < AFTER:
            return
        text = self._step().partition("\n")[0] or "working"
        found = re.fullmatch(r"(.*?)(\d+) of (\d+)", text)
        done, total = (int(found[2]) - 1, int(found[3])) if found else (0, None)
        if self._shown is None:
            self._shown = _opened(text)
        bar, task = self._shown
        bar.update(task, description=text, completed=done, total=total)


def _opened(text: str) -> tuple[Bar, TaskID]:
    """A started bar on the terminal, and its task."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress as Bar, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20), TimeElapsedColumn())
    bar = Bar(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(text, total=None)
    bar.start()
    return bar, task
