"""What all verbs share on the terminal: two consoles, progress, drawings, and exit codes for errors.

Results go to stdout; progress, warnings and errors to stderr. rich is imported when something is shown, which keeps
``--help`` fast.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import re
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

from mlgo_corpus.engine.choice import RAY
from mlgo_corpus.engine.signals import signal_of, signals_as_interrupts
from mlgo_corpus.errors import CorpusError, MlgoCorpusError, UsageError
from mlgo_corpus.files.text import human_bytes, human_seconds, os_reason, printable, visible

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Column, Table

    from mlgo_corpus.engine.choice import EngineChoice
    from mlgo_corpus.runs.report import Report


EXIT_FAILED = 1
_EXIT_USAGE = 2
# Plus the signal's number, as in shells: 130 after Ctrl-C, 143 after SIGTERM.
_EXIT_SIGNALLED = 128
# As of a program that SIGPIPE has ended.
EXIT_READER_LEFT = _EXIT_SIGNALLED + signal.SIGPIPE

# How often to write a line of progress where stderr is not a terminal.
_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_REFRESHES = 0.1
# Over how many of these lines the time left is estimated.
_LINES_OF_A_RATE = 3

# The least width: in a narrower terminal, which folds the lines, a table would have no room for its names.
_LEAST_WIDTH = 40
# The width without a terminal and without COLUMNS.
_PIPED_WIDTH = 1000
# In characters: the space between two columns of a table, and the least width of a text column.
_GAP = 3
_LEAST_TEXT = 6

_EIGHTHS = " ▏▎▍▌▋▊▉"
_LEVELS = "▁▂▃▄▅▆▇█"

Arguments = ParamSpec("Arguments")


def out(piped_width: int = _PIPED_WIDTH) -> Console:
    """Return the console for results; tables keep their lines whole if another program reads them."""
    reader = None if sys.stdout is None or sys.stdout.isatty() or _tells_width() else piped_width
    return _console(width=reader)


def err() -> Console:
    """Return the console for everything else."""
    return _console(stderr=True)


def _tells_width() -> bool:
    """Return True if COLUMNS tells a width, which 0 is not."""
    return os.environ.get("COLUMNS", "").strip("0") != ""


def _console(**settings: Any) -> Console:
    from rich.console import Console

    if os.environ.get("NO_COLOR"):  # rich would leave bold text
        settings["color_system"] = None
    if settings.get("width") is None and "COLUMNS" in os.environ and not _tells_width():
        settings["width"] = shutil.get_terminal_size().columns  # rich would take a width of nothing
    made = Console(highlight=False, emoji=False, soft_wrap=True, **settings)
    if made.width < _LEAST_WIDTH:
        made.width = _LEAST_WIDTH
    return made


def table(*columns: str, left: int = 1) -> Table:
    """Return an empty table in the house style: the first ``left`` columns left-aligned, the others right-aligned.

    Where a terminal is too narrow, the first are folded, and the others stay whole as long as they fit.
    """
    from rich import box
    from rich.table import Table

    class Whole(Table):
        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            any_width = options.update(max_width=_PIPED_WIDTH)

            def width(column: Column) -> int:
                return max(console.measure(cell, options=any_width).maximum for cell in (column.header, *column.cells))

            room = options.max_width - _LEAST_TEXT * left - _GAP * (len(self.columns) - 1)
            fits = sum(map(width, self.columns[left:])) <= room
            for column in self.columns[left:]:
                column.no_wrap = fits
            yield from super().__rich_console__(console, options)

    made = Whole(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index < left else "right", overflow="fold")
    return made


def print_json(result: Any) -> None:
    """Print one JSON object as the result, if there is a stdout."""
    if sys.stdout is not None:
        sys.stdout.write(json.dumps(_finite(result), indent=2, default=str, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    """Return a value in which None stands for numbers that JSON does not have: a table of others may have any."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return list(map(_finite, value))
    return value


def finish(
    report: Report,
    show: Callable[[Any], object],
    *,
    as_json: bool,
    engine: EngineChoice | None = None,
    exit_code: int | None = None,
) -> None:
    """Print a verb's report, as JSON or by ``show``, and end with the report's exit code, or another.

    The JSON object has the hints in terms of options, the exit code, and the figures of a cluster's workers.
    """
    code = report.exit_code if exit_code is None else exit_code
    if as_json:
        told = report.as_json()
        if "hints" in told:
            told["hints"] = list(map(in_options, told["hints"]))
        print_json({**told, **({} if engine is None else _worker_figures(engine)), "exit_code": code})
    else:
        show(report)
    if code:
        raise typer.Exit(code)


def _worker_figures(engine: EngineChoice) -> dict[str, Any]:
    """Return the figures of a cluster's workers for the JSON result; empty for this machine."""
    if engine.kind != RAY:
        return {}
    figures = engine.status.figures
    return {
        "workers": [
            {"host": one.host, "pid": one.pid, "items": one.items, "seconds": round(one.seconds, 3)} for one in figures
        ]
    }


def show_hints(hints: Iterable[str]) -> None:
    """Print hints, in terms of options."""
    for hint in hints:
        err().print(f"[yellow]hint:[/yellow] {plain(in_options(hint))}")


@contextlib.contextmanager
def stdout_is_ours() -> Iterator[None]:
    """Send what other code prints in the block, here or in a child, to stderr: stdout is for the result."""
    if sys.stdout is None:
        yield
        return
    sys.stdout.flush()
    saved = os.dup(1)
    others = os.open(os.devnull, os.O_WRONLY) if sys.stderr is None else os.dup(2)
    os.dup2(others, 1)
    os.close(others)
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        finally:
            os.dup2(saved, 1)
            os.close(saved)


def draws_blocks(console: Console) -> bool:
    """Return True if a console's encoding has the characters that `bar` and `sparkline` use."""
    try:
        (_EIGHTHS + _LEVELS).encode(console.encoding)
    except UnicodeError:
        return False
    return True


def bar(part: float, most: float, width: int) -> str:
    """Draw ``part`` as a bar, where ``most`` is ``width`` characters wide; anything above 0 is visible."""
    if part <= 0 or most <= 0:
        return ""
    eighths = max(1, round(8 * width * part / most))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def sparkline(numbers: Sequence[float]) -> str:
    """Draw numbers as a row of columns, the largest the highest; only 0 is blank."""
    most = max(numbers, default=0)
    return "".join(" " if number <= 0 else _LEVELS[max(0, round(8 * number / most) - 1)] for number in numbers)


def plain(text: str) -> str:
    """Make any text fit for a console: `visible`, and with markup escaped."""
    from rich.markup import escape

    return escape(visible(text))


def show_failures(problems: Sequence[Sequence[str]], failed: int, place: object = "") -> None:
    """Print the first failures, each as its name, perhaps a reason, and a detail; how many more; and where all are."""
    for *names, detail in problems:
        err().print(visible(printable(": ".join((*names, in_options(detail))))), markup=False)
    if failed > len(problems):
        where = f"; all are in {place}" if place else ""
        err().print(visible(f"and {failed - len(problems)} more{where}"), markup=False)


def percent_change(size: float, before: float) -> str:
    """Return a change, such as ``-3.10 %``; ``-`` if there was nothing before."""
    return f"{100 * (size / before - 1):+.2f} %" if before else "-"


def sql_text(text: str) -> str:
    """Return text as a literal of SQL, in quotes."""
    return "'" + text.replace("'", "''") + "'"


def show_how_to_read(query: str, place: str) -> None:
    """Print a query that DuckDB runs as it is, and the call by which pandas and polars read the rows in ``place``."""
    console = out()
    console.print(f"DuckDB: {visible(query)}", markup=False)
    console.print(f"pandas, polars: read_parquet({place!r})", markup=False)


class Update(Protocol):
    """The function that `progress_bar` yields: takes the amount done, the total, and a short note."""

    def __call__(self, done: int, total: int, note: str = "", /) -> None:
        """Show the progress, at most every so often."""


@contextlib.contextmanager
def progress_bar(description: str, unit: str = "") -> Iterator[Update]:
    """Show progress on stderr; yield a function to call with (done, total): items, or bytes if ``unit`` is ``B``.

    A terminal gets a bar, anything else a line now and then. No thread draws it, so that the engine can fork.
    """
    console = err()
    if sys.stderr is None:
        yield lambda *_: None
    elif console.is_terminal:
        yield from _bar(description, unit, console)
    else:
        yield from _lines(description, unit)


def _bar(description: str, unit: str, console: Console) -> Iterator[Update]:
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    count = DownloadColumn() if unit == "B" else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), count, TimeRemainingColumn())
    shown = 0.0
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as progress:
        task = progress.add_task(description, total=None)

        def update(done: int, total: int, note: str = "", /) -> None:
            nonlocal shown
            now = time.monotonic()
            if now - shown >= _SECONDS_BETWEEN_REFRESHES or done == total:
                progress.update(task, completed=done, total=total, description=_described(description, note))
                progress.refresh()
                shown = now

        yield update


def _lines(description: str, unit: str) -> Iterator[Update]:
    shown = time.monotonic()
    # The first line is a point, but has no rate: what an earlier run had done is counted at once.
    points: deque[tuple[float, int]] = deque(maxlen=_LINES_OF_A_RATE)

    def update(done: int, total: int, note: str = "", /) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= _SECONDS_BETWEEN_LINES:
            amounts = [human_bytes(number) if unit == "B" else str(number) for number in (done, total)]
            text = _described(f"{amounts[0]} of {amounts[1]}", note)
            then, before = points[0] if points else (now, done)
            if done > before:
                text = f"{text}, {human_seconds((total - done) * (now - then) / (done - before))} left"
            sys.stderr.write(f"{description}: {text}\n")
            shown = now
            points.append((now, done))

    yield update


def _described(text: str, note: str) -> str:
    return f"{text}, {note}" if note else text


def verb(command: Callable[Arguments, None]) -> Callable[Arguments, None]:
    """Wrap a command so that errors become one line and an exit code; this is the only place that maps them."""
    _verbs.append(command)

    @functools.wraps(command)
    def wrapped(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        _running[:] = [command]
        try:
            try:
                with signals_as_interrupts():
                    command(*args, **kwargs)
            finally:
                if sys.stdout is not None:
                    sys.stdout.flush()
        except MlgoCorpusError as error:
            for note in getattr(error, "__notes__", ()):  # the traceback of the user's own code
                show_lines(note)
            complain(in_options(error))
            # CorpusError: the verb cannot use the corpus at all. A fault of one of its modules is a row, not an error.
            unusable = isinstance(error, UsageError | CorpusError)
            raise typer.Exit(_EXIT_USAGE if unusable else EXIT_FAILED) from None
        except KeyboardInterrupt as error:
            usual = (
                "finished work is kept: without --force the command continues, unless another result is there"
                if kwargs.get("force")
                else "finished work is kept, and the same command continues from there"
            )
            show_lines(f"mlgo-corpus: interrupted; {'; '.join(getattr(error, '__notes__', ())) or usual}")
            raise typer.Exit(_EXIT_SIGNALLED + signal_of(error)) from None
        except (BrokenPipeError, SystemExit) as error:
            if not reader_left(error):
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(EXIT_READER_LEFT) from None
        except OSError as error:  # such as a full disk behind stdout
            complain_of_system(error)
            raise typer.Exit(EXIT_FAILED) from None

    return wrapped


def complain_of_system(error: OSError) -> None:
    """Print the operating system's reason as an error, and discard what is still buffered for stdout.

    Python would write that at the exit, and fail again with a traceback.
    """
    where = f"{error.filename}: " if error.filename else ""
    complain(f"{where}{os_reason(error)}")
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def begins_again() -> Iterator[None]:
    """Have an interruption of the block, or of the verb that this decorates, say that nothing of it is kept."""
    try:
        yield
    except KeyboardInterrupt as error:
        error.add_note("nothing is kept, and the same command begins again")
        raise


def reader_left(error: BaseException) -> bool:
    """Return True if the reader of our output has closed it, as ``head`` does; rich and click exit in that case."""
    return isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError)


def in_options(said: MlgoCorpusError | str) -> str:
    """Return a message of the library with its parameters as options of the running verb.

    The library names a parameter by its Python name, in backticks: ``a dataset is there; `force` replaces it``.
    """
    options: dict[str, str] = {}
    for command in (*_verbs, *_running):  # a verb may show what another would say; the running one's names win
        options |= _options_of(command)
    if isinstance(said, UsageError) and said.option is not None:
        said = said.shown(options.get(said.option) or f"--{said.option.replace('_', '-')}")
    return re.sub(r"`([a-z][a-z0-9_]*)`", lambda match: options.get(match[1], match[0]), str(said))


# All verbs, and the one that runs.
_verbs: list[Callable[..., None]] = []
_running: list[Callable[..., None]] = []


@functools.cache
def _options_of(command: Callable[..., None]) -> dict[str, str]:
    """Return the options and arguments of a verb by their names in Python, which are plural for repeatable options."""
    found: dict[str, str] = {}
    for name, hint in get_type_hints(command, include_extras=True).items():
        for option in getattr(hint, "__metadata__", ()):
            if isinstance(option, ArgumentInfo) and option.metavar:
                found[name] = option.metavar.rstrip(".")
            if not isinstance(option, OptionInfo):
                continue
            # In an annotation, typer takes the first flag for the default.
            declared_flags = (option.default, *(option.param_decls or ()))
            flags = [flag for flag in declared_flags if isinstance(flag, str) and flag.startswith("--")]
            flag = (flags or [f"--{name.replace('_', '-')}"])[0].partition("/")[0]
            known = flag.removeprefix("--").replace("-", "_")
            found |= {name: flag, known: flag, f"{known}s": flag}
    return found


def complain(text: str) -> None:
    """Write an error as one line to stderr, if there is one; a file name in it may hold any bytes."""
    show_lines(f"mlgo-corpus: error: {text}".replace("\n", " "))


def show_lines(text: str) -> None:
    """Write text to stderr, if there is one, line by line; an empty text has no line."""
    if text and sys.stderr is not None:
        sys.stderr.writelines(f"{visible(line.expandtabs())}\n" for line in text.split("\n"))
