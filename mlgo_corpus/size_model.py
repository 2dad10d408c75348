"""The train stage for tables of functions: a model of native size, and an honest account of its errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus import __version__
from mlgo_corpus.compilers.limits import check_count, check_once, real_number, whole_number
from mlgo_corpus.dataset.sizes.table import GROUPS, LABEL, Columns, is_functions_table, read_functions
from mlgo_corpus.errors import CorpusError, UsageError
from mlgo_corpus.files.folder import check_folder
from mlgo_corpus.files.markdown import markdown_code, markdown_table
from mlgo_corpus.files.parquet import texts_of
from mlgo_corpus.files.remote import output_here
from mlgo_corpus.files.text import counted, several
from mlgo_corpus.learn.boosting import need_lightgbm
from mlgo_corpus.learn.card import feature_parts
from mlgo_corpus.learn.size import (
    ENOUGH_HELD,
    FEATURES_OF_TREE,
    FUNCTIONS_OF_TREE,
    LEAST_IN_LEAF,
    FittedSizes,
    SizeOptions,
    fit_sizes,
)
from mlgo_corpus.policies.artefact import POLICY_FILES, POLICY_NAME
from mlgo_corpus.policies.models import Doubles
from mlgo_corpus.policies.sizes.inputs import choose_features, inputs_of, names_of
from mlgo_corpus.policies.sizes.model import PredictedSizes, SizeModel, is_size_model
from mlgo_corpus.runs.report import Report

if TYPE_CHECKING:
    import pyarrow as pa

_TRAIN, _VALIDATION, _TEST = "train", "validation", "test"
_ARRAYS: Final = ("inputs", "sizes", "bodies", "sides", "targets", "levels")
_NEEDED: Final = (LABEL, "body_digest", "split")
_CLASSES: Final = (0, 16, 64, 256, 1024)
_SHOWN_KINDS: Final = 12


@dataclass(frozen=True, slots=True)
class SizeErrors:
    """How far predictions are from the sizes of some functions.

    Attributes:
        functions: how many.
        median: the median of the errors, as a share of the size.
        mean: the mean of the errors, in bytes.
        r2: the share of the variance of the sizes' logarithm that is explained; None if all sizes are equal.
        total: of the sum of all sizes, as a share of the true sum: 0.01 for a hundredth too much.
        covered: the share of functions in the interval; None without one.
    """

    functions: int
    median: float
    mean: float
    r2: float | None
    total: float
    covered: float | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """The errors on a set of functions that the model was not trained on, none of them with a body that it was.

    Attributes:
        name: of the table, or ``test`` for the side of that name.
        seen: functions left out because one with an equal body was trained on.
        errors: of the model.
        baselines: of simple models, by what they scale.
        kinds: the model's errors by size class, target and optimisation level: (what, which, errors).
    """

    name: str
    seen: int
    errors: SizeErrors
    baselines: dict[str, SizeErrors]
    kinds: tuple[tuple[str, str, SizeErrors], ...]


@dataclass(frozen=True, slots=True)
class SizeModelReport(Report):
    """The outcome of training a model of native size.

    Attributes:
        output: the model's folder.
        name: the model's name; ``digest`` is that of all that it predicts by.
        tables: what was learned from: name and functions of each table.
        functions: of the side ``train``, in all.
        features: what it predicts by; ``inputs`` numbers in all.
        model: its size in words; ``bytes`` on the disk.
        measured: its errors on functions that it was not trained on.
        importance: of each input, the share of the loss that its splits save.
        hints: advice for the user.
        seconds: how long it took.
    """

    output: Path
    name: str
    digest: str
    tables: tuple[tuple[str, int], ...]
    functions: int
    features: tuple[str, ...]
    inputs: int
    model: str
    bytes: int
    measured: tuple[Measured, ...]
    importance: dict[str, float]
    hints: tuple[str, ...]
    seconds: float


def is_table(path: Path | str) -> bool:
    """Return True if a path is that of a table of functions.

    Raises:
        CorpusError: it cannot be read.
    """
    return is_functions_table(Path(path))


def train_size_model(
    tables: Sequence[Path | str] | Path | str,
    output: Path | str,
    *,
    validation: Sequence[Path | str] | Path | str = (),
    features: str = "all",
    name: str = "native-size-0.1",
    trees: int = 800,
    leaves: int = 31,
    coverage: float = 0.9,
    seed: int = 0,
    force: bool = False,
    progress: Callable[[str, int, int, str], None] | None = None,
) -> SizeModelReport:
    """Learn how many bytes functions have, from tables of ``mlgo-corpus ir2native``, and write the model as a folder.

    It learns from the side ``train`` of each table, fits its interval on ``validation``, and is measured on ``test``,
    and on all functions of other tables. The same tables, options and library give the same model, byte for byte.

    Args:
        tables: folders or files.
        output: the model's folder, see `mlgo_corpus.policies.sizes.model`.
        validation: tables of other projects, to measure the model on.
        features: ``all`` that the tables have, or some of ``llvm``, ``ir2native``, ``context`` with commas in between.
            ``ir2native`` alone makes a model that a development-mode compiler can evaluate.
        name: the model's name.
        trees: how many trees the model has.
        leaves: how many leaves each of them has at most.
        coverage: the share of functions whose size the interval is to hold.
        seed: of the features and functions that each tree may use.
        force: replace a model that is there.
        progress: called with (what is done, how much of it, how much in all, what is known of it).

    Raises:
        UsageError: the request cannot be carried out as it stands; nothing was written.
        CorpusError: a table cannot be read.
    """
    started = time.perf_counter()
    output = output_here(output, "a model", "a folder")
    tables, validation = several(tables), several(validation)
    trees, leaves, seed = whole_number("trees", trees), whole_number("leaves", leaves), whole_number("seed", seed)
    coverage = real_number("coverage", coverage)
    check_count("trees", trees, most=10_000)
    check_count("leaves", leaves, least=2, most=1024)
    check_count("seed", seed, least=0, most=2**31 - 1)
    if not 0 < coverage < 1:
        raise UsageError("expected more than 0, and less than 1", option="coverage", value=f"{coverage:g}")
    if not tables:
        raise UsageError("expected at least one table", option="data")
    check_once("data", tables, "a table")
    check_once("validation", validation, "a table")
    check_folder(output, known=POLICY_FILES, force=force)
    if (output / POLICY_NAME).exists() and not is_size_model(output):
        raise UsageError(f"{output}: is there already, and not a model of size")
    need_lightgbm()
    read = [_labelled(Path(path)) for path in tables]
    others = [(Path(path).name, _labelled(Path(path))) for path in validation]
    groups = _groups(read) if features == "all" else Columns.of(features, vector=False).groups
    specs = choose_features(read, groups)
    parts = [_Functions.of(table, inputs_of(table, specs)) for table in read]
    known = _Functions.joined(parts)
    learned, held, rest = (known.at(known.sides == side) for side in (_TRAIN, _VALIDATION, _TEST))
    if not len(learned.sizes):
        raise UsageError("no function of the tables is of the side train and has a native size")
    if len(np.unique(learned.bodies)) < 2:
        raise UsageError("all functions of the side train have the same body: there is nothing to learn")
    held = held.at(~np.isin(held.bodies, learned.bodies)).each_once()
    options = SizeOptions(trees, leaves, coverage=coverage, seed=seed)
    show = None if progress is None else (lambda done, total, note: progress("fitting", done, total, note))
    names = names_of(specs)
    fitted = fit_sizes(learned.inputs, names, learned.sizes, learned.bodies, (held.inputs, held.sizes), options, show)
    model = SizeModel(name, specs, fitted.base, fitted.model, fitted.low, fitted.high, coverage)
    simple = {what: _factor(values, learned.sizes) for what, values in learned.simple.items()}
    measures = [("test", rest)] if len(rest.sizes) else []
    measures += [(title, _Functions.of(table, inputs_of(table, specs))) for title, table in others]
    measured = tuple(_measure(title, model, some, learned.bodies, simple) for title, some in measures)
    named = tuple((Path(path).name, len(part.sizes)) for path, part in zip(tables, parts, strict=True))
    training = {
        "tool": "mlgo-corpus",
        "version": __version__,
        "library": fitted.library,
        "options": {
            "trees": options.trees,
            "leaves": options.leaves,
            "rate": options.rate,
            "least_in_leaf": LEAST_IN_LEAF,
            "share": FEATURES_OF_TREE,
            "some": FUNCTIONS_OF_TREE,
            "seed": options.seed,
        },
        "data": [
            {"table": title, "functions": count, "sha256": part.digest()}
            for (title, count), part in zip(named, parts, strict=True)
        ],
    }
    doubt = tuple(_doubt(len(held.sizes), coverage))
    metrics = {"importance": fitted.importance, "measured": [_plain(one) for one in measured]}
    made = replace(model, training=training, metrics=metrics, card=_card(model, named, fitted, measured, doubt))
    made.save(output, force=force)
    return SizeModelReport(
        output=output,
        name=name,
        digest=made.digest,
        tables=named,
        functions=len(learned.sizes),
        features=tuple(spec.name for spec in specs),
        inputs=len(names),
        model=made.described(),
        bytes=sum(path.stat().st_size for path in output.iterdir()),
        measured=measured,
        importance=fitted.importance,
        hints=(*_hints(rest, others, learned), *doubt),
        seconds=time.perf_counter() - started,
    )


def _labelled(path: Path) -> pa.Table:
    """Return the functions of a table that have a size."""
    table = read_functions(path)
    for name in _NEEDED:
        if name not in table.schema.names:
            raise CorpusError(f"{path}: expected a column {name!r}, found none")
    table = table.filter(table.column(LABEL).is_valid())
    if not table.num_rows:
        raise UsageError(f"{path}: no function has a native size")
    return table


def _groups(tables: Sequence[pa.Table]) -> list[str]:
    """Return the groups of features that all tables have."""
    found = []
    for group in GROUPS:
        try:
            choose_features(tables, [group])
        except UsageError:
            continue
        found.append(group)
    if not found:
        raise UsageError("the tables have no features in common")
    return found


@dataclass(frozen=True, slots=True)
class _Functions:
    """Functions with sizes, as arrays with an entry for each."""

    inputs: Doubles
    sizes: Doubles
    bodies: NDArray[Any]
    sides: NDArray[Any]
    targets: NDArray[Any]
    levels: NDArray[Any]
    simple: dict[str, Doubles]

    @classmethod
    def of(cls, table: pa.Table, inputs: Doubles) -> _Functions:
        """Take what is needed of a table."""
        count = table.num_rows

        def texts(name: str) -> NDArray[Any]:
            there = name in table.schema.names
            return np.array([text or "" for text in texts_of(table.column(name))] if there else [""] * count, object)

        simple = {}
        if "initial_size" in table.schema.names:
            simple["LLVM's cost (TTI)"] = table.column("initial_size").to_numpy().astype(np.float64)
        opcodes = [name for name in table.schema.names if name.startswith("opcode_")]
        if opcodes:
            simple["instructions"] = sum(table.column(name).to_numpy().astype(np.float64) for name in opcodes)
        elif "total_instruction_count" in table.schema.names:
            simple["instructions"] = table.column("total_instruction_count").to_numpy().astype(np.float64)
        sizes = table.column(LABEL).to_numpy().astype(np.float64)
        return cls(
            inputs,
            sizes,
            bodies=texts("body_digest"),
            sides=texts("split"),
            targets=texts("target_triple"),
            levels=texts("opt_level"),
            simple=simple,
        )

    @classmethod
    def joined(cls, parts: Sequence[_Functions]) -> _Functions:
        """Return the functions of several tables; the simple models are those that all have."""
        shared = [name for name in parts[0].simple if all(name in part.simple for part in parts)]
        arrays: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS}
        return cls(**arrays, simple={name: np.concatenate([part.simple[name] for part in parts]) for name in shared})

    def at(self, chosen: NDArray[np.bool_]) -> _Functions:
        """Return some of them."""
        arrays: dict[str, Any] = {name: getattr(self, name)[chosen] for name in _ARRAYS}
        return _Functions(**arrays, simple={name: values[chosen] for name, values in self.simple.items()})

    def each_once(self) -> _Functions:
        """Return one function of each body."""
        first = np.zeros(len(self.bodies), np.bool_)
        first[np.unique(self.bodies, return_index=True)[1]] = True
        return self.at(first)

    def digest(self) -> str:
        """Return a digest of the functions' bodies and sizes."""
        digest = sha256(self.sizes.tobytes())
        for text in self.bodies:
            digest.update(f"{text}\0".encode("utf-8", "replace"))
        return digest.hexdigest()


def _factor(values: Doubles, sizes: Doubles) -> float:
    """Return the median ratio of size to measure."""
    return float(np.median(np.maximum(sizes, 1.0) / np.maximum(values, 1.0)))


def _measure(
    name: str, model: SizeModel, functions: _Functions, trained: NDArray[Any], simple: Mapping[str, float]
) -> Measured:
    seen = np.isin(functions.bodies, trained)
    if seen.all():
        raise UsageError(f"{name}: the body of every function of it is learned from: nothing is left to measure")
    rest = functions.at(~seen)
    predicted = model.sizes(rest.inputs)
    baselines = {
        f"{what} × {factor:.2f}": _errors(rest.simple[what] * factor, rest.sizes)
        for what, factor in simple.items()
        if what in rest.simple
    }
    return Measured(
        name,
        int(seen.sum()),
        _errors_of(predicted, rest.sizes, np.ones(len(rest.sizes), np.bool_)),
        baselines,
        tuple(_kinds(predicted, rest)),
    )


def _kinds(predicted: PredictedSizes, functions: _Functions) -> Iterator[tuple[str, str, SizeErrors]]:
    ends = (*_CLASSES[1:], np.inf)
    for first, end in zip(_CLASSES, ends, strict=True):
        chosen = (functions.sizes >= first) & (functions.sizes < end)
        which = f"{first} bytes and more" if end == np.inf else f"{first} to {end - 1:g} bytes"
        if chosen.any():
            yield "size", which, _errors_of(predicted, functions.sizes, chosen)
    for what, values in (("target", functions.targets), ("optimisation level", functions.levels)):
        for value in sorted(set(values.tolist()) - {""})[:_SHOWN_KINDS]:
            yield what, value, _errors_of(predicted, functions.sizes, values == value)


def _errors_of(predicted: PredictedSizes, sizes: Doubles, chosen: NDArray[np.bool_]) -> SizeErrors:
    found = sizes[chosen]
    covered = (predicted.low[chosen] <= found) & (found <= predicted.high[chosen])
    return _errors(predicted.size[chosen].astype(np.float64), found, float(covered.mean()))


def _errors(predicted: Doubles, sizes: Doubles, covered: float | None = None) -> SizeErrors:
    away = np.abs(predicted - sizes)
    logs, found = np.log(np.maximum(sizes, 1.0)), np.log(np.maximum(predicted, 1.0))
    spread = float(((logs - logs.mean()) ** 2).sum())
    return SizeErrors(
        functions=len(sizes),
        median=float(np.median(away / np.maximum(sizes, 1.0))),
        mean=float(away.mean()),
        r2=1 - float(((logs - found) ** 2).sum()) / spread if spread > 0 else None,
        total=float(predicted.sum() / max(sizes.sum(), 1.0) - 1),
        covered=covered,
    )


def _plain(measured: Measured) -> dict[str, Any]:
    """Return errors as plain values."""

    def plain(errors: SizeErrors) -> dict[str, Any]:
        values = {name: getattr(errors, name) for name in SizeErrors.__slots__}
        return {name: None if value is None else round(value, 5) for name, value in values.items()}

    return {
        "name": measured.name,
        "seen": measured.seen,
        "errors": plain(measured.errors),
        "baselines": {name: plain(errors) for name, errors in measured.baselines.items()},
        "kinds": [{"by": what, "value": which, **plain(errors)} for what, which, errors in measured.kinds],
    }


def _hints(test: _Functions, others: Sequence[Any], learned: _Functions) -> Iterator[str]:
    if not len(test.sizes) and not others:
        yield "no function is of the side test, so that nothing was measured: `validation` takes another table"
    elif not others:
        yield "measured on functions of the same projects: `validation` takes tables of others"
    if len(learned.sizes) < 1000:
        yield f"learned from {counted(len(learned.sizes), 'function')} only: more would help"


def _doubt(held: int, coverage: float) -> Iterator[str]:
    if held < ENOUGH_HELD:
        yield (
            f"the interval is fitted on {counted(held, 'function')} only, of the side validation: it may hold fewer "
            f"than {100 * coverage:g} % of the sizes"
        )


def _card(
    model: SizeModel,
    tables: Sequence[tuple[str, int]],
    fitted: FittedSizes,
    measured: Sequence[Measured],
    doubt: Sequence[str],
) -> str:
    """Return the model's README.md."""
    parts = [
        f"# {model.name}",
        f"Predicts how many bytes a function has in the object, from what it is after inlining: {model.described()}, "
        f"fitted by {fitted.library} to the logarithm of the size; the interval is to hold {100 * model.coverage:g} % "
        f"of the sizes. Made by mlgo-corpus {__version__}.",
        *(f"But {one}." for one in doubt),
        "## Data",
        markdown_table(
            ("table", "functions"), [(markdown_code(name, in_table=True), str(count)) for name, count in tables]
        ),
        "## Errors",
    ]
    if not measured:
        parts.append("Not measured: no function was held back.")
    heading = ("", "functions", "median error", "mean error", "R² of the logarithm", "sum", "in the interval")
    for one in measured:
        rows = [_error_row("this model", one.errors)]
        rows += [_error_row(name, errors) for name, errors in one.baselines.items()]
        rows += [_error_row(f"{what}: {which}", errors) for what, which, errors in one.kinds]
        parts.append(
            f"Of {markdown_code(one.name)}, without {counted(one.seen, 'function')} whose body it was trained on:"
        )
        parts.append(markdown_table(heading, rows))
    parts += feature_parts(fitted.importance, "By the share of the loss that their splits save:")
    return "\n\n".join(parts) + "\n"


def _error_row(name: str, errors: SizeErrors) -> tuple[str, ...]:
    return (
        markdown_code(name, in_table=True) if ":" in name else name,
        str(errors.functions),
        f"{errors.median:.1%}",
        f"{errors.mean:.1f} bytes",
        "" if errors.r2 is None else f"{errors.r2:.3f}",
        f"{errors.total:+.1%}",
        "" if errors.covered is None else f"{errors.covered:.1%}",
    )
