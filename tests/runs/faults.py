"""Run a verb again and again, and let each step that changes something on disk fail once: by an error, by Ctrl-C, by a
kill. Then the same command has to do what it would have done undisturbed.

It is told on stdin, as JSON, a list of folders, in copies of which a command is run, and its arguments. It prints of
each how many steps there were, and what went wrong.
"""

from __future__ import annotations

import errno
import gc
import importlib
import io
import json
import os
import shutil
import signal
import sys
from collections import Counter
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from typer.main import get_command

from mlgo_corpus.cli.main import app

_CHANGES = frozenset({"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate"})
_FILLS = frozenset({"open", "write", "os.mkdir"})


class Faults:
    """Counts what a command changes on disk; the chosen step fails."""

    def __init__(self) -> None:
        self._folder = ""
        self._mode: str | None = None
        self._chosen = 0
        self._steps = 0
        self._install()

    def choose(self, folder: Path, mode: str, number: int) -> None:
        """Let a step in a folder fail, in this way."""
        self._folder, self._mode, self._chosen, self._steps = str(folder), mode, number, 0

    def stop(self) -> bool:
        """Let no step fail; return whether the chosen one was come to."""
        fired = self._steps >= self._chosen
        self._mode = None
        return fired

    def step(self, event: str) -> None:
        self._steps += 1
        if self._mode is None or self._steps != self._chosen:
            return
        if self._mode == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._mode == "interrupt":
            raise KeyboardInterrupt
        number = errno.ENOSPC if event in _FILLS else errno.EIO
        raise OSError(number, os.strerror(number))

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, str | bytes) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                self._in_folder(event, path)
        elif event in _CHANGES:
            self._in_folder(event, arguments[0])

    def _in_folder(self, event: str, path: Any) -> None:
        if isinstance(path, int) or os.path.abspath(os.fsdecode(path)).startswith(self._folder):
            self.step(event)

    def _install(self) -> None:
        """Watch this process, to its end: audit hooks stay."""
        step = self.step
        real_open, real_pwrite = io.open, os.pwrite

        class Raw(io.FileIO):
            def write(self, data: Any, /) -> int:
                step("write")
                return super().write(data)

        def opened(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
            if mode in ("wb", "ab") and not args and not options:
                return io.BufferedWriter(Raw(file, mode))
            return real_open(file, mode, *args, **options)

        def pwrite(*arguments: Any) -> int:
            step("write")
            return real_pwrite(*arguments)

        io.open = os.fdopen = opened  # type: ignore[assignment]
        os.pwrite = pwrite  # type: ignore[assignment]
        sys.addaudithook(self._audit)


class Check:
    """One command, run in copies of a folder."""

    def __init__(self, template: Path, argv: list[str], command: Any, faults: Faults) -> None:
        self.template = template
        self.argv = argv
        self.work = template.with_name("work")
        self.killed = template.with_name("killed")
        self.said = template.with_name("said")
        self.steps: Counter[str] = Counter()
        self.problems: list[str] = []
        self.command = command
        self.faults = faults

    def run(self) -> int:
        """Run the command in its folder; its output goes to a file."""
        descriptor = os.open(self.said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for number in (1, 2):
            os.dup2(descriptor, number)
        os.close(descriptor)
        os.chdir(self.work)
        try:
            self.command(self.argv)
        except SystemExit as done:
            return int(done.code or 0)
        return 0

    def run_in_child(self, killed_at: int = 0) -> int:
        """Run the command in a forked child; return its exit code, or minus the signal that ended it."""
        pid = os.fork()
        if not pid:
            code = 99
            try:
                self.faults.choose(self.work, "kill", killed_at)
                code = self.run()
                self.template.with_name("modules").write_text("\n".join(sys.modules))
            finally:
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def fresh(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.template, self.work)

    def kill(self) -> None:
        """Run the command undisturbed, and killed at each step. Once it ran here, forks would lack its threads."""
        self.fresh()
        self.before = tree(self.work)
        assert self.run_in_child() == 0, self.said.read_text()
        self.after, self.folders = tree(self.work), folders_of(self.work)
        for name in self.template.with_name("modules").read_text().split("\n"):  # once, and not in each child
            with suppress(ImportError):
                importlib.import_module(name)
        gc.collect()
        gc.freeze()  # a search for cycles would write to, and so copy, every page in every child
        self.killed.mkdir()
        for number in count(1):
            self.fresh()
            if self.run_in_child(killed_at=number) == 0:
                break
            self.work.rename(self.killed / str(number))

    def run_again(self) -> None:
        """Check what those that were killed left, and let each step fail in the other ways."""
        for number in range(1, len(os.listdir(self.killed)) + 1):
            shutil.rmtree(self.work, ignore_errors=True)
            (self.killed / str(number)).rename(self.work)
            self.check("kill", number, -signal.SIGKILL, got_over=False)
        for mode in ("error", "interrupt"):
            for number in count(1):
                self.fresh()
                self.faults.choose(self.work, mode, number)
                code = self.run()
                if not self.faults.stop():
                    break
                self.check(mode, number, code, got_over=code == 0)

    def check(self, mode: str, number: int, code: int, *, got_over: bool) -> None:
        """Look at what a failed run left, and run the command again."""
        self.steps[mode] += 1
        where = f"{mode} at step {number} (exit code {code}: {self.said.read_text().strip()})"
        seen = {name: data for name, data in tree(self.work).items() if not is_under_way(name)}
        if any(data not in (self.before.get(name), self.after.get(name)) for name, data in seen.items()):
            self.problems.append(f"{where}: a file is not whole")
        under_moves = any(path.stat().st_size for path in self.work.rglob(".*.lock"))
        if not under_moves and without_index(seen) not in (without_index(self.before), without_index(self.after)):
            self.problems.append(f"{where}: only some files are there: {sorted(seen)}")
        if got_over:  # it said that all is well
            if seen != self.after:
                self.problems.append(f"{where}: not all is there")
        elif again := self.run():
            self.problems.append(f"{where}: again: exit code {again}: {self.said.read_text().strip()}")
        elif tree(self.work) != self.after or folders_of(self.work) != self.folders:
            different = {name for name, _ in set(tree(self.work).items()) ^ set(self.after.items())}
            names = sorted(different | (folders_of(self.work) ^ self.folders))
            self.problems.append(f"{where}: again: different: {names}")


def without_index(files: dict[str, bytes]) -> dict[str, bytes]:
    """Leave out the table of functions, which is worth keeping whatever becomes of the rest."""
    return {name: data for name, data in files.items() if not name.endswith("functions.parquet")}


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def folders_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_dir()}


def is_under_way(name: str) -> bool:
    suffixes = (".making", ".lock", ".old", ".tmp")
    return any(part.startswith(".") and part.endswith(suffixes) for part in Path(name).parts)


if __name__ == "__main__":
    gc.set_threshold(200_000)
    stdout, watched, called = os.dup(1), Faults(), get_command(app)
    checks = [Check(Path(folder), argv, called, watched) for folder, argv in json.load(sys.stdin)]
    for check in checks:
        check.kill()
    for check in checks:
        check.run_again()
    os.write(stdout, json.dumps([(check.steps, check.problems) for check in checks]).encode())
