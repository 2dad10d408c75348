"""``flips.parquet`` and ``search.parquet`` of a search's dataset: what was tried, and what each module's search found.

A flip is the other decision at one call, at all calls of one function that were decided alike, or at two calls that are
near each other. It is tried at the state that the search had come to then, and not at that of the best compile. What
the search took from rules and policies was not tried call by call, and has no row: so the effects do not add up to what
was saved.

======================  ==============================================================================================
column                  meaning
======================  ==============================================================================================
``module``              the module's name in its corpus
``compile``             the number of the compile that tried it, from 2 on; the first has the policy's own decisions
``others``              how many other flips the same compile tried, also those whose calls it did not meet, which have
                        no row; none of them may change the same functions
``caller``              the function that the call is in; of several calls, of the first
``callee``              the function that is called
``calls``               how many calls were flipped together
``base``                the decision of the policy that the search began with, at this state: 1 to inline
``tried``               the decision that was tried
``text_effect``         the bytes of text that it added to the functions that it may change: less than 0 if it saved
                        some; null if the compile failed
``effect``              the same as the objective weighs it, which may count what a linker adds of each function
``kept``                whether the best compile decides so, too, for any reason: the flip itself may have done harm
======================  ==============================================================================================

The features at that state follow, under LLVM's names; of several calls, those of the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from mlgo_corpus.dataset.calls import encoded_names
from mlgo_corpus.files import arrays
from mlgo_corpus.files.markdown import plain_columns
from mlgo_corpus.files.tables import Kind, iter_rows, with_meanings, write_rows
from mlgo_corpus.files.text import storable
from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.formats.logs.meanings import describe
from mlgo_corpus.formats.logs.tasks import INLINING

if TYPE_CHECKING:
    import pyarrow as pa


class FlipRow(NamedTuple):
    """One flip; fields as the module's docstring describes them, and the features as the compiler sent them."""

    compile: int
    others: int
    caller: str
    callee: str
    calls: int
    base: int
    tried: int
    text_effect: float
    effect: float
    kept: bool
    tensors: bytes


def flip_schema(header: LogHeader) -> pa.Schema:
    """Return the schema of ``flips.parquet``.

    Args:
        header: of the live session that sent the features.
    """
    import pyarrow as pa

    text = pa.dictionary(pa.int32(), pa.string())
    whole, real = pa.int32(), pa.float64()
    own = {
        "module": text, "compile": whole, "others": whole, "caller": text, "callee": text, "calls": whole,
        "base": pa.int8(), "tried": pa.int8(), "text_effect": real, "effect": real, "kept": pa.bool_(),
    }  # fmt: skip
    fields = [pa.field(name, kind, nullable=name.endswith("effect")) for name, kind in own.items()]
    fields += [pa.field(spec.name, spec.arrow_type, nullable=False) for spec in header.features]
    features = ((spec.name, describe(INLINING, spec.name)) for spec in header.features)
    meanings = {name: meaning for name, meaning in features if meaning is not None}
    return with_meanings(pa.schema(fields), {**meanings, **plain_columns(__doc__)})


def flip_batch(header: LogHeader, module: str, rows: Iterable[FlipRow]) -> pa.RecordBatch:
    """Return the flips of one module."""
    import pyarrow as pa

    kept = list(rows)
    columns = dict(zip(FlipRow._fields, map(list, zip(*kept, strict=True)), strict=True)) if kept else {}
    schema = flip_schema(header)
    made: list[pa.Array] = []
    record = np.dtype([(f"f{number}", spec.dtype) for number, spec in enumerate(header.features)])
    tensors = np.frombuffer(b"".join(columns.get("tensors", ())), record)
    for number, item in enumerate(schema):
        values: list[Any] = columns.get(item.name, [])
        if item.name == "module":
            made.append(encoded_names([module] * len(kept)))
        elif item.name in ("caller", "callee"):
            made.append(encoded_names(values))
        elif item.name == "kept":
            made.append(arrays.numbers_or_null(item.type, values))
        elif item.name.endswith("effect"):
            effects = np.array(values, np.float64)
            made.append(arrays.numbers(item.type, effects, ~np.isnan(effects)))
        elif number < len(schema) - len(header.features):
            made.append(arrays.numbers(item.type, np.array(values, item.type.to_pandas_dtype())))
        else:
            at = number - (len(schema) - len(header.features))
            made.append(arrays.numbers(item.type, np.ascontiguousarray(tensors[f"f{at}"])))
    return pa.RecordBatch.from_arrays(made, schema=schema)


class SearchRow(NamedTuple):
    """One module's search; fields as `SEARCH_COLUMNS` describes them, in the file's order."""

    module: str
    compiles: int
    flips: int
    kept: int
    baseline_text_size: int
    text_size: int
    baseline_objective: float
    objective: float
    found_after: str
    wall_s: float
    untried: str | None = None


SEARCH_COLUMNS: Final = """
``module``              the module's name in its corpus
``compiles``            how often it was compiled
``flips``               how many flips were tried
``kept``                how many decisions of the best compile are other than the policy's own at their states
``baseline_text_size``  bytes of text with the decisions that the search began with
``text_size``           bytes of text of the best compile
``baseline_objective``  the objective with the decisions that the search began with: bytes, as it weighs them
``objective``           the objective of the best compile
``found_after``         when better decisions were found: ``COMPILES:OBJECTIVE`` for each, with blanks between them
``wall_s``              seconds that the search took
``untried``             the policies that could not be tried, and why: ``POLICY: WHY``, one a line; empty without any
"""

_KINDS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("compiles", "flips", "kept", "baseline_text_size", "text_size"), Kind.INTEGER),
    **dict.fromkeys(("baseline_objective", "objective", "wall_s"), Kind.FLOAT),
    "module": Kind.LABEL,
}


def write_search_rows(path: Path, rows: Iterable[SearchRow], metadata: Mapping[str, Any]) -> None:
    """Write ``search.parquet``."""
    stored = ([storable(value) for value in row] for row in rows)
    write_rows(path, SearchRow._fields, _KINDS, stored, metadata, meanings=plain_columns(SEARCH_COLUMNS))


def iter_search_rows(path: Path) -> Iterator[SearchRow]:
    """Yield the rows of ``search.parquet``.

    Raises:
        CorpusError: the file is no such table.
    """
    optional = frozenset({"untried"})  # in what was made before there was this column
    required = frozenset(SearchRow._fields) - optional
    rows = iter_rows(path, SearchRow._fields, _KINDS, what="searches", required=required, optional=optional)
    return map(SearchRow._make, rows)
