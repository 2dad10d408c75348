"""From datasets to logs where the dataset is not what we wrote: one line, and no log that is not whole."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlgo_corpus import LogWriter, TensorSpec, convert_logs, restore_logs
from mlgo_corpus.dataset.writer import contexts_schema
from mlgo_corpus.errors import CorpusError, MlgoCorpusError, UsageError
from tests.runs.datasets.test_logs import LOGS, beside, data_of, parts_of, real_logs, tree

pytestmark = pytest.mark.whole

Rows = list[dict[str, Any]]
KIND = "regalloc-priority"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset, in two files; tests take copies."""
    folder = tmp_path_factory.mktemp("whole") / "d"
    convert_logs(real_logs(KIND), folder, rows_per_file=2000)
    assert len(parts_of(folder)) == 2
    return folder


@pytest.fixture
def dataset(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "in/d"))


def rewrite(path: Path, change: Callable[[Rows], object], schema: pa.Schema | None = None) -> None:
    """Change the rows of a table."""
    table = pq.read_table(path)
    rows = table.to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema or table.schema), path)


def refused(dataset: Path, output: Path) -> str:
    """Restore, which has to fail; give the message. What was written is whole logs under their names, or nothing."""
    with pytest.raises(CorpusError) as caught:
        restore_logs(dataset, output)
    assert "\n" not in str(caught.value)
    logs = data_of(real_logs(KIND))
    assert all(logs[name] == data for name, data in (tree(output) if output.exists() else {}).items())
    return str(caught.value)


# modules.parquet


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("../../evil.log", "_up/_up/evil.log"),
        ("/etc/evil.log", "etc/evil.log"),
        ("a/../../evil", "_up/evil"),
        ("..", "_up"),
        ("", "module"),
        ("a\0b\n.log", "a%00b%0A.log"),
        ("a/b.log.gz", "a/b.log"),
        ("regalloc-priority.lvm.log", "regalloc-priority~2.lvm.log"),
    ],
)
def test_logs_stay_below_the_output(dataset: Path, tmp_path: Path, source: str, place: str) -> None:
    rewrite(dataset / "modules.parquet", lambda rows: rows[-1].update(source=source))
    restore_logs(dataset, tmp_path / "out")
    logs = data_of(real_logs(KIND))
    last = logs.pop("regalloc-priority.lzio.log")
    assert tree(tmp_path / "out") == {**logs, place: last}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def _swap(rows: Rows) -> None:
    rows[0], rows[3] = rows[3], rows[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (list.pop, "there are more rows than modules.parquet says"),
        (
            lambda rows: rows.pop(0),
            "its tables contradict each other: 0 contexts and 0 rows of regalloc-priority.linit",
        ),
        (lambda rows: rows.append(rows[0]), "0 contexts and 0 rows of regalloc-priority.lapi"),
        (lambda rows: rows.append({**rows[0], "module": "ghost"}), "0 contexts and 0 rows of ghost"),
        (_swap, "contradict each other: 0 contexts and 0 rows of regalloc-priority.ltable"),
        (lambda rows: rows[0].update(module="x"), "0 contexts and 0 rows of x"),
        (lambda rows: rows[0].update(observations=0), "rows of regalloc-priority.lapi"),
        (lambda rows: rows[0].update(contexts=1 << 62), "contexts and "),
        (lambda rows: rows[2].update(header=None), "modules.parquet: "),
        (lambda rows: rows[2].update(header="junk"), "modules.parquet: "),
        (lambda rows: rows[2].update(header='{"features":[]}'), "regalloc-priority.lopcodes has another header than"),
        (
            lambda rows: [row.update(header='{"features":[]}') for row in rows],
            "not those of the header in modules.parq",
        ),
        (lambda rows: rows[0].update(separator="?"), "modules.parquet: an unknown separator: '?'"),
    ],
)
def test_a_table_of_logs_that_contradicts_the_rows(
    dataset: Path, tmp_path: Path, change: Callable[[Rows], object], message: str
) -> None:
    rewrite(dataset / "modules.parquet", change)
    assert message in refused(dataset, tmp_path / "out")


@pytest.mark.parametrize("column", ["module", "source", "status", "reason", "detail", "contexts", "observations"])
def test_a_table_of_logs_with_holes(dataset: Path, tmp_path: Path, column: str) -> None:
    rewrite(dataset / "modules.parquet", lambda rows: rows[1].update({column: None}))
    with pytest.raises(UsageError, match=r"modules\.parquet: row 1: a value is missing, or less than 0"):
        restore_logs(dataset, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"module": ["a"]}),
        pa.table({}),
        pa.table({"module": [1], "source": [2]}),
    ],
)
def test_another_table_in_the_place_of_that_of_logs(dataset: Path, tmp_path: Path, table: pa.Table) -> None:
    pq.write_table(table, dataset / "modules.parquet")
    with pytest.raises(UsageError, match=r"modules\.parquet: not a table of logs: its columns are not those"):
        restore_logs(dataset, tmp_path / "out")


@pytest.mark.parametrize("column", ["module", "log_bytes", "header"])
def test_a_column_of_another_type(dataset: Path, tmp_path: Path, column: str) -> None:
    table = pq.read_table(dataset / "modules.parquet")
    index = table.column_names.index(column)
    pq.write_table(table.set_column(index, column, pa.array([1.5] * 6)), dataset / "modules.parquet")
    with pytest.raises(UsageError, match=f"not a table of logs: .*: '{column}' is of double, expected "):
        restore_logs(dataset, tmp_path / "out")


# contexts.parquet


def _shift(rows: Rows) -> None:
    """Give a row of one context to the next."""
    first = next(index for index, row in enumerate(rows) if row["count"] and rows[index + 1]["count"])
    rows[first]["count"] -= 1
    rows[first + 1]["count"] += 1
    rows[first + 1]["first_row"] -= 1


def _rename(rows: Rows) -> None:
    next(row for row in rows if row["count"])["context"] = "another"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (list.clear, "0 contexts and 0 rows of regalloc-priority.lapi"),
        (list.pop, "contexts and "),
        (lambda rows: rows.append(rows[-1]), "a context begins at row "),
        (lambda rows: rows.append({**rows[-1], "first_row": 2892, "count": 1}), "there is no row 2892"),
        (lambda rows: rows.append({**rows[-1], "first_row": 2892, "count": 1 << 62}), "there is no row 2892"),
        (lambda rows: rows.append({**rows[-1], "first_row": 2892, "count": 0}), "contexts and "),
        (lambda rows: rows.append({**rows[-1], "first_row": 2892, "count": 0, "module": "x"}), "there are more rows"),
        (lambda rows: rows[0].update(count=-1), "a context begins at row 0"),
        (lambda rows: rows[0].update(first_row=-5), "a context begins at row -5"),
        (lambda rows: rows[5].update(first_row=1 << 62), "a context begins at row 4611686018427387904"),
        (lambda rows: rows[0].update(module="x"), "0 contexts and 0 rows of regalloc-priority.lapi"),
        (_shift, " is of another context than contexts.parquet says"),
        (_rename, " is of another context than contexts.parquet says"),
    ],
)  # fmt: skip
def test_a_table_of_contexts_that_contradicts_the_rows(
    dataset: Path, tmp_path: Path, change: Callable[[Rows], object], message: str
) -> None:
    rewrite(dataset / "contexts.parquet", change, contexts_schema())
    assert message in refused(dataset, tmp_path / "out")


@pytest.mark.parametrize("column", ["module", "first_row", "count", "line", "context"])
def test_a_table_of_contexts_without_a_column(dataset: Path, tmp_path: Path, column: str) -> None:
    path = dataset / "contexts.parquet"
    table = pq.read_table(path)
    pq.write_table(table.drop_columns([column]), path)
    assert "contexts.parquet: its columns are not those of a table of contexts" in refused(dataset, tmp_path / "out")
    index = table.column_names.index(column)
    pq.write_table(table.set_column(index, column, pa.nulls(table.num_rows)), path)
    assert "contexts.parquet: its columns are not those of a table of contexts" in refused(dataset, tmp_path / "out")


# The observations


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.drop_columns(["weight"]),
        lambda table: table.drop_columns(["module"]),
        lambda table: table.append_column("more", pa.array(range(table.num_rows))),
        lambda table: table.rename_columns([*table.column_names[:-1], "other"]),
        lambda table: table.set_column(3, "li_size", table.column(3).cast(pa.int32())),
        lambda table: table.set_column(2, "observation", pa.nulls(table.num_rows, pa.int64())),
        lambda table: table.select([*reversed(table.column_names)]),
    ],
    ids=["no feature", "no module", "more", "renamed", "other type", "nulls", "other order"],
)
def test_observations_with_other_columns(dataset: Path, tmp_path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    part = parts_of(dataset)[1]
    pq.write_table(change(pq.read_table(part)), part)
    assert "part-00001.parquet: its columns are not those of the header in modules" in refused(
        dataset, tmp_path / "out"
    )


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        (0, "x", " is of another context than contexts.parquet says"),
        (1, "x", " is of another context than contexts.parquet says"),
        (1, None, " is of another context than contexts.parquet says"),
        (2, -1, "an observation's number is less than 0"),
    ],
)
def test_observations_with_other_keys(dataset: Path, tmp_path: Path, column: int, value: Any, message: str) -> None:
    part = parts_of(dataset)[1]
    table = pq.read_table(part)
    name = table.column_names[column]
    values = [value, *table.column(column).to_pylist()[1:]]
    changed = pa.array(values, pa.int64() if column == 2 else pa.string())
    changed = changed if column == 2 else changed.dictionary_encode()
    pq.write_table(table.set_column(column, table.schema.field(column).with_name(name), changed), part)
    assert message in refused(dataset, tmp_path / "out")


@pytest.mark.parametrize("gone", ["observations/part-00000.parquet", "observations/part-00001.parquet"])
def test_a_part_that_is_missing(dataset: Path, tmp_path: Path, gone: str) -> None:
    (dataset / gone).unlink()
    refused(dataset, tmp_path / "out")


def test_a_part_too_many(dataset: Path, tmp_path: Path) -> None:
    shutil.copy(parts_of(dataset)[1], dataset / "observations/part-00002.parquet")
    assert "there are more rows than modules.parquet says" in refused(dataset, tmp_path / "out")


@pytest.mark.parametrize("name", ["dataset.json", "contexts.parquet", "modules.parquet"])
def test_a_dataset_that_is_not_whole(dataset: Path, tmp_path: Path, name: str) -> None:
    (dataset / name).unlink()
    with pytest.raises(UsageError) as caught:
        restore_logs(dataset, tmp_path / "out")
    assert str(caught.value) == f"{dataset}: not a whole dataset: it has no {name}"


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_a_dataset_whose_description_is_damaged(dataset: Path, tmp_path: Path, text: str) -> None:
    (dataset / "dataset.json").write_text(text)
    with pytest.raises(UsageError) as caught:
        restore_logs(dataset, tmp_path / "out")
    assert str(caught.value) == f"{dataset}/dataset.json: damaged: it does not describe a dataset"


def test_no_dataset_at_all(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    shutil.copy(LOGS / "inlining.lapi.log", tmp_path / "x.parquet")
    for name, message in [
        ("nowhere", "nowhere: no such file or folder"),
        ("nowhere.parquet", "nowhere.parquet: no such file or folder"),
        ("empty", "empty: not a whole dataset: it has no dataset.json"),
        ("x.parquet", "x.parquet: not a whole dataset: it has no x.contexts.parquet"),
    ]:
        with pytest.raises(UsageError) as caught:
            restore_logs(tmp_path / name, tmp_path / "out")
        assert str(caught.value) == f"{tmp_path}/{message}"


def test_any_byte_may_be_another(whole: Path, tmp_path: Path) -> None:
    """Files that end early, and flipped bytes, are found out or do no harm."""
    rng = random.Random(5)
    names = [name for name in tree(whole) if name.endswith(".parquet")]
    messages: list[str] = []
    for number in range(60):
        dataset = Path(shutil.copytree(whole, tmp_path / "in/d"))
        path = dataset / rng.choice(names)
        data = bytearray(path.read_bytes())
        if number % 3:
            for _ in range(rng.choice([1, 1, 4])):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        else:
            del data[rng.randrange(len(data)) :]
        path.write_bytes(data)
        try:
            restore_logs(dataset, tmp_path / "out")
        except MlgoCorpusError as error:
            messages.append(str(error))
        assert {path.name for path in tmp_path.iterdir()} <= {"in", "out"}
        shutil.rmtree(tmp_path / "in")
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
    assert len(messages) > 30
    assert not any("\n" in message for message in messages)


# The output


@pytest.mark.parametrize("inside", ["", "logs"])
def test_a_dataset_gets_no_logs(dataset: Path, inside: str) -> None:
    with pytest.raises(UsageError, match=r": is the dataset, or in it; name another folder$"):
        restore_logs(dataset, dataset / inside)
    assert not list(dataset.rglob("*.log"))


def test_files_that_are_there(dataset: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    (output / "regalloc-priority.lvm.log").write_bytes(b"mine")
    with pytest.raises(UsageError) as caught:
        restore_logs(dataset, output)
    assert str(caught.value) == f"{output}/regalloc-priority.lvm.log: is there already; `force` replaces it"
    assert tree(output) == {"regalloc-priority.lvm.log": b"mine"}
    restore_logs(dataset, output, force=True)
    assert tree(output) == data_of(real_logs(KIND))


def test_places_that_cannot_be(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "out/regalloc-priority.lvm.log").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"/regalloc-priority\.lvm\.log: expected a file, found a folder$"):
        restore_logs(dataset, tmp_path / "out", force=True)
    assert tree(tmp_path / "out") == {}
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(UsageError, match=r"/file: a file is in the folder's place$"):
        restore_logs(dataset, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"x"


def test_progress(dataset: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    report = restore_logs(dataset, tmp_path / "out", progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (2892, 2892)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert (report.output, report.logs, report.missing, report.incomplete) == (tmp_path / "out", 6, 0, 0)
    assert report.observations == 2892
    assert report.as_json() == {
        "output": str(tmp_path / "out"),
        "logs": 6,
        "missing": 0,
        "observations": 2892,
        "log_bytes": sum(map(len, data_of(real_logs(KIND)).values())),
        "renamed": 0,
        "incomplete": 0,
        "hints": (),
        "seconds": round(report.seconds, 3),
    }


def test_single_files_too(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "a.log", [TensorSpec("x")]) as log:
        log.write_context("f")
        log.write_observation([1])
    convert_logs(tmp_path / "a.log", tmp_path / "d.parquet")
    rewrite(beside(tmp_path / "d.parquet", "contexts.parquet"), list.clear, contexts_schema())
    with pytest.raises(CorpusError, match=r"d\.parquet: its tables contradict each other: 0 contexts and 0 rows of a"):
        restore_logs(tmp_path / "d.parquet", tmp_path / "out")
    (tmp_path / "d.contexts.parquet").unlink()
    with pytest.raises(UsageError, match=r"d\.parquet: not a whole dataset: it has no d\.contexts\.parquet"):
        restore_logs(tmp_path / "d.parquet", tmp_path / "out")
