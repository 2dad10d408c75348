"""Verbs killed at any moment: nothing runs on, and the same command ends as if it had not been disturbed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

from mlgo_corpus import (
    convert_logs,
    dedup_corpus,
    extract_corpus,
    pack_corpus,
    split_corpus,
    trace_corpus,
    unpack_corpus,
)
from tests.conftest import DATA
from tests.handmade import put
from tests.runs.extract.test_incremental import in_child, real_objects, tree
from tests.runs.trace.test_bad_input import cache_of, make_corpus, module
from tests.runs.trace.test_interrupted import Tool, all_end, check_same

from .names import fake_clang
from .verbs import state_of

# How often each is killed before it may end.
MOST_KILLS = 3

Work = Callable[[Path, Path], object]


def _trace(prepared: Path, output: Path) -> None:
    fake = fake_clang(prepared)
    cache = cache_of(output.parent, fake)
    trace_corpus(prepared / "traced", output, compiler=str(fake), via="interactive", jobs=2, timeout=20.0, cache=cache)


WORK: dict[str, Work] = {
    "trace": _trace,
    "extract": lambda prepared, output: extract_corpus([prepared / "build"], output, jobs=2),
    "convert": lambda prepared, output: convert_logs([prepared / "logs"], output, jobs=2),
    "pack": lambda prepared, output: pack_corpus(prepared / "corpus", output, jobs=2),
    "unpack": lambda prepared, output: unpack_corpus(prepared / "packed", output, jobs=2),
    "split": lambda prepared, output: split_corpus(prepared / "packed", output=output, jobs=1),
    "dedup": lambda prepared, output: dedup_corpus(prepared / "packed", output=output, jobs=1),
}


def prepare(folder: Path) -> None:
    """Write the inputs of all verbs."""
    objects = real_objects(number=6)
    for number, data in enumerate(objects):
        put(folder / f"build/s{number % 3}/{number}.o", data)
    extract_corpus([folder / "build"], folder / "corpus", jobs=1)
    pack_corpus(folder / "corpus", folder / "packed", jobs=1)
    make_corpus(folder / "traced", {f"m{number}": module(decisions=number) for number in range(6)})
    (folder / "logs").mkdir()
    for path in sorted((DATA / "training-logs").glob("inlining.*.log")):
        shutil.copy(path, folder / "logs")


def _undisturbed(prepared: Path, name: str) -> tuple[Path, float]:
    """Give what a verb makes if nothing disturbs it, and the seconds that it takes."""
    output, told = prepared / "whole" / name / "out", prepared / "whole" / name / "seconds"
    if not told.exists():
        output.parent.mkdir(parents=True)
        started = time.monotonic()
        assert in_child(lambda: WORK[name](prepared, output)) == 0
        told.write_text(str(time.monotonic() - started))
    return output, float(told.read_text())


def check(prepared: Path, rng: random.Random, folder: Path) -> None:
    name = rng.choice(list(WORK))
    expected, seconds = _undisturbed(prepared, name)
    temporary, output = folder / "tmp", folder / "out"
    temporary.mkdir()
    before = state_of(prepared)
    os.environ["TMPDIR"] = str(temporary)

    def work() -> None:
        WORK[name](prepared, output)

    for _ in range(rng.randint(1, MOST_KILLS)):
        tool = Tool(work)
        time.sleep(rng.random() * seconds)
        code = tool.end()
        assert code in (0, -signal.SIGKILL), code
        all_end(folder, tool.pid, seconds=20.0)
    assert in_child(work) == 0
    assert state_of(prepared) == before
    if name == "trace":
        check_same(output, expected)
    elif name == "extract":
        assert tree(output) == tree(expected)
    else:
        found, wanted = state_of(output), state_of(expected)
        assert found.keys() == wanted.keys()
        assert [
            path for path in found if found[path] != wanted[path] and not _same_table(output / path, expected / path)
        ] == []
    assert not list(temporary.iterdir())
    left = {path.name for path in folder.iterdir()} - {"tmp", "out", "cache"}
    assert not left, left


def _same_table(one: Path, other: Path) -> bool:
    """Compare what may say when, or from where to where, it was made."""
    if one.suffix == ".parquet":
        return pq.read_table(one).equals(pq.read_table(other))
    return one.name in ("dataset.json", "README.md")
