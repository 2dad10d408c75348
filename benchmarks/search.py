"""What a search finds: bytes of objects and of linked products, by project and by the compiles of each module.

    python benchmarks/search.py FOLDER [--projects leveldb,...] [--budgets 25,50,100,200] [--start POLICY] [--jobs 2]
        [--part gain]

The projects are Debian's source packages, which ``apt-get source NAME`` has put into the folder; they are built with
clang at -Oz. Parts:

- ``gain``: for each budget, the objects' text, the products as linked, and linked with gc-sections and icf (lld);
- ``optimum``: modules with at most 12 decisions, against every way to decide;
- ``single``: compiles until a search has half of its gain, against flips that are tried one in a compile;
- ``large``: the search's own processor time and memory, beside the compiler's, on the project's largest module.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import resource
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from mlgo_corpus import build_corpus, relink_corpus, search_corpus
from mlgo_corpus.compilers.compile import run_folder
from mlgo_corpus.compilers.probe import probe_compiler
from mlgo_corpus.compilers.process import Child
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.runs.search import climb as climbing
from mlgo_corpus.runs.search.climb import Decision, Found, Guide, Outcome, Plan, climb, draw_guides
from mlgo_corpus.runs.search.module import SearchItem, SearchSettings, _ModuleSearch
from mlgo_corpus.runs.trace.module import TraceSettings

CMAKE = "-DCMAKE_BUILD_TYPE=MinSizeRel -DCMAKE_C_FLAGS_MINSIZEREL=-Oz -DCMAKE_CXX_FLAGS_MINSIZEREL=-Oz"
# What each project's CMakeLists.txt wants besides.
PROJECTS = {
    "leveldb": "-DLEVELDB_BUILD_TESTS=OFF -DLEVELDB_BUILD_BENCHMARKS=OFF",
    "yaml-cpp": "-DYAML_CPP_BUILD_TESTS=OFF -DYAML_CPP_BUILD_TOOLS=ON",
    "snappy": "-DSNAPPY_BUILD_TESTS=OFF -DSNAPPY_BUILD_BENCHMARKS=OFF -DBUILD_SHARED_LIBS=ON",
    "tinyxml2": "",
    "double-conversion": "-DBUILD_TESTING=ON",
    "jansson": "-DJANSSON_BUILD_DOCS=OFF",
    "expat": "-DEXPAT_BUILD_DOCS=OFF -DEXPAT_BUILD_TESTS=OFF -DEXPAT_DTD=OFF",
}
SMALL_FLAGS = ("-fuse-ld=lld", "-Wl,--gc-sections,--icf=all")
MOST_DECISIONS = 12
MOST_WAYS = 5000
MOST_SINGLE = 500
LARGE_BUDGET = 25


def source_of(name: str, folder: Path) -> Path:
    """Return the folder with a project's CMakeLists.txt."""
    found = sorted(path for path in folder.glob(f"{name}-*") if path.is_dir())
    if not found:
        sys.exit(f"{folder}: no source of {name} here; run 'apt-get source {name}' in it")
    return found[0] / "expat" if name == "expat" else found[0]


def built(name: str, folder: Path, compiler: str) -> Path:
    """Build a project, and return its corpus."""
    corpus = folder / f"corpus-{name}"
    if not (corpus / "corpus_description.json").exists():
        source = source_of(name, folder)
        tree = folder / f"build-{name}"
        command = f"cmake -S {source} -B {tree} {CMAKE} {PROJECTS[name]} && cmake --build {tree}"
        build_corpus(("sh", "-c", command), corpus, compiler=compiler, build_dir=folder)
    return corpus


def percent(size: float, before: float) -> str:
    """Return a change."""
    return f"{100 * (size / before - 1):+.2f} %" if before else "-"


def gain(name: str, folder: Path, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Search with each budget, and link what is found."""
    corpus = built(name, folder, given.compiler)
    for budget in given.budgets:
        started = [] if given.start == "default" else ["started"]
        place = folder / "-".join(("found", name, str(budget), *started, *given.also))
        report = search_corpus(
            corpus,
            place / "dataset",
            budget=budget,
            start=given.start,
            also=("default", *given.also),
            compiler=given.compiler,
            jobs=given.jobs,
            keep_objects=place / "objects",
        )
        row: dict[str, Any] = {
            "project": name, "budget": budget, "start": given.start, "objective": report.objective,
            "seconds": round(report.seconds),
            "objects": report.text_size, "objects before": report.baseline_text_size,
            "change": percent(report.text_size, report.baseline_text_size),
        }  # fmt: skip
        for kind, flags in (("linked", ()), ("small", SMALL_FLAGS)):
            linked = relink_corpus(corpus, place / kind, objects=place / "objects", ld_flags=flags, force=True)
            row[kind] = linked.text_size
            row[f"{kind} before"] = linked.original_text_size
            row[f"{kind} change"] = percent(linked.text_size, linked.original_text_size)
        yield row


def searched(name: str, folder: Path, given: argparse.Namespace) -> Iterator[tuple[str, _ModuleSearch]]:
    """Yield the modules of a project, each ready to be searched."""
    toolchain = probe_compiler(given.compiler)
    for number, module in enumerate(open_corpus(built(name, folder, given.compiler))):
        trace = TraceSettings(
            cc1=toolchain.cc1, compiler_id="", major=toolchain.major or 0, task="inlining", via="interactive",
            policy="search", seed=0, work=folder, baselines=folder / "baselines",
        )  # fmt: skip
        settings = SearchSettings(trace, "default", (100,), None, 0, linked=False)
        with run_folder(folder) as work:
            yield module.name, _ModuleSearch(settings, SearchItem(number, module, ""), work, lambda _: 1.0)


def compiled(search: _ModuleSearch, plan: Plan, guide: Guide | None = None) -> Outcome:
    """Compile a module by a plan."""
    return search.weigh(search.compile(plan, guide))


def climbed(search: _ModuleSearch, budget: int) -> Found:
    """Search as the product does."""
    generator = random.Random(0)
    return climb(
        partial(compiled, search), budget, generator, guides=draw_guides(budget, generator), repeats=search.repeats
    )


def ways(search: _ModuleSearch, first: Outcome) -> Iterator[Outcome]:
    """Yield every way to decide: each compile forces the beginning of the decisions."""
    waiting: list[tuple[Decision, ...]] = [()]
    while waiting:
        forced = waiting.pop()
        outcome = compiled(search, [(one.key, one.decided) for one in forced]) if forced else first
        yield outcome
        for number in range(len(forced), len(outcome.decisions)):
            decision = outcome.decisions[number]
            waiting.append((*outcome.decisions[:number], decision._replace(decided=1 - decision.decided)))


def optimum(name: str, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Search modules with few decisions, and compare with every way to decide."""
    found = all_of = skipped = 0
    for _, search in searched(name, folder, given):
        first = compiled(search, ())
        if not 1 <= len(first.decisions) <= MOST_DECISIONS:
            continue
        best, number = first.objective, 0
        for number, outcome in enumerate(ways(search, first), 1):
            best = min(best, outcome.objective)
            if number > MOST_WAYS or len(outcome.decisions) > MOST_DECISIONS + 4:
                break
        else:
            all_of += 1
            found += climbed(search, 100).best.objective <= best
            continue
        skipped += 1
    return {"project": name, "modules": all_of, "solved": found, "too many ways": skipped}


def single(name: str, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Count compiles until half of a search's gain is there, with many flips in a compile and with one."""
    needed = {"many": 0, "one": 0}
    for number, (_, search) in enumerate(searched(name, folder, given)):
        if number % 8:  # a sample
            continue
        many = climbed(search, 50)
        wanted = many.first.objective - (many.first.objective - many.best.objective) / 2
        if many.best.objective < many.first.objective:
            needed["many"] += next(count for count, size in many.curve if size <= wanted)
            needed["one"] += compiles_of_single_flips(search, wanted)
    return {"project": name, **needed, "ratio": needed["one"] / max(1, needed["many"])}


def compiles_of_single_flips(search: _ModuleSearch, wanted: float) -> int:
    """Return how many compiles it takes until an object is so small, if each tries one flip, and none a rule."""
    sizes: list[float] = []

    def noted(plan: Plan, guide: Guide | None) -> Outcome:
        outcome = compiled(search, plan, guide)
        sizes.append(outcome.objective)
        return outcome

    choose = climbing._Climb._choose
    with patch.object(climbing._Climb, "_choose", lambda self, moves: choose(self, moves)[:1]):
        climb(noted, MOST_SINGLE, random.Random(0), over=lambda: min(sizes) <= wanted)
    return len(sizes)


def large(name: str, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Search the module with the most bitcode in this process, beside as many plain compiles; in processor seconds."""
    most = max(open_corpus(built(name, folder, given.compiler)), key=lambda module: len(module.bitcode()))
    modules = searched(name, folder, given)
    search = next(search for module, search in modules if module == most.name)
    compiles, cc1 = search._compiles, search._settings.trace.cc1
    compilers = 0.0
    set_usage = Child._set_usage

    def noted(child: Child, cpu_s: float, charged_peak: int) -> None:  # the launcher starts them, which still runs
        nonlocal compilers
        compilers += cpu_s
        set_usage(child, cpu_s, charged_peak)

    gc.disable()  # as worker processes do
    with patch.object(Child, "_set_usage", noted):
        for _ in range(LARGE_BUDGET):
            compiles.empty()
            compiles.run((*cc1, *compiles.command(compiles.options(cc1))))
        plain, compilers, before = compilers, 0.0, time.process_time()
        found = climbed(search, LARGE_BUDGET)
        own = time.process_time() - before
    return {
        "project": name, "module": most.name, "decisions": len(found.first.decisions), "compiles": found.compiles,
        "plain compiler": round(plain, 1), "compiler": round(compilers, 2), "ours": round(own, 2),
        "ours / compiler": round(own / compilers, 3),
        "peak bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "objective before": found.first.objective, "objective": found.best.objective,
    }  # fmt: skip


PARTS = {"optimum": optimum, "single": single, "large": large}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--projects", type=lambda text: text.split(","), default=list(PROJECTS))
    parser.add_argument(
        "--budgets", type=lambda text: [int(word) for word in text.split(",")], default=[25, 50, 100, 200]
    )
    parser.add_argument("--part", choices=("gain", *PARTS), default="gain")
    parser.add_argument("--start", default="default")
    parser.add_argument("--also", nargs="*", default=[], help="policies to try beside LLVM's own decisions")
    parser.add_argument("--compiler", default="clang-22")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    given.folder = given.folder.absolute()
    given.folder.mkdir(parents=True, exist_ok=True)
    for name in given.projects:
        if given.part == "gain":
            for row in gain(name, given.folder, given):
                print(json.dumps(row), flush=True)
        else:
            print(json.dumps(PARTS[given.part](name, given.folder, given)), flush=True)


if __name__ == "__main__":
    main()
