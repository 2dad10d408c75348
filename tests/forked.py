"""Runs of the command line in processes that begin with all libraries loaded: loading is most of a short run.

A server is forked for each run: a process of its own, with the folder, the environment and the streams that it is
given. Tests of what is loaded, of signals and of memory start a new Python.

``forked.py NAME -- ARGUMENT...`` is a run for a shell, by a server that there is already.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import NoReturn

# What verbs load beside their stages; nothing of it depends on the environment.
_LOADED = ("lief", "numpy", "pyarrow.compute", "pyarrow.parquet", "rich.table", "rich.progress", "zoneinfo")
_LARGEST_REQUEST = 100_000
# What servers of this process load beside it, see `load_also`.
_ALSO: list[str] = []


def decides_at_start(name: str) -> bool:
    """Tell whether a variable is for the interpreter or the loader, and so too late for a process that runs."""
    return name.startswith(("PYTHON", "LC_", "LANG", "LD_", "ARROW_", "OPENBLAS_", "OMP_"))


# --- the server


def load() -> None:
    """Import what verbs need, and make the commands, which is as slow: a fork is left with its own work."""
    import contextlib
    import functools
    import gc
    import importlib
    import pkgutil

    import typer.main

    import mlgo_corpus
    from mlgo_corpus.cli.main import app

    gc.disable()  # what is loaded is no garbage
    for name in (*_LOADED, *_ALSO):
        importlib.import_module(name)
    for stage in pkgutil.iter_modules(mlgo_corpus.__path__):
        if not stage.ispkg:
            importlib.import_module(f"mlgo_corpus.{stage.name}")
    with contextlib.suppress(ImportError):
        importlib.import_module("typer._adapters")  # what options are read with
    typer.main.get_command = functools.cache(typer.main.get_command)
    typer.main.get_command(app)
    without_pandas()
    gc.collect()
    gc.freeze()
    gc.enable()
    join_pages()


def join_pages() -> None:
    """Have what is in memory in large pages, where Linux can: forks copy and free a table entry for each page.

    That is most of what a fork of a process with hundreds of megabytes costs.
    """
    import ctypes

    collapse, size = 25, 2 << 20  # MADV_COLLAPSE of Linux 6.1; of a kernel that does not know it, nothing comes
    with suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps.read().splitlines():
            addresses, rights, _, _, file, *name = line.split(maxsplit=5)
            start, end = (int(address, 16) for address in addresses.split("-"))
            start, end = -(-start // size) * size, end // size * size
            if rights == "rw-p" and file == "0" and name != ["[stack]"] and start < end:
                ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), collapse)


def without_pandas() -> None:
    """Let pyarrow look for pandas while there is none: it looks once, and each fork would import it again."""
    import pyarrow as pa

    class Without:
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            if name == "pandas":
                raise ImportError(name)

    sys.meta_path.insert(0, Without)
    pa.scalar(1)
    sys.meta_path.remove(Without)


def serve(listening: socket.socket) -> Callable[[], object]:
    """Fork for each request, until the process is gone that started us; in the forks, return what is to be run."""
    import selectors

    load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for forks
    with selectors.DefaultSelector() as selector:
        selector.register(listening, selectors.EVENT_READ)
        selector.register(0, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select()]
            if 0 in ready:
                os._exit(0)
            connection, _ = listening.accept()
            if not os.fork():
                break
            connection.close()
    listening.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, descriptors, _, _ = socket.recv_fds(connection, 2 * _LARGEST_REQUEST, 3)
    if not request:
        os._exit(0)
    if pid := os.fork():
        for descriptor in descriptors:
            os.close(descriptor)
        connection.send(str(pid).encode())
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        try:
            connection.send(str(code).encode())
        finally:
            os._exit(0)
    connection.close()
    arguments, cwd, env, code, session = json.loads(request)
    if session:
        os.setsid()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    # The server's own stream remembers whether its descriptor could seek.
    sys.stdout = open(1, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors, closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv[1:] = arguments
    if code is None:
        return sys.modules["mlgo_corpus.cli.main"].main
    sys.argv[0] = "-c"
    module = sys.modules["__main__"] = type(sys)("__main__")
    return lambda: exec(compile(code, "<string>", "exec"), module.__dict__)  # noqa: S102


def end(work: Callable[[], object]) -> NoReturn:
    """End this process with some work as Python ends, but leave all that is loaded to the kernel."""
    import atexit
    import threading

    code = 1
    try:
        work()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if error.code is not None and not isinstance(error.code, int):
            sys.stderr.write(f"{error.code}\n")
    except BaseException:  # all that gets here is a crash
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type] # there is one
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


# --- who asks


def ask(
    name: str,
    arguments: list[str],
    cwd: str,
    env: Mapping[str, str],
    streams: list[int],
    *,
    code: str | None = None,
    session: bool = False,
) -> socket.socket:
    """Begin a run; the connection tells its process, and then its exit code.

    It is a run of ``code`` rather than of the command line, and in a new session, if so wanted.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(f"\0{name}")
        socket.send_fds(connection, [json.dumps([arguments, cwd, dict(env), code, session]).encode()], streams)
    except OSError:
        connection.close()
        raise
    return connection


class Server:
    """A server's process: it ends with this one. It is the same for all who have these variables for Python."""

    def __init__(self, env: Mapping[str, str]) -> None:
        import subprocess

        self.name = f"mlgo-corpus-tests-{os.getpid()}-{os.urandom(8).hex()}"
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.bind(f"\0{self.name}")
        listening.listen()
        with listening:
            self._process = subprocess.Popen(
                (sys.executable, __file__, str(listening.fileno()), *_ALSO),
                env=dict(env),
                pass_fds=(listening.fileno(),),
                stdin=subprocess.PIPE,  # its end is the server's
                stdout=subprocess.DEVNULL,
            )

    def is_alive(self) -> bool:
        """Return False if something has ended it, such as a test that kills what it did not start."""
        return self._process.poll() is None

    def close(self) -> None:
        """End it."""
        with self._process:
            self._process.kill()


def load_also(name: str) -> None:
    """Have the servers that are to begin load one more module, which is slow to load and harmless to fork."""
    _ALSO.append(name)


_SERVERS: dict[frozenset[tuple[str, str]], Server] = {}


def server_for(env: Mapping[str, str]) -> Server | None:
    """Give the server for an environment; None where there can be none, or other packages are to be found first."""
    if sys.platform != "linux" or len(json.dumps(dict(env))) > _LARGEST_REQUEST // 2:
        return None
    if env.get("PYTHONPATH") != os.path.dirname(os.path.dirname(os.path.abspath(__file__))):
        return None
    key = frozenset((name, value) for name, value in env.items() if decides_at_start(name))
    if key in _SERVERS and not _SERVERS[key].is_alive():
        _SERVERS.pop(key).close()
    if key not in _SERVERS:
        _SERVERS[key] = Server(env)
    return _SERVERS[key]


def shell_words(env: Mapping[str, str]) -> list[str]:
    """Give the words by which a shell with this environment runs the command line."""
    server = server_for(env)
    if server is None:
        return [sys.executable, "-m", "mlgo_corpus.cli.main"]
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), server.name, "--"]


class Running:
    """A run that has begun, with the names that `subprocess.Popen` has for it; what is printed may be piped."""

    def __init__(
        self,
        name: str,
        words: list[str],
        cwd: str,
        env: Mapping[str, str],
        *,
        piped: tuple[bool, bool],
        code: str | None,
        session: bool,
    ) -> None:
        self.args = words
        self.returncode: int | None = None
        nothing = os.open(os.devnull, os.O_RDWR)
        streams, ends = [nothing], []
        for is_piped in piped:
            ours, theirs = os.pipe() if is_piped else (None, os.dup(nothing))
            streams.append(theirs)
            ends.append(None if ours is None else open(ours, encoding="utf-8"))  # noqa: SIM115
        self.stdout, self.stderr = ends
        try:
            self._connection = ask(name, words, cwd, env, streams, code=code, session=session)
        finally:
            for descriptor in streams:
                os.close(descriptor)
        self.pid = int(self._connection.recv(100))

    def poll(self) -> int | None:
        return self._ended(0)

    def _ended(self, seconds: float | None) -> int | None:
        if self.returncode is None:
            self._connection.settimeout(seconds)
            try:
                self.returncode = int(self._connection.recv(100))
            except (BlockingIOError, TimeoutError):
                return None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        import subprocess

        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # its parent has reaped it, and its code is on the way
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Give all that is printed, and wait for the end."""
        import subprocess

        pipes = [stream for stream in (self.stdout, self.stderr) if stream is not None]
        shown = _read_all(tuple(stream.fileno() for stream in pipes), timeout)
        if shown is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.wait(timeout)
        texts = [shown.pop(0).decode() if stream is not None else "" for stream in (self.stdout, self.stderr)]
        return texts[0], texts[1]

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()
        self._connection.close()


def start(
    *arguments: str | Path,
    env: Mapping[str, str],
    cwd: Path | None = None,
    code: str | None = None,
    stdout: bool = False,
    stderr: bool = False,
    session: bool = False,
) -> Running | subprocess.Popen[str]:
    """Begin a run of the command line, or of some ``code``, with these arguments, and nothing to read.

    What it prints is piped, if so wanted, or thrown away.
    """
    import subprocess

    words = [str(one) for one in arguments]
    server = server_for(env) if len(json.dumps([words, code])) < _LARGEST_REQUEST // 2 else None
    if server is not None:
        place = str(cwd or os.getcwd())
        return Running(server.name, words, place, env, piped=(stdout, stderr), code=code, session=session)
    what = ("-m", "mlgo_corpus.cli.main") if code is None else ("-c", code)
    return subprocess.Popen(
        (sys.executable, *what, *words),
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if stdout else subprocess.DEVNULL,
        stderr=subprocess.PIPE if stderr else subprocess.DEVNULL,
        text=True,
        start_new_session=session,
    )


def run_cli(
    *arguments: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str],
    timeout: float = 120,
    code: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m mlgo_corpus.cli.main``, or some ``code``, with these arguments; give what it prints."""
    import subprocess

    with start(*arguments, env=env, cwd=cwd, code=code, stdout=True, stderr=True) as run:
        try:
            out, err = run.communicate(timeout)
        except BaseException:
            run.kill()
            raise
        return subprocess.CompletedProcess(run.args, run.wait(), out, err)


def _read_all(descriptors: tuple[int, ...], timeout: float | None) -> list[bytes] | None:
    """Read some pipes to their ends; None if that takes too long."""
    import selectors
    import time

    shown = dict.fromkeys(descriptors, b"")
    end = None if timeout is None else time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return None
            for key, _ in selector.select(left):
                if data := os.read(key.fd, 1 << 16):
                    shown[key.fd] += data
                else:
                    selector.unregister(key.fd)
    return list(shown.values())


def run_for_shell(name: str, arguments: list[str]) -> None:
    """Be a run, as far as a shell can tell; become one where a stream is closed, or the request too long.

    What looks for the shell among its parents is run by the shell itself.
    """
    try:
        if any("completion" in word for word in arguments):
            raise OSError
        for stream in (0, 1, 2):
            os.fstat(stream)
        connection = ask(name, arguments, os.getcwd(), os.environ, [0, 1, 2])
    except OSError:
        os.execv(sys.executable, (sys.executable, "-m", "mlgo_corpus.cli.main", *arguments))  # noqa: S606
    with connection:
        connection.recv(100)
        code = int(connection.recv(100))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    if sys.argv[2:3] == ["--"]:
        run_for_shell(sys.argv[1], sys.argv[3:])
    _ALSO += sys.argv[2:]
    end(serve(socket.socket(fileno=int(sys.argv[1]))))
