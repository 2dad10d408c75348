"""Vocabularies: the files that numpy.quantile makes of the logs' values, read event by event."""

from __future__ import annotations

import io
import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgo_corpus import TensorSpec, convert_logs, export_tfrecord, read_tfrecord, read_vocabulary, write_vocabulary
from mlgo_corpus.errors import CorpusError, MlgoCorpusError, UsageError
from mlgo_corpus.files import quantiles
from mlgo_corpus.formats.logs.events import LogReader, Observation
from mlgo_corpus.vocab import SKIPPED
from tests.cli.test_cli import mlgo
from tests.runs.datasets.test_export import EVERYTHING, PlainLog, logs_of, make_dataset, random_log
from tests.runs.datasets.test_logs import KINDS

pytestmark = pytest.mark.whole


def values_of(logs: dict[str, bytes]) -> dict[str, np.ndarray[Any, Any]]:
    """Give all values of each feature and score, integers as int64."""
    found: dict[str, list[np.ndarray[Any, Any]]] = {}
    for data in logs.values():
        reader = LogReader(io.BytesIO(data))
        for event in reader:
            if isinstance(event, Observation):
                offset = 0
                for spec in reader.header.features:
                    part = np.frombuffer(event.tensors, spec.dtype, spec.element_count, offset)
                    found.setdefault(spec.name, []).append(part)
                    offset += spec.nbytes
    joined = {name: np.concatenate(parts) for name, parts in found.items()}
    return {name: each if each.dtype.kind == "f" else each.astype(np.int64) for name, each in joined.items()}


def lines_of(values: np.ndarray[Any, Any], buckets: int) -> str:
    """What ml-compiler-opt's tool writes of these values, were none of them NaN."""
    finite = values[np.isfinite(values)]
    return "".join(f"{edge!r}\n" for edge in np.quantile(finite, np.linspace(0, 1, buckets)).tolist())


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("datasets")
    return {kind: make_dataset(folder / kind, logs_of(kind)) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("jobs", [1, 2])
def test_real_logs(datasets: dict[str, Path], tmp_path: Path, kind: str, jobs: int) -> None:
    report = write_vocabulary(datasets[kind], tmp_path / "v", jobs=jobs)
    values = values_of(logs_of(kind))
    wanted = {name: lines_of(each, 1000) for name, each in values.items() if name not in SKIPPED[kind]}
    assert {
        path.name.removesuffix(".buckets"): path.read_text() for path in (tmp_path / "v").glob("*.buckets")
    } == wanted
    assert [each.feature for each in report.features] == list(wanted)
    scores = {"reward"} if kind != "inlining" else set()
    assert set(report.skipped) == (set(SKIPPED[kind]) - {"reward"}) | scores
    for each in report.features:
        finite = values[each.feature][np.isfinite(values[each.feature])]
        assert (each.values, each.not_finite) == (len(finite), len(values[each.feature]) - len(finite))
        assert (each.minimum, each.maximum, each.distinct) == (finite.min(), finite.max(), len(np.unique(finite)))
        edges = np.quantile(finite, np.linspace(0, 1, 1000))
        assert (each.buckets, each.duplicates) == (1000, int((np.diff(edges) == 0).sum()))
    assert (report.task, report.empty, report.exit_code) == (kind, (), 0)
    about = json.loads((tmp_path / "v/vocab.json").read_text())
    assert about["features"][0] == json.loads(json.dumps(report.as_json()["features"][0]))


def test_nan_in_real_logs() -> None:
    # Were it not left out, every one of the thousand numbers would be NaN.
    assert np.isnan(values_of(logs_of("regalloc-eviction"))["use_def_density"]).any()


def test_the_values_are_those_of_the_exported_records(datasets: dict[str, Path], tmp_path: Path) -> None:
    export_tfrecord(datasets["regalloc-eviction"], tmp_path / "t", min_steps=1)
    write_vocabulary(datasets["regalloc-eviction"], tmp_path / "v", buckets=77)
    vocabulary = read_vocabulary(tmp_path / "v")
    examples = [example.arrays() for example in read_tfrecord(tmp_path / "t")]
    for name, edges in vocabulary.items():
        values = np.concatenate([example[name].reshape(-1) for example in examples])
        assert edges.tolist() == np.quantile(values[np.isfinite(values)], np.linspace(0, 1, 77)).tolist()


@pytest.mark.parametrize("seed", range(4))
def test_all_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    generator = random.Random(seed)
    logs = {f"m{number}.log": random_log(generator, EVERYTHING, TensorSpec("gain", "float")) for number in range(3)}
    dataset = make_dataset(tmp_path / "in", logs, rows_per_file=7)
    if seed % 2:
        monkeypatch.setattr(quantiles, "DISTINCT_NUMBERS", 5)
        monkeypatch.setattr(quantiles, "HELD_NUMBERS", 0)
        monkeypatch.setattr(quantiles, "GATHERED_NUMBERS", 5)
        monkeypatch.setattr(quantiles, "_SAMPLE", 3)
        monkeypatch.setattr(quantiles, "_FEWEST_NEW", 1)
    report = write_vocabulary(dataset, tmp_path / "v", buckets=13, jobs=1)
    for name, values in values_of(logs).items():
        assert (tmp_path / f"v/{name}.buckets").read_text() == lines_of(values, 13), name
    assert (report.task, report.skipped) == (None, ("gain",))


def test_numbers_beyond_what_a_double_holds(tmp_path: Path) -> None:
    log = PlainLog((TensorSpec("x"),))
    numbers = [(1 << 53) + 1, (1 << 53) + 3, (1 << 62) + 1, -(1 << 62), 7]
    for number in numbers:
        log.observation([np.array([number])])
    dataset = make_dataset(tmp_path / "in", {"a.log": log.data})
    write_vocabulary(dataset, tmp_path / "v", buckets=9)
    assert (tmp_path / "v/x.buckets").read_text() == lines_of(np.array(numbers), 9)


def test_numbers_near_the_largest(tmp_path: Path) -> None:
    log = PlainLog((TensorSpec("x", "double"),))
    for number in (-1.7e308, 1.7e308):
        log.observation([np.array([number])])
    dataset = make_dataset(tmp_path / "in", {"a.log": log.data})
    with pytest.raises(MlgoCorpusError, match=r"x\.buckets: its values are too large: their quantiles are not finite"):
        write_vocabulary(dataset, tmp_path / "v", buckets=9)
    assert not (tmp_path / "v").exists()


def test_numbers_that_no_trainer_reads(tmp_path: Path) -> None:
    log = PlainLog((TensorSpec("x", "uint64_t"),))
    log.observation([np.array([1 << 63], np.uint64)])
    dataset = make_dataset(tmp_path / "in", {"a.log": log.data})
    with pytest.raises(CorpusError, match=r"column x: 9223372036854775808 is no int64; .*; `features` chooses others"):
        write_vocabulary(dataset, tmp_path / "v")


def test_features_without_a_finite_value(tmp_path: Path) -> None:
    log = PlainLog((TensorSpec("x", "float"), TensorSpec("y")))
    for _ in range(4):
        log.observation([np.array([np.nan], np.float32), np.array([3])])
    dataset = make_dataset(tmp_path / "in", {"a.log": log.data})
    report = write_vocabulary(dataset, tmp_path / "v", buckets=2)
    assert (report.empty, report.exit_code) == (("x",), 1)
    assert sorted(path.name for path in (tmp_path / "v").iterdir()) == ["vocab.json", "y.buckets"]
    assert (tmp_path / "v/y.buckets").read_text() == "3.0\n3.0\n"
    with pytest.raises(UsageError, match="no feature has a finite value"):
        write_vocabulary(dataset, tmp_path / "w", features=["x"])
    assert not (tmp_path / "w").exists()


def test_a_single_quantile_is_the_least_value(tmp_path: Path) -> None:
    log = PlainLog((TensorSpec("x"),))
    for number in (3, 5, 9):
        log.observation([np.array([number])])
    report = write_vocabulary(make_dataset(tmp_path / "in", {"a.log": log.data}), tmp_path / "v", buckets=1)
    assert (tmp_path / "v/x.buckets").read_text() == "3.0\n"
    (each,) = report.features
    assert (each.minimum, each.maximum, each.buckets, each.duplicates) == (3, 9, 1, 0)


def test_unique(datasets: dict[str, Path], tmp_path: Path) -> None:
    report = write_vocabulary(datasets["inlining"], tmp_path / "u", unique=True)
    write_vocabulary(datasets["inlining"], tmp_path / "v")
    every, some = read_vocabulary(tmp_path / "v"), read_vocabulary(tmp_path / "u")
    assert every.keys() == some.keys()
    for name, edges in every.items():
        assert some[name].tolist() == sorted(set(edges.tolist()))
    assert all(each.buckets == 1000 - each.duplicates for each in report.features)


def test_a_sample(datasets: dict[str, Path], tmp_path: Path) -> None:
    values = values_of(logs_of("regalloc-priority"))["weight"]
    report = write_vocabulary(
        datasets["regalloc-priority"], tmp_path / "v", sample=0.3, seed=3, features=["weight", "li_size"], buckets=11
    )
    counts = {each.feature: each.values for each in report.features}
    assert counts["weight"] == counts["li_size"]  # the same observations
    assert 0.2 * len(values) < counts["weight"] < 0.4 * len(values)
    drawn = values[np.random.default_rng(3).random(len(values)) < 0.3]
    assert (tmp_path / "v/weight.buckets").read_text() == lines_of(drawn, 11)
    numbers: Any = {"buckets": np.int64(10), "sample": np.float32(0.5), "seed": np.int32(1)}
    plain = write_vocabulary(datasets["inlining"], tmp_path / "plain", buckets=10, sample=0.5, seed=1)
    assert write_vocabulary(datasets["inlining"], tmp_path / "numpy", **numbers).features == plain.features


def test_some_modules(datasets: dict[str, Path], tmp_path: Path) -> None:
    logs = {
        name: data for name, data in logs_of("inlining").items() if name in ("inlining.lapi.log", "inlining.lvm.log")
    }
    (tmp_path / "names").write_text("inlining.lapi\ninlining.lvm\n")
    write_vocabulary(datasets["inlining"], tmp_path / "v", module_filter="l(api|vm)$")
    write_vocabulary(datasets["inlining"], tmp_path / "w", modules_file=tmp_path / "names")
    for name, values in values_of(logs).items():
        if name not in SKIPPED["inlining"]:
            for folder in ("v", "w"):
                assert (tmp_path / folder / f"{name}.buckets").read_text() == lines_of(values, 1000)


@pytest.mark.parametrize("name", ["../evil", "a/b", "..", ".hidden", "a\\b", "a\nb", "x" * 300, ""])
def test_names_that_are_no_file_s(tmp_path: Path, name: str) -> None:
    log = PlainLog((TensorSpec(name), TensorSpec("y")))
    for _ in range(3):
        log.observation([np.array([1]), np.array([2])])
    dataset = make_dataset(tmp_path / "in", {"a.log": log.data})
    with pytest.raises(UsageError, match="file's name; `features` chooses others"):
        write_vocabulary(dataset, tmp_path / "v")
    write_vocabulary(dataset, tmp_path / "v", features=["y"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "v"]
    assert sorted(path.name for path in (tmp_path / "v").iterdir()) == ["vocab.json", "y.buckets"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"buckets": 0}, "buckets 0: expected at least 1"),
        ({"buckets": 10**9}, "buckets 1000000000: expected at most 1000000"),
        ({"jobs": 0}, "jobs 0: expected at least 1"),
        ({"seed": -1}, "seed -1: expected at least 0"),
        ({"sample": 0.0}, "sample 0: expected more than 0, and at most 1"),
        ({"sample": 1.5}, "sample 1.5: expected more than 0, and at most 1"),
        ({"sample": float("nan")}, "sample nan: expected more than 0"),
        ({"features": ["nothing"]}, "features nothing: expected one of sroa_savings, "),
        ({"features": "nothing"}, "features nothing: expected one of sroa_savings, "),
        ({"buckets": 1.5}, "buckets 1.5: expected a whole number"),
        ({"sample": "some"}, "sample some: expected a number"),
        ({"module_filter": "nowhere"}, "has no decisions of a module with such a name"),
    ],
)
def test_options_that_cannot_be(datasets: dict[str, Path], tmp_path: Path, options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        write_vocabulary(datasets["inlining"], tmp_path / "v", **options)
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_not_replaced_silently(datasets: dict[str, Path], tmp_path: Path) -> None:
    write_vocabulary(datasets["inlining"], tmp_path / "v", features=["threshold"])
    with pytest.raises(UsageError, match="v: is there already; `force` replaces it"):
        write_vocabulary(datasets["inlining"], tmp_path / "v")
    write_vocabulary(datasets["inlining"], tmp_path / "v", features=["edge_count"], force=True)
    assert sorted(path.name for path in (tmp_path / "v").iterdir()) == ["edge_count.buckets", "vocab.json"]
    (tmp_path / "w").mkdir()
    (tmp_path / "w/threshold.buckets").write_text("mine")
    with pytest.raises(UsageError, match="is not empty, and not made by vocab; name another folder"):
        write_vocabulary(datasets["inlining"], tmp_path / "w", force=True)
    with pytest.raises(UsageError, match="cannot be written to a URL"):
        write_vocabulary(datasets["inlining"], "s3://bucket/v")


def test_a_dataset_without_observations(tmp_path: Path) -> None:
    log = PlainLog((TensorSpec("x"),))
    log.context("f")
    (tmp_path / "a.log").write_bytes(log.data)
    convert_logs(tmp_path / "a.log", tmp_path / "d")
    for stage in (write_vocabulary, export_tfrecord):
        with pytest.raises(UsageError, match="d: has no observations"):
            stage(tmp_path / "d", tmp_path / "v")  # type: ignore[operator]


def test_read_vocabulary_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"no vocabulary: it has no file FEATURE\.buckets"):
        read_vocabulary(tmp_path)
    (tmp_path / "x.buckets").write_text("1\n2.5\n")
    assert {name: edges.tolist() for name, edges in read_vocabulary(tmp_path).items()} == {"x": [1.0, 2.5]}
    (tmp_path / "y.buckets").write_text("1\ntwo\n")
    with pytest.raises(CorpusError, match=r"y\.buckets: expected a number on each line: could not convert string"):
        read_vocabulary(tmp_path)


def test_the_command(datasets: dict[str, Path], tmp_path: Path) -> None:
    options = ("--output", "v", "--feature", "use_def_density", "--feature", "mask", "--buckets", "4")
    done = mlgo("vocab", datasets["regalloc-eviction"], *options, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "use_def_density: 4 values infinite or NaN, left out\n")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["feature", "values", "distinct", "least", "greatest", "duplicates"]
    assert lines[2].split() == ["use_def_density", "6134", "262", "0", "1", "50", "%"]
    assert lines[3].split() == ["mask", "6138", "2", "0", "1", "50", "%"]
    assert re.fullmatch(r"v: 2 features of 2 modules in \d+\.\d\d s", lines[4])

    done = mlgo("vocab", datasets["regalloc-eviction"], "-o", "v", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "mlgo-corpus: error: v: is there already; --force replaces it\n")

    done = mlgo("vocab", datasets["regalloc-priority"], "-o", "p", "--json", "--jobs", "1", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert (report["task"], report["skipped"], report["modules"]) == ("regalloc-priority", ["priority", "reward"], 5)
    assert [each["feature"] for each in report["features"]] == ["li_size", "stage", "weight"]
    assert report["exit_code"] == 0
