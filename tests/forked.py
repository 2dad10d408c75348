"""Runs of the command line in processes that begin with all libraries loaded: loading is most of a short run.

A server is forked for each run: a process of its own, with the folder, the environment and the streams that it is
given. Tests of what is loaded, of signals and of memory start a new Python.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

ROOT = str(Path(__file__).parents[1])
# What most verbs load; nothing of it depends on the environment.
_LOADED = ("mlgo_corpus.cli.main", "lief", "numpy", "pyarrow.compute", "pyarrow.parquet", "rich.table", "rich.progress")
_LARGEST_REQUEST = 100_000


def decides_at_start(name: str) -> bool:
    """Tell whether a variable is for the interpreter or the loader, and so too late for a process that runs."""
    return name.startswith(("PYTHON", "LC_", "LANG", "LD_", "ARROW_", "OPENBLAS_", "OMP_"))


def end(work: Callable[[], object]) -> NoReturn:
    """End this process with some work as Python ends, but leave all that is loaded to the kernel."""
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


class Server:
    """The server's process, and a connection to it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        env = {**os.environ, "PYTHONPATH": ROOT}
        self._env = {name: value for name, value in env.items() if decides_at_start(name)}
        with theirs:
            argv = (sys.executable, __file__, str(theirs.fileno()))
            self._process = subprocess.Popen(
                argv, env=env, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
        self._one_at_a_time = threading.Lock()

    def takes(self, arguments: Sequence[str], env: Mapping[str, str]) -> bool:
        """Tell whether a run would be the same in a fork."""
        same = {name: value for name, value in env.items() if decides_at_start(name)} == self._env
        return same and len(json.dumps([*arguments, dict(env)])) < _LARGEST_REQUEST

    def run(
        self, arguments: Sequence[str], cwd: str, env: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[bytes]:
        """Run the command line with these arguments, and nothing to read."""
        with self._one_at_a_time:
            return self._run(arguments, cwd, env, timeout)

    def _run(
        self, arguments: Sequence[str], cwd: str, env: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[bytes]:
        request = json.dumps([arguments, cwd, dict(env)]).encode()
        (out, their_out), (err, their_err) = os.pipe(), os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        socket.send_fds(self._socket, [request], [nothing, their_out, their_err])
        for descriptor in (nothing, their_out, their_err):
            os.close(descriptor)
        pid = int(self._socket.recv(100))
        shown: dict[int, bytes] = {out: b"", err: b""}
        end = time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            for descriptor in shown:
                selector.register(descriptor, selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in selector.select(max(0, end - time.monotonic())):
                    data = os.read(key.fd, 1 << 16)
                    shown[key.fd] += data
                    if not data:
                        selector.unregister(key.fd)
                        os.close(key.fd)
                if time.monotonic() > end:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                    self._socket.recv(100)
                    raise subprocess.TimeoutExpired(list(arguments), timeout, shown[out], shown[err])
        code = int(self._socket.recv(100))
        return subprocess.CompletedProcess(list(arguments), code, shown[out], shown[err])


def serve(connection: socket.socket) -> None:
    """Fork for each request; return in the forks."""
    for name in _LOADED:
        importlib.import_module(name)
    while True:
        request, descriptors, _, _ = socket.recv_fds(connection, 2 * _LARGEST_REQUEST, 3)
        if not request:
            sys.exit()
        if not (pid := os.fork()):
            break
        for descriptor in descriptors:
            os.close(descriptor)
        connection.send(str(pid).encode())
        connection.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
    connection.close()
    arguments, cwd, env = json.loads(request)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv[1:] = arguments


def run_cli(
    *arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str], timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m mlgo_corpus.cli.main`` with these arguments, and nothing to read; give what it prints."""
    words = [str(one) for one in arguments]
    if SERVER.takes(words, env):
        done = SERVER.run(words, str(cwd or Path.cwd()), env, timeout)
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
    return subprocess.run(
        (sys.executable, "-m", "mlgo_corpus.cli.main", *words),
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
    end(sys.modules["mlgo_corpus.cli.main"].main)
else:
    SERVER = Server()
