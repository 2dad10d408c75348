"""Whatever the input: a row with a reason or one clear line; nothing lost, nothing half-written, nothing left."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlgo_corpus import Corpus, extract_corpus
from mlgo_corpus.builds.objects import Reason, SectionNames, Tally, read_object
from mlgo_corpus.errors import MlgoCorpusError, UsageError
from mlgo_corpus.formats.objects import objfile
from tests.conftest import DATA, EMBED, PACKAGE_ROOT, Llvm, ignoring, run_checked, unpack
from tests.forked import Running, start
from tests.runs.extract.test_extract import SOURCES, dump_section, files, reasons, rows

pytestmark = pytest.mark.whole

Compile = Callable[..., Path]

CLI = (sys.executable, "-m", "mlgo_corpus.cli.main")


@pytest.fixture
def lua(tmp_path: Path) -> Path:
    unpack("lua-clang22", tmp_path / "build")
    return tmp_path / "build"


def refuse_members(name: str) -> bytes:
    raise FileNotFoundError(name)


def contents(data: bytes) -> tuple[list[tuple[str, str]], Tally]:
    """Read a file's modules as (reason, detail), and check that the books balance."""
    tally = Tally()
    found = list(read_object(data, tally, names=SectionNames(), open_member=refuse_members))
    explained = sum(item.lost_bytes if item.bitcode is None else len(item.bitcode) for item in found)
    assert explained + tally.padding == tally.bitcode_found
    return [(str(item.reason), item.detail) for item in found], tally


def test_an_object_cut_anywhere_is_one_row(llvm22: Llvm, compile_c: Compile, tmp_path: Path) -> None:
    data = compile_c(llvm22, "int f(void) { return 1; }", "-Oz", *EMBED).read_bytes()
    folder = tmp_path / "cut"
    folder.mkdir()
    sizes = range(0, len(data), 7)
    for size in sizes:
        (folder / f"{size:06}.o").write_bytes(data[:size])
    report = extract_corpus([folder], tmp_path / "corpus")
    found = reasons(tmp_path / "corpus")
    assert len(found) == report.objects == len(sizes)
    # Up to its magic a file could be anything; after that it is a truncated object.
    assert {reason for name, reason in found.items() if int(name[:-2]) >= 4} == {"truncated"}
    assert found["000000.o"] == "truncated"
    assert report.exit_code == 1
    assert report.modules == 0
    assert sorted(files(tmp_path / "corpus")) == ["corpus_description.json", "modules.parquet"]


def test_every_byte_of_an_archive_and_a_linked_file(llvm22: Llvm, compile_c: Compile, tmp_path: Path) -> None:
    objects = [compile_c(llvm22, text, "-Oz", *EMBED, name=name) for name, text in SOURCES.items()]
    run_checked(llvm22.ar, "rc", str(tmp_path / "lib.a"), *map(str, objects))
    run_checked("ld", "-r", *map(str, objects), "-o", str(tmp_path / "all.o"))
    for name in ("lib.a", "all.o"):
        data = (tmp_path / name).read_bytes()
        assert [reason for reason, _ in contents(data)[0]] == ["ok"] * 3
        for size in range(0, len(data), 3):
            if data[size + 58 : size + 60] == b"`\n":  # where a member begins, what is before it is a whole archive
                continue
            found, _ = contents(data[:size])
            assert any(Reason(reason) in (Reason.TRUNCATED, Reason.UNSUPPORTED_FORMAT, Reason.NO_BITCODE)
                       for reason, _ in found)  # fmt: skip
            assert all("\n" not in detail for _, detail in found)


@cache
def small_object() -> bytes:
    with tarfile.open(DATA / "lua-clang22.tar.gz") as tar:
        member = tar.extractfile("lua/lopcodes.o")
        assert member is not None
        return member.read()


@settings(deadline=None, max_examples=400)
@given(flips=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=6))
def test_flipped_bytes_never_raise_and_the_books_balance(flips: list[tuple[int, int]]) -> None:
    damaged = bytearray(small_object())
    for at, value in flips:
        damaged[at % len(damaged)] = value
    found, _ = contents(bytes(damaged))
    assert found


@given(st.binary(max_size=200))
def test_noise_is_a_row(noise: bytes) -> None:
    found, _ = contents(noise)
    assert found


def test_files_that_are_no_objects(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "empty.o").touch()
    (folder / "text.o").write_text("int main;\n")
    (folder / "libtool.lo").write_text("# libtool.lo - a libtool object file\npic_object='.libs/x.o'\n")
    (folder / "wasm.o").write_bytes(b"\0asm\1\0\0\0")
    (folder / "empty.a").write_bytes(b"!<arch>\n")
    (folder / "dangling.o").symlink_to("nowhere")
    os.mkfifo(folder / "fifo.o")
    report = extract_corpus([folder], tmp_path / "corpus")
    assert reasons(tmp_path / "corpus") == {
        "dangling.o": "missing",
        "empty.a": "no_bitcode",
        "empty.o": "truncated",
        "fifo.o": "unreadable",
        "libtool.lo": "no_bitcode",
        "text.o": "unsupported_format",
        "wasm.o": "unsupported_format",
    }
    details = {row["module"]: row["detail"] for row in rows(tmp_path / "corpus")}
    assert details["empty.o"] == "the file is empty"
    assert details["text.o"].endswith("found text that begins 'int main;\\n'")
    assert report.failed == 5


def test_a_missing_member_of_a_thin_archive(llvm22: Llvm, compile_c: Compile, tmp_path: Path) -> None:
    one = compile_c(llvm22, SOURCES["one.c"], *EMBED, name="one.c")
    two = compile_c(llvm22, SOURCES["two.c"], *EMBED, name="two.c")
    run_checked(llvm22.ar, "--thin", "rc", "lib.a", "one.o", "two.o", cwd=tmp_path)
    two.unlink()
    report = extract_corpus([tmp_path / "lib.a"], tmp_path / "corpus")
    assert [row["reason"] for row in rows(tmp_path / "corpus")] == ["ok", "missing"]
    # The archive itself does not change when a member comes back, or is rebuilt.
    shutil.copy(one, two)
    report = extract_corpus([tmp_path / "lib.a"], tmp_path / "corpus")
    assert report.unchanged == 0
    assert [row["reason"] for row in rows(tmp_path / "corpus")] == ["ok", "ok"]


def test_commands_with_any_bytes(llvm22: Llvm, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int f(void) { return 1; }\n")
    define = b'-DX="a b\n{}\xe9\xff\'"'
    argv = [os.fsencode(llvm22.clang), b"-c", b"a.c", b"-o", b"a.o", define, *map(os.fsencode, EMBED)]
    subprocess.run(argv, cwd=tmp_path, check=True, timeout=120)
    extract_corpus([tmp_path / "a.o"], tmp_path / "corpus")
    (module,) = Corpus.open(tmp_path / "corpus")
    assert module.command_path.read_bytes() == dump_section(llvm22, tmp_path / "a.o", ".llvmcmd")
    assert define[2:] in [os.fsencode(option) for option in module.command()]


def test_file_names_that_are_not_utf8(lua: Path, tmp_path: Path) -> None:
    name = os.fsencode(lua / "lua") + b"/\xff\n.o"
    shutil.copy(lua / "lua/lvm.o", name)
    extract_corpus([lua], tmp_path / "corpus")
    assert "lua/%FF%0A.o" in Corpus.open(tmp_path / "corpus").names
    assert (tmp_path / "corpus/lua/%FF%0A.o.bc").read_bytes() == (tmp_path / "corpus/lua/lvm.o.bc").read_bytes()
    assert extract_corpus([lua], tmp_path / "corpus").unchanged == len(list((lua / "lua").iterdir()))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "compile.json: "),
        ("[1, 2", "compile.json: "),
        ('{"actions": []}', "compile.json: "),
        ('"text"', "compile.json: "),
        ("", "compile.json: "),
    ],
)
def test_json_that_is_no_compilation_database(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "compile.json").write_text(content)
    with pytest.raises(UsageError, match=message) as caught:
        extract_corpus([tmp_path / "compile.json"], tmp_path / "corpus", input_type="compile-commands")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "corpus").exists()


def test_inputs_that_cannot_be_used_leave_nothing(lua: Path, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    for inputs, message in (
        ([tmp_path / "nowhere"], "nowhere: no such file or folder"),
        ([tmp_path / "nothing"], "nothing: no object files; build first"),
        ([], "^expected inputs, found none$"),
        ([lua, tmp_path / "nowhere"], "no such file or folder"),
    ):
        with pytest.raises(UsageError, match=message):
            extract_corpus(inputs, tmp_path / "corpus")
        assert not (tmp_path / "corpus").exists()
    with pytest.raises(UsageError, match="expected local or distributed"):
        extract_corpus([lua], tmp_path / "corpus", thinlto="both")
    with pytest.raises(UsageError, match="thinlto_link_command: requires `thinlto` local"):
        extract_corpus([lua], tmp_path / "corpus", thinlto_link_command=["ld.lld"])


def test_a_crash_of_the_native_parser_costs_one_row(
    llvm22: Llvm, compile_c: Compile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        text = f"int f{number}(void) {{ return {number}; }}"
        compile_c(llvm22, text, *EMBED, "-target", "x86_64-pc-windows-msvc", name=f"in/f{number:02}.c")
    poisoned = (tmp_path / "in/f17.o").read_bytes()
    real = objfile.load_lief()

    class Lief:
        """The real parser, but for one file that crashes it."""

        class COFF:
            @staticmethod
            def parse(data: bytes) -> object:
                if data == poisoned:
                    os.kill(os.getpid(), signal.SIGSEGV)
                return real.COFF.parse(data)

    monkeypatch.setattr(objfile, "load_lief", lambda: Lief)
    monkeypatch.setattr("mlgo_corpus.engine.pool._may_fork", lambda: True)  # workers share the patch
    report = extract_corpus([tmp_path / "in"], tmp_path / "corpus", jobs=2)
    found = {
        row["module"]: (row["reason"], row["detail"]) for row in rows(tmp_path / "corpus") if row["status"] != "ok"
    }
    assert found == {"f17.o": ("worker_died", "the worker process ended by SIGSEGV")}
    assert report.modules == 39


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A build that takes long enough to be disturbed."""
    source, lua = tmp_path_factory.mktemp("many"), tmp_path_factory.mktemp("lua")
    unpack("lua-clang22", lua)
    objects = sorted((lua / "lua").iterdir())
    for number in range(60):
        for path in objects:
            os.link(path, source / f"{path.stem}{number:03}.o")
    yield source
    shutil.rmtree(source)


@pytest.fixture(scope="module")
def reference(many: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What comes of it undisturbed."""
    corpus = tmp_path_factory.mktemp("reference") / "corpus"
    extract_corpus([many], corpus)
    yield corpus
    shutil.rmtree(corpus)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system, which only root may")
def test_a_full_disk_is_one_line_and_the_same_command_goes_on(many: Path, reference: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    expected = files(reference)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(small)], check=False, timeout=120)
    if mounted.returncode != 0:
        pytest.skip("root may not mount here")
    try:
        with pytest.raises(MlgoCorpusError, match=r"cannot write .*: No space left on device; what is whole is kept"):
            extract_corpus([many], small / "corpus")
        assert not (small / "corpus/corpus_description.json").exists()
        assert not (small / "corpus/modules.parquet").exists()
        assert not (small / "corpus/.mlgo-corpus/tmp").exists()
        for name, data in files(small / "corpus").items():
            assert expected[name] == data, name
        run_checked("mount", "-o", "remount,size=200m", str(small))
        report = extract_corpus([many], small / "corpus")
        assert report.unchanged > 0
        assert files(small / "corpus") == expected
    finally:
        run_checked("umount", str(small))


def as_nobody(work: Callable[[], object]) -> object:
    """Run ``work`` in a child that is no longer root, and give its result, which is passed on as JSON."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os.write(writing, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which only root may")
def test_folders_and_files_without_permission(lua: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlgo_corpus.engine.pool._may_fork", lambda: True)
    extract_corpus([lua], tmp_path / "imports-all-there-is-to-import")
    root = Path(run_checked("mktemp", "-d").strip())  # pytest's own folders are closed to other users
    try:
        root.chmod(0o755)
        shutil.copytree(lua, root / "build")
        (root / "build/closed").mkdir(mode=0o700)
        (root / "build/lua/lvm.o").chmod(0o600)
        (root / "out").mkdir()
        (root / "out").chmod(0o777)
        counts = as_nobody(lambda: extract_corpus([root / "build"], root / "out/corpus").counts)
        assert counts == {"ok": len(list((lua / "lua").iterdir())) - 1, "unreadable": 2}
        found = {row["module"]: row["detail"] for row in rows(root / "out/corpus") if row["reason"] == "unreadable"}
        assert found == {"closed": "the folder cannot be read: Permission denied", "lua/lvm.o": "Permission denied"}

        (root / "sealed").mkdir(mode=0o555)

        def extract_where_we_may_not() -> str:
            with pytest.raises(UsageError) as caught:
                extract_corpus([root / "build"], root / "sealed/corpus")
            return str(caught.value)

        assert as_nobody(extract_where_we_may_not) == f"{root}/sealed/corpus: cannot write there: Permission denied"
    finally:
        shutil.rmtree(root)


def start_cli(build: Path, corpus: Path, ignored: str = "") -> Running | subprocess.Popen[str]:
    words = ("extract", str(build), "--output", str(corpus), "--jobs", "2")
    env = {**os.environ, "PYTHONPATH": PACKAGE_ROOT}
    if not ignored:
        return start(*words, env=env, stdout=True, stderr=True)
    argv = ignoring(ignored, sys.executable, "-m", "mlgo_corpus.cli.main", *words)
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def size_of(path: Path) -> int:
    """Return the size of a file that another process may remove or rename at any moment; 0 where there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def test_killed_at_any_moment_the_next_run_ends_the_same(many: Path, reference: Path, tmp_path: Path) -> None:
    whole = (reference / ".mlgo-corpus/extract.jsonl").stat().st_size
    expected = files(reference)
    rng = random.Random(7)
    corpus = tmp_path / "corpus"
    journal = corpus / ".mlgo-corpus/extract.jsonl.new"
    interrupted = 0
    for _ in range(12):
        with start_cli(many, corpus) as process:
            goal = rng.randrange(-whole // 4, whole)
            while process.poll() is None and size_of(journal) < goal:
                time.sleep(0.002)
            time.sleep(rng.random() * (0.02 if goal > 0 else 0.1))
            process.kill()
            process.communicate()
        interrupted += process.returncode == -signal.SIGKILL
        for name, data in files(corpus).items() if corpus.exists() else ():
            if not name.startswith("."):
                assert expected[name] == data, name
        if rng.random() < 0.3:
            shutil.rmtree(corpus, ignore_errors=True)
    assert interrupted >= 5
    extract_corpus([many], corpus)
    assert files(corpus) == expected


def stopped_while_it_runs(process: Running | subprocess.Popen[str], corpus: Path) -> list[int]:
    """Stop an extraction that has written something and is not done; give its worker processes."""
    deadline = time.monotonic() + 60
    journal = corpus / ".mlgo-corpus/extract.jsonl.new"
    while size_of(journal) <= 10_000:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGSTOP)
    return [int(one) for one in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def ignored_by(pid: int) -> int:
    """Give the signals that a process ignores, the first one as the lowest bit."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("SigIgn:")).split()[1], 16)


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
def test_a_signal_that_was_ignored_at_the_start_stays_ignored(
    many: Path, reference: Path, tmp_path: Path, name: str
) -> None:
    """Such as SIGHUP under nohup, which gets to the workers, too."""
    corpus = tmp_path / "corpus"
    with start_cli(many, corpus, ignored=name) as process:
        children = stopped_while_it_runs(process, corpus)
        number = signal.Signals[f"SIG{name}"]
        ignored = [ignored_by(pid) >> (number - 1) & 1 for pid in (process.pid, *children)]
        for pid in (process.pid, *children):
            os.kill(pid, number)
        process.send_signal(signal.SIGCONT)
        _, err = process.communicate(timeout=120)
    assert len(children) > 0
    assert set(ignored) == {1}
    assert process.returncode == 0, err
    assert files(corpus) == files(reference)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_says_what_is_kept_and_leaves_no_process(
    many: Path, reference: Path, tmp_path: Path, number: signal.Signals
) -> None:
    corpus = tmp_path / "corpus"
    with start_cli(many, corpus) as process:
        children = stopped_while_it_runs(process, corpus)
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert out == ""
    assert err == "mlgo-corpus: interrupted; finished work is kept, and the same command continues from there\n"
    assert children
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    assert not (corpus / ".mlgo-corpus/tmp").exists()
    assert not list(corpus.glob(".*.tmp"))
    report = extract_corpus([many], corpus)
    assert report.unchanged > 0
    assert files(corpus) == files(reference)


def test_two_extractions_into_one_corpus(many: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    with start_cli(many, corpus) as process:
        deadline = time.monotonic() + 30
        while not list(corpus.glob("*.bc")) and time.monotonic() < deadline:
            time.sleep(0.005)
        with pytest.raises(UsageError, match="another mlgo-corpus is writing to this corpus"):
            extract_corpus([many], corpus)
        process.communicate(timeout=120)
    assert process.returncode == 0


def test_a_torn_journal_is_read_as_far_as_it_goes(lua: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    extract_corpus([lua], corpus)
    expected = files(corpus)
    journal = corpus / ".mlgo-corpus/extract.jsonl"
    content = journal.read_bytes()
    for size in (0, 1, 50, len(content) // 2, len(content) - 1):
        journal.write_bytes(content[:size])
        report = extract_corpus([lua], corpus)
        assert files(corpus) == expected
        assert report.modules == report.objects
    journal.write_bytes(content.replace(b'"rows"', b'"wors"'))
    assert extract_corpus([lua], corpus).unchanged == 0
    assert files(corpus) == expected
