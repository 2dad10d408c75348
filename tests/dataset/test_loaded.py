"""A log in memory: arrays in their tensors' shapes, contexts, damage, and the same table as in a dataset."""

from __future__ import annotations

import gzip
import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from mlgo_corpus import LogWriter, TensorSpec, convert_logs, read_log
from mlgo_corpus.errors import FormatError, TruncatedError
from mlgo_corpus.formats.logs.events import Context, Observation
from mlgo_corpus.formats.logs.tensors import ELEMENT_TYPES
from tests.runs.datasets.test_logs import (
    KINDS,
    LOGS,
    column_bytes,
    header_of,
    observations_of,
    plain_log,
    real_logs,
    record_type,
)

LARGE = LOGS / "regalloc-eviction.lvm.log"


def plain_contexts(path: Path) -> list[tuple[str | None, list[Observation]]]:
    contexts: list[tuple[str | None, list[Observation]]] = []
    log = plain_log(path.read_bytes())
    assert not isinstance(log, FormatError)
    for event in log.events:
        if isinstance(event, Context):
            contexts.append((event.name, []))
        else:
            contexts[-1][1].append(event)
    return contexts


@pytest.mark.parametrize("path", real_logs(), ids=lambda path: path.name)
def test_real_logs(path: Path) -> None:
    log = read_log(path)
    contexts = plain_contexts(path)
    observations = [observation for _, run in contexts for observation in run]
    header = header_of(path)
    assert (log.module, log.header, log.damage) == (path.name.removesuffix(".log"), header, None)
    assert (log.features, log.score, log.advice) == (header.features, header.score, None)
    assert len(log) == len(observations)
    assert repr(log) == f"TrainingLog({log.module!r}, contexts={len(contexts)}, observations={len(observations)})"

    starts = np.cumsum([0, *(len(run) for _, run in contexts)]).tolist()
    assert [(item.name, item.first_row, item.count) for item in log.contexts] == [
        (name, start, len(run)) for (name, run), start in zip(contexts, starts, strict=False)
    ]
    whole = b"".join(item.tensors + (item.score or b"") for item in observations)
    records = np.frombuffer(whole, record_type(header))
    arrays = log.to_numpy()
    assert list(arrays) == [spec.name for spec in header.columns]
    for index, spec in enumerate(header.columns):
        array = arrays[spec.name]
        assert array.dtype == spec.dtype
        assert array.shape == (len(log), *(() if spec.element_count == 1 else spec.shape))
        assert array.tobytes() == records[f"{index}"].tobytes()

    listed = list(log)
    assert [context.name for context in listed] == [name for name, _ in contexts]
    for (_, run), start, context in zip(contexts, starts, listed, strict=False):
        assert len(context) == len(run)
        assert context.numbers.dtype == np.int64
        assert context.numbers.tolist() == [item.number for item in run]
        assert list(context.values) == list(arrays)
        for name, values in context.values.items():
            assert values.tobytes() == arrays[name][start : start + len(run)].tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_the_table_is_the_datasets(tmp_path: Path, kind: str) -> None:
    logs = real_logs(kind)
    convert_logs(logs, tmp_path / "d")
    dataset = observations_of(tmp_path / "d")
    tables = [read_log(path).to_arrow() for path in logs]
    assert all(table.schema.equals(dataset.schema, check_metadata=False) for table in tables)
    joined = pa.concat_tables(tables)
    for index, name in enumerate(dataset.column_names):
        if index < 3:
            assert joined.column(index).to_pylist() == dataset.column(index).to_pylist()
        else:  # by bytes, for there are NaNs
            assert column_bytes(joined, index) == column_bytes(dataset, index), name
    assert read_log(LARGE, module="m").to_arrow().column("module").unique().to_pylist() == ["m"]


def test_a_module_has_the_name_that_it_has_in_a_dataset(tmp_path: Path) -> None:
    names = ["a.log.zst.gz", "b.log.gz.zst", "c\nd.log", "e"]
    paths = [tmp_path / name for name in names]
    for path in paths:
        path.write_bytes(LARGE.read_bytes())
    convert_logs(paths, tmp_path / "dataset")
    there = observations_of(tmp_path / "dataset").column("module").unique().to_pylist()
    assert [read_log(path).module for path in paths] == there == ["a", "b.log.gz", "c%0Ad", "e"]


def test_shapes(tmp_path: Path) -> None:
    shapes: list[tuple[int, ...]] = [(), (1,), (1, 1), (2,), (1, 33), (2, 1, 3)]
    features = [TensorSpec(f"{kind}{shape}", kind, shape) for kind in ELEMENT_TYPES for shape in shapes]
    with LogWriter(tmp_path / "a.log", features) as log:
        for number in range(5):
            log.write_observation([np.full(spec.shape, number, spec.dtype) for spec in features])
    arrays = read_log(tmp_path / "a.log").to_numpy()
    for spec in features:
        array = arrays[spec.name]
        assert array.dtype == spec.dtype
        assert array.shape == (5, *(spec.shape if spec.element_count > 1 else ()))
        assert (array == np.arange(5).reshape(5, *(1,) * (array.ndim - 1))).all()


def test_no_observations(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "a.log", [TensorSpec("x"), TensorSpec("m", "float", (1, 33))]):
        pass
    log = read_log(tmp_path / "a.log")
    assert (len(log), log.contexts, list(log)) == (0, (), [])
    assert {name: array.shape for name, array in log.to_numpy().items()} == {"x": (0,), "m": (0, 1, 33)}
    assert log.to_arrow().num_rows == 0


def test_observations_before_the_first_context(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "a.log", [TensorSpec("x")]) as log:
        log.write_observation([7])
        log.write_context("f")
        log.write_observation([8])
    contexts = list(read_log(tmp_path / "a.log"))
    assert [(item.name, item.numbers.tolist(), item.values["x"].tolist()) for item in contexts] == [
        (None, [0], [7]),
        ("f", [0], [8]),
    ]


def test_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_log(LARGE)
    monkeypatch.setattr("mlgo_corpus.dataset.loaded._BATCH_BYTES", 20_000)
    cut = read_log(LARGE)
    assert cut.to_arrow().column(0).num_chunks > 10
    for index in range(3, len(whole.to_arrow().columns)):
        assert column_bytes(cut.to_arrow(), index) == column_bytes(whole.to_arrow(), index)
    assert {name: array.tobytes() for name, array in cut.to_numpy().items()} == {
        name: array.tobytes() for name, array in whole.to_numpy().items()
    }
    assert [item.numbers.tolist() for item in cut] == [item.numbers.tolist() for item in whole]


@pytest.mark.parametrize("size", [1000, 1475, 5000, 100_000, 563_000])
def test_damage(tmp_path: Path, size: int) -> None:
    data = LARGE.read_bytes()[:size]
    for name, content in (("a.log", data), ("a.log.gz", gzip.compress(data))):
        path = tmp_path / name
        path.write_bytes(content)
        plain = plain_log(data)
        with pytest.raises(TruncatedError) as caught:
            read_log(path)
        assert caught.value.path == path
        if isinstance(plain, FormatError):
            assert str(caught.value) == f"{path}: {plain}"
            with pytest.raises(TruncatedError):
                read_log(path, allow_truncated=True)
            continue
        assert str(caught.value) == f"{path}: {plain.damage}"
        log = read_log(path, allow_truncated=True)
        assert str(log.damage) == str(caught.value)
        assert len(log) == sum(isinstance(event, Observation) for event in plain.events)
        assert [item.name for item in log.contexts] == [
            event.name for event in plain.events if isinstance(event, Context)
        ]


def test_a_second_header(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(LARGE.read_bytes() * 2)
    with pytest.raises(
        FormatError, match=f"a.log: byte {LARGE.stat().st_size}: a second header: this is more than one"
    ):
        read_log(path)
    assert len(read_log(path, allow_truncated=True)) == len(read_log(LARGE))


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_log(tmp_path / "nowhere.log")
    with pytest.raises(IsADirectoryError):
        read_log(tmp_path)
    (tmp_path / "junk").write_bytes(b"\0\1junk\n")
    with pytest.raises(FormatError, match=r"junk: byte 0: expected a log's header in JSON, found '\\x00\\x01junk'"):
        read_log(tmp_path / "junk")


@pytest.mark.parametrize("compression", ["", "gz", "zst"])
def test_bytes_and_streams(tmp_path: Path, compression: str) -> None:
    data = (LOGS / "inlining.lzio.log").read_bytes()
    expected = read_log(LOGS / "inlining.lzio.log").to_numpy()["cost_estimate"].tolist()
    if compression:
        data = gzip.compress(data) if compression == "gz" else pa.compress(data, "zstd", asbytes=True)
    path = tmp_path / f"lzio.log.{compression}".rstrip(".")
    path.write_bytes(data)
    for given in (data, bytearray(data), memoryview(data), io.BytesIO(data)):
        log = read_log(given)
        assert (log.module, log.to_numpy()["cost_estimate"].tolist()) == ("", expected)
    with path.open("rb") as file, zipfile.ZipFile(tmp_path / "logs.zip", "w") as archive:
        log = read_log(file, module="m")
        assert not file.closed
        archive.write(path, "inner.log")
        with archive.open("inner.log") as inner:
            assert read_log(inner).to_numpy()["cost_estimate"].tolist() == expected
    assert (log.module, log.to_numpy()["cost_estimate"].tolist()) == ("m", expected)
    assert set(log.to_batch().column("module").to_pylist()) == {"m"}


def test_a_pipe_is_a_stream() -> None:
    data = (LOGS / "inlining.lzio.log").read_bytes()
    reading, writing = os.pipe()
    assert os.write(writing, data) == len(data)
    os.close(writing)
    with open(reading, "rb") as stream:
        assert len(read_log(stream)) == len(read_log(data)) > 0


def test_damage_in_bytes_has_a_place_but_no_path(tmp_path: Path) -> None:
    data = (LOGS / "inlining.lzio.log").read_bytes()[:-100]
    with pytest.raises(TruncatedError, match=r"^byte \d+: reading "):
        read_log(data)
    assert str(read_log(data, allow_truncated=True).damage).startswith("byte ")
    path = tmp_path / "cut.log"
    path.write_bytes(data)
    with path.open("rb") as stream, pytest.raises(TruncatedError, match=r"cut\.log: byte "):
        read_log(stream)


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes((LOGS / "inlining.lzio.log").read_bytes())
    with path.open(encoding="latin-1") as text, pytest.raises(TypeError, match="or a binary stream, found a TextIOWr"):
        read_log(text)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a log's path, its bytes or a binary stream, found a int"):
        read_log(3)  # type: ignore[arg-type]


def test_a_single_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_log(LARGE)
    monkeypatch.setattr("mlgo_corpus.dataset.loaded._BATCH_BYTES", 50_000)
    log = read_log(LARGE)
    assert log.to_arrow().column(0).num_chunks > 1
    assert log.to_batch().to_pydict() == whole.to_batch().to_pydict()
    header = LARGE.read_bytes().partition(b"\n")[0] + b"\n" + LARGE.read_bytes().split(b"\n")[1] + b"\n"
    empty = read_log(header)
    assert (empty.to_batch().num_rows, empty.to_batch().schema) == (0, whole.to_batch().schema)
