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
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from mlgo_corpus.builds.objects import SectionNames
from mlgo_corpus.compilers.command import (
    compiler_environment,
    module_command,
    module_confinement,
    module_options,
    on_disk,
)
from mlgo_corpus.compilers.failures import RunFailure, classify, without_quotes
from mlgo_corpus.compilers.process import run_tool
from mlgo_corpus.corpus.certificate import Outcome, RebuildRow
from mlgo_corpus.corpus.folder import Module
from mlgo_corpus.corpus.originals import NoOriginal, Original, find_original
from mlgo_corpus.dataset.tracetable import TraceReason, stderr_tail
from mlgo_corpus.errors import CorpusError, FormatError, ToolError, Usage
from mlgo_corpus.files.regular import read_file
from mlgo_corpus.files.text import os_reason, printable
from mlgo_corpus.formats.bitcode.headers import is_bitcode, read_producer
from mlgo_corpus.formats.buffer import Buffer
from mlgo_corpus.formats.commands.replay import embedding_options, verbatim_command
from mlgo_corpus.formats.objects.compare import EMBEDDED, compare_objects
from mlgo_corpus.formats.objects.objfile import measure_object

OK = "ok"
WRONG_HASH = "wrong_hash"
_BITCODE_NAME = "module.bc"
_OBJECT_NAME = "module.o"
_PRODUCER = re.compile(r"LLVM(\d+)\.(\d+)(?:\.(\d+))?")
_LONGEST_DETAIL = 500


@dataclass(frozen=True, slots=True)
class RebuildCompiler:
    """A clang: the words before ``-cc1``, LLVM's version in three numbers, the line that says so, and its digest."""

    cc1: tuple[str, ...]
    version: tuple[int, ...]
    vendor: str
    identity: str


@dataclass(frozen=True, slots=True)
class RebuildSettings:
    """What all rebuilds have in common.

    Attributes:
        compilers: those that may be taken, the likelier ones first.
        build_dirs: where the original objects are.
        work: the folder for runs under way.
        names: the sections that the corpus was extracted from.
        trusted: run commands that could do harm.
        timeout: seconds that one compile may take.
        memory_limit: bytes of address space that one may have.
        add, delete, replace: no edits, see `CommandSettings`.
    """

    compilers: tuple[RebuildCompiler, ...]
    build_dirs: tuple[str, ...]
    work: Path
    names: SectionNames = field(default_factory=SectionNames)
    trusted: bool = False
    timeout: float = 300.0
    memory_limit: int | None = None
    add: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()


class RebuildItem(NamedTuple):
    """One module to rebuild, and what the corpus's table says of it."""

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


def rebuild_module(settings: RebuildSettings, item: RebuildItem) -> RebuildRow:
    """Compile a module again and compare. What goes wrong with it is told in the row.

    Raises:
        OSError: the work folder cannot be written.
    """
    folder = Path(tempfile.mkdtemp(prefix="rebuild-", dir=settings.work))
    try:
        return _Rebuild(settings, item, folder).row()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Rebuild:
    """One module's rebuild, in a folder of its own."""

    def __init__(self, settings: RebuildSettings, item: RebuildItem, folder: Path) -> None:
        self._settings = settings
        self._item = item
        self._module = item.module
        # What says paths as they are in the corpus, of a module whose files are made for the compiler.
        self._said: Callable[[str], str] = str
        self._folder = folder
        self._known: dict[str, Any] = {"source": item.source, "member": item.member}

    def row(self) -> RebuildRow:
        """Rebuild, and tell of it."""
        try:
            return self._rebuilt()
        except RunFailure as failure:
            return self._row(Outcome.FAILS, failure.reason.value, failure.detail)

    def _row(self, outcome: Outcome, reason: str, detail: str, **more: Any) -> RebuildRow:
        # What a compiler says may be meant for a terminal.
        detail = stderr_tail(" ".join(detail.split())[:_LONGEST_DETAIL].encode("utf-8", "surrogateescape"))
        row = RebuildRow(printable(self._module.name), outcome.value, str(reason), detail)
        return row._replace(**self._known, **more)

    def _rebuilt(self) -> RebuildRow:
        data = self._read()
        expected = self._item.bitcode_sha256
        if expected is not None and expected != sha256(data).hexdigest():
            detail = f"the bitcode is not what was extracted: its sha256 is not {expected[:16]}..."
            return self._row(Outcome.FAILS, WRONG_HASH, detail)
        original: Original | NoOriginal
        try:
            original = self._find_original(data)
            self._known |= _facts("object", original.content)
        except NoOriginal as problem:
            original = problem
        compiler = self._pick(data, original.content if isinstance(original, Original) else b"")
        self._module, self._said = on_disk(self._module, self._folder)
        (self._folder / _BITCODE_NAME).write_bytes(original.embedded if isinstance(original, Original) else data)
        self._compile(compiler)
        try:
            rebuilt = read_file(str(self._folder / _OBJECT_NAME))
            self._known |= _facts("rebuilt", rebuilt)
            measure_object(rebuilt)
        except OSError as error:
            raise RunFailure(TraceReason.NO_OBJECT, f"the compiler left no object: {os_reason(error)}") from None
        except FormatError as error:
            raise RunFailure(TraceReason.NO_OBJECT, f"the compiler left no object: {error}") from None
        if isinstance(original, NoOriginal):
            return self._row(Outcome.NO_OBJECT, original.reason, original.detail)
        return self._compared(original.content, rebuilt)

    def _compared(self, original: Buffer, rebuilt: Buffer) -> RebuildRow:
        if original == rebuilt:
            return self._row(Outcome.IDENTICAL, OK, "every byte")
        try:
            found = compare_objects(original, rebuilt, EMBEDDED | self._settings.names.all())
        except FormatError as error:
            return self._row(Outcome.DIFFERS, OK, f"the objects cannot be compared: {error}")
        if found.anything is None:
            return self._row(Outcome.IDENTICAL, OK, "every section, relocation and symbol")
        what = found.anything if found.code is None else found.code
        outcome = Outcome.CODE_IDENTICAL if found.code is None else Outcome.DIFFERS
        return self._row(outcome, OK, f"{what.section}: {what.detail}", section=what.section, offset=what.offset)

    def _read(self) -> bytes:
        try:
            data = self._module.bitcode()
        except CorpusError as error:
            raise RunFailure(TraceReason.MISSING_FILE, error.message) from None
        if not is_bitcode(data):
            raise RunFailure(TraceReason.UNREADABLE_BITCODE, f"expected bitcode, found {len(data)} bytes of other data")
        return data

    def _find_original(self, data: bytes) -> Original:
        try:
            command: bytes | None = self._module.own_command()
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
                TraceReason.NEWER_BITCODE,
                f"none of the compilers to take is as new as {producer}: --compiler names one",
            )
        self._known |= {"compiler": compiler.vendor, "same_version": same}
        return compiler

    def _compile(self, compiler: RebuildCompiler) -> None:
        options = module_options(self._module, self._settings, self._folder)
        argv = (*compiler.cc1, *self._command(options))
        confinement = module_confinement(self._module, options, self._settings, self._folder, compiler.cc1[:1])
        self._known["argv"] = tuple(map(self._said, argv))
        try:
            done = run_tool(
                argv,
                cwd=self._folder,
                env=compiler_environment(self._folder),
                timeout=self._settings.timeout,
                **confinement.keywords(),
            )
        except ToolError as error:
            kept = without_quotes(error.stderr, argv[len(compiler.cc1) :], trusted=self._settings.trusted)
            self._ended(error.returncode, kept, error.usage)
            limited = confinement.memory_limit is not None
            reason, detail = classify(error, limited=limited, timeout=self._settings.timeout, kept=kept)
            raise RunFailure(reason, self._said(detail).replace(f"{self._folder}/", "")) from None
        kept = without_quotes(done.stderr, argv[len(compiler.cc1) :], trusted=self._settings.trusted)
        self._ended(0, kept, done.usage)

    def _ended(self, code: int | None, stderr: str, usage: Usage | None) -> None:
        if usage is not None:
            self._known |= {
                "exit_code": code if code is not None and code >= 0 else None,
                "signal": -code if code is not None and code < 0 else None,
                "stderr_tail": stderr_tail(self._said(stderr).encode()),
                "wall_s": usage.wall_s,
                "cpu_s": usage.cpu_s,
            }

    def _command(self, options: tuple[str, ...]) -> tuple[str, ...]:
        if self._module.thinlto_index_path is None:
            verbatim = verbatim_command(options, bitcode=_BITCODE_NAME, output=_OBJECT_NAME)
            if verbatim is not None:
                return verbatim
        return module_command(
            self._module,
            options,
            bitcode=_BITCODE_NAME,
            output=_OBJECT_NAME,
            extra=embedding_options(options),
            trusted=self._settings.trusted,
        )


def _facts(which: str, content: Buffer) -> dict[str, Any]:
    """Give what the table says of an object."""
    facts: dict[str, Any] = {f"{which}_sha256": sha256(content).hexdigest()}
    with suppress(FormatError):  # the comparison tells more
        facts[f"{which}_text_size"] = measure_object(content).text_size
    return facts
