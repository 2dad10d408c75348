"""From a module of a corpus to the command that a run replays: edited, checked, and complete.

A module that cannot be run raises a `RunFailure` in every stage.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from mlgo_corpus.compilers.confinement import Confinement, confine
from mlgo_corpus.compilers.failures import RunFailure
from mlgo_corpus.corpus.folder import UNSPECIFIED_OVERRIDE, Module
from mlgo_corpus.dataset.tracetable import TraceReason
from mlgo_corpus.errors import CorpusError, UsageError
from mlgo_corpus.formats.commands.edit import edit_command
from mlgo_corpus.formats.commands.replay import refused_options, replay_command, required_files


class CommandSettings(Protocol):
    """The parts of a stage's settings about commands: edits, see `edit_command`, and whether to run harmful ones."""

    @property
    def add(self) -> tuple[str, ...]:
        """Options to add."""

    @property
    def delete(self) -> tuple[str, ...]:
        """Options to remove."""

    @property
    def replace(self) -> tuple[str, ...]:
        """Options that get another value."""

    @property
    def trusted(self) -> bool:
        """Whether to run commands that could do harm."""

    @property
    def memory_limit(self) -> int | None:
        """Bytes of address space that a program may have; None for the default."""


def module_options(module: Module, settings: CommandSettings, folder: Path) -> tuple[str, ...]:
    """Return a module's command with the settings' edits; ``folder`` is where it will run.

    Raises:
        RunFailure: there is no command, it must not be run, or a file that it reads is missing.
    """
    if module.override == UNSPECIFIED_OVERRIDE:
        detail = "the corpus's manifest leaves the command to be filled in: global_command_override"
        raise RunFailure(TraceReason.NO_COMMAND, detail)
    try:
        options = module.command()
    except CorpusError as error:
        raise RunFailure(TraceReason.NO_COMMAND, error.message) from None
    if not options:
        raise RunFailure(TraceReason.NO_COMMAND, "the command is empty")
    if options[0] != "-cc1" and module.override is not None:
        options = ("-cc1", *options)
    edited = edit_command(options, add=settings.add, delete=settings.delete, replace=settings.replace).options
    if not settings.trusted and (refused := refused_options(edited)):
        text, why = refused[0]
        raise RunFailure(TraceReason.REFUSED_OPTION, f"{text[:200]}: {why}; `trust_corpus` runs it")
    for option, path in required_files(edited):
        if not option.startswith("-fthinlto-index") and not os.path.exists(folder / path):
            raise RunFailure(TraceReason.MISSING_FILE, f"{option} names {path[:200]}, which is not there")
    return edited


def module_command(
    module: Module, options: Sequence[str], *, bitcode: str, output: str, extra: Sequence[str] = (), trusted: bool
) -> tuple[str, ...]:
    """Return the cc1 command that compiles a module's bitcode, with its ThinLTO index; see `replay_command`.

    Raises:
        RunFailure: it must not be run, or the index is missing.
    """
    index = module.thinlto_index_path
    if index is not None and not index.is_file():
        # clang would write an empty object, and exit with 0. An empty index means an ordinary compile.
        raise RunFailure(TraceReason.MISSING_FILE, f"cannot read {index.name}: No such file or directory")
    try:
        return replay_command(
            options,
            bitcode=bitcode,
            output=output,
            thinlto_index=None if index is None else str(index.absolute()),
            extra=extra,
            trusted=trusted,
        )
    except UsageError as error:
        raise RunFailure(TraceReason.REFUSED_OPTION, str(error)) from None


def module_confinement(
    module: Module, options: Sequence[str], settings: CommandSettings, folder: Path, programs: Sequence[str]
) -> Confinement:
    """Return the confinement of programs that run in ``folder`` on a module with these options."""
    # Use the parent folder, which all modules share, like the corpus, so that they have the same walls.
    work, root = folder.absolute().parent, module.root.absolute()
    readable = [work] if root.is_relative_to(work) else [work, root]
    readable += [folder / path for _, path in required_files(options)]
    return confine(programs, readable, memory_limit=settings.memory_limit, trusted=settings.trusted)


CORPUS_FOLDER: Final = "corpus"
"""The subfolder of a run's folder for the files of a packed corpus's module."""


def on_disk(module: Module, folder: Path) -> tuple[Module, Callable[[str], str]]:
    """Return a module with its files on disk, written to ``folder`` if needed, and a function that restores its paths.

    Raises:
        RunFailure: its files cannot be read.
    """
    try:
        made = module.on_disk(folder / CORPUS_FOLDER)
    except CorpusError as error:
        raise RunFailure(TraceReason.MISSING_FILE, error.message) from None
    here, there = f"{made.root}{os.sep}", f"{module.location}/"
    return made, str if made is module else lambda text: text.replace(here, there)


def bitcode_path(module: Module) -> str:
    """Return the absolute path of a module's bitcode, for a command that runs elsewhere."""
    return str(module.bitcode_path.absolute())


def compiler_environment(folder: Path) -> dict[str, str]:
    """Return the environment of a compiler that runs in ``folder``.

    Without its settings, a crashing compiler looks for a symbolizer on PATH, and leaves files in the temporary folder.
    """
    return {**os.environ, "TMPDIR": str(folder), "LLVM_DISABLE_SYMBOLIZATION": "1"}


def row_name(number: int) -> str:
    """Return the name of the file with a run's outcome."""
    return f"run-{number:07d}.json"
