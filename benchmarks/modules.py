"""What a run over a corpus costs the process that drives it: memory and time by the number of modules.

    python benchmarks/modules.py [--modules 1000000]

The compiler is simulated: each module has an outcome of the usual size at once, and a log of two decisions. All else is
what a trace does: the workers, their journals, the conversion of the logs, the tables. The run is killed when half of
the modules are done, and started again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from mlgo_corpus import LogWriter
from mlgo_corpus.compilers.command import CommandEdits
from mlgo_corpus.compilers.probe import Toolchain
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.dataset.folder import DatasetFolder
from mlgo_corpus.dataset.logs import HeaderReader
from mlgo_corpus.dataset.tracetable import TraceRow
from mlgo_corpus.engine.choice import HERE
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.runs.trace import run
from mlgo_corpus.runs.trace.module import TracedModule, TraceItem, TraceJob, TraceSettings, _keep_header

OPTIONS = tuple(f"-a-usual-option-of-a-command={number}" for number in range(60))


class Simulated(TraceJob):
    """A trace whose compiler takes no time."""

    def run(self, item: TraceItem) -> TracedModule:
        """Return an outcome."""
        header = HeaderReader().read(str(self.work.parent.parent / "decisions.log"))
        row = TraceRow(
            item.module.name,
            "ok",
            "ok",
            "",
            exit_code=0,
            wall_s=0.1,
            cpu_s=0.1,
            max_rss_bytes=1 << 26,
            observations=2,
            text_size=1000 + item.number,
            baseline_text_size=1100 + item.number,
            object_sha256=f"{item.number:064x}",
            baseline_object_sha256=f"{item.number:064x}",
            reward=0.01,
            faithful=False,
            argv=("/usr/bin/clang", "-cc1", *OPTIONS, f"/corpus/{item.module.name}.bc"),
            bitcode_bytes=4096,
            bitcode_sha256=f"{item.number:064x}",
        )
        log = self.work.parent.parent / "decisions.log"
        return TracedModule(row, str(log), 2, log.stat().st_size, _keep_header(self.work, header))


def drive(folder: Path, stop: int) -> None:
    """Trace a corpus; kill this process after so many modules, and else print what it took."""
    started = time.perf_counter()
    run.TraceJob = Simulated  # type: ignore[attr-defined] # the simulation
    corpus = open_corpus(folder / "corpus")
    dataset = DatasetFolder(folder / "dataset", {"task": "inlining", "corpus": "of the benchmark"}, force=False)
    settings = TraceSettings(
        cc1=("/usr/bin/true",),
        compiler_id="",
        major=22,
        task="inlining",
        via="interactive",
        policy="default",
        seed=0,
        work=dataset.paths.work.absolute(),
        baselines=folder / "baselines",
        edits=CommandEdits(trusted=True),
        names=False,  # the simulation has no remarks
    )

    def progress(done: int, *_: int) -> None:
        if done == stop:
            print(json.dumps(used(started)), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    trace = run.Trace(dataset, settings, Toolchain(("clang",), "PATH"), corpus, corpus.names, None, HERE, progress)
    opened = used(started)
    trace.run()
    dataset.close()
    report = trace.report((), 0.0)
    said = {**used(started), "opened_mb": opened["peak_mb"], "resumed": report.resumed, "traced": report.traced}
    print(json.dumps(said))


def used(started: float) -> dict[str, Any]:
    """Return the seconds since the start, and the peak of this process's memory in MB."""
    return {
        "seconds": round(time.perf_counter() - started, 1),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }


def measure(modules: int) -> None:
    """Print a line for each number of modules."""
    with tempfile.TemporaryDirectory(prefix="mlgo-bench-") as name:
        folder = Path(name)
        (folder / "corpus").mkdir()
        names = [f"project/source/folder{number % 997}/file{number}.o" for number in range(modules)]
        manifest = {"has_thinlto": False, "modules": names}
        (folder / "corpus" / "corpus_description.json").write_text(json.dumps(manifest))
        with LogWriter(
            folder / "decisions.log", [TensorSpec("callee_users", "int64_t")], score=TensorSpec("reward", "float")
        ) as log:
            log.write_context("module")
            for value in (1, 2):
                log.write_observation({"callee_users": value}, score=0.0)
        for stop in (modules // 2, -1):
            argv = (sys.executable, __file__, "--folder", name, "--stop", str(stop))
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            said = json.loads(done.stdout.splitlines()[-1]) if done.stdout else done.stderr[-2000:]
            what = "killed at half" if stop > 0 else "gone on with"
            print(f"{modules:>9} modules, {what}: {said}", flush=True)


def main() -> None:
    """Measure, or be what is measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--modules", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--stop", type=int, default=-1)
    asked = parser.parse_args()
    if asked.folder is not None:
        drive(asked.folder, asked.stop)
        return
    for modules in asked.modules:
        measure(modules)


if __name__ == "__main__":
    main()
