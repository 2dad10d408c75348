"""``mlgo-corpus dump``: print a training log as LLVM's reader does, or as a table, statistics or JSON."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlgo_corpus.cli.console import (
    EXIT_FAILED,
    begins_again,
    draws_blocks,
    err,
    out,
    print_json,
    progress_bar,
    sparkline,
    table,
    verb,
)
from mlgo_corpus.errors import UsageError
from mlgo_corpus.files.text import counted, human_bytes, visible

if TYPE_CHECKING:
    from rich.text import Text

    from mlgo_corpus.dump import ColumnStatistics, LogStatistics, Selection, SingleObservation

_TABLE_OBSERVATIONS = 5
# The most characters of a tensor, and the most lines of them of a context's name: three of LLVM's longest observations
# fit into 80 columns, five into 120.
_CELL_WIDTH = 13
_NAME_LINES = 3
# Significant digits of fractions; --json shows all digits.
_DIGITS = 6
_STATISTICS_DIGITS = 4
_TENSOR_DIGITS = 3
# The width of the spread of values (lowest to highest, by powers of two), and of the console that shows it.
_SPREAD_CELLS = 12
_SPREAD_NEEDS = 100
# The most columns that observations side by side take, also where the terminal's width is unknown.
_WIDEST = 160
# The space between two columns: rich's padding, and a separator that is a space here.
_PADDING = (0, 1, 0, 0)
_GAP = 2


@verb
@begins_again()
def dump(
    log: Annotated[str, typer.Argument(metavar="LOG", help="The training log, also .gz or .zst; - for stdin.")],
    limit: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="The most observations to print.",
            show_default=f"all; {_TABLE_OBSERVATIONS} with --table",
        ),
    ] = None,
    context: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only the context (function) with exactly this name; repeatable."),
    ] = None,
    stats: Annotated[
        bool,
        typer.Option(
            "--stats", help="Print the distribution of each feature's values, and which features are constant."
        ),
    ] = False,
    as_table: Annotated[
        bool, typer.Option("--table", help="Print a table with features as rows and observations as columns.")
    ] = False,
    allow_truncated: Annotated[
        bool,
        typer.Option(
            "--allow-truncated",
            help="Accept a damaged log: print its whole observations and a warning, and exit with 0.",
        ),
    ] = False,
    json_output: Annotated[
        bool,
        typer.Option(
            "--json",
            help='Print one JSON object, with tensors as flat lists, and "NaN", "Infinity" and "-Infinity" as strings.',
        ),
    ] = False,
) -> None:
    """Print a training log exactly as LLVM's log_reader.py does; a large one faster.

    A damaged log is printed up to the damage, followed by what is wrong.
    """
    from mlgo_corpus.dump import open_selection, write_json, write_text

    if as_table and (stats or json_output):
        raise UsageError(f"--table: not together with {'--stats' if stats else '--json'}")
    if sys.stdout is None:
        raise UsageError("there is no standard output to print to")
    number = _TABLE_OBSERVATIONS if as_table and limit is None else limit
    with open_selection(log, limit=number, contexts=context or ()) as selection:
        if stats:
            _print_statistics(log, selection, as_json=json_output)
        elif as_table:
            _print_tables(selection)
            if limit is None and selection.stopped:
                _note(f"hint: these are the first {_TABLE_OBSERVATIONS} observations; --limit N shows N")
        elif json_output:
            write_json(selection, sys.stdout.buffer)
        else:
            write_text(selection, sys.stdout.buffer)
    if selection.damage is not None:
        if not allow_truncated:
            raise selection.damage
        _note(f"warning: {selection.damage}")
    if selection.missing and not selection.stopped:
        _note(f"error: {log}: no context is called {' or '.join(map(repr, selection.missing))}")
        raise typer.Exit(EXIT_FAILED)


def _note(text: str) -> None:
    sys.stdout.flush()
    err().print(f"mlgo-corpus: {_plain(text)}", markup=False)


def _plain(text: str) -> str:
    """Make text fit for one line of any terminal: escape control characters and those that its encoding lacks."""
    encoding = out().encoding
    return visible(text).encode(encoding, "backslashreplace").decode(encoding)


def _text(text: str) -> Text:
    """Make text for a table that is not read as markup."""
    from rich.text import Text

    return Text(_plain(text))


def _print_statistics(log: str, selection: Selection, *, as_json: bool) -> None:
    from mlgo_corpus.dump import log_statistics
    from mlgo_corpus.logs import task_name

    size = _size(log)
    with progress_bar("reading", unit="B") as progress:
        found = log_statistics(selection, progress=lambda done: progress(min(done, size or done), size))
    task = task_name(found.header)
    if as_json:
        damage = None if selection.damage is None else str(selection.damage)
        print_json({"log": log, "task": task, **found.as_json(), "damage": damage})
    else:
        _show_statistics(log, task, found)


def _size(log: str) -> int:
    """Return a file's size; 0 if it cannot be known."""
    try:
        status = os.stat(log)
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _show_statistics(log: str, task: str | None, found: LogStatistics) -> None:
    from mlgo_corpus.formats.logs.magnitudes import merged

    console, header = out(), found.header
    facts = [counted(found.observations, "observation"), counted(found.contexts, "context")]
    if found.empty_contexts:
        facts[-1] += f" ({'empty' if found.contexts == 1 else f'{found.empty_contexts} of them empty'})"
    if found.log_bytes is not None:
        facts.append(f"a log of {human_bytes(found.log_bytes)}")
    else:
        facts[0] = f"only the first {facts[0]}"
    console.print(f"{_plain(log)}: {task or 'a training log'}, {', '.join(facts)}", markup=False)
    parts = [counted(len(header.features), "feature")]
    parts += [f"{what} {spec.name}" for what, spec in (("score", header.score), ("advice", header.advice)) if spec]
    size = header.tensor_bytes + header.score_bytes
    console.print(f"an observation: {_plain(', '.join(parts))}; {human_bytes(size)}", markup=False)

    has_nans = any(column.nans for column in found.columns)
    rows = table("feature", "type", "min", "max", "mean", "distinct", "zeros", *(["NaN"] if has_nans else []), left=2)
    rows.padding = _PADDING
    draws = console.width >= _SPREAD_NEEDS and draws_blocks(console)
    if draws:
        rows.add_column("spread", no_wrap=True)
    for column in found.columns:
        cells = [_number(value, _STATISTICS_DIGITS) for value in (column.min, column.max, column.mean)]
        cells.append(_distinct(column))
        cells.append(_share(column.zeros, column.values))
        if has_nans:
            cells.append(_share(column.nans, column.values))
        if draws:
            cells.append(sparkline(merged([one.number for one in column.spread], _SPREAD_CELLS)))
        shape = "" if column.shape == (1,) else f" {_shape(column.shape)}"
        rows.add_row(_text(column.name), _text(column.type + shape), *cells)
    console.print(rows)
    constant = [_plain(column.name) for column in found.columns if column.is_constant]
    if constant:
        console.print(f"* constant: {', '.join(constant)}", markup=False)


def _shape(shape: Sequence[int]) -> str:
    return f"[{','.join(map(str, shape))}]"


def _distinct(column: ColumnStatistics) -> str:
    from mlgo_corpus.dump import DISTINCT_LIMIT

    if column.distinct is None:
        return f">{DISTINCT_LIMIT}"
    return f"{column.distinct}{'*' if column.is_constant else ''}"


def _share(part: int, whole: int) -> str:
    """Return a share in percent; only nothing is 0 %, and only everything is 100 %."""
    if not part or not whole:
        return "-" if not whole else "0%"
    percent = 100 * part / whole
    return "<1%" if percent < 1 else ">99%" if 99 < percent < 100 else f"{percent:.0f}%"


def _number(value: Any, digits: int = _DIGITS) -> str:
    if value is None:
        return "-"
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def _print_tables(selection: Selection) -> None:
    """Print tables one below the other, each with as many observations side by side as fit the terminal."""
    from rich.cells import cell_len

    from mlgo_corpus.dump import iter_observations

    columns = selection.header.columns
    labels = [_text(spec.name if spec.is_scalar else f"{spec.name} {_shape(spec.shape)}") for spec in columns]
    room = min(out().width, _WIDEST) - max([len("feature"), *(label.cell_len for label in labels)])
    gathered: list[list[str]] = []
    left = room
    for observation in iter_observations(selection):
        cells = _cells(observation)
        width = max(cell_len(line) for cell in cells for line in cell.split("\n")) + _GAP
        if gathered and width > left:
            _print_table(labels, gathered)
            out().print()
            gathered, left = [], room
        gathered.append(cells)
        left -= width
    if gathered:
        _print_table(labels, gathered)
    else:
        out().print("no observations")


def _cells(observation: SingleObservation) -> list[str]:
    """Return the head of an observation's column, and the cells below it."""
    name = "-" if observation.context is None else _shortened(_plain(observation.context) or '""')
    lines = [name[first : first + _CELL_WIDTH] for first in range(0, len(name), _CELL_WIDTH)]
    return ["\n".join([*lines, str(observation.number)]), *map(_tensor, observation.values)]


def _shortened(text: str) -> str:
    """Cut the middle out of a long name: mangled names also differ at the end."""
    longest = _NAME_LINES * _CELL_WIDTH
    half = (longest - 2) // 2
    return text if len(text) <= longest else f"{text[:half]}..{text[-half:]}"


def _tensor(values: Any) -> str:
    """Return a tensor's elements, or the first ones and dots."""
    if len(values) == 1:
        return _number(values[0].item())
    numbers = [_number(value, _TENSOR_DIGITS) for value in values[:_CELL_WIDTH].tolist()]
    text = ",".join(numbers)
    if len(values) == len(numbers) and len(text) <= _CELL_WIDTH:
        return text
    while len(numbers) > 1 and len(text) > _CELL_WIDTH - len(",..."):
        numbers.pop()
        text = ",".join(numbers)
    return f"{text},..."


def _print_table(labels: list[Text], gathered: list[list[str]]) -> None:
    from rich.text import Text

    rows = table("feature")
    rows.padding = _PADDING
    for cells in gathered:
        rows.add_column(Text(cells[0]), justify="right", vertical="bottom", overflow="fold")
    for index, label in enumerate(labels, start=1):
        rows.add_row(label, *(Text(cells[index]) for cells in gathered))
    out().print(rows)
