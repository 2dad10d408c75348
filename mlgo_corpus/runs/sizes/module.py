"""One module's run: what its functions are right after inlining, and how many bytes each has in the object.

========  =========================================================================================  ================
step      command                                                                                    gives
========  =========================================================================================  ================
pipeline  ``clang -cc1 COMMAND -x ir M.bc -mllvm -print-pipeline-passes``, once for equal commands   the passes
compile   ``clang -cc1 COMMAND -x ir M.bc -mllvm -print-before=PASS``                                the snapshot and
                                                                                                     the object
analyse   ``opt -passes=function(instnamer,print<func-properties>,print<cost-model>)`` over the      properties, costs
          snapshot without metadata; of a large module in several parts
names     ``llvm-cxxfilt @NAMES``, where names are mangled                                            ``demangled``
replay    ``clang -cc1 COMMAND -x ir M.bc``, only to verify                                          ``faithful``
========  =========================================================================================  ================

So features and sizes are of one and the same compile, the command's own.

Each printed token is a system call of its own, as LLVM does not buffer stderr: a file is cheaper than a pipe that is
read in small pieces.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.compilers.command import CommandEdits
from mlgo_corpus.compilers.compile import OBJECT_NAME, ModuleCompiles, run_folder
from mlgo_corpus.compilers.failures import RunFailure, module_failure
from mlgo_corpus.compilers.limits import Limits
from mlgo_corpus.compilers.process import ToolResult
from mlgo_corpus.corpus.folder import Module
from mlgo_corpus.dataset.reasons import RunReason
from mlgo_corpus.dataset.sizes.snapshot import Context, Functions, ModuleSnapshot
from mlgo_corpus.errors import FormatError, UnsupportedError
from mlgo_corpus.formats.buffer import Buffer
from mlgo_corpus.formats.commands.embedded import facts_of_words
from mlgo_corpus.formats.commands.options import join_cc1, parse_cc1
from mlgo_corpus.formats.commands.replay import neutralise
from mlgo_corpus.formats.ir.costs import OPT_OPTIONS, analysis_runs
from mlgo_corpus.formats.ir.features import NO_PROPERTIES, Properties, ir2native_vectors, parse_costs, parse_properties
from mlgo_corpus.formats.ir.operands import operand_features
from mlgo_corpus.formats.ir.pipeline import POST_INLINING, Point, find_dump, find_point, parse_pipeline
from mlgo_corpus.formats.ir.text import ENCODING, body_digest, parse_module
from mlgo_corpus.formats.ir.text import Module as IrModule
from mlgo_corpus.formats.objects.symbols import label_functions, parse_symbols
from mlgo_corpus.formats.words import word_set

_INPUT: Final = "input.ll"
_PRINTED: Final = "printed.txt"
_MODULE: Final = "module.ll"
_ANALYSED: Final = "analysed.txt"
_REPLAYED: Final = "replay.o"
_NAMES: Final = "names.txt"

# The mangled names of C++ and Rust; longer ones nobody reads. None has a character that a file of options would escape.
_MANGLED = re.compile(r"_[RZ][\w.$]{1,4000}", re.ASCII)


# Options that no pipeline depends on, and that differ between the modules of one build.
_NOT_OF_PIPELINES = word_set(
    """
    -D -U -I -include -isystem -internal-isystem -internal-externc-isystem -iquote -idirafter -isysroot -resource-dir
    -main-file-name -fdebug-compilation-dir -fdebug-compilation-dir= -fcoverage-compilation-dir=
    -ferror-limit -fmessage-length= -W -w -std= -pedantic -fcolor-diagnostics -fdiagnostics-show-option
    """
)


@dataclass(frozen=True, slots=True)
class SnapshotSettings:
    """The settings of all runs of a table.

    Attributes:
        cc1: the words of the compiler to put before ``-cc1``.
        opt: the words that run opt of the same LLVM.
        cxxfilt: the words that run llvm-cxxfilt; None leaves names mangled.
        snapshot: `POST_INLINING` or `PRE_INLINING`.
        ir2native: whether to make the IR2Native vector, which needs the target's costs.
        operands: whether to count operands.
        verify: whether to compile the module plainly too, and to compare.
        edits: how each command is changed, and whether it may be any command.
        limits: what each program may take.
    """

    cc1: tuple[str, ...]
    opt: tuple[str, ...]
    cxxfilt: tuple[str, ...] | None = None
    snapshot: str = POST_INLINING
    ir2native: bool = True
    operands: bool = False
    verify: bool = True
    edits: CommandEdits = field(default_factory=CommandEdits)
    limits: Limits = field(default_factory=lambda: Limits(timeout=300.0))

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs that a run starts."""
        return (self.cc1[0], self.opt[0], *(self.cxxfilt or ())[:1])


def snapshot_module(settings: SnapshotSettings, module: Module, *, work: Path | None = None) -> ModuleSnapshot:
    """Run the compiler over one module, and return its functions' features and sizes.

    What goes wrong with the module is in the result. All files are in a temporary folder (in ``work``), and gone
    afterwards.

    Raises:
        OSError: the temporary folder cannot be made, or the disk is full.
    """
    with run_folder(work) as folder:
        run = _Run(settings, module, folder)
        try:
            run.compiles.place()
            return run.snapshot()
        except RunFailure as error:
            failure = error
        except OSError as error:
            failure = module_failure(error)
        return ModuleSnapshot(module.name, failure.reason, failure.detail, cpu_s=run.compiles.cpu_s)


class _Run:
    """One module's run, in a folder of its own."""

    def __init__(self, settings: SnapshotSettings, module: Module, folder: Path) -> None:
        self.settings = settings
        self.name = module.name
        self.folder = folder
        self.compiles = ModuleCompiles(module, folder, settings.edits, settings.limits)

    def snapshot(self) -> ModuleSnapshot:
        self.compiles.check_bitcode()
        options = neutralise(self.compiles.options(self.settings.cc1, *self.settings.programs[1:]))
        level = facts_of_words(options).opt_level or "0"
        point = self._point(options)
        text = self._compile(options, point)
        data = self.compiles.read_object()
        try:
            functions = self._functions(parse_module(text if point is None else find_dump(text, point)), data, level)
        except FormatError as error:
            raise RunFailure(RunReason.UNREADABLE_IR, str(error)) from None
        compiled = self.compiles.measure(data)
        cpu_s = self.compiles.cpu_s
        faithful = replay_cpu_s = None
        if self.settings.verify:
            self._clang(options, output=_REPLAYED)
            faithful = self.compiles.read_object(_REPLAYED) == data
            replay_cpu_s = self.compiles.cpu_s - cpu_s
        return ModuleSnapshot(
            self.name,
            RunReason.OK,
            functions=functions,
            faithful=faithful,
            object_sha256=compiled.sha256,
            text_size=compiled.text_size,
            code_size=compiled.code_size,
            cpu_s=cpu_s,
            replay_cpu_s=replay_cpu_s,
        )

    def _point(self, options: tuple[str, ...]) -> Point | None:
        """Ask for the passes that a command runs, and find the snapshot's place among them."""
        kept = join_cc1([option for option in parse_cc1(options) if option.name not in _NOT_OF_PIPELINES])
        module = self.compiles.module
        own = module.thinlto_index_path is not None or any("thinlto-index" in word for word in kept)
        key = (self.settings.cc1, kept, self.compiles.bitcode_path if own else "")
        text = _PIPELINES.get(key)
        if text is None:
            extra = ("-mllvm", "-print-pipeline-passes")
            text = self._clang(options, extra=extra).stdout.decode(ENCODING).strip()
            if len(_PIPELINES) >= _MOST_PIPELINES:
                _PIPELINES.clear()
            _PIPELINES[key] = text
        if not text and "-disable-llvm-passes" not in options:
            raise RunFailure(RunReason.NO_PIPELINE, "the compiler printed no pipeline")
        try:
            return find_point(parse_pipeline(text), self.settings.snapshot)
        except UnsupportedError as error:
            raise RunFailure(RunReason.NO_SNAPSHOT, str(error)) from None
        except FormatError as error:
            raise RunFailure(RunReason.NO_PIPELINE, str(error)) from None

    def _compile(self, options: tuple[str, ...], point: Point | None) -> str:
        """Make the object, and give what the compiler printed of the module on the way."""
        if point is None:
            self._clang(options, output=_INPUT, extra=("-disable-llvm-passes", "-emit-llvm"))
            self._clang(options)
            return (self.folder / _INPUT).read_text(ENCODING)
        self._clang(options, extra=("-mllvm", point.option), stderr=_PRINTED)
        return (self.folder / _PRINTED).read_text(ENCODING)

    def _clang(
        self,
        options: tuple[str, ...],
        *,
        output: str = OBJECT_NAME,
        extra: Sequence[str] = (),
        stderr: str | None = None,
    ) -> ToolResult:
        # The options are neutralised: what is refused of others is gone.
        command = self.compiles.command(options, *extra, output=output, trusted=True)
        return self.compiles.run((*self.settings.cc1, *command), stderr=stderr)

    def _functions(self, ir: IrModule, data: Buffer, level: str) -> Functions:
        try:
            symbols = parse_symbols(data)
        except FormatError as error:
            raise RunFailure(RunReason.NO_OBJECT, str(error)) from None
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
        operands = operand_features(ir.functions) if self.settings.operands else None
        return Functions(names, self._demangled(names), properties, vectors, operands, context, labels, digests)

    def _demangled(self, names: tuple[str, ...]) -> tuple[str | None, ...]:
        """Ask llvm-cxxfilt for the names as the source has them; None for one that is not mangled, or makes it fail."""
        mangled = [name for name in names if _MANGLED.fullmatch(name)]
        said: list[str] = []
        if mangled and self.settings.cxxfilt is not None:
            (self.folder / _NAMES).write_text("\n".join(mangled), ENCODING)
            with suppress(RunFailure):  # a hostile name may stand for one of gigabytes
                done = self.compiles.run((*self.settings.cxxfilt, f"@{_NAMES}"))
                said = done.stdout.decode("utf-8", "replace").splitlines()
        known = dict(zip(mangled, said, strict=True)) if len(said) == len(mangled) else {}
        return tuple(None if known.get(name) == name else known.get(name) for name in names)

    def _analyse(self, ir: IrModule) -> tuple[Properties, NDArray[np.int32] | None]:
        """Ask opt for the functions' properties and the target's costs of them."""
        count = len(ir.functions)
        properties = NO_PROPERTIES
        costs = np.zeros(count, np.int64)
        for run in analysis_runs(ir, costs=self.settings.ir2native):
            (self.folder / _MODULE).write_text(run.text, ENCODING)
            self.compiles.run((*self.settings.opt, f"-passes={run.passes}", *OPT_OPTIONS, _MODULE), stderr=_ANALYSED)
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
# The pipelines of commands that this process has asked for.
_PIPELINES: dict[tuple[tuple[str, ...], tuple[str, ...], str], str] = {}
