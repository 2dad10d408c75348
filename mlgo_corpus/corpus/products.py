r"""``links.jsonl``: how a build linked its products, and which modules of the corpus are in them.

JSON lines. The first is ``{"format": "mlgo-links-2", "links": N}``. Each of the N others is a command that linked, or
that made an archive, in the order in which they ran; of those of a build that wrote one file, only the last is kept.
Their names differ: those of corpora that `combine` puts into one begin with their corpus's.

===============  ======================================================================================
key              meaning
===============  ======================================================================================
``name``         the file that was written, relative to the build
``kind``         ``program``, ``shared`` (a library), ``relocatable`` (``-r``) or ``archive``
``driver``       ``c``, ``c++``, ``ar`` or a linker: ``ld``, ``ld.bfd``, ``ld.gold`` or ``ld.lld``
``compiler``     the version line of the build's clang
``directory``    where it ran, an absolute path
``arguments``    the command without its program; parameter files are replaced by their words
``output``       the absolute path of the file that was written
``sha256``       its hex digest at the end of the build; null if it was not there
``text_size``    bytes of its code and read-only data, as llvm-size prints ``text``; null of an archive
``code_size``    bytes of its executable sections; null of an archive
``absent``       number of modules the link takes that were lost when this corpus was made from another (by `split`,
                 for example); omitted if 0
``inputs``       the files that it read: a list of objects with the keys below
===============  ======================================================================================

===============  ======================================================================================
key of an input  meaning
===============  ======================================================================================
``word``         how the command names it: ``sub/a.o``, ``-lfoo``
``path``         its absolute path
``state``        ``there``; ``kept``: the build deleted or changed it, and the corpus has it; ``changed``: it is
                 younger than the link; ``missing``; ``system``: a file of the system, used as it is; ``source``:
                 compiled by the same command
``sha256``       its hex digest; null if it is missing, of the system, or a source
``modules``      the modules of the corpus that it is made of
``members``      of an archive, its members in their order: objects with ``name``, ``sha256``, ``module`` (or null),
                 and ``path`` if the archive is thin, else null; empty if ``members_of`` has a number
``members_of``   null, or that the members are those of an input before: the index, from 0, of an earlier list of
                 members in the file
``taken``        the places of those members, from 0, that the linker takes (`mlgo_corpus.formats.objects.resolve`);
                 null if that is not known
===============  ======================================================================================

What a library's name means was looked up in the folders that the command names; one that is in none of them is the
system's, and is not listed. Text is ASCII: names that are not Unicode have lone surrogates, as Python decodes them.

Hundreds of programs are linked with the same archives of thousands of members: a list of members is in the file once,
and once in memory. Records of before, ``mlgo-links-1``, have it in each input and ``taken`` in each member; they are
read, too.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from mlgo_corpus.builds.compiles import Compile, kept_object
from mlgo_corpus.builds.leftovers import Link, located_words
from mlgo_corpus.builds.objects import SectionNames, Tally, read_object
from mlgo_corpus.corpus.folder import Corpus
from mlgo_corpus.corpus.groups import ModuleLabels
from mlgo_corpus.corpus.links import check_inside
from mlgo_corpus.corpus.modules import STATUS_OK, iter_module_rows
from mlgo_corpus.errors import CorpusError, FormatError
from mlgo_corpus.files.atomic import write_atomically
from mlgo_corpus.files.names import LINKS_NAME, MAX_COMPONENTS, MODULES_NAME
from mlgo_corpus.files.regular import MAX_LIST_BYTES, read_file, read_regular
from mlgo_corpus.files.remote import Place
from mlgo_corpus.files.text import os_reason
from mlgo_corpus.formats.buffer import Buffer
from mlgo_corpus.formats.commands.buildfiles import HEAD_BYTES, is_object
from mlgo_corpus.formats.commands.linkwords import LinkWord, Role, output_of, read_command
from mlgo_corpus.formats.objects import archive
from mlgo_corpus.formats.objects.footprints import Exports
from mlgo_corpus.formats.objects.objfile import measure_object, parse_objfile
from mlgo_corpus.formats.objects.resolve import InputNames, taken_members
from mlgo_corpus.formats.objects.symbols import LinkedNames, linked_names

_FORMAT: Final = "mlgo-links-2"
_FORMATS: Final = (_FORMAT, "mlgo-links-1")
_AR: Final = "ar"
_SYSTEM: Final = ("/usr/", "/lib/", "/lib32/", "/lib64/", "/nix/store/", "/gnu/store/")
_NAMES: Final = SectionNames()
# Options with which not all that is not hidden is exported, with which a library's calls are to its own functions, and
# with which a program exports as a library does.
_HIDES: Final = re.compile(r"(^|,)--?(version-script|exclude-libs|retain-symbols-file)\b")
_BINDS: Final = re.compile(r"(^|,)--?(Bsymbolic(-functions)?(,|$)|dynamic-list\b)")
_EXPORTS: Final = re.compile(r"^-rdynamic$|(^|,)(--?export-dynamic|-E)(,|$)")


class LinkKind(StrEnum):
    """What a link makes."""

    PROGRAM = "program"
    SHARED = "shared"
    RELOCATABLE = "relocatable"
    ARCHIVE = "archive"


class InputState(StrEnum):
    """What was known of an input when the build had ended; see this module's docstring."""

    THERE = "there"
    KEPT = "kept"
    CHANGED = "changed"
    MISSING = "missing"
    SYSTEM = "system"
    SOURCE = "source"


@dataclass(frozen=True, slots=True)
class _Member:
    """A member of an archive; ``path`` is that of the file that a thin archive names."""

    name: str
    sha256: str | None
    module: str | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True)
class LinkedFile:
    """An input of a link; fields as this module's docstring describes them, with ``members`` in any case."""

    word: str
    path: str
    state: str
    sha256: str | None = None
    modules: tuple[str, ...] = ()
    members: tuple[_Member, ...] = ()
    taken: tuple[int, ...] | None = None

    def without_untaken(self) -> LinkedFile:
        """Return it without those members that the linker does not take."""
        if self.taken is None:
            return self
        return replace(self, members=tuple(self.members[at] for at in self.taken), taken=None)

    def all_modules(self) -> tuple[str, ...]:
        """Return the modules that it is made of, and those of its members."""
        return (*self.modules, *(one.module for one in self.members if one.module is not None))


@dataclass(frozen=True, slots=True)
class LinkRecord:
    """One link; fields as this module's docstring describes them."""

    name: str
    kind: str
    driver: str
    compiler: str
    directory: str
    arguments: tuple[str, ...]
    output: str
    sha256: str | None = None
    text_size: int | None = None
    code_size: int | None = None
    absent: int = 0
    inputs: tuple[LinkedFile, ...] = ()

    def words(self) -> tuple[LinkWord, ...]:
        """Return the command's words, each with its role."""
        return read_command(self.driver, self.arguments)


_PLAIN_FIELDS: Final = tuple(one.name for one in fields(LinkRecord) if one.name not in ("absent", "inputs"))
_PLAIN_FIELDS_OF_INPUT: Final = ("word", "path", "state", "sha256", "modules")


def _is_system(path: str) -> bool:
    """Return True for a file of the system, which anybody has."""
    return path.startswith(_SYSTEM)


def products_of(corpus: Corpus) -> dict[str, tuple[str, ...]]:
    """Return the programs and shared libraries that contain each module, by their names in ``links.jsonl``.

    Members of archives count if the linker took them, or if that is not known. It is empty without a record of links.

    Raises:
        CorpusError: the record is damaged.
    """
    return dict(LinkedModules.read(corpus).products)


@dataclass(frozen=True)
class LinkedModules:
    """The modules that are in programs and shared libraries; there are none without a record of links.

    Attributes:
        products: those that contain each module, as `products_of` has them.
        exported: what is exported of each of these modules: the most, if it is in several products. Where a link has a
            version script, or hides what archives hold, that is not known, and counts as nothing.
        labels: of the corpus.
    """

    products: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    exported: Mapping[str, Exports] = field(default_factory=dict)
    labels: ModuleLabels = field(default_factory=ModuleLabels)

    @classmethod
    def read(cls, corpus: Corpus) -> LinkedModules:
        """Read what a corpus's builds linked.

        Raises:
            CorpusError: the record is damaged.
        """
        products: defaultdict[str, dict[str, None]] = defaultdict(dict)
        exported: dict[str, Exports] = {}
        records = known_links(corpus) or ()
        parts = parts_of(records)
        for record in product_links(records):
            exports = _exports_of_link(record)
            for module in modules_of(record, parts, taken=True):
                products[module][record.name] = None
                exported[module] = max(exports, exported.get(module, Exports.NOTHING))
        return cls({module: tuple(names) for module, names in products.items()}, exported, ModuleLabels.of(corpus))

    @cached_property
    def _roots(self) -> dict[str, str]:
        """A product for each module, the same for modules that are linked with each other.

        Products that have a module in common count as one.
        """
        first: dict[str, str] = {}

        def find(name: str) -> str:
            while (other := first.get(name, name)) != name:
                name = other
            return name

        for names in self.products.values():
            roots = sorted({find(name) for name in names})
            first.update(dict.fromkeys(roots, roots[0]))
        return {module: find(names[0]) for module, names in self.products.items()}

    def group(self, module: str) -> str:
        """Return the link group of any module of the corpus: a product's name, or its project."""
        return self._roots.get(module) or f"of {self.labels.project(module)}"

    def exports(self, module: str) -> Exports:
        """Return what is exported of any module of the corpus."""
        return self.exported.get(module, Exports.NOTHING)


def _exports_of_link(record: LinkRecord) -> Exports:
    def has(option: re.Pattern[str]) -> bool:
        return any(map(option.search, record.arguments))

    if has(_HIDES):
        return Exports.NOTHING
    if record.kind == LinkKind.SHARED:
        return Exports.NAMES if has(_BINDS) else Exports.CALLS
    return Exports.NAMES if record.kind == LinkKind.PROGRAM and has(_EXPORTS) else Exports.NOTHING


def product_links(records: Sequence[LinkRecord]) -> tuple[LinkRecord, ...]:
    """Return the links that make a product: programs, shared libraries, and objects that no other link takes."""
    taken = {item.sha256 for one in records for item in one.inputs}
    taken |= {member.sha256 for one in records for item in one.inputs for member in item.members}
    finals = (LinkKind.PROGRAM, LinkKind.SHARED)
    return tuple(
        one
        for one in records
        if one.kind in finals or (one.kind == LinkKind.RELOCATABLE and (one.sha256 is None or one.sha256 not in taken))
    )


def parts_of(records: Iterable[LinkRecord]) -> dict[str, LinkRecord]:
    """Return the links of objects (``-r``) by the digests of these, which other links take."""
    return {one.sha256: one for one in records if one.kind == LinkKind.RELOCATABLE and one.sha256 is not None}


def modules_of(record: LinkRecord, parts: Mapping[str, LinkRecord], *, taken: bool = False) -> tuple[str, ...]:
    """Return the modules that a link can take.

    Args:
        record: the link.
        parts: links whose outputs are inputs of others, by digest.
        taken: leave out those that are only in members of archives that the link does not take.
    """
    found: dict[str, None] = {}
    seen: set[str] = set()
    todo = [record]
    while todo:
        one = todo.pop()
        if one.name in seen:
            continue
        seen.add(one.name)
        for item in (each.without_untaken() for each in one.inputs) if taken else one.inputs:
            found |= dict.fromkeys(item.all_modules())
            digests = (item.sha256, *(member.sha256 for member in item.members))
            todo += [parts[digest] for digest in digests if digest is not None and digest in parts]
    return tuple(found)


# --- the file


def read_links(corpus: Corpus) -> tuple[LinkRecord, ...]:
    """Read the links of a corpus's builds.

    Raises:
        CorpusError: there is no record of them, or it is damaged.
    """
    records = known_links(corpus)
    if records is None:
        what = "the corpus has no record of how its build linked, as those of 'mlgo-corpus build' have"
        raise CorpusError(f"{corpus.place / LINKS_NAME}: {what}, and corpora made of these; build it again")
    return records


def known_links(corpus: Corpus) -> tuple[LinkRecord, ...] | None:
    """Read the links of a corpus's builds; None without a record of them.

    Raises:
        CorpusError: it is damaged.
    """
    if isinstance(corpus.there, Path):
        check_inside(corpus.there, LINKS_NAME)
    return _read(corpus.there / LINKS_NAME)


def links_among(
    records: Sequence[LinkRecord], folder: str, modules: Container[str], same: Mapping[str, str] = MappingProxyType({})
) -> Iterator[LinkRecord]:
    """Yield the links as a corpus has them that was made of the one that they are of.

    Args:
        records: the links.
        folder: what is put in front of each name there, with a slash; or nothing.
        modules: the modules that are there. A link all of whose modules are missing is left out.
        same: of modules that are not, which of those there is the same.
    """

    def named(module: str) -> str | None:
        name = f"{folder}{same.get(module, module)}"
        return name if name in modules else None

    lists: dict[int, tuple[_Member, ...]] = {}  # by the identity of those that they are made of

    def renamed(members: tuple[_Member, ...]) -> tuple[_Member, ...]:
        if id(members) not in lists:
            lists[id(members)] = tuple(replace(one, module=one.module and named(one.module)) for one in members)
        return lists[id(members)]

    parts = parts_of(records)
    for record in records:
        own = modules_of(record, parts)
        if own and not any(map(named, own)):
            continue
        inputs = tuple(
            replace(
                item,
                modules=tuple(name for name in map(named, item.modules) if name is not None),
                members=renamed(item.members),
            )
            for item in record.inputs
        )
        lost = sum(named(module) is None for module in modules_of(record, parts, taken=True))
        name = f"{folder}{record.name.lstrip('/')}" if folder else record.name
        yield replace(record, name=name, absent=record.absent + lost, inputs=inputs)


def write_links(path: Path, records: Collection[LinkRecord]) -> None:
    """Write a record of links.

    Raises:
        OSError: it cannot be written.
    """
    write_atomically(path, links_bytes(records))


def links_bytes(records: Collection[LinkRecord]) -> bytes:
    """Return what `write_links` writes."""
    lists = _Lists()
    lines: list[dict[str, Any]] = [{"format": _FORMAT, "links": len(records)}]
    for record in records:
        told = {name: getattr(record, name) for name in _PLAIN_FIELDS}
        absent = {"absent": record.absent} if record.absent else {}
        lines.append({**told, **absent, "inputs": [lists.told(one) for one in record.inputs]})
    return "".join(json.dumps(line) + "\n" for line in lines).encode("ascii")


class _Lists:
    """The lists of members that are in the file already, by their identity and by what they are."""

    def __init__(self) -> None:
        self._by_identity: dict[int, int] = {}
        self._numbers: dict[tuple[_Member, ...], int] = {}

    def told(self, item: LinkedFile) -> dict[str, Any]:
        number = self._by_identity.get(id(item.members))
        if item.members and number is None:
            number = self._numbers.get(item.members)
            self._by_identity[id(item.members)] = self._numbers.setdefault(item.members, len(self._numbers))
        return {
            **{name: getattr(item, name) for name in _PLAIN_FIELDS_OF_INPUT},
            "members": [asdict(one) for one in item.members] if number is None else [],
            "members_of": number,
            "taken": item.taken,
        }


def _read(path: Place) -> tuple[LinkRecord, ...] | None:
    try:
        lines = read_regular(path, MAX_LIST_BYTES).splitlines()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CorpusError(f"{path}: {os_reason(error)}") from None
    records: list[LinkRecord] = []
    names: set[str] = set()
    try:
        head = json.loads(lines[0]) if lines else {}
        if not isinstance(head, dict) or head.get("format") not in _FORMATS:
            raise CorpusError(f"{path}: line 1: expected a record of links, {_FORMAT}")
        lists: list[tuple[_Member, ...]] = []
        for line in lines[1:]:
            record = _record(json.loads(line), lists)
            if record.name in names:
                raise ValueError("a link above has its name")
            names.add(record.name)
            records.append(record)
        count = head.get("links")
    except CorpusError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError) as error:
        number = len(records) + 2 if lines[1:] else 1
        raise CorpusError(f"{path}: line {number}: not a link: {error}; build again") from None
    if count != len(records):
        raise CorpusError(f"{path}: expected {count} links, found {len(records)}: the file was cut; build again")
    return tuple(records)


def _text(value: Any) -> str:
    text: object = value
    if not isinstance(text, str) or "\0" in text:
        raise TypeError(f"expected text, found {type(value).__name__}")
    os.fsencode(text)
    return text


def _path(value: Any) -> str:
    text = _text(value)
    if not os.path.isabs(text):
        raise ValueError("expected an absolute path")
    if text.count("/") > MAX_COMPONENTS:
        raise ValueError(f"expected a path of at most {MAX_COMPONENTS} components")
    return os.path.normpath("/" + text.lstrip("/"))


def _or_none(value: Any) -> str | None:
    return None if value is None else _text(value)


def _bool_or_none(value: Any) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise TypeError(f"expected true or false, found {type(value).__name__}")
    return value


def _place(value: Any, count: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < count:
        raise ValueError(f"expected a number below {count}")
    return value


def _digest(value: Any) -> str | None:
    if value is not None and (len(_text(value)) != 64 or not set(value) <= set("0123456789abcdef")):
        raise ValueError("expected a SHA-256")
    return None if value is None else str(value)


def _size(value: Any) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 60):
        raise TypeError("expected a size")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, found {type(value).__name__}")
    return value


def _record(value: Any, lists: list[tuple[_Member, ...]]) -> LinkRecord:
    """Return the link in a line, and add the lists of members that it has to those of the lines before.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: it is malformed.
    """
    return LinkRecord(
        name=_text(value["name"]),
        kind=LinkKind(value["kind"]).value,
        driver=_text(value["driver"]),
        compiler=_text(value["compiler"]),
        directory=_path(value["directory"]),
        arguments=tuple(map(_text, _list(value["arguments"]))),
        output=_path(value["output"]),
        sha256=_digest(value["sha256"]),
        text_size=_size(value["text_size"]),
        code_size=_size(value["code_size"]),
        absent=_size(value.get("absent")) or 0,
        inputs=tuple(_input(one, lists) for one in _list(value["inputs"])),
    )


def _input(value: Any, lists: list[tuple[_Member, ...]]) -> LinkedFile:
    own = _list(value["members"])
    members = tuple(
        _Member(
            _text(one["name"]),
            _digest(one["sha256"]),
            _or_none(one["module"]),
            None if one["path"] is None else _path(one["path"]),
        )
        for one in own
    )
    number = value.get("members_of")
    if number is not None:
        if members:
            raise ValueError("members of its own and of another input")
        members = lists[_place(number, len(lists))]
    elif members:
        lists.append(members)
    taken = value.get("taken")
    if taken is not None:
        taken = tuple(_place(at, len(members)) for at in _list(taken))
    elif own and "taken" in own[0]:  # of mlgo-links-1
        flags = [_bool_or_none(one.get("taken")) for one in own]
        taken = None if None in flags else tuple(at for at, flag in enumerate(flags) if flag)
    return LinkedFile(
        word=_text(value["word"]),
        path=_path(value["path"]),
        state=InputState(value["state"]).value,
        sha256=_digest(value["sha256"]),
        modules=tuple(map(_text, _list(value["modules"]))),
        members=members,
        taken=taken,
    )


def record_links(
    corpus: Path, links: Sequence[Link], compiles: Iterable[Compile], build_dir: str, compiler: str
) -> tuple[int, str | None]:
    """Add a build's links to the record of a corpus, whose modules are extracted.

    Returns:
        How many it has, and why those of earlier builds were lost: their record could not be read.

    Args:
        corpus: the corpus's folder; the caller holds its lock.
        links: the commands.
        compiles: the compiles whose objects exist.
        build_dir: the folder that names are relative to.
        compiler: the version line of the build's clang.

    Raises:
        CorpusError: the table of modules cannot be read.
        OSError: the record cannot be written.
    """
    known: dict[str, LinkRecord] = {}
    lost: str | None = None
    try:
        known = {one.output: one for one in _read(corpus / LINKS_NAME) or ()}
    except CorpusError as error:
        lost = str(error).removesuffix("; build again")
    examined = _Examined(corpus, compiles, build_dir, compiler)
    for link in sorted(links, key=lambda one: one.order):
        record = examined.record(link)
        if record is not None:
            known.pop(record.output, None)
            known[record.output] = record
    write_links(corpus / LINKS_NAME, known.values())
    return len(known), lost


# --- what a build left


@dataclass(slots=True)
class _Rows:
    """The modules of a corpus by what they were extracted from."""

    by_content: dict[tuple[str, str | None], str] = field(default_factory=dict)
    by_bitcode: dict[str, str] = field(default_factory=dict)
    by_source: dict[str, list[tuple[str, str | None]]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> _Rows:
        found = cls()
        for row in iter_module_rows(path):
            module = row.module if row.status == STATUS_OK else row.duplicate_of
            if module is None:
                continue
            if row.bitcode_sha256 is not None:
                found.by_content.setdefault((row.bitcode_sha256, row.cmd_sha256), module)
                found.by_bitcode.setdefault(row.bitcode_sha256, module)
            found.by_source.setdefault(row.source, []).append((module, row.main_file_name))
        return found


class _Examined:
    """The files of a build as it left them, each read once, and once more for its names where archives are linked."""

    def __init__(self, corpus: Path, compiles: Iterable[Compile], build_dir: str, compiler: str) -> None:
        self._corpus = corpus
        self._folder = build_dir.rstrip("/") + "/"
        self._compiler = compiler
        self._rows = _Rows.read(corpus / MODULES_NAME)
        self._compiles: defaultdict[str, list[Compile]] = defaultdict(list)
        for one in compiles:
            if one.digest is not None:
                self._compiles[one.path].append(one)
        self._files: dict[str, LinkedFile] = {}
        self._names: dict[str, tuple[LinkedNames, ...] | None] = {}

    def record(self, link: Link) -> LinkRecord | None:
        """Return the record of a command; None if it makes nothing, or was a test of the compiler."""
        driver, *arguments = link.words
        words = link.read()
        output = output_of(driver, words)
        if not output or link.status or not words:
            return None
        path = os.path.normpath(os.path.join(link.directory, output))
        name = path.removeprefix(self._folder)
        inputs = tuple(self._inputs(words, link, name))
        there = os.path.isfile(path)
        scripts = {one.path for one in words if one.role is Role.FILE}
        if not there and not any(_is_there(one) for one in inputs if one.word not in scripts):
            return None
        kind = _kind(driver, words)
        if kind != LinkKind.ARCHIVE:
            inputs = self._with_taken(inputs, words, kind)
        record = LinkRecord(name, kind, driver, self._compiler, link.directory, tuple(arguments), path, inputs=inputs)
        with suppress(OSError, ValueError):
            data = read_file(path)
            record = replace(record, sha256=sha256(data).hexdigest())
            with suppress(FormatError):
                sizes = measure_object(data) if kind != LinkKind.ARCHIVE else None
                if sizes is not None:
                    record = replace(record, text_size=sizes.text_size, code_size=sizes.code_size)
        return record

    def _inputs(self, words: Sequence[LinkWord], link: Link, name: str) -> Iterator[LinkedFile]:
        sources = [one.path for one in words if one.role is Role.SOURCE]
        for word, path in located_words(words, link.directory):
            if word.role is Role.SOURCE:
                made = self._rows.by_source.get(name, [])
                # A program also has the modules of the objects that it was linked of.
                fitting = [module for module, main in made if main == os.path.basename(word.path or "")]
                if len(sources) == len(made) == 1:
                    fitting = [made[0][0]]
                modules = tuple(fitting) if len(fitting) == 1 else ()
                yield LinkedFile(word.name, path, InputState.SOURCE.value, modules=modules)
            elif word.role is not Role.LIBRARY or not _is_system(path) or path.startswith(self._folder):
                yield self._file(word.name, path, link)

    def _file(self, word: str, path: str, link: Link) -> LinkedFile:
        """Return an input of a link, from the file or from the copy that the corpus has."""
        inside = path.startswith((self._folder, link.directory.rstrip("/") + "/"))
        if _is_system(path) and not inside:
            return LinkedFile(word, path, InputState.SYSTEM.value)
        try:
            changed = os.stat(path).st_mtime_ns > link.order
        except (OSError, ValueError):
            changed = None
        if changed is not False:
            before = [one for one in self._compiles.get(path, ()) if one.order <= link.order]
            for one in sorted(before, key=lambda one: -one.order)[:1]:
                if one.kept and one.digest is not None:
                    kept = self._read(str(kept_object(self._corpus, one.digest)))
                    if kept is not None:
                        return replace(kept, word=word, path=path, state=InputState.KEPT.value)
        found = None if changed is None else self._read(path)
        if found is None:
            return LinkedFile(word, path, InputState.MISSING.value)
        return replace(found, word=word, state=(InputState.CHANGED if changed else InputState.THERE).value)

    def _read(self, path: str) -> LinkedFile | None:
        if path not in self._files:
            try:
                data = read_file(path)
            except (OSError, ValueError):
                return None
            made = LinkedFile(path, path, InputState.THERE.value, sha256(data).hexdigest())
            with suppress(FormatError):
                if archive.is_archive(data):
                    made = replace(made, members=tuple(self._members(data, os.path.dirname(path))))
                elif is_object(bytes(data[:HEAD_BYTES])):
                    made = replace(made, modules=self._modules(data))
            self._files[path] = made
        return self._files[path]

    def _with_taken(
        self, inputs: tuple[LinkedFile, ...], words: Sequence[LinkWord], kind: str
    ) -> tuple[LinkedFile, ...]:
        """Return the inputs of a link with what it takes of archives, if all that it takes can be known."""
        if not any(one.members for one in inputs):
            return inputs
        whole = _whole_archives(words)
        files = []
        for one in inputs:
            names = () if one.state == InputState.SYSTEM else self._names_in(one)
            if names is None:
                return inputs
            files.append(InputNames(names, not one.members or one.word in whole))
        taken = taken_members(files, _needed_names(words, kind))
        return tuple(
            replace(one, taken=tuple(at for at in range(len(one.members)) if at in chosen)) if one.members else one
            for one, chosen in zip(inputs, taken, strict=True)
        )

    def _names_in(self, item: LinkedFile) -> tuple[LinkedNames, ...] | None:
        """Return the names of a file's objects; None if they cannot be known. A shared library has none."""
        if item.sha256 is None:
            return None
        # Not by the digest: thin archives of equal bytes have other members in other folders.
        kept = item.state == InputState.KEPT
        place = str(kept_object(self._corpus, item.sha256)) if kept else item.path
        if place not in self._names:
            try:
                self._names[place] = tuple(self._iter_names(place, item))
            except (OSError, ValueError, FormatError):
                self._names[place] = None
        return self._names[place]

    def _iter_names(self, place: str, item: LinkedFile) -> Iterator[LinkedNames]:
        data = read_file(place)
        if not archive.is_archive(data):
            if is_object(bytes(data[:HEAD_BYTES])) and not parse_objfile(data, ()).linked:
                yield linked_names(data)
            return
        for member, known in zip(archive.iter_members(data), item.members, strict=True):
            if member.offset is not None:
                yield linked_names(memoryview(data)[member.offset : member.offset + member.size])
            else:
                yield linked_names(read_file(known.path or ""))

    def _members(self, data: Buffer, folder: str) -> Iterator[_Member]:
        for item in archive.iter_members(data):
            path = None
            content: Buffer
            if item.offset is not None:
                content = memoryview(data)[item.offset : item.offset + item.size]
            else:
                path = os.path.normpath(os.path.join(folder, item.name))
                try:
                    content = read_file(path)
                except (OSError, ValueError):
                    yield _Member(item.name, None, None, path)
                    continue
            modules = self._modules(content)
            module = modules[0] if len(modules) == 1 else None
            yield _Member(item.name, sha256(content).hexdigest(), module, path)

    def _modules(self, data: Buffer) -> tuple[str, ...]:
        """Return the modules whose bitcode and command an object holds; nothing of a linked file."""
        if archive.is_archive(data):
            return ()
        with suppress(FormatError):
            if parse_objfile(data, ()).linked:
                return ()
        found = []
        for item in read_object(data, Tally(), names=_NAMES):
            if item.bitcode is None:
                continue
            digest = sha256(item.bitcode).hexdigest()
            command = None if item.command is None else sha256(item.command).hexdigest()
            module = self._rows.by_content.get((digest, command)) or self._rows.by_bitcode.get(digest)
            if module is not None:
                found.append(module)
        return tuple(found)


def _is_there(item: LinkedFile) -> bool:
    """Return True if an input tells of a build, and not of a test of the compiler, which is deleted with its output."""
    if item.state == InputState.SOURCE:
        return os.path.lexists(item.path)
    return item.state not in (InputState.MISSING, InputState.SYSTEM)


def _kind(driver: str, words: Sequence[LinkWord]) -> str:
    if driver == _AR:
        return LinkKind.ARCHIVE.value
    flags = {one.words[0].lstrip("-") for one in words if one.role is Role.FLAG}
    if flags & {"r", "relocatable", "Ur"}:
        return LinkKind.RELOCATABLE.value
    return (LinkKind.SHARED if flags & {"shared", "Bshareable"} else LinkKind.PROGRAM).value


def _whole_archives(words: Sequence[LinkWord]) -> set[str]:
    """Return the archives, as a link names them, of which it takes everything."""
    found, whole = set[str](), [False]
    for word in words:
        name = word.words[0].lstrip("-") if word.words and word.linker else ""
        if name in ("whole-archive", "no-whole-archive"):
            whole[-1] = name == "whole-archive"
        elif name == "push-state":
            whole.append(whole[-1])
        elif name == "pop-state" and len(whole) > 1:
            whole.pop()
        elif whole[-1] and word.role in (Role.INPUT, Role.LIBRARY):
            found.add(word.name)
    return found


def _needed_names(words: Sequence[LinkWord], kind: str) -> list[str]:
    """Return the names that a link needs, whatever its objects need."""
    found = ["main"] if kind == LinkKind.PROGRAM else []
    for word in words:
        option, _, value = word.words[0].lstrip("-").partition("=") if word.words else ("", "", "")
        if word.role is Role.FLAG and option in ("u", "undefined", "require-defined", "e", "entry", "init", "fini"):
            found.append(word.path or value or word.words[-1])
        elif word.role is Role.FLAG and not word.linker and re.match("-u[A-Za-z_]", word.words[0]):
            found.append(word.words[0][2:])
    return found
