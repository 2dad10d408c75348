"""Damaged logs, other headers, outputs that are taken, full disks: rows with a reason, or one line and no trace."""

from __future__ import annotations

import errno
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlgo_corpus import LogWriter, TensorSpec, convert_logs, read_log, restore_logs
from mlgo_corpus.errors import FormatError, MlgoCorpusError, UsageError
from mlgo_corpus.files.tables import BatchTable
from mlgo_corpus.formats.logs.blocks import BlockReader
from tests.conftest import PACKAGE_ROOT
from tests.runs.datasets.test_logs import (
    LOGS,
    check_dataset,
    copies,
    expected_dataset,
    header_of,
    observations_of,
    plain_log,
    restored,
    tree,
)
from tests.runs.extract.test_bad_input import as_nobody

pytestmark = pytest.mark.whole

GOOD = LOGS / "regalloc-priority.ltable.log"
OTHER = LOGS / "inlining.lapi.log"


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def rows_of(output: Path) -> dict[str, dict[str, Any]]:
    return {row["module"]: row for row in pq.read_table(output / "modules.parquet").to_pylist()}


# Damaged logs

HEADER, BODY = GOOD.read_bytes().split(b"\n", 1)
DAMAGED = {
    "empty": b"",
    "binary": bytes(range(256)) * 50,
    "text": b"this is no log\n" * 100,
    "json": b'{"a": 1}\n',
    "cut-header": HEADER[:-5],
    "cut": GOOD.read_bytes()[:-3],
    "joined": GOOD.read_bytes() * 2,
    "junk-inside": GOOD.read_bytes()[:5000] + b"!" + GOOD.read_bytes()[5000:],
    "other-number": GOOD.read_bytes().replace(b'{"outcome":7}', b'{"outcome":8}'),
}
REASONS = {
    "binary": "malformed",
    "cut": "truncated",
    "cut-header": "truncated",
    "empty": "truncated",
    "joined": "second_header",
    "json": "malformed",
    "junk-inside": "malformed",
    "other-number": "malformed",
    "text": "malformed",
}


@pytest.mark.parametrize("allow_truncated", [False, True])
def test_damaged_logs_are_rows_with_a_reason(tmp_path: Path, allow_truncated: bool) -> None:
    logs = {f"{name}.log": data for name, data in DAMAGED.items()} | {"good.log": GOOD.read_bytes()}
    for name, data in logs.items():
        write(tmp_path / "logs" / name, data)
    (tmp_path / "logs/folder.log").mkdir()
    report = convert_logs(tmp_path / "logs", tmp_path / "d", allow_truncated=allow_truncated)
    expected = expected_dataset(dict(sorted(logs.items())), allow_truncated=allow_truncated)
    check_dataset(tmp_path / "d", expected, header_of(GOOD))
    rows = rows_of(tmp_path / "d")
    assert {name: row["reason"] for name, row in rows.items()} == {**REASONS, "good": "ok"}
    assert rows["empty"]["detail"] == "byte 0: the log is empty"
    assert rows["joined"]["detail"].startswith(f"byte {GOOD.stat().st_size}: a second header")
    kept = {"cut", "joined", "junk-inside", "other-number"} if allow_truncated else set()
    assert {name for name, row in rows.items() if row["status"] == "ok"} == {"good", *kept}
    assert (report.logs, report.converted, report.damaged) == (10, 1 + len(kept), len(kept))
    assert (report.failed, report.exit_code) == (9 - len(kept), 1)
    assert report.dropped_bytes == sum(len(DAMAGED[name]) - plain_log(DAMAGED[name]).whole for name in kept)  # type: ignore[union-attr]
    assert report.counts["malformed"] == 5
    assert len(report.problems) == 5
    assert restored(tmp_path / "d", tmp_path / "back") == expected.restored
    back = restore_logs(tmp_path / "d", tmp_path / "back", force=True)
    assert (back.logs, back.missing, back.incomplete) == (1 + len(kept), 9 - len(kept), len(kept))


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
@pytest.mark.parametrize("name", ["d", "d.parquet"])
def test_what_follows_damage_is_counted_to_the_end(
    tmp_path: Path, compress: Callable[[bytes], bytes], name: str
) -> None:
    data = GOOD.read_bytes() + BODY * 80
    assert len(data) > 2_000_000
    data = data[:100_000] + b"!" + data[100_000:]
    plain = plain_log(data)
    assert not isinstance(plain, FormatError)
    assert plain.whole <= 100_000
    log = write(tmp_path / "x.log", compress(data))
    report = convert_logs(log, tmp_path / name, allow_truncated=True)
    assert (report.log_bytes, report.dropped_bytes) == (len(data), len(data) - plain.whole)
    assert restored(tmp_path / name, tmp_path / "back") == {"x.log": data[: plain.whole]}


@pytest.mark.parametrize("name", DAMAGED)
@pytest.mark.parametrize("output", ["new/d", "new/d.parquet", "there/d"])
def test_nothing_converted_is_nothing_written(tmp_path: Path, name: str, output: str) -> None:
    log = write(tmp_path / "x.log", DAMAGED[name])
    (tmp_path / "there").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=r"^x\.log: ") as caught:
        convert_logs(log, tmp_path / output)
    assert "\n" not in str(caught.value)
    advice = str(caught.value).endswith("; `allow_truncated` keeps its whole observations")
    assert advice == (name in {"cut", "joined", "junk-inside", "other-number"})
    assert sorted(tmp_path.rglob("*")) == before


def test_nothing_converted_of_many(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / f"logs/{number}.log", DAMAGED["cut"])
    convert_logs(GOOD, tmp_path / "d")
    before = tree(tmp_path)
    for output, force in (("new", False), ("d", True)):
        with pytest.raises(UsageError, match=r"^0\.log: byte .* \(and 2 more logs failed\); `allow_truncated` keeps"):
            convert_logs(tmp_path / "logs", tmp_path / output, force=force)
        assert tree(tmp_path) == before  # --force replaces a dataset with another, not with nothing
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d", "logs"]


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which only root may")
def test_without_permission(tmp_path: Path) -> None:
    convert_logs(GOOD, tmp_path / "imports-all-there-is-to-import")
    root = Path(tempfile.mkdtemp())  # pytest's own folders are closed to other users
    try:
        root.chmod(0o755)
        write(root / "logs/a.log", GOOD.read_bytes())
        write(root / "logs/b.log", GOOD.read_bytes()).chmod(0)
        write(root / "closed/c.log", GOOD.read_bytes())
        (root / "closed").chmod(0)
        (root / "sealed").mkdir(mode=0o555)
        (root / "out").mkdir()
        (root / "out").chmod(0o777)

        def message_of(inputs: Path, output: Path) -> str:
            with pytest.raises(UsageError) as caught:
                convert_logs(inputs, output)
            return str(caught.value)

        assert as_nobody(lambda: convert_logs(root / "logs", root / "out/d").counts) == {"ok": 1, "unreadable": 1}
        row = rows_of(root / "out/d")["b"]
        assert (row["status"], row["reason"], row["detail"]) == ("failed", "unreadable", "Permission denied")
        assert as_nobody(lambda: message_of(root, root / "out/e")) == f"{root}/closed: Permission denied"
        assert as_nobody(lambda: message_of(root / "logs/b.log", root / "out/e")) == "b.log: Permission denied"
        for name in ("sealed/d", "sealed/d.parquet"):
            message = as_nobody(lambda name=name: message_of(root / "logs", root / name))
            assert str(message).endswith("cannot write there: Permission denied")
        assert as_nobody(lambda: message_of(root / "logs", root / "closed/d")) == f"{root}/closed/d: Permission denied"
    finally:
        shutil.rmtree(root)


def failing_reads(monkeypatch: pytest.MonkeyPatch, path: Path, opening: int) -> None:
    """Let a log be unreadable when it is opened for the given time: 1 for its header, 2 to convert it."""
    from mlgo_corpus.dataset import logs as logfiles

    real, calls = logfiles._open_raw, count(1)

    def open_raw(name: str) -> Any:
        if name == str(path) and next(calls) == opening:
            raise OSError(errno.EIO, os.strerror(errno.EIO), name)
        return real(name)

    monkeypatch.setattr(logfiles, "_open_raw", open_raw)


@pytest.mark.parametrize("opening", [1, 2])
@pytest.mark.parametrize("allow_truncated", [False, True])
def test_a_log_that_a_bad_disk_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opening: int, allow_truncated: bool
) -> None:
    for name in "abc":
        write(tmp_path / f"logs/{name}.log", GOOD.read_bytes())
    failing_reads(monkeypatch, tmp_path / "logs/b.log", opening)
    report = convert_logs(tmp_path / "logs", tmp_path / "d", allow_truncated=allow_truncated)
    row = rows_of(tmp_path / "d")["b"]
    assert (row["status"], row["reason"], row["detail"]) == ("failed", "unreadable", "Input/output error")
    assert report.counts == {"ok": 2, "unreadable": 1}
    assert restored(tmp_path / "d", tmp_path / "back") == dict.fromkeys(["a.log", "c.log"], GOOD.read_bytes())


class _FailsAt:
    """A source that fails after some bytes."""

    def __init__(self, source: Any, after: int) -> None:
        self._source = source
        self._left = after

    def readinto(self, buffer: memoryview, /) -> int:
        if not self._left:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        got: int = self._source.readinto(buffer[: self._left])
        self._left -= got
        return got


@pytest.mark.parametrize("allow_truncated", [False, True])
def test_a_log_of_which_a_bad_disk_gives_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allow_truncated: bool
) -> None:
    logs = [write(tmp_path / f"logs/{name}.log", GOOD.read_bytes()) for name in "abc"]
    monkeypatch.setattr(
        "mlgo_corpus.runs.datasets.convert.BlockReader",
        lambda source, *more: BlockReader(
            _FailsAt(source, 10_000) if source._source.name == str(logs[1]) else source, *more
        ),
    )
    report = convert_logs(logs, tmp_path / "d", allow_truncated=allow_truncated)
    row = rows_of(tmp_path / "d")["b"]
    assert (row["reason"], row["detail"]) == ("unreadable", "Input/output error")
    assert row["status"] == ("ok" if allow_truncated else "failed")
    assert report.observations == 2 * len(read_log(GOOD)) + row["observations"]
    back = restored(tmp_path / "d", tmp_path / "back")
    assert ("b.log" in back) == allow_truncated
    if allow_truncated:
        assert GOOD.read_bytes().startswith(back["b.log"])
        assert 9_000 < len(back["b.log"]) <= 10_000


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda path: path.write_bytes(OTHER.read_bytes()), "malformed"),
        (lambda path: path.write_bytes(b""), "truncated"),
        (lambda path: path.unlink(), "unreadable"),
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "truncated"),
        (lambda path: path.write_bytes(path.read_bytes() + BODY), "ok"),
        (lambda path: path.replace(path.with_name("aside")) and path.write_bytes(GOOD.read_bytes()), "ok"),
    ],
    ids=["another", "emptied", "gone", "cut", "grown", "replaced"],
)
def test_a_log_that_changes_while_it_is_converted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object], reason: str
) -> None:
    """Headers are read first, then the logs; what was converted is what was there then."""
    from mlgo_corpus import logs as stage

    paths = [write(tmp_path / f"logs/{name}.log", GOOD.read_bytes()) for name in "abc"]
    real = stage.convert_logs_into

    def convert_later(*args: Any, **options: Any) -> Any:
        change(paths[1])
        return real(*args, **options)

    monkeypatch.setattr(stage, "convert_logs_into", convert_later)
    report = convert_logs(paths, tmp_path / "d")
    row = rows_of(tmp_path / "d")["b"]
    assert row["reason"] == reason
    assert report.exit_code == (reason != "ok")
    if paths[1].exists() and reason == "malformed":
        assert row["detail"] == "byte 0: the log is another one than it was a moment ago"
    back = restored(tmp_path / "d", tmp_path / "back")
    assert back == {path.name: path.read_bytes() for path in paths if path.stem != "b" or reason == "ok"}
    monkeypatch.undo()
    if paths[1].exists():
        with pytest.raises(UsageError, match="have different headers" if reason == "malformed" else "`force` replaces"):
            convert_logs(paths, tmp_path / "d")


# Different headers


def test_different_headers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        convert_logs([GOOD, OTHER], tmp_path / "d")
    assert str(caught.value) == (
        f"{GOOD} and {OTHER} have different headers: feature 0 is 'li_size' int64_t [1] in the first and "
        "'sroa_savings' int64_t [1] in the second; `group_by_header` makes a dataset of each"
    )
    assert list(tmp_path.iterdir()) == []


def test_headers_that_mean_the_same_are_one(tmp_path: Path) -> None:
    spaced = json.dumps(json.loads(HEADER)).encode()
    assert spaced != HEADER
    write(tmp_path / "logs/a.log", GOOD.read_bytes())
    write(tmp_path / "logs/b.log", spaced + b"\n" + BODY)
    convert_logs(tmp_path / "logs", tmp_path / "d")
    rows = rows_of(tmp_path / "d")
    assert [rows["a"]["header"], rows["b"]["header"]] == [HEADER.decode(), spaced.decode()]
    assert restored(tmp_path / "d", tmp_path / "back") == tree(tmp_path / "logs")


def test_groups_of_unknown_headers(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for number, kind in enumerate(["int8_t", "float", "double"]):
        with LogWriter(tmp_path / f"logs/{number}.log", [TensorSpec("x", kind)]) as log:
            log.write_observation([number])
    write(tmp_path / "logs/3.log", GOOD.read_bytes())
    write(tmp_path / "logs/4.log", GOOD.read_bytes().replace(b'"name":"weight"', b'"name":"heavy"'))
    write(tmp_path / "logs/bad.log", b"junk")
    report = convert_logs(tmp_path / "logs", tmp_path / "d", group_by_header=True)
    names = ["other", "other~2", "other~3", "regalloc-priority", "regalloc-priority~2"]
    assert [group.output.name for group in report.groups] == names
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == sorted(names)
    back = {}
    for group in report.groups:
        back |= restored(group.output, tmp_path / "back" / group.output.name)
    assert back == {name: data for name, data in tree(tmp_path / "logs").items() if name != "bad.log"}
    assert (report.failed, report.problems) == (1, (("bad.log", rows_of(tmp_path / "d/other")["bad"]["detail"]),))


def test_a_group_of_which_nothing_can_be_converted(tmp_path: Path) -> None:
    """It has a dataset too, without observations, for the rows that say why; the other groups are whole."""
    write(tmp_path / "logs/1.log", OTHER.read_bytes()[:-1])
    write(tmp_path / "logs/2.log", GOOD.read_bytes())
    write(tmp_path / "logs/3.log", b"")
    report = convert_logs(tmp_path / "logs", tmp_path / "d", group_by_header=True)
    assert [(group.output.name, group.converted, group.failed) for group in report.groups] == [
        ("inlining", 0, 2),
        ("regalloc-priority", 1, 0),
    ]
    assert (report.exit_code, report.failed) == (1, 2)
    assert observations_of(tmp_path / "d/inlining").num_rows == 0
    assert {name: row["reason"] for name, row in rows_of(tmp_path / "d/inlining").items()} == dict.fromkeys(
        ["1", "3"], "truncated"
    )
    assert restored(tmp_path / "d/inlining", tmp_path / "none") == {}
    assert restored(tmp_path / "d/regalloc-priority", tmp_path / "back") == {"2.log": GOOD.read_bytes()}
    assert convert_logs(tmp_path / "logs", tmp_path / "d", group_by_header=True).unchanged
    (tmp_path / "logs/2.log").unlink()
    before = tree(tmp_path)
    with pytest.raises(UsageError, match=r"^3\.log: byte 0: .* \(and 1 more logs failed\)"):
        convert_logs(tmp_path / "logs", tmp_path / "e", group_by_header=True)
    assert tree(tmp_path) == before
    assert not (tmp_path / "e").exists()


def test_a_group_whose_place_is_taken(tmp_path: Path) -> None:
    """Whether all groups have a place is found out before any of them is made."""
    write(tmp_path / "d/regalloc-priority/notes.txt", b"mine")
    write(tmp_path / "d/inlining/.mlgo-corpus/from-before", b"x")
    before = tree(tmp_path)
    with pytest.raises(UsageError, match=r"regalloc-priority: is not empty, and not a dataset: it holds notes\.txt;"):
        convert_logs(LOGS, tmp_path / "d", group_by_header=True)
    assert tree(tmp_path) == before


# Outputs that are taken


def stamps(folder: Path) -> dict[Path, tuple[int, ...]]:
    """Tell each file and folder from one that was made or changed since; that it has been read does not count."""
    found = {path: path.stat() for path in folder.rglob("*")}
    return {
        path: (one.st_ino, one.st_mode, one.st_size, one.st_mtime_ns, one.st_ctime_ns) for path, one in found.items()
    }


def test_what_is_there_is_not_made_again(tmp_path: Path) -> None:
    logs = copies(tmp_path / "logs", 3)
    for output in (tmp_path / "d", tmp_path / "d.parquet"):
        first = convert_logs(logs, output)
        before = stamps(tmp_path)
        second = convert_logs([tmp_path / "logs"], output, jobs=1)
        assert stamps(tmp_path) == before
        assert second == replace(first, unchanged=True, seconds=second.seconds)


OTHERWISE: dict[str, dict[str, Any]] = {
    "another log": {},
    "compression": {"compression": "snappy"},
    "regex": {"context_regex": "lua"},
    "allow": {"allow_truncated": True},
    "rows": {"rows_per_file": 100},
    "touched": {},
    "one log less": {},
}


@pytest.mark.parametrize("otherwise", OTHERWISE)
@pytest.mark.parametrize("name", ["d", "d.parquet"])
def test_what_is_there_of_others_is_replaced_only_with_force(tmp_path: Path, name: str, otherwise: str) -> None:
    logs = copies(tmp_path / "logs", 6)
    output = tmp_path / "out" / name
    convert_logs(logs, output, **({} if name != "d" else {"rows_per_file": 500}))
    options = {"rows_per_file": 500, **OTHERWISE[otherwise]} if name == "d" else OTHERWISE[otherwise]
    if name != "d":
        options.pop("rows_per_file", None)
    if otherwise == "another log":
        logs.append(write(tmp_path / "logs/zzz.log", GOOD.read_bytes()))
    elif otherwise == "touched" or (otherwise == "rows" and name != "d"):
        os.utime(logs[0], ns=(1, 1))
    elif otherwise == "one log less":
        del logs[1:]
    before = tree(tmp_path / "out")
    with pytest.raises(UsageError) as caught:
        convert_logs(logs, output, **options)
    assert str(caught.value) == f"{output}: made from other inputs or with other options; `force` replaces it"
    assert tree(tmp_path / "out") == before
    convert_logs(logs, output, **options, force=True)
    convert_logs(logs, tmp_path / "fresh" / name, **options)
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")
    assert convert_logs(logs, output, **options).unchanged


def test_a_dataset_of_which_a_file_is_missing_is_made_again(tmp_path: Path) -> None:
    logs = copies(tmp_path / "logs", 6)
    for output in (tmp_path / "out/d", tmp_path / "out/d.parquet"):
        convert_logs(logs, output)
        before = tree(tmp_path / "out")
        for name in before:
            if name.startswith("d/") == (output.name == "d") and "modules" not in name:
                (tmp_path / "out" / name).unlink()
                if name == "d/dataset.json":
                    with pytest.raises(UsageError, match=r"it holds README\.md; name another"):
                        convert_logs(logs, output)
                    write(tmp_path / "out" / name, before[name])
                else:
                    assert not convert_logs(logs, output).unchanged
                assert tree(tmp_path / "out") == before


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("name", ["notes.txt", "dataset.json", "modules.parquet", "observations/part-00000.parquet"])
def test_a_folder_of_others_is_left_alone(tmp_path: Path, name: str, force: bool) -> None:
    write(tmp_path / "d" / name, b'{"tool": "of others"}')
    with pytest.raises(UsageError) as caught:
        convert_logs(GOOD, tmp_path / "d", force=force)
    there = name.partition("/")[0]
    assert str(caught.value) == f"{tmp_path}/d: is not empty, and not a dataset: it holds {there}; name another folder"
    assert tree(tmp_path) == {f"d/{name}": b'{"tool": "of others"}'}
    assert [path.name for path in (tmp_path / "d").iterdir()] == [there]


@pytest.mark.parametrize("name", ["d.parquet", "d.contexts.parquet", "d.modules.parquet"])
def test_files_of_others_where_a_single_file_goes(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, b"of others")
    with pytest.raises(UsageError, match=r"d\S*\.parquet: .*; `force` replaces it"):
        convert_logs(GOOD, tmp_path / "d.parquet")
    assert tree(tmp_path) == {name: b"of others"}
    convert_logs(GOOD, tmp_path / "d.parquet", force=True)
    assert restored(tmp_path / "d.parquet", tmp_path / "back") == {GOOD.name: GOOD.read_bytes()}


def test_a_single_file_that_is_deleted_is_made_again(tmp_path: Path) -> None:
    convert_logs(GOOD, tmp_path / "d.parquet")
    before = tree(tmp_path)
    (tmp_path / "d.parquet").unlink()
    convert_logs(GOOD, tmp_path / "d.parquet")
    assert tree(tmp_path) == before


def test_outputs_that_cannot_be(tmp_path: Path) -> None:
    write(tmp_path / "file", b"x")
    for output, message in [
        (tmp_path / "file", "file: expected a folder, found a file"),
        (tmp_path / "file/d", "file/d/.mlgo-corpus: cannot write there: Not a directory"),
        (tmp_path / "file/d.parquet", "file/.d.parquet.mlgo-corpus: cannot write there: "),
        (Path("/proc/d"), "/proc/d"),
        (tmp_path / ("n" * 300), ": File name too long"),
    ]:
        with pytest.raises(UsageError) as caught:
            convert_logs(GOOD, output)
        assert message in str(caught.value)
    assert tree(tmp_path) == {"file": b"x"}
    (tmp_path / "aside").mkdir()
    (tmp_path / "d").mkdir()
    (tmp_path / "d/.mlgo-corpus").symlink_to(tmp_path / "aside")
    with pytest.raises(
        UsageError, match="mlgo-corpus: expected a folder of the dataset, found a symbolic link; delete"
    ):
        convert_logs(GOOD, tmp_path / "d")


def test_force_replaces_no_part_of_a_corpus_or_dataset(tmp_path: Path) -> None:
    corpus, dataset = tmp_path / "corpus", tmp_path / "d"
    write(corpus / "corpus_description.json", b'{"has_thinlto": false, "modules": []}')
    for name in ("modules.parquet", "sizes.parquet"):  # no functions.parquet: not every corpus has all its tables
        write(corpus / name, b"x")
    convert_logs(GOOD, dataset)
    os.mkfifo(tmp_path / "fifo.parquet")
    before = {folder: tree(folder) for folder in (corpus, dataset)}
    for output, message in [
        (corpus / "modules.parquet", "is a part of what corpus_description.json describes"),
        (corpus / "functions.parquet", "is a part of what corpus_description.json describes"),
        (dataset / "modules.parquet", "is a part of what dataset.json describes"),
        (dataset / "contexts.parquet", "is a part of what dataset.json describes"),
        (tmp_path / "fifo.parquet", "is neither a file nor a folder"),
    ]:
        with pytest.raises(UsageError, match=message):
            convert_logs(GOOD, output, force=True)
    assert {folder: tree(folder) for folder in (corpus, dataset)} == before
    convert_logs(GOOD, corpus / "sizes.parquet", force=True)  # which is no part of it


@pytest.mark.parametrize(
    "moves",
    [b"5", b"[]", b"[[]]", b"{}", b'[["a"]]', b"[[1, 2]]", b'[["a", "../../stolen"]]', b'[["../../stolen", "b"]]',
     b'[["a", "/stolen"]]', b'[["a", null]]', b"[" * 100_000, b"\xff"],
)  # fmt: skip
def test_a_list_of_moves_that_is_not_ours(tmp_path: Path, moves: bytes) -> None:
    write(tmp_path / "stolen", b"x")
    write(tmp_path / "d/.mlgo-corpus/moves.json", moves)
    write(tmp_path / "d/.mlgo-corpus/a", b"y")
    before = tree(tmp_path)
    with pytest.raises(UsageError, match=r"moves\.json: was not written by mlgo-corpus; delete .*/d/\.mlgo-corpus$"):
        convert_logs(GOOD, tmp_path / "d")
    assert {name: data for name, data in tree(tmp_path).items() if not name.endswith("lock")} == before


def test_two_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlgo_corpus import logs as stage

    real = stage.convert_logs_into

    def meanwhile(folder: Any, *args: Any, **options: Any) -> Any:
        done = real(folder, *args, **options)
        monkeypatch.setattr(stage, "convert_logs_into", real)
        for force in (False, True):
            with pytest.raises(UsageError, match="/d: another mlgo-corpus is writing this dataset; wait for it"):
                convert_logs(OTHER, tmp_path / "d", force=force)
        return done

    monkeypatch.setattr(stage, "convert_logs_into", meanwhile)
    convert_logs(GOOD, tmp_path / "d")
    assert restored(tmp_path / "d", tmp_path / "back") == {GOOD.name: GOOD.read_bytes()}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compression": "zip"}, "compression zip: expected zstd, snappy, gzip, lz4, brotli or none"),
        ({"rows_per_file": 0}, "rows_per_file 0: expected at least 1"),
        ({"jobs": 0}, "jobs 0: expected at least 1"),
        ({"context_regex": "("}, "context_regex (: not a regular expression: missing ), unterminated subpattern"),
    ],
)
def test_options_that_cannot_be(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        convert_logs(GOOD, tmp_path / "d", **options)
    assert str(caught.value).startswith(message)
    for name in ("rows_per_file", "group_by_header"):
        with pytest.raises(UsageError, match=r"d\.parquet is one file; name a folder instead"):
            convert_logs(GOOD, tmp_path / "d.parquet", **{name: 1})
    assert list(tmp_path.iterdir()) == []


# A full disk


@pytest.mark.parametrize("failing", [1, 2, 4, 9])
@pytest.mark.parametrize(
    ("name", "jobs", "task_bytes"), [("d", 1, 1 << 30), ("d", 3, 1 << 30), ("d", 2, 100_000), ("d.parquet", 3, 1 << 30)]
)
def test_a_disk_that_is_full_at_some_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int, name: str, jobs: int, task_bytes: int
) -> None:
    monkeypatch.setattr("mlgo_corpus.runs.datasets.convert.TASK_BYTES", task_bytes)
    monkeypatch.setattr("mlgo_corpus.dataset.writer.ROW_GROUP_BYTES", 20_000)
    logs = copies(tmp_path / "logs", 12)
    calls = count(1)
    real = BatchTable.write

    def failing_write(self: BatchTable, batch: pa.RecordBatch) -> None:
        if next(calls) == failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(BatchTable, "write", failing_write)
        with pytest.raises(MlgoCorpusError, match=r"^cannot write \S*: No space left on device$") as caught:
            convert_logs(logs, tmp_path / "out" / name, jobs=jobs)
    assert not isinstance(caught.value, UsageError)
    assert not any(path.suffix in (".parquet", ".json") for path in finals(tmp_path / "out"))
    convert_logs(logs, tmp_path / "out" / name, jobs=jobs)
    convert_logs(logs, tmp_path / "fresh" / name, jobs=jobs)
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


def finals(folder: Path) -> list[Path]:
    """Give the files that are not in a work folder."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in paths if not any("mlgo-corpus" in part for part in path.relative_to(folder).parts)]


@pytest.mark.parametrize("limit", [0, 50, 700, 8_000])
def test_a_disk_that_is_really_full(tmp_path: Path, limit: int) -> None:
    logs = copies(tmp_path / "logs", 6)
    code = (
        "import resource, sys\n"
        "from mlgo_corpus import MlgoCorpusError, convert_logs\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)\n"
        "for name in ('d', 'd.parquet'):\n"
        "    try:\n"
        "        convert_logs(sys.argv[2], sys.argv[3] + '/' + name)\n"
        "        print('no error')\n"
        "    except MlgoCorpusError as error:\n"
        "        print(error)\n"
    )
    env = {**os.environ, "PYTHONPATH": PACKAGE_ROOT}
    argv = (sys.executable, "-c", code, str(limit), str(tmp_path / "logs"), str(tmp_path / "out"))
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all("cannot write" in line and line.endswith("File too large") for line in lines)
    assert not any(path.suffix in (".parquet", ".json") for path in finals(tmp_path / "out"))
    for name in ("d", "d.parquet"):
        convert_logs(logs, tmp_path / "out" / name)
        convert_logs(logs, tmp_path / "fresh" / name)
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")
