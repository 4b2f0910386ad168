"""The measuring step on a Dask cluster (extra `dask`). Dask's scheduler distributes the candidates to free workers, and
retries those of lost workers; this module defines one measurement."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from ..core.progress import Step
from ..errors import QmlirError, UsageError
from ..runtime.artifact import Artifact, read_manifest
from ..targets import resolve
from ..targets.devices import present_device
from . import measure
from .measure import Caller, Result

_ALONE = threading.Lock()  # one measurement per process at a time
_defaults: dict[tuple[str, str, int], Caller] = {}


class Measurement(Protocol):
    """The methods of `distributed.Future` that are used."""

    def exception(self) -> BaseException | None: ...
    def result(self) -> Result: ...


class Cluster(Protocol):
    """The methods of `distributed.Client` that are used."""

    def nthreads(self) -> dict[str, int]: ...
    def scatter(self, data: bytes, *, broadcast: bool) -> object: ...
    def submit(self, func: Callable[..., Result], /, *args: object, pure: bool) -> Measurement: ...


def measure_on_worker(
    key: str, default: bytes, candidate: bytes, function: str, size: int, host: str, seconds: float
) -> Result:
    """On a worker: measure a candidate against the default, both given as the bytes of their files. The result is plain
    data."""
    with _ALONE:
        try:
            measure.check_host(host)
            manifest = read_manifest(default, "the default")
            if (key, function, size) not in _defaults:
                _defaults[key, function, size] = Caller(Artifact(default, manifest), function, size)
            caller = Caller(Artifact(candidate, read_manifest(candidate, "the candidate")), function, size)
            found = measure.versus(_defaults[key, function, size], caller, seconds)
            return {**found, "device": present_device(resolve(manifest.target)) or "unknown"}
        except QmlirError as e:
            return {"error": str(e).splitlines()[0]}


def measure_on_cluster(
    folder: Path, address: str | Cluster, seconds: float, step: Step = lambda text: None
) -> dict[str, Result]:
    """`measure.measure_folder` on the workers of a Dask cluster, one candidate per worker process at a time.

    Args:
        address: address of the scheduler, `tcp://host:8786`, or a `distributed.Client`.

    Raises:
        UsageError: no Dask, no cluster at the address, workers with several threads (they would disturb each other's
            measurements), or a folder that `emit` did not make.
    """
    plan, results = measure.read_plan(folder), measure.read_results(folder)
    files = {c["name"]: folder / c["file"] for c in plan["candidates"] if c.get("file")}
    first, *others = files
    client, close = _client(address)
    try:
        threads = client.nthreads()
        if not threads:
            raise UsageError(f"the cluster at {address} has no workers")
        if any(n != 1 for n in threads.values()):
            raise UsageError("workers that measure need one thread each: dask worker --nthreads 1")
        host = str(plan.get("host") or "")
        share = max(0.3, min(3.0, seconds * len(threads) / max(len(files), 1)))
        default = client.scatter(files[first].read_bytes(), broadcast=True)

        def submit(name: str, seconds: float) -> Measurement:
            given = (plan["sha256"], default, files[name].read_bytes(), plan["function"], plan["size"], host, seconds)
            return client.submit(measure_on_worker, *given, pure=False)

        wanted = [n for n in (first, *others) if n not in results]
        _gather(client, {submit(n, share): n for n in wanted}, results, folder, step)
        if "error" in results[first]:
            raise UsageError(f"the default cannot be measured: {results[first]['error']}")
        while (best := measure.unconfirmed(results)) is not None:
            step(f"measuring {best} again")
            results[best] = measure.slower(results[best], submit(best, 1.0).result())
            measure._write(folder, results)
    finally:
        close()
    return results


def _gather(
    client: Cluster, futures: dict[Measurement, str], results: dict[str, Result], folder: Path, step: Step
) -> None:
    """Collect the results as they arrive, and write the file after each."""
    from distributed import as_completed

    for i, future in enumerate(as_completed(list(futures))):  # type: ignore[no-untyped-call]
        name = futures[future]
        failed = future.exception()
        results[name] = {"error": f"a worker failed: {failed}"[:200]} if failed is not None else future.result()
        measure._write(folder, results)
        step(f"measuring {measure.progress(results)}, candidate {i + 1} of {len(futures)}")


def _client(address: str | Cluster) -> tuple[Cluster, Callable[[], object]]:
    try:
        import distributed
    except ImportError:
        raise UsageError("measuring on a cluster needs Dask: pip install 'qmlir[dask]'") from None
    if isinstance(address, distributed.Client):
        return address, lambda: None
    try:
        made = distributed.Client(address, timeout="10s")  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TimeoutError) as e:
        raise UsageError(f"there is no Dask scheduler at {address}: {str(e) or type(e).__name__}") from None
    return made, made.close
