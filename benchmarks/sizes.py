"""Measure models of native size on projects that they do not know, and what LLVM's scores made of one are worth.

Each corpus is predicted by a model that was trained on all others; functions whose body is in another corpus do not
count. The corpora are of the user's own, made with `mlgo-corpus build`; Lua and zlib from ``tests/data`` are added.

With ``--scores``, each of the datasets is a pair: a trace with ``--ir2native-model`` and a search of the same corpus
with the same version of clang. The rank correlation of ``delta_size`` with the true differences is printed.

    benchmarks/sizes.py CORPUS... [--features GROUPS] [--tables FOLDER]
    benchmarks/sizes.py --scores TRACED FOUND [TRACED FOUND ...]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tarfile
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from mlgo_corpus import extract_corpus, ir2native_table, train_size_model

ROOT = Path(__file__).parents[1]
# Live sessions of LLVM 17 to 20 send something else under this name; the others differ between equal states.
NOT_OF_STATES = {"callee_basic_block_count", "node_count", "edge_count", "caller_users", "inlining_default"}
INT_MAX = 2**31 - 1


def make_tables(corpora: list[Path], folder: Path) -> dict[str, Path]:
    """Return the tables of the corpora, and of Lua and zlib; those that are there are kept."""
    objects = folder / "objects"
    for name in ("lua-clang22", "zlib-clang19"):
        place = folder / f"corpus-{name.partition('-')[0]}"
        if not place.exists():
            with tarfile.open(ROOT / "tests" / "data" / f"{name}.tar.gz") as tar:
                tar.extractall(objects / name, filter="data")
            extract_corpus([objects / name], place)
        corpora = [*corpora, place]
    tables = {}
    for corpus in corpora:
        name = corpus.name.removeprefix("corpus-")
        tables[name] = folder / f"sizes-{name}"
        ir2native_table(corpus, tables[name], verify=False, fractions=(0.9, 0.1, 0.0))
    return tables


def measure(tables: dict[str, Path], features: str, folder: Path) -> None:
    """Print a row for each table."""
    print("| project | functions | median error | R² of the logarithm | in the interval | by LLVM's cost (TTI) |")
    print("| --- | --- | --- | --- | --- | --- |")
    found = []
    for name, table in tables.items():
        others = [path for other, path in tables.items() if other != name]
        report = train_size_model(others, folder / "model", validation=[table], features=features, force=True)
        measured = report.measured[-1]
        errors = measured.errors
        cost = next((one for what, one in measured.baselines.items() if "TTI" in what), None)
        found.append(errors)
        cells = [name, str(errors.functions), f"{100 * errors.median:.1f} %", f"{errors.r2:.3f}"]
        cells += [f"{100 * (errors.covered or 0):.0f} %", "" if cost is None else f"{100 * cost.median:.1f} %"]
        print(f"| {' | '.join(cells)} |", flush=True)
    middle = statistics.mean(one.median for one in found)
    print(f"mean of the medians {100 * middle:.2f} %, of R² {statistics.mean(one.r2 or 0 for one in found):.4f}")


def ranks(values: Any) -> Any:
    """Return the ranks of numbers; equal ones share theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return ((2 * ends - counts - 1) / 2)[places]


def correlate(traced: Path, found: Path) -> None:
    """Print how the scores of inlined calls go with the bytes that not inlining them costs."""
    decisions = pq.read_table(traced / "observations")
    flips = pq.read_table(found / "flips.parquet")
    spoken = {"inlining_decision", "delta_size", "line", "column"}
    names = [name for name in decisions.column_names if name in flips.column_names and name not in spoken]
    names = [name for name in names if name not in NOT_OF_STATES]
    known = defaultdict(list)
    for row in decisions.to_pylist():
        known[tuple(row[name] for name in names)].append(row)
    scores, effects, costs = [], [], []
    for row in flips.to_pylist():
        same = known.get(tuple(row[name] for name in names), [])
        if row["text_effect"] is None or row["calls"] != 1 or row["tried"] != 0 or len(same) != 1:
            continue
        if same[0]["inlining_decision"] == 1 and same[0]["delta_size"] != INT_MAX:
            scores.append(-same[0]["delta_size"])
            effects.append(row["text_effect"])
            costs.append(-row["cost_estimate"])
    if len(scores) < 10:
        print(f"{traced.name}: too few flips of the same states: {len(scores)}")
        return
    by_score, by_cost = (np.corrcoef(ranks(values), ranks(effects))[0, 1] for values in (scores, costs))
    order, helps = np.argsort(scores, kind="stable"), np.array(effects) < 0
    first = helps[order[: len(order) // 4]].mean()
    print(f"{traced.name}: {len(scores)} flips, rank correlation {by_score:+.3f}, of the cost {by_cost:+.3f}")
    print(f"of the first quarter {100 * first:.1f} % save bytes, of all {100 * helps.mean():.1f} %")


def main() -> int:
    """Run the measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="*", type=Path)
    parser.add_argument("--features", default="all")
    parser.add_argument("--tables", type=Path, help="keep the tables here")
    parser.add_argument("--scores", nargs="+", type=Path, default=[], metavar="DATASET")
    options = parser.parse_args()
    for traced, found in zip(options.scores[::2], options.scores[1::2], strict=True):
        correlate(traced, found)
    if options.corpora:
        with tempfile.TemporaryDirectory() as scratch:
            tables = make_tables(options.corpora, options.tables or Path(scratch))
            measure(tables, options.features, Path(scratch))
    return 0


if __name__ == "__main__":
    sys.exit(main())
