"""Compare live sessions with a bare exchange of bytes and with LLVM's host: ``python benchmarks/interactive.py``.

A small C program (``cc`` is needed) stands in for the compiler: header and observation are those of a real log of
``tests/data/training-logs``, written in pieces of 4 KiB as LLVM's streams do, and it does no other work. So these are
the most decisions per second that a host allows; a compiler's own work adds to that.

- *bare*: ``os.read`` of the FIFO, ``os.write`` of one constant advice, nothing else. No host in Python can do less, and
  it would wait forever if the compiler died;
- *ours*: `InteractiveSession`, where the advice is the last feature of each record;
- *ours, constant*: the same with a constant advice, so that no record is made;
- *LLVM's*: the algorithm of ``interactive_host.py`` and ``log_reader.py`` (llvm/lib/Analysis/models), rewritten here
  without their output: buffered files, a JSON document per observation, a read and a ctypes view per tensor, the
  advice through ctypes.

*host CPU* is user and system time of the host's process. Rounds take turns; medians count.
"""

from __future__ import annotations

import argparse
import ctypes
import io
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT))

from mlgo_corpus.compilers.session import InteractiveSession, temporary_channel  # noqa: E402
from mlgo_corpus.formats.logs.events import LogHeader, LogReader, Observation  # noqa: E402

LOGS = PROJECT / "tests" / "data" / "training-logs"
KINDS = {
    "inlining": "inlining.lvm.log",
    "eviction": "regalloc-eviction.lvm.log",
    "priority": "regalloc-priority.lvm.log",
}
TIMEOUT_S = 600.0

PEER = r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char buffer[1 << 20];

static void put(int fd, size_t size) {
  for (size_t at = 0; at < size;) {
    ssize_t put = write(fd, buffer + at, size - at < 4096 ? size - at : 4096);
    if (put <= 0) exit(2);
    at += put;
  }
}

static size_t load(const char *name, size_t at) {
  FILE *file = fopen(name, "rb");
  if (!file) exit(3);
  size_t size = fread(buffer + at, 1, sizeof buffer - at, file);
  fclose(file);
  return size;
}

/* base, header file, tensors file, observations, bytes of advice */
int main(int argc, char **argv) {
  char name[4096], line[64];
  if (argc != 6) return 1;
  snprintf(name, sizeof name, "%s.in", argv[1]);
  int in = open(name, O_RDONLY);
  snprintf(name, sizeof name, "%s.out", argv[1]);
  int out = open(name, O_WRONLY);
  if (in < 0 || out < 0) return 4;
  put(out, load(argv[2], 0));
  long count = atol(argv[4]), advice = atol(argv[5]);
  size_t tensors = load(argv[3], 64);
  buffer[64 + tensors] = '\n';
  memmove(name, buffer + 64, 0);
  char *copy = malloc(tensors + 1);
  memcpy(copy, buffer + 64, tensors + 1);
  for (long i = 0; i < count; i++) {
    int length = snprintf(line, sizeof line, "{\"observation\":%ld}\n", i);
    memcpy(buffer, line, length);
    memcpy(buffer + length, copy, tensors + 1);
    put(out, length + tensors + 1);
    for (long got = 0; got < advice;) {
      ssize_t read_now = read(in, name + got, advice - got);
      if (read_now <= 0) return 5;
      got += read_now;
    }
  }
  return 0;
}
"""


class Case(NamedTuple):
    """What the peer sends: its command without the base, and the facts that a host needs."""

    argv: tuple[str, ...]
    count: int  # type: ignore[assignment] # of decisions; a tuple's method is of no use here
    header: LogHeader
    message_bytes: int

    def command(self, base: Path) -> tuple[str, ...]:
        """Return the peer's whole command."""
        return (self.argv[0], str(base), *self.argv[1:])


def make_case(kind: str, peer: Path, count: int, folder: Path) -> Case:
    """Turn the first observation of a log into the bytes that an interactive compiler would send."""
    with (LOGS / KINDS[kind]).open("rb") as stream:
        reader = LogReader(stream)
        first = next(event for event in reader if isinstance(event, Observation))
    *features, advice = reader.header.features
    header = LogHeader(tuple(features), None, advice)
    head, tensors = folder / f"{kind}.header", folder / f"{kind}.tensors"
    head.write_bytes(header.line + b"\n")
    tensors.write_bytes(first.tensors[: header.tensor_bytes])
    argv = (str(peer), str(head), str(tensors), str(count), str(advice.nbytes))
    return Case(argv, count, header, header.tensor_bytes + len('{"observation":10000}\n') + 1)


def ours(case: Case) -> int:
    """Advise with the last feature of each record."""
    last = case.header.features[-1].name
    with temporary_channel() as base, InteractiveSession(case.command(base), base, timeout=TIMEOUT_S) as session:
        whole = case.header.features[-1].dtype.kind == "i"
        count = 0
        for observation in session:
            value = observation.record[last]
            session.advise(value if whole else int(value))
            count += 1
        return count


def ours_constant(case: Case) -> int:
    """Advise 0 each time."""
    with temporary_channel() as base, InteractiveSession(case.command(base), base, timeout=TIMEOUT_S) as session:
        count = 0
        for _ in session:
            session.advise(0)
            count += 1
        return count


@contextmanager
def fifos(base: Path) -> Iterator[tuple[str, str]]:
    """Make the two FIFOs of a channel."""
    names = (f"{base}.in", f"{base}.out")
    for name in names:
        os.mkfifo(name)
    yield names


def bare(case: Case) -> int:
    """Only read and write."""
    assert case.header.advice is not None  # noqa: S101
    advice = bytes(case.header.advice.nbytes)
    with temporary_channel() as base, fifos(base) as (to_compiler, from_compiler):
        process = subprocess.Popen(case.command(base), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        writer, reader = os.open(to_compiler, os.O_WRONLY), os.open(from_compiler, os.O_RDONLY)
        header = b""
        while not header.endswith(b"\n"):
            header += os.read(reader, 1)
        for number in range(case.count):
            left = len(b'{"observation":%d}\n' % number) + case.header.tensor_bytes + 1
            while left:
                left -= len(os.read(reader, left))
            os.write(writer, advice)
        process.communicate()
        os.close(writer)
        os.close(reader)
    return case.count


C_TYPES: dict[str, Any] = {"int64_t": ctypes.c_int64, "float": ctypes.c_float}


class TensorValue:
    """A tensor as LLVM's reader returns it."""

    def __init__(self, spec: Spec, buffer: bytes) -> None:
        self.view = ctypes.cast(buffer, ctypes.POINTER(spec.element_type))  # type: ignore[arg-type] # as LLVM's does
        self.length = math.prod(spec.shape)

    def __getitem__(self, index: int) -> Any:
        if index < 0 or index >= self.length:
            raise IndexError(index)
        return self.view[index]


class Spec(NamedTuple):
    """A tensor's type and shape."""

    element_type: Any
    shape: list[int]


def _spec(value: dict[str, Any]) -> Spec:
    return Spec(C_TYPES[value["type"]], value["shape"])


def llvms(case: Case) -> int:
    """Do what LLVM's host does, without printing."""
    count = 0
    with temporary_channel() as base, fifos(base) as (to_compiler, from_compiler):
        process = subprocess.Popen(case.command(base), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        with (
            io.BufferedWriter(io.FileIO(to_compiler, "wb")) as writer,
            io.BufferedReader(io.FileIO(from_compiler, "rb")) as reader,
        ):
            header = json.loads(reader.readline())
            specs = [_spec(value) for value in header["features"]]
            advice = _spec(header["advice"])
            while process.poll() is None:
                line = reader.readline()
                if not line:
                    break
                json.loads(line)
                values = []
                for spec in specs:
                    size = math.prod(spec.shape) * ctypes.sizeof(spec.element_type)
                    values.append(TensorValue(spec, reader.read(size)))
                reader.readline()
                kind = advice.element_type
                value = values[-1][0]
                writer.write(bytes(kind(int(value) if kind is ctypes.c_int64 else value)))
                writer.flush()
                count += 1
        process.communicate()
    return count


HOSTS: dict[str, Callable[[Case], int]] = {
    "bare": bare,
    "ours": ours,
    "ours, constant": ours_constant,
    "LLVM's": llvms,
}


def main() -> None:
    """Print a table for each kind of decision."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--decisions", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one-cpu", action="store_true", help="host and compiler share a CPU: less noise")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    options = parser.parse_args()
    if options.one_cpu:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    compiler = shutil.which("cc") or sys.exit("a C compiler (cc) is needed")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "peer.c").write_text(PEER)
        peer = folder / "peer"
        subprocess.run((compiler, "-O2", "-o", str(peer), str(folder / "peer.c")), check=True)
        for kind in options.kinds:
            measure(make_case(kind, peer, options.decisions, folder), kind, options.rounds)


def measure(case: Case, kind: str, rounds: int) -> None:
    """Let the hosts take turns and print their medians."""
    walls: dict[str, list[float]] = {name: [] for name in HOSTS}
    cpus: dict[str, list[float]] = {name: [] for name in HOSTS}
    for _ in range(rounds):
        for name, host in HOSTS.items():
            begin, cpu = time.perf_counter(), time.process_time()
            found = host(case)
            walls[name].append(time.perf_counter() - begin)
            cpus[name].append(time.process_time() - cpu)
            if found != case.count:
                sys.exit(f"{name}: expected {case.count} decisions, found {found}")
    rate = {name: case.count / statistics.median(times) for name, times in walls.items()}
    cpu_us = {name: statistics.median(times) / case.count * 1e6 for name, times in cpus.items()}
    print(f"\n{kind}: {case.count} decisions, messages of {case.message_bytes} bytes, {rounds} rounds")
    print(f"{'host':<16}{'decisions/s':>12}{'of bare':>10}{'host CPU us':>13}{'of LLVM' + chr(39) + 's':>12}")
    for name in HOSTS:
        print(
            f"{name:<16}{rate[name]:>12,.0f}{rate[name] / rate['bare']:>10.0%}"
            f"{cpu_us[name]:>13.1f}{cpu_us[name] / cpu_us[LLVMS]:>12.0%}"
        )


LLVMS = "LLVM's"

if __name__ == "__main__":
    main()
