"""Learn LLVM's own decisions from a dataset with PyTorch, and print how often the model agrees.

    pip install torch
    mlgo-corpus logs-to-parquet LOGS --output dataset       # or: mlgo-corpus trace CORPUS --output dataset
    mlgo-corpus vocab dataset --output vocab
    python examples/torch_dataset.py dataset --vocab vocab

`Decisions` is a ``torch.utils.data.IterableDataset`` over the Parquet files: it yields whole batches, made from Arrow
record batches without Python code per row. Files are divided among the ranks of ``torch.distributed`` and the
workers of the ``DataLoader``; a shuffle buffer mixes rows of different modules, in an order that the seed and the epoch
alone decide. A feature becomes the input of ml-compiler-opt's models: x, the share of its quantiles that are not
above it, with x squared and its root.

All rows of a module are on one side, so that the test rows were not seen: with ``--split CORPUS``, the sides that
``mlgo-corpus split`` made in that corpus; else by a hash of the module's name.
"""

from __future__ import annotations

import argparse
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from mlgo_corpus import read_vocabulary

# The decision of each task, and columns that reveal it, which are not features.
DECISIONS = {"inlining_decision": {"inlining_default"}, "index_to_evict": {"mask"}}
TEST_SHARE = 0.2


class Decisions(IterableDataset):
    """Batches of (features (n, f), decisions (n,)) from some of a dataset's modules.

    Args:
        dataset: its folder.
        vocabulary: the quantiles of each feature.
        modules: the modules to take.
        batch: the rows of a batch.
        buffer: how many rows are mixed; 0 to keep their order.
        seed: of the order.
    """

    def __init__(
        self,
        dataset: Path,
        vocabulary: dict[str, np.ndarray],
        modules: list[str],
        *,
        batch: int = 256,
        buffer: int = 1 << 15,
        seed: int = 0,
    ) -> None:
        self.files = sorted(dataset.glob("observations/*.parquet"))
        schema = pq.read_schema(self.files[0])
        self.decision = next(name for name in DECISIONS if name in schema.names)
        left_out = {self.decision, *DECISIONS[self.decision]}
        self.features = [name for name in schema.names if name in vocabulary and name not in left_out]
        self.edges = {name: vocabulary[name] for name in self.features}
        self.modules = pa.array(modules)
        self.batch, self.buffer, self.seed, self.epoch = batch, buffer, seed, 0

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield the batches of this rank and worker."""
        worker = get_worker_info()
        workers, number = (1, 0) if worker is None else (worker.num_workers, worker.id)
        ranks, rank = 1, 0
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            ranks, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
        share, shares = rank * workers + number, ranks * workers
        generator = np.random.default_rng((self.seed, self.epoch, share))
        waiting: list[tuple[np.ndarray, np.ndarray]] = []
        held = 0
        for rows in self._record_batches(share, shares):
            waiting.append((self._normalised(rows), self._column(rows, self.decision)[:, 0].astype(np.int64)))
            held += rows.num_rows
            while held >= self.buffer + self.batch:
                features, decisions = (np.concatenate(parts) for parts in zip(*waiting, strict=True))
                order = generator.permutation(held) if self.buffer else np.arange(held)
                given = (held - self.buffer) // self.batch * self.batch
                yield from self._tensors(features, decisions, order[:given])
                waiting = [(features[order[given:]], decisions[order[given:]])]
                held -= given
        if held:
            features, decisions = (np.concatenate(parts) for parts in zip(*waiting, strict=True))
            yield from self._tensors(
                features, decisions, generator.permutation(held) if self.buffer else np.arange(held)
            )

    def _record_batches(self, share: int, shares: int) -> Iterator[pa.RecordBatch]:
        """Read this worker's share of the row groups, and keep the rows of our modules."""
        number = 0
        for path in self.files:
            file = pq.ParquetFile(path)
            for group in range(file.num_row_groups):
                if number % shares == share:
                    columns = ["module", *self.features, self.decision]
                    for batch in file.iter_batches(batch_size=8192, row_groups=[group], columns=columns):
                        kept = batch.filter(pc.is_in(batch.column("module").dictionary_decode(), self.modules))
                        if kept.num_rows:
                            yield kept
                number += 1

    def _tensors(
        self, features: np.ndarray, decisions: np.ndarray, order: np.ndarray
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for first in range(0, len(order), self.batch):
            rows = order[first : first + self.batch]
            yield torch.from_numpy(features[rows]), torch.from_numpy(decisions[rows])

    def _column(self, rows: pa.RecordBatch, name: str) -> np.ndarray:
        """Return a column as (rows, elements), without a copy."""
        column = rows.column(name)
        flat = column.flatten() if pa.types.is_fixed_size_list(column.type) else column
        return flat.to_numpy(zero_copy_only=True).reshape(rows.num_rows, -1)

    def _normalised(self, rows: pa.RecordBatch) -> np.ndarray:
        """Return a model's inputs: for each element x, x squared and the root of x."""
        parts = []
        for name in self.features:
            edges = self.edges[name]
            # A NaN is above all of them, as in TensorFlow's Bucketize.
            parts.append(np.searchsorted(edges, self._column(rows, name), side="right") / np.float32(len(edges)))
        share = np.concatenate(parts, axis=1, dtype=np.float32)
        return np.concatenate((share, share * share, np.sqrt(share)), axis=1)


def sides(dataset: Path, corpus: Path | None) -> tuple[list[str], list[str]]:
    """Choose the modules to learn from, and those to measure on."""
    table = pq.read_table(dataset / "modules.parquet", columns=["module", "observations"])
    names = table.filter(pc.greater(table["observations"], 0))["module"].to_pylist()
    if corpus is not None:
        split = pq.read_table(corpus / "modules.parquet", columns=["module", "split"]).to_pydict()
        side = dict(zip(split["module"], split["split"], strict=True))
        return [name for name in names if side.get(name) == "train"], [
            name for name in names if side.get(name) == "test"
        ]
    ordered = sorted(names, key=lambda name: zlib.crc32(name.encode()))
    count = max(1, round(len(ordered) * TEST_SHARE))
    return ordered[count:], ordered[:count]


def accuracy(model: nn.Module, data: Decisions, majority: int) -> tuple[float, float]:
    """Return the share of decisions on which the model agrees, and that of a constant decision."""
    right = common = total = 0
    model.eval()
    with torch.no_grad():
        for features, decisions in data:
            right += int((model(features).argmax(1) == decisions).sum())
            common += int((decisions == majority).sum())
            total += len(decisions)
    return right / total, common / total


def main() -> None:
    """Train, and print the model's agreement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--vocab", type=Path, required=True, help="what mlgo-corpus vocab made of the dataset")
    parser.add_argument("--split", type=Path, metavar="CORPUS", help="a corpus that mlgo-corpus split divided")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--workers", type=int, default=0, help="processes that read")
    arguments = parser.parse_args()
    begin = time.perf_counter()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the model is small
    vocabulary = read_vocabulary(arguments.vocab)
    train_modules, test_modules = sides(arguments.dataset, arguments.split)
    if not train_modules or not test_modules:
        parser.error("too few modules to learn from some and measure on others")
    train = Decisions(arguments.dataset, vocabulary, train_modules, batch=64)
    test = Decisions(arguments.dataset, vocabulary, test_modules, buffer=0)

    counts = torch.zeros(0, dtype=torch.int64)
    width = 0
    for features, decisions in train:
        width = features.shape[1]
        more = torch.bincount(decisions, minlength=len(counts))
        more[: len(counts)] += counts
        counts = more
    outputs = max(len(counts), 2)
    model = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, outputs))
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    print(f"{train.decision}: {len(train_modules)} modules to learn from, {len(test_modules)} to measure on")
    for epoch in range(arguments.epochs):
        train.epoch = epoch
        model.train()
        for features, decisions in DataLoader(train, batch_size=None, num_workers=arguments.workers):
            loss = nn.functional.cross_entropy(model(features), decisions)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    alike, majority = accuracy(model, test, int(counts.argmax()))
    print(
        f"on modules not seen: {100 * alike:.1f} % decided alike; always {int(counts.argmax())}: {100 * majority:.1f} %"
    )
    print(f"in {time.perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    main()
