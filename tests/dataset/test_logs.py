"""Training logs on disk: which files they are and what they are called, compressed ones, pipes, and writing one."""

from __future__ import annotations

import gzip
import os
import shlex
import shutil
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlgo_corpus import LogWriter, TensorSpec, convert_logs, read_log
from mlgo_corpus.errors import FormatError, UsageError
from tests.conftest import PACKAGE_ROOT
from tests.forked import shell_words
from tests.runs.datasets.test_logs import (
    LOGS,
    beside,
    check_dataset,
    expected_dataset,
    header_of,
    plain_log,
    restored,
    tree,
)

pytestmark = pytest.mark.whole

LARGE = LOGS / "regalloc-eviction.lvm.log"


# Names


def put(path: Path, source: Path = LOGS / "inlining.lzio.log") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(source.read_bytes())
    return path


def modules_of(output: Path) -> dict[str, str]:
    """Give the modules of a dataset and where they come from."""
    rows = pq.read_table(beside(output, "modules.parquet")).to_pylist()
    return {row["module"]: row["source"] for row in rows}


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        (
            ["a"],
            {"x": "x.log", "sub/y": "sub/y.log", "begins": "begins", "z": "z.log.gz", "named.log/w": "named.log/w.log"},
        ),
        (["a/sub"], {"y": "y.log"}),
        (["a/x.log"], {"x": "x.log"}),
        (["a/begins"], {"begins": "begins"}),
        (["a/x.log", "a/sub/y.log"], {"x": "x.log", "sub/y": "sub/y.log"}),
        (["a/sub/y.log", "b/x.log"], {"a/sub/y": "a/sub/y.log", "b/x": "b/x.log"}),
        (["b", "a/sub"], {"b/x": "b/x.log", "a/sub/y": "a/sub/y.log"}),
        (["b", "a/sub/"], {"b/x": "b/x.log", "a/sub/y": "a/sub/y.log"}),
        (["?/x.log"], {"a/x": "a/x.log", "b/x": "b/x.log"}),
        (["b", "./b", "b/x.log"], {"x": "x.log"}),
        (["[ab]/sub", "b/*.log"], {"a/sub/y": "a/sub/y.log", "b/x": "b/x.log"}),
        (["same"], {"t": "t.log", "t~2": "t.log.gz", "t~3/u": "t/u.log"}),
        (["link.log"], {"link": "link.log"}),
        (["folder-link"], {"x": "x.log"}),
        (["odd"], {"a b": "a b.log", "%FF\N{SNOWMAN}": "%FF\N{SNOWMAN}.log", "x%0Ay": "x\ny.log"}),
    ],
)  # fmt: skip
def test_modules_are_named_by_their_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inputs: list[str], expected: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a/x.log", "a/sub/y.log", "a/begins", "a/named.log/w.log", "b/x.log", "a/.hidden/x.log", "a/.h.log"):
        put(tmp_path / name)
    (tmp_path / "a/z.log.gz").write_bytes(gzip.compress((tmp_path / "a/x.log").read_bytes()))
    (tmp_path / "a/notes.txt").write_text('{"feature":')
    (tmp_path / "a/empty").touch()
    (tmp_path / "a/gone.log").symlink_to("nowhere")
    os.mkfifo(tmp_path / "a/pipe.log")
    put(tmp_path / "same/t.log")
    put(tmp_path / "same/t.log.gz")
    put(tmp_path / "same/t/u.log")
    (tmp_path / "link.log").symlink_to("a/x.log")
    (tmp_path / "folder-link").symlink_to("b")
    for name in (b"odd/a b.log", b"odd/\xff\xe2\x98\x83.log", b"odd/x\ny.log"):
        put(tmp_path / os.fsdecode(name))
    untouched = tree(tmp_path)
    convert_logs(inputs, tmp_path / "d")
    assert modules_of(tmp_path / "d") == expected
    shutil.rmtree(tmp_path / "d")
    assert tree(tmp_path) == untouched


def test_inputs_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "a/x.log")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/x.txt").write_text("nothing")
    (tmp_path / "gone.log").symlink_to("nowhere")
    for inputs, message in [
        (["nowhere"], "nowhere: no such file or folder"),
        (["a/x.log", "gone.log"], "gone.log: no such file or folder"),
        (["*.nothing"], "*.nothing: no file matches"),
        (["empty"], "empty: no training logs (files called *.log, or that begin like one)"),
        ([], "expected inputs, found none"),
    ]:
        with pytest.raises(UsageError) as caught:
            convert_logs(inputs, "d")
        assert message in str(caught.value)
        assert not (tmp_path / "d").exists()
    for wrong in (1.5, "2"):
        with pytest.raises(UsageError, match=rf"^rows_per_file {wrong}: expected a whole number$"):
            convert_logs(["a"], "d", rows_per_file=wrong)  # type: ignore[arg-type]


def test_a_name_with_a_star_is_a_file_first(tmp_path: Path) -> None:
    put(tmp_path / "a*.log")
    put(tmp_path / "ab.log")
    convert_logs(tmp_path / "a*.log", tmp_path / "d")
    assert modules_of(tmp_path / "d") == {"a*": "a*.log"}


def test_the_output_is_no_input(tmp_path: Path) -> None:
    """A dataset below the folder of its logs stays out when it is made again."""
    put(tmp_path / "logs/a.log")
    convert_logs(tmp_path / "logs", tmp_path / "logs/d")
    put(tmp_path / "logs/d/observations/b.log")
    assert convert_logs(tmp_path / "logs", tmp_path / "logs/d").unchanged


# Compressed logs


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


COMPRESSIONS: dict[str, Any] = {".gz": gzip.compress, ".zst": zstd}


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_compressed_logs(tmp_path: Path, suffix: str) -> None:
    """The content tells, not the name; several members are one log; logs come back uncompressed."""
    compress, data = COMPRESSIONS[suffix], LARGE.read_bytes()
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / f"one.log{suffix}").write_bytes(compress(data))
    (logs / f"pieces.log{suffix}").write_bytes(
        b"".join(compress(data[at : at + 9999]) for at in range(0, len(data), 9999))
    )
    (logs / "named-otherwise.log").write_bytes(compress(data))
    (logs / f"plain.log{suffix}").write_bytes(data)
    (logs / "small.log").write_bytes(compress((LOGS / "regalloc-eviction.lopcodes.log").read_bytes()))
    (logs / "empty-member.log").write_bytes(compress(b"") + compress(data) + compress(b""))
    report = convert_logs(logs, tmp_path / "d")
    assert (report.converted, report.log_bytes) == (6, 5 * len(data) + 1529)
    names = ["empty-member", "named-otherwise", "one", "pieces", "plain", "small"]
    back = restored(tmp_path / "d", tmp_path / "back")
    assert list(back) == [f"{name}.log" for name in names]
    assert set(back.values()) == {data, (LOGS / "regalloc-eviction.lopcodes.log").read_bytes()}
    assert read_log(logs / f"one.log{suffix}").to_arrow().equals(read_log(LARGE, module="one").to_arrow())


def test_zeros_after_gzip_are_padding(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(gzip.compress(LARGE.read_bytes()) + bytes(512))
    assert len(read_log(path)) == len(read_log(LARGE))


@pytest.mark.parametrize("size", [30, 1000, 5000, 10000, -500, -8, -1])
def test_of_a_truncated_gzip_stream_every_byte_counts(tmp_path: Path, size: int) -> None:
    compressed = gzip.compress(LARGE.read_bytes())[:size]
    there = zlib.decompressobj(31).decompress(compressed)
    (tmp_path / "a.log.gz").write_bytes(compressed)
    plain = plain_log(there)
    if isinstance(plain, FormatError):
        with pytest.raises(UsageError, match="the gzip stream ends early"):
            convert_logs(tmp_path / "a.log.gz", tmp_path / "d", allow_truncated=True)
        assert not (tmp_path / "d").exists()
        return
    with pytest.raises(UsageError, match="gzip stream ends early; `allow_truncated` keeps its whole observations"):
        convert_logs(tmp_path / "a.log.gz", tmp_path / "d")
    report = convert_logs(tmp_path / "a.log.gz", tmp_path / "d", allow_truncated=True)
    assert report.counts == {"truncated": 1}
    assert (report.log_bytes, report.dropped_bytes) == (len(there), len(there) - plain.whole)
    assert restored(tmp_path / "d", tmp_path / "back") == {"a.log": there[: plain.whole]}


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_damaged_streams(tmp_path: Path, suffix: str) -> None:
    data = LARGE.read_bytes()
    compressed = COMPRESSIONS[suffix](data)
    good = put(tmp_path / "logs/good.log", LARGE)
    flipped = bytearray(compressed)
    flipped[6 if suffix == ".zst" else len(compressed) // 2] ^= 0xFF  # without checksums, zstd notices only some
    (tmp_path / f"logs/flipped.log{suffix}").write_bytes(flipped)
    (tmp_path / f"logs/junk-after.log{suffix}").write_bytes(compressed + b"junk")
    (tmp_path / f"logs/cut.log{suffix}").write_bytes(compressed[:-20])
    (tmp_path / f"logs/magic.log{suffix}").write_bytes(compressed[:4])
    report = convert_logs(tmp_path / "logs", tmp_path / "d")
    rows = {row["module"]: row for row in pq.read_table(tmp_path / "d/modules.parquet").to_pylist()}
    assert {name: row["reason"] for name, row in rows.items()} == {
        "flipped": "malformed", "junk-after": "malformed", "cut": "truncated", "magic": "truncated", "good": "ok",
    }  # fmt: skip
    kind = {".gz": "gzip", ".zst": "zstd"}[suffix]
    assert rows["cut"]["detail"] == f"the {kind} stream ends early"
    assert rows["junk-after"]["detail"].startswith(f"the {kind} stream is damaged: ")
    assert (report.failed, report.exit_code) == (4, 1)
    assert restored(tmp_path / "d", tmp_path / "back") == {"good.log": good.read_bytes()}


# Pipes


@contextmanager
def standard_input(data: bytes) -> Iterator[None]:
    """Let standard input be a pipe with these bytes."""
    reading, writing = os.pipe()

    def write() -> None:
        with suppress(BrokenPipeError), open(writing, "wb") as pipe:
            pipe.write(data)

    writer = threading.Thread(target=write)
    with open(reading) as stdin, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", stdin)
        writer.start()
        yield
    writer.join()


def in_bash(script: str, *, forked: bool = True, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a script in which ``convert`` is ``mlgo-corpus logs-to-parquet``; a fork has only the usual streams."""
    env = {**os.environ, "PYTHONPATH": PACKAGE_ROOT}
    words = shell_words(env) if forked else [sys.executable, "-m", "mlgo_corpus.cli.main"]
    function = f"""convert() {{ {shlex.join(words)} logs-to-parquet "$@"; }}; """
    argv = ["bash", "-c", function + script]
    return subprocess.run(argv, env=env, capture_output=True, timeout=300, check=False, **options)


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstd])
@pytest.mark.parametrize("name", ["d", "d.parquet"])
def test_standard_input(tmp_path: Path, compress: Any, name: str) -> None:
    data = LARGE.read_bytes()
    with standard_input(compress(data)):
        convert_logs("-", tmp_path / name)
    check_dataset(tmp_path / name, expected_dataset({"stdin.log": data}), header_of(LARGE))
    assert restored(tmp_path / name, tmp_path / "back") == {"stdin.log": data}


def test_standard_input_of_a_shell(tmp_path: Path) -> None:
    done = in_bash(f"gzip -c '{LARGE}' | convert - -o '{tmp_path}/d'")
    assert (done.returncode, done.stderr) == (0, b"")
    assert restored(tmp_path / "d", tmp_path / "back") == {"stdin.log": LARGE.read_bytes()}


def test_standard_input_that_is_a_file_begins_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "two").write_bytes(b"a line of another program's\n" + LARGE.read_bytes())
    with open(tmp_path / "two", "rb") as file:
        done = in_bash(f"read; convert - -o '{tmp_path}/d'", stdin=file)
    assert (done.returncode, done.stderr) == (0, b"")
    assert restored(tmp_path / "d", tmp_path / "back") == {"stdin.log": LARGE.read_bytes()}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "-: byte 0: the log is empty"),
        (b"junk", "-: byte 0: expected a log's header, found 'junk'"),
        (LARGE.read_bytes()[:-1], "stdin.log: byte 563085: reading an event, expected a newline, found 22 bytes"),
        (gzip.compress(LARGE.read_bytes())[:-9], "stdin.log: the gzip stream ends early; `allow_truncated` keeps"),
    ],
)
@pytest.mark.parametrize("name", ["new/d", "new/d.parquet"])
def test_standard_input_that_is_damaged(tmp_path: Path, data: bytes, message: str, name: str) -> None:
    with standard_input(data), pytest.raises(UsageError) as caught:
        convert_logs("-", tmp_path / name)
    assert str(caught.value).startswith(message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["d", "d.parquet"])
def test_a_large_log_from_a_pipe_that_turns_out_to_be_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Much of it has been written by then; there is no second look."""
    monkeypatch.setattr("mlgo_corpus.dataset.writer.ROW_GROUP_BYTES", 50_000)
    data = LARGE.read_bytes() + b"junk\n"
    with standard_input(data), pytest.raises(UsageError, match="byte 563108: expected an event in JSON, found 'junk"):
        convert_logs("-", tmp_path / name, jobs=3)
    assert list(tmp_path.iterdir()) == []
    with standard_input(data):
        report = convert_logs("-", tmp_path / name, jobs=3, allow_truncated=True)
    assert report.dropped_bytes == 5
    assert restored(tmp_path / name, tmp_path / "back") == {"stdin.log": LARGE.read_bytes()}


def test_a_named_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.log"
    os.mkfifo(pipe)
    data = LARGE.read_bytes()
    writer = threading.Thread(target=pipe.write_bytes, args=(data,))
    writer.start()
    convert_logs(pipe, tmp_path / "d")
    writer.join()
    assert restored(tmp_path / "d", tmp_path / "back") == {"pipe.log": data}


def test_process_substitution(tmp_path: Path) -> None:
    done = in_bash(f"convert <(gzip -c '{LARGE}') -o '{tmp_path}/d.parquet'", forked=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert list(restored(tmp_path / "d.parquet", tmp_path / "back").values()) == [LARGE.read_bytes()]


def test_a_pipe_beside_other_inputs(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for inputs in ([LARGE, "-"], ["-", tmp_path / "pipe"], [tmp_path / "pipe", LARGE]):
        with pytest.raises(UsageError, match="a pipe has to be the only input"):
            convert_logs(inputs, tmp_path / "d")
    with pytest.raises(UsageError, match="a pipe has to be the only input, without `group_by_header`"):
        convert_logs(tmp_path / "pipe", tmp_path / "d", group_by_header=True)
    assert not (tmp_path / "d").exists()


def test_a_closed_standard_input(tmp_path: Path) -> None:
    done = in_bash(f"convert - -o '{tmp_path}/d' <&-")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"mlgo-corpus: error: there is no standard input to read\n"
    assert not (tmp_path / "d").exists()


# Writing a log


def test_a_log_gets_its_name_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    with LogWriter(path, [TensorSpec("x")]) as log:
        log.write_context("f")
        log.write_observation([1])
        assert not path.exists()
    assert path.read_bytes().endswith(b'{"context":"f"}\n{"observation":0}\n\1\0\0\0\0\0\0\0\n')
    before = tree(tmp_path)

    def fail() -> None:
        with LogWriter(path, [TensorSpec("x")]) as log:
            log.write_observation([1])
            log.write_observation([[1, 2]])

    with pytest.raises(ValueError, match="x: expected 1 elements, got 2"):
        fail()
    assert tree(tmp_path) == before
    with pytest.raises(IsADirectoryError), LogWriter(tmp_path, [TensorSpec("x")]):
        pass
    assert tree(tmp_path) == before
    assert list(tmp_path.parent.glob(".*.tmp")) == []


def test_a_log_on_a_full_disk(tmp_path: Path) -> None:
    code = (
        "import resource, sys\n"
        "from mlgo_corpus import LogWriter, TensorSpec\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "with LogWriter(sys.argv[1], [TensorSpec('x')]) as log:\n"
        "    for number in range(int(sys.argv[2])):\n"
        "        log.write_observation([number])\n"
    )
    env = {**os.environ, "PYTHONPATH": PACKAGE_ROOT}
    for count in ("100", "100000"):
        argv = (sys.executable, "-c", code, str(tmp_path / "a.log"), count)
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300, check=False)
        assert done.stderr.splitlines()[-1] == "OSError: [Errno 27] File too large"
        assert list(tmp_path.iterdir()) == []
