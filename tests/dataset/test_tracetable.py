"""The table of module runs: what goes in comes out, and it is read as a table of logs, too."""

from __future__ import annotations

import inspect
import pickle
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlgo_corpus import convert_logs, restore_logs
from mlgo_corpus.dataset import logtable, tracetable
from mlgo_corpus.dataset.folder import DatasetFolder, open_dataset, read_key
from mlgo_corpus.dataset.logs import HeaderReader, LogFile, find_logs
from mlgo_corpus.dataset.logtable import LogReason, LogRow, read_log_rows
from mlgo_corpus.dataset.reasons import RunReason, run_status
from mlgo_corpus.dataset.tracetable import (
    KINDS,
    TRACE_KIND,
    TraceRow,
    read_trace_rows,
    reward,
    stderr_tail,
    write_trace_rows,
)
from mlgo_corpus.dataset.writer import WriteOptions
from mlgo_corpus.errors import CorpusError, MlgoCorpusError, UsageError
from mlgo_corpus.files.markdown import documented_columns
from mlgo_corpus.files.tables import Kind
from mlgo_corpus.formats.logs.events import LogHeader, parse_header
from mlgo_corpus.runs.datasets.convert import LogConversion
from tests.runs.datasets.test_logs import data_of, real_logs, tree

METADATA = {"tool": "mlgo-corpus", "version": "0", "key": {"a": 1}}

FULL = TraceRow(
    module="lua/lvm.o",
    status="ok",
    reason="ok",
    detail="",
    exit_code=0,
    signal=None,
    stderr_tail="",
    wall_s=0.1 + 0.2,
    cpu_s=5e-324,
    max_rss_bytes=1 << 62,
    contexts=1,
    observations=84,
    text_size=0,
    code_size=7,
    object_sha256="ab",
    baseline_text_size=9,
    baseline_code_size=8,
    baseline_object_sha256="cd",
    baseline_wall_s=-0.0,
    baseline_cpu_s=1e300,
    baseline_max_rss_bytes=1,
    reward=-0.25,
    faithful=False,
    argv=("clang", "", "-DX=a b\n\"|'", "ü"),
    bitcode_bytes=5,
    bitcode_sha256="ef",
    log_bytes=6,
    dropped_bytes=0,
    header='{"features":[]}',
    separator=": ",
)
EMPTY = TraceRow("m", "failed", "no_command", "")
NO_ARGUMENTS = EMPTY._replace(module="", argv=(), faithful=True, reward=float("inf"))


@pytest.mark.parametrize("rows", [(), (FULL,), (EMPTY,), (EMPTY, FULL, NO_ARGUMENTS), (FULL, EMPTY) * 5000])
def test_what_goes_in_comes_out(tmp_path: Path, rows: tuple[TraceRow, ...]) -> None:
    path = tmp_path / "modules.parquet"
    write_trace_rows(path, rows, METADATA)
    found = read_trace_rows(path)
    assert found == rows
    assert [list(map(repr, row)) for row in found[:3]] == [list(map(repr, row)) for row in rows[:3]]
    assert [item.name for item in tmp_path.iterdir()] == ["modules.parquet"]
    assert b'"key": {"a": 1}' in pq.read_schema(path).metadata[b"mlgo_corpus"]


def test_its_columns_are_those_of_the_specification() -> None:
    assert list(documented_columns(str(tracetable.__doc__))) == list(TraceRow._fields)
    assert list(documented_columns(str(logtable.__doc__))) == list(LogRow._fields)
    hints = TraceRow.__annotations__
    kinds = {Kind.INTEGER: "int", Kind.FLOAT: "float", Kind.BOOLEAN: "bool", Kind.TEXTS: "tuple[str, ...]"}
    for name in TraceRow._fields:
        hint = getattr(hints[name], "__forward_arg__", hints[name]).removesuffix(" | None")
        assert hint == kinds.get(KINDS.get(name, Kind.TEXT), "str"), name


def test_every_reason_has_a_sentence_and_a_status() -> None:
    meanings = inspect.getdoc(RunReason)  # Python 3.13 has taken the indentation out
    assert meanings is not None
    for reason in RunReason:
        assert f"\n    {reason.name}: " in meanings
    in_dataset = {reason for reason in RunReason if run_status(reason) == "ok"}
    assert in_dataset == {RunReason.OK}


def test_text_that_is_none_can_be_stored(tmp_path: Path) -> None:
    write_trace_rows(tmp_path / "m", [EMPTY._replace(module="a\udcff", argv=("-DX=\udc80",))], METADATA)
    [row] = read_trace_rows(tmp_path / "m")
    assert (row.module, row.argv) == ("a%FF", ("-DX=%80",))


def test_a_table_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises((TypeError, ValueError)):
        write_trace_rows(tmp_path / "m", [EMPTY._replace(exit_code="x")], METADATA)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_other_tools_read_it(tmp_path: Path) -> None:
    path = tmp_path / "modules.parquet"
    write_trace_rows(path, [FULL, EMPTY], METADATA)
    frame = pandas.read_parquet(path)
    assert frame["argv"][0].tolist() == list(FULL.argv or ())
    assert frame["argv"][1] is None
    assert frame["wall_s"].tolist()[0] == FULL.wall_s
    polar = polars.read_parquet(path)
    assert polar["argv"].to_list() == [list(FULL.argv or ()), None]
    assert polar["faithful"].to_list() == [False, None]
    assert polar["module"].dtype == polars.Categorical or polar["module"].dtype == polars.String
    with duckdb.connect() as connection:
        query = f"SELECT module, argv, faithful, reward, exit_code FROM '{path}'"  # noqa: S608
        assert connection.execute(query).fetchall() == [
            ("lua/lvm.o", list(FULL.argv or ()), False, -0.25, 0),
            ("m", None, None, None, None),
        ]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("module", [None]),
        ("status", [None]),
        ("detail", [None]),
        ("contexts", [None]),
        ("observations", [-1]),
        ("argv", [["a", None]]),
    ],
)
def test_holes_where_none_can_be(tmp_path: Path, column: str, values: list[Any]) -> None:
    path = tmp_path / "modules.parquet"
    write_trace_rows(path, [FULL], METADATA)
    table = pq.read_table(path)
    index = table.column_names.index(column)
    array = pa.array(values, table.schema.field(column).type)
    pq.write_table(table.set_column(index, table.schema.field(column), array), path)
    with pytest.raises(CorpusError, match=r"modules\.parquet: row 0: a value is missing, or less than 0"):
        read_trace_rows(path)


def test_a_table_that_lacks_the_later_columns(tmp_path: Path) -> None:
    path = tmp_path / "modules.parquet"
    later = {"opt_level": "z", "project": "lua", "split": "test"}
    write_trace_rows(path, [FULL._replace(**later), EMPTY], METADATA)
    assert read_trace_rows(path)[0] == FULL._replace(**later)
    pq.write_table(pq.read_table(path).drop_columns(["opt_level", "split"]), path)
    assert read_trace_rows(path) == (FULL._replace(project="lua", opt_level=None, split=None), EMPTY)


@pytest.mark.parametrize("change", ["drop", "more", "type", "junk", "empty"])
def test_what_is_no_such_table(tmp_path: Path, change: str) -> None:
    path = tmp_path / "modules.parquet"
    write_trace_rows(path, [FULL], METADATA)
    table = pq.read_table(path)
    if change == "drop":
        pq.write_table(table.drop_columns(["reward"]), path)
    elif change == "more":
        pq.write_table(table.append_column("x", pa.array([1])), path)
    elif change == "type":
        index = table.column_names.index("exit_code")
        pq.write_table(table.set_column(index, "exit_code", pa.array([1.5])), path)
    else:
        path.write_bytes(b"junk" if change == "junk" else b"")
    with pytest.raises(CorpusError) as caught:
        read_trace_rows(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


# The reward, and what a compiler says


def test_the_reward() -> None:
    assert reward(100, 100) == 0.0
    assert reward(90, 100) == 1 - 90.01 / 100.01
    assert reward(200, 100, epsilon=0) == -1.0
    assert reward(0, 0) == 0.0
    assert reward(None, 100) is reward(100, None) is None
    assert reward(669491, 671498) == pytest.approx(0.0029888, abs=1e-6)
    for size, baseline, epsilon in [(-1, 1, 0.01), (1, -1, 2.0), (0, 0, 0.0), (1, 1, -0.1)]:
        with pytest.raises(ValueError, match="no reward for a size of"):
            reward(size, baseline, epsilon=epsilon)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", ""),
        (b"error: no\n", "error: no\n"),
        (b"\x1b[1m\x1b[31merror:\x1b[0m x\r\n", "error: x\n"),
        (b"a\0b\x07\tc\x7f\xff", "a\\x00b\\x07\tc\\x7f\\xff"),
        ("a\x85ü€".encode(), "a\\x85ü€"),
        (b"x" * 5000 + b"end", "x" * 2045 + "end"),
        ("€".encode() * 1000, "€" * 682),
        (b"\xff" * 2048, "\\xff" * 512),
        (b"\x80" * 5000, ""),
    ],
)
def test_the_end_of_stderr(data: bytes, text: str) -> None:
    assert stderr_tail(data) == text
    assert len(stderr_tail(data).encode()) <= 2048


# Traces as logs


def trace(folder: DatasetFolder, logs: list[LogFile], header: LogHeader, rows: list[TraceRow]) -> None:
    """Make a dataset as a run of compilers does: ``rows`` has one for each module, in the logs' order."""
    conversion = LogConversion(folder, header, options=WriteOptions(), allow_truncated=False, jobs=1)
    made = {row.module: row for row in conversion.rows(lambda: logs)}
    rows = [row.with_log(made[row.module]) if row.module in made else row for row in rows]
    about = {"kind": TRACE_KIND, "modules": len(rows), "failed": sum(row.status != "ok" for row in rows)}
    write_trace_rows(conversion.modules, rows, conversion.metadata)
    conversion.finish(about)
    folder.close()


def header_of(path: Path) -> LogHeader:
    return HeaderReader().read(str(path))


@pytest.fixture
def traced(tmp_path: Path) -> Path:
    """A dataset of six modules with a log and three without, in between."""
    logs = list(find_logs(real_logs("regalloc-eviction")))
    ok = [TraceRow(log.module, "ok", "ok", "", exit_code=0, argv=("clang",)) for log in logs]
    ok[2] = ok[2]._replace(reason=RunReason.OK, detail="the compiler crashed")
    rows = [
        TraceRow("first", "failed", RunReason.TIMEOUT, "longer than 60 s", signal=9),
        *ok[:3],
        TraceRow("quiet", "ok", "ok", ""),
        *ok[3:],
        TraceRow("last", "failed", RunReason.SIGNAL, "", signal=11, log_bytes=12),
    ]
    trace(
        DatasetFolder(tmp_path / "d", {"a": 1}, force=False), logs, header_of(real_logs("regalloc-eviction")[0]), rows
    )
    return tmp_path / "d"


def test_logs_come_back_from_a_dataset_of_traces(traced: Path, tmp_path: Path) -> None:
    report = restore_logs(traced, tmp_path / "out")
    assert tree(tmp_path / "out") == data_of(real_logs("regalloc-eviction"))
    assert (report.logs, report.missing, report.renamed, report.incomplete) == (6, 3, 0, 0)
    assert read_key(open_dataset(traced)) == {"a": 1}


def test_a_module_without_a_log_is_a_failed_one(traced: Path) -> None:
    rows = read_log_rows(traced / "modules.parquet")
    traces = read_trace_rows(traced / "modules.parquet")
    assert [row.module for row in rows] == [row.module for row in traces]
    assert [row.source for row in rows] == [f"{row.module}.log" for row in rows]
    assert [(row.module, row.status, row.reason, row.detail) for row in rows if row.status != "ok"] == [
        ("first", "failed", "timeout", "longer than 60 s"),
        ("quiet", "failed", "ok", "the compiler decided nothing, so it has no log"),
        ("last", "failed", "signal", ""),
    ]
    for row, made in zip(rows, traces, strict=True):
        assert row[5:] == tuple(getattr(made, name) for name in LogRow._fields[5:])
    assert {row.reason for row in rows if row.status == "ok"} == {"ok"}


def test_a_log_that_was_cut_is_incomplete(traced: Path, tmp_path: Path) -> None:
    rows = read_trace_rows(traced / "modules.parquet")
    rows = tuple(row._replace(dropped_bytes=5) if row.header and row.module.endswith("lvm") else row for row in rows)
    write_trace_rows(traced / "modules.parquet", rows, METADATA)
    assert [row.reason for row in read_log_rows(traced / "modules.parquet")].count(LogReason.TRUNCATED) == 1
    assert restore_logs(traced, tmp_path / "out").incomplete == 1


@pytest.mark.parametrize("name", ["x.gz", "x.log", "../x", "a|b\n"])
def test_modules_of_any_name(tmp_path: Path, name: str) -> None:
    log = real_logs("inlining")[0]
    rows = [TraceRow(name, "ok", "ok", "")]
    logs = [LogFile(str(log), f"{name}.log", name, log.stat().st_size)]
    trace(DatasetFolder(tmp_path / "d", {}, force=False), logs, header_of(log), rows)
    restore_logs(tmp_path / "d", tmp_path / "out")
    assert list(tree(tmp_path / "out").values()) == [log.read_bytes()]


def test_a_table_that_lacks_a_column_of_logs(traced: Path, tmp_path: Path) -> None:
    path = traced / "modules.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["separator"]), path)
    with pytest.raises(UsageError, match=r"not a table of logs: .*: there is no 'separator'$"):
        restore_logs(traced, tmp_path / "out")


def test_a_damaged_log_makes_its_run_a_failure(tmp_path: Path) -> None:
    paths = []
    for path in real_logs("inlining"):
        paths.append(Path(shutil.copy(path, tmp_path)))
    paths[0].write_bytes(paths[0].read_bytes()[:-5])
    logs = list(find_logs(paths))
    rows = [TraceRow(log.module, "ok", "ok", "") for log in logs]
    rows[1] = rows[1]._replace(status="failed", reason="timeout", detail="late")
    kept = [logs[0], *logs[2:]]
    trace(DatasetFolder(tmp_path / "d", {}, force=False), kept, header_of(paths[0]), rows)
    found = read_trace_rows(tmp_path / "d/modules.parquet")
    assert found[0].status == "failed"
    assert found[0].reason == RunReason.UNREADABLE_LOG
    assert found[0].detail.startswith("its log is truncated: byte ")
    assert (found[0].header, found[0].observations, found[0].log_bytes) == (None, 0, paths[0].stat().st_size)
    assert (found[1].reason, found[1].header) == ("timeout", None)
    assert len(restored_names(tmp_path / "d", tmp_path / "out")) == 4
    late = TraceRow("m", "failed", "timeout", "late").with_log(LogRow("m", "m.log", "failed", "truncated", "x"))
    assert (late.reason, late.detail) == ("timeout", "late")


def restored_names(dataset: Path, output: Path) -> list[str]:
    restore_logs(dataset, output)
    return list(tree(output))


def test_a_dataset_without_a_single_log(tmp_path: Path) -> None:
    header = header_of(real_logs("inlining")[0])
    rows = [TraceRow("quiet", "ok", "ok", ""), EMPTY]
    trace(DatasetFolder(tmp_path / "d", {}, force=False), [], header, rows)
    assert read_trace_rows(tmp_path / "d/modules.parquet") == tuple(rows)
    assert pq.read_table(tmp_path / "d/observations").num_rows == 0
    assert restore_logs(tmp_path / "d", tmp_path / "out").logs == 0


# The work folder


def test_folders_in_the_work_folder(tmp_path: Path) -> None:
    folder = DatasetFolder(tmp_path / "d", {"a": 1}, force=False)
    folder.begin()
    logs = folder.paths.work / "logs/sub"
    logs.mkdir(parents=True)
    (logs / "a.log").write_bytes(b"x")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/file").write_bytes(b"y")
    (folder.paths.work / "link").symlink_to(tmp_path / "theirs")
    folder.begin()  # again, which changes nothing
    folder.close()
    again = DatasetFolder(tmp_path / "d", {"a": 1}, force=False)
    again.begin()
    assert (logs / "a.log").read_bytes() == b"x"
    with pytest.raises(UsageError, match="another mlgo-corpus is writing this dataset"):
        DatasetFolder(tmp_path / "d", {"a": 1}, force=False).begin()
    again.close()
    other = DatasetFolder(tmp_path / "d", {"a": 2}, force=False)
    other.begin()
    assert sorted(path.name for path in other.paths.work.iterdir()) == ["key.json", "lock"]
    assert (tmp_path / "theirs/file").read_bytes() == b"y"
    other.discard()
    other.close()
    assert not (tmp_path / "d").exists()


def test_what_is_forced_begins_only_once(tmp_path: Path) -> None:
    """The logs that a run makes after it has begun are there when they are converted; no table of a search is left."""
    (tmp_path / "d").mkdir()
    for name in ("flips.parquet", "search.parquet"):
        (tmp_path / "d" / name).write_bytes(b"")
    (tmp_path / "d/dataset.json").write_text('{"tool": "mlgo-corpus"}')
    folder = DatasetFolder(tmp_path / "d", {}, force=True)
    folder.begin()
    path = folder.paths.work / "logs/m.log"
    path.parent.mkdir()
    shutil.copy(real_logs("inlining")[0], path)
    trace(
        folder,
        [LogFile(str(path), "m.log", "m", path.stat().st_size)],
        header_of(path),
        [TraceRow("m", "ok", "ok", "")],
    )
    assert sorted(tree(tmp_path / "d")) == [
        "README.md", "contexts.parquet", "dataset.json", "modules.parquet", "observations/part-00000.parquet",
    ]  # fmt: skip


def test_a_kept_result_of_other_logs_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that failed in an interrupted run, and does not now, has a log more under the same key."""
    logs = list(find_logs(real_logs("inlining")))
    rows = [TraceRow(log.module, "ok", "ok", "") for log in logs]
    header = header_of(real_logs("inlining")[0])
    folder = DatasetFolder(tmp_path / "d", {"a": 1}, force=False)
    with monkeypatch.context() as patch:
        patch.setattr(DatasetFolder, "finish", _full)
        with pytest.raises(MlgoCorpusError, match="cannot write"):
            trace(folder, logs[1:], header, rows)
    folder.close()
    trace(DatasetFolder(tmp_path / "d", {"a": 1}, force=False), logs, header, rows)
    restore_logs(tmp_path / "d", tmp_path / "out")
    assert tree(tmp_path / "out") == data_of(real_logs("inlining"))


def _full(*_: Any) -> None:
    raise OSError(28, "No space left on device", "x")


def test_logs_alone_are_as_before(tmp_path: Path) -> None:
    convert_logs(real_logs("inlining"), tmp_path / "d")
    rows = read_log_rows(tmp_path / "d/modules.parquet")
    assert pq.read_schema(tmp_path / "d/modules.parquet").names == list(LogRow._fields)
    assert [row.reason for row in rows] == ["ok"] * 6
    assert parse_header(str(rows[0].header).encode()) == header_of(real_logs("inlining")[0])
    with pytest.raises(CorpusError, match="not a table of traces"):
        read_trace_rows(tmp_path / "d/modules.parquet")


def test_rows_share_what_they_repeat() -> None:
    """As it comes from workers, each row has its own copy of some hundred options, and of the log's header."""
    rows = [FULL._replace(argv=("clang", "-cc1", "-DX=a b", name)) for name in ("a.bc", "b.bc")]
    one, other = (pickle.loads(pickle.dumps(row)).with_shared_text() for row in rows)
    assert [one, other] == rows
    assert [a is b for a, b in zip(one.argv, other.argv, strict=True)] == [True, True, True, False]
    assert one.header is other.header
    assert EMPTY.with_shared_text() == EMPTY
