"""The table of functions that a model of native size learns from: each function's IR, and its size in bytes.

The columns are in groups, which ``features`` selects:

=============  ====================================================================================================
group          columns
=============  ====================================================================================================
always         ``module`` and ``function``, the key; the labels; ``body_digest`` and ``split``
``context``    linkage, comdat, section, attributes that matter for size, target, optimisation level
``llvm``       LLVM's own function properties (FunctionPropertiesAnalysis), in snake_case
``ir2native``  the input of LLVM's IR2Native model, number by number, under names that do not change between versions
=============  ====================================================================================================

`describe_columns` says what each column means.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mlgo_corpus.errors import UsageError
from mlgo_corpus.files import arrays
from mlgo_corpus.files.tables import Kind, iter_rows, write_rows
from mlgo_corpus.files.text import storable
from mlgo_corpus.formats.ir.features import IR2NATIVE_NAMES, NAMED, OPCODES, PAIRS

if TYPE_CHECKING:
    import pyarrow as pa


SIZES_KIND: Final = "ir2native"
"""The value of ``kind`` in ``dataset.json`` for such a table."""

SIZES_FOLDER: Final = "functions"
GROUPS: Final = ("llvm", "ir2native", "context")
VECTOR: Final = "ir2native_vector"
SPLIT: Final = "split"

ATTRIBUTES: Final = (
    "optsize", "minsize", "optnone", "noinline", "alwaysinline", "inlinehint", "cold", "hot", "naked", "noreturn",
    "nounwind", "noredzone", "ssp", "sspstrong", "sspreq", "uwtable",
)  # fmt: skip
"""The attributes that matter for size; each is a column of its name."""

PROPERTIES: Final = (
    "basic_block_count", "blocks_reached_from_conditional_instruction", "uses",
    "direct_calls_to_defined_functions", "load_inst_count", "store_inst_count", "max_loop_depth",
    "top_level_loop_count", "total_instruction_count", "basic_blocks_with_single_successor",
    "basic_blocks_with_two_successors", "basic_blocks_with_more_than_two_successors",
    "basic_blocks_with_single_predecessor", "basic_blocks_with_two_predecessors",
    "basic_blocks_with_more_than_two_predecessors", "big_basic_blocks", "medium_basic_blocks",
    "small_basic_blocks", "cast_instruction_count", "floating_point_instruction_count",
    "integer_instruction_count", "constant_int_operand_count", "constant_fp_operand_count",
    "constant_operand_count", "instruction_operand_count", "basic_block_operand_count",
    "global_value_operand_count", "inline_asm_operand_count", "argument_operand_count",
    "unknown_operand_count", "critical_edge_count", "control_flow_edge_count",
    "unconditional_branch_count", "conditional_branch_count", "branch_instruction_count",
    "branch_successor_count", "switch_instruction_count", "switch_successor_count",
    "intrinsic_count", "direct_call_count", "indirect_call_count", "call_returns_integer_count",
    "call_returns_float_count", "call_returns_pointer_count", "call_returns_vector_int_count",
    "call_returns_vector_float_count", "call_returns_vector_pointer_count",
    "call_with_many_arguments_count", "call_with_pointer_argument_count",
)  # fmt: skip
"""LLVM's own properties, as of LLVM 22 (`FunctionPropertiesAnalysis.cpp`); older versions have some of them."""

IR2NATIVE_COLUMNS: Final = tuple(f"ir2native_{name}" if name in PROPERTIES else name for name in IR2NATIVE_NAMES)
"""The columns of the vector's numbers; a name that LLVM's own properties use for something else gets a prefix."""

_LABELS = frozenset({"module", "linkage", "target_triple", "target_cpu", "opt_level", "status", SPLIT})

_KEY = {
    "module": "the module's name in its corpus",
    "function": "the function's name in the module, mangled as it is there",
}
_CONTEXT = {
    "linkage": "how the function is linked: external, internal, linkonce_odr, ...",
    "comdat": "the group of which the linker keeps one; null for none",
    "section": "the section that the source names for it; null for none",
    **{name: f"whether the function has LLVM's attribute {name}" for name in ATTRIBUTES},
    "target_triple": "the module's target",
    "target_cpu": "the processor that code is generated for; null where the target's default is",
    "opt_level": "the command's optimisation level: 0 to 3, s or z",
}
_OUTCOME = {
    "native_size": "the label: bytes of the function in the object, by its symbol, with its fragments; null where it "
    "has none",
    "status": "ok; merged, one with another function at the same place; eliminated by later passes; not_emitted, "
    "because its code is in another object; no_symbol, if it is there then without a name",
    "fragments": "symbols of parts (cold code, outlined parts) whose bytes are counted in native_size",
    "body_digest": "hex digest of the printed body without names and debug information",
    SPLIT: "train, validation or test: the module's side if the corpus has a split (null if it is on none); else "
    "functions with equal bodies are on one side",
}
_NAMED = {
    "initial_size": "the sum of the target's code-size costs of all instructions (TTI); the model's first guess",
    "blocks": "basic blocks",
    "calls": "call, invoke and callbr instructions",
    "is_local": "1 if the linkage is internal or private",
    "is_linkonce_odr": "1 if the linkage is linkonce_odr",
    "is_linkonce": "1 if the linkage is linkonce or linkonce_odr",
    "loops": "outermost loops",
    "max_loop_depth": "the depth of the deepest outermost loop: 1, or 0 without loops",
    "max_dom_tree_level": "the depth of the dominator tree",
}


class ModuleSizes(NamedTuple):
    """One row of ``modules.parquet``: the outcome of one module.

    Attributes:
        module: the module's name in the corpus.
        status: ``ok`` or ``failed``.
        reason: a word of `mlgo_corpus.dataset.reasons.RunReason`.
        detail: one line for a person.
        functions: functions with a body after inlining; of them ``labelled`` have a size.
        faithful: whether the object equals the plain replay's; null if they were not compared.
        text_size: Berkeley text of the object.
        code_size: bytes of its executable sections; ``explained_size`` of them are the labelled functions'.
        object_sha256: hex digest of the object.
        cpu_s: seconds of processor time that clang and opt took.
        replay_cpu_s: seconds of processor time of the plain replay; null if there was none.
    """

    module: str
    status: str
    reason: str
    detail: str
    functions: int = 0
    labelled: int = 0
    faithful: bool | None = None
    text_size: int | None = None
    code_size: int | None = None
    explained_size: int | None = None
    object_sha256: str | None = None
    cpu_s: float | None = None
    replay_cpu_s: float | None = None


MODULE_KINDS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("functions", "labelled", "text_size", "code_size", "explained_size"), Kind.INTEGER),
    **dict.fromkeys(("cpu_s", "replay_cpu_s"), Kind.FLOAT),
    "faithful": Kind.BOOLEAN,
    "module": Kind.LABEL,
}
_REQUIRED = frozenset({"module", "status", "reason", "detail", "functions", "labelled"})


def write_module_sizes(path: Path, rows: Iterable[ModuleSizes], metadata: Mapping[str, Any]) -> None:
    """Write ``modules.parquet``; ``metadata`` goes into its schema as JSON, and must contain the table's ``key``.

    Text that is not Unicode is escaped (`storable`).
    """
    stored = ([storable(value) for value in row] for row in rows)
    write_rows(path, ModuleSizes._fields, MODULE_KINDS, stored, metadata)


def read_module_sizes(path: Path) -> Iterator[ModuleSizes]:
    """Yield the rows of ``modules.parquet``.

    Raises:
        CorpusError: the file is not such a table.
    """
    rows = iter_rows(path, ModuleSizes._fields, MODULE_KINDS, what="sizes", required=_REQUIRED)
    return map(ModuleSizes._make, rows)


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table: some of `GROUPS`, and whether the vector is also one list column."""

    groups: tuple[str, ...] = GROUPS
    vector: bool = False

    @classmethod
    def of(cls, text: str, *, vector: bool) -> Columns:
        """Parse ``all``, or names of `GROUPS` separated by commas.

        Raises:
            UsageError: there is no such group, or the vector is wanted without its group.
        """
        names = GROUPS if text == "all" else tuple(name.strip() for name in text.split(","))
        if unknown := [name for name in names if name not in GROUPS]:
            message = f"expected all, or some of {', '.join(GROUPS)}"
            raise UsageError(message, option="features", value=unknown[0])
        if vector and "ir2native" not in names:
            raise UsageError("`vector` requires ir2native in `features`")
        return cls(tuple(group for group in GROUPS if group in names), vector)

    @property
    def wants_vectors(self) -> bool:
        """Whether the IR2Native features are needed."""
        return "ir2native" in self.groups


def describe_columns(columns: Columns, properties: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield each column's name and meaning, in the table's order.

    ``properties`` are the names of LLVM's own properties; by default those of LLVM 22.
    """
    yield from _KEY.items()
    if "context" in columns.groups:
        yield from _CONTEXT.items()
    if "llvm" in columns.groups:
        for name in properties or PROPERTIES:
            yield name, f"LLVM's {name.replace('_', ' ')}, of reachable blocks (print<func-properties>)"
    if columns.wants_vectors:
        for column, name in zip(IR2NATIVE_COLUMNS, IR2NATIVE_NAMES, strict=True):
            yield column, _ir2native_meaning(name)
        if columns.vector:
            yield VECTOR, f"these {len(IR2NATIVE_NAMES)} numbers as one list, as the model takes them"
    yield from _OUTCOME.items()


def _ir2native_meaning(name: str) -> str:
    if name in _NAMED:
        return _NAMED[name]
    number = IR2NATIVE_NAMES.index(name) - len(NAMED)
    if number < len(OPCODES):
        return f"how many {OPCODES[number]} instructions there are" if number else "always 0: no opcode has number 0"
    first, second = PAIRS[number - len(OPCODES)]
    return f"how often {OPCODES[second]} comes right after {OPCODES[first]}"


def with_split(batch: pa.RecordBatch, sides: Sequence[str | None]) -> pa.RecordBatch:
    """Add the side of each row, and encode columns of few different texts as dictionaries, as in other tables."""
    import pyarrow as pa

    names = [*batch.schema.names, SPLIT]
    columns = [*batch.columns, arrays.texts(pa.string(), list(sides))]
    encoded = [
        column.dictionary_encode() if name in _LABELS else column for name, column in zip(names, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(encoded, names=names)
