"""Verbs run in this process, and what holds whatever they are given: exit codes, lines said, files written."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mlgo_corpus.cli.main import app
from mlgo_corpus.files.names import STATE_FOLDER

State = dict[str, tuple[int, object]]

EXIT_CODES = (0, 1, 2)
ERROR = "mlgo-corpus: error: "


@dataclass(frozen=True, slots=True)
class Done:
    """How a verb ended."""

    code: int
    stdout: str
    stderr: str


def run_verb(*arguments: str | Path) -> Done:
    """Run a verb as from a shell, and check what it says."""
    out, err = os.memfd_create("stdout"), os.memfd_create("stderr")
    try:
        with _standard_streams(out, err):
            try:
                app([*map(str, arguments)], prog_name="mlgo-corpus")
                code = 0
            except SystemExit as end:
                code = int(end.code or 0)
        done = Done(code, *(os.pread(file, 1 << 24, 0).decode() for file in (out, err)))
    finally:
        os.close(out)
        os.close(err)
    said = f"{' '.join(map(repr, map(str, arguments)))}: {done}"
    assert done.code in EXIT_CODES, said
    assert "Traceback" not in done.stderr, said
    lines = done.stderr.splitlines()
    unprintable = [line for line in (*lines, *done.stdout.splitlines()) if not line.isprintable()]
    assert not unprintable, f"{unprintable!a}: {said}"
    if (done.code == 2) or any(line.startswith(ERROR) for line in lines):
        assert lines, said
        assert lines[-1].startswith(ERROR), said
        assert sum(line.startswith(ERROR) for line in lines) == 1, said
        assert done.code != 2 or done.stdout == "", said
    return done


@contextmanager
def _standard_streams(out: int, err: int) -> Iterator[None]:
    """Make stdout and stderr what they are in a process of its own that writes into these files."""
    saved = os.dup(1), os.dup(2), sys.stdout, sys.stderr
    os.dup2(out, 1)
    os.dup2(err, 2)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="strict", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.dup2(saved[0], 1)
        os.dup2(saved[1], 2)
        os.close(saved[0])
        os.close(saved[1])
        sys.stdout, sys.stderr = saved[2:]


def state_of(folder: Path) -> State:
    """Give all that is below a folder, with contents; links are not followed."""
    found: State = {}
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        content: object = None
        if stat.S_ISLNK(about.st_mode):
            content = os.readlink(path)
        elif stat.S_ISREG(about.st_mode):
            content = hashlib.blake2b(path.read_bytes()).digest()
        found[str(path.relative_to(folder))] = (stat.S_IFMT(about.st_mode), content)
    return found


class Place:
    """A folder in which verbs may write ``outputs`` and nothing else.

    It holds a file and a folder beside the outputs, where a name that leads out of one would get to.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "a" / "b"
        self.temporary = folder / "tmp"
        for path in (self.work, self.temporary, folder / "cache"):
            path.mkdir(parents=True)
        for name in ("x", "evil", "evil.bc", "evil.cmd", "evil.log", "a/x", "a/evil.bc", "a/b/evil.bc"):
            (folder / name).write_text("canary")
        os.environ.update(TMPDIR=str(self.temporary), XDG_CACHE_HOME=str(folder / "cache"), NO_COLOR="1", COLUMNS="200")
        tempfile.tempdir = None

    @contextmanager
    def only(self, *outputs: Path) -> Iterator[None]:
        """Check that what is done in the block changes nothing but these, and leaves nothing half-written."""
        before = self._others(outputs)
        yield
        after = self._others(outputs)
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        assert not changed, f"changed: {sorted(changed)}"
        for output in outputs:
            left = [
                path
                for path in (output.rglob("*") if output.is_dir() else ())
                if path.name.endswith((".tmp", ".lock", ".part"))
                if STATE_FOLDER not in path.parts
            ]
            assert not left, f"left: {left}"
        assert not list(self.temporary.iterdir()), "left in the folder for temporary files"

    def run(self, *arguments: str | Path, output: Path | None = None, also: Sequence[Path] = ()) -> Done:
        """Run a verb that may write ``output``, which is there afterwards unless its exit code is 2, and ``also``."""
        with self.only(*([output] if output else []), *also):
            before = output is not None and output.exists()
            done = run_verb(*arguments)
            if output is not None and not before:
                assert done.code != 2 or not os.path.lexists(output), f"{arguments}: {done}, but there is {output}"
                nothing = " 0 logs, " in done.stdout
                assert done.code != 0 or nothing or os.path.lexists(output), f"{arguments}: {done}, no {output}"
        return done

    def _others(self, outputs: tuple[Path, ...]) -> State:
        own = [str(path.relative_to(self.folder)) for path in outputs]
        return {
            name: value
            for name, value in state_of(self.folder).items()
            if not name.startswith("cache")
            if not any(name == item or name.startswith(f"{item}/") for item in own)
        }
