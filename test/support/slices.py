"""Which tests are in which tier: sweeps, and slices of the slow tier; test/conftest.py uses these hooks.

`@pytest.mark.sweep(fast=N, slow=M)` on a test with many cases: of the cases that are not marked slow, one in N is in
the fast tier, and the others become slow. Of all its slow cases, one in M (default: N) is in a run of the slow tier,
and the others are marked `rare`. `--sweep I` chooses which: M consecutive values of I cover each case once. Cases are
chosen by the hashes of their names, so that all targets and sizes are covered.

`pytest --slice I/N`: the part of the slow tier that CI runs for a commit.
"""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Generator

import pytest

_STARTED = pytest.StashKey[float]()
LATE = "the time of the slice was over"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slice", metavar="I/N", type=_slice, help="one N-th of the slow tests, the I-th; I may be over N"
    )
    parser.addoption(
        "--sweep",
        metavar="I",
        type=int,
        default=0,
        help="which parameters of slow sweeps, and which rows of committed results",
    )
    parser.addoption("--slice-seconds", metavar="S", type=float, help="start none of them after S seconds of tests")


def _slice(text: str) -> tuple[int, int]:
    """`I/N` as numbers. argparse turns a ValueError into a message that names the option and its value."""
    i, _, n = text.partition("/")
    number, count = int(i), int(n)
    if count < 1 or number < 0:
        raise ValueError
    return number, count


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def in_slice(items: list[pytest.Item], number: int, count: int) -> list[pytest.Item]:
    """Every `count`-th of the slow tests in the order of their names' hashes: `count` consecutive values of `number`
    cover each test once. Tests marked `long` are in no slice.

    The order of the files depends on `number`, so that a time limit does not always leave out the same tests. The tests
    of a file stay together: they share the programs that it compiles.
    """
    candidates = (i for i in items if i.get_closest_marker("slow") and not i.get_closest_marker("long"))
    slow = sorted(candidates, key=lambda item: _hash(item.nodeid))
    chosen = {id(item) for item in slow[number % count :: count]}
    return sorted(
        (item for item in items if id(item) in chosen),
        key=lambda item: _hash(f"{number} {item.nodeid.partition('::')[0]}"),
    )


def thin_sweeps(items: list[pytest.Item], start: int = 0) -> None:
    """Mark as slow the cases of sweeps that the fast tier leaves out, as rare those that this slow run leaves out."""
    tests = defaultdict(list)
    for item in sorted(items, key=lambda item: _hash(item.nodeid)):
        if sum(mark.name == "sweep" for mark in item.own_markers) > 1:
            raise pytest.UsageError(f"{item.nodeid} is marked as a sweep twice")
        if item.get_closest_marker("sweep"):
            tests[item.nodeid.partition("[")[0]].append(item)
    for name, of_one in tests.items():
        share = of_one[0].get_closest_marker("sweep").kwargs
        slow = [item for item in of_one if item.get_closest_marker("slow")]
        left = [item for item in of_one if not item.get_closest_marker("slow")]
        for number, item in enumerate(left):
            if number % share.get("fast", 1):
                item.add_marker(pytest.mark.slow)
                slow.append(item)
        for number, item in enumerate(slow, start + _hash(name) % 60):  # not the first case of every test in one run
            if number % share.get("slow", share.get("fast", 1)):
                item.add_marker(pytest.mark.rare)


@pytest.hookimpl(wrapper=True)  # before `-m` is applied, after a folder's own conftest has marked more tests as slow
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, None, None]:
    thin_sweeps(items, config.getoption("--sweep"))
    yield
    given = config.getoption("--slice")
    if given is None:
        return
    chosen = in_slice(items, *given)
    kept = {id(item) for item in chosen}
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
    items[:] = chosen


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    limit = item.config.getoption("--slice-seconds")
    if limit is None or item.config.getoption("--slice") is None:
        return
    started = item.config.stash.setdefault(_STARTED, time.monotonic())
    if time.monotonic() - started >= limit:
        pytest.skip(LATE)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    given = config.getoption("--slice")
    if given is None:
        return
    ends = [r for kind in ("passed", "failed", "error", "skipped", "xfailed", "xpassed")
            for r in terminalreporter.stats.get(kind, ())]  # fmt: skip
    late = sum(r.skipped and LATE in str(r.longrepr) for r in ends)
    number, count = given
    text = f"slice {number % count}/{count} of the slow tests (--slice {number}/{count}): {len(ends) - late} ran"
    terminalreporter.write_line(text + (f", {late} did not: {LATE}" if late else ""))
