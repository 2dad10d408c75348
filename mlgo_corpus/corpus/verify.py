"""Check a corpus against its own records: each module, and the folder around the modules.

One row is one module, or one of the corpus's own files where something is wrong with that:

============================  =========================================================================
column                        meaning
============================  =========================================================================
``module``                    the module's name; a file's name where the row is about one
``status``                    ``ok``, ``warning`` (it can be used, but not by everybody) or ``failed``
``reason``                    a word of `VerifyReason`: the worst of what was found
``detail``                    one line for a person, with all that was found
``producer``                  what made the bitcode, such as ``LLVM19.1.7``; null where it does not say
``readable_by``               the least LLVM, by its major version, that is sure to read it: newer ones do, too
``bitcode_bytes``             bytes of bitcode found
``cmd_bytes``                 bytes of the command found
============================  =========================================================================

A module's files are compared with its row in ``modules.parquet``. A corpus of LLVM's mlgo-utils or of ml-compiler-opt
has no such table; only its files are checked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

from mlgo_corpus.corpus.folder import UNSPECIFIED_OVERRIDE, Corpus, Module, read_manifest
from mlgo_corpus.corpus.modules import STATUS_FAILED, STATUS_OK, ModuleRow, iter_module_rows
from mlgo_corpus.corpus.packed.place import file_digest
from mlgo_corpus.errors import CorpusError, FormatError, TruncatedError
from mlgo_corpus.files.folder import walk
from mlgo_corpus.files.markdown import plain_columns
from mlgo_corpus.files.names import (
    BITCODE_SUFFIX,
    MANIFEST_NAME,
    MANIFEST_STEM,
    MODULES_NAME,
    STATE_FOLDER,
    THINLTO_INDEX_SUFFIX,
    checked_name,
)
from mlgo_corpus.files.remote import Place, RemotePath
from mlgo_corpus.files.tables import Kind, write_table
from mlgo_corpus.files.text import printable
from mlgo_corpus.formats.bitcode.headers import is_bitcode, iter_extents, read_producer
from mlgo_corpus.formats.buffer import Buffer
from mlgo_corpus.formats.commands.driver import is_driver_line, refused_driver_options
from mlgo_corpus.formats.commands.embedded import decode_options, split_options
from mlgo_corpus.formats.commands.replay import refused_options
from mlgo_corpus.formats.objects.objfile import describe_head

STATUS_WARNING: Final = "warning"

_PRODUCER = re.compile(r"LLVM(\d+)\.")
_LONGEST_OPTION = 200


class VerifyReason(StrEnum):
    """The kinds of problems, from the worst to the least; the closed vocabulary.

    Attributes:
        NAME_LEAVES_CORPUS: the manifest's name leads out of the folder, is no valid file name, or is too deep.
        MISSING_BITCODE: the module has no bitcode file.
        UNREADABLE: a file exists but cannot be read, or is not a regular file.
        WRONG_SIZE: the bitcode or the command is not as long as the table says.
        WRONG_HASH: the bitcode or the command has the right length, but another content.
        NOT_BITCODE: the file holds something else.
        TRUNCATED: the bitcode ends too early.
        MALFORMED: the bitcode breaks its format, or is more than one module.
        MISSING_COMMAND: the module has no command file.
        COMMAND_EMPTY: the command is empty.
        COMMAND_NOT_CC1: the command's first word is not ``-cc1``.
        MISSING_THINLTO_INDEX: the corpus is a ThinLTO corpus, and the module has no index.
        BAD_THINLTO_INDEX: the index is not bitcode, or damaged.
        LISTED_TWICE: the manifest names the module again.
        UNKNOWN_MODULE: the manifest of one side of a split names what the corpus's manifest does not.
        DAMAGED_MANIFEST: a side's manifest cannot be read, or a manifest is not what was packed.
        DAMAGED_TABLE: ``modules.parquet`` cannot be read, or a table is not what was packed.
        WORKER_DIED: checking the module killed its worker, or took too long.
        REFUSED_OPTION: the command could do more than compile: it is run only with ``trust_corpus``.
        NO_COMMAND: the build embedded no command, and the corpus has none for all modules.
        NOT_IN_TABLE: ``modules.parquet`` has no row for the module.
        NOT_IN_MANIFEST: the table says that the module is in the corpus, and the manifest does not.
        UNLISTED_FILE: the folder has bitcode that no manifest names.
        OK: nothing is wrong.
    """

    NAME_LEAVES_CORPUS = "name_leaves_corpus"
    MISSING_BITCODE = "missing_bitcode"
    UNREADABLE = "unreadable"
    WRONG_SIZE = "wrong_size"
    WRONG_HASH = "wrong_hash"
    NOT_BITCODE = "not_bitcode"
    TRUNCATED = "truncated"
    MALFORMED = "malformed"
    MISSING_COMMAND = "missing_command"
    COMMAND_EMPTY = "command_empty"
    COMMAND_NOT_CC1 = "command_not_cc1"
    MISSING_THINLTO_INDEX = "missing_thinlto_index"
    BAD_THINLTO_INDEX = "bad_thinlto_index"
    LISTED_TWICE = "listed_twice"
    UNKNOWN_MODULE = "unknown_module"
    DAMAGED_MANIFEST = "damaged_manifest"
    DAMAGED_TABLE = "damaged_table"
    WORKER_DIED = "worker_died"
    REFUSED_OPTION = "refused_option"
    NO_COMMAND = "no_command"
    NOT_IN_TABLE = "not_in_table"
    NOT_IN_MANIFEST = "not_in_manifest"
    UNLISTED_FILE = "unlisted_file"
    OK = "ok"


_ORDER = {reason: place for place, reason in enumerate(VerifyReason)}


def status_of(reason: VerifyReason) -> str:
    """Return the status that goes with a reason."""
    if reason is VerifyReason.OK:
        return STATUS_OK
    return STATUS_FAILED if _ORDER[reason] < _ORDER[VerifyReason.REFUSED_OPTION] else STATUS_WARNING


class VerifyRow(NamedTuple):
    """One row; fields as the module's docstring describes them, in the file's order."""

    module: str
    status: str
    reason: str
    detail: str
    producer: str | None = None
    readable_by: int | None = None
    bitcode_bytes: int | None = None
    cmd_bytes: int | None = None


_KINDS: Final[Mapping[str, Kind]] = dict.fromkeys(("readable_by", "bitcode_bytes", "cmd_bytes"), Kind.INTEGER)


class Expected(NamedTuple):
    """Sizes and digests of a module's files according to the corpus's table; None where it has no value."""

    bitcode_bytes: int | None
    bitcode_sha256: str | None
    cmd_bytes: int | None
    cmd_sha256: str | None
    has_command: bool

    @classmethod
    def of(cls, row: ModuleRow) -> Expected:
        """Make it from a row of the table."""
        has_command = row.cmd_sha256 is not None or row.cmd_bytes is not None
        return cls(row.bitcode_bytes, row.bitcode_sha256, row.cmd_bytes, row.cmd_sha256, has_command)


class Check(NamedTuple):
    """One module to check, what its files should be, and whether the corpus has a table that should list it."""

    module: Module
    expected: Expected | None
    has_table: bool


_Problem = tuple[VerifyReason, str]


def check_module(check: Check) -> VerifyRow:
    """Check one module's files. Problems are reported in the row, never raised."""
    module, expected, has_table = check
    try:
        checked_name(module.name)
    except CorpusError as error:
        return problem_row(module.name, VerifyReason.NAME_LEAVES_CORPUS, error.message)
    problems: list[_Problem] = []
    if has_table and expected is None:
        problems.append((VerifyReason.NOT_IN_TABLE, f"{MODULES_NAME} has no row of it"))
    producer = bitcode_bytes = None
    try:
        data = module.bitcode()
    except CorpusError as error:
        problems.append((_unread(error, VerifyReason.MISSING_BITCODE), error.message))
    else:
        bitcode_bytes = len(data)
        if expected is not None:
            problems += _compare("bitcode", data, expected.bitcode_bytes, expected.bitcode_sha256)
        producer, damage = _check_bitcode(data)
        problems += damage
    cmd_bytes, wrong = _check_command(module, expected)
    problems += wrong
    problems += _check_thinlto_index(module)
    reason = min((reason for reason, _ in problems), key=_ORDER.__getitem__, default=VerifyReason.OK)
    return VerifyRow(
        module=printable(module.name),
        status=status_of(reason),
        reason=reason.value,
        detail=_one_line("; ".join(detail for _, detail in problems)),
        producer=None if producer is None else printable(producer),
        readable_by=_major_of(producer),
        bitcode_bytes=bitcode_bytes,
        cmd_bytes=cmd_bytes,
    )


def problem_row(name: str, reason: VerifyReason, detail: str) -> VerifyRow:
    """Return a row that has only a name, a reason and a detail."""
    return VerifyRow(_one_line(name), status_of(reason), reason.value, _one_line(detail))


def _major_of(producer: str | None) -> int | None:
    """Return the major version of the LLVM that wrote a module: this one and newer ones read it.

    Return None for a producer with other version numbers, such as Apple's.
    """
    match = _PRODUCER.match(producer or "")
    return None if match is None else int(match[1])


def _one_line(text: str) -> str:
    return printable(" ".join(text.split("\n")))


def _unread(error: CorpusError, missing: VerifyReason) -> VerifyReason:
    return missing if isinstance(error.__cause__, FileNotFoundError) else VerifyReason.UNREADABLE


def _compare(what: str, data: bytes, size: int | None, digest: str | None) -> Iterator[_Problem]:
    if size is not None and size != len(data):
        yield VerifyReason.WRONG_SIZE, f"{what}: expected {size} bytes, found {len(data)}"
    elif digest is not None and sha256(data).hexdigest() != digest:
        yield VerifyReason.WRONG_HASH, f"{what}: as long as it was, but its sha256 is not {digest[:16]}..."


def _check_bitcode(data: bytes) -> tuple[str | None, list[_Problem]]:
    """Read the producer, and walk the blocks to the file's end."""
    if not is_bitcode(data):
        return None, [(VerifyReason.NOT_BITCODE, f"expected bitcode, found {describe_head(data)}")]
    producer = None
    try:
        producer = read_producer(data)
        problem = _walk(data)
    except FormatError as error:
        return producer, [_damage(error)]
    return producer, [] if problem is None else [(VerifyReason.MALFORMED, problem)]


def _walk(data: Buffer) -> str | None:
    """Walk bitcode's blocks; return what is wrong unless there is exactly one module and nothing after it.

    Raises:
        FormatError: the bitcode is damaged.
    """
    extents = list(iter_extents(data))
    if len(extents) != 1:
        return f"expected one module, found {len(extents)}"
    end = extents[0].stop
    return None if end == len(data) else f"byte {end}: {len(data) - end} bytes follow the module"


def _damage(error: FormatError) -> _Problem:
    reason = VerifyReason.TRUNCATED if isinstance(error, TruncatedError) else VerifyReason.MALFORMED
    return reason, str(error.at(None))


def _check_command(module: Module, expected: Expected | None) -> tuple[int | None, list[_Problem]]:
    overridden = module.override is not None
    known_to_have_none = expected is not None and not expected.has_command
    try:
        command = module.own_command()
    except CorpusError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            if known_to_have_none and not overridden:
                detail = "the build embedded no command, and the corpus has none for all modules"
                return None, [(VerifyReason.NO_COMMAND, detail)]
            if overridden and (expected is None or known_to_have_none):
                return None, []
        return None, [(_unread(error, VerifyReason.MISSING_COMMAND), error.message)]
    problems: list[_Problem] = []
    if expected is not None and expected.has_command:
        problems += _compare("command", command, expected.cmd_bytes, expected.cmd_sha256)
    if not overridden:  # an overridden command is never run
        problems += check_options(decode_options(split_options(command)))
    return len(command), problems


def check_options(options: tuple[str, ...]) -> list[_Problem]:
    """Check that a command is not empty, is cc1's, and is one that a replay would not refuse."""
    if not any(options):
        return [(VerifyReason.COMMAND_EMPTY, "the command is empty")]
    if options[0] != "-cc1":
        detail = f"expected -cc1 as the command's first word, found {options[0][:_LONGEST_OPTION]!r}"
        return [(VerifyReason.COMMAND_NOT_CC1, detail)]
    if (refused := _first_refused(_without_names(options))) is not None:
        return [_refused_option(*refused)]
    return []


def _refused_option(text: str, why: str) -> _Problem:
    return VerifyReason.REFUSED_OPTION, f"{text[:_LONGEST_OPTION]}: {why}; `trust_corpus` runs it"


# Options whose value is a file name that differs in each command of a build, and is never a reason to refuse one.
_NAMING = frozenset({"-main-file-name", "-dependency-file", "-MT", "-MQ", "-coverage-notes-file", "-dumpdir"})


def _without_names(options: tuple[str, ...]) -> tuple[str, ...]:
    """Make the commands of a build equal, so that the cache checks only one of them.

    A word that begins with a dash stays: it may be an option if the word before it is another option's value.
    """
    return tuple(
        "" if before in _NAMING and word[:1] not in ("-", "@") and word else word
        for before, word in zip(("", *options), options, strict=False)
    )


@lru_cache(maxsize=1024)
def _first_refused(options: tuple[str, ...]) -> tuple[str, str] | None:
    return next(iter(refused_options(options)), None)


def _check_thinlto_index(module: Module) -> list[_Problem]:
    path = module.thinlto_index_path
    if path is None:
        return []
    try:
        data = module.thinlto_index()
    except CorpusError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return [(VerifyReason.MISSING_THINLTO_INDEX, f"cannot read {path.name}: there is no such file")]
        return [(VerifyReason.UNREADABLE, error.message)]
    if not data:  # build systems write an empty index for "compile without importing"
        return []
    if not is_bitcode(data):
        return [(VerifyReason.BAD_THINLTO_INDEX, f"{path.name}: expected an index, found {describe_head(data)}")]
    try:
        problem = _walk(data)
    except FormatError as error:
        problem = str(error.at(None))
    return [] if problem is None else [(VerifyReason.BAD_THINLTO_INDEX, f"{path.name}: {problem}")]


# --- the table


class ModuleLookup:
    """Looks up modules in a corpus's table, in the manifest's order, which is usually the table's own.

    Attributes:
        exists: whether there is a table that can be read.
        damage: why the table cannot be read; None if it can, or does not exist.
    """

    def __init__(self, corpus: Corpus) -> None:
        path = corpus.place / MODULES_NAME
        self.exists = path.is_file()
        self.damage: str | None = None
        self._rows = iter_module_rows(path) if self.exists else iter(())
        self._wanted = frozenset(map(printable, corpus.names))
        self._waiting: dict[str, ModuleRow] = {}
        self._others: list[str] = []

    def find(self, name: str) -> ModuleRow | None:
        """Return the row of a module of the manifest; None if it has no row."""
        name = printable(name)
        if (waiting := self._waiting.pop(name, None)) is not None:
            return waiting
        for row in self._iter_ok():
            if row.module == name:
                return row
            if row.module in self._wanted:
                self._waiting[row.module] = row
            else:
                self._others.append(row.module)
        return None

    def others(self) -> Iterator[str]:
        """Yield the modules that are in the corpus according to the table, but not in the manifest."""
        yield from self._others
        yield from (row.module for row in self._iter_ok() if row.module not in self._wanted)

    def _iter_ok(self) -> Iterator[ModuleRow]:
        if self.damage is not None:
            return
        try:
            for row in self._rows:
                if row.status == STATUS_OK:
                    yield row
        except CorpusError as error:
            self.exists = False
            self.damage = str(error)


def iter_checks(corpus: Corpus, names: Sequence[str], lookup: ModuleLookup) -> Iterator[Check]:
    """Yield a check for each of the modules."""
    for name, packed in zip(names, _iter_recorded(corpus, names), strict=True):
        row = lookup.find(name)
        yield Check(corpus[name], packed if row is None else Expected.of(row), lookup.exists)


def _iter_recorded(corpus: Corpus, names: Sequence[str]) -> Iterator[Expected | None]:
    """Yield what a packed corpus's rows say of modules' files; None for a module without such a row."""
    columns = ("bitcode_bytes", "bitcode_sha256", "cmd_bytes", "cmd_sha256")
    for values in corpus.iter_values(names, columns):
        # The row does not record whether the build embedded a command; neither does a folder.
        has_command = values[3] is not None or corpus.global_command_override is None
        yield None if values[1] is None else Expected(values[0], values[1], values[2], values[3], has_command)


# --- the folder


def iter_folder_rows(corpus: Corpus, lookup: ModuleLookup, *, whole: bool) -> Iterator[VerifyRow]:
    """Yield a row for each problem of a corpus outside its modules; call it after all modules have been looked up.

    Args:
        corpus: the corpus that was checked.
        lookup: the corpus's table.
        whole: whether the corpus's own manifest was opened, and not that of one side of a split.
    """
    if lookup.damage is not None:
        yield problem_row(MODULES_NAME, VerifyReason.DAMAGED_TABLE, lookup.damage)
    else:
        yield from _check_others(corpus)
    if (override := corpus.global_command_override) is not None:
        yield from _check_override(override)
    if not whole:
        return
    for name in lookup.others():
        detail = f"{MODULES_NAME} says that it is in the corpus, {MANIFEST_NAME} does not"
        yield problem_row(name or "", VerifyReason.NOT_IN_MANIFEST, detail)
    known = frozenset(corpus.names)
    listed = set(known)
    for path in _side_manifests(corpus.place):
        try:
            names = read_manifest(path)["modules"]
        except CorpusError as error:
            yield problem_row(path.name, VerifyReason.DAMAGED_MANIFEST, str(error))
            continue
        listed.update(names)
        for name in names:
            if name not in known:
                detail = f"{path.name} names it, {MANIFEST_NAME} does not"
                yield problem_row(name, VerifyReason.UNKNOWN_MODULE, detail)
    if isinstance(corpus.place, Path):
        for name in _iter_bitcode_files(corpus.place):
            if name.removesuffix(BITCODE_SUFFIX) not in listed:
                yield problem_row(name, VerifyReason.UNLISTED_FILE, "bitcode that no manifest names")


def _check_others(corpus: Corpus) -> Iterator[VerifyRow]:
    """Compare the manifests and tables of a packed corpus with what was packed."""
    for name, digest in corpus.recorded_digests().items():
        is_manifest = name.startswith(MANIFEST_STEM)
        reason = VerifyReason.DAMAGED_MANIFEST if is_manifest else VerifyReason.DAMAGED_TABLE
        try:
            found = file_digest(corpus.place / name)
        except CorpusError as error:
            yield problem_row(name, reason, str(error))
            continue
        if found != digest:
            yield problem_row(name, reason, "is not what was packed: its SHA-256 is another")


def _side_manifests(place: Place) -> list[Place]:
    names = place.files() if isinstance(place, RemotePath) else (path.name for path in place.glob(f"{MANIFEST_STEM}*"))
    return [
        place / name
        for name in sorted(names)
        if name != MANIFEST_NAME and "/" not in name and name.startswith(MANIFEST_STEM) and name.endswith(".json")
    ]


def _check_override(override: tuple[str, ...]) -> Iterator[VerifyRow]:
    if override == UNSPECIFIED_OVERRIDE or not override:
        detail = "global_command_override leaves the modules' command to be filled in"
        yield problem_row(MANIFEST_NAME, VerifyReason.NO_COMMAND, detail)
        return
    if is_driver_line(override):
        refused = refused_driver_options(override)[:1]
        problems = [_refused_option(text, why) for text, why in refused]
    else:
        problems = check_options(override if override[0] == "-cc1" else ("-cc1", *override))
    for reason, detail in problems:
        yield problem_row(MANIFEST_NAME, reason, f"global_command_override: {detail}")


def _iter_bitcode_files(root: Path) -> Iterator[str]:
    """Yield the relative paths of a folder's bitcode files, without ThinLTO indexes; links are not entered."""
    for folder, folders, files in walk(root):
        folders[:] = sorted(name for name in folders if not (folder == os.fspath(root) and name == STATE_FOLDER))
        for file in sorted(files):
            if file.endswith(BITCODE_SUFFIX) and not file.endswith(THINLTO_INDEX_SUFFIX):
                yield os.path.relpath(os.path.join(folder, file), root)


# --- the file


def write_verify_rows(
    path: Path, rows: Iterable[VerifyRow], metadata: Mapping[str, Any], seen: Callable[[VerifyRow], None]
) -> None:
    """Write rows as they come, and call ``seen`` with each; the file gets its name when it is complete."""

    def told() -> Iterator[VerifyRow]:
        for row in rows:
            seen(row)
            yield row

    write_table(path, VerifyRow._fields, _KINDS, told(), metadata, meanings=plain_columns(__doc__))
