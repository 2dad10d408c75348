"""The table of functions that a model of native size learns from: each function's IR, and its size in bytes.

The columns are in groups, which ``features`` selects:

=============  ====================================================================================================
group          columns
=============  ====================================================================================================
always         ``module`` and ``function``, the key; ``demangled``; the labels; ``body_digest`` and ``split``
``context``    linkage, comdat, section, attributes that matter for size, target, optimisation level
``llvm``       LLVM's own function properties (FunctionPropertiesAnalysis), in snake_case
``ir2native``  the input of LLVM's IR2Native model, number by number, under names that do not change between versions
``operands``   what decides how many bytes instructions take: operands, constants, values alive across calls
=============  ====================================================================================================

`describe_columns` says what each column means.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mlgo_corpus.dataset.folder import DatasetPaths
from mlgo_corpus.errors import CorpusError, UsageError
from mlgo_corpus.files import arrays
from mlgo_corpus.files.tables import Kind, iter_rows, read_parquet, with_meanings, write_rows
from mlgo_corpus.files.text import storable
from mlgo_corpus.formats.ir.features import IR2NATIVE_NAMES, NAMED, OPCODES, PAIRS
from mlgo_corpus.formats.ir.operands import OPERAND_MEANINGS

if TYPE_CHECKING:
    import pyarrow as pa


SIZES_KIND: Final = "ir2native"
"""The value of ``kind`` in ``dataset.json`` for such a table."""

SIZES_FOLDER: Final = "functions"
GROUPS: Final = ("llvm", "ir2native", "context", "operands")
VECTOR: Final = "ir2native_vector"
SPLIT: Final = "split"
LABEL: Final = "native_size"

_ATTRIBUTES = {
    "optsize": "LLVM is to keep it small unless that costs much speed (-Os)",
    "minsize": "LLVM is to make it as small as it can (-Oz)",
    "optnone": "it is not optimised at all, as all functions of -O0",
    "noinline": "it may not be inlined",
    "alwaysinline": "it has to be inlined wherever that is possible",
    "inlinehint": "the source asks to inline it (inline in C++)",
    "cold": "it is seldom called, so that size matters more than speed",
    "hot": "it is often called",
    "naked": "it has neither prologue nor epilogue: its body is all there is",
    "noreturn": "it does not return, so that its callers need no code after the call",
    "nounwind": "it throws no exception, so that its callers need no landing pad",
    "noredzone": "it may not use the memory below the stack pointer, and so moves that pointer",
    "ssp": "its stack is protected if it has an array of characters; the check takes code",
    "sspstrong": "its stack is protected if it has any array, or the address of a variable is taken",
    "sspreq": "its stack is protected in any case",
    "uwtable": "it needs an entry in the unwind tables, which are beside its code",
}
ATTRIBUTES: Final = tuple(_ATTRIBUTES)
"""The attributes that matter for size; each is a column of its name."""

# As FunctionPropertiesAnalysis.cpp counts, checked with LLVM 19 and 22: of reachable blocks, without debug information.
_PROPERTIES = {
    "basic_block_count": "basic blocks that can be reached from the entry; only these count in the columns below, too",
    "blocks_reached_from_conditional_instruction": "targets of conditional branches and switches, a block as often as "
    "it is one; a switch's default is one, too",
    "uses": "uses of the function in the module, and 1 more if it is visible outside",
    "direct_calls_to_defined_functions": "calls and invokes, by name, of functions that the module defines",
    "load_inst_count": "load instructions",
    "store_inst_count": "store instructions",
    "max_loop_depth": "how deeply loops are nested: 1 for a loop in none; 0 without loops",
    "top_level_loop_count": "loops that are in no other loop",
    "total_instruction_count": "instructions of these blocks, without debug information",
    "basic_blocks_with_single_successor": "basic blocks that end with a jump to one place",
    "basic_blocks_with_two_successors": "basic blocks that lead to two places, such as those with a conditional branch",
    "basic_blocks_with_more_than_two_successors": "basic blocks that lead to more places, such as those with a switch",
    "basic_blocks_with_single_predecessor": "basic blocks that are reached from one place only",
    "basic_blocks_with_two_predecessors": "basic blocks that are reached from two places",
    "basic_blocks_with_more_than_two_predecessors": "basic blocks that are reached from more places",
    "big_basic_blocks": "basic blocks that end after the function's 500th instruction: LLVM compares the count so far, "
    "not the block's own",
    "medium_basic_blocks": "basic blocks that end after the function's 15th and up to its 500th instruction",
    "small_basic_blocks": "basic blocks that end within the function's first 15 instructions",
    "cast_instruction_count": "conversions of a value to another type: trunc, zext, sext, fptoui, bitcast and so on",
    "floating_point_instruction_count": "instructions whose value is a float of 32 bits; those of double do not count",
    "integer_instruction_count": "instructions whose value is an integer of any width, comparisons and loads included",
    "constant_int_operand_count": "operands that are integer constants; in LLVM 19 also switches' cases, in 22 not",
    "constant_fp_operand_count": "operands that are floating-point constants",
    "constant_operand_count": "operands that are other constants: null, undef, aggregates, expressions",
    "instruction_operand_count": "operands that are the values of other instructions",
    "basic_block_operand_count": "operands that are basic blocks: the targets of branches and switches",
    "global_value_operand_count": "operands that are functions, also called ones, or global variables",
    "inline_asm_operand_count": "calls of inline assembly",
    "argument_operand_count": "operands that are the function's own arguments",
    "unknown_operand_count": "operands of no other kind, such as metadata",
    "critical_edge_count": "ways from a block with several ways out to a block with several ways in",
    "control_flow_edge_count": "ways from a block to the next; two cases of a switch that lead to one block are two",
    "unconditional_branch_count": "branches to one place",
    "conditional_branch_count": "branches to one of two places",
    "branch_instruction_count": "branches of either kind",
    "branch_successor_count": "targets of all branches: 1 or 2 each",
    "switch_instruction_count": "switch instructions",
    "switch_successor_count": "targets of all switches: their cases, and 1 each for the default",
    "intrinsic_count": "calls of LLVM's intrinsics (llvm.memcpy and so on), which need not become calls",
    "direct_call_count": "call instructions with a known target, intrinsics and inline assembly included; no invokes",
    "indirect_call_count": "call instructions through a function pointer",
    "call_returns_integer_count": "call instructions that return an integer",
    "call_returns_float_count": "call instructions that return a floating-point number of any width",
    "call_returns_pointer_count": "call instructions that return a pointer",
    "call_returns_vector_int_count": "call instructions that return a vector of integers",
    "call_returns_vector_float_count": "call instructions that return a vector of floating-point numbers",
    "call_returns_vector_pointer_count": "call instructions that return a vector of pointers",
    "call_with_many_arguments_count": "call instructions with more than 4 arguments",
    "call_with_pointer_argument_count": "call instructions of which at least one argument is a pointer",
}
PROPERTIES: Final = tuple(_PROPERTIES)
"""LLVM's own properties, as of LLVM 22 (`FunctionPropertiesAnalysis.cpp`); older versions have some of them."""

PREDICTED: Final = {
    "predicted_size": "the function's bytes as a model of native size predicts them; only with such a model",
    "predicted_low": "the low end of the interval that the model gives",
    "predicted_high": "the high end of that interval",
}
"""The columns that a model of native size adds, and their meanings."""

IR2NATIVE_COLUMNS: Final = tuple(f"ir2native_{name}" if name in PROPERTIES else name for name in IR2NATIVE_NAMES)
"""The columns of the vector's numbers; a name that LLVM's own properties use for something else gets a prefix."""

_LABELS = frozenset({"module", "linkage", "target_triple", "target_cpu", "opt_level", "status", SPLIT})

_KEY = {
    "module": "the module's name in its corpus",
    "function": "the function's name in the module, mangled as it is there",
    "demangled": "the same as the source of C++ or Rust has it; null for names that are not mangled, and where opt has "
    "no llvm-cxxfilt beside it",
}
_CONTEXT = {
    "linkage": "how the function is linked: external (visible to all), internal (to its module), linkonce_odr (one of "
    "equal ones in several modules, which goes where nobody needs it) and so on",
    "comdat": "the group of which the linker keeps one; null for none",
    "section": "the section that the source names for it; null for none",
    **{name: f"whether the function has this attribute: {meaning}" for name, meaning in _ATTRIBUTES.items()},
    "target_triple": "the module's target",
    "target_cpu": "the processor that code is generated for; null where the target's default is",
    "opt_level": "the command's optimisation level: 0 to 3, s or z",
}
_OUTCOME = {
    "native_size": "the label: bytes of the function in the object, by its symbol, with its fragments; null where it "
    "has none; in Mach-O and COFF up to the next symbol, so with the padding between them",
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


MODULE_MEANINGS: Final = {
    "module": "the module's name in its corpus",
    "status": "ok (its functions are in the table) or failed",
    "reason": "ok, or why it failed, in a word",
    "detail": "one line for a person: what went wrong; empty if nothing did",
    "functions": "functions with a body after inlining",
    "labelled": "those of them that have a native size",
    "faithful": "whether the object equals the plain compile's, byte for byte; null if they were not compared",
    "text_size": "bytes of the object's code and read-only data: text as llvm-size prints it",
    "code_size": "bytes of the object's executable sections",
    "explained_size": "those of them that are the labelled functions'; the rest is other code, and in ELF padding",
    "object_sha256": "hex digest of the object",
    "cpu_s": "seconds of processor time that clang and opt took",
    "replay_cpu_s": "seconds of processor time of the plain compile; null if there was none",
}
"""The meanings of the columns of ``modules.parquet``."""


class ModuleSizes(NamedTuple):
    """One row of ``modules.parquet``: the outcome of one module. `MODULE_MEANINGS` describes the fields."""

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
    write_rows(path, ModuleSizes._fields, MODULE_KINDS, stored, metadata, meanings=MODULE_MEANINGS)


def read_module_sizes(path: Path) -> Iterator[ModuleSizes]:
    """Yield the rows of ``modules.parquet``.

    Raises:
        CorpusError: the file is not such a table.
    """
    rows = iter_rows(path, ModuleSizes._fields, MODULE_KINDS, what="sizes", required=_REQUIRED)
    return map(ModuleSizes._make, rows)


def is_functions_table(path: Path) -> bool:
    """Return True if a path is that of a table of functions: a folder or a file with a column ``native_size``.

    Raises:
        CorpusError: a file cannot be read.
    """
    paths = DatasetPaths.of(path, SIZES_FOLDER)
    for part in paths.parts()[:1] if paths.root.exists() else ():
        with read_parquet(part) as file:
            return LABEL in file.schema_arrow.names
    return False


def read_functions(path: Path) -> pa.Table:
    """Read the rows of a table of functions: its folder or file.

    Raises:
        UsageError: there is none.
        CorpusError: a file cannot be read.
    """
    import pyarrow as pa

    paths = DatasetPaths.of(path, SIZES_FOLDER)
    if not paths.root.exists() or not paths.parts():
        raise UsageError(f"{path}: expected a table of functions, as ir2native makes it")
    tables = []
    for part in paths.parts():
        with read_parquet(part) as file:
            if LABEL not in file.schema_arrow.names:
                raise UsageError(f"{path}: expected a table of functions, found no column {LABEL!r}")
            tables.append(file.read())
    try:
        return pa.concat_tables(tables)
    except pa.ArrowInvalid as error:
        raise CorpusError(f"{path}: its files have different columns: {str(error).splitlines()[0]}") from None


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table: some of `GROUPS`, whether the vector is also one list column, and what a model adds."""

    groups: tuple[str, ...] = GROUPS
    vector: bool = False
    predicted: bool = False

    @classmethod
    def of(cls, text: str | Iterable[str], *, vector: bool, predicted: bool = False) -> Columns:
        """Parse ``all``, or names of `GROUPS`, one by one or separated by commas.

        Raises:
            UsageError: there is no such group, or the vector is wanted without its group.
        """
        given = text.split(",") if isinstance(text, str) else map(str, text)
        names = GROUPS if text == "all" else tuple(name.strip() for name in given)
        if unknown := [name for name in names if name not in GROUPS]:
            message = f"expected all, or some of {', '.join(GROUPS)}"
            raise UsageError(message, option="features", value=unknown[0])
        if vector and "ir2native" not in names:
            raise UsageError("`vector` requires ir2native in `features`")
        return cls(tuple(group for group in GROUPS if group in names), vector, predicted)

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
            yield name, _PROPERTIES.get(name, f"LLVM's {name.replace('_', ' ')} (print<func-properties>)")
    if columns.wants_vectors:
        for column, name in zip(IR2NATIVE_COLUMNS, IR2NATIVE_NAMES, strict=True):
            yield column, _ir2native_meaning(name)
        if columns.vector:
            yield VECTOR, f"these {len(IR2NATIVE_NAMES)} numbers as one list, as the model takes them"
    if "operands" in columns.groups:
        yield from OPERAND_MEANINGS.items()
    yield from _OUTCOME.items()
    if columns.predicted:
        yield from PREDICTED.items()


def _ir2native_meaning(name: str) -> str:
    if name in _NAMED:
        return _NAMED[name]
    number = IR2NATIVE_NAMES.index(name) - len(NAMED)
    if number < len(OPCODES):
        return f"how many {OPCODES[number]} instructions there are" if number else "always 0: no opcode has number 0"
    first, second = PAIRS[number - len(OPCODES)]
    return f"how often {OPCODES[second]} comes right after {OPCODES[first]}"


def with_split(
    batch: pa.RecordBatch, sides: Sequence[str | None], meanings: Mapping[str, str], predicted: Mapping[str, pa.Array]
) -> pa.RecordBatch:
    """Add the side of each row, what a model predicted, and the columns' meanings.

    Columns of few different texts are encoded as dictionaries.
    """
    import pyarrow as pa

    names = [*batch.schema.names, SPLIT, *predicted]
    columns = [*batch.columns, arrays.texts(pa.string(), list(sides)), *predicted.values()]
    encoded = [
        column.dictionary_encode() if name in _LABELS else column for name, column in zip(names, columns, strict=True)
    ]
    made = pa.RecordBatch.from_arrays(encoded, names=names)
    return pa.RecordBatch.from_arrays(encoded, schema=with_meanings(made.schema, meanings))
