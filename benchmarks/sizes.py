"""Measure models of native size on projects that they do not know, and what LLVM's scores made of one are worth.

Each corpus is predicted by a model that was trained on all others; functions whose body is in another corpus do not
count. The corpora are of the user's own, made with `mlgo-corpus build`; Lua and zlib from ``tests/data`` are added. The
models learn from the corpora of ``--also``, too, and these are then measured by a model of the others.

With ``--llvm``, LLVM's own IR2Native network is run, too: on Lua and zlib, beside models of all other corpora. It is in
LLVM's sources, such as the tarball of ``apt-get source --download-only llvm-toolchain-19``.

With ``--scores``, each of the datasets is a pair: a trace with ``--ir2native-model`` and a search of the same corpus
with the same version of clang. The rank correlation of ``delta_size`` with the true differences is printed.

    benchmarks/sizes.py CORPUS... [--also CORPUS...] [--features GROUPS] [--tables FOLDER] [--llvm TARBALL]
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
import pyarrow as pa
import pyarrow.parquet as pq

from mlgo_corpus import SizeModel, extract_corpus, ir2native_table, train_size_model
from mlgo_corpus.dataset.sizes.table import IR2NATIVE_COLUMNS

ROOT = Path(__file__).parents[1]
# Live sessions of LLVM 17 to 20 send something else under this name; the others differ between equal states.
NOT_OF_STATES = {"callee_basic_block_count", "node_count", "edge_count", "caller_users", "inlining_default"}
INT_MAX = 2**31 - 1
NETWORK = "ir2native_x86_64_model/variables/variables"
# The projects that LLVM's network is measured on, which our models beside it do not know.
HELD = ("lua", "zlib")


def extract(name: str, place: Path, objects: Path) -> Path:
    """Make the corpus of the objects in the tests' data, if it is not there."""
    if not place.exists():
        with tarfile.open(ROOT / "tests" / "data" / f"{name}.tar.gz") as tar:
            tar.extractall(objects / name, filter="data")
        extract_corpus([objects / name], place)
    return place


def with_known(corpora: list[Path], folder: Path) -> list[Path]:
    """Return the corpora, and those of Lua and zlib."""
    known = {name: folder / f"corpus-{name.partition('-')[0]}" for name in ("lua-clang22", "zlib-clang19")}
    return [*corpora, *(extract(name, place, folder / "objects") for name, place in known.items())]


def make_tables(corpora: list[Path], folder: Path) -> dict[str, Path]:
    """Return the tables of the corpora; those that are there are kept."""
    tables = {}
    for corpus in corpora:
        name = corpus.name.removeprefix("corpus-")
        tables[name] = folder / f"sizes-{name}"
        ir2native_table(corpus, tables[name], verify=False, fractions=(0.9, 0.1, 0.0), compiler="clang-22")
    return tables


def measure(tables: dict[str, Path], also: dict[str, Path], features: str, folder: Path) -> None:
    """Print a row for each table, by a model of the others and of ``also``; then for each of ``also``."""
    print("| project | functions | median error | R² of the logarithm | in the interval | by LLVM's cost (TTI) |")
    print("| --- | --- | --- | --- | --- | --- |")

    def measured(learned: dict[str, Path], held: dict[str, Path]) -> None:
        report = train_size_model(
            list(learned.values()), folder / "model", validation=list(held.values()), features=features, force=True
        )
        for name, one in zip(held, report.measured[-len(held) :], strict=True):
            errors, cost = one.errors, next((one for what, one in one.baselines.items() if "TTI" in what), None)
            found.append(errors)
            cells = [name, str(errors.functions), f"{100 * errors.median:.1f} %", f"{errors.r2:.3f}"]
            cells += [f"{100 * (errors.covered or 0):.0f} %", "" if cost is None else f"{100 * cost.median:.1f} %"]
            print(f"| {' | '.join(cells)} |", flush=True)

    def sum_up() -> None:
        middle = statistics.mean(one.median for one in found)
        print(f"mean of the medians {100 * middle:.2f} %, of R² {statistics.mean(one.r2 or 0 for one in found):.4f}")
        found.clear()

    found: list[Any] = []
    for name, table in tables.items():
        measured({**also, **{other: path for other, path in tables.items() if other != name}}, {name: table})
    sum_up()
    if also:
        measured(tables, also)
        sum_up()


def number_at(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length, and where it ends."""
    number = shift = 0
    while data[at] & 128:
        number |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return number | data[at] << shift, at + 1


def entries(block: bytes) -> dict[str, bytes]:
    """Return the entries of a block of a sorted string table; keys share what they begin with."""
    found, key, at = {}, b"", 0
    end = len(block) - 4 * (1 + int.from_bytes(block[-4:], "little"))
    while at < end:
        shared, at = number_at(block, at)
        own, at = number_at(block, at)
        size, at = number_at(block, at)
        key = key[:shared] + block[at : at + own]
        found[key.decode()] = block[at + own : at + own + size]
        at += own + size
    return found


def block_at(data: bytes, handle: bytes) -> bytes:
    """Return the block that a handle names, its offset and size; a byte after it tells how it is compressed."""
    begin, at = number_at(handle, 0)
    size, _ = number_at(handle, at)
    block = data[begin : begin + size]
    if data[begin + size] == 0:
        return block
    return bytes(pa.decompress(block, number_at(block, 0)[0], codec="snappy", asbytes=True))


def read_network(llvm: Path) -> list[Any]:
    """Return the weights and biases of LLVM's network: TensorFlow's checkpoint, an index and all tensors' bytes."""
    files = {}
    with tarfile.open(llvm) as tar:
        for member in tar:
            if NETWORK in member.name:
                files[member.name.rpartition(".")[2]] = tar.extractfile(member).read()  # type: ignore[union-attr]
            if len(files) == 2:
                break
    index, values = files["index"], files["data-00000-of-00001"]
    footer = index[-48:]
    at = number_at(footer, number_at(footer, 0)[1])[1]  # after the handle of another index
    named: dict[str, bytes] = {}
    for handle in entries(block_at(index, footer[at:])).values():
        named |= entries(block_at(index, handle))
    found = []
    for name in ("0/kernel", "0/bias", "1/kernel", "1/bias"):
        entry = named[f"layer_with_weights-{name}/.ATTRIBUTES/VARIABLE_VALUE"]
        fields, at = {}, 0
        while at < len(entry):  # a message of protocol buffers; all are numbers but the shape and the checksum
            tag, at = number_at(entry, at)
            if tag & 7 == 0:
                fields[tag >> 3], at = number_at(entry, at)
            else:
                at = at + 4 if tag & 7 == 5 else sum(number_at(entry, at))
        begin = fields.get(4, 0)
        found.append(np.frombuffer(values[begin : begin + fields[5]], "<f4"))
    return found


def by_network(network: list[Any], inputs: Any) -> Any:
    """Return the sizes that LLVM's network gives functions; LLVM cuts them to whole bytes."""
    weights, bias, last, offset = network
    hidden = np.maximum(inputs.astype(np.float32) @ weights.reshape(-1, len(bias)) + bias, 0)
    return np.maximum(hidden @ last + offset, 0)


def labelled(tables: list[Path]) -> Any:
    """Return the functions of tables that have a size."""
    functions = pa.concat_tables([pq.read_table(table / "functions") for table in tables], promote_options="default")
    return functions.filter(functions["native_size"].is_valid())


def compare(tables: dict[str, Path], llvm: Path, folder: Path, scratch: Path) -> None:
    """Print how LLVM's network, our models and a factor on LLVM's cost predict Lua and zlib.

    The network is of LLVM 19's functions; our models are of clang 22's, which has features that 19 lacks.
    """
    by_19 = []
    for name in HELD:
        place = extract(f"{name}-clang19", folder / f"corpus19-{name}", folder / "objects")
        by_19.append(folder / f"sizes19-{name}")
        ir2native_table(place, by_19[-1], verify=False, compiler="clang-19")
    network = read_network(llvm)
    others = [path for name, path in tables.items() if name not in HELD]
    models = {}
    for features in ("all", "ir2native"):
        train_size_model(others, scratch / "model", features=features, force=True)
        models[features] = SizeModel.load(scratch / "model")
    print("| Lua and zlib by | functions | predicted by | median error | mean | R² of the logarithm |")
    print("| --- | --- | --- | --- | --- | --- |")
    for compiler, functions in (("19", labelled(by_19)), ("22", labelled([tables[name] for name in HELD]))):
        sizes = functions["native_size"].to_numpy().astype(np.float64)
        cost = functions["initial_size"].to_numpy()
        vectors = np.column_stack([functions[name].to_numpy() for name in IR2NATIVE_COLUMNS])
        found = {"LLVM's network": by_network(network, vectors)}
        found["LLVM's cost, times what fits best"] = cost * np.median(sizes / cost)
        for features, model in models.items():
            if compiler == "22" or features == "ir2native":
                found[f"a model, features {features}"] = model.predict(functions).size
        for what, predicted in found.items():
            away, logs = np.abs(predicted - sizes), np.log(sizes)
            r2 = 1 - ((np.log(np.maximum(predicted, 1)) - logs) ** 2).sum() / ((logs - logs.mean()) ** 2).sum()
            cells = [f"clang {compiler}", str(len(sizes)), what, f"{100 * np.median(away / sizes):.1f} %"]
            print(f"| {' | '.join(cells)} | {away.mean():.1f} bytes | {r2:.3f} |", flush=True)


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
    parser.add_argument("--also", nargs="+", type=Path, default=[], metavar="CORPUS")
    parser.add_argument("--features", default="all")
    parser.add_argument("--tables", type=Path, help="keep the tables here")
    parser.add_argument("--llvm", type=Path, metavar="TARBALL", help="LLVM's sources, for its own network")
    parser.add_argument("--scores", nargs="+", type=Path, default=[], metavar="DATASET")
    options = parser.parse_args()
    for traced, found in zip(options.scores[::2], options.scores[1::2], strict=True):
        correlate(traced, found)
    if options.corpora:
        with tempfile.TemporaryDirectory() as scratch:
            folder = options.tables or Path(scratch)
            tables = make_tables(with_known(options.corpora, folder), folder)
            measure(tables, make_tables(options.also, folder), options.features, Path(scratch))
            if options.llvm is not None:
                compare(tables, options.llvm, folder, Path(scratch))
    return 0


if __name__ == "__main__":
    sys.exit(main())
