"""Change a cc1 command by whole options: add, delete, replace.

How options are named
---------------------
=========================  ==========================================================================
``-fno-rtti``              the flag, and nothing after it
``-main-file-name``        the option with whatever value it has
``-O``, ``-fthinlto-index``  an option with a joined value, with or without its ``=``
``-O2``, ``-target-cpu x`` only with this value
``-DNAME``                 the macro, defined as anything
``-mllvm -name``           LLVM's option with whatever value, be it ``-mllvm -name=1`` or ``-mllvm -name -mllvm 1``
``-mllvm -name=1``         only with this value
``-name``                  where cc1's options have nothing of this name, LLVM's option
``-mllvm``                 all that is handed to LLVM
=========================  ==========================================================================

ml-compiler-opt compares prefixes of words, so that deleting ``-fno-rtti`` deletes the word after it too, and deleting
LLVM's ``-name`` leaves its ``-mllvm`` in the command.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlgo_corpus.errors import UsageError
from mlgo_corpus.formats.commands.options import Cc1Option, join_cc1, llvm_options, parse_cc1, split_llvm_word


@dataclass(frozen=True, slots=True)
class _EditedCommand:
    """A command after its edits.

    Attributes:
        options: the command's words.
        unmatched: the deletions and replacements that matched nothing in this command, as they were given.
    """

    options: tuple[str, ...]
    unmatched: tuple[str, ...]


def edit_command(
    options: Sequence[str], *, add: Sequence[str] = (), delete: Sequence[str] = (), replace: Sequence[str] = ()
) -> _EditedCommand:
    """Delete, then replace, then add options.

    Args:
        options: a cc1 command.
        add: options to put at the end, each with its value: ``-Oz``, ``-mllvm -inline-threshold=5``. Shell quotes keep
            a value with spaces together.
        delete: options to delete wherever they are, named as in the module's docstring.
        replace: ``NAME=VALUE``: options that get another value wherever they are: ``-O=z``, ``-target-cpu=haswell``,
            ``-fthinlto-index=a.thinlto.bc``, ``-mllvm -inline-threshold=5``. One that is missing is not added.

    Raises:
        UsageError: an edit is not an option, lacks its value, or has a value that the option cannot have.
    """
    parsed = list(parse_cc1(options))
    unmatched = []
    for text in delete:
        positions = _find(parsed, text)
        parsed = [option for position, option in enumerate(parsed) if position not in positions]
        if not positions:
            unmatched.append(text)
    for text in replace:
        if not _replace(parsed, text):
            unmatched.append(text)
    added = [_parse_edit(text) for text in add]
    for option in added:
        if option.lacks_value:
            raise UsageError(f"expected a value after {option.text!r} in an option to add, found none")
    # An option whose value is missing would take the first added word.
    if added and parsed and parsed[-1].lacks_value:
        raise UsageError(f"expected a value after {parsed[-1].text!r}, the command's last word, found none")
    return _EditedCommand(join_cc1([*parsed, *added]), tuple(unmatched))


def is_deleted_first(replace: str, delete: str) -> bool:
    """Return True if a deletion takes out every option that a replacement names, so that nothing is left to replace.

    Raises:
        UsageError: one of them is not an option.
    """
    pattern = _parse_edit(replace.partition("=")[0])
    # Options as a command may have them, with a value that no deletion names.
    if pattern.name == "-mllvm" and pattern.values:
        samples = [parse_cc1(("-mllvm", f"{pattern.values[0]}=\0"))]
    else:
        value = f"{_macro(pattern)}=\0" if pattern.name == "-D" else "\0"
        samples = [(Cc1Option(name, (value,), ()),) for name in (pattern.name, f"{pattern.name}=")]
        if not pattern.is_known:
            samples.append(parse_cc1(("-mllvm", f"{pattern.name}=\0")))
    return any(_find(sample, delete) for sample in samples)


def _parse_edit(text: str) -> Cc1Option:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"expected an option, found {text!r}: {error}") from error
    options = parse_cc1(words)
    if len(options) != 1 or options[0].is_input:
        raise UsageError(f"expected one option of clang -cc1, found {text!r}")
    return options[0]


def _find(options: Sequence[Cc1Option], text: str) -> set[int]:
    """Return the positions of the options that a deletion names."""
    pattern = _parse_edit(text)
    if pattern.name == "-mllvm" and pattern.values:
        return _find_llvm(options, pattern.values[0])
    matches = _matcher(pattern)
    return {p for p, option in enumerate(options) if matches(option)} or _find_llvm(options, pattern.words[0])


def _find_llvm(options: Sequence[Cc1Option], word: str) -> set[int]:
    name, value = split_llvm_word(word)
    found = (o for o in llvm_options(options) if name and o.name == name and value in (None, o.value))
    return {position for option in found for position in option.positions}


def _matcher(pattern: Cc1Option) -> Callable[[Cc1Option], bool]:
    names = (pattern.name, f"{pattern.name}=")
    values = tuple(value for value in pattern.values if value)
    if pattern.name == "-D" and values:
        return lambda option: (
            option.name == "-D"
            and _macro(option) == values[0].partition("=")[0]
            and ("=" not in values[0] or option.values == values)
        )
    return lambda option: option.name in names and (not values or option.values == values)


def _macro(option: Cc1Option) -> str:
    return "".join(option.values).partition("=")[0]


def _replace(options: list[Cc1Option], text: str) -> bool:
    """Set options to another value, in place; return whether there were any."""
    name, equals, value = text.partition("=")
    pattern = _parse_edit(name) if equals else None
    if pattern is None:
        raise UsageError(f"expected NAME=VALUE to replace an option's value, found {text!r}")
    if not (pattern.name == "-mllvm" and pattern.values):
        matches = _matcher(pattern)
        found = [p for p, option in enumerate(options) if matches(option) and option.values]
        for position in found:
            new = f"{_macro(pattern)}={value}" if pattern.name == "-D" and pattern.values else value
            options[position] = options[position].with_value(new)
        if found:
            return True
    llvm_name, _ = split_llvm_word(pattern.values[0] if pattern.name == "-mllvm" and pattern.values else pattern.name)
    replaced = [option for option in llvm_options(options) if llvm_name and option.name == llvm_name]
    gone = {position for option in replaced for position in option.positions[1:]}
    for option in replaced:
        first = option.positions[0]
        options[first] = options[first].with_value(f"-{llvm_name}={value}")
    options[:] = [option for position, option in enumerate(options) if position not in gone]
    return bool(replaced)
