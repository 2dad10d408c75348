"""One module compiled again, and compared with the object it was extracted from.

The command is run as it is embedded where it writes nothing but the object, so that bitcode and command are embedded
again: then the whole object is the original's, byte for byte. Where it would write more, it is replayed without that
(`replay_command`), embeds again what it embedded, and the objects are compared section by section. The bitcode alone
would do for the code, but not for the rest: without the two embedded sections, sections have other numbers.

What a rebuild cannot give back, though the code is the same: what names the input (the address sanitizer puts it into
``.rodata``, CodeView into ``.debug$T``), debug information that ``-gsplit-dwarf`` had put elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from mlgo_corpus.builds.objects import SectionNames
from mlgo_corpus.builds.originals import NoOriginal, Original, find_original
from mlgo_corpus.compilers.command import CommandEdits
from mlgo_corpus.compilers.compile import OBJECT_NAME, ModuleCompiles, check_bitcode, row_detail, run_folder
from mlgo_corpus.compilers.failures import RunFailure
from mlgo_corpus.compilers.limits import Limits
from mlgo_corpus.corpus.certificate import Outcome, RebuildRow
from mlgo_corpus.corpus.folder import Module
from mlgo_corpus.dataset.reasons import RunReason
from mlgo_corpus.engine.choice import Lost
from mlgo_corpus.errors import CorpusError, FormatError
from mlgo_corpus.files.text import printable
from mlgo_corpus.formats.bitcode.headers import read_producer
from mlgo_corpus.formats.buffer import Buffer
from mlgo_corpus.formats.commands.replay import embedding_options, verbatim_command
from mlgo_corpus.formats.objects.compare import EMBEDDED, compare_objects
from mlgo_corpus.formats.objects.objfile import measure_object
from mlgo_corpus.runs.over import lost_reason

_BITCODE_NAME = "module.bc"
_PRODUCER = re.compile(r"LLVM(\d+)\.(\d+)(?:\.(\d+))?")


@dataclass(frozen=True, slots=True)
class RebuildCompiler:
    """A clang: the words before ``-cc1``, LLVM's version in three numbers, the line that says so, and its digest."""

    cc1: tuple[str, ...]
    version: tuple[int, ...]
    vendor: str
    identity: str


@dataclass(frozen=True, slots=True)
class RebuildSettings:
    """The settings of all rebuilds.

    Attributes:
        compilers: those that may be taken, the likelier ones first.
        build_dirs: where the original objects are.
        work: the folder for runs under way.
        names: the sections that the corpus was extracted from.
        edits: whether the command may be any command; it is run as it is.
        limits: what each compile may take.
    """

    compilers: tuple[RebuildCompiler, ...]
    build_dirs: tuple[str, ...]
    work: Path
    names: SectionNames = field(default_factory=SectionNames)
    edits: CommandEdits = field(default_factory=CommandEdits)
    limits: Limits = field(default_factory=lambda: Limits(timeout=300.0))


class RebuildItem(NamedTuple):
    """One module to rebuild, its number among those of this run, and what the corpus's table says of it."""

    number: int
    module: Module
    source: str
    member: str | None
    bitcode_sha256: str | None


def pick_compiler(
    compilers: Sequence[RebuildCompiler], producer: str | None, original: Buffer
) -> tuple[RebuildCompiler | None, bool]:
    """Choose what to compile a module with: the very LLVM that made it, else the next newer one.

    Of several of the same version, the one that has signed the object is taken.

    Returns:
        The compiler, None if all are older, and whether its version is the producer's.
    """
    match = _PRODUCER.match(producer or "")
    wanted = None if match is None else tuple(int(number or 0) for number in match.groups())
    exact = [one for one in compilers if one.version == wanted]
    if exact:
        signed = [one for one in exact if one.vendor and _has_signed(one, original)]
        return (signed or exact)[0], True
    if wanted is None:
        signed = [one for one in compilers if one.vendor and _has_signed(one, original)]
        return max(signed or compilers, key=lambda one: one.version, default=None), False
    newer = [one for one in compilers if one.version > wanted]
    return min(newer, key=lambda one: one.version, default=None), False


def _has_signed(compiler: RebuildCompiler, original: Buffer) -> bool:
    return bytes(original).find(compiler.vendor.encode("utf-8", "replace")) >= 0


@dataclass(frozen=True, slots=True)
class RebuildJob:
    """A rebuild of one module, as `mlgo_corpus.runs.over` does it to every module."""

    settings: RebuildSettings

    @property
    def work(self) -> Path:
        """The folder for work under way."""
        return self.settings.work

    @property
    def limit_s(self) -> float:
        """Seconds that the compile of one module may take."""
        return self.settings.limits.timeout

    @property
    def programs(self) -> tuple[str, ...]:
        """The compilers that may be taken."""
        return tuple(dict.fromkeys(compiler.cc1[0] for compiler in self.settings.compilers))

    @property
    def trusted(self) -> bool:
        """Whether they run without walls."""
        return self.settings.edits.trusted

    def run(self, item: RebuildItem) -> RebuildRow:
        """Compile a module again and compare. What goes wrong with it is in the row.

        Raises:
            OSError: the work folder cannot be written.
        """
        with run_folder(self.settings.work) as folder:
            return _Rebuild(self.settings, item, folder).row()

    def lost(self, item: RebuildItem, lost: Lost) -> RebuildRow:
        """Return the row for a module whose worker died."""
        reason = lost_reason(lost)
        return RebuildRow(printable(item.module.name), Outcome.FAILS.value, reason.value, lost.detail)

    def outcome(self, record: Any) -> RebuildRow:
        """Return the row that JSON held."""
        row = RebuildRow(*record)
        return row._replace(argv=None if row.argv is None else tuple(row.argv))

    def is_whole(self, item: RebuildItem, outcome: RebuildRow) -> bool:
        """Return True if the module came out the same; what else came of it may be over by now."""
        same = outcome.outcome in (Outcome.IDENTICAL, Outcome.CODE_IDENTICAL)
        return same and outcome.module == printable(item.module.name)


class _Rebuild:
    """One module's rebuild, in a folder of its own."""

    def __init__(self, settings: RebuildSettings, item: RebuildItem, folder: Path) -> None:
        self._settings = settings
        self._item = item
        self._folder = folder
        self._compiles = ModuleCompiles(item.module, folder, settings.edits, settings.limits)
        self._known: dict[str, Any] = {"source": item.source, "member": item.member}

    def row(self) -> RebuildRow:
        """Rebuild, and return the row."""
        try:
            return self._rebuilt()
        except RunFailure as failure:
            return self._row(Outcome.FAILS, failure.reason, failure.detail)

    def _row(self, outcome: Outcome, reason: str, detail: str, **more: Any) -> RebuildRow:
        row = RebuildRow(printable(self._item.module.name), outcome.value, str(reason), row_detail(detail))
        ended = {name: value for name, value in self._compiles.ended.items() if name in RebuildRow._fields}
        return row._replace(**self._known, **ended, **more)

    def _rebuilt(self) -> RebuildRow:
        data = self._compiles.read_bitcode()
        check_bitcode(data)
        expected = self._item.bitcode_sha256
        if expected is not None and expected != sha256(data).hexdigest():
            detail = f"the bitcode is not what was extracted: its sha256 is not {expected[:16]}..."
            raise RunFailure(RunReason.WRONG_HASH, detail)
        original: Original | NoOriginal
        try:
            original = self._find_original(data)
            self._known |= _facts("object", original.content)
        except NoOriginal as problem:
            original = problem
        compiler = self._pick(data, original.content if isinstance(original, Original) else b"")
        self._compiles.place()
        (self._folder / _BITCODE_NAME).write_bytes(original.embedded if isinstance(original, Original) else data)
        self._compile(compiler)
        rebuilt = self._compiles.read_object()
        self._known |= _facts("rebuilt", rebuilt)
        self._compiles.measure(rebuilt)
        if isinstance(original, NoOriginal):
            return self._row(Outcome.NO_OBJECT, original.reason, original.detail)
        return self._compared(original.content, rebuilt)

    def _compared(self, original: Buffer, rebuilt: Buffer) -> RebuildRow:
        if original == rebuilt:
            return self._row(Outcome.IDENTICAL, RunReason.OK, "every byte")
        try:
            found = compare_objects(original, rebuilt, EMBEDDED | self._settings.names.all())
        except FormatError as error:
            return self._row(Outcome.DIFFERS, RunReason.OK, f"the objects cannot be compared: {error}")
        if found.anything is None:
            return self._row(Outcome.IDENTICAL, RunReason.OK, "every section, relocation and symbol")
        what = found.anything if found.code is None else found.code
        outcome = Outcome.CODE_IDENTICAL if found.code is None else Outcome.DIFFERS
        return self._row(
            outcome, RunReason.OK, f"{what.section}: {what.detail}", section=what.section, offset=what.offset
        )

    def _find_original(self, data: bytes) -> Original:
        try:
            command: bytes | None = self._item.module.own_command()
        except CorpusError:
            command = None
        settings, item = self._settings, self._item
        return find_original(
            settings.build_dirs, item.source, item.member, module=data, command=command, names=settings.names
        )

    def _pick(self, data: bytes, original: Buffer) -> RebuildCompiler:
        try:
            producer = read_producer(data)
        except FormatError:
            producer = None
        self._known["producer"] = producer
        compiler, same = pick_compiler(self._settings.compilers, producer, original)
        if compiler is None:
            raise RunFailure(
                RunReason.NEWER_BITCODE,
                f"none of the compilers to take is as new as {producer}: `compiler` names one",
            )
        self._known |= {"compiler": compiler.vendor, "same_version": same}
        return compiler

    def _compile(self, compiler: RebuildCompiler) -> None:
        options = self._compiles.options(compiler.cc1)
        argv = (*compiler.cc1, *self._command(options))
        self._known["argv"] = tuple(map(self._compiles.shown, argv))
        self._compiles.run(argv)

    def _command(self, options: tuple[str, ...]) -> tuple[str, ...]:
        if self._compiles.module.thinlto_index_path is None:
            verbatim = verbatim_command(options, bitcode=_BITCODE_NAME, output=OBJECT_NAME)
            if verbatim is not None:
                return verbatim
        return self._compiles.command(options, *embedding_options(options), bitcode=_BITCODE_NAME)


def _facts(which: str, content: Buffer) -> dict[str, Any]:
    """Return the table's columns about an object."""
    facts: dict[str, Any] = {f"{which}_sha256": sha256(content).hexdigest()}
    with suppress(FormatError):  # the comparison tells more
        facts[f"{which}_text_size"] = measure_object(content).text_size
    return facts
