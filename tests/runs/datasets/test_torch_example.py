"""The example with PyTorch: each row of its modules once, whoever reads it, normalised as ml-compiler-opt does it.

``make test`` does not install PyTorch: install it beside the test tools, and run this file.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from mlgo_corpus import read_vocabulary, write_vocabulary
from tests.conftest import PACKAGE_ROOT
from tests.runs.datasets.test_export import logs_of, make_dataset

pytestmark = [pytest.mark.trainers, pytest.mark.filterwarnings("ignore")]

EXAMPLE = Path(PACKAGE_ROOT) / "examples" / "torch_dataset.py"


@pytest.fixture(scope="module")
def example() -> Any:
    pytest.importorskip("torch", reason="PyTorch is not installed (make test does not)")
    spec = importlib.util.spec_from_file_location("torch_dataset", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["torch_dataset"] = module  # workers are told its classes by name
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A dataset in several files, and its vocabulary."""
    folder = tmp_path_factory.mktemp("torch")
    dataset = make_dataset(folder, logs_of("inlining"), rows_per_file=50)
    write_vocabulary(dataset, folder / "v")
    return dataset, folder / "v"


def plain_rows(dataset: Path, vocabulary: dict[str, np.ndarray[Any, Any]], names: list[str], modules: set[str]) -> Any:
    """Each row's features, element by element, and its decision."""
    rows = []
    for row in pq.read_table(dataset / "observations").to_pylist():
        if row["module"] in modules:
            shares = [
                np.float32(sum(float(edge) <= row[name] for edge in vocabulary[name]) / len(vocabulary[name]))
                for name in names
            ]
            seen = [*shares, *(share * share for share in shares), *(np.sqrt(share) for share in shares)]
            rows.append((*(round(float(value), 5) for value in seen), row["inlining_decision"]))
    return sorted(rows)


def given_rows(batches: Any) -> Any:
    return [
        (*(round(float(value), 5) for value in values), int(decision))
        for features, decisions in batches
        for values, decision in zip(features.numpy(), decisions.numpy(), strict=True)
    ]


@pytest.mark.parametrize("workers", [0, 3])
def test_each_row_once(example: Any, made: tuple[Path, Path], workers: int) -> None:
    dataset, vocabulary = made[0], read_vocabulary(made[1])
    modules = ["inlining.lapi", "inlining.lvm"]
    data = example.Decisions(dataset, vocabulary, modules, batch=16, buffer=40, seed=1)
    loader = example.DataLoader(data, batch_size=None, num_workers=workers)
    first = given_rows(loader)
    names = [name for name in data.features if name != "inlining_default"]
    assert data.features == names
    assert sorted(first) == plain_rows(dataset, vocabulary, names, set(modules))
    assert given_rows(loader) == first
    data.epoch = 1
    second = given_rows(example.DataLoader(data, batch_size=None, num_workers=workers))
    assert sorted(second) == sorted(first)
    assert second != first


def test_ranks_share_the_rows(example: Any, made: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, vocabulary = made[0], read_vocabulary(made[1])
    modules = ["inlining.lapi", "inlining.ltable", "inlining.lvm", "inlining.lzio"]
    rows = []
    distributed = example.torch.distributed
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    for rank in range(2):
        monkeypatch.setattr(distributed, "get_rank", lambda rank=rank: rank)
        mine = given_rows(example.Decisions(dataset, vocabulary, modules))
        assert mine
        rows += mine
    monkeypatch.undo()
    data = example.Decisions(dataset, vocabulary, modules)
    assert sorted(rows) == plain_rows(dataset, vocabulary, data.features, set(modules))


def test_no_module_is_on_two_sides(example: Any, made: tuple[Path, Path]) -> None:
    train, test = example.sides(made[0], None)
    assert not set(train) & set(test)
    assert sorted([*train, *test]) == ["inlining.lapi", "inlining.ltable", "inlining.lvm", "inlining.lzio"]


def test_it_trains(
    example: Any, made: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["torch_dataset.py", str(made[0]), "--vocab", str(made[1]), "--epochs", "2"])
    example.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "inlining_decision: 3 modules to learn from, 1 to measure on"
    assert re.fullmatch(r"on modules not seen: \d+\.\d % decided alike; always 0: \d+\.\d %", lines[1])
