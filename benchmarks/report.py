"""Measure a report of a million observations: its time, the page's size, and its memory.

    python benchmarks/report.py [--rows 1000000] [--keep FOLDER]

Makes a dataset like inlining's (scalars) and one like eviction's (tensors of 33 elements), each of many modules, and
reports on them, each in a process of its own. The reference is to do it by hand: read the same table column by
column, describe each with pandas (of a tensor: all its numbers), and make a histogram with numpy.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mlgo_corpus import report_page
from mlgo_corpus.dataset.observations import column_names
from mlgo_corpus.dataset.tracetable import TraceRow, reward, write_trace_rows
from mlgo_corpus.formats.logs.events import parse_header

_LOGS = Path(__file__).parents[1] / "tests" / "data" / "training-logs"
_ROWS_PER_GROUP = 1 << 15
_ROWS_PER_MODULE = 200


def make(folder: Path, sample: str, rows: int) -> None:
    """Write a dataset with the columns of a real log and similarly distributed numbers."""
    with (_LOGS / sample).open("rb") as log:
        line = log.readline().rstrip(b"\n")
    header = parse_header(line)
    names = column_names(header)
    random = np.random.default_rng(0)
    (folder / "observations").mkdir(parents=True)
    modules = max(rows // _ROWS_PER_MODULE, 1)
    labels = [f"some/folder{number % 40}/module{number}.o" for number in range(modules)]
    writer = None
    for first in range(0, rows, _ROWS_PER_GROUP):
        count = min(_ROWS_PER_GROUP, rows - first)
        columns: dict[str, Any] = {}
        codes = np.minimum(np.arange(first, first + count) // _ROWS_PER_MODULE, modules - 1).astype(np.int32)
        columns["module"] = pa.DictionaryArray.from_arrays(codes, labels)
        columns["context"] = pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), ["f"])
        columns["observation"] = pa.array(np.arange(first, first + count))
        mask = random.random(count * 33) < 0.14
        for name, spec in zip(names, header.columns, strict=True):
            size = count * spec.element_count
            integers = spec.dtype.kind in "iu"
            values: Any = random.geometric(0.02, size) - 1 if integers else random.lognormal(-3, 2, size)
            if spec.element_count == 33:
                values = np.where(mask, np.minimum(values, 6 if integers else 1.0), 0)
                values = mask if name == "mask" else values
            flat = pa.array(values.astype(spec.dtype))
            columns[name] = flat if spec.is_scalar else pa.FixedSizeListArray.from_arrays(flat, spec.element_count)
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(
            folder / "observations" / "part-00000.parquet", table.schema, compression="zstd"
        )
        writer.write_table(table)
    assert writer is not None  # noqa: S101 - there are rows
    writer.close()
    sizes = random.lognormal(8, 1.5, modules).astype(int) + 50
    said = [
        TraceRow(
            name, "ok", "ok", "", cpu_s=float(size) / 1e4, wall_s=float(size) / 1e4, max_rss_bytes=int(8e7 + size * 99),
            observations=_ROWS_PER_MODULE, text_size=int(size), baseline_text_size=int(size * 1.02), faithful=False,
            reward=reward(int(size), int(size * 1.02)), baseline_cpu_s=float(size) / 2e4, header=line.decode(),
        )
        for name, size in zip(labels, sizes.tolist(), strict=True)
    ]  # fmt: skip
    write_trace_rows(folder / "modules.parquet", said, {"key": {"task": sample}})
    (folder / "dataset.json").write_text(json.dumps({"tool": "mlgo-corpus", "kind": "trace", "policy": "random"}))


def by_report(folder: Path) -> int:
    """Make the page; return its size."""
    return report_page([folder], folder / "report.html", force=True).page_bytes


def by_pandas(folder: Path) -> int:
    """Read the table by columns, let pandas describe each and numpy make a histogram; return the amount of results."""
    import pandas as pd  # type: ignore[import-untyped]

    said = ""
    path = folder / "observations" / "part-00000.parquet"
    for name in pq.read_schema(path).names[3:]:
        column = pq.read_table(path, columns=[name]).column(0).combine_chunks()
        flat = column.flatten() if pa.types.is_fixed_size_list(column.type) else column
        values = flat.to_numpy(zero_copy_only=False)
        counts, _ = np.histogram(values[np.isfinite(values)], bins=24)
        said += f"{name} {pd.Series(values).describe([0.05, 0.5, 0.95])} {(values == 0).sum()} {counts}"
    return len(said)


def measured(work: Callable[[Path], int], folder: Path) -> tuple[float, float, float, int]:
    """Run something in a process of its own.

    Returns:
        Its seconds by the clock and of all CPUs, its peak memory in MB, and what it gave.
    """
    receive, send = multiprocessing.get_context("spawn").Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(work, folder, send))
    process.start()
    send.close()
    found: tuple[float, float, float, int] = receive.recv()
    process.join()
    return found


def _run(work: Callable[[Path], int], folder: Path, send: Any) -> None:
    began = time.perf_counter()
    size = work(folder)
    seconds = time.perf_counter() - began
    usage = resource.getrusage(resource.RUSAGE_SELF)
    send.send((seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, size))


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path, help="keep the datasets there, and use those that are there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = given.keep or Path(scratch)
        print(f"{'dataset':<12}{'way':<22}{'seconds':>9}{'CPU s':>9}{'peak MB':>9}{'page MB':>9}")
        for name, sample in (("inlining", "inlining.lvm.log"), ("eviction", "regalloc-eviction.lvm.log")):
            folder = root / f"{name}-{given.rows}"
            if not folder.exists():
                make(folder, sample, given.rows)
            for way, work in (("report", by_report), ("pandas and numpy", by_pandas)):
                seconds, cpu, memory, size = measured(work, folder)
                page = f"{size / 1e6:9.2f}" if work is by_report else f"{'':>9}"
                print(f"{name:<12}{way:<22}{seconds:9.1f}{cpu:9.1f}{memory:9.0f}{page}", flush=True)


if __name__ == "__main__":
    main()
