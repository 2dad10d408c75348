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

from mlgo_corpus.compilers.failures import RunFailure
from mlgo_corpus.corpus.folder import UNSPECIFIED_OVERRIDE, Module
from mlgo_corpus.dataset.reasons import RunReason
from mlgo_corpus.errors import CorpusError, UsageError
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
    def of(cls, add: Sequence[str], delete: Sequence[str], replace: Sequence[str], *, trusted: bool) -> CommandEdits:
        """Make edits of any sequences of text."""
        return cls(tuple(add), tuple(delete), tuple(replace), trusted)

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

    def without_effect(self, modules: Iterable[Module]) -> Iterator[str]:
        """Yield a hint for each deletion and replacement that no module's command answers to."""
        deletions, replacements = self.delete, self.replace
        for module in modules:
            if not deletions and not replacements:  # most are met in the first module
                return
            with suppress(CorpusError, UsageError):  # a row of the module's tells of it
                command = module.command()
                command = command if command[:1] == ("-cc1",) else ("-cc1", *command)
                deletions = edit_command(command, delete=deletions).unmatched
                command = edit_command(command, delete=self.delete).options
                replacements = edit_command(command, replace=replacements).unmatched
        for kind, texts in (("delete", deletions), ("replace", replacements)):
            yield from (f"`{kind}_flags`={text}: no command has this option, nothing was changed" for text in texts)

    def _kinds(self) -> dict[str, tuple[str, ...]]:
        return {"add": self.add, "delete": self.delete, "replace": self.replace}


def module_options(module: Module, edits: CommandEdits, folder: Path) -> tuple[str, ...]:
    """Return a module's edited command; ``folder`` is where it will run.

    Raises:
        RunFailure: there is no command, it must not be run, or a file that it reads is not there.
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
    if options[0] != "-cc1" and module.override is not None:
        options = ("-cc1", *options)
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
