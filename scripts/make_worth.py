#!/usr/bin/env python3
"""Learn which flips are worth a try, from searches: the trees by which a search orders them.

    python scripts/make_worth.py SEARCH...

Each SEARCH is a dataset of ``mlgo-corpus search``, in a folder of its project's name. It prints what share of all that
the flips save a search would find with a part of them, in the order of trees that learned from other projects, and
writes the trees of all projects to ``mlgo_corpus/runs/search/worth.npz``.

Those in the package learned from 19 809 flips in the searches of ``make policy``, of both rounds: box2d, capnproto,
fmtlib, googletest, gperf, libebml, libjsoncpp, muparser, protobuf and pugixml. None is a project that
docs/search.md measures.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mlgo_corpus.files.markdown import markdown_table
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.learn.boosting import boosted
from mlgo_corpus.policies.boosting import trees_of_lightgbm
from mlgo_corpus.policies.models import Doubles, Trees
from mlgo_corpus.runs.search.worth import FEATURES, MODEL

TREES: Final = 40
PARAMETERS: Final = {
    "objective": "tweedie",
    "tweedie_variance_power": 1.5,
    "num_leaves": 16,
    "learning_rate": 0.1,
    "min_data_in_leaf": 40,
    "feature_fraction": 0.7,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "seed": 1,
}
MOST_BYTES: Final = 1000.0
"""A flip that saves more counts as one that saves so much: a few would outweigh all others."""
FOLDS: Final = 5
PARTS: Final = (0.05, 0.1, 0.2, 0.3, 0.5)
FEWEST: Final = 20
"""Of a module with fewer flips, no order is measured: a search tries all of them."""
INPUTS: Final = (*FEATURES, "decided")


class Flips(NamedTuple):
    """The flips whose effect is known.

    Attributes:
        inputs: of shape (n, 10).
        saved: bytes of text that each saved; 0 if none.
        project: each one's, by name.
        module: each one's, by number.
    """

    inputs: Doubles
    saved: Doubles
    project: NDArray[np.str_]
    module: NDArray[np.int64]

    def some(self, which: NDArray[np.bool_]) -> Flips:
        """Return some of them."""
        return Flips(self.inputs[which], self.saved[which], self.project[which], self.module[which])


def read_flips(folders: list[Path]) -> Flips:
    """Read the flips of searches."""
    inputs, saved, projects, modules = [], [], [], []
    count = 0
    for folder in folders:
        table = pq.read_table(folder / "flips.parquet")
        columns = [table[name].to_numpy() for name in FEATURES]
        inputs.append(np.stack([*columns, 1 - table["tried"].to_numpy()], axis=1, dtype=np.float64))
        saved.append(-table["text_effect"].to_numpy())
        projects += [folder.name] * len(table)
        found, numbers = np.unique(table["module"].to_numpy(), return_inverse=True)
        modules.append(numbers + count)
        count += len(found)
    flips = Flips(np.concatenate(inputs), np.concatenate(saved), np.array(projects), np.concatenate(modules))
    known = flips.some(~np.isnan(flips.saved))
    return known._replace(saved=np.maximum(known.saved, 0.0))


def fit(flips: Flips) -> Trees:
    """Return trees that learned from flips."""
    labels = np.minimum(flips.saved, MOST_BYTES)
    booster = boosted(PARAMETERS, flips.inputs, labels, np.ones(len(labels)), INPUTS, TREES, None)
    return trees_of_lightgbm(booster.dump_model(), [TensorSpec(name) for name in INPUTS])


def found_by(order: Doubles, flips: Flips) -> list[float]:
    """Return the share of what flips save that each of `PARTS` of a module's finds, the least of ``order`` first."""
    found, total = np.zeros(len(PARTS)), 0.0
    for module in np.unique(flips.module):
        which = np.flatnonzero(flips.module == module)
        if len(which) >= FEWEST:
            saved = np.cumsum(flips.saved[which][np.argsort(order[which])])
            found += [saved[max(0, int(len(which) * part) - 1)] for part in PARTS]
            total += saved[-1]
    return [float(share) for share in found / total]


def main() -> int:
    """Read, measure, fit and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("searches", nargs="+", type=Path)
    flips = read_flips(parser.parse_args().searches)
    projects = np.unique(flips.project)
    if len(projects) < 2:
        parser.error("expected searches of at least two projects: an order is measured on others than it learned from")
    fold = np.searchsorted(projects, flips.project) % FOLDS
    scores = np.empty(len(flips.saved))
    for number in range(FOLDS):
        scores[fold == number] = fit(flips.some(fold != number)).scores(flips.inputs[fold == number])
    orders = {"by trees of other projects": -scores, "at random": np.random.default_rng(0).random(len(scores))}
    print(f"{len(scores)} flips of {len(projects)} projects, of which {np.mean(flips.saved > 0):.1%} save something")
    rows = [(name, *(f"{share:.0%}" for share in found_by(order, flips))) for name, order in orders.items()]
    print(markdown_table(("order", *(f"{part:.0%} of the flips" for part in PARTS)), rows))
    trees = fit(flips)
    np.savez(MODEL, **trees.arrays())  # type: ignore[arg-type] # its own options have other names
    print(f"{MODEL.name}: {trees.described()}, {MODEL.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
