"""The commands of a compilation database, each compiled by a clang that embeds bitcode.

The tree of the build stays as it is. Each command is run in its own folder, with the object in a folder of ours and
without what else it would write (`mlgo_corpus.formats.commands.driverline`). If clang refuses options, the command runs
again without them, and the object's row says which they were: gcc has some that clang lacks. Warnings are never errors
here, not even those that are errors to clang by default.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path

from mlgo_corpus.builds.compiles import Compile
from mlgo_corpus.builds.inputs import BuildObject, parameter_words, read_entries
from mlgo_corpus.builds.objects import Reason
from mlgo_corpus.compilers.driver import Drivers, target_option
from mlgo_corpus.compilers.process import run_tool
from mlgo_corpus.engine.threads import in_threads
from mlgo_corpus.errors import FormatError, ToolError, UsageError
from mlgo_corpus.files.regular import MAX_LIST_BYTES, read_file, read_regular
from mlgo_corpus.files.text import os_reason, visible
from mlgo_corpus.formats.commands.buildfiles import (
    COMPILE_COMMANDS_NAME,
    CompileCommand,
    is_cl,
    with_parameter_files,
)
from mlgo_corpus.formats.commands.driverline import (
    Language,
    SourceCompile,
    ignored_words,
    read_compile,
    refused_warnings,
    without_refused,
)

# Only a hanging compiler, or a dead network file system, reaches it.
_COMPILE_TIMEOUT_S = 3600.0
_EMBED = ("-Xclang", "-fembed-bitcode=all")


@dataclass(frozen=True, slots=True)
class Compiled:
    """What became of one entry of a database.

    Attributes:
        item: the object, or why there is none.
        compile: how it was compiled, with the output that the entry names; None if there is no object.
        left_out: options without which it was compiled.
    """

    item: BuildObject
    compile: Compile | None = None
    left_out: tuple[str, ...] = ()


def read_database(path: Path | str) -> tuple[CompileCommand, ...]:
    """Read a compilation database; relative folders in it are relative to its own.

    Args:
        path: the file, or the folder that has a ``compile_commands.json``.

    Raises:
        UsageError: it does not exist, cannot be read, or is not a compilation database.
    """
    file = Path(path, COMPILE_COMMANDS_NAME) if os.path.isdir(path) else Path(path)
    try:
        commands = tuple(read_entries(str(file), read_regular(file, MAX_LIST_BYTES)))
    except FormatError as error:
        raise UsageError(f"{file}: {error.message}") from None
    except OSError as error:
        raise UsageError(f"{file}: {os_reason(error)}") from None
    base = os.path.realpath(file.parent)
    return tuple(replace(one, directory=os.path.realpath(os.path.join(base, one.directory or ""))) for one in commands)


def compile_entries(
    commands: Sequence[CompileCommand],
    folder: Path,
    drivers: Drivers,
    build_dir: str,
    *,
    jobs: int,
    progress: Callable[[int, int], None] | None,
) -> list[Compiled]:
    """Compile all entries of a database; return what became of each, in the database's order.

    Args:
        commands: the entries.
        folder: an existing folder for the objects.
        drivers: the compiler.
        build_dir: the folder that objects' names are relative to.
        jobs: how many compilers to run at once.
        progress: called with (entries done, entries in all).
    """
    stop = threading.Event()
    found: dict[int, Compiled] = {}

    def compiled(index: int) -> Compiled:
        return _Entry(commands[index], build_dir).compiled(str(folder / f"{index}.o"), drivers, stop)

    for index, one in in_threads(compiled, range(len(commands)), jobs=jobs, stop=stop):
        found[index] = one
        if progress is not None:
            progress(len(found), len(commands))
    return [found[index] for index in sorted(found)]


class _Entry:
    """One entry of a database."""

    def __init__(self, command: CompileCommand, build_dir: str) -> None:
        self.command = command
        base = command.directory or "/"
        named = command.output or command.file or f"entry {command.index}"
        self.directory = os.path.normpath(os.path.join(base, command.folder))
        self.path = os.path.normpath(os.path.join(base, named))
        # An entry's names are relative to its folder, but its command may run in another.
        inside = base if command.folder else ""
        self.file, self.output = (os.path.join(inside, name or "") for name in (command.file, command.output))
        self.name = self.path.removeprefix(build_dir.rstrip("/") + "/")

    def compiled(self, output: str, drivers: Drivers, stop: threading.Event) -> Compiled:
        """Compile it to ``output``."""
        command = self.command
        if command.problem is not None:
            return self._without_object(Reason(command.problem), command.detail)
        if not command.arguments or command.file is None or command.output is None:
            return self._without_object(Reason.NO_OUTPUT, "the entry has no command, or no file")
        if is_cl(command.arguments):
            return self._without_object(Reason.COMPILE_FAILED, "a command with the options of cl.exe")
        arguments = with_parameter_files(command.arguments, partial(parameter_words, self.directory))
        if (unread := next((word[1:] for word in arguments if word.startswith("@")), None)) is not None:
            return self._without_object(Reason.COMPILE_FAILED, f"the file with its arguments cannot be read: {unread}")
        wanted = read_compile(arguments, self.file, self.directory)
        if wanted.language is not Language.CODE:
            return self._without_object(Reason.NO_BITCODE, f"{wanted.language}: not compiled")
        driver = drivers.cxx if wanted.is_cxx else drivers.c
        try:
            words, left_out = self._run((*driver, *_target(wanted)), wanted, output, stop)
        except ToolError as error:
            return self._without_object(Reason.COMPILE_FAILED, error.first_error)
        note = f"compiled without {' '.join(left_out)}" if left_out else ""
        arguments = (*words, "-c", "-o", self.output)
        digest = sha256(read_file(output)).hexdigest()
        made = Compile(self.directory, arguments, (wanted.source,), self.output, links=False, order=0, digest=digest)
        return Compiled(BuildObject(output, self.name, self.directory, note=note), made, left_out)

    def _run(
        self, driver: Sequence[str], wanted: SourceCompile, output: str, stop: threading.Event
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Run the compiler until it refuses nothing; return its command without the output, and what was left out.

        Raises:
            ToolError: it fails for another reason.
        """
        words, left_out = wanted.words, wanted.left_out
        while True:
            try:
                argv = (*driver, *_EMBED, *words, "-c", "-o", output)
                done = run_tool(argv, cwd=Path(self.directory), timeout=_COMPILE_TIMEOUT_S, stop=stop)
            except ToolError as error:
                kept, refused = without_refused(error.stderr, words)
                warnings = [f"-Wno-error={name}" for name in refused_warnings(error.stderr)]
                accepted = [word for word in warnings if word not in words]
                if stop.is_set() or not (refused or accepted):
                    raise
                words = (*kept, *accepted)
                left_out = (*left_out, *refused)
            else:
                return (*driver, *words), tuple(dict.fromkeys((*left_out, *ignored_words(done.stderr))))

    def _without_object(self, reason: Reason, detail: str) -> Compiled:
        return Compiled(BuildObject(self.path, self.name, self.directory, str(reason), visible(detail)))


def _target(wanted: SourceCompile) -> tuple[str, ...]:
    """Return the option for the target that the compiler's name has, unless the command names one."""
    named = any(word.startswith(("--target", "-target")) for word in wanted.words)
    return () if named else target_option(wanted.triple)
