"""Logs to Parquet and back: bounds and orders that only show at scale, made small here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mlgo_corpus.dataset import folder as dataset_module
from mlgo_corpus.dataset import writer as parts_module
from mlgo_corpus.dataset.folder import DatasetFolder, DatasetPaths
from mlgo_corpus.dataset.logtable import read_log_rows
from mlgo_corpus.errors import UsageError
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.logs import LogWriter, convert_logs, read_log, restore_logs
from mlgo_corpus.runs.datasets import convert as logconversion
from tests.view.reportinputs import plain_trace

SPECS = [TensorSpec("a")]


def write_log(path: Path, contexts: dict[str, int], feature: str = "a") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with LogWriter(path, [TensorSpec(feature)]) as log:
        for name, count in contexts.items():
            log.write_context(name)
            for number in range(count):
                log.write_observation([number * 3])
    return path


def test_files_are_in_order_by_name_however_many_there_are() -> None:
    paths = DatasetPaths(Path("d"), single=False)
    for count in (1, 99_999, 100_000, 100_001, 1_234_567):
        some = sorted({0, 1, 9, 10, 9_999, 10_000, 99_999, 100_000, 999_999, count - 1} & set(range(count)))
        names = [paths.part(number, count).name for number in some]
        assert names == sorted(names)
        assert len(set(map(len, names))) == 1
    assert paths.part(7, 10).name == "part-00007.parquet"
    assert paths.part(7, 100_001).name == "part-000007.parquet"


def test_long_names_of_contexts_do_not_wait_for_the_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_module, "_MAX_CONTEXT_BYTES", 1000)
    waiting: list[int] = []
    take = parts_module._ContextRows.take

    def watched(self: parts_module._ContextRows, count: int, row: int) -> object:
        waiting.append(self.bytes)
        return take(self, count, row)

    monkeypatch.setattr(parts_module._ContextRows, "take", watched)
    names = {f"{number:03}" + "x" * 97: number % 3 for number in range(200)}
    log = write_log(tmp_path / "x.log", names)
    convert_logs(log, tmp_path / "d")
    assert len(waiting) > 15
    # one block of contexts may come on top; they are read one by one here, for each has observations or nearly
    assert max(waiting) < 2000
    assert pq.read_table(tmp_path / "d/contexts.parquet").column("context").to_pylist() == list(names)
    restore_logs(tmp_path / "d", tmp_path / "back")
    assert (tmp_path / "back/x.log").read_bytes() == log.read_bytes()


@pytest.mark.parametrize(("output", "jobs", "threads"), [("d", 1, 0), ("d", 2, 2), ("d", 64, 3), ("d.parquet", 64, 1)])
def test_many_jobs_do_not_take_more_memory(
    output: str, jobs: int, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    convert = logconversion.convert_task

    def watched(task: logconversion.LogTask, **options: Any) -> None:
        seen.append(task.options.threads)
        convert(task, **options)

    monkeypatch.setattr(logconversion, "convert_task", watched)
    convert_logs(write_log(tmp_path / "x.log", {"f": 3}), tmp_path / output, jobs=jobs)
    assert seen == [threads]


def test_equal_headers_are_one_text(tmp_path: Path) -> None:
    for number in range(5):
        write_log(tmp_path / f"logs/{number}.log", {"f": 1})
    convert_logs(tmp_path / "logs", tmp_path / "d")
    rows = read_log_rows(tmp_path / "d/modules.parquet")
    assert len({id(row.header) for row in rows}) == 1
    assert rows[0].header == '{"features":[{"name":"a","type":"int64_t","port":0,"shape":[1]}]}'


def test_headers_that_differ_in_spelling_only_are_kept_as_they_are(tmp_path: Path) -> None:
    first = write_log(tmp_path / "logs/1.log", {"f": 1})
    other = tmp_path / "logs/2.log"
    other.write_bytes(first.read_bytes().replace(b'"name":"a"', b'"name": "a"', 1))
    convert_logs(tmp_path / "logs", tmp_path / "d")
    restore_logs(tmp_path / "d", tmp_path / "back")
    for log in (first, other):
        assert (tmp_path / "back" / log.name).read_bytes() == log.read_bytes()


def grouped(folder: Path, *features: str) -> Path:
    for feature in features:
        write_log(folder / f"{feature}.log", {"f": 2}, feature)
    return folder


def test_groups_of_another_call_are_not_mixed_with_these(tmp_path: Path) -> None:
    both = grouped(tmp_path / "both", "inlining_decision", "priority")
    one = grouped(tmp_path / "one", "priority")
    convert_logs(both, tmp_path / "d", group_by_header=True)
    with pytest.raises(UsageError, match=r"d/inlining: made by another call, of other logs; `force` removes it"):
        convert_logs(one, tmp_path / "d", group_by_header=True)
    assert (tmp_path / "d/inlining/dataset.json").exists()
    convert_logs(one, tmp_path / "d", group_by_header=True, force=True)
    assert [path.name for path in (tmp_path / "d").iterdir()] == ["regalloc-priority"]


def test_groups_do_not_go_into_a_dataset_or_among_other_files(tmp_path: Path) -> None:
    logs = grouped(tmp_path / "logs", "priority")
    convert_logs(logs, tmp_path / "d")
    for force in (False, True):
        with pytest.raises(UsageError, match="d: is a dataset, made without `group_by_header`; name another folder"):
            convert_logs(logs, tmp_path / "d", group_by_header=True, force=force)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/notes.txt").write_text("mine")
    for force in (False, True):
        with pytest.raises(UsageError, match=r"other: notes\.txt is not a dataset; name another folder"):
            convert_logs(logs, tmp_path / "other", group_by_header=True, force=force)
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["notes.txt"]


def test_force_removes_no_foreign_dataset_from_a_folder_of_groups(tmp_path: Path) -> None:
    both = grouped(tmp_path / "both", "inlining_decision", "priority")
    one = grouped(tmp_path / "one", "priority")
    convert_logs(both, tmp_path / "d", group_by_header=True)
    (tmp_path / "d/inlining/model").mkdir()
    (tmp_path / "d/inlining/model/w.npz").write_text("mine")
    for force in (False, True):
        with pytest.raises(UsageError, match=r"d: inlining/model/w\.npz is not part of the dataset, and would be lost"):
            convert_logs(one, tmp_path / "d", group_by_header=True, force=force)
    (tmp_path / "d/inlining/model/w.npz").unlink()
    convert_logs(both / "priority.log", tmp_path / "d/mine")
    (tmp_path / "d/inlining").rename(tmp_path / "kept")
    plain_trace(tmp_path / "d/inlining", {"m": 900})
    for name in ("inlining", "mine"):  # a trace of that name, and a dataset of logs of another
        for force in (False, True):
            with pytest.raises(UsageError, match=f"d: {name} was not made with `group_by_header`; name another folder"):
                convert_logs(one, tmp_path / "d", group_by_header=True, force=force)
        (tmp_path / "d" / name).rename(tmp_path / f"{name}-kept")
    convert_logs(one, tmp_path / "d", group_by_header=True, force=True)


def test_a_folder_of_datasets_is_told_from_a_dataset(tmp_path: Path) -> None:
    convert_logs(grouped(tmp_path / "logs", "inlining_decision", "priority"), tmp_path / "d", group_by_header=True)
    message = f"{tmp_path}/d: holds 2 datasets (inlining, regalloc-priority); name one: {tmp_path}/d/inlining"
    with pytest.raises(UsageError) as caught:
        restore_logs(tmp_path / "d", tmp_path / "back")
    assert str(caught.value) == message


def test_a_dataset_that_another_run_made_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = write_log(tmp_path / "first.log", {"f": 1})
    second = write_log(tmp_path / "second.log", {"f": 2})
    begin = DatasetFolder.begin

    def late(self: DatasetFolder) -> None:
        monkeypatch.setattr(dataset_module.DatasetFolder, "begin", begin)
        convert_logs(second, tmp_path / "d")
        begin(self)

    monkeypatch.setattr(dataset_module.DatasetFolder, "begin", late)
    with pytest.raises(UsageError, match="d: another run has just made it; `force` replaces it"):
        convert_logs(first, tmp_path / "d")
    assert json.loads((tmp_path / "d/dataset.json").read_text())["observations"] == 2
    assert read_log_rows(tmp_path / "d/modules.parquet")[0].module == "second"


def test_a_refused_header_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a header of \d+ bytes, expected less than 1048576"):
        LogWriter(tmp_path / "x.log", [TensorSpec(f"feature{number}") for number in range(20_000)])
    assert list(tmp_path.iterdir()) == []


def test_what_no_reader_believes_is_not_written(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "x.log", SPECS) as log:
        log.write_context("f")
        log.write_observation([1])
        for name in ("n" * (17 << 20), None, "\ud800", 3):
            with pytest.raises(ValueError, match="context's"):
                log.write_context(name)  # type: ignore[arg-type]
        log.write_observation([2])
    found = read_log(tmp_path / "x.log")
    assert [(context.name, context.numbers.tolist()) for context in found] == [("f", [0, 1])]


def test_a_leading_frame_without_data(tmp_path: Path) -> None:
    import pyarrow as pa

    data = write_log(tmp_path / "x.log", {"f": 40}).read_bytes()
    frame = pa.compress(data, codec="zstd", asbytes=True)
    (tmp_path / "y.log.zst").write_bytes(b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + frame)
    assert read_log(tmp_path / "y.log.zst").to_arrow().column("a").to_pylist() == [number * 3 for number in range(40)]


def test_long_names_keep_their_suffix(tmp_path: Path) -> None:
    name = "a" * 251 + ".log"
    log = write_log(tmp_path / "logs" / "b.log", {"f": 1})
    log.rename(log.with_name(name))
    convert_logs(tmp_path / "logs", tmp_path / "d")
    report = restore_logs(tmp_path / "d", tmp_path / "back")
    [restored] = (tmp_path / "back").iterdir()
    assert restored.name.endswith(".log")
    assert report.renamed == (restored.name != name)
