"""Compare packing and unpacking a corpus with ``tar --zstd`` of the same folder.

The corpus is made of the modules of ``tests/data`` (Lua and zlib), copied with varied bytes up to the wanted number; or
it is one of yours. Files are in the page cache, so that the disk is not measured.

    benchmarks/pack.py [--modules N] [--corpus DIR] [--jobs N] [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from mlgo_corpus import Corpus, extract_corpus, pack_corpus, unpack_corpus
from mlgo_corpus.corpus.folder import write_manifest
from mlgo_corpus.corpus.modules import ModuleTableWriter
from mlgo_corpus.corpus.scan import scan_module

ROOT = Path(__file__).parents[1]


def build(folder: Path, modules: int) -> Path:
    """Make a corpus of the given number of distinct modules."""
    for name in ("lua-clang22", "zlib-clang19"):
        with tarfile.open(ROOT / "tests" / "data" / f"{name}.tar.gz") as tar:
            tar.extractall(folder / "objects", filter="data")
    extract_corpus([folder / "objects"], folder / "some")
    real = [(module.bitcode(), module.own_command()) for module in Corpus.open(folder / "some")]
    corpus = folder / "corpus"
    generator = random.Random(0)
    names = []
    for number in range(modules):
        bitcode, command = real[number % len(real)]
        name = f"d{number // 1000:03d}/m{number % 1000:03d}.o"
        path = corpus / name
        path.parent.mkdir(parents=True, exist_ok=True)
        changed = bytearray(bitcode)
        for _ in range(len(changed) // 64):  # what other modules have elsewhere
            changed[generator.randrange(len(changed) // 2, len(changed))] = generator.randrange(256)
        path.with_name(f"{path.name}.bc").write_bytes(changed)
        path.with_name(f"{path.name}.cmd").write_bytes(command + b"-DN=%d\0" % number)
        names.append(name)
    write_manifest(corpus / "corpus_description.json", names, has_thinlto=False, override=None)
    table = ModuleTableWriter(corpus / "modules.parquet", corpus / "modules.tmp")
    for module in Corpus.open(corpus):
        table.append(scan_module(module))
    table.commit({"corpus_digest": "of an extraction"})
    return corpus


def seconds(work: Callable[[], object], clean: Callable[[], object], rounds: int) -> float:
    """Return the median time of some rounds; ``clean`` is not part of it."""
    found = []
    for _ in range(rounds):
        clean()
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return statistics.median(found)


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files of a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", type=int, default=10_000)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = arguments.corpus or build(folder, arguments.modules)
        total = size_of(corpus)
        packed, unpacked, archive = folder / "packed", folder / "unpacked", folder / "corpus.tar.zst"

        def clean(*paths: Path) -> Callable[[], object]:
            def remove() -> None:
                for path in paths:
                    shutil.rmtree(path, ignore_errors=True)

            return remove

        def tar(*argv: str | Path) -> Callable[[], object]:
            env = {**os.environ, "ZSTD_NBTHREADS": str(arguments.jobs or 0)}
            return lambda: subprocess.run(("tar", "--zstd", *argv), env=env, check=True)

        unpacked.mkdir()
        rows: list[tuple[str, float, int | None]] = []
        for jobs in dict.fromkeys((1, arguments.jobs)):
            called = "all CPUs" if jobs is None else f"{jobs} job{'' if jobs == 1 else 's'}"
            took = seconds(lambda: pack_corpus(corpus, packed, jobs=jobs), clean(packed), arguments.rounds)  # noqa: B023
            rows.append((f"pack, {called}", took, size_of(packed)))
            took = seconds(lambda: unpack_corpus(packed, unpacked, jobs=jobs), clean(unpacked), arguments.rounds)  # noqa: B023
            rows.append((f"unpack, {called}", took, None))
        took = seconds(tar("-cf", archive, "-C", corpus, "."), lambda: None, arguments.rounds)
        rows.append(("tar --zstd -c", took, size_of(archive)))
        folder_of_tar = folder / "untarred"

        def again() -> None:
            shutil.rmtree(folder_of_tar, ignore_errors=True)
            folder_of_tar.mkdir()

        took = seconds(tar("-xf", archive, "-C", folder_of_tar), again, arguments.rounds)
        rows.append(("tar --zstd -x", took, None))
        took = seconds(lambda: [module.bitcode() for module in Corpus.open(packed)], lambda: None, arguments.rounds)
        rows.append(("read all bitcode, packed", took, None))
        took = seconds(lambda: [module.bitcode() for module in Corpus.open(corpus)], lambda: None, arguments.rounds)
        rows.append(("read all bitcode, folder", took, None))
        print(f"{len(Corpus.open(corpus))} modules, {total / 1e6:.0f} MB; Python {sys.version.split()[0]}")
        for what, took, size in rows:
            share = "" if size is None else f"  {100 * size / total:5.1f} % of the size"
            print(f"{what:26} {took:7.2f} s {total / took / 1e6:8.0f} MB/s{share}")


if __name__ == "__main__":
    main()
