r"""A shim's record of one compile, link or archive.

A record is words, each ended by NUL, so that any argument can be stored:

- ``mlgo-compile-1``;
- ``c`` or ``c++``: the one of the compiler's two drivers that ran; or ``ar``; or a linker: ``ld``, ``ld.lld``, ...;
- ``object``, or ``program`` if the command links, with or without compiling, or makes an archive;
- the compiler's exit code; 0 if it did not compile, for then the record is written before it runs;
- the folder it ran in, or the one that ``-working-directory`` had clang go to;
- the number of its arguments, and the arguments, without the program and without the shim's additions;
- entries, in any number: ``source``, NAME; ``object``, NAME, COPY; ``words``, @NAME, COPY;
- ``end``. A record without it was not finished.

NAME is as in the command, relative to the folder. COPY is the suffix that makes the record's own file name, after a
dot, the name of the copy that was taken; it is empty if there is none. ``words`` is a parameter file among the
arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from mlgo_corpus.errors import FormatError, TruncatedError
from mlgo_corpus.formats.commands.buildfiles import with_parameter_files
from mlgo_corpus.formats.commands.linkwords import LINKERS

_MAGIC = "mlgo-compile-1"
_COMPILERS = ("c", "c++")
_DRIVERS = (*_COMPILERS, "ar", *LINKERS)
_KINDS = ("object", "program")


@dataclass(frozen=True, slots=True)
class CompileRecord:
    """One command.

    Attributes:
        driver: ``c``, ``c++``, ``ar`` or a linker's name.
        links: whether the command links, so that its output is a program.
        status: the compiler's exit code; 128 plus a signal's number, as in shells.
        directory: the folder that the names are relative to.
        arguments: the build's arguments.
        sources: the compiled files.
        objects: the objects it wrote, each with the number of its copy or an empty string.
        responses: the parameter files among the arguments, with their ``@``, each with the number of its copy likewise.
    """

    driver: str
    links: bool
    status: int
    directory: str
    arguments: tuple[str, ...]
    sources: tuple[str, ...]
    objects: tuple[tuple[str, str], ...]
    responses: tuple[tuple[str, str], ...]

    @property
    def compiles(self) -> bool:
        """Whether the command compiles; else it only links, or makes an archive."""
        return bool(self.sources) and self.driver in _COMPILERS

    def expanded(self, words: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
        """Return the arguments with known parameter files, and those that they name, replaced by their words."""
        return with_parameter_files(self.arguments, words.get)


def parse_compile_record(data: bytes) -> CompileRecord:
    """Read a record.

    Raises:
        TruncatedError: the shim was ended before it had written the whole record.
        FormatError: the data is not a record.
    """
    text = data.decode("utf-8", "surrogateescape")
    if not text.endswith("end\0"):
        raise TruncatedError(f"reading a compile's record, expected its end, found {text[-16:]!r}")
    words = iter(text.split("\0")[:-1])
    try:
        _one_of((_MAGIC,), next(words))
        driver = _one_of(_DRIVERS, next(words))
        links = _one_of(_KINDS, next(words)) == "program"
        status = _number(next(words))
        directory = next(words)
        arguments = tuple(next(words) for _ in range(_number(next(words))))
        record = CompileRecord(driver, links, status, directory, arguments, (), (), ())
        return _with_entries(record, words)
    except (StopIteration, RuntimeError):  # a generator turns the one into the other
        raise TruncatedError("reading a compile's record, expected more words") from None


def _with_entries(record: CompileRecord, words: Iterator[str]) -> CompileRecord:
    sources: list[str] = []
    objects: list[tuple[str, str]] = []
    responses: list[tuple[str, str]] = []
    while (entry := next(words)) != "end":
        if entry == "source":
            sources.append(next(words))
        elif entry == "object":
            objects.append((next(words), _copy(next(words))))
        elif entry == "words":
            responses.append((next(words), _copy(next(words))))
        else:
            raise FormatError(f"expected an entry of a compile's record, found {entry[:40]!r}")
    if next(words, None) is not None:
        raise FormatError("a compile's record has more words after its end")
    return replace(record, sources=tuple(sources), objects=tuple(objects), responses=tuple(responses))


def _one_of(expected: tuple[str, ...], word: str) -> str:
    if word not in expected:
        raise FormatError(f"expected {' or '.join(expected)}, found {word[:40]!r}")
    return word


def _number(word: str) -> int:
    if not word.isascii() or not word.isdigit() or len(word) > 9:
        raise FormatError(f"expected a number, found {word[:40]!r}")
    return int(word)


def _copy(word: str) -> str:
    if word:
        _number(word)
    return word
