"""A cc1 command as whole options: separate options, values and inputs.

Clang's own parser (llvm/lib/Option/OptTable.cpp) reads the words from left to right. A word that does not begin
with a dash, or is only a dash, is an input, and so is one that begins with a slash unless it is an option. Otherwise
the longest option that the word is, or begins with, determines how many words follow as its value, whatever they look
like: in ``-main-file-name -load`` the second word is a file's name. An empty word is skipped, but may be a value. There
is neither ``--`` nor an abbreviation: clang 17 to 22 do not know ``--``, ``--load`` or ``-mllvm=``.

An option may have several prefixes: ``--include`` is ``-include``, and ``/validator-version`` an option. `cc1table` has
the spellings of all options of clang 17 to 22, and which of them take the next word. Other words are unknown, and the
words after an unknown one are unreliable: a newer clang's option may take the next word. An option that only some of
these versions have makes the others fail, so their union serves as well as each one's own table. `cc1table.SHADOWED`
has the spellings that versions read differently.

LLVM's options
--------------
``-mllvm X`` passes the word X to LLVM. LLVM parses all of these words together (llvm/lib/Support/CommandLine.cpp): one
or two dashes, ``-name``, ``-name=value``, or ``-name`` with the next of these words as its value, whatever it looks
like, if the option requires one. `llvmtable` has the names. There are no positional words and no abbreviations. The
only option whose value follows without a ``=`` is ``-gpsize8``, which is unknown here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mlgo_corpus.formats.commands import llvmtable
from mlgo_corpus.formats.commands.cc1table import FLAG, JOINED, JOINED_AND_SEPARATE, JOINED_OR_SEPARATE, SEPARATE


def _by_spelling(spellings: Iterable[str], known: frozenset[str]) -> dict[str, str]:
    """Name the options of one kind: an option with several prefixes by the one with a single dash."""
    single = {spelling: f"-{spelling.lstrip('-/')}" for spelling in spellings}
    return {spelling: name if name in known else spelling for spelling, name in single.items()}


_NO_VALUE_IN_WORD = {
    name: option for kind in (FLAG, SEPARATE, JOINED_OR_SEPARATE) for name, option in _by_spelling(kind, kind).items()
}
_JOINED = {
    name: option
    for kind in (JOINED, JOINED_OR_SEPARATE, JOINED_AND_SEPARATE)
    for name, option in _by_spelling(kind, kind).items()
}
_LONGEST_JOINED = max(map(len, _JOINED))
_TAKES_NEXT = SEPARATE | JOINED_OR_SEPARATE
_KNOWN = frozenset({"", *_NO_VALUE_IN_WORD.values(), *_JOINED.values()})


@dataclass(frozen=True, slots=True)
class Cc1Option:
    """One option of a cc1 command, or one input.

    Attributes:
        name: as in clang's table, a joined one with its ``=``: ``-main-file-name``, ``-O``, ``-fthinlto-index=``.
            With a single dash if there are several prefixes. Empty for an input.
        values: ``("2",)`` for ``-O2``; empty for a flag, and for an option whose value is missing.
        words: as written; all options' words in order are the command.
    """

    name: str
    values: tuple[str, ...]
    words: tuple[str, ...]

    @property
    def is_input(self) -> bool:
        """Whether this is a positional word: a file to compile, or an empty word."""
        return not self.name

    @property
    def is_known(self) -> bool:
        """Whether this is an option of clang 17 to 22, or an input."""
        return self.name in _KNOWN

    @property
    def lacks_value(self) -> bool:
        """Whether the command ends before this option's value."""
        return len(self.values) < (self.name in _TAKES_NEXT) + 2 * (self.name in JOINED_AND_SEPARATE)

    @property
    def text(self) -> str:
        """The option as a person would write it, for messages and reports."""
        return " ".join(self.words)

    def with_value(self, value: str) -> Cc1Option:
        """Return the same option with another value, written as before: in the same word, or in the next."""
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
    """Return the words of options, in order."""
    return tuple(word for option in options for word in option.words)


def _split_word(word: str) -> tuple[str, tuple[str, ...]]:
    """Return a word's option and the value that is part of the word, if any."""
    if name := _NO_VALUE_IN_WORD.get(word):
        return name, ()
    if word[:1] != "-" or word == "-":
        return "", (word,)
    head, equals, value = word.partition("=")
    # No joined option has more characters after a "=".
    if equals and (name := _JOINED.get(head + equals)):
        return name, (value,)
    for length in range(min(len(word), _LONGEST_JOINED), 1, -1):
        if name := _JOINED.get(word[:length]):
            return name, (word[length:],)
    return (head + equals, (value,)) if equals else (word, ())


# --- LLVM's own options


@dataclass(frozen=True, slots=True)
class LlvmOption:
    """One option that ``-mllvm`` passes to LLVM.

    Attributes:
        name: without dashes and value, ``inline-threshold``; empty for a word that is not an option or its value.
        value: the text after ``=``, or the next word; None if there is neither.
        positions: the positions of its options in the command: one ``-mllvm``, or two with the value in the second.
    """

    name: str
    value: str | None
    positions: tuple[int, ...]

    @property
    def is_known(self) -> bool:
        """Whether LLVM 17 to 22 have an option of this name."""
        return self.name in _LLVM_KNOWN

    @property
    def is_ambiguous(self) -> bool:
        """Whether versions of LLVM disagree about the next word being its value."""
        return self.name in llvmtable.DIFFERS and (self.value is None or len(self.positions) > 1)

    @property
    def lacks_value(self) -> bool:
        """Whether the command ends before this option's value."""
        return self.value is None and self.name in llvmtable.REQUIRED

    @property
    def takes_text(self) -> bool:
        """Whether any text can be its value. Otherwise it is a number, a truth value or one of a few words."""
        return self.name in llvmtable.TEXT


_LLVM_KNOWN = llvmtable.REQUIRED | llvmtable.OPTIONAL | llvmtable.DIFFERS


def llvm_options(options: Sequence[Cc1Option]) -> tuple[LlvmOption, ...]:
    """Return the options that a command passes to LLVM. A ``-mllvm`` whose value is missing is left out.

    An unknown option gets the word after it as its value, if that has no dash.
    """
    words = [(at, option.values[0]) for at, option in enumerate(options) if option.name == "-mllvm" and option.values]
    found: list[LlvmOption] = []
    for position, word in words:
        before = found[-1] if found else None
        if before is not None and before.value is None and _takes_next(before.name, word):
            found[-1] = LlvmOption(before.name, word, (*before.positions, position))
        else:
            found.append(LlvmOption(*split_llvm_word(word), (position,)))
    return tuple(found)


def _takes_next(name: str, word: str) -> bool:
    if name in llvmtable.REQUIRED:
        return True
    return bool(name) and name not in llvmtable.OPTIONAL and not word.startswith("-")


def split_llvm_word(word: str) -> tuple[str, str | None]:
    """Split ``-name=value`` or ``--name``; a word without a dash is a value without a name."""
    if not word.startswith("-"):
        return "", word
    name, equals, value = word[2 if word.startswith("--") else 1 :].partition("=")
    return name, value if equals else None
