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

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import NoReturn

# What most verbs load; nothing of it depends on the environment.
_LOADED = ("mlgo_corpus.cli.main", "lief", "numpy", "pyarrow.compute", "pyarrow.parquet", "rich.table", "rich.progress")
_LARGEST_REQUEST = 100_000


def decides_at_start(name: str) -> bool:
    """Tell whether a variable is for the interpreter or the loader, and so too late for a process that runs."""
    return name.startswith(("PYTHON", "LC_", "LANG", "LD_", "ARROW_", "OPENBLAS_", "OMP_"))


# --- the server


def serve(listening: socket.socket) -> None:
    """Fork for each request, until the process is gone that started us; return in the forks."""
    import importlib
    import selectors

    for name in _LOADED:
        importlib.import_module(name)
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
    arguments, cwd, env = json.loads(request)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv[1:] = arguments


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


def ask(name: str, arguments: list[str], cwd: str, env: Mapping[str, str], streams: list[int]) -> socket.socket:
    """Begin a run; the connection tells its process, and then its exit code."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(f"\0{name}")
        socket.send_fds(connection, [json.dumps([arguments, cwd, dict(env)]).encode()], streams)
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
                (sys.executable, __file__, str(listening.fileno())),
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


def run_cli(
    *arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str], timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m mlgo_corpus.cli.main`` with these arguments, and nothing to read; give what it prints."""
    import subprocess

    words = [str(one) for one in arguments]
    server = server_for(env) if len(json.dumps(words)) < _LARGEST_REQUEST // 2 else None
    if server is None:
        argv = (sys.executable, "-m", "mlgo_corpus.cli.main", *words)
        return subprocess.run(
            argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout
        )
    (out, their_out), (err, their_err) = os.pipe(), os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    streams = [nothing, their_out, their_err]
    connection = ask(server.name, words, str(cwd or os.getcwd()), env, streams)
    for descriptor in streams:
        os.close(descriptor)
    with connection:
        pid = int(connection.recv(100))
        shown = _read_all((out, err), timeout)
        if shown is None:
            os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(words, timeout)
        return subprocess.CompletedProcess(words, int(connection.recv(100)), *(each.decode() for each in shown))


def _read_all(descriptors: tuple[int, ...], timeout: float) -> list[bytes] | None:
    """Read some pipes to their ends, and close them; None if that takes too long."""
    import selectors
    import time

    shown = dict.fromkeys(descriptors, b"")
    end = time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map() and time.monotonic() < end:
            for key, _ in selector.select(max(0, end - time.monotonic())):
                if data := os.read(key.fd, 1 << 16):
                    shown[key.fd] += data
                else:
                    selector.unregister(key.fd)
        late = len(selector.get_map()) > 0
    for descriptor in descriptors:
        os.close(descriptor)
    return None if late else list(shown.values())


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
    serve(socket.socket(fileno=int(sys.argv[1])))
    end(sys.modules["mlgo_corpus.cli.main"].main)
