"""Lines of clang's driver, as a corpus may have one for all its modules: ``-fPIC --target=x86_64-linux-gnu -O2 -c``.

A module's own command is cc1's, as clang embeds it. A ``global_command_override`` is written by hand, and
ml-compiler-opt puts it after ``clang`` as it is, so it may be either. A line is cc1's if it begins with ``-cc1``, or
names its target as only cc1 does, with ``-triple``; any other is the driver's.

A replay runs cc1 lines only. So the driver itself says which cc1 line it makes of its options (``clang -###``, which
compiles nothing), and that line is checked and run as every other (`replay`). But the driver can do more than compile:
it starts programs to ask for an architecture, loads plugins, reads files of options, writes databases of commands. So
it is given no word that is not listed here:

- flags, and options with a name or a number as their value, that determine how code is generated;
- options for cc1 and for LLVM, which are checked as in a cc1 line.

Options that have no effect when the input is IR, or that name what to compile and where to, are left out, with their
values. Everything else is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from mlgo_corpus.errors import UsageError
from mlgo_corpus.formats.commands.replay import refused_options

# Flags have no value, so they name neither a file nor a program. clang itself refuses those that it does not know.
# Not among them are those by which it makes something else than an object, compiles for several devices, or reads a
# profile of a usual name.
FLAG = re.compile(
    r"""
    -c | -w | -pipe | -pthread | -pg | -static | -shared | -rdynamic | -(?:no-|static-)?pie | -Qunused-arguments
    | -pedantic(?:-errors)? | -ansi | -nostd(?:inc|lib)(?:\+\+)? | -(?:no-)?canonical-prefixes
    | -O(?:[0-4]|s|z|g|fast)?
    | -f(?!lto|plugin|proc-|driver|syntax|embed|no-integrated|profile-(?:instr-)?use|sycl|offload|hip|gpu|cuda)
      [A-Za-z][A-Za-z0-9+_-]*
    | -m(?!llvm$|mlir$|ulti|odule)[a-z0-9][A-Za-z0-9._-]*
    | -W[A-Za-z0-9+#_-]*(?:=[A-Za-z0-9+_-]*)?
    | -g(?:[0-3] | gdb[0-3]? | lldb | dwarf(?:-[2-5]|32|64)? | z | mlt | line-tables-only | line-directives-only
      | split-dwarf | (?:no-)?(?:column-info|inline-line-tables|split-dwarf|simple-template-names|strict-dwarf|pubnames)
      )?
    """,
    re.VERBOSE,
)
# Options whose value is in the same word: a name, a number or one of a few words.
WITH_WORD = re.compile(
    r"""
    (?: --target
    | -f(?: align-(?:functions|loops) | basic-block-sections | cf-protection | clang-abi-compat | denormal-fp-math
        | excess-precision | fp-contract | fp-eval-method | fp-exception-behavior | fp-model | inline-max-stacksize
        | max-type-align | (?:no-)?sanitize | (?:no-)?sanitize-(?:recover|trap|coverage|merge)
        | sanitize-address-(?:destructor|use-after-return) | sanitize-memory-track-origins | stack-protector
        | strict-flex-arrays | tls-model | trivial-auto-var-init | veclib | visibility | zero-call-used-regs )
    | -m(?: abi | align-branch | align-branch-boundary | arch | branch-protection | cmodel | cpu | float-abi | fpmath
        | fpu | function-return | guard | harden-sls | hwdiv | implicit-it | indirect-jump | large-data-threshold
        | macos-version-min | ios-version-min | pad-max-prefix-size | prefer-vector-width | recip | regparm
        | rvv-vector-bits | sign-return-address | small-data-limit | stack-alignment | stack-probe-size
        | stack-protector-guard | stack-protector-guard-offset | stack-protector-guard-reg | sve-vector-bits
        | tls-dialect | tls-size | tune )
    | -g(?: z | split-dwarf )
    )=[A-Za-z0-9_.,:+!-]*
    """,
    re.VERBOSE,
)
# Options whose value is the next word, for cc1 and for LLVM.
_PASSED_ON: Final = frozenset({"-Xclang", "-mllvm"})
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")

_NO_VALUE: Final = "its value is missing"
_FILE_OF_WORDS: Final = "clang would replace a word that begins with @ by a file's words"

# Options that are left out. Of these, those that end where their value could begin take the next word.
COMPILING_ONLY = re.compile(
    r"""
    -(?: [DUIFLl] | isystem(?:-after)? | iquote | idirafter | isysroot | include(?:-pch)? | imacros | M[FTQJ] | o
         | x )(?P<value>.*)
    | -M(?:M?D|P|G|V)? | --?std=.* | -stdlib=.* | --sysroot=.* | -(?:trigraphs|undef|v|H|P)
    | -f(?:color-diagnostics|diagnostics-.*|ansi-escape-codes|error-limit=.*|message-length=.*|template-depth=.*)
    | -f(?:debug|file|macro|coverage)-(?:prefix-map|compilation-dir)=.*
    """,
    re.VERBOSE | re.DOTALL,
)


def is_driver_line(options: Sequence[str]) -> bool:
    """Return True if a line that a corpus has for all its modules is the driver's, and not cc1's."""
    return bool(options) and options[0] != "-cc1" and "-triple" not in options


def driver_words(line: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a driver's line that the driver may be given to make a cc1 line of them.

    Options with a value in the next word are first: a flag of another clang that takes the next word as its value, too,
    would otherwise make an option of theirs.

    Raises:
        UsageError: the line has one of `refused_driver_options`.
    """
    for text, why in refused_driver_options(line):
        raise UsageError(f"{text}: {why}")
    found = [words for words, _ in _iter_options(line)]
    return tuple(word for words in sorted(found, key=len, reverse=True) for word in words)


def refused_driver_options(line: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Find the words of a driver's line that the driver is not given, or that cc1 would not be run with.

    Returns:
        Each such option and the reason; nothing if a cc1 line can be made of the line. That is checked, too.
    """
    found = tuple(_iter_options(line))
    cc1 = (words[1:] if words[0] == "-Xclang" else words for words, _ in found if words[0] in _PASSED_ON)
    refused = [(" ".join(words), why) for words, why in found if why]
    return (*refused, *refused_options(("-cc1", *chain.from_iterable(cc1))))


def _iter_options(line: Iterable[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the options to give to the driver, each with the reason if it must not have it."""
    rest = iter(line)
    for word in rest:
        if (left_out := COMPILING_ONLY.fullmatch(word)) is not None:
            if left_out["value"] == "" and next(rest, None) is None:
                yield (word,), _NO_VALUE
        elif word in _PASSED_ON:
            value = next(rest, None)
            yield (word, value or ""), _NO_VALUE if value is None else _FILE_OF_WORDS if value[:1] == "@" else ""
        elif word == "-target":
            value = next(rest, None)
            yield (f"--target={value or ''}",), "" if value and _NAME.fullmatch(value) else _NO_VALUE
        elif FLAG.fullmatch(word) or WITH_WORD.fullmatch(word):
            yield (word,), ""
        elif word[:1] == "-":
            yield (word,), "it is not among the options of clang's driver that only generate code"
        else:
            yield (word,), _FILE_OF_WORDS if word[:1] == "@" else "expected an option of clang's driver, or -cc1 first"
