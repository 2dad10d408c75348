"""The objects of a build, found from the inputs of `extract`, one by one.

Every input is checked before the first object is yielded, so that an unusable one ends the run before anything is
written. After that nothing raises: an object that cannot be read is a `BuildObject` with a `problem`. Whether an object
named by a build's own files exists is for its reader to find out.

Order: inputs as given; entries, words and actions as in their file; the files of a folder by the bytes of their path.
A path that occurs again (compared without following symbolic links) is yielded once.

In folders, an object is a file with an object's suffix, whatever its content, or a file that the first bytes identify
as one; files with the suffix of a source or other well-known text are not opened. ``.bc`` files are ignored: they are
loose bitcode, which ``-save-temps`` leaves beside the object. Symbolic links are followed, except those to a file of
the same folder (``libx.so`` to ``libx.so.1``), which is yielded itself. Each real folder is walked once, under the
name that comes first; the folders of version control, of CMake's compiler probes and of a corpus's own state are
skipped.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from mlgo_corpus.errors import FormatError, UsageError
from mlgo_corpus.files.names import IMPORTED_SUFFIX, STATE_FOLDER
from mlgo_corpus.files.regular import MAX_NOTE_BYTES, open_regular, read_regular
from mlgo_corpus.files.text import escaped
from mlgo_corpus.formats.commands.buildfiles import (
    COMPILE_COMMANDS_NAME,
    HEAD_BYTES,
    CompileCommand,
    InputType,
    LinkAction,
    LinkInput,
    has_object_suffix,
    is_object,
    link_inputs,
    parse_aquery,
    parse_compile_commands,
    parse_response_file,
    sniff_input,
)

__all__ = [
    "BuildObject",
    "InputType",
    "iter_build_objects",
    "iter_thinlto_local",
    "parameter_words",
    "read_entries",
]


@dataclass(frozen=True, slots=True)
class BuildObject:
    """One object of a build, or the reason why there is none.

    Attributes:
        path: the path to open, from the current working directory; for a problem, where it was found.
        name: the object's name as the build writes it, from which its module's name is made.
        directory: the folder that relative paths in its command are relative to.
        source: its path relative to the build, absolute outside it, if ``name`` is relative to something else.
        problem: None, or why it cannot be read: ``no_output``, ``malformed``, ``unreadable``, ``missing``, or the
            reason why it was not compiled.
        detail: the problem in one line.
        note: what was different when it was compiled, in one line; empty for a build's own objects.
        replaced: whether another file has taken the object's place since: what a corpus has of it stays.
    """

    path: str
    name: str
    directory: str
    problem: str | None = None
    detail: str = ""
    source: str | None = None
    note: str = ""
    replaced: bool = False


_Identity = tuple[int, int]  # device and inode
_Select = Callable[["os.DirEntry[str]", str, str], BuildObject | None]

_NOT_ENTERED = frozenset((".git", ".hg", ".jj", ".svn", STATE_FOLDER))
_MAX_NESTING = 16  # deeper than any build nests its parameter files
# Files that CMake compiles to test the compiler: not part of the project, but built with its flags.
_PROBE = re.compile(
    r"(?:^|/)CMakeFiles/(?:CMakeScratch|CMakeTmp|_CMakeLTOTest-\w+|[^/]+/(?:CompilerId\w+|CMakeDetermineCompilerABI_.*))\Z"
)
_NO_OBJECT = re.compile(
    r"\.(?:bc|ll|c|cc|cpp|cxx|c\+\+|m|mm|h|hh|hpp|hxx|inc|inl|def|td|s|asm|i|ii|d|la|pc|in|am|ac|m4|mk|ninja"
    r"|cmake|make|txt|md|rst|html|css|js|ts|json|ya?ml|toml|xml|ini|cfg|conf|py|pyc|pyi|pl|rb|sh|lua|go|rs|java"
    r"|class|jar|log|csv|map|lds?|rsp|params|pch|gch|pcm|dwo|dwp|deb|gz|xz|bz2|zst|zip|tar|png|jpe?g|gif|svg|pdf"
    r")\Z",
    re.IGNORECASE,
)


def iter_build_objects(
    inputs: Sequence[Path],
    *,
    input_type: InputType | None = None,
    exclude: Path | None = None,
    build_dir: Path | None = None,
) -> Iterator[BuildObject]:
    """Yield every object of the inputs, as described in this module's docstring.

    Args:
        inputs: compile_commands.json files, linker parameter files, aquery output, folders, objects.
        input_type: the type of all inputs; by default each is recognised by its content.
        exclude: a folder to skip: the corpus being written.
        build_dir: the folder that relative paths in parameter files and aquery output are relative to, and each
            ``source`` of a compilation database. By default, for a parameter file, the first of its own folder, the
            current one and its folder's parents in which one of its objects exists; for aquery output, the current
            folder; for a compilation database, its own.

    Raises:
        UsageError: an input does not exist or cannot be read.
        FormatError: an input is not of the type that `input_type` or its content says.
    """
    if build_dir is not None and not build_dir.is_dir():
        raise UsageError(f"{build_dir}: expected the build's folder, found none")
    walked: set[_Identity] = set()
    return _each_once([_open_input(os.fspath(path), input_type, exclude, build_dir, walked) for path in inputs])


def iter_thinlto_local(inputs: Sequence[Path], *, exclude: Path | None = None) -> Iterator[BuildObject]:
    """Yield every ``NAME.3.import.bc`` below the folders: the file that a local ThinLTO link left there for NAME.

    Raises:
        UsageError: an input is not a folder.
    """
    for path in inputs:
        if not path.is_dir():
            found = "a file" if path.exists() else "none"
            raise UsageError(f"{path}: expected a folder that holds NAME{IMPORTED_SUFFIX} files, found {found}")
    walked: set[_Identity] = set()
    return _each_once([_walk(os.fspath(path), os.fspath(path), _imported, exclude, walked) for path in inputs])


def _each_once(sources: Iterable[Iterator[BuildObject]]) -> Iterator[BuildObject]:
    here = os.getcwd()
    seen: set[int] = set()  # hashes: of a million paths, two share one with a probability below 1e-7
    for item in chain.from_iterable(sources):
        if not _is_file_name(item.name + item.path):
            yield replace(
                item,
                name=escaped(item.name),
                problem=item.problem or "malformed",
                detail=item.detail or "no file can have this name",
            )
            continue
        if item.problem is None:
            key = hash(os.path.normpath(os.path.join(here, item.path)))
            if key in seen:
                continue
            seen.add(key)
        yield item


def _is_file_name(text: str) -> bool:
    """Return True if a file can have this name: JSON may hold NUL, and surrogates that stand for no byte."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _problem(path: str, name: str, directory: str, problem: str, detail: str) -> BuildObject:
    return BuildObject(path, name, directory or ".", problem, escaped(detail))


def _name_below(path: str, directory: str) -> str:
    """Return a path as the build writes it, but relative to `directory` if it is absolute and below that folder."""
    if not os.path.isabs(path):
        return path
    folder = os.path.abspath(directory).rstrip("/") + "/"
    plain = os.path.normpath(path)
    return plain.removeprefix(folder) if plain.startswith(folder) else path


def _read(path: str, size: int = -1) -> bytes:
    """Return the content of a regular file, or its first `size` bytes; for anything else, raise OSError at once."""
    with open_regular(path) as file:
        return file.read(size)


# --- inputs


def _open_input(
    path: str,
    input_type: InputType | None,
    exclude: Path | None,
    build_dir: Path | None,
    walked: set[_Identity],
) -> Iterator[BuildObject]:
    """Check one input and return an iterator that finds its objects."""
    base = None if build_dir is None else os.fspath(build_dir)
    if os.path.isdir(path):
        if input_type is InputType.COMPILE_COMMANDS:
            path = os.path.join(path, COMPILE_COMMANDS_NAME)
        elif input_type in (None, InputType.FOLDER):
            if exclude is not None and exclude.exists() and os.path.samefile(path, exclude):
                raise UsageError(f"{path}: expected a build, found the corpus that is to be written")
            return _walk(path, base or path, _object, exclude, walked)
        else:
            raise UsageError(f"{path}: expected a file (`input_type` {input_type}), found a folder")
    elif input_type is InputType.FOLDER and os.path.exists(path):
        raise UsageError(f"{path}: expected a folder (`input_type` folder), found a file")
    try:
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):
            raise UsageError(f"{path}: expected a file or a folder, found a {_kind(mode)}; save it as a file first")
        if input_type is InputType.OBJECT or (input_type is None and has_object_suffix(path)):
            kind = InputType.OBJECT
        else:
            kind = input_type or sniff_input(_read(path, HEAD_BYTES), path)
        if kind is InputType.OBJECT:
            return iter((BuildObject(path, _name_below(path, "."), base or "."),))
        data = _read(path)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file or folder") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read: {getattr(error, 'strerror', error)}") from None
    try:
        return _READERS[kind](path, data, base)
    except FormatError as error:
        hint = f"read as {kind}; `input_type` {'|'.join(InputType)} reads it as something else"
        raise type(error)(f"{error.message} ({hint})", path=Path(path)) from None


def _kind(mode: int) -> str:
    return "FIFO" if stat.S_ISFIFO(mode) else "socket" if stat.S_ISSOCK(mode) else "device"


def _read_compile_commands(path: str, data: bytes, base: str | None) -> Iterator[BuildObject]:
    build = os.path.dirname(path) if base is None else base
    return (_from_command(command, path, build) for command in read_entries(path, data))


def read_entries(path: str, data: bytes) -> Iterator[CompileCommand]:
    """Yield the entries of a compilation database that is at a path; see `parse_compile_commands`."""
    base = os.path.dirname(path)
    return parse_compile_commands(data, lambda folder, word: parameter_words(os.path.join(base, folder), word))


def parameter_words(folder: str, word: str) -> tuple[str, ...] | None:
    """Return the words of the parameter file ``@NAME`` of a command; None if it cannot be read.

    Args:
        folder: the folder where the command runs.
        word: ``@NAME``.
    """
    try:
        return parse_response_file(read_regular(Path(folder, word[1:]), MAX_NOTE_BYTES))
    except (OSError, ValueError):
        return None


def _from_command(command: CompileCommand, path: str, build: str) -> BuildObject:
    directory = os.path.join(os.path.dirname(path), command.directory or "")
    if command.problem is None and command.output is not None:
        object_path = os.path.join(directory, command.output)
        name = _name_below(command.output, directory)
        source = _name_below(os.path.abspath(object_path), build)
        if os.path.isabs(source):  # outside the build, or inside by another path
            folder, base = os.path.split(object_path)
            source = _name_below(os.path.join(os.path.realpath(folder), base), os.path.realpath(build))
        told = source == os.path.normpath(name)
        return BuildObject(object_path, name, directory or ".", source=None if told else source)
    entry = f"entry {command.index}"
    name = _name_below(command.output or command.file or entry, directory)
    detail = f"{os.path.basename(path)}: {entry}: {command.detail}"
    return _problem(path, name, directory, command.problem or "no_output", detail)


def _read_params(path: str, data: bytes, base: str | None) -> Iterator[BuildObject]:
    words = parse_response_file(data)
    inputs = link_inputs(words)
    if not inputs:
        raise FormatError(
            "expected a linker parameter file that names objects or archives (.o .obj .lo .a .rlib .bc)"
            f", found none among {len(words)} words"
        )
    if base is None:
        base = _find_base(path, inputs)
    return _linked(inputs, base, (os.path.abspath(path),), set())


def _find_base(path: str, inputs: Iterable[LinkInput]) -> str:
    """Return the folder that a parameter file's relative paths are relative to; see `iter_build_objects`."""
    own = os.path.dirname(path)
    bases = (own, "", *map(str, Path(os.path.abspath(own)).parents))
    for item in inputs:
        if not os.path.isabs(item.path):
            for base in bases:
                if os.path.exists(os.path.join(base, item.path)):
                    return base
    return ""


def _read_aquery(path: str, data: bytes, base: str | None) -> Iterator[BuildObject]:
    read: set[str] = set()
    actions = parse_aquery(data)
    return chain.from_iterable(_from_action(action, path, base or "", read) for action in actions)


def _from_action(action: LinkAction, path: str, base: str, read: set[str]) -> Iterator[BuildObject]:
    if action.problem is None:
        yield from _linked(action.inputs, base, (), read)
    else:
        where = f"action {action.index}"
        detail = f"{os.path.basename(path)}: {where}: {action.detail}"
        yield _problem(path, action.label or where, base, action.problem, detail)


def _linked(inputs: Iterable[LinkInput], base: str, within: tuple[str, ...], read: set[str]) -> Iterator[BuildObject]:
    for item in inputs:
        path = os.path.join(base, item.path)
        if item.nested:
            yield from _nested(item.path, path, base, within, read)
        else:
            yield BuildObject(path, _name_below(item.path, base), base or ".")


def _nested(name: str, path: str, base: str, within: tuple[str, ...], read: set[str]) -> Iterator[BuildObject]:
    """Yield the objects of a parameter file that another one names; a file that was already read has nothing new."""
    key = os.path.abspath(path)
    if key in within:
        yield _problem(path, name, base, "malformed", f"parameter file {name} names itself")
    elif len(within) > _MAX_NESTING:
        yield _problem(path, name, base, "malformed", f"parameter files nest more than {_MAX_NESTING} deep")
    elif key not in read:
        read.add(key)
        try:
            words = parse_response_file(_read(path))
        except FileNotFoundError:
            yield _problem(path, name, base, "missing", f"parameter file {name} does not exist")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", error)
            yield _problem(path, name, base, "unreadable", f"parameter file {name} cannot be read: {reason}")
        else:
            yield from _linked(link_inputs(words), base, (*within, key), read)


_READERS: dict[InputType, Callable[[str, bytes, str | None], Iterator[BuildObject]]] = {
    InputType.COMPILE_COMMANDS: _read_compile_commands,
    InputType.PARAMS: _read_params,
    InputType.AQUERY: _read_aquery,
}


# --- folders


def _walk(
    root: str, directory: str, select: _Select, exclude: Path | None, walked: set[_Identity]
) -> Iterator[BuildObject]:
    """Yield the objects that `select` makes from the files below a folder, in the order of the bytes of their paths."""
    # A link to a parent folder of the root would lead to everything in that folder, and to the root again.
    closed = (*Path(os.path.realpath(root)).parents, *([exclude] if exclude is not None else []))
    refused = {_identity(folder) for folder in closed if os.path.exists(folder)}
    folders: list[tuple[str, Iterator[os.DirEntry[str]]]] = []
    entered: tuple[str, str] | None = (root, "")
    while entered is not None or folders:
        if entered is not None:
            path, prefix = entered
            entered = None
            try:
                identity = _identity(path)
                if identity not in walked and identity not in refused:
                    walked.add(identity)
                    folders.append((prefix, iter(_list_folder(path))))
            except OSError as error:
                detail = f"the folder cannot be read: {error.strerror}"
                yield _problem(path, prefix.rstrip("/") or path, directory, "unreadable", detail)
            continue
        prefix, entries = folders[-1]
        for entry in entries:
            name = prefix + entry.name
            if _PROBE.search(name):
                continue
            if not _is_folder(entry):
                if _stands_for_a_neighbour(entry):
                    continue
                item = select(entry, name, directory)
                if item is not None:
                    yield item
            elif entry.name not in _NOT_ENTERED:
                entered = entry.path, f"{name}/"
                break
        else:
            folders.pop()


def _identity(path: str | Path) -> _Identity:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _list_folder(path: str) -> list[os.DirEntry[str]]:
    with os.scandir(path) as entries:
        # With the slash, a folder sorts where the paths below it belong.
        return sorted(entries, key=lambda entry: os.fsencode(entry.name) + (b"/" if _is_folder(entry) else b""))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a symbolic link that leads to itself, or where we may not look
        return False


def _object(entry: os.DirEntry[str], name: str, directory: str) -> BuildObject | None:
    named_so = has_object_suffix(entry.name)
    if not named_so and _NO_OBJECT.search(entry.name):
        return None
    if not _is_regular(entry):
        return _irregular(entry, name, directory) if named_so else None
    try:
        if named_so or is_object(_read(entry.path, HEAD_BYTES)):
            return BuildObject(entry.path, name, directory)
    except FileNotFoundError:
        pass
    except OSError as error:
        return _problem(entry.path, name, directory, "unreadable", f"cannot be read: {error.strerror}")
    return None


def _imported(entry: os.DirEntry[str], name: str, directory: str) -> BuildObject | None:
    if not entry.name.endswith(IMPORTED_SUFFIX):
        return None
    name = name.removesuffix(IMPORTED_SUFFIX)
    return BuildObject(entry.path, name, directory) if _is_regular(entry) else _irregular(entry, name, directory)


def _is_regular(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:
        return False


def _stands_for_a_neighbour(entry: os.DirEntry[str]) -> bool:
    """Return True if an entry is a symbolic link to a file of the same folder."""
    if not entry.is_symlink():
        return False
    target = os.readlink(entry.path)
    return "/" not in target and os.path.isfile(entry.path)


def _irregular(entry: os.DirEntry[str], name: str, directory: str) -> BuildObject:
    if os.path.exists(entry.path):
        return _problem(entry.path, name, directory, "unreadable", "not a regular file")
    return _problem(entry.path, name, directory, "missing", "a symbolic link to nothing")
