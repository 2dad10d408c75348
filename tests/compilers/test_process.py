from __future__ import annotations

import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mlgo_corpus.compilers import process
from mlgo_corpus.compilers.process import STDERR_TAIL, Child, run_tool, tied_to_us
from mlgo_corpus.errors import ToolError, Usage, UsageError
from tests.processes import alive, children, dies

pytestmark = pytest.mark.whole


def python(source: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", source)


def wait_for_pid(path: Path) -> int:
    end = time.monotonic() + 300
    while time.monotonic() < end:
        if path.exists() and (text := path.read_text()).endswith("\n"):
            return int(text)
        time.sleep(0.01)
    raise AssertionError(f"{path} was not written")


def stop_when(path: Path) -> threading.Event:
    """Give an event that is set once ``path`` holds a pid."""
    stop = threading.Event()

    def watch() -> None:
        wait_for_pid(path)
        stop.set()

    threading.Thread(target=watch, daemon=True).start()
    return stop


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    before = children()
    yield
    assert children() <= before


# A process that a child starts, and that outlives it unless somebody ends it; its pid goes to a file.
GRANDCHILD = """
import os, sys, time
if os.fork() == 0:
    with open({pid_file!r} + ".new", "w") as file:
        print(os.getpid(), file=file)
    os.rename({pid_file!r} + ".new", {pid_file!r})
    time.sleep(600)
    os._exit(0)
while not os.path.exists({pid_file!r}):
    time.sleep(0.01)
"""


def test_the_result_holds_what_was_written_and_how_long_it_took() -> None:
    argv = python("import sys; sys.stdout.buffer.write(b'\\xff\\0out'); sys.stderr.write('warned')")
    result = run_tool(argv, timeout=300)
    assert result.argv == argv
    assert result.stdout == b"\xff\0out"
    assert result.stderr == "warned"
    assert 0 < result.usage.wall_s < 30


def test_cwd_and_env_are_the_ones_given(tmp_path: Path) -> None:
    source = "import os; print(os.getcwd(), os.environ.get('ONLY'), os.environ.get('HOME'))"
    result = run_tool(python(source), cwd=tmp_path, env={"ONLY": "this"}, timeout=300)
    assert result.stdout.decode() == f"{tmp_path.resolve()} this None\n"


def test_there_is_no_stdin() -> None:
    result = run_tool(python("import sys; print(repr(sys.stdin.read()))"), timeout=300)
    assert result.stdout == b"''\n"


def test_a_list_is_taken_and_kept_as_a_tuple() -> None:
    assert run_tool(list(python("")), timeout=300).argv == python("")


def test_a_failure_carries_argv_exit_code_and_stderr() -> None:
    argv = python("import sys; print('first', file=sys.stderr); sys.exit('second')")
    with pytest.raises(ToolError) as caught:
        run_tool(argv, timeout=300)
    assert caught.value.argv == argv
    assert caught.value.returncode == 1
    assert caught.value.stderr == "first\nsecond\n"
    assert str(caught.value).endswith(": exit code 1: second")


def test_a_signal_is_told_as_one() -> None:
    with pytest.raises(ToolError, match=r"ended by signal 9$") as caught:
        run_tool(python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"), timeout=300)
    assert caught.value.returncode == -signal.SIGKILL


def test_a_missing_program_is_one_line(tmp_path: Path) -> None:
    program = str(tmp_path / "no-such-clang")
    with pytest.raises(ToolError) as caught:
        run_tool((program, "-c"), timeout=300)
    assert caught.value.returncode == 127
    assert str(caught.value) == f"{program} -c: exit code 127: {program}: No such file or directory"


def test_a_file_that_is_no_program_is_one_line(tmp_path: Path) -> None:
    program = tmp_path / "clang"
    program.write_text("not executable")
    with pytest.raises(ToolError, match="Permission denied") as caught:
        run_tool((str(program),), timeout=300)
    assert caught.value.returncode == 126


def test_a_flood_on_stderr_is_drained_and_its_end_kept() -> None:
    flood = "import sys; [sys.stderr.write('x' * 1023 + '\\n') for _ in range(20_000)]; sys.exit('the end')"
    with pytest.raises(ToolError) as caught:
        run_tool(python(flood), timeout=300)
    assert caught.value.returncode == 1
    assert caught.value.stderr.endswith("x\nthe end\n")
    assert len(caught.value.stderr) == STDERR_TAIL


def test_both_pipes_are_read_at_the_same_time() -> None:
    both = "import sys; [(sys.stdout.write('o' * 4096), sys.stderr.write('e' * 4096)) for _ in range(500)]"
    result = run_tool(python(both), timeout=300)
    assert result.stdout == b"o" * 4096 * 500
    assert result.stderr == "e" * STDERR_TAIL


def test_a_runaway_on_stdout_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "STDOUT_LIMIT", 1 << 20)
    with pytest.raises(ToolError, match="more than 1048576 bytes on stdout") as caught:
        run_tool(python("import sys\nwhile True: sys.stdout.write('o' * 4096)"), timeout=300)
    assert caught.value.returncode == -signal.SIGKILL


def test_the_deadline_is_kept_and_what_was_said_is_told(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    source = (
        "import os, sys, time; print('stuck', file=sys.stderr, flush=True);"
        f"print(os.getpid(), file=open({str(pid_file)!r}, 'w'), flush=True); time.sleep(600)"
    )
    with Child(python(source)) as child:
        wait_for_pid(pid_file)
        with pytest.raises(ToolError, match=r"did not finish in time: stuck$") as caught:
            child.wait(time.monotonic())
    assert caught.value.returncode is None


def test_a_child_that_closes_its_pipes_still_has_a_deadline_and_an_exit_code() -> None:
    close = "import os, time; os.close(1); os.close(2); time.sleep({}); os._exit(3)"
    with pytest.raises(ToolError) as caught:
        run_tool(python(close.format(0.2)), timeout=300)
    assert caught.value.returncode == 3
    with pytest.raises(ToolError) as caught:
        run_tool(python(close.format(600)), timeout=1)
    assert caught.value.returncode is None


def test_ignoring_sigterm_does_not_help(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    stubborn = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f"print(os.getpid(), file=open({str(pid_file)!r}, 'w'), flush=True); time.sleep(600)"
    )
    with pytest.raises(ToolError, match="stopped"):
        run_tool(python(stubborn), timeout=300, stop=stop_when(pid_file))
    assert not alive(wait_for_pid(pid_file))


def test_sigterm_comes_first_so_that_a_compiler_can_clean_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_TERM_GRACE_S", 300)
    pid_file, temporary = tmp_path / "pid", tmp_path / "a.o.tmp"
    tidy = f"""
import os, signal, time
def clean(*_):
    os.unlink({str(temporary)!r})
    os._exit(1)
signal.signal(signal.SIGTERM, clean)
open({str(temporary)!r}, "w").close()
print(os.getpid(), file=open({str(pid_file)!r}, "w"), flush=True)
time.sleep(600)
"""
    with pytest.raises(ToolError, match="stopped"):
        run_tool(python(tidy), timeout=300, stop=stop_when(pid_file))
    assert not temporary.exists()


@pytest.mark.parametrize("exit_code", [0, 1])
def test_a_grandchild_that_holds_the_pipes_delays_nothing_and_is_killed(tmp_path: Path, exit_code: int) -> None:
    pid_file = tmp_path / "pid"
    source = GRANDCHILD.format(pid_file=str(pid_file)) + f"print('done', flush=True); os._exit({exit_code})"
    begin = time.monotonic()
    if exit_code:
        with pytest.raises(ToolError) as caught:
            run_tool(python(source), timeout=300)
        assert caught.value.returncode == exit_code
    else:
        assert run_tool(python(source), timeout=300).stdout == b"done\n"
    assert time.monotonic() - begin < 300
    assert dies(wait_for_pid(pid_file))


def test_ending_a_child_ends_its_children(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    source = GRANDCHILD.format(pid_file=str(pid_file)) + "time.sleep(600)"
    with pytest.raises(ToolError, match="stopped"):
        run_tool(python(source), timeout=300, stop=stop_when(pid_file))
    assert dies(wait_for_pid(pid_file))


def test_a_daemon_in_another_session_delays_nothing(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    daemon = GRANDCHILD.format(pid_file=str(pid_file)).replace("== 0:", "== 0:\n    os.setsid()")
    begin = time.monotonic()
    try:
        run_tool(python(daemon), timeout=300)
        assert time.monotonic() - begin < 300
    finally:
        os.kill(wait_for_pid(pid_file), signal.SIGKILL)


def test_stop_ends_the_child() -> None:
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    begin = time.monotonic()
    with pytest.raises(ToolError, match="stopped"):
        run_tool(python("import time; time.sleep(600)"), timeout=300, stop=stop)
    assert time.monotonic() - begin < 300


def test_ctrl_c_kills_child_and_grandchild(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child, grandchild = tmp_path / "child", tmp_path / "grandchild"
    source = (
        GRANDCHILD.format(pid_file=str(grandchild))
        + f"print(os.getpid(), file=open({str(child)!r}, 'w'), flush=True); time.sleep(600)"
    )

    waits, wait = threading.Event(), Child.wait

    def wait_and_tell(self: Child, *limits: Any) -> bool:
        waits.set()
        return wait(self, *limits)

    monkeypatch.setattr(Child, "wait", wait_and_tell)

    def interrupt() -> None:
        wait_for_pid(child)
        waits.wait()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run_tool(python(source), timeout=300)
    thread.join()
    assert not alive(wait_for_pid(child))
    assert dies(wait_for_pid(grandchild))


def test_no_file_descriptor_is_left_open() -> None:
    def open_files() -> int:
        return len(list(Path("/dev/fd").iterdir()))

    run_tool(python(""), timeout=300)
    before = open_files()
    for source in ("", "raise SystemExit(1)"):
        try:
            run_tool(python(source), timeout=300)
        except ToolError:
            assert source
    assert open_files() == before


# What a program took.

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and prlimit")
SPIN = "import time\nwhile time.process_time() < {}: pass\n"
TAKE = "block = bytearray({}); block[::4096] = b'x' * len(block[::4096])\n"


def test_the_usage_holds_wall_and_cpu_time_of_this_child_alone() -> None:
    usage = run_tool(python(SPIN.format(0.3) + "time.sleep(0.2)"), timeout=300).usage
    assert 0.3 <= usage.cpu_s < 25
    assert usage.wall_s >= 0.5
    assert run_tool(python(""), timeout=300).usage.cpu_s < usage.cpu_s


def test_errors_hold_the_usage_too() -> None:
    with pytest.raises(ToolError) as caught:
        run_tool(python(SPIN.format(0.2) + "raise SystemExit(1)"), timeout=300)
    assert caught.value.usage is not None
    assert caught.value.usage.cpu_s >= 0.2
    with pytest.raises(ToolError, match="did not finish in time") as caught:
        run_tool(python(SPIN.format(600)), timeout=0.5)
    assert caught.value.usage is not None
    assert caught.value.usage.wall_s >= 0.5
    assert caught.value.usage.cpu_s > 0
    with pytest.raises(ToolError, match="No such file") as caught:
        run_tool(("/no/such/program",), timeout=1)
    assert caught.value.usage is None


def peak_of(source: str, least: int) -> int:
    """Return a program's peak memory, as the first of many runs that was looked at while it had ``least`` or more."""
    peaks = (run_tool(python(source), timeout=300).usage.max_rss_bytes or 0 for _ in range(100))
    return next((peak for peak in peaks if peak > least), 0)


@ON_LINUX
def test_the_peak_memory_is_the_childs_and_not_ours() -> None:
    ours = bytearray(200 << 20)
    ours[::4096] = b"x" * len(ours[::4096])
    del ours
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 200 << 10
    assert 2 << 20 < peak_of("import time; time.sleep(0.1)", 2 << 20) < 60 << 20
    assert 100 << 20 < peak_of(TAKE.format(100 << 20) + "import time; time.sleep(0.2)", 100 << 20) < 160 << 20
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    exact = run_tool(python(TAKE.format(own + (50 << 20))), timeout=300).usage
    assert exact.max_rss_bytes is not None
    assert own + (50 << 20) < exact.max_rss_bytes < own + (110 << 20)


@ON_LINUX
def test_a_peak_that_nobody_saw_is_not_known() -> None:
    ours = bytearray(64 << 20)
    ours[::4096] = b"x" * len(ours[::4096])
    peaks = {run_tool(("/bin/true",), timeout=300).usage.max_rss_bytes for _ in range(20)}
    assert all(peak is None or peak < 20 << 20 for peak in peaks)


@ON_LINUX
def test_the_memory_limit_is_the_childs() -> None:
    # The limit is set when the child runs already.
    limited = "import resource, time\nwhile resource.getrlimit(resource.RLIMIT_AS)[0] < 0: time.sleep(0.01)\n"
    source = python(limited + TAKE.format(1 << 30))
    with pytest.raises(ToolError, match="MemoryError"):
        run_tool(source, timeout=300, memory_limit=512 << 20)
    assert run_tool(python(TAKE.format(16 << 20)), timeout=300, memory_limit=512 << 20).stdout == b""
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY


def test_a_memory_limit_where_there_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(resource, "prlimit", raising=False)
    with pytest.raises(UsageError, match="a memory or file limit for a compiler needs Linux"):
        run_tool(python(""), timeout=300, memory_limit=1 << 30)


@pytest.mark.parametrize("missing", [("pidfd_open",), ("pidfd_open", "waitid")])
def test_systems_that_tell_less_are_served_as_well(missing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in missing:
        monkeypatch.delattr(os, name, raising=False)
    result = run_tool(
        python("import os, time; print(1, flush=True); os.close(1); os.close(2); time.sleep(0.2)"), timeout=300
    )
    assert result.stdout == b"1\n"
    assert result.usage.wall_s >= 0.2
    with pytest.raises(ToolError) as caught:
        run_tool(python("raise SystemExit(4)"), timeout=300)
    assert caught.value.returncode == 4
    with pytest.raises(ToolError, match="did not finish in time"):
        run_tool(python("import time; time.sleep(600)"), timeout=0.3)


def test_no_zombie_and_no_descriptor_is_left_by_any_end() -> None:
    run_tool(python(""), timeout=300)
    before = set(os.listdir("/dev/fd"))
    for source, timeout in (("", 30), ("raise SystemExit(1)", 30), ("import time; time.sleep(600)", 0.2)):
        child = Child(python(source))
        with suppress(ToolError), child:
            child.wait(time.monotonic() + timeout)
        with pytest.raises(ChildProcessError):
            os.waitpid(child._process.pid, os.WNOHANG)
        assert child.returncode == child._process.returncode
        assert child._process.poll() == child.returncode
        child.close()
    assert set(os.listdir("/dev/fd")) == before


def test_a_child_whose_start_is_not_completed_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(child: Child) -> None:
        raise MemoryError

    monkeypatch.setattr(Child, "_attach", fail)
    child = Child(python("import time; time.sleep(600)"))
    with pytest.raises(MemoryError), child:
        pass
    assert child.returncode == -signal.SIGTERM


def test_tool_errors_survive_pickling_with_their_usage() -> None:
    error = ToolError(("cc", "-c"), 1, "bad\n", Usage(1.5, 1.0, 1 << 20))
    again = pickle.loads(pickle.dumps(error))
    assert (again.argv, again.returncode, again.stderr, again.usage) == (("cc", "-c"), 1, "bad\n", error.usage)
    late = ToolError(("cc",), None)
    late.usage = Usage(1.0, 0.5, None)
    assert pickle.loads(pickle.dumps(late)).usage == late.usage
    assert str(again) == "cc -c: exit code 1: bad"


@pytest.mark.skipif(process._SETPRIV is None, reason="there is no setpriv")
def test_a_child_ends_with_us_however_we_end(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    stubborn = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f"print(os.getpid(), file=open({str(pid_file)!r}, 'w'), flush=True); time.sleep(600)"
    )
    runner = (
        f"import sys; sys.path[:0] = {[str(Path(process.__file__).parents[2]), *sys.path]!r};"
        f"from mlgo_corpus.compilers.process import run_tool; run_tool({python(stubborn)!r}, timeout=600)"
    )
    ours = subprocess.Popen(python(runner), start_new_session=True)
    try:
        pid = wait_for_pid(pid_file)
        assert alive(pid)
    finally:
        ours.kill()
        ours.wait()
    assert dies(pid)


@pytest.mark.skipif(process._SETPRIV is None, reason="there is no setpriv")
def test_a_child_that_begins_when_we_have_ended_ends_at_once(tmp_path: Path) -> None:
    """The signal that ties it to us is sent when we end: if we ended before it was asked for, it never comes."""
    words = tied_to_us(("/bin/sh", "-c", 'echo "$0 $*"', "it's", 'a "b"', "$HOME", ""))
    assert subprocess.run(words, capture_output=True, check=True).stdout == b'it\'s a "b" $HOME \n'
    someone_else = ("/bin/sh", "-c", '"$@"; exit $?', "sh", *words)
    done = subprocess.run(someone_else, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


def test_what_is_tied_to_us_is_what_can_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_SETPRIV", "/usr/bin/setpriv")
    tie = ("/usr/bin/setpriv", "--pdeathsig", "KILL", "--", "/bin/sh", "-c", process._IF_WE_LIVE, str(os.getpid()))
    assert tied_to_us((sys.executable, "-c", "")) == (*tie, sys.executable, "-c", "")
    assert tied_to_us(("no-such-program",)) == ("no-such-program",)
    here = tmp_path / "here"
    here.write_text("#!/bin/sh\n")
    here.chmod(0o755)
    assert tied_to_us(("./here",), tmp_path) == (*tie, "./here")
    assert tied_to_us(("./here",), tmp_path.parent) == ("./here",)
    assert tied_to_us(("here",), None, {"PATH": str(tmp_path)}) == (*tie, "here")
    assert tied_to_us(("here",), None, {"PATH": "/nowhere"}) == ("here",)
    monkeypatch.setattr(process, "_SETPRIV", None)
    assert tied_to_us(("./here",), tmp_path) == ("./here",)
