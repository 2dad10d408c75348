"""What a compiler cannot do, whatever it is told to: asked of a Python that tries, and of real compilers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mlgo_corpus.compilers import command as modulecommand
from mlgo_corpus.compilers import confinement
from mlgo_corpus.compilers.confinement import confine, machine_share
from mlgo_corpus.compilers.process import Child, ToolResult, run_tool
from mlgo_corpus.compilers.walls import Walls, _idle, can_launch, close_launchers, standing, walls_around
from mlgo_corpus.corpus.folder import write_manifest
from mlgo_corpus.dataset.tracetable import TraceRow, read_trace_rows
from mlgo_corpus.errors import ToolError
from mlgo_corpus.files.names import MANIFEST_NAME
from mlgo_corpus.formats.commands import replay
from mlgo_corpus.ir2native import ir2native_table
from mlgo_corpus.trace import trace_corpus
from mlgo_corpus.verify import verify_corpus
from tests.compilers.test_process import wait_for_pid
from tests.conftest import Llvm
from tests.processes import alive, dies, state_of

pytestmark = pytest.mark.skipif(not can_launch(), reason="walls need Linux")
needs_landlock = pytest.mark.skipif(not standing().landlock, reason="this kernel has no Landlock")
needs_seccomp = pytest.mark.skipif(not standing().seccomp, reason="this kernel cannot forbid sockets")

# What of Python is in homes (pyenv) is read from there.
PYTHON = os.path.realpath(sys.executable)
Try = Callable[..., ToolResult]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "work" / "run").mkdir(parents=True)
    return tmp_path / "work" / "run"


@pytest.fixture
def attempt(folder: Path) -> Iterator[Try]:
    """Run a line of Python behind walls."""
    walls = walls_around(PYTHON).reading([folder.parent, sys.base_prefix])

    def run(source: str, **options: object) -> ToolResult:
        argv = (PYTHON, "-I", "-S", "-c", source)
        return run_tool(argv, cwd=folder, timeout=300, walls=walls, **options)  # type: ignore[arg-type]

    yield run
    close_launchers()


def test_what_a_program_needs_it_may(attempt: Try, folder: Path) -> None:
    source = """
import os
open('object', 'w').write('new')
os.mkdir('sub'); os.rename('object', 'object.o'); open('sub/x', 'w').close(); os.unlink('sub/x'); os.rmdir('sub')
open('/dev/null', 'w').write('nothing'); open('/dev/null').read()
print(open('object.o').read(), os.getcwd(), os.environ['ONLY'], os.getpid() == os.getpgid(0), repr(input) and 1)
"""
    done = attempt(source, env={"ONLY": "this"})
    assert done.stdout.decode() == f"new {folder} this True 1\n"
    assert os.listdir(folder) == ["object.o"]
    assert done.usage.cpu_s > 0
    # A short program that no sample met has no peak.
    assert any(attempt(source, env={"ONLY": "this"}).usage.max_rss_bytes for _ in range(100))


@needs_landlock
@pytest.mark.parametrize(
    "source",
    [
        "open('../../outside/new', 'w')",
        "open('../new', 'w')",
        "open('../../outside/there', 'a')",
        "import os; os.truncate('../../outside/there', 0)",
        "import os; os.unlink('../../outside/there')",
        "import os; os.rename('../../outside/there', 'here')",
        "import os; os.link('../../outside/there', 'here')",
        "import os; os.symlink('/etc/passwd', 'here')",
        "import os; os.mkfifo('here')",
        "import os; os.mkdir('../../outside/new')",
        "open('../../outside/there').read()",
        "import os; os.listdir('../../outside')",
        "open('/dev/zero').read(1)",
        "import os; open('/proc/%d/environ' % os.getppid()).read()",
        "import os; os.execv('/bin/sh', ['sh', '-c', 'true'])",
        "import os; os.execv('../../outside/program', ['program'])",
        "import os; os.kill(os.getppid(), 9)",
    ],
)
def test_what_it_does_not_need_it_may_not(attempt: Try, folder: Path, source: str) -> None:
    outside = folder.parents[1] / "outside"
    (outside / "there").write_text("kept")
    (outside / "program").write_text(f"#!{PYTHON}\n")
    (outside / "program").chmod(0o755)
    if "os.kill" in source and standing().landlock < 6:  # Linux 6.12
        pytest.skip("this kernel's Landlock does not know of signals")
    with pytest.raises(ToolError, match=r"(?:Permission|OS)Error: \[Errno (?:1|13|18)\]"):
        attempt(source)
    assert (outside / "there").read_text() == "kept"
    assert sorted(os.listdir(outside)) == ["program", "there"]
    assert os.listdir(folder.parent) == ["run"]
    assert os.listdir(folder) == []


@needs_seccomp
@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK"])
def test_there_are_no_sockets(attempt: Try, family: str) -> None:
    source = f"import socket; socket.socket(socket.{family}, socket.SOCK_DGRAM)"
    env = {"PYTHONPATH": ""}
    argv = f"import sys; sys.path += {socket_folders()!r}; {source}"
    with pytest.raises(ToolError, match="PermissionError"):
        attempt(argv, env=env)


def socket_folders() -> list[str]:
    """Return the folder of Python's module of sockets; none where it is built in, as in Debian's."""
    import _socket

    path = getattr(_socket, "__file__", None)
    return [] if path is None else [os.path.dirname(path)]


def test_limits_hold_from_the_start(attempt: Try, folder: Path) -> None:
    with pytest.raises(ToolError, match="MemoryError"):
        attempt("bytearray(1 << 30)", memory_limit=1 << 29)
    with pytest.raises(ToolError) as caught:
        attempt(
            "import signal; signal.signal(25, signal.SIG_DFL); open('x', 'wb').write(bytes(3 << 20))",
            file_limit=1 << 20,
        )
    assert caught.value.returncode == -signal.SIGXFSZ
    assert (folder / "x").stat().st_size == 1 << 20


DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open("pid.new", "w") as file:
            print(os.getpid(), file=file)
        os.rename("pid.new", "pid")
        time.sleep(600)
    os._exit(0)
while not os.path.exists("pid"):
    time.sleep(0.01)
"""


def test_what_leaves_its_group_is_killed_too(attempt: Try, folder: Path) -> None:
    attempt(DAEMON)
    assert not alive(int((folder / "pid").read_text()))


def test_a_program_that_cannot_be_started_is_one_line(folder: Path) -> None:
    walls = Walls((), ("/",))
    program = folder / "no-such-clang"
    with pytest.raises(ToolError) as caught:
        run_tool((str(program), "-c"), cwd=folder, timeout=300, walls=walls)
    assert (caught.value.returncode, caught.value.stderr) == (127, f"{program}: No such file or directory")
    with pytest.raises(ToolError) as caught:
        run_tool((PYTHON, "\0"), cwd=folder, timeout=300, walls=walls)
    assert (caught.value.returncode, caught.value.stderr) == (126, f"{PYTHON}: embedded null byte")
    if standing().landlock:
        with pytest.raises(ToolError) as caught:
            run_tool((PYTHON,), cwd=folder, timeout=300, walls=walls)
        assert (caught.value.returncode, caught.value.stderr) == (126, f"{PYTHON}: Permission denied")
    # The launcher that said so starts the next one.
    assert run_tool((PYTHON, "-c", ""), cwd=folder, timeout=300, walls=Walls(("/",), ("/",))).stdout == b""


def test_a_deadline_ends_it_and_its_group(attempt: Try, folder: Path) -> None:
    stop = threading.Event()
    threading.Thread(target=lambda: (wait_for_pid(folder / "pid"), stop.set()), daemon=True).start()
    with pytest.raises(ToolError, match="stopped"):
        attempt(DAEMON + "\ntime.sleep(600)", stop=stop)
    assert dies(int((folder / "pid").read_text()))


def test_a_launcher_that_is_killed_takes_its_program_with_it(folder: Path) -> None:
    walls = walls_around(PYTHON).reading([folder, sys.base_prefix])
    source = "import time; print('here', flush=True); time.sleep(600)"
    with Child((PYTHON, "-I", "-S", "-c", source), cwd=folder, walls=walls) as child:
        pid = child._process.pid
        parent = int(state_of(pid)[1])
        os.kill(parent, signal.SIGKILL)
        child.wait(float("inf"))
    assert child.returncode == -signal.SIGKILL
    assert dies(pid)
    # The next program has another launcher, and so has the one after that, if this one is killed in between.
    for _ in range(2):
        assert run_tool((PYTHON, "-I", "-S", "-c", "print(1)"), cwd=folder, timeout=300, walls=walls).stdout == b"1\n"
        (idle,) = (one for one in _idle if one.walls == walls)
        idle._process.kill()
        os.waitid(os.P_PID, idle._process.pid, os.WEXITED | os.WNOWAIT)
    close_launchers()


def test_a_process_that_is_killed_leaves_neither_launcher_nor_program(folder: Path) -> None:
    source = f"""
import sys
from pathlib import Path
from mlgo_corpus.compilers.process import run_tool
from mlgo_corpus.compilers.walls import walls_around
walls = walls_around({PYTHON!r}).reading([{str(folder)!r}, sys.base_prefix])
argv = ({PYTHON!r}, "-I", "-S", "-c", {DAEMON + "time.sleep(600)"!r})
run_tool(argv, cwd=Path({str(folder)!r}), timeout=600, walls=walls)
"""
    process = subprocess.Popen((sys.executable, "-c", source))
    daemon = wait_for_pid(folder / "pid")
    process.kill()
    process.wait()
    assert dies(daemon)


def test_threads_have_programs_side_by_side(attempt: Try) -> None:
    said: list[bytes] = []
    threads = [
        threading.Thread(target=lambda n=n: said.append(attempt(f"print({n})").stdout))
        for n in range(6)  # type: ignore[misc]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said) == [b"%d\n" % number for number in range(6)]


def test_the_default_limit_is_a_share_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"SC_PHYS_PAGES": 24 << 18, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", names.__getitem__)
    monkeypatch.setattr(confinement, "available_cpus", lambda: 2)
    assert machine_share() == 12 << 30
    monkeypatch.setattr(confinement, "available_cpus", lambda: 16)
    assert machine_share() == 4 << 30
    found = confine(("/bin/true",), (), memory_limit=None, trusted=False)
    assert (found.memory_limit, found.file_limit) == (4 << 30, 2 << 30)
    assert confine(("/bin/true",), (), memory_limit=7, trusted=False).memory_limit == 7
    assert confine(("/bin/true",), (), memory_limit=None, trusted=True) == confinement.Confinement(None, None, None)


def test_a_script_may_read_what_it_needs(tmp_path: Path) -> None:
    script = tmp_path / "clang"
    script.write_text(f"#!{PYTHON}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    script.chmod(0o755)
    found = confine((str(script),), (tmp_path,), memory_limit=None, trusted=False)
    done = run_tool((str(script), "a"), cwd=tmp_path, timeout=300, **found.keywords())
    assert done.stdout == b'["a"]\n'


# --- with compilers

COMMAND = ("-cc1", "-triple", "x86_64-unknown-linux-gnu", "-Oz", "-emit-obj")
MODULE = """
target triple = "x86_64-unknown-linux-gnu"
define internal i32 @f(i32 %x) {{
  %y = add i32 %x, 1
  ret i32 %y
}}
define i32 @g(i32 %x) {{
  %a = call i32 @f(i32 %x)
  ret i32 %a
}}
{}
"""


def corpus_of(llvm: Llvm, folder: Path, modules: Mapping[str, tuple[str, tuple[str, ...]]]) -> Path:
    """Make a corpus of modules, each with more in it and a command; and another one, without."""
    corpus = folder / "corpus"
    corpus.mkdir()
    modules = {**modules, "other": ("", COMMAND)}
    for name, (more, words) in modules.items():
        (corpus / f"{name}.cmd").write_bytes(b"\0".join(os.fsencode(word) for word in words))
        # clang would read what module-level assembly names already.
        argv = (llvm.tool("llvm-as"), "-o", str(corpus / f"{name}.bc"))
        subprocess.run(argv, input=MODULE.format(more).encode(), check=True)
    write_manifest(corpus / MANIFEST_NAME, list(modules), has_thinlto=False, override=None)
    return corpus


def traced(llvm: Llvm, folder: Path, cache: Path, assembly: str) -> TraceRow:
    corpus = corpus_of(llvm, folder, {"a": (f'module asm "{assembly}"', COMMAND)})
    trace_corpus(corpus, folder / "dataset", compiler=llvm.clang, cache=cache, jobs=1)
    row, other = read_trace_rows(folder / "dataset" / "modules.parquet")
    assert other.status == "ok", other.detail
    return row


@pytest.fixture(scope="module")
def cache(known: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return known(tmp_path_factory.mktemp("cache"), Llvm(22).clang)


@pytest.fixture
def table_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the first wall away: every command is run as it is."""
    monkeypatch.setattr(modulecommand, "refused_options", lambda _: ())
    monkeypatch.setattr(replay, "refused_options", lambda _: ())
    monkeypatch.setattr(replay, "neutralise", tuple)


ESCAPES = {
    "stats": ("-stats-file={canary}",),
    "times": ("-dependency-file", "{canary}", "-ftime-trace={canary}"),
    "records": ("-opt-record-file", "{canary}"),
    "stack": ("-stack-usage-file", "{canary}"),
    "diagnostics": ("-serialize-diagnostic-file", "{canary}"),
    "info": ("-mllvm", "-info-output-file={canary}", "-mllvm", "-stats"),
    "program": ("-mllvm", "-exec-on-ir-change={outside}/program"),
    "shell": ("-mllvm", "-exec-on-ir-change=/bin/sh"),
    "load": ("-load", "{outside}/plugin.so"),
    "plugin": ("-fpass-plugin={outside}/plugin.so",),
    "offload": ("-fembed-offload-object={outside}/there",),
    "list": ("-fsanitize-coverage-type=3", "-fsanitize-coverage-ignorelist={outside}/there"),
}


@needs_landlock
@pytest.mark.llvm
@pytest.mark.usefixtures("table_emptied")
def test_the_walls_hold_alone(llvm22: Llvm, cache: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "there").write_text("root:x:0:0:secret\n")
    (outside / "program").write_text(f"#!/bin/sh\ntouch {outside}/canary\n")
    (outside / "program").chmod(0o755)
    (outside / "plugin.c").write_text(
        "#include <stdio.h>\n"
        f'__attribute__((constructor)) static void run(void) {{ fclose(fopen("{outside}/canary", "w")); }}\n'
    )
    plugin = (llvm22.clang, "-shared", "-fPIC", "plugin.c", "-o", "plugin.so")
    subprocess.run(plugin, cwd=outside, check=True, capture_output=True)
    modules = {
        name: ("", (*COMMAND, *(word.format(outside=outside, canary=outside / f"of-{name}") for word in words)))
        for name, words in ESCAPES.items()
    }
    corpus = corpus_of(llvm22, tmp_path, modules)
    settings: dict[str, Any] = {"cache": cache, "compiler": llvm22.clang}
    trace_corpus(corpus, tmp_path / "dataset", jobs=1, **settings)
    ir2native_table(corpus, tmp_path / "sizes", jobs=1, **settings)
    verify_corpus(corpus, rebuild=True, output=tmp_path / "rebuilt.parquet", jobs=1, **settings)
    assert sorted(os.listdir(outside)) == ["plugin.c", "plugin.so", "program", "there"]
    for table in ("dataset/modules.parquet", "sizes/modules.parquet", "rebuilt.parquet"):
        found = pq.read_table(tmp_path / table).to_pylist()
        assert len(found) == len(ESCAPES) + 1
        assert "secret" not in str(found)


@pytest.mark.llvm
def test_an_object_does_not_fill_the_disk(
    llvm22: Llvm, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confinement, "FILE_LIMIT", 1 << 20)
    row = traced(llvm22, tmp_path, cache, ".zero 3000000000")
    assert (row.status, row.reason, row.signal) == ("failed", "signal", signal.SIGXFSZ)
    assert row.detail == "the plain compile: the compiler wrote more into one file than it may"


@pytest.mark.llvm
def test_a_compile_does_not_take_all_memory(
    llvm22: Llvm, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confinement, "machine_share", lambda: 1 << 30)
    row = traced(llvm22, tmp_path, cache, ".incbin \\22/dev/zero\\22")
    # Where there is no wall around files, the device is read until there is no more memory.
    assert (row.status, row.reason) == ("failed", "compiler_error" if standing().landlock else "memory_limit")


@needs_landlock
@pytest.mark.llvm
def test_assembly_and_line_numbers_quote_nothing(llvm22: Llvm, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("root:x:0:0:secret\n")
    row = traced(llvm22, tmp_path, cache, f".include \\22{tmp_path}/secret\\22")
    assert (row.status, row.reason) == ("failed", "compiler_error")
    assert "secret'" in row.detail  # the file's name, which the module holds
    assert "root:x" not in f"{row.detail}{row.stderr_tail}"
