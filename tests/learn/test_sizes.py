"""Training a model of native size: on functions whose sizes are known by a rule, measured by other arithmetic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from mlgo_corpus import SizeModel, SizeModelReport, train_size_model
from mlgo_corpus.cli.main import app
from mlgo_corpus.dataset.sizes.table import IR2NATIVE_COLUMNS, VECTOR
from mlgo_corpus.errors import UsageError
from mlgo_corpus.size_model import is_table

pytest.importorskip("lightgbm", reason="training needs LightGBM")

SIDES = ("train", "train", "train", "validation", "test")


def functions(count: int, seed: int = 0, *, first: int = 0) -> pa.Table:
    """Return functions of which the size is 3 bytes for each instruction, 5 for each call, and a third more at -O2."""
    draw = np.random.default_rng(seed)
    instructions = draw.integers(1, 200, count)
    calls = draw.integers(0, 9, count)
    columns: dict[str, Any] = {name: np.zeros(count, np.int32) for name in IR2NATIVE_COLUMNS}
    columns |= {"opcode_add": instructions, "calls": calls, "initial_size": instructions}
    level = draw.choice(["z", "2"], count)
    size = np.rint((3 * instructions + 5 * calls) * np.where(level == "2", 4 / 3, 1)).astype(np.int64)
    columns |= {
        "module": np.array(["m"] * count),
        "function": np.array([f"f{number}" for number in range(first, first + count)]),
        "body_digest": np.array([f"{number:032x}" for number in range(first, first + count)]),
        "split": np.array([SIDES[number % len(SIDES)] for number in range(count)]),
        "opt_level": level,
        "target_triple": np.array(["x86_64-pc-linux-gnu"] * count),
        "native_size": pa.array([None if number % 50 == 49 else int(size[number]) for number in range(count)]),
    }
    return pa.table(columns)


def written(table: pa.Table, folder: Path) -> Path:
    (folder / "functions").mkdir(parents=True)
    pq.write_table(table, folder / "functions" / "part-00000-of-00001.parquet")
    return folder


class Trained:
    """A model of one table, measured on another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known, self.other = functions(1500), functions(400, 1, first=1400)
        self.paths = written(self.known, folder / "known"), written(self.other, folder / "other")
        self.report = self.train("model")
        self.model = SizeModel.load(folder / "model")

    def train(self, name: str, **options: Any) -> SizeModelReport:
        given = {"validation": [self.paths[1]], "trees": 120, **options}
        return train_size_model([self.paths[0]], self.folder / name, **given)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("sizes"))


def test_a_rule_is_found_again(trained: Trained) -> None:
    report = trained.report
    assert [one.name for one in report.measured] == ["test", "other"]
    assert all(one.errors.median < 0.05 and (one.errors.r2 or 0) > 0.99 for one in report.measured)
    assert report.functions == sum(
        side == "train" and size is not None
        for side, size in zip(*(trained.known[name].to_pylist() for name in ("split", "native_size")), strict=True)
    )
    weights = dict(zip(IR2NATIVE_COLUMNS, trained.model.base.weights[: len(IR2NATIVE_COLUMNS)], strict=True))
    # Both stand for the same number; at half of the levels there is a third more.
    assert 3 <= weights["opcode_add"] + weights["initial_size"] <= 4
    assert min(trained.model.base.weights) >= 0
    assert report.features[0] == VECTOR
    assert {"opt_level_is_z", "opt_level_is_2"} <= set(report.features)


def test_errors_are_those_of_the_predictions(trained: Trained) -> None:
    (_, measured) = trained.report.measured
    rows = trained.other.to_pylist()
    low, high = (trained.model.predict(trained.other)[place].tolist() for place in (1, 2))
    assert len(repr(trained.model)) < 150
    for frame in (trained.other.to_pandas(), pl.from_arrow(trained.other)):
        assert trained.model.predict(frame).low.tolist() == low
    predicted = trained.model.predict(trained.paths[1]).size.tolist()
    learned = {
        row["body_digest"] for row in trained.known.to_pylist() if row["split"] == "train" and row["native_size"]
    }
    kept = [
        (row["native_size"], *found)
        for row, *found in zip(rows, predicted, low, high, strict=True)
        if row["native_size"] is not None and row["body_digest"] not in learned
    ]
    seen = sum(row["native_size"] is not None and row["body_digest"] in learned for row in rows)
    assert (measured.seen, measured.errors.functions) == (seen, len(kept))
    assert seen > 0
    errors = sorted(abs(guess - size) / size for size, guess, _, _ in kept)
    assert measured.errors.median == pytest.approx(np.median(errors))
    assert measured.errors.mean == pytest.approx(sum(abs(guess - size) for size, guess, _, _ in kept) / len(kept))
    assert measured.errors.covered == pytest.approx(sum(a <= size <= b for size, _, a, b in kept) / len(kept))
    correlation = np.corrcoef(np.log([size for size, *_ in kept]), np.log([guess for _, guess, *_ in kept]))[0, 1]
    assert measured.errors.r2 == pytest.approx(correlation**2, abs=2e-3)
    assert all(0.8 < (one.errors.covered or 0) <= 1 for one in trained.report.measured)
    by_size = [errors.functions for what, _, errors in measured.kinds if what == "size"]
    by_level = {which: errors.functions for what, which, errors in measured.kinds if what == "optimisation level"}
    assert sum(by_size) == sum(by_level.values()) == len(kept)
    assert set(by_level) == {"2", "z"}
    # The baselines know one number: half of the functions have a third more bytes of each, and all have calls.
    assert len(measured.baselines) == 2
    assert all(errors.median > 2 * measured.errors.median for errors in measured.baselines.values())


def test_equal_tables_give_equal_bytes(trained: Trained) -> None:
    trained.train("again", trees=np.int64(120), seed=np.int32(0), coverage=np.float64(0.9))
    for path in (trained.folder / "model").iterdir():
        assert (trained.folder / "again" / path.name).read_bytes() == path.read_bytes()
    assert trained.train("other-seed", seed=1).digest != trained.report.digest


def test_a_body_counts_once_for_the_interval(trained: Trained) -> None:
    held = trained.known.slice(3, 1)
    assert held["split"].to_pylist() == ["validation"]
    often = written(pa.concat_tables([trained.known, *[held] * 300]), trained.folder / "often")
    report = train_size_model([often], trained.folder / "model-often", trees=120)
    assert report.digest == trained.report.digest


def test_an_interval_that_few_functions_fit_is_told(trained: Trained, tmp_path: Path) -> None:
    held = pc.equal(trained.known["split"], "validation")
    some = trained.known.filter(held).slice(0, 30)
    few = written(pa.concat_tables([trained.known.filter(pc.invert(held)), some]), tmp_path / "few")
    report = train_size_model([few], tmp_path / "model", validation=[trained.paths[1]], trees=120)
    said = "the interval is fitted on 30 functions only, of the side validation: it may hold fewer than 90 % of the"
    assert report.hints[1:] == (f"{said} sizes",)
    assert f"But {said} sizes." in (tmp_path / "model" / "README.md").read_text()
    assert all((one.errors.covered or 0) > 0.8 for one in report.measured)
    assert "the interval is fitted" not in "".join(trained.report.hints)


def test_the_card_and_the_metrics_tell_the_same(trained: Trained) -> None:
    card = (trained.folder / "model" / "README.md").read_text()
    metrics = json.loads((trained.folder / "model" / "metrics.json").read_text())
    assert [one["name"] for one in metrics["measured"]] == ["test", "other"]
    for one in metrics["measured"]:
        assert f"| this model | {one['errors']['functions']} | {one['errors']['median']:.1%} |" in card
    assert "optimisation level: z" in card


def test_a_model_for_llvm_takes_its_vector_alone(trained: Trained) -> None:
    trained.train("vector", features="ir2native", validation=[])
    found = SizeModel.load(trained.folder / "vector")
    assert found.is_llvms
    assert found.inputs == 214
    assert not trained.model.is_llvms


def test_the_verb_trains_models_of_tables(trained: Trained) -> None:
    words = ["train", str(trained.paths[0]), "--output", str(trained.folder / "cli"), "--trees", "120"]
    done = CliRunner().invoke(app, [*words, "--validation", str(trained.paths[1]), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["digest"] == trained.report.digest
    shown = CliRunner().invoke(app, [*words, "--force"])
    assert shown.exit_code == 0
    assert "native-size-0.1" in shown.stdout
    done = CliRunner().invoke(app, [*words, "--force", "--rounds", "3"])
    assert (done.exit_code, done.stderr) == (2, "mlgo-corpus: error: --rounds: a model of native size has none\n")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"trees": 0}, "trees"),
        ({"coverage": 1.0}, "expected more than 0, and less than 1"),
        ({"features": "llvm"}, "does not have the features of llvm"),
        ({"features": "nonsense"}, "expected all, or some of"),
        ({"validation": ["/nowhere"]}, "expected a table of functions"),
    ],
)
def test_requests_that_cannot_be_met_leave_nothing(options: dict[str, Any], said: str, trained: Trained) -> None:
    with pytest.raises(UsageError, match=said):
        trained.train("nothing", **options)
    assert not (trained.folder / "nothing").exists()


def test_what_was_learned_from_is_no_measure(trained: Trained, tmp_path: Path) -> None:
    seen = written(trained.known.filter(pc.equal(trained.known["split"], "train")), tmp_path / "seen")
    with pytest.raises(UsageError, match=r"^seen: the body of every function of it is learned from: nothing is left"):
        trained.train("nothing", validation=[seen])
    with pytest.raises(UsageError, match=r"^validation: a table is named twice, and would count twice$"):
        trained.train("nothing", validation=[trained.paths[1], f"{trained.paths[1]}/"])
    assert not (trained.folder / "nothing").exists()


def test_what_is_there_is_kept(trained: Trained, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is there already; `force` replaces it"):
        trained.train("model")
    with pytest.raises(UsageError, match=r"known: is not empty, and has no policy\.json"):
        trained.train("known", force=True)
    (trained.folder / "theirs").mkdir()
    (trained.folder / "theirs/policy.json").write_text("{}")
    with pytest.raises(UsageError, match="theirs: is there already, and not a model of size"):
        trained.train("theirs", force=True)
    empty = written(functions(50).filter(pa.array([False] * 50)), tmp_path / "empty")
    with pytest.raises(UsageError, match="no function has a native size"):
        train_size_model([empty], tmp_path / "model")
    with pytest.raises(UsageError, match=r"^all functions of the side train have the same body: there is nothing to"):
        train_size_model([written(functions(1), tmp_path / "one")], tmp_path / "model")


def test_tables_are_told_from_other_things(trained: Trained, tmp_path: Path) -> None:
    pq.write_table(pa.table({"native_size": [1]}), tmp_path / "single.parquet")
    pq.write_table(pa.table({"other": [1]}), tmp_path / "other.parquet")
    assert [is_table(path) for path in (*trained.paths, tmp_path / "single.parquet")] == [True] * 3
    assert [is_table(path) for path in (tmp_path, tmp_path / "none", tmp_path / "other.parquet")] == [False] * 3
    words = ["train", str(trained.paths[0]), str(tmp_path), "--output", str(tmp_path / "model")]
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, "found both" in done.stderr) == (2, True)
    done = CliRunner().invoke(app, ["train", str(trained.paths[0]), "-o", str(tmp_path / "m"), "--threshold", "0.4"])
    assert (done.exit_code, "a model of native size has none" in done.stderr) == (2, True)
