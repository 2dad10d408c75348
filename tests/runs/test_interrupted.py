"""Verbs whose every step fails once: what they make is there or not, and the same command makes it all the same."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mlgo_corpus import LogWriter, TensorSpec, convert_logs, make_corpus
from mlgo_corpus.compilers.probe import PROBE_DATA
from tests.conftest import PACKAGE_ROOT

pytestmark = pytest.mark.whole

COMMAND = ("-cc1", "-O2")


def dataset(folder: Path) -> None:
    """Make a dataset of three small logs, of which one is in a folder that has another's name."""
    for name in ("a", "a/b", "c"):
        path = folder / f"logs/{name}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        with LogWriter(path, [TensorSpec("x", "int64_t", (2,))], advice=TensorSpec("y", "int64_t")) as log:
            log.write_context("f")
            for number in range(4):
                log.write_observation({"x": [number, len(name)]})
    convert_logs(folder / "logs", folder / "dataset", jobs=1)
    shutil.rmtree(folder / "logs")


def dataset_and_logs(folder: Path) -> None:
    dataset(folder)
    (folder / "out").mkdir()
    (folder / "out/mine.log").write_bytes(b"not the dataset's")


def bitcode(folder: Path) -> None:
    (folder / "corpus").mkdir()
    for version in (18, 19, 22):
        shutil.copy(PROBE_DATA / f"llvm-{version}.bc", folder / f"corpus/{version}.bc")


def made(folder: Path) -> None:
    bitcode(folder)
    make_corpus(folder / "corpus", default_args=COMMAND)


EXPORT = ("export", "dataset", "--reward", "zero", "--jobs", "1", "--output")
# What is there before, the command, and how many steps it has at least.
VERBS: dict[str, tuple[Callable[[Path], None], tuple[str, ...], int]] = {
    "restored-logs": (dataset, ("parquet-to-logs", "dataset", "--output", "out"), 20),
    "restored-logs-into-a-folder": (dataset_and_logs, ("parquet-to-logs", "dataset", "--output", "out"), 20),
    "split": (made, ("split", "corpus", "--jobs", "1"), 20),
    "make-in-place": (bitcode, ("make", "corpus", "--default-args", " ".join(COMMAND)), 10),
    "export-to-a-file": (dataset, (*EXPORT, "file"), 10),
    "export-to-a-folder": (dataset, (*EXPORT, "folder", "--shards", "2"), 10),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[dict[str, int], list[str]]]:
    """Let all of them fail, in one process, which imports what they need once."""
    work = tmp_path_factory.mktemp("interrupted")
    told = []
    for name, (prepare, argv, _) in VERBS.items():
        folder = work / name / "template"
        folder.mkdir(parents=True)
        prepare(folder)
        told.append([str(folder), argv])
    script = [sys.executable, str(Path(__file__).with_name("faults.py"))]
    env = {"PYTHONPATH": PACKAGE_ROOT, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(script, input=json.dumps(told).encode(), env=env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return dict(zip(VERBS, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("name", VERBS)
def test_every_step_fails_once(results: dict[str, tuple[dict[str, int], list[str]]], name: str) -> None:
    steps, problems = results[name]
    assert problems == []
    assert set(steps) == {"kill", "error", "interrupt"}
    assert len(set(steps.values())) == 1, steps
    assert steps["kill"] >= VERBS[name][2]
