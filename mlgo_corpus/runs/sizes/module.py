"""One module's run: what its functions are right after inlining, and how many bytes each has in the object.

========  =========================================================================================  ================
step      command                                                                                    gives
========  =========================================================================================  ================
pipeline  ``clang -cc1 COMMAND -x ir M.bc -mllvm -print-pipeline-passes``, once for equal commands   the passes
compile   ``clang -cc1 COMMAND -x ir M.bc -mllvm -print-before=PASS``                                the snapshot and
                                                                                                     the object
analyse   ``opt -passes=function(instnamer,print<func-properties>,print<cost-model>)`` over the      properties, costs
          snapshot without metadata; of a large module in several parts
replay    ``clang -cc1 COMMAND -x ir M.bc``, only to verify                                          ``faithful``
========  =========================================================================================  ================

So features and sizes are of one and the same compile, the command's own.

Each printed token is a system call of its own, as LLVM does not buffer stderr: a file is cheaper than a pipe that is
read in small pieces.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.compilers.command import (
    bitcode_path,
    compiler_environment,
    module_command,
    module_confinement,
    module_options,
    on_disk,
)
from mlgo_corpus.compilers.confinement import Confinement
from mlgo_corpus.compilers.failures import RunFailure, classify, without_quotes
from mlgo_corpus.compilers.process import ToolResult, run_tool
from mlgo_corpus.corpus.folder import Module
from mlgo_corpus.dataset.sizes.snapshot import Context, Functions, ModuleSnapshot, SnapshotReason
from mlgo_corpus.errors import FormatError, ToolError, UnsupportedError
from mlgo_corpus.files.regular import open_regular, read_file
from mlgo_corpus.files.text import os_reason
from mlgo_corpus.formats.bitcode.headers import is_bitcode
from mlgo_corpus.formats.buffer import Buffer
from mlgo_corpus.formats.commands.options import join_cc1, parse_cc1
from mlgo_corpus.formats.commands.replay import neutralise
from mlgo_corpus.formats.ir.costs import OPT_OPTIONS, analysis_runs
from mlgo_corpus.formats.ir.features import NO_PROPERTIES, Properties, ir2native_vectors, parse_costs, parse_properties
from mlgo_corpus.formats.ir.pipeline import (
    POST_INLINING,
    Point,
    find_dump,
    find_point,
    optimisation_level,
    parse_pipeline,
)
from mlgo_corpus.formats.ir.text import ENCODING, body_digest, parse_module
from mlgo_corpus.formats.ir.text import Module as IrModule
from mlgo_corpus.formats.objects.objfile import measure_object
from mlgo_corpus.formats.objects.symbols import label_functions, parse_symbols

_OBJECT: Final = "module.o"
_INPUT: Final = "input.ll"
_PRINTED: Final = "printed.txt"
_MODULE: Final = "module.ll"
_ANALYSED: Final = "analysed.txt"
_REPLAYED: Final = "replay.o"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Options that no pipeline depends on, and that differ between the modules of one build.
_NOT_OF_PIPELINES = _words(
    """
    -D -U -I -include -isystem -internal-isystem -internal-externc-isystem -iquote -idirafter -isysroot -resource-dir
    -main-file-name -fdebug-compilation-dir -fdebug-compilation-dir= -fcoverage-compilation-dir=
    -ferror-limit -fmessage-length= -W -w -std= -pedantic -fcolor-diagnostics -fdiagnostics-show-option
    """
)


@dataclass(frozen=True, slots=True)
class SnapshotSettings:
    """What all runs of a table have in common.

    Attributes:
        cc1: the words of the compiler to put before ``-cc1``.
        opt: the words that run opt of the same LLVM; None leaves out what only opt tells: LLVM's properties and the
            IR2Native vector.
        snapshot: `POST_INLINING` or `PRE_INLINING`.
        ir2native: whether to make the IR2Native vector, which needs the target's costs.
        verify: whether to compile the module plainly too, and to compare.
        add, delete, replace: edits of each command, see `edit_command`.
        trusted: run commands that could do harm.
        timeout: seconds that each program may take.
        memory_limit: bytes of address space that each may have.
    """

    cc1: tuple[str, ...]
    opt: tuple[str, ...] | None
    snapshot: str = POST_INLINING
    ir2native: bool = True
    verify: bool = True
    add: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()
    trusted: bool = False
    timeout: float = 300.0
    memory_limit: int | None = None


def snapshot_module(settings: SnapshotSettings, module: Module, *, work: Path | None = None) -> ModuleSnapshot:
    """Run the compiler over one module, and give its functions' features and sizes.

    What goes wrong with the module is told in the result. All files are in a temporary folder (in ``work``), and gone
    afterwards.

    Raises:
        OSError: there can be no temporary folder.
    """
    with tempfile.TemporaryDirectory(prefix="mlgo-snapshot-", dir=work, ignore_cleanup_errors=True) as name:
        run = _Run(settings, module, Path(name))
        shown: Callable[[str], str] = str
        try:
            run.module, shown = on_disk(module, run.folder)
            return run.snapshot()
        except RunFailure as failure:
            reason, detail = SnapshotReason(failure.reason.value), shown(failure.detail)
        except OSError as error:
            told, detail = classify(error)
            reason = SnapshotReason(told.value)
        return ModuleSnapshot(module.name, reason, detail, cpu_s=run.cpu_s)


@dataclass(slots=True)
class _Run:
    settings: SnapshotSettings
    module: Module
    folder: Path
    cpu_s: float = 0.0
    env: dict[str, str] = field(init=False)
    confinement: Confinement = field(init=False)

    def __post_init__(self) -> None:
        self.env = compiler_environment(self.folder)

    def snapshot(self) -> ModuleSnapshot:
        options = self._options()
        settings = self.settings
        programs = (settings.cc1[0], *(settings.opt or ())[:1])
        self.confinement = module_confinement(self.module, options, settings, self.folder, programs)
        level = optimisation_level(options)
        point = self._point(options)
        text = self._compile(options, point)
        data = self._object(_OBJECT)
        try:
            functions = self._functions(parse_module(text if point is None else find_dump(text, point)), data, level)
        except FormatError as error:
            raise RunFailure(SnapshotReason.UNREADABLE_IR, str(error)) from None
        sizes = measure_object(data)
        cpu_s = self.cpu_s
        faithful = replay_cpu_s = None
        if self.settings.verify:
            self._clang(options, bitcode_path(self.module), _REPLAYED)
            faithful = self._object(_REPLAYED) == data
            replay_cpu_s = self.cpu_s - cpu_s
        return ModuleSnapshot(
            self.module.name,
            SnapshotReason.OK,
            functions=functions,
            faithful=faithful,
            object_sha256=sha256(data).hexdigest(),
            text_size=sizes.text_size,
            code_size=sizes.code_size,
            cpu_s=cpu_s,
            replay_cpu_s=replay_cpu_s,
        )

    def _options(self) -> tuple[str, ...]:
        """Give the module's command with the settings' edits, neutralised."""
        try:
            with open_regular(self.module.bitcode_path) as file:
                head = file.read(64)
        except OSError as error:
            detail = f"cannot read {self.module.bitcode_path.name}: {os_reason(error)}"
            raise RunFailure(SnapshotReason.MISSING_FILE, detail) from None
        if not is_bitcode(head):
            raise RunFailure(SnapshotReason.UNREADABLE_BITCODE, "expected bitcode, found other data")
        return neutralise(module_options(self.module, self.settings, self.folder))

    def _point(self, options: tuple[str, ...]) -> Point | None:
        """Ask for the passes that a command runs, and find the snapshot's place among them."""
        kept = join_cc1([option for option in parse_cc1(options) if option.name not in _NOT_OF_PIPELINES])
        own = self.module.thinlto_index_path is not None or any("thinlto-index" in word for word in kept)
        key = (self.settings.cc1, kept, bitcode_path(self.module) if own else "")
        text = _PIPELINES.get(key)
        if text is None:
            extra = ("-mllvm", "-print-pipeline-passes")
            text = self._clang(options, bitcode_path(self.module), _OBJECT, extra=extra).stdout.decode(ENCODING).strip()
            if len(_PIPELINES) >= _MOST_PIPELINES:
                _PIPELINES.clear()
            _PIPELINES[key] = text
        if not text and "-disable-llvm-passes" not in options:
            raise RunFailure(SnapshotReason.NO_PIPELINE, "the compiler printed no pipeline")
        try:
            return find_point(parse_pipeline(text), self.settings.snapshot)
        except UnsupportedError as error:
            raise RunFailure(SnapshotReason.NO_SNAPSHOT, str(error)) from None
        except FormatError as error:
            raise RunFailure(SnapshotReason.NO_PIPELINE, str(error)) from None

    def _compile(self, options: tuple[str, ...], point: Point | None) -> str:
        """Make the object, and give what the compiler printed of the module on the way."""
        if point is None:
            self._clang(options, bitcode_path(self.module), _INPUT, extra=("-disable-llvm-passes", "-emit-llvm"))
            self._clang(options, bitcode_path(self.module), _OBJECT)
            return (self.folder / _INPUT).read_text(ENCODING)
        self._clang(options, bitcode_path(self.module), _OBJECT, extra=("-mllvm", point.option), stderr=_PRINTED)
        return (self.folder / _PRINTED).read_text(ENCODING)

    def _clang(
        self,
        options: tuple[str, ...],
        bitcode: str,
        output: str,
        extra: Sequence[str] = (),
        stderr: str | None = None,
    ) -> ToolResult:
        command = module_command(self.module, options, bitcode=bitcode, output=output, extra=extra, trusted=True)
        return self._run((*self.settings.cc1, *command), stderr)

    def _object(self, name: str) -> Buffer:
        try:
            return read_file(str(self.folder / name))
        except OSError as error:
            detail = f"the compiler left no object: {os_reason(error)}"
            raise RunFailure(SnapshotReason.NO_OBJECT, detail) from None

    def _run(self, argv: tuple[str, ...], stderr: str | None = None) -> ToolResult:
        settings = self.settings
        try:
            done = run_tool(
                argv,
                cwd=self.folder,
                env=self.env,
                timeout=settings.timeout,
                **self.confinement.keywords(),
                stderr=None if stderr is None else self.folder / stderr,
            )
        except ToolError as error:
            if error.usage is not None:
                self.cpu_s += error.usage.cpu_s
            limited = self.confinement.memory_limit is not None
            words = argv[len(settings.cc1) :] if argv[: len(settings.cc1)] == settings.cc1 else ()
            kept = without_quotes(error.stderr, words, trusted=settings.trusted)
            reason, detail = classify(error, limited=limited, timeout=settings.timeout, kept=kept)
            raise RunFailure(reason, detail) from None
        self.cpu_s += done.usage.cpu_s
        return done

    def _functions(self, ir: IrModule, data: Buffer, level: str) -> Functions:
        try:
            symbols = parse_symbols(data)
        except FormatError as error:
            raise RunFailure(SnapshotReason.NO_OBJECT, str(error)) from None
        properties, vectors = self._analyse(ir)
        names = tuple(function.name for function in ir.functions)
        linkages = tuple(function.linkage for function in ir.functions)
        context = Context(
            ir.triple,
            ir.data_layout,
            level,
            linkages,
            tuple(function.comdat for function in ir.functions),
            tuple(function.section for function in ir.functions),
            tuple({} if f.attributes is None else ir.attributes.get(f.attributes, {}) for f in ir.functions),
        )
        labels = label_functions(names, linkages, symbols, ir.data_layout)
        digests = tuple(body_digest(function) for function in ir.functions)
        return Functions(names, properties, vectors, context, labels, digests)

    def _analyse(self, ir: IrModule) -> tuple[Properties | None, NDArray[np.int32] | None]:
        """Ask opt for the functions' properties and the target's costs of them."""
        count = len(ir.functions)
        if self.settings.opt is None:
            return None, None
        properties = NO_PROPERTIES
        costs = np.zeros(count, np.int64)
        for run in analysis_runs(ir, costs=self.settings.ir2native):
            (self.folder / _MODULE).write_text(run.text, ENCODING)
            self._run((*self.settings.opt, f"-passes={run.passes}", *OPT_OPTIONS, _MODULE), _ANALYSED)
            text = (self.folder / _ANALYSED).read_text(ENCODING)
            if run.properties:
                properties = parse_properties(text)
                _check_count("properties", len(properties.values), count)
            if run.costs:
                found = parse_costs(text)
                _check_count("costs", min(len(found), len(run.costs)), len(run.costs))
                costs[list(run.costs)] = found[: len(run.costs)]
        if not self.settings.ir2native:
            return properties, None
        loops = properties.values[:, properties.names.index("top_level_loop_count")] if count else costs
        return properties, ir2native_vectors(ir.functions, costs, loops)


def _check_count(what: str, found: int, expected: int) -> None:
    if found != expected:
        raise FormatError(f"{what} of {found} functions, but {expected} are there")


_MOST_PIPELINES = 64
# What commands run, of this process.
_PIPELINES: dict[tuple[tuple[str, ...], tuple[str, ...], str], str] = {}
