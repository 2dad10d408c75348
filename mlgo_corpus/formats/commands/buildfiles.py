r"""A build's own descriptions: compilation databases, link lines, Bazel's action graph.

All text is UTF-8 (or UTF-16 with a byte order mark). A byte that is not UTF-8 becomes a lone surrogate
(`surrogateescape`), so `os.fsencode` restores a path's bytes.

**Compilation database** (clang/docs/JSONCompilationDatabase.rst): a JSON array of objects with

- ``directory``  the folder where the command ran; every relative path in the entry is relative to it;
- ``file``       the source;
- ``arguments``  the command as a list of strings, or else
- ``command``    the command as one string, split as a POSIX shell splits it; nothing is expanded;
- ``output``     optional: the object.

The object is the command's last ``-o`` (``-o x``, ``-ox``, ``--output=x``, ``--output x``; for cl-style
drivers also ``/Fo``, which may name a folder and may omit ``.obj``), else ``output``, else, if the
command has ``-c``, the name that clang would choose: the source's base name with its suffix replaced by
``.o`` (``.obj`` for cl-style drivers, ``.bc`` with ``-emit-llvm``). A command that stops before an object
(``-E``, ``-S``, ``-M``, a precompiled header, ...) makes none; one that compiles and links in one step makes
the linked file. ``@file`` arguments are read only if the command itself has no ``-o``: most build systems put
include paths there, and many remove the file after the build.

A command may be a script of several, joined by ``&&``, ``||``, ``;`` or ``|``. The one with ``-c`` is the compile (of
several, the last that names the source), and is all that is kept of the script; each ``cd`` before it counts. A script
may be a word behind ``sh -c``.

**Linker parameter file** (libiberty's ``@file``): words separated by white space; single quotes, double
quotes and backslashes quote, a backslash also inside both kinds of quotes. A file with one plain word per
line, as Bazel writes it, is the common case. Inputs are the words ending in ``.o .obj .lo .a .rlib .bc``
(``.lib`` if it is a path) that are neither an option's value nor the command's output; shared objects are
the system's. ``@file`` names a further parameter file; ``-Wl,`` and ``-Xlinker`` are removed first.

**Action graph**: ``bazel aquery --output=jsonproto``, a JSON object whose ``actions`` hold ``mnemonic`` and
``arguments``, and with ``--include_param_files`` also ``paramFiles`` (``execPath``, ``arguments``). Every
action with the mnemonic ``CppLink`` is a link line; its ``paramFiles`` replace the ``@file``.
"""

from __future__ import annotations

import codecs
import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from mlgo_corpus.errors import FormatError
from mlgo_corpus.formats.bitcode.headers import is_bitcode
from mlgo_corpus.formats.objects.archive import is_archive
from mlgo_corpus.formats.objects.objfile import Container, identify_container

COMPILE_COMMANDS_NAME: Final = "compile_commands.json"
"""The name of a compilation database in its folder."""


class InputType(StrEnum):
    """The kind of an input of `extract`; the values of its parameter ``input_type``."""

    COMPILE_COMMANDS = "compile-commands"
    PARAMS = "params"
    AQUERY = "aquery"
    FOLDER = "folder"
    OBJECT = "object"


@dataclass(frozen=True, slots=True)
class CompileCommand:
    """One entry of a compilation database; `problem`: None, ``no_output`` or ``malformed``; `detail`: why.

    ``arguments`` is its command; empty if there is a problem, or the entry has none. It runs in ``folder``, which is
    relative to ``directory`` as ``file`` and ``output`` are, and is not empty only if the entry's script has a ``cd``.
    """

    index: int
    directory: str | None
    file: str | None
    output: str | None
    problem: str | None = None
    detail: str = ""
    arguments: tuple[str, ...] = ()
    folder: str = ""


@dataclass(frozen=True, slots=True)
class LinkInput:
    """A word of a link line that names an input; `nested` when it is a further parameter file."""

    path: str
    nested: bool = False


@dataclass(frozen=True, slots=True)
class LinkAction:
    """One ``CppLink`` action: its position among all actions, and its inputs."""

    index: int
    label: str
    inputs: tuple[LinkInput, ...]
    problem: str | None = None
    detail: str = ""


# --- kinds of inputs

_OBJECT_SUFFIX = re.compile(r"\.(?:o|obj|lo|a|lib|rlib|so|dylib|dll|exe)\Z|\.so(?:\.\d+)+\Z", re.IGNORECASE)

HEAD_BYTES = 4096  # the size of a file's beginning for `is_object` and `sniff_input`


def has_object_suffix(name: str) -> bool:
    """Return True if a file's name has the suffix of an object, an archive or a linked file."""
    return _OBJECT_SUFFIX.search(name) is not None


def is_object(head: bytes) -> bool:
    """Return True if a file that begins with `head` is ELF, Mach-O, PE, an ar archive or bitcode.

    COFF objects have no distinctive magic number, and are recognised by their suffix only.
    """
    if is_archive(head) or is_bitcode(head):
        return True
    container = identify_container(head)
    if container is Container.PE:
        # e_lfanew, the last field of the DOS header, is the offset of the PE header.
        offset = int.from_bytes(head[60:64], "little")
        return head[offset : offset + 4] == b"PE\0\0"
    return container not in (None, Container.COFF)


def sniff_input(head: bytes, name: str) -> InputType:
    """Find a file's type from its first `HEAD_BYTES` bytes, and from its name if they are ambiguous."""
    if is_object(head) or has_object_suffix(name):
        return InputType.OBJECT
    text = _decode(head).lstrip()
    if re.match(r'\{\s*(?:["}]|$)', text):
        return InputType.AQUERY
    if re.match(r"\[\s*(?:[{\]]|$)", text) or name.lower().endswith(".json"):
        return InputType.COMPILE_COMMANDS
    return InputType.OBJECT if "\0" in text else InputType.PARAMS


def _decode(data: bytes) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    return data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")


def _load_json(data: bytes, expected: str) -> Any:
    try:
        return json.loads(_decode(data))
    except json.JSONDecodeError as error:
        raise FormatError(
            f"expected {expected}, found invalid JSON: line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise FormatError(f"expected {expected}, found JSON beyond the limits: {error}") from None


def _found(value: object) -> str:
    if isinstance(value, dict):
        keys = ", ".join(json.dumps(key[:40]) for key in list(value)[:3])
        return f"an object with {keys}" if keys else "an empty object"
    if isinstance(value, list):
        return "a list"
    return {str: "a string", bool: "true or false", type(None): "null"}.get(type(value), "a number")


# --- compilation databases

_DATABASE = "a compilation database (a JSON list of objects with directory, file and command or arguments)"
_KEYS = frozenset(("directory", "file", "command", "arguments", "output"))

# The beginnings of all options that `_read_gnu_options` handles, so that it can skip the many others quickly.
_HANDLED = ("-o", "-c", "-x", "-X", "-E", "-M", "-S", "-e", "-fsyntax", "-verify", "-mllvm", "-mmlir", "--")
# Options that pass the next argument on, so that it may look like one of the driver's own.
_PASS_ON = ("-mllvm", "-mmlir", "-Xa", "-Xcuda-", "-Xlinker", "-Xopenmp-target", "-Xpreprocessor")
# cl's options whose value is the next argument, which may be a path that looks like an option (`/opt/include`: `/o`).
_CL_VALUES = frozenset(("-D", "-I", "-U", "-FI", "-Tc", "-Tp", "-imsvc", "-winsysroot", "-mllvm"))

# Options that end the compile before it writes an object.
_GNU_STOPS = re.compile(
    r"-E|--preprocess|-MM?|--(?:user-)?dependencies|-S|--assemble|-emit-(?:ast|pch)|-extract-api|-fsyntax-only"
    r"|-verify-pch|--analyze|--precompile"
)
_CL_STOPS = re.compile(r"-E|-EP|-P|-Zs|-fsyntax-only|-emit-pch|--analyze")

_LAUNCHERS = frozenset(("buildcache", "ccache", "distcc", "env", "gomacc", "icecc", "rewrapper", "sccache"))
_CL_DRIVER = re.compile(r"(?:.*-)?cl(?:-[\d.]+)?")
_HEADER = re.compile(r"\.(?:h|hh|hpp|hxx|h\+\+|inc|inl|ipp|tcc)\Z", re.IGNORECASE)
_LINKABLE = re.compile(r"\.(?:o|obj|lo|a|lib|rlib)\Z", re.IGNORECASE)


_Read = Callable[[str], Sequence[str] | None]


def parse_compile_commands(
    data: bytes, read: Callable[[str, str], Sequence[str] | None] = lambda _folder, _word: None
) -> Iterator[CompileCommand]:
    """Yield the entries of a compilation database, in file order.

    Args:
        data: the database.
        read: returns the words of the parameter file ``@NAME`` of a command, None if it cannot be read; called with
            the folder where the command ran, as the database names it, and ``@NAME``.

    An error in one entry is that entry's `problem`. Raises FormatError, before the first entry, if the data is
    not a compilation database.
    """
    database = _load_json(data, _DATABASE)
    if not isinstance(database, list):
        raise FormatError(f"expected {_DATABASE}, found {_found(database)}")
    if database and not any(isinstance(entry, dict) and _KEYS & entry.keys() for entry in database):
        raise FormatError(f"expected {_DATABASE}, found a list that begins with {_found(database[0])}")
    return _entries(database, read)


def _entries(database: list[object], read: Callable[[str, str], Sequence[str] | None]) -> Iterator[CompileCommand]:
    for index in range(len(database)):
        entry, database[index] = database[index], None  # memory shrinks as the entries are used
        yield _parse_entry(entry, index, read)


def _parse_entry(entry: object, index: int, read: Callable[[str, str], Sequence[str] | None]) -> CompileCommand:
    if not isinstance(entry, dict):
        detail = f"expected an object, found {_found(entry)}"
        return CompileCommand(index, None, None, None, "malformed", detail)
    directory, file, output = (
        value if isinstance(value := entry.get(key), str) else None for key in ("directory", "file", "output")
    )
    try:
        arguments, folder = _cut_script(_read_arguments(entry), file)
        ran_in = posixpath.join(directory or "", folder)
        made = _read_output(entry, arguments, folder, lambda word: read(ran_in, word))
        return CompileCommand(index, directory, file, made, arguments=arguments, folder=folder)
    except _NoObjectError as error:
        return CompileCommand(index, directory, file, output, error.problem, str(error))


def _read_arguments(entry: Mapping[str, Any]) -> tuple[str, ...]:
    for key in ("directory", "file", "command", "output"):
        if not isinstance(entry.get(key), (str, type(None))):
            raise _NoObjectError(f"expected a string as {key!r}, found {_found(entry[key])}", "malformed")
    if entry.get("directory") is None:
        raise _NoObjectError("has no 'directory'", "malformed")
    arguments = entry.get("arguments")
    if arguments is None:
        arguments = _split(entry.get("command") or "")
    elif not isinstance(arguments, list) or not all(isinstance(word, str) for word in arguments):
        raise _NoObjectError("expected a list of strings as 'arguments'", "malformed")
    match tuple(arguments):
        case (shell, "-c", script) if _program_name(shell) in ("sh", "bash", "dash"):
            return _split(script)
        case words:
            return words


def _split(command: str) -> tuple[str, ...]:
    try:
        return split_command(command)
    except ValueError as error:
        raise _NoObjectError(f"'command' cannot be split: {error}", "malformed") from None


def _read_output(entry: Mapping[str, Any], arguments: Sequence[str], folder: str, read: _Read) -> str:
    output: str | None = entry.get("output")
    if arguments:
        return _find_output(arguments, entry.get("file"), output, folder, read)
    if entry.get("command") is not None or (entry.get("arguments") is not None and output is None):
        raise _NoObjectError("the command is empty: a target that stands for others")  # as ninja's phony ones
    if output is None:
        raise _NoObjectError("has no 'command', no 'arguments' and no 'output'", "malformed")
    return output


_SHELL_JOINTS = frozenset(("&&", "||", ";", "|"))
_PLAIN_FOLDER = re.compile(r"(?![~-])[^$`*?;]+")  # one that needs no shell to be known


class _NoObjectError(Exception):
    """An entry does not name an object to read."""

    def __init__(self, detail: str, problem: str = "no_output") -> None:
        super().__init__(detail)
        self.problem = problem


def _cut_script(arguments: tuple[str, ...], file: str | None) -> tuple[tuple[str, ...], str]:
    """Return the compile among the commands of a script, and the folder that the script has gone to before it."""
    commands: list[list[str]] = [[]]
    for word in arguments:
        if word in _SHELL_JOINTS:
            commands.append([])
        else:
            commands[-1].append(word)
    compiles = [index for index, command in enumerate(commands) if "-c" in command]
    if len(commands) > 1 and not compiles:
        raise _NoObjectError("the command is a script of several, such as a link step")  # as ninja -t compdb lists
    base = posixpath.basename(file or "")
    naming = [index for index in compiles if base in map(posixpath.basename, commands[index])]
    chosen = (naming or compiles or [0])[-1]
    folder = ""
    for command in commands[: chosen + 1]:
        match command:
            case ["cd", there] if _PLAIN_FOLDER.fullmatch(there):
                folder = posixpath.join(folder, there)
            case [program, *_] if program.lstrip("(") in ("cd", "pushd", "popd"):
                found = " ".join(command[:3])
                raise _NoObjectError(
                    f"expected a plain 'cd FOLDER &&' before the compile, found {found!r}", "malformed"
                )
    return tuple(commands[chosen]), folder


def is_cl(arguments: Sequence[str]) -> bool:
    """Return True if the driver has cl's options: its name, after a launcher such as ccache, ends in ``cl``."""
    if "--driver-mode=cl" in arguments:
        return True
    return _CL_DRIVER.fullmatch(_program_name(arguments[program_index(arguments)])) is not None


def program_index(arguments: Sequence[str]) -> int:
    """Return the index of the compiler in a command, behind launchers such as ccache and the variables of ``env``."""
    for index, argument in enumerate(arguments):
        if _program_name(argument) not in _LAUNCHERS and "=" not in argument and not argument.startswith("-"):
            return index
    return 0


def _program_name(word: str) -> str:
    return re.split(r"[/\\]", word)[-1].lower().removesuffix(".exe")


def _find_output(arguments: Sequence[str], file: str | None, recorded: str | None, ran_in: str, read: _Read) -> str:
    """Return the object that a command makes, by the rules of this module's docstring."""
    cl_style = is_cl(arguments)
    read_options = _read_cl_options if cl_style else _read_gnu_options
    output, compiles, suffix = read_options(arguments)
    if output is None and any(word.startswith("@") for word in arguments):
        arguments = with_parameter_files(arguments, read)
        output, compiles, suffix = read_options(arguments)
    named = recorded if output is None else output
    if named in ("-", "/dev/null"):
        raise _NoObjectError(f"the command writes to {named}")
    name = recorded if output is None and recorded else posixpath.join(ran_in, output or "")
    if not compiles and output is None and not has_object_suffix(name):
        unread = next((f", and {word[1:]} cannot be read" for word in arguments if word.startswith("@")), "")
        raise _NoObjectError(f"the command has neither -c nor -o{unread}")
    if not compiles and file is not None and _LINKABLE.search(file):
        raise _NoObjectError(f"the command links {file}")

    folder, _, base = name.rpartition("/")
    if base:
        return f"{name}{suffix}" if cl_style and "." not in base else name
    if file is None:
        raise _NoObjectError("has no 'file', and its command no -o", "malformed")
    if _HEADER.search(file):
        raise _NoObjectError("the command precompiles a header")
    source = file.rpartition("/")[2]
    stem = source.rpartition(".")[0] if "." in source else source
    return f"{folder}/{stem}{suffix}" if folder else f"{stem}{suffix}"


def _read_gnu_options(arguments: Sequence[str]) -> tuple[str | None, bool, str]:
    """Return the last ``-o`` or None, whether there is a ``-c``, and the suffix of a default name."""
    output, compiles, suffix = None, False, ".o"
    words = iter(arguments)
    for word in words:
        if not word.startswith(_HANDLED):
            continue
        if word in ("-o", "--output"):
            output = _value(word, words)
        elif word in ("-c", "--compile"):
            compiles = True
        elif word == "-Xclang":
            _check_goes_on(next(words, ""), _GNU_STOPS)
        elif word.startswith(_PASS_ON) or word in ("-MF", "-MJ", "-MQ", "-MT"):
            next(words, None)
        elif word.startswith("-x"):
            language = word[2:] or _value(word, words)
            if language.endswith("-header"):
                raise _NoObjectError(f"the command has -x {language}, which makes no object")
        elif word == "-emit-llvm":
            suffix = ".bc"
        elif word.startswith("--output="):
            output = word.removeprefix("--output=")
        elif word.startswith("-o") and not word.startswith(("-object-file-name=", "-objcmt-")):
            output = word[2:]
        elif word == "--":
            break
        else:
            _check_goes_on(word, _GNU_STOPS)
    return output, compiles, suffix


def _read_cl_options(arguments: Sequence[str]) -> tuple[str | None, bool, str]:
    """Do the same for a driver with cl's options, each of which may begin with ``/`` or ``-``."""
    output, compiles = None, False
    words = iter(arguments)
    next(words, None)  # the driver's path begins with a slash, too
    for word in words:
        if not word.startswith(("-", "/")):
            continue
        option = f"-{word[1:]}"
        if option in ("-o", "-Fo:"):
            output = _value(word, words)
        elif option == "-c":
            compiles = True
        elif option == "-Xclang":
            _check_goes_on(next(words, ""), _CL_STOPS)
        elif option in _CL_VALUES:
            next(words, None)
        elif option.startswith("-Fo"):
            output = option[3:].removeprefix(":")
        elif option.startswith("-o"):
            output = option[2:]
        elif option in ("--", "-link"):
            break
        else:
            _check_goes_on(option, _CL_STOPS)
    return output, compiles, ".obj"


def _value(option: str, words: Iterator[str]) -> str:
    value = next(words, None)
    if value is None:
        raise _NoObjectError(f"the command ends after {option}", "malformed")
    return value


def _check_goes_on(option: str, stops: re.Pattern[str]) -> None:
    if stops.fullmatch(option):
        raise _NoObjectError(f"the command has {option}, which makes no object")


# --- words

# The last alternative is a character that cannot begin a word: a quote that is not closed, a backslash at the end.
# Words are not repeated possessively: Debian 12's Python (3.11.2) goes on behind a last one that only began.
_SHELL_WORD = re.compile(r"""(?:[^ \t\r\n'"\\]++|'[^']*+'|"(?:[^"\\]++|\\.)*+"|\\.)+|['"\\]""", re.DOTALL)
_SHELL_QUOTED = re.compile(r"""'([^']*+)'|"((?:[^"\\]++|\\.)*+)"|\\(.)""", re.DOTALL)
_SHELL_ESCAPE = re.compile(r'\\([$`"\\\n])')

_GNU_QUOTES = r"""'((?:[^'\\]++|\\.?+)*+)(?:'|\Z)|"((?:[^"\\]++|\\.?+)*+)(?:"|\Z)|\\(.?+)"""
_GNU_QUOTED = re.compile(_GNU_QUOTES, re.DOTALL)
_GNU_WORD = re.compile(rf"""(?:[^ \t\r\n\f\v'"\\]++|{_GNU_QUOTES})++""", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_MOST_FILES = 20  # as in runs/builds/shim.sh: a parameter file may name itself


def split_command(command: str) -> tuple[str, ...]:
    """Split a command line into words as a POSIX shell does, expanding nothing.

    Raises ValueError where a quote is not closed.
    """
    words = []
    for word in _SHELL_WORD.findall(command):
        if "'" not in word and '"' not in word and "\\" not in word:
            words.append(word)
            continue
        if len(word) == 1:
            raise ValueError("it ends in a backslash" if word == "\\" else f"a {word} is not closed")
        unquoted = _SHELL_QUOTED.sub(_unquote_shell, word)
        if unquoted or word.replace("\\\n", ""):  # a line continuation alone is not a word, a pair of quotes is
            words.append(unquoted)
    return tuple(words)


def _unquote_shell(match: re.Match[str]) -> str:
    single, double, escaped = match.groups()
    if single is not None:
        return str(single)
    if double is not None:
        return _SHELL_ESCAPE.sub(lambda escape: escape[1].rstrip("\n"), double)
    return escaped.rstrip("\n")


def parse_response_file(data: bytes) -> tuple[str, ...]:
    """Split a parameter file into words; like GNU's tools, accept a last quote that is not closed."""
    return tuple(_GNU_QUOTED.sub(_unquote_gnu, match[0]) for match in _GNU_WORD.finditer(_decode(data)))


def with_parameter_files(arguments: Sequence[str], read: _Read) -> tuple[str, ...]:
    """Return a command with its parameter files, and those that they name, replaced by their words.

    Args:
        arguments: the words of the command.
        read: returns the words of ``@NAME``, None if they are not known: then it stays.
    """
    found: list[str] = []
    rest = [*reversed(arguments)]
    files = 0
    while rest:
        word = rest.pop()
        words = read(word) if word.startswith("@") and files < _MOST_FILES else None
        if words is None:
            found.append(word)
        else:
            files += 1
            rest.extend(reversed(words))
    return tuple(found)


def _unquote_gnu(match: re.Match[str]) -> str:
    single, double, escaped = match.groups()
    if escaped is not None:
        return escaped or "\\"
    return _ESCAPE.sub(r"\1", double if single is None else single)


# --- link lines

_LINK_INPUT = re.compile(r"\.(?:o|obj|lo|a|rlib|bc)\Z|/.*\.lib\Z", re.IGNORECASE | re.DOTALL)
# Options whose value, the next word, is not an input although it may look like one.
_LINK_VALUE = re.compile(
    r"--?(?:o|output|Map|out-implib|object_path_lto|bundle_loader|soname|h|install_name|dylib_install_name"
    r"|rpath|rpath-link|I|dynamic-linker|L|library-path|l|library|T|script|version-script|dynamic-list|R"
    r"|just-symbols|plugin|plugin-opt|m|u|z|MF|MJ|MQ|MT|Xclang|mllvm)"
)
_MSVC_VALUE = re.compile(r"/(?:out|implib|defaultlib|nodefaultlib):", re.IGNORECASE)
_AR = re.compile(r"(?:.*[/-])?ar(?:-[\d.]+)?(?:\.exe)?")
_AR_OPERATION = re.compile(r"(?=.*[qr])[abcDilNoOPqrsSTuUvV]+")


def link_inputs(tokens: Iterable[str]) -> tuple[LinkInput, ...]:
    """Return the inputs among the words of a link line, which may begin with the linker (or ``ar``) itself."""
    words = list(_linker_words(tokens))
    written = {_find_archive(words)}
    inputs = []
    rest = iter(words)
    for word in rest:
        if word.startswith("-"):
            if _LINK_VALUE.fullmatch(word):
                value = next(rest, None)
                if word in ("-o", "--output"):
                    written.add(value)
        elif word.startswith("@") and len(word) > 1:
            inputs.append(LinkInput(word[1:], nested=True))
        elif _LINK_INPUT.search(word) and not _MSVC_VALUE.match(word):
            inputs.append(LinkInput(word))
    return tuple(item for item in inputs if item.nested or item.path not in written)


def _linker_words(tokens: Iterable[str]) -> Iterator[str]:
    for word in tokens:
        if word.startswith("-Wl,"):
            yield from word.split(",")[1:]
        elif word != "-Xlinker":
            yield word


def _find_archive(words: Sequence[str]) -> str | None:
    """Return the archive that ``ar rcs libx.a a.o`` writes; the ``ar`` itself may be missing."""
    named = bool(words) and _AR.fullmatch(words[0]) is not None
    operands = [word for word in words[1 if named else 0 :][:5] if not word.startswith("--")]
    if len(operands) < 2 or not _LINKABLE.search(operands[1]):
        return None
    operation = operands[0].removeprefix("-") if named else operands[0]  # `ld -r` is not an operation
    return operands[1] if _AR_OPERATION.fullmatch(operation) else None


# --- Bazel

_GRAPH = "the JSON of `bazel aquery --output=jsonproto` (an object with actions)"


def parse_aquery(data: bytes) -> tuple[LinkAction, ...]:
    """Read every CppLink action of an action graph; raises FormatError if there are none."""
    graph = _load_json(data, _GRAPH)
    if not isinstance(graph, dict) or not isinstance(graph.get("actions"), list):
        raise FormatError(f"expected {_GRAPH}, found {_found(graph)}")
    actions = graph["actions"]
    labels = {str(target.get("id")): str(target.get("label")) for target in _objects(graph, "targets")}
    links = tuple(
        _parse_action(action, index, labels.get(str(action.get("targetId")), ""))
        for index, action in enumerate(actions)
        if isinstance(action, dict) and action.get("mnemonic") == "CppLink"
    )
    if not links:
        raise FormatError(f"expected an action with the mnemonic CppLink, found none among {len(actions)}")
    return links


def _parse_action(action: Mapping[str, Any], index: int, label: str) -> LinkAction:
    words = _strings(action)
    if not words:
        return LinkAction(index, label, (), "malformed", "expected a list of strings as 'arguments'")
    files = {str(file.get("execPath")): _strings(file) for file in _objects(action, "paramFiles")}
    put_in_place: list[str] = []
    for word in words:
        path = word.removeprefix("-Wl,").removeprefix("@")
        put_in_place.extend(files[path] if path != word and path in files else (word,))
    return LinkAction(index, label, link_inputs(put_in_place))


def _objects(parent: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    value = parent.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _strings(parent: Mapping[str, Any]) -> list[str]:
    words = parent.get("arguments")
    return words if isinstance(words, list) and all(isinstance(word, str) for word in words) else []
