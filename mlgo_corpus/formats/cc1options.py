"""A cc1 command as whole options: which word is an option, which is a value, which is an input.

Clang's own parser (llvm/lib/Option/OptTable.cpp) goes through the words from left to right. A word that does not begin
with a dash, or is only a dash, is an input. Else the longest option that the word is, or begins with, says how many
words follow as its value, whatever they look like: in ``-main-file-name -load`` the second word is a file's name. An
empty word is skipped, but may be a value. There is neither ``--`` nor an abbreviation: clang 17 to 22 do not know
``--``, ``--load`` or ``-mllvm=``.

Which options take the next word is written down in `cc1table`, the union over clang 17 to 22. An option that a compiler
does not know makes that compiler fail, so a union is as good as each one's own table.

LLVM's options
--------------
``-mllvm X`` gives LLVM the word X. LLVM parses all of these words together (llvm/lib/Support/CommandLine.cpp): one or
two dashes, ``-name``, ``-name=value``, or ``-name`` with the next of these words as its value. Which options take the
next one is not known here, but a word without a dash can only be a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mlgo_corpus.formats.cc1table import JOINED, JOINED_AND_SEPARATE, JOINED_OR_SEPARATE, LONGER, SEPARATE

_ALONE = SEPARATE | LONGER
_TAKES_NEXT = SEPARATE | JOINED_OR_SEPARATE
_JOINED = JOINED | JOINED_OR_SEPARATE | JOINED_AND_SEPARATE
_LONGEST_JOINED = max(map(len, _JOINED))


@dataclass(frozen=True, slots=True)
class Cc1Option:
    """One option of a cc1 command, or one input.

    Attributes:
        name: as clang's table has it, a joined one with its ``=``: ``-main-file-name``, ``-O``, ``-fthinlto-index=``.
            Empty for an input.
        values: ``("2",)`` for ``-O2``; empty for a flag, and for an option whose value is missing.
        words: how it is written; joining all options' words gives the command back.
    """

    name: str
    values: tuple[str, ...]
    words: tuple[str, ...]

    @property
    def is_input(self) -> bool:
        """Whether this is a positional word: a file to compile, or an empty word."""
        return not self.name

    @property
    def lacks_value(self) -> bool:
        """Whether the command ends before this option's value."""
        return len(self.values) < (self.name in _TAKES_NEXT) + 2 * (self.name in JOINED_AND_SEPARATE)

    @property
    def text(self) -> str:
        """The option as a person would write it, for messages and reports."""
        return " ".join(self.words)

    def with_value(self, value: str) -> Cc1Option:
        """Give the same option with another value, written as before: in the same word, or in the next."""
        if len(self.words) > 1:
            return Cc1Option(self.name, (*self.values[:-1], value), (*self.words[:-1], value))
        return Cc1Option(self.name, (value,), (self.name + value,))


def parse_cc1(words: Iterable[str]) -> tuple[Cc1Option, ...]:
    """Split a cc1 command into its options; `join_cc1` is the inverse for any words."""
    options: list[Cc1Option] = []
    rest = iter(words)
    for word in rest:
        name, values = _split_word(word)
        taken: tuple[str, ...] = ()
        if (name in _TAKES_NEXT and not values) or name in JOINED_AND_SEPARATE:
            taken = tuple(value for value in (next(rest, None),) if value is not None)
        options.append(Cc1Option(name, values + taken, (word, *taken)))
    return tuple(options)


def join_cc1(options: Iterable[Cc1Option]) -> tuple[str, ...]:
    """Give the words of options, in order."""
    return tuple(word for option in options for word in option.words)


def _split_word(word: str) -> tuple[str, tuple[str, ...]]:
    """Give a word's option and the value that is part of the word, if any."""
    if word in _ALONE or word in JOINED_OR_SEPARATE:
        return word, ()
    if word[:1] != "-" or word == "-":
        return "", (word,)
    head, equals, value = word.partition("=")
    if equals and head + equals in LONGER:
        return head + equals, (value,)
    for length in range(min(len(word), _LONGEST_JOINED), 1, -1):
        if word[:length] in _JOINED:
            return word[:length], (word[length:],)
    return (head + equals, (value,)) if equals else (word, ())


# --- LLVM's own options


@dataclass(frozen=True, slots=True)
class LlvmOption:
    """One option that ``-mllvm`` hands to LLVM.

    Attributes:
        name: without dashes and value, ``inline-threshold``; empty for a value that no option is before.
        value: what follows ``=``, or the word without a dash that follows; None where there is neither.
        positions: which options of the command it is made of: one ``-mllvm``, or more with a value in another.
    """

    name: str
    value: str | None
    positions: tuple[int, ...]


def llvm_options(options: Sequence[Cc1Option]) -> tuple[LlvmOption, ...]:
    """Give the options that a command hands to LLVM. A ``-mllvm`` whose value is missing is none of them."""
    found: list[LlvmOption] = []
    for position, option in enumerate(options):
        if option.name != "-mllvm" or not option.values:
            continue
        (word,) = option.values
        if not word.startswith("-") and found:
            before = found[-1]
            value = word if before.value is None else before.value
            found[-1] = LlvmOption(before.name, value, (*before.positions, position))
            continue
        name, value_or_none = split_llvm_word(word)
        found.append(LlvmOption(name, value_or_none, (position,)))
    return tuple(found)


def split_llvm_word(word: str) -> tuple[str, str | None]:
    """Split ``-name=value`` or ``--name``; a word without a dash is a value without a name."""
    if not word.startswith("-"):
        return "", word
    name, equals, value = word.lstrip("-").partition("=")
    return name, value if equals else None
