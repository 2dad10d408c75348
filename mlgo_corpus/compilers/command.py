"""From a module of a corpus to the command that a run replays: edited, checked, and complete.

What is wrong with a module is a `RunFailure`, whichever stage runs it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from mlgo_corpus.compilers.driver import cc1_line
from mlgo_corpus.compilers.failures import RunFailure
from mlgo_corpus.corpus.folder import UNSPECIFIED_OVERRIDE, Module
from mlgo_corpus.dataset.reasons import RunReason
from mlgo_corpus.errors import CorpusError, UsageError
from mlgo_corpus.files.text import several
from mlgo_corpus.formats.commands.driver import is_driver_line
from mlgo_corpus.formats.commands.edit import edit_command, is_deleted_first
from mlgo_corpus.formats.commands.replay import refused_options, replay_command, required_files


@dataclass(frozen=True, slots=True)
class CommandEdits:
    """How each module's command is changed before it is run, and whether it may be any command.

    Attributes:
        add: options to add; `mlgo_corpus.formats.commands.edit` says how they are named.
        delete: options to take out.
        replace: ``NAME=VALUE``: options that get another value.
        trusted: whether the corpus is the user's own: run any command, without walls and without default limits.
    """

    add: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()
    trusted: bool = False

    @classmethod
    def of(
        cls,
        add: Sequence[str] | str,
        delete: Sequence[str] | str,
        replace: Sequence[str] | str,
        *,
        trusted: bool,
    ) -> CommandEdits:
        """Make edits of any sequences of text; a single text is one edit."""
        return cls(tuple(several(add)), tuple(several(delete)), tuple(several(replace)), trusted)

    def check(self) -> None:
        """Check that each edit names an option, and that what is to be replaced is not deleted before.

        Raises:
            UsageError: one does not, or is.
        """
        for kind, texts in self._kinds().items():
            for text in texts:
                try:
                    edit_command(("-cc1",), **{kind: (text,)})
                except UsageError as error:
                    raise UsageError(str(error), option=f"{kind}_flags", value=text) from error
        for text, deletion in product(self.replace, self.delete):
            if is_deleted_first(text, deletion):
                message = f"`delete_flags`={deletion} takes this option out before it is replaced; give one of the two"
                raise UsageError(message, option="replace_flags", value=text)

    def key(self) -> dict[str, Any]:
        """Return the edits' part of a run's key, as JSON holds it."""
        return {**{f"{kind}_flags": list(texts) for kind, texts in self._kinds().items()}, "trust_corpus": self.trusted}

    def apply(self, options: Sequence[str]) -> tuple[str, ...]:
        """Return a command with the edits."""
        return edit_command(options, add=self.add, delete=self.delete, replace=self.replace).options

    def without_effect(self, modules: Iterable[Module], cc1: tuple[str, ...]) -> Iterator[str]:
        """Yield a hint for each deletion and replacement that no module's command answers to; see `_module_line`."""
        deletions, replacements = self.delete, self.replace
        for module in modules:
            if not deletions and not replacements:  # most are met in the first module
                return
            with suppress(RunFailure, UsageError):  # a row of the module's tells of it
                command = _module_line(module, cc1, trusted=self.trusted)
                deletions = edit_command(command, delete=deletions).unmatched
                command = edit_command(command, delete=self.delete).options
                replacements = edit_command(command, replace=replacements).unmatched
        for kind, texts in (("delete", deletions), ("replace", replacements)):
            yield from (f"`{kind}_flags`={text}: no command has this option, nothing was changed" for text in texts)

    def _kinds(self) -> dict[str, tuple[str, ...]]:
        return {"add": self.add, "delete": self.delete, "replace": self.replace}


def _module_line(module: Module, cc1: tuple[str, ...], *, trusted: bool) -> tuple[str, ...]:
    """Return a module's cc1 line, or the one that a compiler makes of the driver's line that its corpus has for all.

    Args:
        module: the module.
        cc1: the words of the compiler that are put before ``-cc1``.
        trusted: whether the corpus is trusted.

    Raises:
        RunFailure: there is no command, or no cc1 line is made of it.
    """
    if module.override == UNSPECIFIED_OVERRIDE:
        detail = "the corpus's manifest leaves the command to be filled in: global_command_override"
        raise RunFailure(RunReason.NO_COMMAND, detail)
    try:
        options = module.command()
    except CorpusError as error:
        raise RunFailure(RunReason.NO_COMMAND, error.message) from None
    if not options:
        raise RunFailure(RunReason.NO_COMMAND, "the command is empty")
    if module.override is None or options[0] == "-cc1":
        return options
    return cc1_line(options, cc1, trusted=trusted) if is_driver_line(options) else ("-cc1", *options)


def module_options(module: Module, cc1: tuple[str, ...], edits: CommandEdits, folder: Path) -> tuple[str, ...]:
    """Return a module's edited cc1 line (`_module_line`); ``folder`` is where it will run.

    Raises:
        RunFailure: there is no command, it must not be run, or a file that it reads is not there.
    """
    options = _module_line(module, cc1, trusted=edits.trusted)
    edited = edits.apply(options)
    if not edits.trusted and (refused := refused_options(edited)):
        text, why = refused[0]
        raise RunFailure(RunReason.REFUSED_OPTION, f"{text[:200]}: {why}; `trust_corpus` runs it")
    for option, path in required_files(edited):
        if not option.startswith("-fthinlto-index") and not os.path.exists(folder / path):
            raise RunFailure(RunReason.MISSING_FILE, f"{option} names {path[:200]}, which is not there")
    return edited


def module_command(
    module: Module, options: Sequence[str], *, bitcode: str, output: str, extra: Sequence[str] = (), trusted: bool
) -> tuple[str, ...]:
    """Return the cc1 command that compiles a module's bitcode, with its ThinLTO index; see `replay_command`.

    Raises:
        RunFailure: it must not be run, or the index is not there.
    """
    index = module.thinlto_index_path
    if index is not None and not index.is_file():
        # clang would leave an empty object, and exit with 0. An index that is empty is an ordinary compile's.
        raise RunFailure(RunReason.MISSING_FILE, f"cannot read {index.name}: No such file or directory")
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
        raise RunFailure(RunReason.REFUSED_OPTION, str(error)) from None
