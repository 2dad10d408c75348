"""From a module of a corpus to the command that a run replays: edited, checked, and complete.

What is wrong with a module is a `RunFailure`, whichever stage runs it.
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
    """What a stage's settings say of commands: edits, see `edit_command`, and whether to run what could do harm."""

    @property
    def add(self) -> tuple[str, ...]:
        """Options to add."""

    @property
    def delete(self) -> tuple[str, ...]:
        """Options to take out."""

    @property
    def replace(self) -> tuple[str, ...]:
        """Options that get another value."""

    @property
    def trusted(self) -> bool:
        """Whether commands are run that could do harm."""

    @property
    def memory_limit(self) -> int | None:
        """Bytes of address space that a program may have, if the user says so."""


def module_options(module: Module, settings: CommandSettings, folder: Path) -> tuple[str, ...]:
    """Give a module's command with the settings' edits; ``folder`` is where it will run.

    Raises:
        RunFailure: there is no command, it must not be run, or a file that it reads is not there.
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
        raise RunFailure(TraceReason.REFUSED_OPTION, f"{text[:200]}: {why}; --trust-corpus runs it")
    for option, path in required_files(edited):
        if not option.startswith("-fthinlto-index") and not os.path.exists(folder / path):
            raise RunFailure(TraceReason.MISSING_FILE, f"{option} names {path[:200]}, which is not there")
    return edited


def module_command(
    module: Module, options: Sequence[str], *, bitcode: str, output: str, extra: Sequence[str] = (), trusted: bool
) -> tuple[str, ...]:
    """Give the cc1 command that compiles a module's bitcode, with its ThinLTO index; see `replay_command`.

    Raises:
        RunFailure: it must not be run, or the index is not there.
    """
    index = module.thinlto_index_path
    if index is not None and not index.is_file():
        # clang would leave an empty object, and exit with 0. An index that is empty is an ordinary compile's.
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
    """Return how far the programs may go that run in ``folder`` on a module, with these options."""
    # The folder around it, which all modules have in common, as they have the corpus: so they have the same walls.
    work, root = folder.absolute().parent, module.root.absolute()
    readable = [work] if root.is_relative_to(work) else [work, root]
    readable += [folder / path for _, path in required_files(options)]
    return confine(programs, readable, memory_limit=settings.memory_limit, trusted=settings.trusted)


CORPUS_FOLDER: Final = "corpus"
"""In a run's folder, where the files of a packed corpus's module are put for the compiler."""


def on_disk(module: Module, folder: Path) -> tuple[Module, Callable[[str], str]]:
    """Give a module with its files on disk, if need be in ``folder``, and what says paths as they are in the corpus.

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
    """Give the path of a module's bitcode, for a command that runs elsewhere."""
    return str(module.bitcode_path.absolute())


def compiler_environment(folder: Path) -> dict[str, str]:
    """Give the environment of a compiler that runs in ``folder``.

    One that crashes would look for a symbolizer on PATH, and leave files in the temporary folder.
    """
    return {**os.environ, "TMPDIR": str(folder), "LLVM_DISABLE_SYMBOLIZATION": "1"}


def row_name(number: int) -> str:
    """Name the file that tells what came of a run."""
    return f"run-{number:07d}.json"
