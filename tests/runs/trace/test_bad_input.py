"""Traces of modules that are damaged or hostile, with compilers and policies that misbehave: each becomes a row."""

from __future__ import annotations

import errno
import json
import os
import py_compile
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlgo_corpus import extract_corpus
from mlgo_corpus.compilers import confinement
from mlgo_corpus.compilers.probe import probe_compiler
from mlgo_corpus.corpus.folder import write_manifest
from mlgo_corpus.dataset.tracetable import TraceRow, read_trace_rows
from mlgo_corpus.errors import CorpusError, MlgoCorpusError, UsageError
from mlgo_corpus.runs import over
from mlgo_corpus.runs.trace import module as tracing
from mlgo_corpus.runs.trace.run import TraceReport
from mlgo_corpus.trace import trace_corpus
from tests.conftest import EMBED, ROOT, Llvm, run_checked
from tests.fake_clang import LIVE as LIVE_HEADER
from tests.fake_clang import MAGIC
from tests.processes import alive, children, every_process, told_of

FAKE = ROOT / "tests" / "fake_clang.py"

pytestmark = pytest.mark.whole

COMMAND = b"-cc1\0-emit-obj\0-O2"
NOT_KEPT = "error: (the message quotes a file of this machine and is not kept; `trust_corpus` keeps it)"
# Of what a live session begins with, so many bytes: half of the first observation is missing.
RUN_FOLDER = ".mlgo-corpus/tmp"
HALF = str(len(LIVE_HEADER) + 30)

Told = dict[str, Any]


def write_fake(program: Path) -> Path:
    """Make the fake clang a program, whose Python is compiled once and not in each run."""
    compiled = py_compile.compile(str(FAKE), str(program.with_name("fake.pyc")), doraise=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{compiled}" "$0" "$@"\n')
    program.chmod(0o755)
    return program


@pytest.fixture(scope="session")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake clang, as a program; what it can do is known already."""
    folder = tmp_path_factory.mktemp("fake-clang")
    program = write_fake(folder / "clang")
    toolchain = probe_compiler(str(program), cache=folder)
    assert (toolchain.training_logs, toolchain.interactive) == (("inlining",), ("inlining",))
    return program


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After each test: no process that has to do with it, and nothing in the folder for temporary files."""
    before = children()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield
    assert children() <= before
    assert left_running(tmp_path) == []
    # Where Python is killed while it tries a folder for temporary files, a file with a name of eight letters is left.
    left = [name for name in os.listdir(tmp_path / "tmp") if not re.fullmatch(r"[a-z0-9_]{8}", name)]
    assert left == []
    assert not (tmp_path / "out/.mlgo-corpus").exists()


def processes(folder: Path) -> list[str]:
    """List the processes that have a path below a folder among their words, but for this one."""
    words = {pid: told_of(pid, "cmdline") for pid in every_process() if pid != os.getpid()}
    return [f"{pid}: {told!r}" for pid, told in words.items() if os.fsencode(f"{folder}/") in told and alive(pid)]


def left_running(folder: Path) -> list[str]:
    """List those that are there after a moment: what ends with its parent takes one to do so."""
    end = time.monotonic() + 5
    while (found := processes(folder)) and time.monotonic() < end:
        time.sleep(0.02)
    return found


def module(told: Told | None = None, decisions: int = 3) -> bytes:
    """Make a module that tells the fake clang what to do."""
    return MAGIC + json.dumps({"decisions": decisions, **(told or {})}).encode()


def traced(**told: Any) -> Told:
    return {"traced": told}


def plain(**told: Any) -> Told:
    return {"plain": told}


def make_corpus(
    folder: Path, modules: dict[str, bytes | None], commands: dict[str, bytes | None] | None = None
) -> Path:
    """Write a corpus; what is None is missing."""
    for name, data in modules.items():
        path = folder / f"{name}.bc"
        command = (commands or {}).get(name, COMMAND)
        path.parent.mkdir(parents=True, exist_ok=True)
        if data is not None:
            path.write_bytes(data)
        if command is not None:
            (folder / f"{name}.cmd").write_bytes(command)
    folder.mkdir(exist_ok=True)
    write_manifest(folder / "corpus_description.json", list(modules), has_thinlto=False, override=None)
    return folder


def cache_of(folder: Path, fake: Path) -> Path:
    """Give a cache of its own, where only the compiler's abilities are known."""
    cache = folder / "cache"
    if not cache.exists():
        cache.mkdir()
        shutil.copy(fake.parent / "probes.json", cache)
    return cache


def run(folder: Path, fake: Path, **options: Any) -> tuple[TraceReport, dict[str, TraceRow]]:
    """Trace a corpus with the fake clang, and give the report and the rows by module."""
    given = {"via": "interactive", "jobs": 2, "timeout": 20.0, "compiler": str(fake), "cache": cache_of(folder, fake)}
    # Behind walls no compiler writes into another folder than its run's.
    given["trust_corpus"] = "FAKE_CLANG_STATE" in os.environ
    report = trace_corpus(folder / "corpus", folder / "out", **{**given, **options})
    rows = read_trace_rows(folder / "out/modules.parquet")
    assert len(rows) == report.modules
    return report, {row.module: row for row in rows}


def observations(output: Path) -> list[dict[str, Any]]:
    """Read the dataset's observations, and check that they are those that its rows tell of, and no other's."""
    table = pq.read_table(output / "observations")
    rows = read_trace_rows(output / "modules.parquet")
    counts = {row.module: row.observations for row in rows if row.observations}
    modules = table.column("module").to_pylist()
    assert {name: modules.count(name) for name in modules} == counts
    assert all(row.status == "ok" for row in rows if row.observations)
    return table.to_pylist()


def check_good(row: TraceRow, count: int = 3) -> None:
    """Check a row of a module that nothing is wrong with."""
    assert (row.status, row.reason, row.detail) == ("ok", "ok", "")
    assert (row.exit_code, row.signal, row.observations) == (0, None, count)
    assert (row.text_size, row.code_size, row.baseline_text_size, row.reward, row.faithful) == (72, 64, 72, 0.0, True)


def check_failed(row: TraceRow) -> None:
    """Check what is the same in all rows of failed modules."""
    assert row.status == "failed", row
    assert (row.observations, row.contexts, row.reward, row.faithful, row.header) == (0, 0, None, None, None), row
    assert row.detail, row
    assert len(row.detail) <= 600, row
    assert row.detail.isprintable(), row
    assert RUN_FOLDER not in row.detail, row
    assert row.exit_code is None or row.signal is None, row


# Of both ways: what is told, and the row's reason, exit code, signal, a pattern for its detail, the end of its stderr.
Case = tuple[Told, str, int | None, int | None, str, str | None]

ENDS: dict[str, Case] = {
    "exits": (traced(exit=3), "compiler_error", 3, None, "error: gives up with 3", "error: gives up with 3\n"),
    "exits-in-plain": (plain(exit=4), "compiler_error", 4, None, "the plain compile: error: gives up with 4", None),
    "crashes": (traced(signal=11), "signal", None, 11, "ended by signal 11: PLEASE submit", "PLEASE submit a bug "),
    "crashes-in-plain": (plain(signal=6), "signal", None, 6, "the plain compile: ended by signal 6", None),
    "no-object": (traced(object="none"), "no_object", 0, None, "left no object: No such file or directory", ""),
    "empty-object": (traced(object=""), "no_object", 0, None, "left no object: byte 0: .*found 0 bytes", ""),
    "garbage-object": (traced(object=b"hello".hex()), "no_object", 0, None, "text that begins 'hello'", ""),
    "cut-object": (traced(object="7f454c4602010100"), "no_object", 0, None, "left no object: ", ""),
    "no-plain-object": (plain(object="none"), "no_object", 0, None, "the plain compile: the compiler left no obj", ""),
    "warned-no-object": (traced(say="odd", object="none"), "no_object", 0, None, "left no object", "odd\n"),
    "newer": (traced(say="error: Unknown attribute kind (99)", exit=1), "newer_bitcode", 1, None, "Unknown attr", None),
    "damaged": (traced(say="error: Invalid bitcode signature", exit=1), "unreadable_bitcode", 1, None, "Invalid", None),
    "control": (traced(say="error: \x1b[31mbad\x07\r", exit=1), "compiler_error", 1, None, r"error: bad\\x07", None),
    "hangs": (traced(hang=""), "timeout", None, None, "^not done after 4 seconds$", ""),
    "hangs-in-plain": (plain(hang=""), "timeout", None, None, "^the plain compile: not done after 4 seconds$", ""),
    "stubborn": (traced(hang="stubborn"), "timeout", None, None, "^not done after 4 seconds$", ""),
    "says-and-hangs": (traced(say="stuck", hang=""), "timeout", None, None, "^not done after 4 seconds$", "stuck\n"),
}
LIVE: dict[str, Case] = {
    **ENDS,
    "before-the-header": (traced(only_open="", exit=5), "compiler_error", 5, None, "gives up with 5", None),
    "in-the-header": (traced(live="40", exit=5), "compiler_error", 5, None, "gives up with 5", None),
    "killed-in-the-header": (traced(live="40", signal=9), "signal", None, 9, "ended by signal 9", None),
    "half-a-header": (traced(live="40"), "protocol_error", None, None, "^channel.out: byte ", ""),
    "in-an-observation": (traced(live=HALF, signal=11), "signal", None, 11, "ended by signal 11", None),
    "half-an-observation": (traced(live=HALF), "protocol_error", None, None, "^channel.out: byte ", ""),
    "garbage-header": (traced(live=b"junk\n".hex()), "protocol_error", None, None, "^channel.out: byte 0: ", ""),
    "binary-header": (traced(live="ff00fe0a" * 9), "protocol_error", None, None, "^channel.out: byte 0: ", ""),
    "headerless": (traced(live="headerless"), "protocol_error", None, None, "^channel.out: byte 0: ", ""),
    "no-advice": (traced(live="no_advice"), "protocol_error", None, None, "expected a header with an advice", ""),
    "deaf": (traced(live="deaf"), "protocol_error", None, None, "did not read the advice|ended before it read", ""),
    "impatient": (traced(live="impatient"), "protocol_error", None, None, "expected it to wait for the advice", ""),
    "second-other": (traced(live="second_other"), "other_header", None, None, "asks again, with other features", None),
    "other": (traced(live="other"), "other_header", 0, None, "other features than the other modules: feature 1", ""),
    "opens-and-hangs": (traced(only_open="", hang=""), "timeout", None, None, "^not done after 4 seconds$", ""),
    "header-and-hangs": (traced(live="only_header", hang=""), "timeout", None, None, "^not done after", ""),
    "half-and-hangs": (traced(live="40", hang=""), "timeout", None, None, "^not done after 4 seconds$", ""),
    "asks-and-hangs": (traced(live=HALF, hang="stubborn"), "timeout", None, None, "^not done after", ""),
}
LOGS: dict[str, Case] = {
    **ENDS,
    "no-log": (traced(no_log=""), "no_log", 0, None, "wrote no training log", ""),
    "empty-log": (traced(write_log=""), "unreadable_log", 0, None, "^byte 0: the log is empty", ""),
    "cut-log": (traced(write_log="cut"), "unreadable_log", 0, None, "byte ", ""),
    "garbage-log": (traced(write_log="ff00fe0a"), "unreadable_log", 0, None, "byte 0", ""),
    "headerless-log": (traced(write_log="headerless"), "unreadable_log", 0, None, "byte 0", ""),
    "second-header": (traced(write_log="second"), "unreadable_log", 0, None, "header", ""),
    "other-log": (traced(write_log="other"), "other_header", 0, None, "other features than the other modules", ""),
    "eviction-log": (traced(write_log="eviction"), "other_header", 0, None, "'mask'|regalloc-eviction", ""),
    "log-and-exit": (traced(exit=2), "compiler_error", 2, None, "gives up with 2", None),
}
FINE_LIVE: dict[str, tuple[Told, int]] = {
    "good": ({}, 3),
    "never-opens": (traced(never_open=""), 0),
    "only-header": (traced(live="only_header"), 0),
    "contexts": (traced(live="contexts"), 4),
    "second-header": (traced(live="second"), 3),
    "floods-stderr": (traced(flood=2), 3),
    "floods-stdout": (traced(flood=1), 3),
    "daemon": (traced(daemon=""), 1),
    "last": ({}, 3),
}
FINE_LOGS: dict[str, tuple[Told, int]] = {
    "good": ({}, 3),
    "only-header": (traced(write_log="only_header"), 0),
    "floods-stderr": (traced(flood=2), 3),
    "last": ({}, 3),
}

NAMES = {
    "no-remarks": (traced(remarks="none"), "no_names", 0, None, "left no remarks: No such file", ""),
    "fewer-remarks": (traced(remarks="fewer"), "no_names", 0, None, "the calls of 2 decisions, there were 3$", ""),
    "other-remarks": (traced(remarks="wrong"), "no_names", 0, None, "another decision .* at observation 0$", ""),
    "cut-remarks": (traced(remarks="cut"), "no_names", 0, None, r"remarks: byte \d+: expected a remark", ""),
}
LIVE |= NAMES
LOGS |= NAMES


@pytest.mark.parametrize("via", ["interactive", "training-log"])
def test_each_misbehaviour_is_a_row(tmp_path: Path, fake: Path, via: str) -> None:
    bad, fine = (LIVE, FINE_LIVE) if via == "interactive" else (LOGS, FINE_LOGS)
    modules = {name: module(case[0]) for name, case in bad.items()} | {
        name: module(told) for name, (told, _) in fine.items()
    }
    make_corpus(tmp_path / "corpus", modules)
    started = time.monotonic()
    report, rows = run(tmp_path, fake, via=via, timeout=4.0, jobs=8)
    assert time.monotonic() - started < 40
    for name, (_, count) in fine.items():
        check_good(rows[name], count)
    wrong = []
    for name, (_, reason, code, number, detail, tail) in bad.items():
        row = rows[name]
        try:
            check_failed(row)
        except AssertionError as error:
            wrong.append(f"{name}: {error}")
        found = (row.reason, row.exit_code, row.signal)
        if found != (reason, code, number) or not re.search(detail, row.detail):
            wrong.append(f"{name}: {found}, {row.detail!r}; expected {(reason, code, number)}, {detail!r}")
        if (tail is not None and not (row.stderr_tail or "").startswith(tail)) or (tail == "" and row.stderr_tail):
            wrong.append(f"{name}: {row.stderr_tail!r}; expected {tail!r}")
        assert row.wall_s is not None or name == "second-other"
        assert row.argv is not None
        assert 3.9 <= row.wall_s < 30 if reason == "timeout" else True
    assert not wrong, "\n".join(wrong)
    observations(tmp_path / "out")
    assert report.counts["ok"] == len(fine)
    assert report.failed == len(bad)
    # What was said first is lost, and so what the rest quotes.
    assert rows["floods-stderr"].stderr_tail == NOT_KEPT
    for row in rows.values():  # nothing in a row is another one the next time
        assert not any(RUN_FOLDER in word for word in row.argv or ())


@pytest.mark.parametrize("via", ["interactive", "training-log"])
def test_a_log_of_another_task(tmp_path: Path, fake: Path, via: str) -> None:
    """Alone in its corpus, it would make the dataset one of another task."""
    make_corpus(tmp_path / "corpus", {"a": module(traced(write_log="eviction"))})
    if via == "training-log":
        with pytest.raises(MlgoCorpusError, match=r"not one of 1 module could be traced .* regalloc-eviction"):
            run(tmp_path, fake, via=via)


@pytest.mark.parametrize("stage", ["plain", "traced"])
@pytest.mark.parametrize("how", [{"signal": 11}, {"hang": "stubborn"}, {"exit": 1}])
def test_tries_again(tmp_path: Path, fake: Path, monkeypatch: pytest.MonkeyPatch, stage: str, how: Told) -> None:
    """What crashed or hung may do better the next time; what was refused will not."""
    monkeypatch.setenv("FAKE_CLANG_STATE", str(tmp_path))
    modules = {"a": module({stage: {"only_first": True, **how}}), "good": module()}
    make_corpus(tmp_path / "corpus", modules)
    _, rows = run(tmp_path, fake, retries=1, timeout=2.0 if "hang" in how else 20.0)
    check_good(rows["good"])
    compiles = (tmp_path / "compiles").read_text().splitlines()
    if "exit" in how:
        check_failed(rows["a"])
        assert (rows["a"].reason, rows["a"].exit_code) == ("compiler_error", 1)
        assert compiles.count(f"{stage} a.bc") == 1
    else:
        check_good(rows["a"])
        assert rows["a"].stderr_tail == ""
        assert compiles.count(f"{stage} a.bc") == 2
        assert len(compiles) == 5


def test_no_retries_left(tmp_path: Path, fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CLANG_STATE", str(tmp_path))
    make_corpus(tmp_path / "corpus", {"a": module(traced(signal=11)), "good": module()})
    _, rows = run(tmp_path, fake, retries=2)
    check_failed(rows["a"])
    assert (rows["a"].reason, rows["a"].signal) == ("signal", 11)
    assert (tmp_path / "compiles").read_text().splitlines().count("traced a.bc") == 3


def test_a_limit_on_memory(tmp_path: Path, fake: Path) -> None:
    modules = {
        "hungry": module(traced(hungry=1 << 30)),
        "hungry-in-plain": module(plain(hungry=1 << 30)),
        "modest": module(traced(hungry=1 << 24)),
        "good": module(),
    }
    make_corpus(tmp_path / "corpus", modules)
    report, rows = run(tmp_path, fake, memory_limit=512 << 20)
    assert report.counts == {"memory_limit": 2, "ok": 2}
    for name in ("hungry", "hungry-in-plain"):
        check_failed(rows[name])
        assert rows[name].detail.endswith("LLVM ERROR: out of memory")
        assert rows[name].signal == signal.SIGABRT
    check_good(rows["good"])
    check_good(rows["modest"])


COMMANDS: dict[str, tuple[bytes | None, str, str]] = {
    "missing": (None, "no_command", "cannot read missing.cmd: No such file or directory"),
    "empty": (b"", "no_command", "the command is empty"),
    "nul": (b"\0", "refused_option|no_command", ""),
    "no-cc1": (b"-O2\0-emit-obj", "refused_option", "expected -cc1 as the first word"),
    "loads": (b"-cc1\0-load\0/tmp/x.so", "refused_option", "it loads code into the compiler"),
    "pass-plugin": (b"-cc1\0-fpass-plugin=/tmp/x.so", "refused_option", "it loads code into the compiler"),
    "words-file": (b"-cc1\0-D\0@/etc/passwd", "refused_option", "begins with @"),
    "llvm-words-file": (b"-cc1\0-mllvm\0@/etc/passwd", "refused_option", "begins with @"),
    "runs": (b"-cc1\0-mllvm\0-exec-on-ir-change=/bin/sh", "refused_option", "it runs a program"),
    "writes": (
        b"-cc1\0-mllvm\0-summary-file=/etc/passwd",
        "refused_option",
        "the effect of its value is unknown",
    ),
    "channel": (b"-cc1\0-mllvm\0-inliner-interactive-channel-base=x", "refused_option", "would wait for a program"),
    "no-value": (b"-cc1\0-mllvm", "refused_option", "its value is missing"),
    "preprocesses": (b"-cc1\0-E", "refused_option", "something else than generating code"),
    "unknown": (b"-cc1\0-mllvm\0-unknown-thing", "refused_option", "LLVM 17 to 22 has no such option"),
    "profile": (b"-cc1\0-fprofile-instrument-use-path=gone.profdata", "missing_file", "gone.profdata"),
    "long-profile": (b"-cc1\0-fprofile-instrument-use-path=" + b"p" * 5000, "missing_file", "ppp, which is not there"),
    "megabyte": (b"-cc1\0-D" + b"x" * (1 << 20), "compiler_error", "Argument list too long"),
    "refused-megabyte": (b"-cc1\0-load\0" + b"x" * (1 << 20), "refused_option", "it loads code"),
}


def test_commands(tmp_path: Path, fake: Path) -> None:
    fine = {
        "input": b"-cc1\0@/etc/passwd\0/etc/passwd",
        "not-utf8": b"-cc1\0-DX=\xff\xfe\0-O2",
        "newline": b"-cc1\0-DX=\n\t'\"$(id)\0-O2",
        "good": COMMAND,
    }
    commands: dict[str, bytes | None] = {name: command for name, (command, *_) in COMMANDS.items()} | fine
    make_corpus(tmp_path / "corpus", dict.fromkeys(commands, module()), commands)
    _, rows = run(tmp_path, fake)
    for name in fine:
        check_good(rows[name])
    assert "-DX=%FF%FE" in (rows["not-utf8"].argv or ())
    for name, (_, reason, detail) in COMMANDS.items():
        row = rows[name]
        check_failed(row)
        assert re.fullmatch(reason, row.reason), row
        assert detail in row.detail
        assert (row.exit_code, row.signal, row.stderr_tail, row.wall_s) == (None, None, None, None)
    assert len(observations(tmp_path / "out")) == 12


def test_a_trusted_corpus(tmp_path: Path, fake: Path) -> None:
    """It is run as it is; what cannot be run at all still becomes a row."""
    commands: dict[str, bytes | None] = {
        "runs": b"-cc1\0-mllvm\0-exec-on-ir-change=/bin/sh",
        "no-value": b"-cc1\0-mllvm",
        "empty": b"",
    }
    make_corpus(tmp_path / "corpus", dict.fromkeys(commands, module()), commands)
    _, rows = run(tmp_path, fake, trust_corpus=True)
    check_good(rows["runs"])
    check_good(rows["no-value"])
    assert rows["empty"].reason == "no_command"


@pytest.mark.parametrize("word", ["-DX=\0", "-DX=\ud800"])
def test_an_override_that_no_program_can_be_given(tmp_path: Path, fake: Path, word: str) -> None:
    corpus = make_corpus(tmp_path / "corpus", {"a": module()})
    for trusted in (False, True):
        write_manifest(corpus / "corpus_description.json", ["a"], has_thinlto=False, override=["-cc1", word])
        with pytest.raises(MlgoCorpusError, match=r"^not one of 1 module could be traced .*: a: "):
            run(tmp_path, fake, trust_corpus=trusted)


def test_bitcode(tmp_path: Path, fake: Path) -> None:
    modules: dict[str, bytes | None] = {
        "missing": None,
        "empty": b"",
        "garbage": b"\x7fELF" + bytes(100),
        "short": b"BC\xc0",
        "text": b"define void @f() { ret void }",
        "good": module(),
    }
    corpus = make_corpus(tmp_path / "corpus", modules)
    others = ["folder", "circle", "fifo", "zero"]
    (corpus / "folder.bc").mkdir()
    (corpus / "folder.cmd").write_bytes(COMMAND)
    (corpus / "circle.bc").symlink_to("circle.bc")
    os.mkfifo(corpus / "fifo.bc")
    (corpus / "zero.bc").symlink_to("/dev/zero")
    write_manifest(corpus / "corpus_description.json", [*modules, *others], has_thinlto=False, override=None)
    report, rows = run(tmp_path, fake)
    assert report.counts == {"missing_file": 5, "unreadable_bitcode": 4, "ok": 1}
    check_good(rows["good"])
    for name, reason, detail in (
        ("missing", "missing_file", "cannot read missing.bc: No such file or directory"),
        ("folder", "missing_file", "cannot read folder.bc: Is a directory"),
        ("fifo", "missing_file", "cannot read fifo.bc: not a file"),
        ("zero", "missing_file", "cannot read zero.bc: a link leads out of the corpus"),
        ("circle", "missing_file", "cannot read circle.bc: Too many levels of symbolic links"),
        ("empty", "unreadable_bitcode", "expected bitcode, found other data"),
        ("text", "unreadable_bitcode", "expected bitcode, found other data"),
    ):
        check_failed(rows[name])
        assert (rows[name].reason, rows[name].detail[: len(detail)]) == (reason, detail)
        assert (rows[name].argv, rows[name].exit_code, rows[name].wall_s) == (None, None, None)


@pytest.mark.parametrize("keep", [False, True])
def test_names(tmp_path: Path, fake: Path, keep: bool) -> None:
    """Names that leave the corpus become rows, and odd ones keep their modules apart."""
    odd = [
        "a",
        "a b",
        "a\nb",
        "a'b",
        'a"b',
        "a\\b",
        "a$(id)b",
        "é",
        "e\u0301",
        "-a",
        "@a",
        "a.log",
        "a.o/b",
        "x" * 251,
        "\udcff",
    ]
    corpus = make_corpus(tmp_path / "corpus", {name: module(decisions=count) for count, name in enumerate(odd, 1)})
    outside = module(traced(say="out"))
    for suffix, data in ((".bc", outside), (".cmd", COMMAND)):
        (tmp_path / f"outside{suffix}").write_bytes(data)
    bad = ["../outside", str(tmp_path / "outside"), "a/../../outside", "", "nul\0", "\ud800", "x" * 300]
    write_manifest(corpus / "corpus_description.json", [*odd, *bad, "a"], has_thinlto=False, override=None)
    folders = {"keep_logs": tmp_path / "logs", "keep_objects": tmp_path / "objects"} if keep else {}
    report, rows = run(tmp_path, fake, **folders)
    assert report.counts == {"ok": len(odd), "missing_file": len(bad)}
    assert len(rows) == len(odd) + len(bad)
    for count, name in enumerate(odd, 1):
        check_good(rows["%FF" if name == "\udcff" else name], count)
    for row in rows.values():
        if row.status == "failed":
            check_failed(row)
            assert row.argv is None
    found = observations(tmp_path / "out")
    assert len(found) == sum(range(len(odd) + 1))
    if keep:
        assert len(list((tmp_path / "objects").rglob("*.*"))) >= 1
        kept = [path for path in tmp_path.glob("objects/**/*") if path.is_file()]
        assert len(kept) == len(odd)
        assert len([path for path in tmp_path.glob("logs/**/*.log") if path.is_file()]) == len(odd)
        assert sorted(path for path in os.listdir(tmp_path)) == sorted(
            ["cache", "corpus", "logs", "objects", "out", "outside.bc", "outside.cmd", "tmp"]
        )


POLICIES = """
import os, signal, sys, time
from mlgo_corpus.errors import CorpusError

class Policy:
    def __init__(self): self.name = ""
    def reset(self, header, module):
        self.name = module
        if module == "in-reset": raise KeyError("no such module")
        if module == "exits-in-reset": os._exit(0)
    def advise(self, observation):
        if self.name == "hangs":
            while True: pass
        if self.name == "sleeps": time.sleep(600)
        while self.name == "swallows":
            try: time.sleep(600)
            except Exception: pass
        if self.name == "exits": os._exit(3)
        if self.name == "kills": os.kill(os.getpid(), signal.SIGKILL)
        if self.name == "sys-exits": sys.exit("enough")
        if self.name == "raises": raise ValueError("one\\ntwo")
        if self.name == "ours": raise CorpusError("not mine")
        if self.name == "os-error": open("/nowhere/at/all")
        if self.name == "two": return 2
        if self.name == "text": return "yes"
        if self.name == "none": return None
        if self.name == "nan": return float("nan")
        if self.name == "huge": return 1 << 80
        return observation["inlining_default"]

class Needy(Policy):
    features = ("no_such_feature",)

class Odd(Policy):
    features = 5

class Stubborn(Policy):
    def advise(self, observation):
        while self.name == "hangs":
            try: time.sleep(600)
            except BaseException: pass
        return 0

def slow():
    while True: pass

def once():
    try: open(__file__ + ".made", "x").close()  # in any process
    except FileExistsError: raise RuntimeError("only once") from None
    return Policy()
"""


@pytest.fixture
def policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies/odd_policies.py").write_text(POLICIES)
    monkeypatch.syspath_prepend(str(tmp_path / "policies"))
    yield
    sys.modules.pop("odd_policies", None)


def test_policies(tmp_path: Path, fake: Path, policies: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that hangs or takes its worker along costs its module, and no other."""
    expected = {
        "in-reset": ("policy_error", "the policy failed: KeyError: 'no such module'"),
        "exits-in-reset": ("worker_died", "the worker process ended by itself"),
        "hangs": ("timeout", "^the policy did not decide within 1 seconds$"),
        "sleeps": ("timeout", "^the policy did not decide within 1 seconds$"),
        "swallows": ("timeout", "^the policy did not decide within 1 seconds$"),
        "exits": ("worker_died", "the worker process ended by itself"),
        "kills": ("worker_died", "the worker process ended by SIGKILL"),
        "sys-exits": ("worker_died|policy_error", "ended by itself|SystemExit"),
        "raises": ("policy_error", "the policy failed: ValueError: one"),
        "ours": ("policy_error", "the policy failed: CorpusError: not mine"),
        "os-error": ("policy_error", "the policy failed: FileNotFoundError: "),
        "two": ("policy_error", ""),
        "text": ("policy_error", "inlining_decision: expected a whole number"),
        "none": ("policy_error", "inlining_decision: expected a whole number"),
        "nan": ("policy_error", "inlining_decision: expected a whole number"),
        "huge": ("policy_error", "inlining_decision: expected a whole number"),
    }
    names = ["first", *expected, "last"]
    make_corpus(tmp_path / "corpus", dict.fromkeys(names, module()))
    _, rows = run(tmp_path, fake, policy="odd_policies:Policy", timeout=1.0, jobs=4)
    check_good(rows["first"])
    check_good(rows["last"])
    for name, (reason, detail) in expected.items():
        check_failed(rows[name])
        assert re.fullmatch(reason, rows[name].reason), rows[name]
        assert re.search(detail, rows[name].detail), rows[name]
    assert len(observations(tmp_path / "out")) == 6


@pytest.mark.parametrize(
    ("name", "detail"), [("Needy", "needs the feature 'no_such_feature'"), ("Odd", "needs the feature '5'")]
)
def test_policies_that_cannot_work(tmp_path: Path, fake: Path, policies: None, name: str, detail: str) -> None:
    make_corpus(tmp_path / "corpus", {"a": module()})
    with pytest.raises(
        MlgoCorpusError, match=f"^not one of 1 module .*policy_error 1.: a: the policy .*{detail}"
    ) as error:
        run(tmp_path, fake, policy=f"odd_policies:{name}")
    assert "\n" not in str(error.value)


def test_a_policy_that_cannot_be_ended_takes_its_worker_along(
    tmp_path: Path, fake: Path, policies: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(over, "_SLACK_S", 1.0)
    make_corpus(tmp_path / "corpus", {"hangs": module(), "good": module()})
    _, rows = run(tmp_path, fake, policy="odd_policies:Stubborn", timeout=0.5, jobs=1)
    assert (rows["hangs"].reason, rows["hangs"].detail) == ("timeout", "not done after 2 seconds")
    assert rows["good"].reason == "ok"


def test_a_policy_that_is_never_made(tmp_path: Path, fake: Path, policies: None) -> None:
    make_corpus(tmp_path / "corpus", {"a": module()})
    with pytest.raises(UsageError, match=r"^policy odd_policies:slow: it was not made within 0\.5 seconds$"):
        run(tmp_path, fake, policy="odd_policies:slow", timeout=0.5)


def test_a_policy_that_can_be_made_once(tmp_path: Path, fake: Path, policies: None) -> None:
    make_corpus(tmp_path / "corpus", {"a": module(), "b": module()})
    with pytest.raises(MlgoCorpusError, match=r"policy_error 2.*RuntimeError: only once"):
        run(tmp_path, fake, policy="odd_policies:once")


def test_nothing_to_decide(tmp_path: Path, fake: Path) -> None:
    make_corpus(tmp_path / "corpus", {"a": module(traced(never_open="")), "b": module(traced(never_open=""))})
    with pytest.raises(MlgoCorpusError, match=r"^in 2 modules the compiler found nothing to decide"):
        run(tmp_path, fake)


def test_nothing_could_be_traced(tmp_path: Path, fake: Path) -> None:
    """What failed is not remembered: the same command, and any other, tries again."""
    corpus = make_corpus(tmp_path / "corpus", {"a": module(traced(exit=1)), "b": module(traced(signal=9))})
    expected = r"not one of 2 modules could be traced \(compiler_error 1, signal 1\): a: error"
    with pytest.raises(MlgoCorpusError, match=expected):
        run(tmp_path, fake)
    (corpus / "a.bc").write_bytes(module())
    _, rows = run(tmp_path, fake, retries=1)
    check_good(rows["a"])


def test_no_corpus(tmp_path: Path, fake: Path) -> None:
    with pytest.raises(CorpusError, match="not a corpus"):
        run(tmp_path, fake)
    make_corpus(tmp_path / "corpus", {})
    with pytest.raises(UsageError, match="has no modules"):
        run(tmp_path, fake)
    assert not (tmp_path / "out").exists()


def test_places_that_cannot_be_written(tmp_path: Path, fake: Path) -> None:
    make_corpus(tmp_path / "corpus", {"a": module()})
    (tmp_path / "file").write_text("")
    for output in (tmp_path / "file", tmp_path / "file/out", Path("/proc/nowhere/out")):
        with pytest.raises(UsageError) as error:
            trace_corpus(tmp_path / "corpus", output, compiler=str(fake), cache=cache_of(tmp_path, fake))
        assert "\n" not in str(error.value)
        assert str(output) in str(error.value) or str(output.parent) in str(error.value)
    for option in ("keep_logs", "keep_objects"):
        with pytest.raises(UsageError, match=f"{tmp_path}/file"):
            run(tmp_path, fake, **{option: tmp_path / "file/kept"})
        with pytest.raises(UsageError, match="is in the dataset's folder; name another one"):
            run(tmp_path, fake, **{option: tmp_path / "out/kept"})
    # A cache that cannot be written costs time, no more.
    (tmp_path / "cache/baselines").write_text("")
    _, rows = run(tmp_path, fake)
    check_good(rows["a"])


def test_the_corpus_is_only_read(tmp_path: Path, fake: Path) -> None:
    corpus = make_corpus(
        tmp_path / "corpus", {"a/b": module(), "c": module(traced(signal=11)), "d": module(plain(exit=1))}
    )

    def state() -> dict[str, tuple[int, int]]:
        found = [corpus, *corpus.rglob("*")]
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in found}

    before = state()
    run(tmp_path, fake)
    assert state() == before


def test_a_damaged_cache(tmp_path: Path, fake: Path) -> None:
    make_corpus(tmp_path / "corpus", {name: module(decisions=index) for index, name in enumerate("abcdef", 1)})
    run(tmp_path, fake)
    kept = sorted((tmp_path / "cache/baselines").rglob("*.json"))
    assert len(kept) == 6
    junk = (b"", b"[", b"[1,2,3]", b'{"a":1}', b'["a",null,3,["x","y",[]]]')
    for path, data in zip(kept, junk, strict=False):
        path.write_bytes(data)
    _, rows = run(tmp_path, fake, force=True)
    for index, name in enumerate("abcdef", 1):
        check_good(rows[name], index)


def test_a_full_disk(tmp_path: Path, fake: Path, small_disk: Path) -> None:
    """One line says so, and the same command goes on when there is room."""
    make_corpus(tmp_path / "corpus", {f"m{number}": module(decisions=600) for number in range(12)})
    options: dict[str, Any] = {
        "compiler": str(fake),
        "via": "interactive",
        "cache": cache_of(tmp_path, fake),
        "jobs": 2,
        "names": False,
    }
    with pytest.raises(MlgoCorpusError) as error:
        trace_corpus(tmp_path / "corpus", small_disk / "out", **options)
    assert re.fullmatch(rf"cannot write {small_disk}/out/\S*: No space left on device", str(error.value))
    assert left_running(tmp_path) == []
    subprocess.run(("mount", "-o", "remount,size=8m", str(small_disk)), check=True)
    report = trace_corpus(tmp_path / "corpus", small_disk / "out", **options)
    assert report.counts == {"ok": 12}
    assert report.resumed >= 1
    assert len(observations(small_disk / "out")) == 12 * 600
    assert sorted(os.listdir(small_disk / "out")) == [
        "README.md", "contexts.parquet", "dataset.json", "modules.parquet", "observations",
    ]  # fmt: skip


def test_no_room_for_copies(tmp_path: Path, fake: Path, small_disk: Path) -> None:
    make_corpus(tmp_path / "corpus", {f"m{number}": module(decisions=600) for number in range(12)})
    kept = small_disk / "logs"
    with pytest.raises(MlgoCorpusError) as error:
        run(tmp_path, fake, keep_logs=kept)
    assert re.fullmatch(rf"cannot write {kept}/m\d+\.log: No space left on device", str(error.value))
    assert not [name for name in os.listdir(kept) if name.startswith(".")]
    subprocess.run(("mount", "-o", "remount,size=8m", str(small_disk)), check=True)
    report, _ = run(tmp_path, fake, keep_logs=kept)
    assert report.counts == {"ok": 12}
    assert report.resumed >= 1
    assert sorted(os.listdir(kept)) == sorted(f"m{number}.log" for number in range(12))


@pytest.mark.parametrize("name", ["_keep_header", "shutil.copyfile", "_keep_log", "run_folder"])
def test_a_disk_that_is_full_once(tmp_path: Path, fake: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """What was done until then is not done again."""
    monkeypatch.setenv("FAKE_CLANG_STATE", str(tmp_path))
    make_corpus(tmp_path / "corpus", {name: module() for name in "abcdef"})
    calls = tmp_path / "calls"
    target = f"mlgo_corpus.runs.trace.module.{name}"

    def full(*args: Any, **options: Any) -> Any:
        with calls.open("a") as file:
            file.write("x")
        if calls.stat().st_size == 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / "there"))
        return usual(*args, **options)

    with monkeypatch.context() as patch:
        usual = attrgetter(name)(tracing)
        patch.setattr(target, full)
        with pytest.raises(MlgoCorpusError, match=rf"^cannot write {tmp_path}/\S*: No space left on device$"):
            run(tmp_path, fake, keep_logs=tmp_path / "logs", jobs=1)
    before = (tmp_path / "compiles").read_text().splitlines()
    report, rows = run(tmp_path, fake, keep_logs=tmp_path / "logs", jobs=1)
    assert report.resumed >= 1
    for row in rows.values():
        check_good(row)
    after = (tmp_path / "compiles").read_text().splitlines()[len(before) :]
    assert "traced a.bc" not in after
    assert after.count("traced f.bc") == 1
    assert sorted(os.listdir(tmp_path / "logs")) == [f"{name}.log" for name in "abcdef"]


def test_nothing_that_a_compiler_reads_is_quoted(tmp_path: Path, llvm22: Llvm, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a command that names a list, and by assembly that includes a file, in colours perhaps; also without walls."""
    monkeypatch.setattr(confinement, "can_launch", lambda: False)
    (tmp_path / "own").touch()  # bitcode can only be made where it can be included
    base = ("-cc1", "-triple", "x86_64-pc-linux-gnu", "-O1", "-emit-obj")
    included = f'.include \\"{tmp_path}/own\\"'
    cases = {
        "good": ("", base),
        "list": ("", (*base, "-fsanitize-coverage-type=3", f"-fsanitize-coverage-ignorelist={tmp_path}/own")),
        "include": (included, base),
        "colours": (included, (*base, "-fcolor-diagnostics")),
    }
    modules: dict[str, bytes | None] = {}
    for name, (assembly, _) in cases.items():
        text = "static int f(int x) { return x * 3; } int g(int x) { return f(x) + f(x + 1); }"
        (tmp_path / "a.c").write_text(f'__asm__("{assembly}"); {text}')
        clang = (llvm22.clang, "-O1", "-Xclang", "-disable-llvm-passes", "-c", "-emit-llvm")
        run_checked(*clang, "a.c", "-o", "a.bc", cwd=tmp_path)
        modules[name] = (tmp_path / "a.bc").read_bytes()
    (tmp_path / "own").write_text("alpha!! quoted %%\n")
    make_corpus(tmp_path / "corpus", modules, {name: "\0".join(words).encode() for name, (_, words) in cases.items()})
    options: dict[str, Any] = {"compiler": llvm22.clang, "via": "interactive", "cache": tmp_path / "cache", "jobs": 1}
    trace_corpus(tmp_path / "corpus", tmp_path / "out", **options)
    rows = {row.module: row for row in read_trace_rows(tmp_path / "out/modules.parquet")}
    assert rows["good"].reason == "ok"
    for name in ("list", "include", "colours"):
        assert (rows[name].reason, rows[name].detail) == ("compiler_error", f"the plain compile: {NOT_KEPT}")
        assert "quoted %" not in str(rows[name])
    trace_corpus(tmp_path / "corpus", tmp_path / "trusted", trust_corpus=True, **options)
    rows = {row.module: row for row in read_trace_rows(tmp_path / "trusted/modules.parquet")}
    assert "malformed line 1: 'alpha!! quoted %%'" in rows["list"].detail
    assert "alpha!! quoted %%" in str(rows["include"].stderr_tail)


def test_real_bitcode_that_is_damaged(tmp_path: Path, llvm22: Llvm, compile_c: Callable[..., Path]) -> None:
    """And a limit on memory in which the real compiler cannot even begin."""
    text = "static int f(int x) { return x * 3; } int g(int x) { return f(x) + f(x + 1); }"
    compile_c(llvm22, text, "-Oz", *EMBED, name="objects/a.c")
    extract_corpus([tmp_path / "objects"], tmp_path / "corpus")
    data, command = ((tmp_path / f"corpus/a.o.{suffix}").read_bytes() for suffix in ("bc", "cmd"))
    damaged = {"cut": data[: len(data) // 2], "short": data[:8], "flipped": data[:100] + bytes(40) + data[140:]}
    shutil.rmtree(tmp_path / "corpus")
    modules = {"good": data, **damaged}
    make_corpus(tmp_path / "corpus", modules, dict.fromkeys(modules, command))
    options: dict[str, Any] = {"compiler": llvm22.clang, "via": "interactive", "cache": tmp_path / "cache", "jobs": 2}
    report = trace_corpus(tmp_path / "corpus", tmp_path / "out", **options)
    rows = {row.module: row for row in read_trace_rows(tmp_path / "out/modules.parquet")}
    assert (rows["good"].reason, rows["good"].observations, rows["good"].faithful) == ("ok", 2, True)
    for name in damaged:
        check_failed(rows[name])
        assert rows[name].reason == "unreadable_bitcode", rows[name]
    assert report.traced == 1
    with pytest.raises(MlgoCorpusError, match=r"\(memory_limit 1, unreadable_bitcode 3\)|\(memory_limit 4\)"):
        trace_corpus(
            tmp_path / "corpus",
            tmp_path / "tight",
            memory_limit=100 << 20,
            retries=1,
            **{**options, "cache": tmp_path / "other"},
        )


def test_a_large_log_is_packed_in_a_folder_whose_name_is_no_text(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"l\xe9")
    folder.mkdir()
    (folder / "log").write_bytes(bytes(64 << 10))
    name, size = tracing._keep_log(folder / "log", folder / "kept")
    assert (name, size) == ("kept.zst", (folder / "kept.zst").stat().st_size)
    with (folder / name).open("rb") as file, pa.CompressedInputStream(file, "zstd") as stream:
        assert stream.read() == bytes(64 << 10)
