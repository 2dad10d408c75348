"""Runs a fuzzer's inputs one after the other in a child process, so that a crash and a hang are findings, too."""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.processes import children

NAMES = ("objects", "logs", "corpora", "names", "sessions", "kills")

# What one input may take, the memory of a process (shared libraries and Arrow's reserves count), the bytes of a file.
SECONDS_PER_INPUT = 60.0
LIMITS = {resource.RLIMIT_AS: 6 << 30, resource.RLIMIT_FSIZE: 1 << 30, resource.RLIMIT_CORE: 0}
LONGEST_OUTPUT = 4096

Tell = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Finding:
    """An input for which something does not hold; ``folder`` has what was left of it."""

    fuzzer: str
    seed: int
    number: int
    text: str
    folder: Path

    def __str__(self) -> str:
        command = f"python -m tests.fuzz {self.fuzzer} --seed {self.seed} --number {self.number}"
        return f"{command}\n{self.folder}\n{self.text.rstrip()}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run."""

    inputs: int
    findings: tuple[Finding, ...]


def fuzz(name: str, seed: int, work: Path, numbers: range, *, seconds: float | None = None, most: int = 10) -> Outcome:
    """Run a fuzzer on the inputs of these numbers, no longer than so many seconds, until there are ``most`` findings.

    ``work/NAME-SEED-NUMBER`` is what remains of an input with a finding.
    """
    module: Any = importlib.import_module(f"{__package__}.{name}")
    prepared, folder = work / f"{name}-prepared", work / f"{name}-now"
    prepared.mkdir(parents=True)
    findings: list[Finding] = []
    deadline = None if seconds is None else time.monotonic() + seconds
    following = numbers.start

    def run_inputs(tell: Tell) -> None:
        for number in range(following, numbers.stop):
            if deadline is not None and time.monotonic() > deadline:
                return
            tell(number)
            _run_input(module, prepared, random.Random(f"{seed} {number}"), folder)

    try:
        if failure := _in_child(lambda _: module.prepare(prepared), None)[1]:
            raise RuntimeError(f"{name}: the inputs to damage could not be made: {failure}")
        while following < numbers.stop and len(findings) < most:
            last, failure = _in_child(run_inputs, SECONDS_PER_INPUT)
            following = following if last is None else last + 1
            if not failure or last is None:
                break
            kept = work / f"{name}-{seed}-{last}"
            shutil.rmtree(kept, ignore_errors=True)
            folder.rename(kept)
            findings.append(Finding(name, seed, last, failure, kept))
        return Outcome(following - numbers.start, tuple(findings))
    finally:
        shutil.rmtree(prepared, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


def _run_input(module: Any, prepared: Path, rng: random.Random, folder: Path) -> None:
    folder.mkdir()
    module.check(prepared, rng, folder)
    if left := children():
        raise AssertionError(f"there are processes left: {left}")
    sys.stdout.flush()
    sys.stderr.flush()
    if said := os.pread(2, LONGEST_OUTPUT, 0):
        raise AssertionError(f"this was said: {said.decode(errors='backslashreplace')}")
    shutil.rmtree(folder)


def _in_child(work: Callable[[Tell], None], limit: float | None) -> tuple[int | None, str]:
    """Do the work in a child; give the last number that it told, and why it failed.

    ``limit`` is the longest time between two numbers.
    """
    reading, writing = os.pipe()
    said = os.memfd_create("said")
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            _be_the_child(work, writing, said)
        finally:
            os._exit(0)
    os.close(writing)
    number: int | None = None
    failure: str | None = None
    with os.fdopen(reading, "rb", 0) as stream:
        while failure is None:
            if not select.select([stream], [], [], limit)[0]:
                failure = f"not done after {limit:.0f} seconds"
            elif line := stream.readline():
                told = json.loads(line)
                number, failure = told.get("number", number), told.get("failure")
            else:
                break
    with contextlib.suppress(ProcessLookupError):  # what it left behind ends with it
        os.killpg(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if failure is None:
        text = os.pread(said, LONGEST_OUTPUT, 0).decode(errors="backslashreplace")
        failure = f"the process ended with {code}: {text}"
    os.close(said)
    return number, failure


def _be_the_child(work: Callable[[Tell], None], writing: int, said: int) -> None:
    def put(**told: Any) -> None:
        os.write(writing, json.dumps(told).encode() + b"\n")

    os.setsid()
    for limited, value in LIMITS.items():
        resource.setrlimit(limited, (value, value))
    for descriptor in (1, 2):
        os.dup2(said, descriptor)
    sys.stdout, sys.stderr = (os.fdopen(descriptor, "w", closefd=False) for descriptor in (1, 2))
    faulthandler.enable()
    try:
        work(lambda number: put(number=number))
    except BaseException:
        put(failure=traceback.format_exc())
    else:
        put(failure="")
