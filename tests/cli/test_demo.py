from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from mlgo_corpus.cli import demo as demo_module
from mlgo_corpus.cli.demo import shorten_command
from mlgo_corpus.cli.main import app
from mlgo_corpus.compilers.find import find_zig
from mlgo_corpus.corpus.open import Corpus
from mlgo_corpus.errors import UsageError
from mlgo_corpus.runs.builds import demo as demobuild
from mlgo_corpus.runs.builds.demo import COMMANDS_NAME, STATE_NAME, DemoBuild, build_demo_objects

pytestmark = pytest.mark.whole

needs_zig = pytest.mark.skipif(
    find_zig() is None and os.environ.get("CI") != "true",
    reason="the ziglang package is not installed (pip install ziglang)",
)

# Two files in C and one in C++, that compile in a fraction of a second.
REAL = ("libcxxabi/cxa_virtual.o", "musl/regex/regerror.o", "musl/string/strverscmp.o")

# A ziglang package whose compiler is a few lines of Python. What it does is written in the source file.
FAKE_ZIG = """
import os, sys, time
argv = sys.argv
source, output = argv[argv.index("-c") + 1], argv[argv.index("-o") + 1]
for name in ("ZIG_LOCAL_CACHE_DIR", "ZIG_GLOBAL_CACHE_DIR"):
    os.makedirs(os.environ[name], exist_ok=True)
    open(os.path.join(os.environ[name], "kept"), "w").close()
text = open(source).read()
with open(output, "w") as file:
    file.write("half")
    file.flush()
    if "hang" in text:
        open(os.path.join(os.environ["STARTED"], str(os.getpid())), "w").close()
        time.sleep(600)
    if "error" in text:
        sys.exit("a.c:1:1: error: this is not C\\n1 error generated.")
    file.write(" and half of " + text)
"""


@pytest.fixture
def fake_zig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a fake ziglang 9.9 before the real one; its library is returned."""
    site = tmp_path / "site"
    library = site / "ziglang" / "lib"
    sources = {
        "libc/musl/src/regex/regcomp.c": "regcomp",
        "libc/musl/src/regex/regexec.c": "regexec",
        "libc/musl/src/regex/tre.h": "not compiled",
        "libc/musl/src/unistd/read.c": "not in the selection",
        "libcxx/src/vector.cpp": "vector",
        "libcxx/src/filesystem/path.cpp": "path",
        "libcxx/src/support/win32/windows.cpp": "not in the selection",
        "libcxxabi/src/cxa_virtual.cpp": "virtual",
    }
    for name, text in sources.items():
        (library / name).parent.mkdir(parents=True, exist_ok=True)
        (library / name).write_text(text)
    (site / "ziglang" / "__init__.py").touch()
    (site / "ziglang" / "__main__.py").write_text(FAKE_ZIG)
    set_version(library, "9.9")
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("STARTED", str(tmp_path))
    monkeypatch.delitem(sys.modules, "ziglang", raising=False)
    return library


def set_version(library: Path, version: str) -> None:
    metadata = library.parent.parent / "ziglang-0.dist-info" / "METADATA"
    metadata.parent.mkdir(exist_ok=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: ziglang\nVersion: {version}\n")


FAKE_OBJECTS = [
    "libcxx/filesystem/path.o",
    "libcxx/vector.o",
    "libcxxabi/cxa_virtual.o",
    "musl/regex/regcomp.o",
    "musl/regex/regexec.o",
]


def objects(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.o"))


def quiet(done: int, total: int) -> None:
    """Show no progress."""


def build(folder: Path, jobs: int = 2, *, force: bool = False) -> DemoBuild:
    return build_demo_objects(folder, jobs=jobs, progress=quiet, force=force)


def test_the_first_call_compiles_all_and_the_second_nothing(fake_zig: Path, tmp_path: Path) -> None:
    folder = tmp_path / "build"
    seen: list[tuple[int, int]] = []
    first = build_demo_objects(folder, jobs=2, progress=lambda done, total: seen.append((done, total)))
    assert objects(folder) == FAKE_OBJECTS
    assert (first.compiled, first.reused, first.failed) == (5, 0, ())
    assert first.compile_commands == folder / COMMANDS_NAME
    assert seen == [(done, 5) for done in range(6)]
    assert (folder / "musl/regex/regcomp.o").read_text() == "half and half of regcomp"

    before = {path: (folder / path).stat().st_mtime_ns for path in (*FAKE_OBJECTS, COMMANDS_NAME)}
    seen.clear()
    second = build_demo_objects(folder, jobs=2, progress=lambda done, total: seen.append((done, total)))
    assert (second.compiled, second.reused, second.failed) == (0, 5, ())
    assert seen == [(5, 5)]
    assert {path: (folder / path).stat().st_mtime_ns for path in before} == before


def test_the_folder_holds_objects_and_the_database_and_nothing_else(fake_zig: Path, tmp_path: Path) -> None:
    folder = tmp_path / "build"
    build(folder)
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert files == sorted([STATE_NAME, COMMANDS_NAME, *FAKE_OBJECTS])


def test_the_database_holds_the_commands_as_a_build_system_writes_them(fake_zig: Path, tmp_path: Path) -> None:
    folder = tmp_path / "build"
    build(folder)
    entries = {
        entry["arguments"][entry["arguments"].index("-o") + 1]: entry
        for entry in json.loads((folder / COMMANDS_NAME).read_text())
    }
    assert sorted(entries) == FAKE_OBJECTS
    assert {entry["directory"] for entry in entries.values()} == {str(folder)}
    c, cxx = entries["musl/regex/regcomp.o"], entries["libcxx/vector.o"]
    assert c["file"] == str(fake_zig / "libc/musl/src/regex/regcomp.c")
    assert c["arguments"][:4] == [sys.executable, "-m", "ziglang", "cc"]
    assert cxx["arguments"][:4] == [sys.executable, "-m", "ziglang", "c++"]
    assert c["arguments"][-9:] == [
        *("-MD", "-MT", "musl/regex/regcomp.o", "-MF", "musl/regex/regcomp.o.d"),
        *("-o", "musl/regex/regcomp.o", "-c", c["file"]),
    ]
    for entry in (c, cxx):
        words = entry["arguments"]
        assert words[4:9] == ["-target", "x86_64-linux-musl", "-Oz", "-Xclang", "-fembed-bitcode=all"]
    assert f"-I{fake_zig / 'libc/musl/src/internal'}" in c["arguments"]
    assert "-std=c++23" in cxx["arguments"]


def test_only_what_is_missing_is_compiled_again(fake_zig: Path, tmp_path: Path) -> None:
    folder = tmp_path / "build"
    build(folder)
    (folder / "libcxx/vector.o").unlink()
    again = build(folder)
    assert (again.compiled, again.reused) == (1, 4)
    assert objects(folder) == FAKE_OBJECTS


@pytest.mark.parametrize("change", ["compiler", "commands", "force", "interrupted"])
def test_objects_of_another_compiler_or_other_commands_are_not_reused(
    fake_zig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    folder = tmp_path / "build"
    build(folder)
    (folder / "libcxx/vector.o").write_text("stale")
    if change == "compiler":
        set_version(fake_zig, "9.10")
    elif change == "commands":
        monkeypatch.setattr(demobuild, "_MUSL_FLAGS", ("-O0",))
    elif change == "interrupted":
        (folder / STATE_NAME).write_text("")
    again = build(folder, force=change == "force")
    assert (again.compiled, again.reused) == (5, 0)
    assert (folder / "libcxx/vector.o").read_text() == "half and half of vector"


def test_a_file_that_does_not_compile_is_told_and_does_not_stop_the_others(fake_zig: Path, tmp_path: Path) -> None:
    folder = tmp_path / "build"
    (fake_zig / "libc/musl/src/regex/regexec.c").write_text("error")
    done = build(folder)
    assert (done.compiled, done.reused) == (4, 0)
    assert done.failed == (("musl/regex/regexec.o", "a.c:1:1: error: this is not C"),)
    assert objects(folder) == FAKE_OBJECTS[:4]
    again = build(folder)
    assert (again.compiled, again.reused, len(again.failed)) == (0, 4, 1)


def test_somebody_elses_database_is_not_replaced(fake_zig: Path, tmp_path: Path) -> None:
    folder = tmp_path / "build"
    folder.mkdir()
    (folder / COMMANDS_NAME).write_text("[]")
    with pytest.raises(UsageError, match=r"compile_commands\.json: not written by the demo; name another `output`"):
        build(folder)
    assert sorted(path.name for path in folder.iterdir()) == [COMMANDS_NAME]
    assert (folder / COMMANDS_NAME).read_text() == "[]"
    assert build(folder, force=True).compiled == 5


def test_a_folder_that_cannot_be_made_is_one_line(fake_zig: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"file/build.*: cannot write there: Not a directory"):
        build(tmp_path / "file" / "build")


def test_without_ziglang_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demobuild, "find_zig", lambda: None)
    with pytest.raises(UsageError) as caught:
        build(tmp_path / "build")
    assert str(caught.value) == "the demo needs a compiler: pip install ziglang"
    assert not (tmp_path / "build").exists()


def test_ctrl_c_ends_the_compilers_and_the_next_call_goes_on(fake_zig: Path, tmp_path: Path) -> None:
    folder = tmp_path / "build"
    hanging = fake_zig / "libcxx/src/vector.cpp"
    hanging.write_text("hang")

    def interrupt() -> None:
        while not [path for path in tmp_path.iterdir() if path.name.isdigit()]:
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        build(folder)
    thread.join()
    (pid,) = [int(path.name) for path in tmp_path.iterdir() if path.name.isdigit()]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not [path for path in folder.iterdir() if path.is_dir() and path.name.startswith(".")]
    assert "libcxx/vector.o" not in objects(folder)

    kept = len(objects(folder))
    hanging.write_text("vector")
    again = build(folder)
    assert (again.compiled, again.reused) == (5 - kept, kept)
    assert objects(folder) == FAKE_OBJECTS


def test_what_a_killed_call_left_is_removed(fake_zig: Path, tmp_path: Path) -> None:
    left = tmp_path / "build" / ".demo-left" / "zig"
    left.mkdir(parents=True)
    build(tmp_path / "build")
    assert not left.parent.exists()


@needs_zig
def test_real_objects_embed_their_bitcode_and_command_and_are_reproducible(tmp_path: Path) -> None:
    folder = tmp_path / "build"

    def compile_again() -> dict[str, bytes]:
        done = build_demo_objects(folder, jobs=2, progress=quiet, only=REAL.__contains__, force=True)
        assert (done.compiled, done.reused, done.failed) == (3, 0, ())
        return {name: (folder / name).read_bytes() for name in REAL}

    first = compile_again()
    for name, data in first.items():
        assert data[:5] == b"\x7fELF\x02"
        assert b".llvmbc\0" in data
        assert b"\0-dependency-file\0" + name.encode() + b".d\0" in data
        assert b"-triple\0x86_64-unknown-linux" in data
    assert compile_again() == first
    assert not list(folder.glob(".demo-*/"))


def run_demo(arguments: Sequence[str]) -> int:
    with pytest.raises(SystemExit) as caught:
        app(["demo", *arguments])
    code = caught.value.code or 0
    assert isinstance(code, int)
    return code


@pytest.fixture
def three_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the demo build three files instead of all."""
    chosen = functools.partial(build_demo_objects, only=REAL.__contains__)
    monkeypatch.setattr(demobuild, "build_demo_objects", chosen)


@needs_zig
def test_the_demo_shows_what_came_out(
    three_files: None,
    plain_terminal: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_demo(["--output", "d", "--jobs", "1"]) == 0
    shown = capsys.readouterr().out
    modules = {module.name: module for module in Corpus.open(tmp_path / "d/corpus")}
    assert sorted(modules) == list(REAL)
    lines = shown.splitlines()
    for name in REAL:
        (row,) = [line for line in lines if line.startswith(name.rpartition("/")[0] + " ")]
        assert row.split()[1] == "1"
        assert row.split()[-1] == str(len(modules[name].command()))
    assert "compiled 3 files" in shown
    assert "the corpus is in d/corpus" in lines
    assert "The command of libcxxabi/cxa_virtual.o, as the compiler embedded it:" in lines
    assert "  mlgo-corpus explain d/build/libcxxabi/cxa_virtual.o" in lines
    assert "  mlgo-corpus extract YOUR_BUILD/compile_commands.json --output corpus" in lines

    assert "d/corpus: 3 modules, " in shown  # mlgo-corpus stats
    assert any(line.split() == ["C++", "1", *line.split()[2:]] for line in lines)
    assert any(line.split() == ["identical", "3"] for line in lines)
    assert "every byte came again in 3 of 3 compared objects" in lines
    outcomes = pq.read_table(tmp_path / "d/corpus/rebuild.parquet")["outcome"].to_pylist()
    assert outcomes == ["identical"] * 3

    last = lines[-1].strip()
    assert " -c 'import pyarrow.parquet as pq; " in last
    code = last.partition(" -c ")[2].strip("'")
    printed = subprocess.run(
        (sys.executable, "-c", code), capture_output=True, text=True, check=True, timeout=300
    ).stdout
    assert printed.count("'status': 'ok'") == 3


@needs_zig
def test_the_demo_as_json_is_one_object_that_agrees_with_the_disk(
    three_files: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "d"
    assert run_demo(["-o", str(output), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["corpus"] == str(output / "corpus")
    assert result["exit_code"] == 0
    assert (result["build"]["compiled"], result["build"]["reused"], result["build"]["failed"]) == (3, 0, [])
    assert result["extract"]["modules"] == 3
    corpus = Corpus.open(output / "corpus")
    assert result["folders"] == [
        {
            "folder": module.name.rpartition("/")[0],
            "modules": 1,
            "bitcode_bytes": len(module.bitcode()),
            "cmd_bytes": module.command_path.stat().st_size,
            "median_options": len(module.command()),
        }
        for module in sorted(corpus, key=lambda module: module.name)
    ]
    table = pq.read_table(output / "corpus/modules.parquet").to_pydict()
    assert sum(row["bitcode_bytes"] for row in result["folders"]) == sum(table["bitcode_bytes"])

    assert run_demo(["-o", str(output), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["build"]["compiled"], again["build"]["reused"]) == (0, 3)
    assert again["extract"]["unchanged"] == 3
    assert again["folders"] == result["folders"]
    assert result["stats"]["modules"] == 3
    for certificate in (result["certificate"], again["certificate"]):
        assert (certificate["outcomes"], certificate["same_bytes"], certificate["bad"]) == ({"identical": 3}, 3, 0)
    assert (result["certificate"]["resumed"], again["certificate"]["resumed"]) == (0, 3)


@needs_zig
def test_the_demo_trains_on_its_search_and_evaluates_on_other_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("lightgbm", reason="training needs LightGBM")
    known, other = ("libcxx/barrier.o", "libcxx/call_once.o"), "libcxx/chrono.o"
    chosen = functools.partial(build_demo_objects, only=(*known, other).__contains__)
    monkeypatch.setattr(demobuild, "build_demo_objects", chosen)
    monkeypatch.setattr(demo_module, "_certificate", lambda *_, **__: None)
    output = tmp_path / "d"
    assert run_demo(["-o", str(output), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert pq.read_table(output / "found/modules.parquet")["module"].to_pylist() == [*known]
    learning = result["learning"]
    assert (learning["trained"]["decisions"], learning["missing"]) == (result["search"]["decisions"], "")
    (row,) = pq.read_table(output / "sizes/evaluation.parquet").to_pylist()
    assert (row["module"], row["policy"]) == (other, "policy")
    objects = learning["evaluated"]["policies"][0]["objects"]
    if not row["trained"]:
        assert (objects["size"], objects["baseline"]) == (row["text_size"], row["baseline_text_size"])

    # Without the library one line says so, and the demo goes on.
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    assert run_demo(["-o", str(output)]) == 0
    (said,) = [line for line in capsys.readouterr().out.splitlines() if "LightGBM" in line]
    assert said.startswith("no policy was trained: training needs LightGBM: pip install 'mlgo-corpus[learn]'")


def test_a_file_that_fails_is_told_on_stderr_and_in_the_exit_code(
    fake_zig: Path, plain_terminal: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in sorted(fake_zig.rglob("*.c*")):
        path.write_text("error")
    assert run_demo(["-o", str(tmp_path / "d")]) == 1
    captured = capsys.readouterr()
    assert "musl/regex/regexec.o: a.c:1:1: error: this is not C" in captured.err.splitlines()
    assert "5 failed" in captured.out


def test_without_ziglang_the_demo_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demobuild, "find_zig", lambda: None)
    assert run_demo(["-o", str(tmp_path / "d"), "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "mlgo-corpus: error: the demo needs a compiler: pip install ziglang\n"
    assert not (tmp_path / "d").exists()


def test_a_long_command_is_shown_without_its_bulk() -> None:
    options = ("-cc1", "-triple", "x86_64", "-target-feature", "+sse", "-D", "A=b c", "-main-file-name", "a b.c")
    assert shorten_command(options) == "-cc1 -triple x86_64 -main-file-name 'a b.c' ... (9 options)"
    assert shorten_command(("-cc1", "x" * 294, "-last")) == f"-cc1 {'x' * 294} ... (3 options)"
    assert shorten_command(("-isystem",)) == "... (1 options)"


def test_the_program_is_named_so_that_it_can_be_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "a b" / "mlgo-corpus"
    script.parent.mkdir()
    script.touch(mode=0o755)
    monkeypatch.setenv("PATH", "")
    assert demo_module._runnable("mlgo-corpus", script) == "'a b/mlgo-corpus'"
    assert demo_module._runnable("mlgo-corpus", tmp_path / "pytest") == "mlgo-corpus"
    monkeypatch.setenv("PATH", str(script.parent))
    assert demo_module._runnable("mlgo-corpus", script) == "mlgo-corpus"
