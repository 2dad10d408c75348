"""Measure opening, ``stats`` and ``split`` of a corpus of a million modules, in seconds and in memory.

The rows are synthetic, without bitcode: ``modules.parquet`` and ``functions.parquet`` are as after an extraction and a
first ``split``. Modules come from 500 packages; most of their functions are unique, some are shared within the package,
and a few are everywhere, as in C++.

Each operation runs in a process of its own. The reference beside it is plain Python with dictionaries and a union-find
over the same tables. Seconds are the median of the rounds, memory is the maximum of all rounds.

    benchmarks/corpus.py [--modules N] [--functions N] [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mlgo_corpus.corpus.functions import function_schema
from mlgo_corpus.corpus.modules import INTEGER_FIELDS, ModuleRow
from mlgo_corpus.files.names import FUNCTIONS_NAME

ROOT = Path(__file__).parents[1]
PACKAGES = 500
MODULES_PER_GROUP = 4096

OPEN = "from mlgo_corpus import Corpus; print(len(Corpus.open({corpus!r})))"
JSON = "import json; print(len(json.load(open({corpus!r} + '/corpus_description.json'))['modules']))"
PLAIN_STATS = """
import collections
import pyarrow.parquet as pq
counts, seen, total, duplicates = collections.Counter(), set(), 0, 0
for batch in pq.ParquetFile({corpus!r} + "/modules.parquet").iter_batches():
    for row in batch.to_pylist():
        counts[row["reason"]] += 1
        if row["status"] == "ok":
            total += row["bitcode_bytes"]
            key = (row["bitcode_sha256"], row["cmd_sha256"])
            duplicates += key in seen
            seen.add(key)
print(total, duplicates, counts)
"""
PLAIN_SPLIT = """
import pyarrow.parquet as pq
parent, first, columns = {{}}, {{}}, ["module", "body_hash", "instructions"]
def find(name):
    while parent[name] != name:
        parent[name] = name = parent[parent[name]]
    return name
for batch in pq.ParquetFile({corpus!r} + "/functions.parquet").iter_batches(columns=columns):
    for row in batch.to_pylist():
        module = row["module"]
        parent.setdefault(module, module)
        if row["instructions"] >= 8:
            other = first.setdefault(row["body_hash"], module)
            parent[find(module)] = find(other)
print(len({{find(name) for name in parent}}))
"""


def make_corpus(folder: Path, modules: int, functions: int) -> None:
    """Write a corpus's manifest and tables, one row group at a time."""
    random = np.random.default_rng(0)
    package = np.sort(random.integers(0, PACKAGES, modules))
    names = [f"package-{one:03d}/src/part-{number % 40}/unit-{number}.o" for number, one in enumerate(package.tolist())]
    manifest = {"has_thinlto": False, "modules": names}
    (folder / "corpus_description.json").write_text(json.dumps(manifest, indent=2))
    digests = random.integers(0, 1 << 62, modules)
    digests[random.random(modules) < 0.05] = digests[0]  # duplicates
    sizes = np.exp(random.normal(10, 1, modules)).astype(np.int64)
    counts = random.poisson(functions, modules)
    schema = pa.schema([(name, pa.int64() if name in INTEGER_FIELDS else pa.string()) for name in ModuleRow._fields])
    with pq.ParquetWriter(folder / "modules.parquet", schema, compression="zstd", store_schema=False) as writer:
        for start in range(0, modules, MODULES_PER_GROUP):
            part = slice(start, start + MODULES_PER_GROUP)
            hexes = [f"{digest:064x}" for digest in digests[part].tolist()]
            made = {
                "module": names[part],
                "source": names[part],
                "status": ["ok"] * len(hexes),
                "reason": ["ok"] * len(hexes),
                "detail": [""] * len(hexes),
                "bitcode_bytes": sizes[part],
                "cmd_bytes": np.full(len(hexes), 1000),
                "bitcode_sha256": hexes,
                "cmd_sha256": hexes,
                "target_triple": ["x86_64-pc-linux-gnu"] * len(hexes),
                "producer": ["LLVM22.1.8"] * len(hexes),
                "opt_level": ["2"] * len(hexes),
                "main_file_name": [f"unit-{number}.cpp" for number in range(start, start + len(hexes))],
                "functions": counts[part],
            }
            columns = [pa.array(made.get(item.name, [None] * len(hexes)), item.type) for item in schema]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
        writer.add_key_value_metadata({"mlgo_corpus": json.dumps({"corpus_digest": "made up"})})
    make_functions(folder, names, package, counts, random)


def make_functions(
    folder: Path, names: list[str], package: np.ndarray, counts: np.ndarray, random: np.random.Generator
) -> None:
    """Write the functions: one in eight is shared in its package, one in 150 is everywhere."""
    from mlgo_corpus.corpus.open import Corpus
    from mlgo_corpus.corpus.select import corpus_digest
    from mlgo_corpus.runs.functions.run import _RULES

    corpus = Corpus.open(folder)
    about = {"rules": _RULES, "corpus": corpus_digest(corpus, corpus.names), "problems": []}
    schema = function_schema()
    with pq.ParquetWriter(folder / FUNCTIONS_NAME, schema, compression="zstd") as writer:
        for start in range(0, len(names), MODULES_PER_GROUP):
            part = slice(start, start + MODULES_PER_GROUP)
            rows = int(counts[part].sum())
            codes = np.repeat(np.arange(len(counts[part]), dtype=np.int32), counts[part])
            hashes = random.integers(1 << 40, 1 << 63, rows).astype(np.uint64)
            own = np.repeat(package[part], counts[part])
            kind = random.random(rows)
            shared = kind < 1 / 8
            hashes[shared] = (own[shared] * 1000 + random.integers(0, 1000, int(shared.sum()))).astype(np.uint64)
            everywhere = kind > 1 - 1 / 150
            hashes[everywhere] = random.integers(1 << 30, (1 << 30) + 20, int(everywhere.sum())).astype(np.uint64)
            label = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(names[part]))
            one = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["external"]))
            columns = [
                label,
                one,
                pa.array([f"function_{number}" for number in range(rows)]),
                one,
                pa.array(random.geometric(1 / 40, rows).astype(np.int32)),
                pa.array(hashes),
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
        writer.add_key_value_metadata({"mlgo_corpus": json.dumps(about)})


def run(*argv: str) -> tuple[float, int]:
    """Run a program; return its seconds and its peak memory in bytes."""
    started = time.perf_counter()
    process = subprocess.Popen(
        (sys.executable, *argv), stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{argv}: exit code {process.returncode}")
    return time.perf_counter() - started, usage.ru_maxrss * 1024


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", type=int, default=1_000_000)
    parser.add_argument("--functions", type=int, default=10, help="per module, on average")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        corpus = Path(name) / "corpus"
        corpus.mkdir()
        maker = multiprocessing.Process(target=make_corpus, args=(corpus, options.modules, options.functions))
        maker.start()  # not here: what a process has at its most, its children begin with
        maker.join()
        where = str(corpus)
        verb = ("-m", "mlgo_corpus.cli.main")
        ways = {
            "open: json.load alone": ("-c", JSON.format(corpus=where)),
            "open": ("-c", OPEN.format(corpus=where)),
            "stats: rows and dictionaries": ("-c", PLAIN_STATS.format(corpus=where)),
            "stats": (*verb, "stats", where),
            "stats --by folder": (*verb, "stats", where, "--by", "folder"),
            "split: union-find alone": ("-c", PLAIN_SPLIT.format(corpus=where)),
            "split": (*verb, "split", where, "--force"),
            "split --max-component 0.01": (*verb, "split", where, "--force", "--max-component", "0.01"),
            "dedup": (*verb, "dedup", where),
        }
        files = {path.name: path.stat().st_size / 1e6 for path in sorted(corpus.iterdir())}
        print(f"{options.modules} modules; " + ", ".join(f"{file} {size:.0f} MB" for file, size in files.items()))
        print(f"{'':34}{'seconds':>9}{'memory':>10}")
        for title, argv in ways.items():
            rounds = 1 if ": " in title and "split" in title else options.rounds
            taken = [run(*argv) for _ in range(rounds)]
            seconds, memory = statistics.median(one for one, _ in taken), max(most for _, most in taken)
            print(f"{title:34}{seconds:9.2f}{memory / 1e6:7.0f} MB", flush=True)


if __name__ == "__main__":
    main()
