"""Run a Python script where there is no network but the loopback, and nothing of it stays: Ray needs a network.

``unshare --net --pid --fork --kill-child --mount-proc python loopback_only.py SCRIPT ARGUMENT...``: this is the first
process of its namespace, sets ``lo`` up, runs the script, and reaps what the script leaves to it. When it ends, the
kernel kills all others. `run_alone` does that from a test.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

UNSHARE = ("unshare", *(() if os.geteuid() == 0 else ("--map-root-user",)), "--net", "--pid", "--fork", "--kill-child")
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1


def run_alone(script: Path, *arguments: str | Path, timeout: float = 600) -> Any:
    """Run a script that prints JSON on its last line, and give that."""
    require_namespaces()
    # Sockets live in there, whose names must be short; other clusters of this machine must not be found.
    folder = tempfile.mkdtemp(prefix="mlgo-ray-", dir="/tmp")
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "RAY_TMPDIR": folder,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_prestart_worker_first_driver": "0",
        "MLGO_CORPUS_CACHE": f"{folder}/cache",
    }
    env.pop("RAY_ADDRESS", None)
    argv = (*UNSHARE, "--mount-proc", sys.executable, __file__, str(script), *map(str, arguments))
    try:
        done = subprocess.run(
            argv, env=env, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout
        )
    except subprocess.TimeoutExpired as error:  # which shows nothing of what was said
        pytest.fail(
            f"{script.name} {arguments}: not done after {timeout:g} s\n{(error.stderr or b'')[-5000:].decode()}"
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert done.returncode == 0, f"{script.name} {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr[-5000:]}"
    return json.loads(done.stdout.splitlines()[-1])


def require_namespaces() -> None:
    """Skip the test where Ray is missing or the system gives no namespaces; in CI that is a failure."""
    reason = ""
    if not shutil.which("unshare"):
        reason = "there is no unshare (util-linux)"
    elif subprocess.run((*UNSHARE, "--mount-proc", "true"), capture_output=True, check=False).returncode:
        reason = "the system gives no network and process namespaces to us"
    elif importlib.util.find_spec("ray") is None:
        reason = "Ray is not installed (make test installs it)"
    if reason and os.environ.get("CI") == "true":
        pytest.fail(f"in CI, tests on a cluster may not be skipped: {reason}")
    if reason:
        pytest.skip(reason)


def main() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        _, flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))
    child = os.posix_spawn(sys.executable, (sys.executable, *sys.argv[1:]), os.environ)
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status) % 256


if __name__ == "__main__":
    sys.exit(main())
