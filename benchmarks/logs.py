"""Compare converting training logs with LLVM's reader, and with writing Parquet only: ``python benchmarks/logs.py``.

The logs are the real ones of ``tests/data/training-logs``, repeated:

- *inlining*: one context, the observations numbered consecutively, 500 MB;
- *eviction*: the contexts of all six eviction logs, including empty ones, with new names each time, 500 MB;
- *small*: 20 000 logs of about 3 kB in subfolders, the three smallest inlining logs in turn.

The reference is the algorithm of LLVM's ``log_reader.py`` (llvm/lib/Analysis/models), rewritten here: a JSON document
per line, a read and a ctypes view per tensor, a call per value. LLVM's crashes on contexts without observations; this
one skips them. It processes only the first 10 MB of each log, so compare MB/s. *Iterated* reads no value, *to Arrow*
reads all and makes the columns that this package makes.

*pyarrow writes the columns* is the part that the conversion cannot avoid: the same rows, from memory, in the same files
and row groups with the same encodings and compression, in one thread. MB/s are of log bytes everywhere.

Before the timing, our table and our dataset are compared with the reference's columns, and the restored logs with the
originals. Each method first runs once unmeasured, because the first access to memory is slow; then the median
counts. The page cache is warm, and outputs are removed outside the clock.

``--memory`` adds the peak memory of conversions in a process of their own, which takes minutes: logs of 10 and 20 GB
through a pipe, and sets of logs with two workers. For several processes it is the maximum at any one time, with
shared memory (the interpreter, Arrow) counted once; beside it is the sum of the peaks of each, with shared memory
counted in each. MB are 10^6 bytes.

*cores* is how many cores the run kept busy, *others* how many other processes did: with two jobs on two cores, a figure
is meaningful only if that is near 0. On a shared machine, ``--patience 300`` repeats disturbed runs for up to 300
seconds per line, and counts the least disturbed ones.

Repeated logs compress better than others: the printed sizes of the Parquet files are not representative of real logs,
and the time spent on compression is lower.
"""

from __future__ import annotations

import argparse
import ctypes
import filecmp
import io
import json
import math
import os
import platform
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

PROJECT = Path(__file__).resolve().parent.parent
LOGS = PROJECT / "tests" / "data" / "training-logs"
SMALL_LOGS = ("inlining.linit.log", "inlining.lopcodes.log", "inlining.lzio.log")
LOGS_PER_FOLDER = 1000
MEGABYTE = 10**6
# The bytes per write when making a log.
BLOCK_BYTES = 1 << 20
# Digits of a repetition's number in a context's name.
REPETITION_DIGITS = 8
# The sizes in MB and the numbers of the logs that show the memory of two workers.
WORKER_LOGS, WORKER_LOG_MEGABYTES = 40, 40
# The options that mlgo_corpus/files/tables.py passes to pyarrow.
VALUES_AT_A_TIME = 1 << 16

TO_ARROW_TARGET = 150
TO_PARQUET_TARGET = 60
OF_WRITING_TARGET = 0.6
LOGS_TARGET = 5000
PEAK_TARGET_MB = 400
# Other work that keeps a core busy for this share of the time does not disturb a run.
CALM = 0.1
# Peaks of equal runs may differ by this much.
PEAK_TOLERANCE = 1.05

ITERATED = "reference, iterated"
REFERENCE = "reference, to Arrow"
OURS_ARROW = "ours, to Arrow"
OURS_PARQUET = "ours, to Parquet, 1 job"
OURS_PARQUET_2 = "ours, to Parquet, 2 jobs"
WRITING = "pyarrow writes the columns"
OURS_BACK = "ours, back to logs"
PIPED = "GB by pipe"

# The table's columns, and how they are aligned.
COLUMNS = {
    **dict.fromkeys(("set", "method"), "<"),
    **dict.fromkeys(("MB", "median s", "min..max s", "cores", "others", "MB/s", "logs/s"), ">"),
    **dict.fromkeys(("x iterated", "x to Arrow", "of writing", "peak MB", "sum MB"), ">"),
    "target": "<",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: wall and CPU seconds of each run over `logs` logs of `bytes` bytes in total.

    ``other_seconds`` are the processor seconds of everything else. ``peak`` is the peak memory in bytes where that was
    measured, and ``peak_sum`` the sum of the processes' peaks.
    """

    set: str
    method: str
    bytes: int
    logs: int
    seconds: tuple[float, ...]
    cpu_seconds: tuple[float, ...]
    other_seconds: tuple[float, ...]
    peak: int | None = None
    peak_sum: int | None = None

    @property
    def median(self) -> float:
        """Seconds of the median run."""
        return statistics.median(self.seconds)

    @property
    def speed(self) -> float:
        """MB of log per second."""
        return self.bytes / MEGABYTE / self.median

    @property
    def cores(self) -> float:
        """How many cores were busy."""
        return sum(self.cpu_seconds) / sum(self.seconds)

    @property
    def others(self) -> float:
        """How many cores were busy with other work."""
        return max(0.0, sum(self.other_seconds) / sum(self.seconds))


# --- the reference: the algorithm of LLVM's log_reader.py

C_TYPES = {
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    **{f"{sign}int{bits}_t": getattr(ctypes, f"c_{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


class ReferenceSpec(NamedTuple):
    """A tensor's description in a header."""

    name: str
    type: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, value: dict[str, Any]) -> ReferenceSpec:
        """Read the needed fields of the header's JSON."""
        return cls(value["name"], value["type"], tuple(map(int, value["shape"])))


class ReferenceTensor:
    """A tensor's bytes seen through a ctypes pointer; a checked access per value."""

    def __init__(self, spec: ReferenceSpec, data: bytes) -> None:
        self.data = data  # keeps the data alive; the pointer does not
        self.pointer = ctypes.cast(data, ctypes.POINTER(C_TYPES[spec.type]))  # type: ignore[arg-type] # as LLVM's does
        self.count = math.prod(spec.shape)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self.count:
            raise IndexError(index)
        return self.pointer[index]


class ReferenceLog:
    """A log to iterate over: (context, number, tensors, score or None) for each observation."""

    def __init__(self, path: Path) -> None:
        self.stream = io.BufferedReader(io.FileIO(path))
        header = json.loads(self.stream.readline())
        self.features = [ReferenceSpec.of(item) for item in header["features"]]
        self.score = ReferenceSpec.of(header["score"]) if "score" in header else None

    def __iter__(self) -> Iterator[tuple[str | None, int, list[ReferenceTensor], ReferenceTensor | None]]:
        with self.stream as stream:
            context = None
            while line := stream.readline():
                event = json.loads(line)
                if "context" in event:
                    context = event["context"]
                    continue
                number = int(event["observation"])
                tensors = [self.tensor(spec) for spec in self.features]
                stream.readline()
                score = None
                if self.score is not None:
                    if int(json.loads(stream.readline())["outcome"]) != number:
                        raise ValueError(f"the outcome of another observation than {number}")
                    score = self.tensor(self.score)
                    stream.readline()
                yield context, number, tensors, score

    def tensor(self, spec: ReferenceSpec) -> ReferenceTensor:
        """Read one tensor."""
        return ReferenceTensor(spec, self.stream.read(math.prod(spec.shape) * ctypes.sizeof(C_TYPES[spec.type])))


def iterate_reference(paths: Sequence[Path]) -> None:
    """Iterate over logs without reading a value."""
    for path in paths:
        for _ in ReferenceLog(path):
            pass


def reference_table(path: Path) -> Any:
    """Read all values of a log into lists, and make columns of them."""
    import pyarrow as pa

    log = ReferenceLog(path)
    specs = log.features if log.score is None else [*log.features, log.score]
    contexts: list[str | None] = []
    numbers: list[int] = []
    columns: list[list[Any]] = [[] for _ in specs]
    for context, number, tensors, score in log:
        contexts.append(context)
        numbers.append(number)
        for column, tensor in zip(columns, tensors if score is None else (*tensors, score), strict=True):
            column.append(tensor[0] if len(tensor) == 1 else list(tensor))  # type: ignore[call-overload] # by __getitem__
    text = pa.dictionary(pa.int32(), pa.string())
    arrays = {
        "module": pa.array([path.stem] * len(numbers), text),
        "context": pa.array(contexts, text),
        "observation": pa.array(numbers, pa.int64()),
    }
    for spec, column in zip(specs, columns, strict=True):
        value_type = pa.from_numpy_dtype(C_TYPES[spec.type])
        count = math.prod(spec.shape)
        element = pa.field("element", value_type, nullable=False)
        arrays[spec.name] = pa.array(column, value_type if count == 1 else pa.list_(element, count))
    return pa.table(arrays)


# --- the logs


class Counted:
    """A stream that counts the bytes written to it."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.bytes = 0

    def write(self, data: Any, /) -> None:
        """Write all bytes."""
        self.stream.write(data)
        self.bytes += len(data)


class Written(NamedTuple):
    """The amounts in a generated log."""

    bytes: int
    contexts: int
    observations: int


def real_logs(task: str) -> tuple[Any, list[list[Any]]]:
    """Return the header, and the events of each of the real logs of a task."""
    from mlgo_corpus.formats.logs.events import LogReader

    logs = []
    headers: dict[Any, None] = {}
    for path in sorted(LOGS.glob(f"{task}.*.log")):
        with path.open("rb") as stream:
            reader = LogReader(stream)
            headers[reader.header] = None
            logs.append(list(reader))
    [header] = headers
    return header, logs


def write_inlining(stream: Any, size: int) -> Written:
    """Write a log of about `size` bytes: one context, and the observations of all inlining logs numbered on."""
    from mlgo_corpus.formats.logs.blocks import BlockWriter, Rows
    from mlgo_corpus.formats.logs.events import Observation

    header, logs = real_logs("inlining")
    tensors = b"".join(event.tensors for events in logs for event in events if isinstance(event, Observation))
    block = np.frombuffer(tensors * max(1, BLOCK_BYTES // len(tensors)), f"V{header.tensor_bytes}")
    counted = Counted(stream)
    writer = BlockWriter(counted, header)
    writer.write_context("")
    number = 0
    while counted.bytes < size:
        writer.write_rows(Rows(number, block, None))
        number += len(block)
    return Written(counted.bytes, 1, number)


def write_eviction(stream: Any, size: int) -> Written:
    """Write a log of about `size` bytes: the contexts of all eviction logs, under new names each time."""
    from mlgo_corpus.formats.logs.events import Context, LogWriter

    header, logs = real_logs("regalloc-eviction")
    buffer = io.BytesIO()
    writer = LogWriter(buffer, header)
    first = buffer.tell()
    ends = []
    observations = 0
    for index, events in enumerate(logs):
        for event in events:
            if isinstance(event, Context):
                writer.write_context(f"{event.name}.{index}.{0:0{REPETITION_DIGITS}}")
                ends.append(buffer.tell() - first - len('"}\n'))
            else:
                writer.write_event(event)
                observations += 1
    # All repetitions are equal except for the digits in the names.
    block = np.frombuffer(buffer.getvalue()[first:], np.uint8).copy()
    places = np.array(ends)[:, None] + np.arange(-REPETITION_DIGITS, 0)
    counted = Counted(stream)
    counted.write(buffer.getvalue()[:first])
    repetition = 0
    while counted.bytes < size:
        block[places] = np.frombuffer(b"%0*d" % (REPETITION_DIGITS, repetition), np.uint8)
        counted.write(block.data)
        repetition += 1
    return Written(counted.bytes, repetition * len(ends), repetition * observations)


WRITERS: dict[str, Callable[[Any, int], Written]] = {"inlining": write_inlining, "eviction": write_eviction}


def make_log(kind: str, path: Path, size: int) -> Path:
    """Write a log to a file."""
    with path.open("wb") as stream:
        WRITERS[kind](stream, size)
    return path


def make_small_logs(folder: Path, count: int) -> list[Path]:
    """Write copies of the smallest logs."""
    contents = [(LOGS / name).read_bytes() for name in SMALL_LOGS]
    paths = []
    for index in range(count):
        subfolder = folder / f"part{index // LOGS_PER_FOLDER:04}"
        subfolder.mkdir(parents=True, exist_ok=True)
        paths.append(subfolder / f"{index:06}.log")
        paths[-1].write_bytes(contents[index % len(contents)])
    return paths


# --- our ways, and the floor


def convert(source: Path, output: Path, jobs: int) -> Any:
    """Convert a log, or a folder of them."""
    from mlgo_corpus.logs import convert_logs

    return convert_logs([source], output, jobs=jobs, force=True)


def load_parts(dataset: Path) -> list[Any]:
    """Load a dataset's files of observations, each as one row group's columns."""
    import pyarrow.parquet as pq

    tables = []
    for path in sorted((dataset / "observations").iterdir()):
        with pq.ParquetFile(path) as file:
            tables.append(file.read().combine_chunks())
    return tables


def write_parts(tables: Sequence[Any], output: Path) -> None:
    """Write each table to a file, as the conversion does."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    output.mkdir()
    for index, table in enumerate(tables):
        scalars = [item.name for item in table.schema if not pa.types.is_fixed_size_list(item.type)]
        options = {"compression": "zstd", "use_dictionary": scalars, "write_batch_size": VALUES_AT_A_TIME}
        with pq.ParquetWriter(output / f"part-{index:05d}.parquet", table.schema, **options) as writer:
            writer.write_table(table, row_group_size=max(1, table.num_rows))


def folder_size(folder: Path) -> int:
    """Return the bytes of a folder's files."""
    return sum(path.stat().st_size for path in folder.iterdir())


# --- checking


def check_tables(found: Any, expected: Any, what: str) -> None:
    """Compare tables value by value and bit by bit."""
    if found.column_names != expected.column_names:
        raise SystemExit(f"{what}: columns {found.column_names}, the reference has {expected.column_names}")
    for name in found.column_names:
        if found.schema.field(name).type != expected.schema.field(name).type:
            raise SystemExit(f"{what}: {name} is {found.schema.field(name)}, not {expected.schema.field(name)}")
        if not plain_column(found.column(name)).equals(plain_column(expected.column(name))):
            raise SystemExit(f"{what}: the values of {name} are not the reference's")


def plain_column(column: Any) -> Any:
    """Return a column so that equal bits compare equal: text for dictionaries, elements for lists, bits for floats."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    array = column.combine_chunks()
    if pa.types.is_fixed_size_list(array.type):
        array = array.flatten()
    if pa.types.is_floating(array.type):
        array = array.view(pa.int32() if array.type == pa.float32() else pa.int64())
    return array


def check_cut(cut: Path, output: Path) -> None:
    """Compare what we read and what we write with the reference's columns."""
    import pyarrow as pa

    from mlgo_corpus.logs import read_log

    expected = reference_table(cut)
    check_tables(read_log(cut).to_arrow(), expected, f"{cut}: as a table")
    convert(cut, output, 2)
    check_tables(pa.concat_tables(load_parts(output)), expected, f"{cut}: as a dataset")
    shutil.rmtree(output)


def check_restored(log: Path, restored: Path) -> None:
    """Compare a log with the one restored from its dataset."""
    if not filecmp.cmp(log, restored, shallow=False):
        raise SystemExit(f"{log}: {restored} is not the same")


# --- measuring


class Times(NamedTuple):
    """Seconds: wall time, CPU time of this process and its children, CPU time of everything else."""

    wall: float
    cpu: float
    others: float

    @classmethod
    def now(cls) -> Times:
        """Read all clocks; children count when they are waited for."""
        usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        cpu = sum(usage.ru_utime + usage.ru_stime for usage in usages)
        stat = Path("/proc/stat")
        # Of all CPUs: user, nice, system, idle, waiting, interrupts (two kinds), stolen by other machines.
        busy = [int(word) for word in stat.read_text().split()[1:9]] if stat.exists() else [0] * 8
        return cls(time.perf_counter(), cpu, (sum(busy) - busy[3] - busy[4]) / os.sysconf("SC_CLK_TCK") - cpu)

    @property
    def is_calm(self) -> bool:
        """Whether hardly anything else ran."""
        return self.others <= CALM * self.wall

    def since(self, start: Times) -> Times:
        """Return the time since an earlier reading."""
        return Times(*(now - then for now, then in zip(self, start, strict=True)))


class Bench:
    """A temporary folder, the clock, and the lines of the table."""

    def __init__(self, folder: Path, repeat: int, patience: float) -> None:
        self.folder = folder
        self.repeat = repeat
        self.patience = patience
        self.rows: list[Row] = []
        self.notes: list[str] = []

    def measure(self, what: str, method: str, logs: Sequence[Path], run: Callable[[Path], Any]) -> None:
        """Time `run(output)` on `logs`, after one unmeasured run."""
        say(f"{what}: {method}")
        self.timed(run)
        times: list[Times] = []
        deadline = time.perf_counter() + self.patience
        while len(times) < self.repeat or (
            sum(item.is_calm for item in times) < self.repeat and time.perf_counter() < deadline
        ):
            times.append(self.timed(run))
        times.sort(key=lambda item: item.others / item.wall)
        seconds, cpu_seconds, other_seconds = zip(*times[: self.repeat], strict=True)
        total = sum(path.stat().st_size for path in logs)
        self.rows.append(Row(what, method, total, len(logs), seconds, cpu_seconds, other_seconds))

    def timed(self, run: Callable[[Path], Any]) -> Times:
        """Time one run, and remove its output."""
        output = self.folder / "output"
        started = Times.now()
        kept = run(output)
        times = Times.now().since(started)
        del kept
        shutil.rmtree(output, ignore_errors=True)
        return times

    def measure_log(self, kind: str, size: int, cut_size: int) -> None:
        """Check and time every method on one large log."""
        from mlgo_corpus.logs import read_log, restore_logs

        say(f"{kind}: making and checking")
        folder = self.folder / kind
        folder.mkdir()
        log = make_log(kind, folder / f"{kind}.log", size)
        cut = make_log(kind, folder / "cut.log", min(cut_size, size))
        check_cut(cut, folder / "checked")
        dataset = folder / "dataset"
        convert(log, dataset, 2)
        restored = folder / "restored"
        restore_logs(dataset, restored)
        check_restored(log, restored / log.name)
        shutil.rmtree(restored)

        self.measure(kind, ITERATED, [cut], lambda _: iterate_reference([cut]))
        self.measure(kind, REFERENCE, [cut], lambda _: reference_table(cut))
        self.measure(kind, OURS_ARROW, [log], lambda _: read_log(log).to_arrow())
        self.measure_writing(kind, log, dataset)
        self.measure(kind, OURS_PARQUET, [log], lambda output: convert(log, output, 1))
        self.measure(kind, OURS_PARQUET_2, [log], lambda output: convert(log, output, 2))
        self.measure(kind, OURS_BACK, [log], lambda output: restore_logs(dataset, output))
        shutil.rmtree(folder)

    def measure_writing(self, kind: str, log: Path, dataset: Path) -> None:
        """Time writing the columns of a log's dataset, and record the files' sizes."""
        tables = load_parts(dataset)
        self.measure(kind, WRITING, [log], lambda output: write_parts(tables, output))
        written = self.folder / "written"
        write_parts(tables, written)
        ours, theirs = (folder_size(folder) / MEGABYTE for folder in (dataset / "observations", written))
        shutil.rmtree(written)
        self.notes.append(
            f"{kind}: {log.stat().st_size / MEGABYTE:.0f} MB of log are {ours:.1f} MB of Parquet"
            f" in {len(tables)} files; pyarrow alone writes {theirs:.1f} MB"
        )

    def measure_small(self, count: int) -> None:
        """Check and time every method on many small logs."""
        from mlgo_corpus.logs import restore_logs

        say("small: making and checking")
        folder = self.folder / "small"
        logs = make_small_logs(folder / "logs", count)
        dataset = folder / "dataset"
        convert(folder / "logs", dataset, 2)
        restored = folder / "restored"
        restore_logs(dataset, restored)
        for path in logs:
            check_restored(path, restored / path.relative_to(folder / "logs"))
        shutil.rmtree(restored)

        self.measure("small", ITERATED, logs, lambda _: iterate_reference(logs))
        self.measure("small", OURS_PARQUET, logs, lambda output: convert(folder / "logs", output, 1))
        self.measure("small", OURS_PARQUET_2, logs, lambda output: convert(folder / "logs", output, 2))
        self.measure("small", OURS_BACK, logs, lambda output: restore_logs(dataset, output))
        shutil.rmtree(folder)

    def measure_memory(self, gigabytes: Sequence[float], small_logs: int) -> None:
        """Convert in separate processes, and measure their peak memory."""
        for kind in WRITERS:
            for size in gigabytes:
                self.rows.append(self.converted_apart(kind, f"{size:g} {PIPED}", None, int(size * 1000 * MEGABYTE)))
        for kind in WRITERS:
            folder = self.folder / "workers"
            folder.mkdir()
            first = make_log(kind, folder / "000.log", WORKER_LOG_MEGABYTES * MEGABYTE)
            for index in range(1, WORKER_LOGS):
                os.link(first, folder / f"{index:03}.log")
            self.rows.append(self.converted_apart(kind, f"{WORKER_LOGS} logs, 2 workers", folder))
            shutil.rmtree(folder)
        folder = self.folder / "small"
        make_small_logs(folder, small_logs)
        self.rows.append(self.converted_apart("small", f"{small_logs} logs, 2 workers", folder))
        shutil.rmtree(folder)

    def converted_apart(self, kind: str, title: str, folder: Path | None, size: int = 0) -> Row:
        """Convert a folder, or a log of `size` bytes from a pipe, with two jobs in another process."""
        say(f"{kind}: peak memory, {title}")
        output = self.folder / "output"
        reports = [self.folder / name for name in ("generated", "converted")]
        generator: subprocess.Popen[bytes] | None = None
        if folder is None:
            with reports[0].open("wb") as report:
                generator = subprocess.Popen(
                    (sys.executable, __file__, "--generate", kind, str(size)), stdout=subprocess.PIPE, stderr=report
                )
        source = subprocess.DEVNULL if generator is None else generator.stdout
        started = Times.now()
        with reports[1].open("wb") as report:
            converter = subprocess.Popen(
                (sys.executable, "-c", CONVERT, str(folder or "-"), str(output)),
                stdin=source,
                stdout=report,
                stderr=report,
                env={**os.environ, "PYTHONPATH": str(PROJECT)},
            )
        if generator is not None and generator.stdout is not None:
            generator.stdout.close()  # so that it notices the converter's end
        try:
            peak, peak_sum, cpu_seconds = wait_for(converter)
            if generator is not None:
                generator.wait()
            times = Times.now().since(started)
        finally:
            for process in (converter, generator):
                if process is not None and process.poll() is None:
                    process.kill()
                    process.wait()
        if converter.returncode or (generator is not None and generator.returncode):
            raise SystemExit(f"{kind}, {title}: {[path.read_text() for path in reports if path.exists()]}")
        logs, *found = json.loads(reports[1].read_text())
        if generator is not None and found != json.loads(reports[0].read_text()):
            raise SystemExit(f"{kind}, {title}: wrote {reports[0].read_text()}, read {reports[1].read_text()}")
        shutil.rmtree(output)
        title = f"peak, {title}"
        return Row(kind, title, found[0], logs, (times.wall,), (cpu_seconds,), (times.others,), peak, peak_sum)


# The program of a separate process: convert, and print the amount.
CONVERT = """
import json, sys
from mlgo_corpus.logs import convert_logs
report = convert_logs([sys.argv[1]], sys.argv[2], jobs=2)
print(json.dumps([report.converted, report.log_bytes, report.contexts, report.observations]))
"""


def generate(kind: str, size: int) -> None:
    """Write a log to standard output, and its amounts to standard error."""
    print(json.dumps(WRITERS[kind](sys.stdout.buffer, size)), file=sys.stderr)


class Peaks:
    """The memory of a process and its children, sampled over time."""

    def __init__(self) -> None:
        self.at_once = 0
        self._each: dict[int, int] = {}

    @property
    def processes(self) -> int:
        """The number of processes seen."""
        return len(self._each)

    @property
    def sum(self) -> int:
        """The sum of the processes' peaks in bytes, each at its own time."""
        return sum(self._each.values())

    def look(self, pid: int) -> None:
        """Sample a running process and its children."""
        at_once = 0
        for member in family(pid):
            with suppress(OSError, StopIteration):  # it is gone
                at_once += memory_of(member, "smaps_rollup", "Pss:")
                self._each[member] = max(self._each.get(member, 0), memory_of(member, "status", "VmHWM:"))
        self.at_once = max(self.at_once, at_once)


def wait_for(process: subprocess.Popen[bytes]) -> tuple[int, int, float]:
    """Wait for a process; return the peak memory of it and its children, the sum of their peaks, and CPU seconds."""
    peaks = Peaks()
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        peaks.look(process.pid)
        time.sleep(0.02)
    process.returncode = os.waitstatus_to_exitcode(status)
    # For a single process, the kernel knows it exactly. KiB on Linux.
    largest = usage.ru_maxrss * 1024
    at_once = largest if peaks.processes <= 1 else peaks.at_once
    return at_once, max(largest, peaks.sum), usage.ru_utime + usage.ru_stime


def family(pid: int) -> Iterator[int]:
    """Yield a process and its children's children."""
    yield pid
    with suppress(OSError):
        for path in Path(f"/proc/{pid}/task").iterdir():
            for child in (path / "children").read_text().split():
                yield from family(int(child))


def memory_of(pid: int, file: str, field: str) -> int:
    """Read a field of /proc in bytes."""
    lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024


# --- showing


def say(text: str) -> None:
    """Report progress on stderr."""
    print(text, file=sys.stderr, flush=True)


def machine() -> dict[str, str]:
    """Describe this machine."""
    import pyarrow as pa

    model = platform.processor() or "unknown"
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    return {
        "cpu": model,
        "cores": str(len(os.sched_getaffinity(0))),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "pyarrow": pa.__version__,
    }


def target_of(row: Row, rows: dict[tuple[str, str], Row]) -> str:
    """Return the row's targets, and whether they are met."""
    targets = []
    if row.peak is not None:
        targets.append((f"< {PEAK_TARGET_MB} MB", row.peak < PEAK_TARGET_MB * MEGABYTE))
        piped = [other for other in rows.values() if is_piped(other, row.set)]
        first = min(piped, key=lambda other: other.bytes, default=row)
        if is_piped(row, row.set) and row is not first and first.peak:
            factor = row.peak / first.peak
            targets.append((f"no more for more (x {factor:.2f})", factor <= PEAK_TOLERANCE))
    elif row.set == "small" and row.method in (OURS_PARQUET, OURS_PARQUET_2):
        targets.append((f">= {LOGS_TARGET} logs/s", row.logs / row.median >= LOGS_TARGET))
    elif row.method == OURS_ARROW:
        times = row.speed / rows[row.set, REFERENCE].speed
        targets.append((f">= {TO_ARROW_TARGET} x the reference", times >= TO_ARROW_TARGET))
    elif row.method in (OURS_PARQUET, OURS_PARQUET_2):
        times, share = (row.speed / rows[row.set, method].speed for method in (REFERENCE, WRITING))
        targets.append((f">= {TO_PARQUET_TARGET} x the reference", times >= TO_PARQUET_TARGET))
        targets.append((f">= {OF_WRITING_TARGET:.0%} of writing", share >= OF_WRITING_TARGET))
    return ", ".join(f"{text}: {'met' if is_met else 'MISSED'}" for text, is_met in targets)


def is_piped(row: Row, kind: str) -> bool:
    """Return True if this log came through a pipe."""
    return row.set == kind and PIPED in row.method


def cells_of(row: Row, rows: dict[tuple[str, str], Row]) -> tuple[str, ...]:
    """Return the row's cells: the speed also as a multiple of the reference's, and of pyarrow's that only writes."""

    def times(method: str, form: str) -> str:
        other = rows.get((row.set, method))
        return "" if other is None or row.peak is not None else format(row.speed / other.speed, form)

    return (
        row.set,
        row.method,
        f"{row.bytes / MEGABYTE:.0f}",
        f"{row.median:.3f}",
        "" if len(row.seconds) == 1 else f"{min(row.seconds):.3f}..{max(row.seconds):.3f}",
        f"{row.cores:.2f}",
        f"{row.others:.2f}",
        f"{row.speed:.1f}" if row.speed < 100 else f"{row.speed:.0f}",
        f"{row.logs / row.median:.0f}" if row.set == "small" else "",
        times(ITERATED, ".1f"),
        times(REFERENCE, ".1f"),
        times(WRITING, ".0%") if row.method in (WRITING, OURS_PARQUET, OURS_PARQUET_2) else "",
        "" if row.peak is None else f"{row.peak / MEGABYTE:.0f}",
        "" if row.peak_sum is None else f"{row.peak_sum / MEGABYTE:.0f}",
        target_of(row, rows),
    )


def print_table(rows: Sequence[Row]) -> None:
    """Print the rows."""
    by_name = {(row.set, row.method): row for row in rows}
    lines = [tuple(COLUMNS), *(cells_of(row, by_name) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = zip(line, COLUMNS.values(), widths, strict=True)
        print("  ".join(f"{cell:{aligned}{width}}" for cell, aligned, width in cells).rstrip())


def default_folder(megabytes: int) -> Path | None:
    """Choose memory if a log, its dataset and the restored log fit; else the usual temporary folder."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder with a random name is made in it
    if memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 4 * megabytes * MEGABYTE:
        return memory
    return None


def parse_arguments() -> argparse.Namespace:
    """Parse and check the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=500, metavar="N", help="size of a large log (%(default)s)")
    parser.add_argument("--cut", type=int, default=10, metavar="N", help="MB of it the reference gets (%(default)s)")
    parser.add_argument("--logs", type=int, default=20000, metavar="N", help="small logs (%(default)s)")
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="runs of each (%(default)s)")
    parser.add_argument(
        "--patience", type=float, default=0, metavar="SECONDS", help="how long to repeat disturbed runs (%(default)s)"
    )
    parser.add_argument("--memory", action="store_true", help="measure the peak memory too, which takes minutes")
    parser.add_argument(
        "--memory-gigabytes", type=float, nargs="+", default=[10, 20], metavar="N", help="sizes of logs for that"
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where to make the temporary folder")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--generate", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    for option in ("megabytes", "cut", "logs", "repeat"):
        if getattr(arguments, option) < 1:
            parser.error(f"--{option}: expected at least 1")
    return arguments


def main() -> None:
    """Run everything and print one table."""
    arguments = parse_arguments()
    sys.path.insert(0, str(PROJECT))
    if arguments.generate:
        generate(arguments.generate[0], int(arguments.generate[1]))
        return
    # The folder may be in memory: remove it however this ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    place = arguments.folder or default_folder(arguments.megabytes)
    with tempfile.TemporaryDirectory(prefix="bench-logs-", dir=place) as name:
        bench = Bench(Path(name), arguments.repeat, arguments.patience)
        # First, while this process is small: a child's peak includes its memory before exec.
        if arguments.memory:
            bench.measure_memory(arguments.memory_gigabytes, arguments.logs)
        memory = bench.rows
        bench.rows = []
        bench.measure_small(arguments.logs)
        for kind in WRITERS:
            bench.measure_log(kind, arguments.megabytes * MEGABYTE, arguments.cut * MEGABYTE)
        rows = [*bench.rows, *memory]
        facts = {**machine(), "folder": str(bench.folder.parent)}
    if arguments.json:
        shown = [{**asdict(row), "median": row.median, "speed": row.speed} for row in rows]
        print(json.dumps({"machine": facts, "rows": shown, "notes": bench.notes}, indent=2))
        return
    print(", ".join(f"{key}: {value}" for key, value in facts.items()))
    print_table(rows)
    for note in bench.notes:
        print(note)


if __name__ == "__main__":
    main()
