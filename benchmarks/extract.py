"""Compare extraction with llvm-objcopy and cp, in one run: ``python benchmarks/extract.py``.

The objects are real: generated C, compiled by clang with ``-c -Oz -Xclang -fembed-bitcode=all``, then copied.

- *small*: 1 000 objects of 5 to 12 kB, 20 of them distinct;
- *large*: 100 objects of about 1 MB.

Each set is read by this package (the stage as a function in this process with one and with two jobs, and the whole
command line, including start-up), by two consecutive ``llvm-objcopy --dump-section`` calls per object, as LLVM's
``extract_ir`` does in one process, and copied by ``cp -r``. Before the timing, this package's output is compared byte
for byte with that of llvm-objcopy. The page cache is warm, and outputs are removed between
runs, outside the clock. llvm-objcopy is timed on a sample (on all with ``--full``): compare the times per object.

All of them write files, so the file system's time to create one is part of each figure (and is printed: from 10 us on
tmpfs to 700 us in a crowded folder of an ext4). ``--folder /dev/shm`` compares the programs, not the disk.

Memory is the peak resident size of the largest process of the command line's tree, for growing numbers of objects.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
EMBED = ("-c", "-Oz", "-Xclang", "-fembed-bitcode=all")
SMALL_SOURCES = 20
LARGE_FUNCTIONS = 1100
OBJECTS_PER_FOLDER = 100


@dataclass(frozen=True, slots=True)
class ObjectSet:
    """Objects to extract: a folder, and its size."""

    name: str
    folder: Path
    objects: tuple[Path, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: wall times of `repeat` runs over `objects` objects."""

    set: str
    method: str
    objects: int
    bytes: int
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Seconds of the median run."""
        return statistics.median(self.seconds)

    @property
    def per_object(self) -> float:
        """Seconds of the median run."""
        return self.median / self.objects


# --- the objects


def c_source(seed: int, functions: int) -> str:
    """Write a C file whose functions have loops, branches, calls and constants of their own."""
    lines = ["struct node { struct node *next; long key; int data[4]; };", f"static long state_{seed} = {seed};"]
    for index in range(functions):
        name = f"work_{seed}_{index}"
        other = f"work_{seed}_{index - 1}(n, v / {index + 2})" if index else f"state_{seed}"
        lines.append(
            f"long {name}(struct node *n, long v) {{\n"
            f"  long sum = {seed * 7919 + index * 104729};\n"
            f"  for (; n; n = n->next) {{\n"
            f"    if (n->key % {index % 13 + 3} == v) sum += n->data[{index % 4}] * {index * 31 + 5};\n"
            f"    else if (n->key > {index * 17 + seed}) sum ^= v << {index % 7 + 1};\n"
            f"    else {{ state_{seed} += n->key; sum -= n->data[{(index + 1) % 4}]; }}\n"
            f"  }}\n"
            f"  return sum > {index * 1009} ? {other} + sum : sum - {index};\n"
            f"}}"
        )
    return "\n".join(lines) + "\n"


def compile_object(clang: str, folder: Path, name: str, text: str) -> Path:
    """Compile C with bitcode and command embedded."""
    (folder / f"{name}.c").write_text(text)
    subprocess.run((clang, *EMBED, f"{name}.c", "-o", f"{name}.o"), cwd=folder, check=True)
    return folder / f"{name}.o"


def spread(sources: Sequence[Path], count: int, folder: Path, place: Callable[[Path, Path], Any]) -> Iterator[Path]:
    """Put `count` objects into subfolders, cycling through the sources."""
    for index in range(count):
        subfolder = folder / f"part{index // OBJECTS_PER_FOLDER:04}"
        if index % OBJECTS_PER_FOLDER == 0:
            subfolder.mkdir(parents=True)
        source = sources[index % len(sources)]
        target = subfolder / f"{source.stem}_{index:06}.o"
        place(source, target)
        yield target


def object_set(name: str, sources: Sequence[Path], count: int, folder: Path) -> ObjectSet:
    """Make `count` objects that share no bytes on disk."""
    objects = tuple(spread(sources, count, folder, shutil.copyfile))
    return ObjectSet(name, folder, objects, sum(item.stat().st_size for item in objects))


# --- the ways to extract them


def dump_with_objcopy(objcopy: str, item: Path, target: Path, scratch: Path) -> None:
    """Dump bitcode and command; llvm-objcopy also writes the object again, to `scratch`."""
    for section, suffix in ((".llvmbc", ".bc"), (".llvmcmd", ".cmd")):
        subprocess.run((objcopy, f"--dump-section={section}={target}{suffix}", str(item), str(scratch)), check=True)


def run_objcopy(objcopy: str, objects: Sequence[Path], output: Path) -> None:
    """Dump the objects one after another."""
    output.mkdir()
    scratch = output / "scratch.o"
    for index, item in enumerate(objects):
        dump_with_objcopy(objcopy, item, output / str(index), scratch)


def run_stage(folder: Path, output: Path, jobs: int) -> None:
    """Call the stage in this process."""
    from mlgo_corpus.extract import extract_corpus

    extract_corpus([folder], output, jobs=jobs)


def cli_argv(folder: Path, output: Path) -> tuple[str, ...]:
    """Return the command that extracts a folder with one job."""
    stage = ("extract", str(folder), "--output", str(output), "--jobs", "1")
    return (sys.executable, "-m", "mlgo_corpus.cli.main", *stage)


def run_cli(folder: Path, output: Path) -> None:
    """Run the whole command line."""
    subprocess.run(
        cli_argv(folder, output), check=True, env=cli_environment(), stdin=subprocess.DEVNULL, capture_output=True
    )


def cli_environment() -> dict[str, str]:
    """Return an environment in which Python finds this checkout from any folder."""
    return {**os.environ, "PYTHONPATH": str(PROJECT)}


def run_cp(folder: Path, output: Path) -> None:
    """Copy the objects."""
    subprocess.run(("cp", "-r", str(folder), str(output)), check=True)


def peak_memory(folder: Path, output: Path, log: Path) -> int:
    """Return the peak resident bytes of the largest process among the command line's and its workers."""
    with log.open("wb") as stream:
        process = subprocess.Popen(
            cli_argv(folder, output), env=cli_environment(), stdin=subprocess.DEVNULL, stdout=stream, stderr=stream
        )
        # wait4 also counts the children that the process itself waited for; ru_maxrss is in KiB on Linux.
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{cli_argv(folder, output)}: exit code {process.returncode}\n{log.read_text()}")
    return usage.ru_maxrss * 1024


# --- measuring


class Bench:
    """A temporary folder, and the clock."""

    def __init__(self, folder: Path, repeat: int) -> None:
        self.folder = folder
        self.repeat = repeat
        self.rows: list[Row] = []

    @contextmanager
    def output(self) -> Iterator[Path]:
        """Yield a free path, and remove what was put there."""
        path = self.folder / "output"
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def measure(
        self, what: ObjectSet, method: str, run: Callable[[Path], None], objects: Sequence[Path] | None = None
    ) -> None:
        """Time `run(output)`, which processes `objects` (by default the whole set)."""
        say(f"{what.name}: {method}")
        objects = what.objects if objects is None else objects
        seconds = []
        for _ in range(self.repeat):
            with self.output() as output:
                started = time.perf_counter()
                run(output)
                seconds.append(time.perf_counter() - started)
        total = sum(item.stat().st_size for item in objects)
        self.rows.append(Row(what.name, method, len(objects), total, tuple(seconds)))

    def check(self, what: ObjectSet, objcopy: str, sample: Sequence[Path]) -> None:
        """Compare our bitcode and commands with llvm-objcopy's, and warm up for timed runs."""
        with self.output() as output:
            run_stage(what.folder, output, jobs=1)
            dumped = self.folder / "dumped"
            for item in sample:
                dump_with_objcopy(objcopy, item, dumped, self.folder / "scratch.o")
                module = output / item.relative_to(what.folder)
                for suffix in (".bc", ".cmd"):
                    ours, theirs = Path(f"{module}{suffix}"), Path(f"{dumped}{suffix}")
                    if ours.read_bytes() != theirs.read_bytes():
                        raise SystemExit(f"{item}: {ours} is not what {objcopy} dumps")
        for item in what.objects:
            item.read_bytes()


def measure_set(bench: Bench, what: ObjectSet, objcopy: str, sample: int) -> None:
    """Check one set, then time every method on it."""
    step = max(1, len(what.objects) // sample)
    sampled = what.objects[::step][:sample]
    bench.check(what, objcopy, sampled)
    bench.measure(what, "ours, 1 job", lambda output: run_stage(what.folder, output, 1))
    bench.measure(what, "ours, 2 jobs", lambda output: run_stage(what.folder, output, 2))
    bench.measure(what, "ours, command line, 1 job", lambda output: run_cli(what.folder, output))
    bench.measure(what, "llvm-objcopy twice per object", lambda output: run_objcopy(objcopy, sampled, output), sampled)
    bench.measure(what, "cp -r", lambda output: run_cp(what.folder, output))


def measure_memory(folder: Path, sources: Sequence[Path], counts: Sequence[int]) -> list[dict[str, int]]:
    """Extract growing numbers of objects, and return the peak memory of each run."""
    found = []
    for count in counts:
        say(f"memory: {count} objects")
        objects = folder / f"memory{count}"
        output = folder / f"memory{count}.corpus"
        # Hard links: the objects' bytes do not matter here, their number does.
        for _ in spread(sources, count, objects, os.link):
            pass
        found.append({"objects": count, "peak_rss_bytes": peak_memory(objects, output, folder / "log")})
        shutil.rmtree(objects)
        shutil.rmtree(output)
    return found


# --- showing


def say(text: str) -> None:
    """Report progress on stderr."""
    print(text, file=sys.stderr, flush=True)


def machine() -> dict[str, str]:
    """Describe this machine."""
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
    }


def file_cost(folder: Path) -> float:
    """Return the seconds it takes to make a file of 8 kB."""
    content = bytes(8192)
    files = folder / "files"
    files.mkdir()
    started = time.perf_counter()
    for index in range(1000):
        (files / str(index)).write_bytes(content)
    return (time.perf_counter() - started) / 1000


def tool_version(tool: str) -> str:
    """Return the line of a tool's --version with its name."""
    text = subprocess.run((tool, "--version"), check=True, capture_output=True, text=True).stdout
    return next((line.strip() for line in text.splitlines() if "version" in line), tool)


def print_table(rows: Sequence[Row]) -> None:
    """Print the rows; the last column is the time per object in units of ours."""
    widths = (6, 30, 8, 9, 10, 10, 12, 8, 10)
    header = ("set", "method", "objects", "MB", "median s", "min s", "us/object", "MB/s", "x ours")
    ours = {row.set: row.per_object for row in rows if row.method == "ours, 1 job"}
    lines = [header]
    lines += [
        (
            row.set,
            row.method,
            str(row.objects),
            f"{row.bytes / 1e6:.1f}",
            f"{row.median:.4f}",
            f"{min(row.seconds):.4f}",
            f"{row.per_object * 1e6:.1f}",
            f"{row.bytes / 1e6 / row.median:.0f}",
            f"{row.per_object / ours[row.set]:.2f}",
        )
        for row in rows
    ]
    for line in lines:
        left, right = line[:2], line[2:]
        cells = [f"{cell:<{width}}" for cell, width in zip(left, widths[:2], strict=True)]
        cells += [f"{cell:>{width}}" for cell, width in zip(right, widths[2:], strict=True)]
        print(" ".join(cells).rstrip())


def parse_arguments() -> argparse.Namespace:
    """Parse and check the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--small", type=int, default=1000, metavar="N", help="small objects (%(default)s)")
    parser.add_argument("--large", type=int, default=100, metavar="N", help="objects of 1 MB (%(default)s)")
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="runs of each (%(default)s)")
    parser.add_argument("--sample", type=int, default=100, metavar="N", help="objects llvm-objcopy gets (%(default)s)")
    parser.add_argument("--full", action="store_true", help="llvm-objcopy gets all objects")
    parser.add_argument(
        "--memory", type=int, nargs="*", default=[1000, 5000, 20000], metavar="N", help="objects for the peak memory"
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where to make the temporary folder")
    parser.add_argument("--clang", default=first_tool("clang-22", "clang-19", "clang"))
    parser.add_argument("--objcopy", default=first_tool("llvm-objcopy-22", "llvm-objcopy-19", "llvm-objcopy"))
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    arguments = parser.parse_args()
    for option in ("clang", "objcopy"):
        if not shutil.which(getattr(arguments, option)):
            parser.error(f"--{option}: {getattr(arguments, option)} is not installed")
    return arguments


def first_tool(*names: str) -> str:
    """Return the first installed program."""
    return next((name for name in names if shutil.which(name)), names[0])


def main() -> None:
    """Run everything and print one table."""
    arguments = parse_arguments()
    sys.path.insert(0, str(PROJECT))
    with tempfile.TemporaryDirectory(prefix="bench-extract-", dir=arguments.folder) as name:
        folder = Path(name)
        say("compiling")
        # Sizes from 5 to 12 kB.
        small = [
            compile_object(arguments.clang, folder, f"small{seed:02}", c_source(seed, 2 + seed // 3))
            for seed in range(SMALL_SOURCES)
        ]
        large = [compile_object(arguments.clang, folder, "large", c_source(99, LARGE_FUNCTIONS))]
        # First, while this process is small: a child's peak includes its memory before exec.
        memory = measure_memory(folder, small, arguments.memory)
        bench = Bench(folder, arguments.repeat)
        for title, sources, count in (("small", small, arguments.small), ("large", large, arguments.large)):
            if count:
                what = object_set(title, sources, count, folder / title)
                measure_set(bench, what, arguments.objcopy, count if arguments.full else min(arguments.sample, count))
                shutil.rmtree(what.folder)
        tools = {"clang": tool_version(arguments.clang), "objcopy": tool_version(arguments.objcopy)}
        facts = {**machine(), **tools, "making a file": f"{file_cost(folder) * 1e6:.0f} us"}
    if arguments.json:
        rows = [{**asdict(row), "median": row.median, "per_object": row.per_object} for row in bench.rows]
        print(json.dumps({"machine": facts, "rows": rows, "memory": memory}, indent=2))
        return
    print(", ".join(f"{key}: {value}" for key, value in facts.items()))
    print_table(bench.rows)
    times = {(row.set, row.method): row.per_object for row in bench.rows}
    for name in dict.fromkeys(row.set for row in bench.rows):
        for jobs in ("1 job", "2 jobs"):
            ours = times[name, f"ours, {jobs}"]
            objcopy, cp = times[name, "llvm-objcopy twice per object"], times[name, "cp -r"]
            print(
                f"{name}, {jobs}: ours is {objcopy / ours:.1f} times as fast as llvm-objcopy, {ours / cp:.2f} times cp"
            )
    for item in memory:
        print(f"peak memory, {item['objects']} small objects: {item['peak_rss_bytes'] / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
