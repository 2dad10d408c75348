"""Compare exports with protobuf, and vocabularies with numpy on all data: ``python benchmarks/export.py``.

The datasets are made of the real logs of ``tests/data/training-logs``, repeated, as in ``benchmarks/logs.py``:

- *inlining*: modules of 2 MB, 500 MB in all: long sequences of 40 integers;
- *eviction*: many functions of one module, 500 MB: short sequences of tensors, mostly floats;
- *random*: two columns of distinct floats, 200 MB: the hardest case for a vocabulary.

*protobuf* builds the same messages with the ``protobuf`` package (its C implementation, upb) from the same columns and
serialises them; it processes only the first 10 MB, so compare MB/s. Its records are compared with ours. *parquet* only
reads the columns, *crc* computes the checksums of the written bytes, *write* copies them to another file: each is
a part that cannot be avoided.

*numpy* reads a whole column, as a vocabulary's tool would, and calls ``numpy.quantile`` for each feature, one after the
other; *numpy, all* holds all columns at once, as ml-compiler-opt's does. Their edges are compared with ours.

Every figure is from a process of its own: seconds without the interpreter's start and imports, the median of three; the
CPU seconds of all its processes; and the peak memory of the largest. On a busy machine, the CPU seconds are more
meaningful. MB are 10^6 bytes, and MB/s are of log bytes. The page cache is warm.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from logs import MEGABYTE, make_log

PROJECT = Path(__file__).resolve().parent.parent
MODULE_MEGABYTES = 2
SMALL_MEGABYTES = 10


def make_random(path: Path, size: int) -> None:
    """Write a log of two features with distinct values."""
    from mlgo_corpus import LogWriter, TensorSpec
    from mlgo_corpus.formats.logs.blocks import Rows
    from mlgo_corpus.formats.logs.events import Context, LogHeader

    header = LogHeader((TensorSpec("uniform", "double"), TensorSpec("lognormal", "double")))
    generator = np.random.default_rng(0)
    with LogWriter(path, header=header) as log:
        log.write_event(Context("", b'{"context":""}\n'))
        for number in range(size // 16 // 65536 + 1):
            block = np.column_stack([generator.random(65536), generator.lognormal(0, 4, 65536)])
            log.write_rows(Rows(number * 65536, block.view("V16").reshape(-1), None))


def make_dataset(kind: str, folder: Path, size: int) -> Path:
    """Make a dataset from logs of the given size."""
    from mlgo_corpus import convert_logs

    logs = folder / f"{kind}-logs"
    logs.mkdir()
    if kind == "inlining":
        first = make_log(kind, logs / "m0000.log", MODULE_MEGABYTES * MEGABYTE)
        for number in range(1, size // (MODULE_MEGABYTES * MEGABYTE)):
            os.link(first, logs / f"m{number:04d}.log")
    elif kind == "random":
        make_random(logs / "m.log", size)
    else:
        make_log(kind, logs / "m.log", size)
    convert_logs(logs, folder / kind)
    return folder / kind


# --- what a child does: it prints JSON


def ours(dataset: Path, output: Path, jobs: int) -> dict[str, Any]:
    """Export."""
    from mlgo_corpus import export_tfrecord

    report = export_tfrecord(dataset, output, reward="zero", jobs=jobs)
    return {"bytes": report.output_bytes, "steps": report.steps, "sequences": report.sequences}


def protobuf(dataset: Path, output: Path, rows: int) -> dict[str, Any]:
    """Export the first rows, only whole sequences, with protobuf's own encoder."""
    from mlgo_corpus.dataset.rows import column_values, open_rows
    from mlgo_corpus.formats.records.tfrecord import encode_record
    from tests.runs.datasets import tensorflow_proto as proto

    opened = open_rows(dataset)
    header = opened.header
    specs = [spec for spec in header.features if spec.name != "reward"]
    examples: dict[Any, Any] = {}
    runs = list(opened.iter_runs(0, rows))
    for begin, batch in opened.iter_batches([spec.name for spec in specs], 0, rows):
        columns = [column_values(batch, spec.name, spec.element_count).tolist() for spec in specs]
        floats = [spec.dtype.kind == "f" for spec in specs]
        for run in runs:
            first, after = max(run.first - begin, 0), min(run.after - begin, batch.num_rows)
            if first >= after:
                continue
            example = examples.setdefault((run.module, run.context), proto.SequenceExample())
            lists = example.feature_lists.feature_list
            for spec, column, is_float in zip(specs, columns, floats, strict=True):
                steps = lists[spec.name].feature
                for values in column[first:after]:
                    feature = steps.add()
                    (feature.float_list if is_float else feature.int64_list).value.extend(values)
            for _ in range(after - first):
                lists["reward"].feature.add().float_list.value.append(0.0)
    with output.open("wb") as file:
        for example in examples.values():
            if len(example.feature_lists.feature_list["reward"].feature) > 2:
                file.write(encode_record(example.SerializeToString(deterministic=True)))
    return {"bytes": output.stat().st_size}


def parquet(dataset: Path) -> dict[str, Any]:
    """Read the columns."""
    from mlgo_corpus.dataset.rows import open_rows

    opened = open_rows(dataset)
    names = [spec.name for spec in opened.header.features]
    (ranges,) = opened.ranges()
    return {"rows": sum(batch.num_rows for _, batch in opened.iter_batches(names, *ranges))}


def crc(written: Path) -> dict[str, Any]:
    """Compute checksums of a file's bytes."""
    import google_crc32c

    with written.open("rb") as file:
        while block := file.read(1 << 20):
            google_crc32c.value(block)
    return {}


def write(written: Path, output: Path) -> dict[str, Any]:
    """Copy a file's bytes."""
    with written.open("rb") as file, output.open("wb") as target:
        while block := file.read(1 << 20):
            target.write(block)
    return {}


def vocab(dataset: Path, output: Path, jobs: int) -> dict[str, Any]:
    """Write a vocabulary."""
    from mlgo_corpus import write_vocabulary

    report = write_vocabulary(dataset, output, jobs=jobs, force=True)
    return {"features": len(report.features), "values": sum(each.values for each in report.features)}


def numpy_quantiles(dataset: Path, vocabulary: Path, *, everything: bool) -> dict[str, Any]:
    """Make the quantiles of a vocabulary's features with numpy, and compare them."""
    import pyarrow.parquet as pq

    from mlgo_corpus import read_vocabulary

    wanted = read_vocabulary(vocabulary)
    files = sorted(dataset.glob("observations/*.parquet"))

    def values_of(names: list[str]) -> dict[str, Any]:
        tables = [pq.read_table(file, columns=names) for file in files]
        found = {}
        for name in names:
            parts = [chunk for table in tables for chunk in table[name].chunks]
            flat = [part.flatten() if hasattr(part.type, "list_size") else part for part in parts]
            found[name] = np.concatenate([part.to_numpy(zero_copy_only=True) for part in flat])
        return found

    held = values_of(list(wanted)) if everything else {}
    for name, edges in wanted.items():
        values = held[name] if everything else values_of([name])[name]
        if values.dtype.kind == "f":
            values = values[np.isfinite(values)]
        if np.quantile(values, np.linspace(0, 1, 1000)).tolist() != edges.tolist():
            raise SystemExit(f"{name}: numpy's quantiles are others")
    return {}


def child(argv: list[str]) -> None:
    """Run one action, and print its time and memory."""
    name, *rest = argv
    paths = [int(word) if word.isdigit() else Path(word) for word in rest]
    sys.path.insert(0, str(PROJECT))
    import mlgo_corpus.export
    import mlgo_corpus.vocab  # noqa: F401
    from tests.runs.datasets import tensorflow_proto  # noqa: F401 - imports are not measured

    work: dict[str, Any] = {
        "make": lambda kind, folder, size: {"dataset": str(make_dataset(str(kind), folder, size))},
        "ours": ours,
        "protobuf": protobuf,
        "check": check_prefix,
        "parquet": parquet,
        "crc": crc,
        "write": write,
        "vocab": vocab,
        "numpy": lambda *given: numpy_quantiles(*given, everything=False),
        "numpy-all": lambda *given: numpy_quantiles(*given, everything=True),
    }
    before = time.process_time()
    started = time.perf_counter()
    result = work[name](*paths)
    seconds = time.perf_counter() - started
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(each.ru_utime + each.ru_stime for each in used) - before
    peak = max(each.ru_maxrss for each in used)
    print(json.dumps({**result, "seconds": seconds, "cpu": cpu, "peak": peak * 1024}))


# --- the table


def run(*argv: object, rounds: int) -> dict[str, Any]:
    """Run a child several times; return the result with the median of the seconds."""
    results = []
    for _ in range(rounds):
        if argv[0] == "ours" and isinstance(argv[2], Path):
            argv[2].unlink(missing_ok=True)
        done = subprocess.run(
            (sys.executable, __file__, "--child", *map(str, argv)), stdout=subprocess.PIPE, text=True, check=True
        )
        results.append(json.loads(done.stdout.splitlines()[-1]))
    medians = {name: statistics.median(each[name] for each in results) for name in ("seconds", "cpu")}
    return {**results[0], **medians}


def check_prefix(slow: Path, fast: Path) -> dict[str, Any]:
    """Compare protobuf's records with the first of ours, except the last, whose sequence may be cut."""
    from mlgo_corpus.formats.records.tfrecord import read_records

    with slow.open("rb") as mine, fast.open("rb") as other:
        *records, last = read_records(mine)
        theirs = read_records(other)
        if any(record != next(theirs) for record in records) or len(last) > len(next(theirs)):
            raise SystemExit(f"{fast}: other records than protobuf's")
    return {}


def line(kind: str, method: str, size: float, result: dict[str, Any], note: str = "") -> None:
    """Print a row."""
    seconds, peak = result["seconds"], result["peak"] / MEGABYTE
    speed = size / MEGABYTE / seconds
    figures = f"{size / MEGABYTE:8.1f}{seconds:9.2f}{result['cpu']:8.2f}{speed:9.1f}{peak:9.0f}"
    print(f"{kind:10}{method:18}{figures}  {note}", flush=True)


def compare(kind: str, folder: Path, size: int, rounds: int) -> None:
    """Measure one dataset, and print its rows."""
    dataset = Path(run("make", kind, folder, size, rounds=1)["dataset"])
    from mlgo_corpus.dataset.rows import open_rows

    opened = open_rows(dataset)
    rows = sum(part.rows for part in opened.parts)
    row_bytes = opened.header.tensor_bytes + opened.header.score_bytes
    size = rows * row_bytes
    written = folder / f"{kind}.tfrecord"
    fast = {}
    for jobs in (1, 2):
        fast[jobs] = run("ours", dataset, written, jobs, rounds=rounds)
        line(kind, f"ours, {jobs} job{'s' * (jobs > 1)}", size, fast[jobs], f"{fast[jobs]['sequences']} sequences")
    part = min(rows, SMALL_MEGABYTES * MEGABYTE // row_bytes)
    slow = run("protobuf", dataset, folder / "slow.tfrecord", part, rounds=1)
    run("check", folder / "slow.tfrecord", written, rounds=1)
    times = (size / fast[1]["cpu"]) / (part * row_bytes / slow["cpu"])
    line(kind, "protobuf", part * row_bytes, slow, f"1 job takes {times:.0f} times less of the processor")
    for method, paths in (("parquet", (dataset,)), ("crc", (written,)), ("write", (written, folder / "copy"))):
        line(kind, f"floor: {method}", size, run(method, *paths, rounds=rounds))
    vocabulary = folder / f"{kind}-vocab"
    for jobs in (1, 2):
        result = run("vocab", dataset, vocabulary, jobs, rounds=rounds)
        line(kind, f"vocab, {jobs} job{'s' * (jobs > 1)}", size, result, f"{result['features']} features")
    line(kind, "numpy", size, run("numpy", dataset, vocabulary, rounds=1))
    line(kind, "numpy, all", size, run("numpy-all", dataset, vocabulary, rounds=1))
    for path in (written, folder / "copy", folder / "slow.tfrecord"):
        path.unlink()


def main() -> None:
    """Measure, and print a table."""
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sets", nargs="+", default=["inlining", "eviction", "random"])
    arguments = parser.parse_args()
    print(f"Python {platform.python_version()}, numpy {np.__version__}, {os.cpu_count()} CPUs")
    print(f"{'set':10}{'method':18}{'MB':>8}{'seconds':>9}{'CPU s':>8}{'MB/s':>9}{'peak MB':>9}")
    with tempfile.TemporaryDirectory() as name:
        for kind in arguments.sets:
            size = arguments.megabytes * MEGABYTE * (2 if kind == "random" else 5) // 5
            compare(kind, Path(name), size, arguments.rounds)


if __name__ == "__main__":
    main()
