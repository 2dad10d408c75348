"""Map a function over many items in worker processes: results in order, and no item ends the run.

`parallel_map` sends chunks of items to ``jobs`` workers and yields their results in the items' order. A worker that
dies (a crash in a native library, the kernel's out-of-memory killer) or exceeds its time is replaced. Its items are
tried again one by one; for an item that kills its worker a second time, alone, the result is a `Lost`.

The workers are processes of this machine (`mlgo_corpus.engine.pool`), or a Ray cluster's (`mlgo_corpus.engine.ray`),
depending on an `EngineChoice`. Results, their order and the contents of a `Lost` are the same.

At most a few chunks per worker are under way or waiting to be yielded, so that memory does not grow with the number
of items. However the iteration ends (exhausted, closed, Ctrl-C, an exception of the function's), no worker is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from mlgo_corpus.engine.choice import HERE, RAY, EngineChoice, Lost, available_cpus
from mlgo_corpus.engine.pool import Pool
from mlgo_corpus.engine.queue import CHUNKS_AHEAD, CHUNKS_AT_HAND, chunks

Item = TypeVar("Item")
Result = TypeVar("Result")

# One item may take as long as this many others, which must not wait for it.
_LONG_CHUNKS_AHEAD = 1000


def parallel_map(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    jobs: int | None,
    limit: float,
    weigh: Callable[[Item], float] = lambda _: 0.0,
    long_items: bool = False,
    engine: EngineChoice = HERE,
    needs: Sequence[Path | str] = (),
) -> Iterator[Result | Lost]:
    """Yield ``function(item)`` for each item, in order, computed by up to ``jobs`` worker processes.

    Args:
        function: picklable by name (or a partial of such); its results are pickled.
        items: consumed as the work progresses, a few chunks ahead of the yielded results.
        jobs: the number of workers, at least 1; None for one on each available CPU.
        limit: seconds that one item may take.
        weigh: an item's share of a chunk (a chunk ends where the shares reach 1); by default only the count matters.
        long_items: whether items take long and their results are small: then none waits behind another at a worker,
            and many more are done before the first of them is yielded.
        engine: where the worker processes run.
        needs: absolute paths that the work requires: a machine of a cluster that lacks one is left out.

    Raises:
        Exception: the exception that ``function`` raised; the remaining items are abandoned.
        UsageError: there is no such cluster, or none of its machines has the required paths.
    """
    ahead = _LONG_CHUNKS_AHEAD if long_items else CHUNKS_AHEAD
    at_hand = 1 if long_items else CHUNKS_AT_HAND
    if engine.kind == RAY:
        from mlgo_corpus.engine.ray import ray_map

        chunked = chunks(items, weigh)
        yield from ray_map(function, chunked, engine, jobs, limit, at_hand=at_hand, ahead=ahead, needs=needs)
        return
    pool: Pool[Any] = Pool(
        function,
        jobs or available_cpus(),
        limit,
        engine.retries,
        at_hand=at_hand,
        ahead=ahead,
        may_fork=engine.may_fork,
    )
    try:
        yield from pool.run(chunks(items, weigh))
    finally:
        pool.close()
