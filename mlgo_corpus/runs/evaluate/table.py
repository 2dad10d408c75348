"""The tables of an evaluation: ``evaluation.parquet``, a row for each policy and module, and ``products.parquet``.

======================  ==============================================================================================
column                  meaning
======================  ==============================================================================================
``policy``              who decided
``module``              the module's name in its corpus
``status``              ``ok`` or ``failed``
``reason``              a word of `RunReason`
``detail``              one line for a person: what went wrong; empty if nothing did
``project``             the corpus, of those that the corpus was combined of, that the module is from; else null
``trained_share``       how much of the module the policy was trained on, by instructions of equal functions: 0 to 1
``trained``             whether that is so much that the module is left out of the headline
``observations``        decisions
``text_size``           bytes of the object's text
``baseline_text_size``  as ``text_size``, of the object that the same compiler makes by its own heuristics
``code_size``           bytes of the object's executable sections
``baseline_code_size``  as ``code_size``, of the object by the compiler's own heuristics
``object_sha256``       hex digest of the object
``cpu_s``               seconds of processor time of the compile, in which a live session decided
``baseline_cpu_s``      as ``cpu_s``, of the plain compile
======================  ==============================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from mlgo_corpus.files.markdown import plain_columns
from mlgo_corpus.files.tables import Kind, iter_rows, write_rows
from mlgo_corpus.files.text import storable

EVALUATION_NAME: Final = "evaluation.parquet"
LINKED_NAME: Final = "products.parquet"
NOTE_NAME: Final = "evaluation.json"
"""How an evaluation was made: ``{"tool": "mlgo-corpus", "kind": "evaluation", "key": ...}``."""

EVALUATION_KIND: Final = "evaluation"


class EvaluationRow(NamedTuple):
    """One module with one policy; fields as the module's docstring describes them, in the file's order."""

    policy: str
    module: str
    status: str
    reason: str
    detail: str
    project: str | None
    trained_share: float
    trained: bool
    observations: int
    text_size: int | None
    baseline_text_size: int | None
    code_size: int | None
    baseline_code_size: int | None
    object_sha256: str | None
    cpu_s: float | None
    baseline_cpu_s: float | None


_KINDS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(
        ("observations", "text_size", "baseline_text_size", "code_size", "baseline_code_size"), Kind.INTEGER
    ),
    **dict.fromkeys(("trained_share", "cpu_s", "baseline_cpu_s"), Kind.FLOAT),
    **dict.fromkeys(("policy", "module"), Kind.LABEL),
    "trained": Kind.BOOLEAN,
}


class LinkedRow(NamedTuple):
    """One product of one policy's objects; fields as `LINKED_COLUMNS` describes them, in the file's order."""

    policy: str
    link: str
    product: str
    kind: str
    status: str
    reason: str
    detail: str
    modules: int
    trained_modules: int
    trained: bool
    text_size: int | None
    baseline_text_size: int | None
    missing: int | None = None


LINKED_COLUMNS: Final = """
``policy``              who decided
``link``                ``linked``, as the build did, or ``folded``: by lld, with gc-sections and icf=all
``product``             its path relative to the build
``kind``                ``program``, ``shared`` (a library) or ``relocatable`` (``-r``)
``status``              ``ok`` or ``failed``
``reason``              a word of `RunReason`
``detail``              one line for a person: what went wrong; empty if nothing did
``modules``             modules of the corpus that the link takes, or can take if that is not known
``trained_modules``     of them, those that were compiled, and that the policy was trained on
``trained``             whether these are at least half, so that the product is left out of the headline
``text_size``           bytes of its text
``baseline_text_size``  as ``text_size``, of the build's objects; of plain compiles' if they are gone or another clang's
``missing``             modules whose object in it is the build's own, as they were not chosen, not compiled, left
                        behind when this corpus was made of another, or joined by something unseen (``ld -r`` by its
                        path); if there are any, the product is not compared; those that cannot be compiled plainly,
                        either, do not count beside others
"""

_LINKED_KINDS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("modules", "trained_modules", "text_size", "baseline_text_size", "missing"), Kind.INTEGER),
    **dict.fromkeys(("policy", "product"), Kind.LABEL),
    "trained": Kind.BOOLEAN,
}


def write_evaluation_rows(path: Path, rows: Iterable[EvaluationRow], metadata: Mapping[str, Any]) -> None:
    """Write ``evaluation.parquet``; ``metadata`` goes into its schema as JSON."""
    stored = ([storable(value) for value in row] for row in rows)
    write_rows(path, EvaluationRow._fields, _KINDS, stored, metadata, meanings=plain_columns(__doc__))


def iter_evaluation_rows(path: Path) -> Iterator[EvaluationRow]:
    """Yield the rows of ``evaluation.parquet``.

    Raises:
        CorpusError: it is no such table.
    """
    required = frozenset({"policy", "module", "status", "reason", "detail", "trained_share", "trained", "observations"})
    return map(
        EvaluationRow._make,
        iter_rows(path, EvaluationRow._fields, _KINDS, what="an evaluation", required=required),
    )


def write_linked_rows(path: Path, rows: Iterable[LinkedRow], metadata: Mapping[str, Any]) -> None:
    """Write ``products.parquet``."""
    stored = ([storable(value) for value in row] for row in rows)
    write_rows(path, LinkedRow._fields, _LINKED_KINDS, stored, metadata, meanings=plain_columns(LINKED_COLUMNS))


def iter_linked_rows(path: Path) -> Iterator[LinkedRow]:
    """Yield the rows of ``products.parquet``.

    Raises:
        CorpusError: it is no such table.
    """
    optional = frozenset({"missing"})  # in what was made before there was this column
    required = frozenset(LinkedRow._fields) - {"text_size", "baseline_text_size"} - optional
    return map(
        LinkedRow._make,
        iter_rows(path, LinkedRow._fields, _LINKED_KINDS, what="products", required=required, optional=optional),
    )
