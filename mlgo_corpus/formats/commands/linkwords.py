"""The words of a link: what a command that links, or makes an archive, reads and writes, and what it may be run with.

A link is run again with other objects, perhaps for a corpus of a stranger's. So its words are not passed on unseen:
each is one of the roles below, and one that is not known here is refused. Options for the linker are those of GNU's ld
and gold, lld and mold. They reach it by ``-Wl,`` and ``-Xlinker``, in any number of words, which are read as one line.

Dropped, because they only write by-products or print: maps, dependency files, traces, timings, caches of LTO. Also
dropped is what concerns compiling only (``-I``, ``-D``, ``-std=``). Refused are plugins, another linker by its path,
folders of programs (``-B``), files of options, another root for libraries, and whatever is not listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Final

from mlgo_corpus.formats.commands.driver import COMPILING_ONLY, FLAG, WITH_WORD
from mlgo_corpus.formats.commands.driverline import TAKES_NEXT
from mlgo_corpus.formats.commands.languages import C_FAMILY_ENDINGS
from mlgo_corpus.formats.commands.replay import refused_options
from mlgo_corpus.formats.words import word_set


class Role(StrEnum):
    """What a word of a link is.

    Attributes:
        FLAG: an option without a file.
        INPUT: a file to link: an object, an archive, a shared library.
        LIBRARY: a library that is searched by its name.
        FOLDER: a folder to search for libraries.
        FILE: a file that an option names, such as a version script.
        SOURCE: a file to compile first.
        OUTPUT: the file to write.
        DROPPED: has no effect on what is written there.
        REFUSED: not to be run with.
    """

    FLAG = "flag"
    INPUT = "input"
    LIBRARY = "library"
    FOLDER = "folder"
    FILE = "file"
    SOURCE = "source"
    OUTPUT = "output"
    DROPPED = "dropped"
    REFUSED = "refused"


LINKERS: Final = ("ld", "ld.bfd", "ld.gold", "ld.lld")
"""The names by which a build may call a linker itself."""


@dataclass(frozen=True, slots=True)
class LinkWord:
    """One option with its value, or one file.

    Attributes:
        role: what it is.
        words: the words before the value; all of them if there is no value.
        path: the file or the folder, or the library's name.
        joined: whether the value is in the last of the words.
        linker: whether the linker gets it as it is, by ``-Xlinker``.
        why: why it is refused.
    """

    role: Role
    words: tuple[str, ...] = ()
    path: str | None = None
    joined: bool = False
    linker: bool = False
    why: str = ""

    @property
    def name(self) -> str:
        """How the link names its file or library: ``sub/a.o``, ``-lfoo``."""
        return f"-l{self.path}" if self.role is Role.LIBRARY else self.path or ""

    def rendered(self, path: str | None = None) -> tuple[str, ...]:
        """Return it as words for a driver, with another value if one is given."""
        value = self.path if path is None else path
        if value is None:
            words = self.words
        elif self.joined:
            words = (*self.words[:-1], self.words[-1] + value)
        else:
            words = (*self.words, value)
        return tuple(each for word in words for each in ("-Xlinker", word)) if self.linker else words


def read_link(arguments: Sequence[str]) -> tuple[LinkWord, ...]:
    """Return the words of a driver's link, without the driver itself; parameter files are expanded before."""
    return tuple(_Reader(arguments).read())


def read_command(driver: str, arguments: Sequence[str]) -> tuple[LinkWord, ...]:
    """Return the words of a command of ``ar``, of a linker or of a driver."""
    if driver in LINKERS:
        return read_linker(arguments)
    return read_archive(arguments) if driver == "ar" else read_link(arguments)


def output_of(driver: str, words: Sequence[LinkWord]) -> str | None:
    """Return the file that a command writes; None if it writes none."""
    output = next((word.path for word in reversed(words) if word.role is Role.OUTPUT), None)
    return "a.out" if output is None and driver != "ar" else output


def read_archive(arguments: Sequence[str]) -> tuple[LinkWord, ...]:
    """Return the words of an ``ar`` command that adds members to an archive; nothing if it does something else."""
    operands = [word for word in arguments if not word.startswith("--")]
    if len(operands) < 2 or not _ADDING.fullmatch(operands[0]):
        return ()
    operation = operands[0].removeprefix("-")
    # a, b and i take the name of a member, N a number.
    skipped = 1 + bool(set("abi") & set(operation)) + ("N" in operation)
    rest = operands[skipped:]
    if not rest:
        return ()
    flags = tuple(LinkWord(Role.FLAG, (word,)) for word in operands[:skipped])
    inputs = tuple(LinkWord(Role.INPUT, path=word) for word in rest[1:])
    return (*flags, LinkWord(Role.OUTPUT, path=rest[0]), *inputs)


def read_linker(arguments: Sequence[str]) -> tuple[LinkWord, ...]:
    """Return the words of a linker's own command; nothing if it links no file, or loads a plugin.

    The plugin is that of a compiler that is not seen, whose link it is.
    """
    rest = iter(arguments)
    words = []
    for word in rest:
        found = _OUTPUT.fullmatch(word)
        words.append(LinkWord(Role.OUTPUT, ("-o",), found[1] or next(rest, "")) if found else _linker_word(word, rest))
    links = any(word.role in (Role.INPUT, Role.LIBRARY) for word in words)
    return tuple(words) if links and not any(word.why == _LOADS for word in words) else ()


# `r` replaces or adds, `q` adds; the rest of ar's letters modify these.
_ADDING = re.compile(r"-?(?=[a-zA-Z]*[qr])(?![a-zA-Z]*[dmptx])[a-zA-Z]+")

_OUTPUT = re.compile(r"(?:-o|--output=|--output\Z)(.*)", re.DOTALL)

_SOURCES: Final = (*C_FAMILY_ENDINGS, "s", "S", "sx", "asm", "cl", "pcm", "ixx", "ll", "bc")
_SOURCE = re.compile(rf"\.(?:{'|'.join(map(re.escape, _SOURCES))})\Z")

# A driver's options.
_DRIVER_FLAG = re.compile(
    r"""
    -s | -r | -nostartfiles | -nodefaultlibs | -nolibc | -static-(?:libgcc|libstdc\+\+|libsan|pie)
    | -shared-lib(?:gcc|san) | --?coverage | -flto(?:=(?:full|thin|auto|jobserver|[0-9]+))? | -fopenmp=lib[a-z0-9]+
    | -fuse-ld=(?:bfd|gold|lld|mold) | --?(?:rtlib|unwindlib|stdlib)=[A-Za-z0-9+_-]+
    | -f(?:cs-)?profile-(?:instr-)?generate | -export-dynamic | -dynamic
    """,
    re.VERBOSE,
)
_DRIVER_DROPPED = re.compile(
    r"-v|-W[ap],.*|-save-temps(?:=.*)?|--save-temps(?:=.*)?|-fprofile-(?:instr-)?generate=.*|-fprofile-update=.*"
    r"|-f(?:random-seed|max-errors|tls-model|lto-jobs|thinlto-index)=.*|-g[a-z]*[0-9]*|-(?:no-)?integrated-as",
    re.DOTALL,
)
_DRIVER_VALUES = frozenset({"-z", "-u", "-e", "-rpath"})
# More options that concern compiling only.
_COMPILER_VALUES = word_set(
    """
    -Xclang -mllvm -mmlir -Xanalyzer -Xassembler -Xpreprocessor --param -aux-info -dumpbase -dumpdir
    -dependency-file -serialize-diagnostics --serialize-diagnostics -ftrapv-handler -fdebug-compilation-dir
    -mthread-model -cxx-isystem -iprefix -iwithprefix -iwithprefixbefore -iframework -stdlib++-isystem
    --include --imacros --include-directory --define-macro --undefine-macro
    """
)
_TARGET = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")

# Options of linkers, without their dashes. Those without a value:
_LINKER_FLAGS = word_set(
    """
    ( ) start-group end-group start-lib end-lib as-needed no-as-needed push-state pop-state whole-archive
    no-whole-archive Bstatic Bdynamic Bsymbolic Bsymbolic-functions Bno-symbolic Bsymbolic-non-weak
    Bsymbolic-non-weak-functions static dn dy call_shared non_shared no-undefined no-undefined-version
    undefined-version allow-shlib-undefined no-allow-shlib-undefined allow-multiple-definition
    no-allow-multiple-definition gc-sections no-gc-sections gc-keep-exported export-dynamic no-export-dynamic E
    strip-all s strip-debug S strip-debug-gdb strip-debug-non-line discard-all x discard-locals X discard-none
    eh-frame-hdr no-eh-frame-hdr ld-generated-unwind-info no-ld-generated-unwind-info new-dtags enable-new-dtags
    disable-new-dtags add-needed no-add-needed copy-dt-needed-entries no-copy-dt-needed-entries fatal-warnings
    no-fatal-warnings relax no-relax pie no-pie pic-executable shared Bshareable relocatable r i Ur demangle
    no-demangle color-diagnostics omagic N no-omagic nmagic n no-nmagic no-keep-memory reduce-memory-overheads
    threads no-threads sort-common no-sort-common build-id no-build-id  emit-relocs q
    gdb-index no-gdb-index no-incremental rosegment no-rosegment merge-exidx-entries
    no-merge-exidx-entries no-dynamic-linker no-warnings w no-warn-mismatch default-symver force-exe-suffix
    define-common no-define-common d dc dp apply-dynamic-relocs no-apply-dynamic-relocs android-memtag-heap
    android-memtag-stack use-android-relr-tags execute-only no-execute-only ignore-data-address-equality
    ignore-function-address-equality print-icf-sections no-print-icf-sections fix-cortex-a53-843419
    fix-cortex-a8 fix-cortex-a53-835769 no-fix-cortex-a53-835769 be8 be8-compat long-plt tls-optimize
    no-tls-optimize toc-optimize no-toc-optimize lto-whole-program-visibility no-lto-whole-program-visibility
    fat-lto-objects no-fat-lto-objects error-unresolved-symbols warn-unresolved-symbols
    no-error-rwx-segments no-error-execstack check-sections no-check-sections accept-unknown-input-arch
    no-accept-unknown-input-arch traditional-format no-gnu-unique gnu-unique
    unique no-mmap-output-file nostdlib target1-abs target1-rel EB EL strip-dwo no-strip-discarded
    """
)
_LINKER_WARNING = re.compile(r"(?:no-)?warn-[a-z-]+")
# Those with a value that names neither a file to read nor one to write; and those that have it only behind a =.
_LINKER_VALUES = word_set(
    """
    soname h rpath rpath-link dynamic-linker I m e entry u undefined undefined-glob require-defined defsym wrap z
    sort-section icf image-base Ttext Tdata Tbss Ttext-segment Trodata-segment Tldata-segment section-start
    exclude-libs export-dynamic-symbol export-dynamic-symbol-glob thread-count init fini unresolved-symbols
    trace-symbol y hash-style hash-size pack-dyn-relocs spare-dynamic-tags orphan-handling
    package-metadata keep-unique error-limit shuffle-sections stub-group-size split-stack-adjust-size
    target2 max-page-size common-page-size G lto-partitions thinlto-jobs lto-CGO physical-image-base
    compress-debug-sections build-id threads sort-common dynamic-undefined-weak
    section-align ctf-share-types filter auxiliary f F audit depaudit P
    """
)
_ONLY_BEHIND_EQUALS = frozenset({"compress-debug-sections", "build-id", "threads", "sort-common"})
_LINKER_FILES = word_set(
    """
    version-script dynamic-list export-dynamic-symbol-list retain-symbols-file symbol-ordering-file
    call-graph-ordering-file section-ordering-file T script default-script dT just-symbols R
    """
)
# Options that only print or write by-products, without and with a value.
_LINKER_DROPPED = word_set(
    """
    M print-map cref t trace verbose stats print-memory-usage print-gc-sections no-print-gc-sections save-temps
    time-trace no-cref print-symbol-counts v V
    """
)
_LINKER_DROPPED_VALUES = word_set(
    """
    Map dependency-file reproduce why-extract print-archive-stats print-symbol-order time-trace-file
    time-trace-granularity out-implib thinlto-cache-dir thinlto-cache-policy
    """
)
_LINKER_LEVEL = re.compile(r"-O[0-9sz]*|--?lto-O[0-9]|--?lto-CGO[0-9]|-plugin-opt=(?:O[0-9]|mcpu=[A-Za-z0-9_.-]+)")
# Values in the word of an option of one letter, where it cannot be taken for a longer option.
_LINKER_JOINED = re.compile(
    r"-z[a-z][a-z0-9=_.-]*|-m(?:elf|aarch64|armelf)[a-z0-9_]*|-[eu](?:main|_\w*)|-hlib[\w.+-]*|-I/[\w./+-]*"
)
_LINKER_SCRIPT = re.compile(r"-T[\w./+-]*\.(?:lds?|x)")

_LOADS = "it would load code into the linker"
_UNKNOWN = "it is not among the options of a link that are known here"
_NO_VALUE: Final = "its value is missing"
# Linkers differ in which options take the next word: GNU's ld reads `-library -plugin x.so` as `-l ibrary`, `-plugin`.
_OPTION: Final = ("-", "@")
_AN_OPTION: Final = "its value may be read as an option"
_OTHER_ROOT = re.compile(r"--?(?:sysroot|gcc-toolchain|gcc-install-dir|isysroot)\b.*", re.DOTALL)
_WHY = (
    (re.compile(r"-+(?:f?plugin|fpass-plugin|load-pass-plugin|plugin-opt)\b.*"), _LOADS),
    (re.compile(r"-B.*|--(?:ld-path|prefix)\b.*|-fuse-ld=.*|-ccc-.*"), "it would run another program"),
    (re.compile(r"-+(?:specs|config|wrapper)\b.*|@.*"), "it names a file or a program of more options"),
    (_OTHER_ROOT, "it names another root for libraries"),
)


def _refused(word: str, why: str = "") -> LinkWord:
    return LinkWord(Role.REFUSED, (word,), why=why or _why(word))


def _why(word: str) -> str:
    return next((told for pattern, told in _WHY if pattern.fullmatch(word)), _UNKNOWN)


class _Reader:
    """Reads the words of a driver in their order."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._rest = iter(arguments)
        self._language = "none"
        # The words for the linker that are not read yet: the value of an option may be in the next -Wl.
        self._linkers: list[str] = []

    def read(self) -> Iterator[LinkWord]:
        only_files = False
        for word in self._rest:
            if only_files:
                yield self._file(word)
            elif word.startswith("-Wl,"):
                self._linkers += word.split(",")[1:]
                continue
            elif word == "-Xlinker":
                value = next(self._rest, None)
                if value is None:
                    yield _refused(word, _NO_VALUE)
                else:
                    self._linkers.append(value)
                continue
            else:
                yield from self._flush()
                if word == "--":
                    only_files = True
                else:
                    yield from self._driver(word)
        yield from self._flush()

    def _driver(self, word: str) -> Iterator[LinkWord]:
        if not word.startswith("-"):
            yield _refused(word) if word.startswith("@") else self._file(word)
        elif word == "-":
            yield _refused(word, "it reads stdin")
        elif (found := self._valued(word)) is not None:
            yield found
        elif word.startswith("-x") and word != "-x":
            self._language = word[2:]
            yield LinkWord(Role.DROPPED, (word,))
        elif word.startswith("--language="):
            self._language = word.partition("=")[2]
            yield LinkWord(Role.DROPPED, (word,))
        elif _DRIVER_FLAG.fullmatch(word):
            yield LinkWord(Role.FLAG, (word,))
        elif _DRIVER_DROPPED.fullmatch(word):
            yield LinkWord(Role.DROPPED, (word,))
        elif _OTHER_ROOT.fullmatch(word):
            yield _refused(word)
        elif COMPILING_ONLY.fullmatch(word):
            yield LinkWord(Role.DROPPED, (word,))
        elif FLAG.fullmatch(word) or WITH_WORD.fullmatch(word):
            yield LinkWord(Role.FLAG, (word,))
        else:
            yield _refused(word)

    def _valued(self, word: str) -> LinkWord | None:
        """Return an option whose value is in the next word, or may be in the same one."""
        for option, role in (("-o", Role.OUTPUT), ("-l", Role.LIBRARY), ("-L", Role.FOLDER), ("-T", Role.FILE)):
            if word == option or (role is Role.OUTPUT and word == "--output"):
                value = next(self._rest, None)
                return _refused(word, _NO_VALUE) if value is None else LinkWord(role, (option,), value)
            if word.startswith(option) and not (role is Role.FILE and re.match("-T(?:text|data|bss)", word)):
                return LinkWord(role, (option,), word[2:], joined=True)
        if word.startswith("--output="):
            return LinkWord(Role.OUTPUT, ("-o",), word.partition("=")[2])
        if word in ("-x", "--language"):
            self._language = next(self._rest, "none")
            return LinkWord(Role.DROPPED, (word, self._language))
        if word == "-target":
            value = next(self._rest, None)
            if value is None or not _TARGET.fullmatch(value):
                return _refused(word, _NO_VALUE)
            return LinkWord(Role.FLAG, (f"--target={value}",))
        if word in _DRIVER_VALUES:
            value = next(self._rest, None)
            if value is None:
                return _refused(word, _NO_VALUE)
            if value.startswith(_OPTION):
                return LinkWord(Role.REFUSED, (word, value), why=_AN_OPTION)
            return LinkWord(Role.FLAG, (word, value))
        if word in TAKES_NEXT:
            words = (word, *islice(self._rest, 1))
            if word in _COMPILER_VALUES or (COMPILING_ONLY.fullmatch(word) and not _OTHER_ROOT.fullmatch(word)):
                return LinkWord(Role.DROPPED, words)
            return LinkWord(Role.REFUSED, words, why=_why(word))
        if re.fullmatch(r"-[zu][A-Za-z_].*", word):
            return LinkWord(Role.FLAG, (word,))
        return None

    def _file(self, word: str) -> LinkWord:
        is_source = self._language != "none" or _SOURCE.search(word) is not None
        return LinkWord(Role.SOURCE if is_source else Role.INPUT, path=word)

    def _flush(self) -> Iterator[LinkWord]:
        """Read the words for the linker that stand side by side."""
        words, self._linkers = iter(self._linkers), []
        for word in words:
            yield _linker_word(word, words)


def _linker_word(word: str, rest: Iterator[str]) -> LinkWord:
    """Return a word for the linker, with its value."""
    if not word.startswith("-"):
        if word.startswith("@") or not word:
            return _refused(f"-Wl,{word}", _UNKNOWN if not word else "it names a file of more options")
        return LinkWord(Role.INPUT, path=word, linker=True)
    name, equals, value = word.lstrip("-").partition("=")
    both = word[: len(word) - len(value)]
    if name in _LINKER_FLAGS and not equals:
        # GNU's other name of -r, which lld does not know.
        return LinkWord(Role.FLAG, ("-r" if name == "i" else word,), linker=True)
    if _LINKER_LEVEL.fullmatch(word) or (_LINKER_WARNING.fullmatch(name) and not equals):
        return LinkWord(Role.FLAG, (word,), linker=True)
    if name in _LINKER_DROPPED and not equals:
        return LinkWord(Role.DROPPED, (word,), linker=True)
    if word.startswith(("-l", "-L")) and not word.startswith("-lto"):
        role = Role.LIBRARY if word[1] == "l" else Role.FOLDER
        if len(word) > 2:
            return LinkWord(role, (word[:2],), word[2:], joined=True, linker=True)
        return _with_next(role, word, rest)
    for names, role in (
        (_LINKER_FILES, Role.FILE),
        (_LINKER_VALUES, Role.FLAG),
        (_LINKER_DROPPED_VALUES, Role.DROPPED),
        (frozenset({"library", "library-path"}), Role.LIBRARY if name == "library" else Role.FOLDER),
    ):
        if name in names:
            if equals:
                return LinkWord(role, (both,), value, joined=True, linker=True)
            return _with_next(role, word, rest) if name not in _ONLY_BEHIND_EQUALS else _refused(f"-Wl,{word}")
    if name == "mllvm":
        option = value if equals else next(rest, "")
        told = refused_options(("-cc1", "-mllvm", option))
        words = (word,) if equals else (word, option)
        return _refused(f"-Wl,-mllvm,{option}", told[0][1]) if told else LinkWord(Role.FLAG, words, linker=True)
    if _LINKER_JOINED.fullmatch(word):
        return LinkWord(Role.FLAG, (word[:2],), word[2:], joined=True, linker=True)
    if _LINKER_SCRIPT.fullmatch(word):
        return LinkWord(Role.FILE, ("-T",), word[2:], joined=True, linker=True)
    return _refused(f"-Wl,{word}", _why(word))


def _with_next(role: Role, word: str, rest: Iterator[str]) -> LinkWord:
    value = next(rest, None)
    if value is None:
        return _refused(f"-Wl,{word}", _NO_VALUE)
    if value.startswith(_OPTION) and role is not Role.DROPPED:
        return LinkWord(Role.REFUSED, (word, value), linker=True, why=_AN_OPTION)
    return LinkWord(role, (word,), value, linker=True)
