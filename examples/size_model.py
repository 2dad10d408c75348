"""Train a model of native size on a table from ``mlgo-corpus ir2native``, and print its errors.

    pip install scikit-learn
    mlgo-corpus ir2native CORPUS --output sizes.parquet
    python examples/size_model.py sizes.parquet

IR2Native was a neural network; gradient-boosted trees need no tuning and only a few seconds. They are compared with two
simple models: a fixed number of bytes per IR instruction, and per unit of LLVM's own code-size cost. All three learn
from the rows of ``split`` train and are measured on those of test. Equal functions are never in both, or no function of
one module if the table is of a corpus that has a split.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from sklearn.ensemble import HistGradientBoostingRegressor


def load(path: Path) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Read features (n, f), sizes (n,), the simple models' inputs, and the split (n,) of all functions with a size."""
    table = pq.read_table(path / "functions" if path.is_dir() else path)
    table = table.filter(table["native_size"].is_valid())
    names = [name for name in table.column_names if name in NAMED or name.startswith(("opcode_", "pair_"))]
    features = np.column_stack([table[name].to_numpy() for name in names]).astype(np.float32)
    simple = {
        "IR instructions": features[:, [i for i, name in enumerate(names) if name.startswith("opcode_")]].sum(axis=1),
        "TTI code-size cost": table["initial_size"].to_numpy().astype(np.float64),
    }
    return features, table["native_size"].to_numpy().astype(np.float64), simple, np.array(table["split"].to_pylist())


NAMED = {
    *("initial_size", "blocks", "calls", "is_local", "is_linkonce_odr", "is_linkonce"),
    *("loops", "ir2native_max_loop_depth", "max_dom_tree_level"),
}


def main() -> None:
    """Train, and print a table of errors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, help="a file, or a dataset's folder")
    begin = time.perf_counter()
    features, sizes, simple, split = load(parser.parse_args().table)
    train, test = split == "train", split == "test"
    if not train.any() or not test.any():
        raise SystemExit("there is no function to learn from, or none to measure on: the corpus is too small")
    print(f"{train.sum()} functions to learn from, {test.sum()} to measure on, {features.shape[1]} features")

    predictions = {}
    for name, values in simple.items():
        scale = (values[train] @ sizes[train]) / (values[train] @ values[train])
        predictions[f"{name} x {scale:.2f}"] = scale * values[test]
    model = HistGradientBoostingRegressor(max_iter=300, random_state=0)
    model.fit(features[train], np.log1p(sizes[train]))  # sizes span four orders of magnitude: errors are relative
    predictions["gradient-boosted trees"] = np.expm1(model.predict(features[test]))

    print(f"{'model':34} mean error   median error   of all bytes")
    for name, predicted in predictions.items():
        errors = np.abs(predicted - sizes[test])
        relative = np.median(errors / np.maximum(sizes[test], 1))
        whole = predicted.sum() / sizes[test].sum() - 1
        print(f"{name:34} {errors.mean():6.1f} bytes {100 * relative:10.1f} % {100 * whole:+12.1f} %")
    print(f"in {time.perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    main()
