"""One module's rows of the table of functions, made by a worker and kept until the table is put together."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mlgo_corpus.corpus.folder import Module
from mlgo_corpus.corpus.modules import STATUS_FAILED, STATUS_OK
from mlgo_corpus.dataset.reasons import RunReason
from mlgo_corpus.dataset.sizes.snapshot import Functions, ModuleSnapshot
from mlgo_corpus.dataset.sizes.table import ATTRIBUTES, IR2NATIVE_COLUMNS, VECTOR, Columns, ModuleSizes
from mlgo_corpus.engine.choice import Lost
from mlgo_corpus.files import arrays
from mlgo_corpus.files.tables import write_batch
from mlgo_corpus.files.text import printable
from mlgo_corpus.formats.ir.operands import OPERAND_NAMES
from mlgo_corpus.runs.over import lost_reason
from mlgo_corpus.runs.sizes.module import SnapshotSettings, snapshot_module

if TYPE_CHECKING:
    import pyarrow as pa

# A module takes six programs at most, and costs may be asked for in sixteen.
_PROGRAMS = 22


class SizingItem(NamedTuple):
    """One module to run, and its number among those of this table."""

    number: int
    module: Module


class SizedModule(NamedTuple):
    """The outcome of one run.

    ``part`` is the name of its rows' file in the work folder, of ``part_size`` bytes, None where it has none;
    ``properties`` are the names of LLVM's function properties.
    """

    row: ModuleSizes
    part: str | None = None
    properties: tuple[str, ...] = ()
    part_size: int = 0


@dataclass(frozen=True, slots=True)
class SizingJob:
    """One module's rows, as `mlgo_corpus.runs.over` makes them of every module.

    Attributes:
        settings: how the module is run.
        columns: which columns the table has.
        work: the folder for work under way, where rows are kept.
    """

    settings: SnapshotSettings
    columns: Columns
    work: Path

    @property
    def limit_s(self) -> float:
        """Seconds that the programs of one module may take together."""
        return _PROGRAMS * self.settings.limits.timeout

    @property
    def programs(self) -> tuple[str, ...]:
        """The compiler and opt."""
        return self.settings.programs

    @property
    def trusted(self) -> bool:
        """Whether they run without walls."""
        return self.settings.edits.trusted

    def run(self, item: SizingItem) -> SizedModule:
        """Run the compiler over one module, and keep its rows in the work folder.

        What goes wrong with the module is in the row.

        Raises:
            OSError: the work folder cannot be written.
        """
        made = snapshot_module(self.settings, item.module, work=self.work)
        if made.functions is None or not len(made.functions):
            return SizedModule(_row(made), properties=_property_names(made.functions))
        part = f"run-{item.number:07d}.arrow"
        write_batch(self.work / part, _function_batch(made.module, made.functions, self.columns))
        return SizedModule(_row(made), part, _property_names(made.functions), os.stat(self.work / part).st_size)

    def lost(self, item: SizingItem, lost: Lost) -> SizedModule:
        """Return the outcome for a module whose worker died."""
        reason = lost_reason(lost)
        return SizedModule(ModuleSizes(item.module.name, STATUS_FAILED, reason.value, lost.detail))

    def outcome(self, record: Any) -> SizedModule:
        """Return the outcome that JSON held."""
        row, part, properties, part_size = record
        return SizedModule(ModuleSizes(*row), part, tuple(properties), part_size)

    def is_whole(self, item: SizingItem, outcome: SizedModule) -> bool:
        """Return True if the run went well, and its rows are there."""
        if outcome.row.module != item.module.name or outcome.row.status != STATUS_OK:
            return False
        return outcome.part is None or os.stat(self.work / outcome.part).st_size == outcome.part_size


def _property_names(functions: Functions | None) -> tuple[str, ...]:
    return () if functions is None else functions.properties.names


def _row(made: ModuleSnapshot) -> ModuleSizes:
    detail = printable(made.detail)
    if made.reason is not RunReason.OK or made.functions is None:
        return ModuleSizes(made.module, STATUS_FAILED, made.reason.value, detail, cpu_s=made.cpu_s)
    return ModuleSizes(
        module=made.module,
        status=STATUS_OK,
        reason=made.reason.value,
        detail=detail,
        functions=len(made.functions),
        labelled=sum(label.size is not None for label in made.functions.labels),
        faithful=made.faithful,
        text_size=made.text_size,
        code_size=made.code_size,
        explained_size=explained_size(made.functions),
        object_sha256=made.object_sha256,
        cpu_s=made.cpu_s,
        replay_cpu_s=made.replay_cpu_s,
    )


def _function_batch(module: str, functions: Functions, columns: Columns) -> pa.RecordBatch:
    """Make rows of a module's functions, without ``split``."""
    import pyarrow as pa

    count = len(functions)
    made: dict[str, pa.Array] = {
        "module": arrays.texts(pa.string(), [printable(module)] * count),
        "function": arrays.texts(pa.string(), [printable(name) for name in functions.names]),
        "demangled": arrays.texts(pa.string(), [name and printable(name) for name in functions.demangled]),
    }
    if "context" in columns.groups:
        made |= _context(functions)
    if "llvm" in columns.groups:
        values = functions.properties.values
        for place, name in enumerate(functions.properties.names):
            made[name] = arrays.numbers(pa.int64(), np.ascontiguousarray(values[:, place], np.int64))
    if columns.wants_vectors and functions.ir2native is not None:
        vectors = np.ascontiguousarray(functions.ir2native, np.int32)
        for place, name in enumerate(IR2NATIVE_COLUMNS):
            made[name] = arrays.numbers(pa.int32(), np.ascontiguousarray(vectors[:, place]))
        if columns.vector:
            elements = arrays.numbers(pa.int32(), vectors.reshape(-1))
            made[VECTOR] = pa.FixedSizeListArray.from_arrays(elements, len(IR2NATIVE_COLUMNS))
    if "operands" in columns.groups and functions.operands is not None:
        for place, name in enumerate(OPERAND_NAMES):
            made[name] = arrays.numbers(pa.int32(), np.ascontiguousarray(functions.operands[:, place]))
    labels = functions.labels
    made["native_size"] = arrays.numbers_or_null(pa.int64(), [label.size for label in labels])
    made["status"] = arrays.texts(pa.string(), [str(label.status) for label in labels])
    made["fragments"] = arrays.numbers(pa.int32(), np.array([label.fragments for label in labels], np.int32))
    made["body_digest"] = arrays.texts(pa.string(), [digest.hex() for digest in functions.digests])
    return pa.RecordBatch.from_arrays(list(made.values()), names=list(made))


def _context(functions: Functions) -> dict[str, Any]:
    import pyarrow as pa

    context = functions.context
    count = len(functions)
    made: dict[str, Any] = {
        "linkage": arrays.texts(pa.string(), context.linkage),
        "comdat": arrays.texts(pa.string(), [printable(name) or None for name in context.comdat]),
        "section": arrays.texts(pa.string(), [printable(name) or None for name in context.section]),
    }
    for name in ATTRIBUTES:
        made[name] = arrays.numbers_or_null(pa.bool_(), [name in attributes for attributes in context.attributes])
    cpus = [attributes.get("target-cpu") for attributes in context.attributes]
    return made | {
        "target_triple": arrays.texts(pa.string(), [context.triple] * count),
        "target_cpu": arrays.texts(pa.string(), cpus),
        "opt_level": arrays.texts(pa.string(), [context.level] * count),
    }


def explained_size(functions: Functions) -> int:
    """Return the bytes of all functions that have a size; merged functions count once."""
    return sum(label.size or 0 for label in functions.labels if not label.again)
