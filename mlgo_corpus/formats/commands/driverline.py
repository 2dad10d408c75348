"""A driver's command for one source, as another compiler of its family can run it: gcc's by clang.

A compilation database has the command that made an object. `read_compile` takes it apart: what is written elsewhere
(dependencies, diagnostics, modules, intermediate files), what is linked, and other sources are left out, so that the
rest can be given to a compiler with another ``-o``. Options of LTO are left out, too: with them the object is bitcode,
and nothing is embedded in it.

Compilers of one family differ in their options. `without_refused` reads from clang's messages which words of a command
made it fail; without these it compiles.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from mlgo_corpus.formats.commands.buildfiles import program_index
from mlgo_corpus.formats.commands.languages import C_FAMILY_ENDINGS, CLANG_NAMES
from mlgo_corpus.formats.commands.options import parse_cc1
from mlgo_corpus.formats.words import word_set

# Options whose value is the next word, however that looks; the same are in runs/builds/shim.sh.
TAKES_NEXT = word_set(
    """
    -I -D -U -L -l -F -T -u -z -e -A -B -G -include -include-pch -imacros -isystem -isystem-after -cxx-isystem -iquote
    -idirafter -iprefix -iwithprefix -iwithprefixbefore -isysroot -iframework -ivfsoverlay -MF -MT -MQ -MJ -Xlinker
    -Xassembler -Xpreprocessor -Xanalyzer -mllvm -mmlir -target -arch -framework -aux-info -dumpbase -dumpdir -rpath
    -install_name -current_version -compatibility_version -undefined -bundle_loader -working-directory -resource-dir
    --param --sysroot --include --define-macro --undefine-macro --include-directory --library-directory
    --serialize-diagnostics -serialize-diagnostics --config -o --output -x --language -Xclang --imacros -iwithsysroot
    -iframeworkwithsysroot -imultilib -stdlib++-isystem -vfsoverlay --vfsoverlay -dependency-file -ftrapv-handler
    -fdebug-compilation-dir -filelist -mthread-model
    """
)
_TAKES_NEXT_BEGINNINGS = ("-Xopenmp-target", "-Xarch_")

# Words that write something other than the object, say how it is embedded, or end the command before it is written.
_WRITES = re.compile(
    r"-c|--compile|-M[DMPGV]?|-MMD|-M[FTQJ].*|-dependency-file|-o.*|--output(?:=.*)?|-Wp,-M.*|-save-temps(?:=.*)?|--save-temps(?:=.*)?"
    r"|--?serialize-diagnostics|-ftime-trace(?:=.*)?|-fembed-bitcode.*|-emit-llvm|-pipe|-###|-v|-fdump-.*|-aux-info"
    r"|-fmodule-output(?:=.*)?|-fmodules-cache-path=.*|-fsave-optimization-record(?:=.*)?|-foptimization-record-.*"
    r"|--?save-stats(?:=.*)?|-fproc-stat-report(?:=.*)?|-fcrash-diagnostics-dir=.*|-gen-cdb-fragment-path"
    r"|-index-store-path|-dumpdir|-Wa,(?:.*,)?-(?:a|-?MD).*"
)
# The same for words with a value that they pass on: lists and dependencies of the assembler, statistics of LLVM.
_PASSES_WRITES = re.compile(r"-Xassembler -(?:a|-?MD).*|-mllvm --?info-output-file=.*")
# The same for options of cc1, by their names in `parse_cc1`.
_CC1_WRITES = re.compile(
    r"-o|-dependency-(?:file|dot)|-module-dependency-dir|-header-include-file|-serialize-diagnostic-file"
    r"|-diagnostic-log-file|-opt-record-file|-split-dwarf-output|-stack-usage-file|-stats-file=|-ftime-trace=?"
    r"|-coverage-notes-file=?|-index-store-path|-fmodule-output=|-fmodules-cache-path=|-fthin-link-bitcode="
    r"|-fverify-debuginfo-preserve-export=|-fembed-bitcode.*|-emit-.*"
)
_NOT_OUTPUTS = re.compile(r"-(?:object|objcmt).*")
_LTO = re.compile(r"-flto(?:[=-].*)?|-ffat-lto-objects|-fuse-linker-plugin|-fwhole-program-vtables")

_CODE = re.compile(rf"\.(?:{'|'.join(map(re.escape, C_FAMILY_ENDINGS))})\Z")
_ASSEMBLY = re.compile(r"\.(?:[sS]|sx|asm)\Z")

_COMPILER = re.compile(r"(?:(?P<triple>\w+-[\w.]+(?:-[\w.]+)*)-)?(?:cc|c\+\+|gcc|g\+\+|clang|clang\+\+)(?:-[\d.]+)?")


class Language(StrEnum):
    """What a source is written in."""

    CODE = "C, C++ or Objective-C"
    ASSEMBLY = "assembly"
    OTHER = "another language"


@dataclass(frozen=True, slots=True)
class SourceCompile:
    """The compile of one source.

    Attributes:
        is_cxx: whether the program is a C++ compiler.
        triple: the target in the program's name, such as ``aarch64-linux-gnu``; None if there is none.
        source: the source that the command names, or else the one that was asked for.
        language: what the source is written in.
        words: the options and the source, without an output.
        left_out: options of LTO that are not among the words.
    """

    is_cxx: bool
    triple: str | None
    source: str
    language: Language
    words: tuple[str, ...]
    left_out: tuple[str, ...]


def read_compile(arguments: Sequence[str], source: str, directory: str) -> SourceCompile:
    """Take apart the command that compiles ``source``.

    Args:
        arguments: the command; a launcher (ccache) may come before the compiler.
        source: the source to compile, if the command has several; a command that has one compiles that, for what is
            said of it may be another path of the same file, or wrong.
        directory: the folder that the command runs in.
    """
    index = program_index(arguments)
    program = os.path.basename(arguments[index])
    named = _COMPILER.fullmatch(program)
    words: list[str] = []
    left_out: list[str] = []
    language: str | None = None
    found: str | None = None
    options = list(_whole_options(arguments[index + 1 :]))
    named_source = _named_source([option for option, _ in options if _is_input(option)], source, directory)
    is_kept_by_cc1 = _kept_by_cc1([value or "" for option, value in options if option == "-Xclang"])
    for option, value in options:
        if _is_input(option):
            if found is None and option == named_source:
                found = language or ""
                words.append(option)
        elif option.startswith(("-x", "--language")):
            language = value or re.sub(r"-x|--language=?", "", option)
            if found is None:
                words += [f"-x{language}"]
        elif _LTO.fullmatch(option):
            left_out.append(option)
        elif (option == "-Xclang" and not next(is_kept_by_cc1)) or _PASSES_WRITES.fullmatch(f"{option} {value}"):
            continue
        elif not _WRITES.fullmatch(option) or _NOT_OUTPUTS.fullmatch(option):
            words += [option] if value is None else [option, value]
    if found is None:
        words.append(named_source)
    return SourceCompile(
        is_cxx=is_cxx_compiler(program),
        triple=None if named is None else named["triple"],
        source=named_source,
        language=_language(named_source, found or ""),
        words=tuple(words),
        left_out=tuple(dict.fromkeys(left_out)),
    )


def _is_input(word: str) -> bool:
    return not word.startswith("-") or word == "-"


def _named_source(words: Sequence[str], source: str, directory: str) -> str:
    """Return the source to compile as it is among the inputs of a command, if it is there."""
    wanted = os.path.normpath(os.path.join(directory, source))
    for word in words:
        if os.path.normpath(os.path.join(directory, word)) == wanted:
            return word
    sources = [word for word in words if _CODE.search(word) or _ASSEMBLY.search(word)]
    return sources[0] if len(sources) == 1 else source


def named_output(arguments: Sequence[str]) -> str | None:
    """Return the file that a command is to write by its last ``-o``; None if it has none."""
    output = None
    for option, value in _whole_options(arguments):
        if option in ("-o", "--output"):
            output = value
        elif option.startswith("--output="):
            output = option.removeprefix("--output=")
        elif option.startswith("-o") and not _NOT_OUTPUTS.fullmatch(option):
            output = option[2:]
    return output


def usual_object(source: str) -> str:
    """Return the object that a compile of a source writes if its command names none."""
    return f"{os.path.splitext(os.path.basename(source))[0]}.o"


def is_cxx_compiler(name: str) -> bool:
    """Return True if this is the name of a C++ compiler, such as ``aarch64-linux-gnu-g++-12``."""
    return name.rstrip("-.0123456789").endswith("++") or name == "CC"


def _whole_options(arguments: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield each option with its value if that is the next word, and each other word."""
    words = iter(arguments)
    for word in words:
        if word == "--":
            yield from ((rest, None) for rest in words)
        else:
            takes_next = word in TAKES_NEXT or word.startswith(_TAKES_NEXT_BEGINNINGS)
            yield word, next(words, None) if takes_next else None


def _kept_by_cc1(words: Sequence[str]) -> Iterator[bool]:
    """Yield for each word that is passed on to cc1 whether it stays: an option's value goes with the option."""
    for option in parse_cc1(words):
        yield from [not _CC1_WRITES.fullmatch(option.name)] * len(option.words)


def _language(source: str, named: str) -> Language:
    if named not in ("", "none"):
        if named.startswith("assembler"):
            return Language.ASSEMBLY
        return Language.CODE if named in CLANG_NAMES else Language.OTHER
    if _ASSEMBLY.search(source):
        return Language.ASSEMBLY
    return Language.CODE if _CODE.search(source) else Language.OTHER


# --- clang's messages

_UNKNOWN = re.compile(r"error: unknown argument:? '([^']+)'|error: unsupported option '([^']+)'")
_ONLY_WITH = re.compile(r"error: invalid argument '([^']+)' (?:only allowed|not allowed) with '")
_UNSUPPORTED = re.compile(r"error: unsupported argument '([^']*)' to option '([^']+)'")
_INVALID = re.compile(r"error: invalid (?:integral )?value '([^']*)' in '([^']+)'")
_CPU = re.compile(r"error: unknown target CPU '([^']*)'")
_PLUGIN = re.compile(r"error: unable to load plugin ")
_WARNING = re.compile(r"(?:error|fatal error): .*\[(?:-Werror,)?-W([\w+=-]+)\]$", re.MULTILINE)
_IGNORED = re.compile(r"(?:warning|error): optimization flag '([^']+)' is not supported")


def without_refused(stderr: str, words: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return a command's words without those because of which clang failed with these messages, and the latter.

    An option and its value go together: an ``-Xclang`` that is left alone would take the next option as its value.
    """
    tests = [*_refusals(stderr)]
    accepted: list[str] = []
    refused: list[str] = []
    for option in _whole_options(words):
        whole = [word for word in option if word is not None]
        is_refused = any(test.fullmatch(word) for test in tests for word in whole)
        (refused if is_refused else accepted).extend(whole)
    return tuple(accepted), tuple(refused)


def _refusals(stderr: str) -> Iterator[re.Pattern[str]]:
    """Yield what matches the words that messages are about: clang does not always spell an option as it was given."""
    for match in (*_UNKNOWN.finditer(stderr), *_ONLY_WITH.finditer(stderr)):
        word = next(filter(None, match.groups()))
        yield re.compile(re.escape(word) + (".*" if word.endswith("=") else ""))
    for value, option in _UNSUPPORTED.findall(stderr):
        yield re.compile(f"{re.escape(option)}.*{re.escape(value)}.*")
    for value, option in _INVALID.findall(stderr):
        yield re.compile(f"{re.escape(option.removesuffix(value).rstrip('= '))}[= ]?{re.escape(value)}")
    for value in _CPU.findall(stderr):
        yield re.compile(f"-m(?:arch|cpu|tune)={re.escape(value)}")
    if _PLUGIN.search(stderr):
        yield re.compile("-fplugin.*")


def refused_warnings(stderr: str) -> tuple[str, ...]:
    """Return the warnings that were errors, because of ``-Werror`` or by themselves: gcc accepts more than clang."""
    return tuple(dict.fromkeys(_WARNING.findall(stderr)))


def ignored_words(stderr: str) -> tuple[str, ...]:
    """Return the options that clang says it ignores, although they are for code generation."""
    return tuple(dict.fromkeys(_IGNORED.findall(stderr)))
