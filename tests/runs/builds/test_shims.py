"""The shims: what they add, what they record, and that a compiler behind one cannot tell the difference."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlgo_corpus.build import BuildReport, _hints
from mlgo_corpus.builds.compiles import CompileStore
from mlgo_corpus.builds.objects import SectionNames, Tally, read_object
from mlgo_corpus.compilers.choose import choose_for_build
from mlgo_corpus.compilers.driver import Drivers, drivers_of
from mlgo_corpus.errors import UsageError
from mlgo_corpus.formats.commands.driverline import Language, read_compile
from mlgo_corpus.formats.commands.languages import CLANG_NAMES, ENDINGS
from mlgo_corpus.formats.commands.shimrecord import CompileRecord, parse_compile_record
from mlgo_corpus.runs.builds.shims import build_environment, compiler_in, make_shims, run_build
from tests.conftest import EMBED, Llvm, ignoring, run_checked

# Says what it was given, and does what a word asks for.
STAND_IN = """#!/bin/sh
printf '%s\\0' "$@" >"$SEEN"
case " $* " in
    *" -fail "*) exit 3 ;;
    *" -wait "*) : >started; until [ -e go ]; do sleep 0.01; done; : >finished; exit 0 ;;
    *" -cat "*) cat; exit 0 ;;
esac
while [ $# -gt 0 ]; do
    [ "$1" != -o ] || echo object >"$2"
    shift
done
"""


class Bench:
    """A folder with shims of a program that says what it was given."""

    def __init__(self, folder: Path, *, keep_checks: bool = False) -> None:
        self.folder = folder / "work"
        self.shims = folder / "the shims"
        self.run = folder / "run"
        self.seen = folder / "seen"
        self.folder.mkdir()
        program = folder / "stand-in"
        program.write_text(STAND_IN)
        program.chmod(0o755)
        drivers = Drivers((str(program),), (str(program), "++"), {"ar": (str(program),)})
        make_shims(self.shims, self.run, drivers, keep_checks=keep_checks)
        self.env = {**os.environ, "SEEN": str(self.seen)}

    def start(self, *words: str | bytes, name: str = "cc", stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        self.run.mkdir(exist_ok=True)
        for path in self.run.iterdir():
            path.unlink()
        return subprocess.run(
            [self.shims / name, *words],
            cwd=self.folder,
            env=self.env,
            input=stdin,
            capture_output=True,
            check=False,
            timeout=120,
        )

    def given(self) -> list[bytes]:
        return self.seen.read_bytes().split(b"\0")[:-1]

    def record(self) -> CompileRecord | None:
        names = [path for path in self.run.iterdir() if path.name.isdigit()]
        return parse_compile_record(names[0].read_bytes()) if names else None

    def checks(self) -> int:
        path = self.run / "checks"
        return path.stat().st_size if path.exists() else 0


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


ADDED = [word.encode() for word in EMBED]

# Command lines, whether bitcode is to be embedded, and what is recorded of sources and objects.
COMPILES: list[tuple[str, bool, list[str], list[str]]] = [
    ("-c a.c", True, ["a.c"], ["a.o"]),
    ("-c sub/a.c", True, ["sub/a.c"], ["a.o"]),
    ("-c a.c -o x.o", True, ["a.c"], ["x.o"]),
    ("-c a.c -ox.o", True, ["a.c"], ["x.o"]),
    ("-c a.c --output=x.o", True, ["a.c"], ["x.o"]),
    ("-c a.c --output x.o", True, ["a.c"], ["x.o"]),
    ("-c a.c b.c", True, ["a.c", "b.c"], ["a.o", "b.o"]),
    ("-fdebug-compilation-dir b.c -iwithsysroot b.c -c a.c", True, ["a.c"], ["a.o"]),
    ("-o x.o -MD -MF a.d -MT b.c -c -- a.c", True, ["a.c"], ["x.o"]),
    ("-include b.c -D NAME=b.c -isystem b.c -Xclang -disable-O0-optnone -c a.c", True, ["a.c"], ["a.o"]),
    ("a.c b.c -o prog", True, ["a.c", "b.c"], ["prog"]),
    ("a.c", True, ["a.c"], ["a.out"]),
    ("a.c obj.o -o prog", True, ["a.c"], ["prog"]),
    ("a.c t.S -o prog", True, ["a.c", "t.S"], ["prog"]),
    ("-x c - -c -o x.o", True, ["-"], ["x.o"]),
    ("-xc text -c -o x.o", True, ["text"], ["x.o"]),
    ("-x c text -x none a.c -c", True, ["text", "a.c"], ["text.o", "a.o"]),
    ("-c t.S", False, ["t.S"], ["t.o"]),
    ("-c s.s -o x.o", False, ["s.s"], ["x.o"]),
    ("-x assembler-with-cpp -c a.c", False, ["a.c"], ["a.o"]),
    ("-flto -c a.c", False, ["a.c"], ["a.o"]),
    ("-flto=thin -c a.c", False, ["a.c"], ["a.o"]),
    ("-flto -fno-lto -c a.c", True, ["a.c"], ["a.o"]),
    ("-Xclang -fembed-bitcode=all -c a.c", False, ["a.c"], ["a.o"]),
]
OTHERS = [
    "--version",
    "-v",
    "-E a.c",
    "-S a.c",
    "-M a.c",
    "-MM a.c",
    "-fsyntax-only a.c",
    "-### -c a.c",
    "--analyze a.c",
    "-emit-llvm -c a.c",
    "-Xclang -emit-llvm -c a.c",
    "-x c-header a.c -o a.pch",
    "-lm -o prog",
    "-v obj.o -###",
    "-print-prog-name=ld",
    "-dumpmachine",
    "a.h -o a.h.gch",
    "-c a.f90",
    "-c obj.o",
]
LINKS = [
    "obj.o -o prog",
    "obj.o -L. -o prog -lm",
    "-shared obj.o -o lib.so",
    "libx.a",
    "dir/libx.so.1.2",
    "-shared a.os -o lib.so",
    "b.pico",
]


@pytest.mark.parametrize(("line", "embeds", "sources", "objects"), COMPILES, ids=[item[0] for item in COMPILES])
def test_compiles_are_recorded(bench: Bench, line: str, embeds: bool, sources: list[str], objects: list[str]) -> None:
    words = line.split()
    assert bench.start(*words).returncode == 0
    assert bench.given() == (ADDED if embeds else []) + [word.encode() for word in words]
    record = bench.record()
    assert record is not None
    assert (list(record.sources), [name for name, _ in record.objects]) == (sources, objects)
    assert record.links == ("-c" not in words)
    assert (record.directory, record.arguments, record.status) == (str(bench.folder), tuple(words), 0)


@pytest.mark.parametrize("ending", [ending for ending, name in ENDINGS.items() if name in CLANG_NAMES.values()])
def test_a_source_is_known_by_its_ending(bench: Bench, ending: str) -> None:
    assert bench.start("-c", f"a.{ending}").returncode == 0
    assert bench.given() == [*ADDED, b"-c", f"a.{ending}".encode()]
    record = bench.record()
    assert record is not None
    assert (list(record.sources), [name for name, _ in record.objects]) == ([f"a.{ending}"], ["a.o"])
    assert read_compile(("cc", "-c", f"a.{ending}"), f"a.{ending}", "/").language is Language.CODE


@pytest.mark.parametrize("line", OTHERS)
def test_all_else_is_left_alone(bench: Bench, line: str) -> None:
    bench.start(*line.split())
    assert bench.given() == [word.encode() for word in line.split()]
    assert bench.record() is None


@pytest.mark.parametrize("line", LINKS)
@pytest.mark.parametrize("driver", ["c", "c++", "ar"])
def test_links_and_archives_leave_their_commands(bench: Bench, line: str, driver: str) -> None:
    words = ["rcs", "out.a", *line.split()] if driver == "ar" else line.split()
    bench.start(*words, name={"c": "cc", "c++": "c++", "ar": "gcc-ar"}[driver])
    assert bench.given()[-len(words) :] == [word.encode() for word in words]
    record = bench.record()
    assert record == CompileRecord(driver, True, 0, str(bench.folder), tuple(words), (), (), ())
    assert not record.compiles


def test_the_streams_of_a_link_are_its_own(bench: Bench) -> None:
    through = bench.start("obj.o", "-cat", stdin=b"a map\xff")
    assert (through.stdout, through.stderr) == (b"a map\xff", b"")
    assert bench.start("obj.o", "-fail").returncode == 3


@pytest.mark.parametrize("line", [item[0] for item in COMPILES] + OTHERS + LINKS[:3])
def test_clang_itself_agrees_on_what_compiles(llvm22: Llvm, tmp_path: Path, line: str) -> None:
    for name in ("a.c", "b.c", "sub/a.c", "text", "t.S", "s.s", "obj.o"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    done = subprocess.run(
        [llvm22.clang, "-###", *line.split()], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    jobs = [shlex.split(job) for job in done.stderr.splitlines() if job.startswith(' "')]
    # An assembler's job writes an object, and embeds nothing.
    compiles = [job for job in jobs if "-cc1" in job and {"-emit-obj", "-emit-llvm-bc"} & set(job)]
    found = {entry[0]: entry for entry in COMPILES}.get(line)
    wanted = [] if found is None else [name for name in found[2] if found[1] or "-flto" in line or "Xclang" in line]
    if "-x assembler-with-cpp" in line:
        wanted = []
    wanted = [name for name in wanted if not name.lower().endswith(".s")]
    if line in ("-emit-llvm -c a.c", "-Xclang -emit-llvm -c a.c", "-### -c a.c"):
        wanted = ["a.c"]  # no object, or only shown
    assert [job[-1] for job in compiles] == wanted


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=8).map(lambda data: b"-D" + data.replace(b"\0", b"")), max_size=5))
def test_any_argument_survives(bench: Bench, words: list[bytes]) -> None:
    assert bench.start(b"-c", b"a.c", *words).returncode == 0
    assert bench.given() == [*ADDED, b"-c", b"a.c", *words]
    record = bench.record()
    assert record is not None
    assert [os.fsencode(word) for word in record.arguments] == [b"-c", b"a.c", *words]


def test_a_long_command_line_survives(bench: Bench) -> None:
    words = [f"-DNAME_{number}={'x' * 90}" for number in range(10_000)]
    assert bench.start("-c", "a.c", *words).returncode == 0
    record = bench.record()
    assert record is not None
    assert record.arguments == ("-c", "a.c", *words)


def test_a_parameter_file_is_looked_into_and_kept(bench: Bench) -> None:
    (bench.folder / "a.rsp").write_text("-D'NAME=a b' \"x y.c\" -o out.o\n-c\n")
    assert bench.start("-O2", "@a.rsp").returncode == 0
    assert bench.given() == [*ADDED, b"-O2", b"@a.rsp"]
    record = bench.record()
    assert record is not None
    assert record.sources == ("x y.c",)
    assert [name for name, _ in record.objects] == ["out.o"]
    ((word, number),) = record.responses
    (name,) = [path for path in bench.run.iterdir() if path.name.isdigit()]
    assert (word, Path(f"{name}.{number}").read_text()) == ("@a.rsp", (bench.folder / "a.rsp").read_text())


def test_with_temporaries_bitcode_is_embedded_once(llvm22: Llvm, bench: Bench) -> None:
    drivers = Drivers((llvm22.clang,), (llvm22.clangxx,), {})
    make_shims(bench.shims, bench.run, drivers, keep_checks=False)
    (bench.folder / "a.c").write_text("int a(void) { return 1; }\n")
    (bench.folder / "a.rsp").write_text("-save-temps")
    sizes = []
    for words in (["-c", "a.c"], ["-save-temps=obj", "-c", "a.c"], ["@a.rsp", "-c", "a.c"]):
        (bench.folder / "a.o").unlink(missing_ok=True)
        assert bench.start(*words).stderr == b""
        record = bench.record()
        assert record is not None
        assert record.arguments == tuple(words)
        (copy,) = bench.run.glob(f"*.{record.objects[0][1]}")
        found = read_object(copy.read_bytes(), Tally(), names=SectionNames(), open_member=lambda name: name.encode())
        sizes.append([len(one.bitcode or b"") for one in found])
    plain, saved, hidden = sizes
    assert (saved, hidden) == (plain, [0])
    assert plain[0] > 0
    assert {"a.i", "a.s", "a.bc"} <= {path.name for path in bench.folder.iterdir()}


def test_parameter_files_in_parameter_files_and_of_windows(bench: Bench) -> None:
    (bench.folder / "out.rsp").write_text("@in.rsp -O2\r\n")
    (bench.folder / "in.rsp").write_text('-c\r\na.c\r\n"-DX=\\"q\\""\r\n-o x.o\r\n')
    assert bench.start("@out.rsp", "-g").returncode == 0
    assert bench.given() == [*ADDED, b"@out.rsp", b"-g"]
    record = bench.record()
    assert record is not None
    assert (record.sources, record.objects) == (("a.c",), (("x.o", ""),))
    assert record.responses == (("@out.rsp", "1"), ("@in.rsp", "2"))
    (bench.folder / "in.rsp").write_text("@in.rsp")
    bench.start("@out.rsp")  # ends


def test_an_object_whose_copy_was_not_taken(bench: Bench, tmp_path: Path) -> None:
    store = CompileStore(tmp_path / "corpus")
    store.open_run()
    bench.run = store.run
    make_shims(bench.shims, bench.run, Drivers((str(tmp_path / "stand-in"),), ("c++",), {}), keep_checks=False)
    for name in ("a.c", "there it is.o"):
        (bench.folder / name).write_text(name)
    # A backslash in quotes is more than the shim can read.
    for name in ("there it is", "it is gone"):
        (bench.folder / "a.rsp").write_text(f'-c a.c -o "{name}.o" "-DX=\\"q\\""')
        subprocess.run([bench.shims / "cc", "@a.rsp"], cwd=bench.folder, env=bench.env, check=True)
    subprocess.run([bench.shims / "cc", "-c", "a.c", "-o", "/dev/zero"], cwd=bench.folder, env=bench.env, check=True)
    store.close_run()
    compiles, _, counts = store.update(lambda _: ("clang",))
    assert [(one.output, one.digest, one.kept) for one in compiles] == [
        ("it is gone.o", None, False),
        ("there it is.o", sha256(b"there it is.o").hexdigest(), False),
    ]
    assert (counts.compiles, counts.failed, counts.lost) == (3, 1, (str(bench.folder / "it is gone.o"),))
    (hint,) = _hints(BuildReport(tmp_path, ("make",), ("clang",), "", counts=counts), "mlgo-corpus build")
    assert hint == (
        f"1 object could not be copied after the compile, such as {os.path.relpath(counts.lost[0])}, and the build has "
        "deleted it: the corpus lacks it; is the disk full?"
    )


@pytest.mark.parametrize("joint", [" ", "="])
def test_clang_may_be_told_to_go_to_another_folder(llvm22: Llvm, bench: Bench, tmp_path: Path, joint: str) -> None:
    (bench.folder / "a.rsp").write_text("-c a.c")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a.c").write_text("int a;")
    make_shims(bench.shims, bench.run, Drivers((llvm22.clang,), ("c++",), {}), keep_checks=False)
    assert bench.start(*f"-working-directory{joint}{elsewhere} @a.rsp".split()).returncode == 0
    record = bench.record()
    assert record is not None
    assert (record.directory, record.sources, record.responses) == (str(elsewhere), ("a.c",), (("@a.rsp", "1"),))
    assert record.objects == (("a.o", "2"),)
    (copy,) = bench.run.glob("*.2")
    assert copy.read_bytes() == (elsewhere / "a.o").read_bytes()


def test_a_parameter_file_of_a_link_is_no_compile(bench: Bench) -> None:
    (bench.folder / "a.rsp").write_text("a.o b.o -o prog")
    bench.start("@a.rsp", "@missing.rsp")
    assert bench.given() == [b"@a.rsp", b"@missing.rsp"]
    record = bench.record()
    assert record is not None
    assert (record.compiles, record.arguments) == (False, ("@a.rsp", "@missing.rsp"))
    assert record.expanded({"@a.rsp": ("a.o",)}) == ("a.o", "@missing.rsp")
    ((word, number),) = record.responses
    (copy,) = bench.run.glob(f"*.{number}")
    assert (word, copy.read_text()) == ("@a.rsp", "a.o b.o -o prog")


@pytest.mark.parametrize(
    ("line", "folder"),
    [
        ("-c conftest.c", ""),
        ("-o conftest -O2 conftest.cpp -lm", ""),
        ("-c ../conftest1.c -o x.o", ""),
        ("-c a.c -o /dev/null", ""),
        ("-c src.c -o CMakeFiles/x.dir/src.c.o", "CMakeFiles/CMakeScratch/TryCompile-x1"),
        ("-c src.c -o CMakeFiles/x.dir/src.c.o", "CMakeFiles/CMakeTmp"),
        ("-c ../foo.c -o CMakeFiles/foo.dir/foo.c.o", "CMakeFiles/_CMakeLTOTest-C/bin"),
        ("CMakeCCompilerId.c", "CMakeFiles/3.25.1/CompilerIdC"),
        ("/b/meson-private/tmpx1/testfile.c -o /b/meson-private/tmpx1/output.exe", ""),
    ],
)
def test_checks_of_the_compiler_are_left_alone(tmp_path: Path, line: str, folder: str) -> None:
    for keep in (False, True):
        (tmp_path / str(keep)).mkdir()
        bench = Bench(tmp_path / str(keep), keep_checks=keep)
        bench.folder /= folder
        bench.folder.mkdir(parents=True, exist_ok=True)
        bench.start(*line.split())
        assert bench.given() == (ADDED if keep else []) + [word.encode() for word in line.split()]
        assert (bench.record() is None, bench.checks()) == (not keep, 0 if keep else 1)


@pytest.mark.parametrize("folder", ["CMakeScratch/TryCompile-x1", "CMakeTmp", "_CMakeLTOTest-CXX/bin"])
@pytest.mark.parametrize("words", [("cc", "obj.o", "-o", "boo"), ("ar", "cr", "libfoo.a", "obj.o")])
def test_links_of_checks_are_left_alone(tmp_path: Path, words: tuple[str, ...], folder: str) -> None:
    for keep in (False, True):
        (tmp_path / str(keep)).mkdir()
        bench = Bench(tmp_path / str(keep), keep_checks=keep)
        bench.folder = bench.folder / "CMakeFiles" / folder
        bench.folder.mkdir(parents=True)
        bench.start(*words[1:], name="gcc-ar" if words[0] == "ar" else "cc")
        assert bench.given()[-2:] == [word.encode() for word in words[-2:]]
        assert (bench.record() is None, bench.checks()) == (not keep, 0)


def test_the_compilers_own_exit_code_streams_and_stdin(bench: Bench) -> None:
    failed = bench.start("-c", "a.c", "-fail")
    assert failed.returncode == 3
    record = bench.record()
    assert record is not None
    assert (record.status, record.objects) == (3, (("a.o", ""),))
    through = bench.start("-c", "-x", "c", "-", "-cat", stdin=b"int x;\n\xff")
    assert (through.stdout, through.stderr) == (b"int x;\n\xff", b"")


def test_an_object_is_copied_as_it_was(bench: Bench) -> None:
    bench.start("-c", "a.c", "-o", "a b.o")
    (bench.folder / "a b.o").write_text("stripped")
    record = bench.record()
    assert record is not None
    assert record.objects == (("a b.o", "1"),)
    (copy,) = bench.run.glob("*.1")
    assert copy.read_text() == "object\n"


def test_outside_of_a_build_a_shim_is_the_compiler(bench: Bench) -> None:
    bench.run.mkdir()
    bench.run.rmdir()
    subprocess.run([bench.shims / "cc", "-c", "a.c"], cwd=bench.folder, env=bench.env, check=True)
    assert bench.given() == [b"-c", b"a.c"]
    assert not bench.run.exists()


@pytest.mark.parametrize(("name", "added"), [("cc", []), ("g++", ["++"])])
def test_a_shim_of_another_corpus_is_that_of_the_build_that_runs(
    bench: Bench, tmp_path: Path, name: str, added: list[str]
) -> None:
    (tmp_path / "other").mkdir()
    ours = Bench(tmp_path / "other")
    ours.run.mkdir()
    env = {**bench.env, "MLGO_CORPUS_SHIMS": str(ours.shims), "SEEN": str(ours.seen)}
    subprocess.run([bench.shims / name, "-c", "a.c"], cwd=bench.folder, env=env, check=True)
    record = ours.record()
    assert record is not None
    assert record.driver == ("c++" if added else "c")
    assert ours.given() == [*(word.encode() for word in added), *ADDED, b"-c", b"a.c"]
    assert not bench.run.exists()
    # Where that build has no such shims any more, the other is what it was.
    bench.run.mkdir()
    env["MLGO_CORPUS_SHIMS"] = str(tmp_path / "nothing")
    subprocess.run([bench.shims / name, "-c", "a.c"], cwd=bench.folder, env=env, check=True)
    assert bench.record() is not None


def test_the_environment_of_the_compiler_is_not_changed(bench: Bench, tmp_path: Path) -> None:
    program = tmp_path / "stand-in"
    program.write_text('#!/bin/sh\nenv -0 >"$SEEN"\n')
    bench.start("-c", "a.c")
    inside = set(bench.given())
    subprocess.run([program, "-c", "a.c"], cwd=bench.folder, env=bench.env, check=True)
    assert {line for line in inside ^ set(bench.given()) if not line.startswith((b"PWD=", b"_="))} == set()


@pytest.mark.parametrize("where", ["{shims}:/a:/b", "/a:{shims}:/b", "/a:/b:{shims}", "/a:/b"])
@pytest.mark.parametrize("words", [("-c", "a.c"), ("a.o",)], ids=["compile", "link"])
def test_the_compiler_does_not_meet_the_shims(bench: Bench, tmp_path: Path, where: str, words: tuple[str, ...]) -> None:
    (tmp_path / "stand-in").write_text('#!/bin/sh\nprintf %s "$PATH" >"$SEEN"\n')
    bench.env["PATH"] = where.format(shims=bench.shims)
    bench.start(*words)
    assert bench.seen.read_text() == "/a:/b"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_shim_does_not_end_before_its_compiler(bench: Bench, number: signal.Signals) -> None:
    bench.run.mkdir()
    argv = [bench.shims / "cc", "-wait", "-c", "a.c"]
    with subprocess.Popen(argv, cwd=bench.folder, env=bench.env) as process:
        wait_for(bench.folder / "started")
        process.send_signal(number)
        (bench.folder / "go").touch()
        assert process.wait(60) == -number
    assert (bench.folder / "finished").exists()
    assert bench.record() is not None


@pytest.mark.parametrize("name", ["TERM", "HUP", "INT"])
def test_a_shim_ignores_what_was_ignored_when_it_started(bench: Bench, name: str) -> None:
    bench.run.mkdir()
    argv = ignoring(name, bench.shims / "cc", "-wait", "-c", "a.c")
    with subprocess.Popen(argv, cwd=bench.folder, env=bench.env) as process:
        wait_for(bench.folder / "started")
        process.send_signal(signal.Signals[f"SIG{name}"])
        (bench.folder / "go").touch()
        assert process.wait(60) == 0
    assert (bench.folder / "finished").exists()
    assert bench.record() is not None


def wait_for(path: Path) -> None:
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_names_of_c_and_cxx_compilers(bench: Bench) -> None:
    names = {path.name for path in bench.shims.iterdir()}
    assert {"cc", "c++", "gcc", "g++", "clang", "clang++", "c99"} <= names
    for name, before in (("g++", [b"++"]), ("gcc", [])):
        bench.start("-c", "a.c", name=name)
        assert bench.given() == [*before, *ADDED, b"-c", b"a.c"]
        record = bench.record()
        assert record is not None
        assert record.driver == ("c++" if before else "c")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", None),
        ("gcc", (["gcc"], 0)),
        ("ccache gcc -m32", (["ccache", "gcc", "-m32"], 1)),
        ("/opt/llvm 19/bin/clang-19", None),
        ("'/opt/llvm 19/bin/clang-19'", (["/opt/llvm 19/bin/clang-19"], 0)),
        ("x86_64-linux-gnu-gcc-12", (["x86_64-linux-gnu-gcc-12"], 0)),
        ("'open", None),
        ("icc", None),
    ],
)
def test_a_compiler_is_found_in_cc(text: str, found: tuple[list[str], int] | None) -> None:
    if found is None and text.startswith("/opt"):
        assert compiler_in(text) == (["/opt/llvm", "19/bin/clang-19"], 1)
    else:
        assert compiler_in(text) == found


def test_cc_keeps_launchers_and_options() -> None:
    made = build_environment(Path("/s"), {"CC": "ccache gcc -m32", "CXX": "icpc", "PATH": "/usr/bin"})
    assert (made["CC"], made["CXX"], made["PATH"]) == ("ccache /s/clang -m32", "/s/clang++", "/s:/usr/bin")
    quoted = {"CC": "'a b/ccache'  '/t h/gcc' -I$(TOP)", "CXX": r"""g++ -DNAME=\"x\" -DV="a b" """}
    made = build_environment(Path("/s"), quoted)
    assert (made["CC"], made["CXX"]) == (
        "'a b/ccache'  /s/clang -I$(TOP)",
        r"""/s/clang++ -DNAME=\"x\" -DV="a b" """,
    )
    made = build_environment(Path("/a b"), {"PATH": "/usr/bin"})
    assert (made["CC"], made["CXX"], made["PATH"]) == ("clang", "clang++", "/a b:/usr/bin")


@pytest.mark.parametrize(
    ("triple", "native"),
    [
        ("x86_64-linux-gnu", True),
        ("x86_64-redhat-linux", True),
        ("x86_64-conda-linux-gnu", True),
        ("x86_64-linux-musl", False),
        ("x86_64-linux-gnux32", False),
        ("x86_64-linux-android21", False),
        ("x86_64-w64-mingw32", False),
        ("aarch64-linux-gnu", False),
    ],
)
def test_a_compiler_for_another_machine(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, triple: str, native: bool
) -> None:
    monkeypatch.setattr("platform.uname", lambda: SimpleNamespace(machine="x86_64", system="Linux"))
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "2.36"))
    made = build_environment(Path("/s"), {"CC": f"ccache {triple}-gcc-12 -g"})
    assert made["CC"] == ("ccache /s/clang -g" if native else f"ccache /s/clang --target={triple} -g")
    tools = [f"{triple}-{name}" for name in ("gcc", "ar", "gcc-ranlib", "nm", "ld")]
    for name in tools:
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    archivers = {name: (name,) for name in ("ar", "ranlib", "nm")}
    make_shims(bench.shims, bench.run, Drivers(("c",), ("c++",), archivers), keep_checks=False)
    assert [(bench.shims / name).exists() for name in tools] == [native] * 5


def test_a_build_that_cannot_be_run() -> None:
    with pytest.raises(UsageError, match="nosuch: no such program"):
        run_build(("nosuch",), {"PATH": "/usr/bin:/bin"})


@pytest.mark.parametrize(("script", "status"), [("exit 7", 7), ("kill -TERM $$", 143), ("exit 0", 0)])
def test_a_build_gives_its_exit_code(script: str, status: int) -> None:
    assert run_build(("sh", "-c", script), os.environ) == status


def test_static_libraries_are_made_with_archivers_that_know_bitcode(
    llvm22: Llvm, tmp_path: Path, compile_c: Callable[..., Path]
) -> None:
    folder = tmp_path / "shims"
    make_shims(
        folder, tmp_path / "run", Drivers((llvm22.clang,), (llvm22.clangxx,), {"ar": (llvm22.ar,)}), keep_checks=False
    )
    item = compile_c(llvm22, "int f(void) { return 1; }", *EMBED)
    run_checked(folder / "ar", "rcs", "libf.a", item.name, cwd=tmp_path)
    assert " T f" in run_checked(llvm22.nm, "--print-armap", "libf.a", cwd=tmp_path)


def test_a_clang_without_an_archiver_leaves_the_systems(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "stand-in").rename(tmp_path / "llvm-ar")
    bench.env["PATH"] = os.environ["PATH"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        make_shims(bench.shims, bench.run, Drivers(("cc",), ("c++",), {}), keep_checks=False)
    bench.start("rcs", "out.a", "a.o", name="llvm-ar")
    assert bench.given() == [b"rcs", b"out.a", b"a.o"]
    record = bench.record()
    assert record is not None
    assert (record.driver, record.arguments) == ("ar", ("rcs", "out.a", "a.o"))
    assert not (bench.shims / "ranlib").exists()


def test_the_drivers_that_belong_to_a_clang(llvm22: Llvm, llvm19: Llvm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLGO_CORPUS_COMPILER", raising=False)
    for llvm in (llvm22, llvm19):
        compiler = choose_for_build(llvm.clang)
        drivers = drivers_of(compiler)
        assert (drivers.c, drivers.cxx) == ((llvm.clang,), (llvm.clangxx,))
        assert drivers_of(choose_for_build(llvm.clangxx)) == drivers
        assert {name: os.path.realpath(words[0]) for name, words in drivers.archivers.items()} == {
            "ar": os.path.realpath(llvm.ar),
            "ranlib": os.path.realpath(shutil.which(f"llvm-ranlib-{llvm.version}") or ""),
            "nm": os.path.realpath(llvm.nm),
        }


def test_a_clang_without_a_driver_for_cxx(llvm22: Llvm, tmp_path: Path) -> None:
    (tmp_path / "clang").write_text(f'#!/bin/sh\nexec {llvm22.clang} "$@"\n')
    (tmp_path / "clang").chmod(0o755)
    compiler = replace(choose_for_build(str(tmp_path / "clang")), binary=tmp_path / "lone")
    assert drivers_of(compiler).cxx == (str(tmp_path / "clang"), "--driver-mode=g++")
    (tmp_path / "clang").rename(tmp_path / "clang++")
    compiler = replace(choose_for_build(str(tmp_path / "clang++")), binary=tmp_path / "lone")
    assert drivers_of(compiler).c == (str(tmp_path / "clang++"), "--driver-mode=gcc")
    started = drivers_of(replace(compiler, driver=("ccache", "clang")))
    assert (started.c, started.cxx) == (("ccache", "clang"), ("ccache", "clang", "--driver-mode=g++"))
    (tmp_path / "llvm-ar-9").symlink_to("/bin/sh")
    for name in ("clang-9", "clang++-9", "aarch64-linux-gnu-clang++-9"):
        other = replace(compiler, driver=(str(tmp_path / name),))
        assert drivers_of(other).archivers == {"ar": (str(tmp_path / "llvm-ar-9"),)}


def test_which_clang_a_build_gets(llvm22: Llvm, llvm19: Llvm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLGO_CORPUS_COMPILER", raising=False)
    if shutil.which("clang") is None:  # else that one
        assert choose_for_build(None).major >= 22
    assert choose_for_build(None, cc=llvm19.clang).major == 19
    monkeypatch.setenv("MLGO_CORPUS_COMPILER", llvm22.clang)
    assert choose_for_build(None, cc=llvm19.clang).major == 22
    assert choose_for_build(llvm19.clang).major == 19
    monkeypatch.setenv("MLGO_CORPUS_COMPILER", "/no/clang")
    with pytest.raises(UsageError, match="MLGO_CORPUS_COMPILER /no/clang: /no/clang: no such program"):
        choose_for_build(None)
