"""Datasets of logs as other tools open them: pandas, polars, DuckDB and Hugging Face datasets."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from mlgo_corpus import LogWriter, TensorSpec, convert_logs, read_log
from mlgo_corpus.formats.logs.tensors import ELEMENT_TYPES
from tests.cli.test_cli import mlgo
from tests.runs.datasets.test_logs import LOGS, real_logs

pytestmark = pytest.mark.whole

KIND = "regalloc-eviction"


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same logs as a folder of several files, ``d``, and as ``d.parquet``; and logs of all types, ``types``."""
    folder = tmp_path_factory.mktemp("interop")
    convert_logs(real_logs(KIND), folder / "d", rows_per_file=50)
    convert_logs(real_logs(KIND), folder / "d.parquet")
    features = [TensorSpec(f"{kind}_{size}", kind, (size,)) for kind in ELEMENT_TYPES for size in (1, 2)]
    with LogWriter(folder / "types.log", features) as log:
        log.write_context("f")
        for extreme in (_lowest, _highest):
            log.write_observation([np.full(spec.shape, extreme(spec.dtype), spec.dtype) for spec in features])
    convert_logs(folder / "types.log", folder / "types.parquet")
    return folder


def _lowest(kind: np.dtype[Any]) -> Any:
    return np.finfo(kind).min if kind.kind == "f" else np.iinfo(kind).min


def _highest(kind: np.dtype[Any]) -> Any:
    return np.finfo(kind).max if kind.kind == "f" else np.iinfo(kind).max


@pytest.fixture(scope="module")
def logs() -> list[Any]:
    return [read_log(path) for path in real_logs(KIND)]


def values(logs: list[Any], name: str) -> Any:
    """Give a column of all logs; tensors flattened to (observations, elements)."""
    joined = np.concatenate([log.to_numpy()[name] for log in logs])
    return joined.reshape(len(joined), -1) if joined.ndim > 1 else joined


def keys(logs: list[Any]) -> list[tuple[str, str, int]]:
    return [
        (log.module, context.name, number) for log in logs for context in log for number in context.numbers.tolist()
    ]


def same(found: Any, expected: Any) -> bool:
    """Compare values and types; a NaN equals a NaN."""
    found = np.asarray(found)
    return found.dtype == expected.dtype and found.shape == expected.shape and found.tobytes() == expected.tobytes()


def observations(datasets: Path, name: str) -> Path:
    return datasets / name / "observations" if name == "d" else datasets / name


@pytest.mark.parametrize("name", ["d", "d.parquet"])
def test_pandas(datasets: Path, logs: list[Any], name: str) -> None:
    frame = pandas.read_parquet(observations(datasets, name))
    assert list(zip(frame["module"], frame["context"], frame["observation"], strict=True)) == keys(logs)
    assert isinstance(frame["module"].dtype, pandas.CategoricalDtype)
    assert same(np.stack(frame["mask"]), values(logs, "mask"))
    assert same(np.stack(frame["use_def_density"]), values(logs, "use_def_density"))
    for column in ("progress", "index_to_evict", "reward"):
        assert same(frame[column].to_numpy(), values(logs, column))
    modules = pandas.read_parquet(datasets / "d/modules.parquet")
    merged = frame.merge(modules, on="module", how="left")
    assert len(merged) == len(frame)
    assert merged["status"].eq("ok").all()
    sizes = modules.set_index("module")["observations"]
    assert sizes[sizes > 0].to_dict() == frame["module"].astype(str).value_counts().to_dict()


@pytest.mark.parametrize("name", ["d", "d.parquet"])
def test_polars(datasets: Path, logs: list[Any], name: str) -> None:
    source = observations(datasets, name)
    frame = polars.read_parquet(source)
    assert frame.select("module", "context", "observation").rows() == keys(logs)
    assert frame.schema["mask"] == polars.Array(polars.Int64, 33)
    assert frame.schema["use_def_density"] == polars.Array(polars.Float32, 33)
    for column in ("mask", "use_def_density", "progress", "index_to_evict", "reward"):
        assert same(frame[column].to_numpy(), values(logs, column))
    lazy = polars.scan_parquet(source / "*.parquet" if source.is_dir() else source)
    counted = lazy.group_by("module").agg(polars.len().alias("observations")).collect()
    assert dict(counted.select(polars.col("module").cast(polars.String), "observations").rows()) == {
        log.module: len(log) for log in logs if len(log)
    }
    modules = polars.scan_parquet(datasets / "d/modules.parquet").select("module", "log_bytes")
    joined = lazy.join(modules, on="module", how="left").select("module", "log_bytes").unique().collect()
    assert dict(joined.select(polars.col("module").cast(polars.String), "log_bytes").rows()) == {
        log.module: (LOGS / f"{log.module}.log").stat().st_size for log in logs if len(log)
    }


@pytest.mark.parametrize("name", ["d", "d.parquet"])
def test_duckdb(datasets: Path, logs: list[Any], name: str) -> None:
    source = f"'{observations(datasets, name)}{'/*.parquet' if name == 'd' else ''}'"
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT module, context, observation FROM {source}").fetchall()  # noqa: S608
        assert found == keys(logs)
        types = dict(connection.execute(f"SELECT column_name, column_type FROM (DESCRIBE FROM {source})").fetchall())  # noqa: S608
        assert (types["mask"], types["nr_urgent"], types["reward"]) == ("BIGINT[]", "FLOAT[]", "FLOAT")
        arrays = connection.execute(f"SELECT mask, use_def_density, index_to_evict FROM {source}").fetchnumpy()  # noqa: S608
        assert same(np.stack(arrays["mask"]), values(logs, "mask"))
        assert same(np.stack(arrays["use_def_density"]), values(logs, "use_def_density"))
        assert same(arrays["index_to_evict"], values(logs, "index_to_evict"))
        evicted = connection.execute(f"SELECT sum(mask[index_to_evict + 1])::BIGINT FROM {source}").fetchone()  # noqa: S608
        mask, index = values(logs, "mask"), values(logs, "index_to_evict")
        assert evicted == (int(mask[np.arange(len(mask)), index].sum()),)


@pytest.mark.parametrize("name", ["d", "d.parquet"])
def test_duckdb_joins(datasets: Path, logs: list[Any], name: str) -> None:
    source = f"{observations(datasets, name)}{'/*.parquet' if name == 'd' else ''}"
    contexts, modules = (
        datasets / ("d" if name == "d" else ".") / (f"{table}.parquet" if name == "d" else f"d.{table}.parquet")
        for table in ("contexts", "modules")
    )
    with duckdb.connect() as connection:
        joined = connection.execute(
            "SELECT c.module, c.context, c.count, count(o.module), any_value(m.status) "  # noqa: S608
            f"FROM '{contexts}' c JOIN '{modules}' m USING (module) LEFT JOIN '{source}' o "
            "ON c.module = o.module AND c.context = o.context GROUP BY ALL"
        ).fetchall()
        expected = sorted((log.module, item.name, item.count) for log in logs for item in log.contexts)
        assert sorted(row[:3] for row in joined) == expected
        assert all(row[2] == row[3] and row[4] == "ok" for row in joined)
        (numbered,) = connection.execute(
            f"SELECT count(*) FROM (SELECT *, row_number() OVER () - 1 AS row FROM '{source}') o "  # noqa: S608
            f"JOIN '{contexts}' c ON o.row >= c.first_row AND o.row < c.first_row + c.count "
            "WHERE o.module = c.module AND o.context = c.context"
        ).fetchone()
        assert numbered == sum(map(len, logs))


def test_the_query_that_is_shown(datasets: Path, logs: list[Any]) -> None:
    for name in ("d", "d.parquet"):
        options = ["--rows-per-file", "50"] if name == "d" else []
        done = mlgo("logs-to-parquet", *real_logs(KIND), "--output", datasets / name, *options)
        (query,) = [line.removeprefix("DuckDB: ") for line in done.stdout.splitlines() if line.startswith("DuckDB: ")]
        with duckdb.connect() as connection:
            assert dict(connection.execute(query).fetchall()) == {log.module: len(log) for log in logs if len(log)}
        (call,) = re.findall(r"^pandas, polars: (read_parquet\(.*\))$", done.stdout, re.MULTILINE)
        for reader in (pandas, polars):
            frame = eval(call, {"read_parquet": reader.read_parquet})  # noqa: S307 - as a person would type it
            assert frame["module"].to_numpy().tolist() == [module for module, _, _ in keys(logs)]


def test_the_folder_itself_is_not_taken_for_a_table(datasets: Path) -> None:
    """It has three tables and a card: every reader refuses it, and none reads a mixture."""
    folder = str(datasets / "d")
    with pytest.raises(pa.ArrowInvalid, match=r"Could not read schema from '.*d/README\.md'"):
        pandas.read_parquet(folder)
    with pytest.raises(pa.ArrowInvalid, match=r"d/README\.md"):
        ds.dataset(folder)
    with pytest.raises(polars.exceptions.InvalidOperationError, match="different file extensions"):
        polars.read_parquet(folder)
    with pytest.raises(polars.exceptions.SchemaError):
        polars.read_parquet(f"{folder}/**/*.parquet")
    for files in (folder, f"{folder}/**/*.parquet"):
        with duckdb.connect() as connection, pytest.raises(duckdb.Error, match="schema mismatch in glob"):
            connection.execute("SELECT * FROM read_parquet(?)", [files]).fetchall()


def test_pyarrow(datasets: Path, logs: list[Any]) -> None:
    for source in (observations(datasets, "d"), observations(datasets, "d.parquet")):
        table = ds.dataset(source).to_table()
        for found in (table, pq.read_table(source)):
            assert found.schema.equals(table.schema)
            rows = found.select(["module", "context", "observation"]).to_pydict()
            assert list(zip(*rows.values(), strict=True)) == keys(logs)


def test_every_type_is_its_own_everywhere(datasets: Path) -> None:
    path = datasets / "types.parquet"
    arrays = read_log(datasets / "types.log").to_numpy()
    frame, polar = pandas.read_parquet(path), polars.read_parquet(path)
    with duckdb.connect() as connection:
        columns = connection.execute(f"SELECT * FROM '{path}'").fetchnumpy()  # noqa: S608
    for name, array in arrays.items():
        assert array.tolist()[0] != array.tolist()[1]
        assert same(polar[name].to_numpy(), array)
        for found in (frame[name].to_numpy(), columns[name]):
            assert same(np.stack(found) if array.ndim > 1 else found, array)


HUGGING_FACE = """
import json, sys
import datasets
import numpy as np
folder, cache = sys.argv[1:3]
result = {}
for name, files in (("d", folder + "/d/observations/*.parquet"), ("d.parquet", folder + "/d.parquet")):
    loaded = datasets.load_dataset("parquet", data_files=files, cache_dir=cache + "/" + name, split="train")
    numpy = loaded.with_format("numpy")[:]
    result[name] = {
        "columns": loaded.column_names,
        "keys": list(zip(loaded["module"], loaded["context"], loaded["observation"])),
        "features": {column: repr(loaded.features[column]) for column in ("mask", "nr_urgent", "reward")},
        "bytes": {
            column: [str(np.asarray(numpy[column]).dtype), np.asarray(numpy[column]).tobytes().hex()]
            for column in ("mask", "use_def_density", "index_to_evict", "reward")
        },
    }
files = folder + "/types.parquet"
types = datasets.load_dataset("parquet", data_files=files, cache_dir=cache + "/types", split="train")
result["types"] = {column: repr(types.features[column]) for column in types.column_names[3:]}
json.dump(result, sys.stdout)
"""


def test_hugging_face_datasets(datasets: Path, logs: list[Any], tmp_path: Path) -> None:
    """In a process of its own: the library reads its settings when it is imported, and starts threads."""
    env = {
        **os.environ,
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    }
    argv = (sys.executable, "-c", HUGGING_FACE, str(datasets), str(tmp_path / "cache"))
    done = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for name in ("d", "d.parquet"):
        assert found[name]["columns"] == ["module", "context", "observation", *logs[0].to_numpy()]
        assert [tuple(key) for key in found[name]["keys"]] == keys(logs)
        assert found[name]["features"] == {
            "mask": "List(Value('int64'), length=33)",
            "nr_urgent": "List(Value('float32'), length=33)",
            "reward": "Value('float32')",
        }
        for column, (kind, data) in found[name]["bytes"].items():
            expected = values(logs, column)
            assert (kind, bytes.fromhex(data)) == (str(expected.dtype), expected.tobytes()), column
    for kind, dtype in ELEMENT_TYPES.items():
        assert found["types"][f"{kind}_1"] == f"Value('{dtype}')"
        assert found["types"][f"{kind}_2"] == f"List(Value('{dtype}'), length=2)"
