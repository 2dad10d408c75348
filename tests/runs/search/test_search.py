"""Searches with a real clang: exact, the same however they are run, replayed to the byte, killed and gone on with."""

from __future__ import annotations

import errno
import itertools
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from mlgo_corpus import Tracer, build_corpus, extract_corpus, report_page, search_corpus, trace_corpus
from mlgo_corpus.cli.search import show_report
from mlgo_corpus.dataset.flips import SearchRow, iter_search_rows
from mlgo_corpus.dataset.tracetable import read_trace_rows
from mlgo_corpus.errors import MlgoCorpusError, ToolError, UsageError
from mlgo_corpus.formats.logs.tasks import find_task
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.formats.objects.folding import folding_classes
from mlgo_corpus.formats.objects.footprints import Exports, function_footprints, linked_footprints
from mlgo_corpus.formats.objects.symbols import WEAK, parse_symbols
from mlgo_corpus.policies.learned import LearnedPolicy
from mlgo_corpus.policies.models import Rule
from mlgo_corpus.policies.policy import is_learned, make_policy
from mlgo_corpus.runs.search import follow
from mlgo_corpus.runs.search.climb import Guide, Mixed, Moved, Outcome, draw_guides
from mlgo_corpus.runs.search.module import RoundJob, SearchSettings, _found_after, _ModuleSearch
from mlgo_corpus.runs.search.run import SearchReport, _Sums
from mlgo_corpus.runs.trace.run import LevelSizes
from tests.conftest import EMBED, Llvm, run_checked
from tests.handmade import files

pytestmark = pytest.mark.llvm

SHARED = """
#include <stddef.h>
template <class T> struct Stack {
  T *data = nullptr; size_t size = 0, room = 0;
  ~Stack() { delete[] data; }
  void grow(size_t wanted) {
    if (wanted <= room) return;
    room = wanted * 2; T *more = new T[room];
    for (size_t i = 0; i < size; ++i) more[i] = data[i];
    delete[] data; data = more;
  }
  void push(T value) { grow(size + 1); data[size++] = value; }
  T pop() { if (!size) throw 1; return data[--size]; }
  T top() const { if (!size) throw 2; return data[size - 1]; }
};
static int twice(int x) { return x * 2 + (x >> 3); }
static long mixed(long a, long b) { return twice(int(a)) * b - twice(int(b)) * a; }
"""
SOURCES = {
    "a": SHARED
    + """
int calculate(const int *in, int n) {
  Stack<int> s;
  for (int i = 0; i < n; ++i)
    if (in[i] == '+') s.push(s.pop() + s.pop());
    else if (in[i] == '*') s.push(twice(s.pop()) * s.pop());
    else s.push(in[i]);
  return s.top();
}
""",
    "b": SHARED
    + """
long fold(const long *in, int n) {
  Stack<long> s; Stack<int> t;
  for (int i = 0; i < n; ++i) { s.push(mixed(in[i], i)); t.push(int(in[i])); if (t.top() > 9) t.pop(); }
  long sum = 0;
  while (s.size) sum += mixed(s.pop(), twice(t.top()));
  return sum;
}
""",
    "plain": "int nothing;\n",
}


@pytest.fixture(scope="module")
def corpus(llvm22: Llvm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus_of(llvm22, tmp_path_factory.mktemp("search"))


def corpus_of(llvm: Llvm, folder: Path) -> Path:
    (folder / "objects").mkdir()
    for name, text in SOURCES.items():
        (folder / f"{name}.cpp").write_text(text)
        run_checked(llvm.clangxx, "-Oz", "-c", *EMBED, f"{name}.cpp", "-o", f"objects/{name}.o", cwd=folder)
    extract_corpus([folder / "objects"], folder / "corpus", jobs=1)
    return folder / "corpus"


@pytest.fixture(scope="module")
def cache(known: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return known(tmp_path_factory.mktemp("cache"), Llvm(22).clang)


@pytest.fixture(scope="module")
def search(llvm22: Llvm, corpus: Path, cache: Path) -> Callable[..., SearchReport]:
    def run(output: Path, **options: Any) -> SearchReport:
        usual = {"compiler": llvm22.clang, "cache": cache, "budget": 25, "objective": "linked"}
        return search_corpus(corpus, output, **{**usual, **options})

    return run


@pytest.fixture(scope="module")
def found(search: Callable[..., SearchReport], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SearchReport]:
    folder = tmp_path_factory.mktemp("found")
    return folder / "dataset", search(folder / "dataset", keep_objects=str(folder / "objects"))


Found = tuple[Path, SearchReport]
TELLS = "LLVM's headers are installed: a search that also tries inlining-3.0 usually finds more in C++"


def stable(dataset: Path) -> dict[str, Any]:
    """Give what does not depend on the clock."""
    kept: dict[str, Any] = {
        name: data for name, data in files(dataset).items() if name not in ("modules.parquet", "search.parquet")
    }
    for name in ("modules.parquet", "search.parquet"):
        table = pq.read_table(dataset / name)
        kept[name] = table.select([one for one in table.schema.names if not one.endswith(("_s", "rss_bytes"))])
    return kept


def test_what_is_found_is_smaller_and_its_objects_are_the_rows_own(found: Found) -> None:
    dataset, report = found
    rows = {row.module: row for row in read_trace_rows(dataset / "modules.parquet")}
    searches = {row.module: row for row in iter_search_rows(dataset / "search.parquet")}
    assert set(rows) == {"a.o", "b.o", "plain.o"}
    assert set(searches) == {"a.o", "b.o"}  # in the third, there is nothing to decide
    assert report.text_size == sum(row.text_size or 0 for row in rows.values()) < report.baseline_text_size
    assert report.objective_size < report.start_objective
    assert report.counts == {"ok": 3}
    for name, row in rows.items():
        assert sha256((dataset.parent / "objects" / name).read_bytes()).hexdigest() == row.object_sha256
    for name, one in searches.items():
        assert (one.text_size, one.baseline_text_size) == (rows[name].text_size, rows[name].baseline_text_size)
        assert one.compiles <= 25
        curve = [tuple(map(float, point.split(":"))) for point in one.found_after.split()]
        assert curve == sorted(curve, key=lambda point: (point[0], -point[1]))
        assert all(size != after for (_, size), (_, after) in itertools.pairwise(curve))
        assert curve[0] == (1, pytest.approx(one.baseline_objective))
    assert report.after[-1] == (max(row.compiles for row in searches.values()), report.objective_size)
    assert (report.compiles, report.flips) == tuple(
        sum(getattr(row, name) for row in searches.values()) for name in ("compiles", "flips")
    )


def test_the_query_that_is_shown_tells_what_was_saved(found: Found, capsys: pytest.CaptureFixture[str]) -> None:
    """Not the effects of flips: what policies and rules saved has no flip, and each effect is of its own state."""
    show_report(replace(found[1], output=Path("it's")))
    lines = capsys.readouterr().out.splitlines()
    query = "SELECT module, baseline_objective - objective AS saved FROM 'it''s/search.parquet' ORDER BY 2 DESC"
    assert lines.count(f"DuckDB: {query}") == 1
    saved = sum(row.baseline_objective - row.objective for row in iter_search_rows(found[0] / "search.parquet"))
    assert saved == pytest.approx(found[1].start_objective - found[1].objective_size)
    card = (found[0] / "README.md").read_text()
    assert "| `kept` | whether the best compile decides so, too, for any reason: the flip itself may have" in card


def test_what_is_shown_counts_alike_and_can_be_typed(
    found: Found, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my found").mkdir()
    (tmp_path / "my found/dataset.json").write_text(json.dumps({"also": ["inlining-3.0"]}))
    levels = (LevelSizes("z", modules=2, observations=30, text_size=150, baseline_text_size=200),)
    report = replace(found[1], output=Path("my found"), corpus=Path("my corpus"), levels=levels, undecided_text_size=20)
    show_report(report)
    lines = capsys.readouterr().out.splitlines()
    first = lines.index("text: 150 bytes, 200 by the plain compile (-25.00 %) in 2 modules at -Oz")
    assert lines[first + 1] == "nothing to decide: 20 bytes of text in 1 module, not counted above"
    whole = found[1]
    assert sum(one.text_size for one in whole.levels) + whole.undecided_text_size == whole.text_size
    trace = "mlgo-corpus trace 'my corpus' --policy 'my found' --keep-objects OBJECTS -o TRACED"
    assert lines[-3] == f"its objects, which relink makes the products of: {trace}"
    show_report(report, Path("my objects"))
    relink = "mlgo-corpus relink 'my corpus' --objects 'my objects' -o RELINKED"
    assert capsys.readouterr().out.splitlines()[-3] == f"the products of its objects: {relink}"
    wrap = "mlgo-corpus toolchain wrap --policy 'my found' --corpus 'my corpus' -o CLANG"
    assert lines[-2] == f"a clang that makes them in a build: {wrap}"
    # Sums in another order may differ in what is not shown.
    for after, told in (((10, 1364.3), (11, 1364.4)), False), (((10, 1364.3), (11, 1365.3)), True):
        show_report(replace(report, after=after))
        assert ("later rounds know which functions all objects keep" in capsys.readouterr().out) == told
    show_report(replace(report, decisions=0, levels=(), start_objective=0.0))
    assert capsys.readouterr().out.splitlines()[-1] == "nothing to decide: 20 bytes of text in 1 module"


def test_a_dataset_is_a_policy_that_gives_the_same_objects(
    llvm22: Llvm, corpus: Path, cache: Path, found: Found, tmp_path: Path
) -> None:
    dataset, report = found
    trace = trace_corpus(corpus, tmp_path / "again", policy=str(dataset), compiler=llvm22.clang, cache=cache)
    expected = {row.module: row for row in read_trace_rows(dataset / "modules.parquet")}
    for row in read_trace_rows(tmp_path / "again/modules.parquet"):
        assert (row.object_sha256, row.unmet, row.detail) == (expected[row.module].object_sha256, 0, "")
    assert trace.observations == report.decisions
    columns = pq.read_table(dataset / "observations")
    assert columns.equals(pq.read_table(tmp_path / "again/observations"))
    with Tracer(corpus, llvm22.clang, policy=str(dataset), cache=cache) as tracer:
        assert tracer.trace("a.o").row.object_sha256 == expected["a.o"].object_sha256


def test_what_a_dataset_does_not_have_is_counted_and_named(
    llvm22: Llvm, corpus: Path, cache: Path, search: Callable[..., SearchReport], tmp_path: Path
) -> None:
    search(tmp_path / "one", module_filter="^a", budget=3)
    report = trace_corpus(corpus, tmp_path / "t", policy=str(tmp_path / "one"), compiler=llvm22.clang, cache=cache)
    rows = {row.module: row for row in read_trace_rows(tmp_path / "t/modules.parquet")}
    assert rows["a.o"].unmet == 0
    assert rows["b.o"].unmet == rows["b.o"].observations > 5
    decisions = sum(row.observations for row in rows.values())
    assert any(
        hint.startswith(f"{rows['b.o'].unmet} of {decisions} decisions were not in the policy's dataset")
        for hint in report.hints
    )
    assert rows["b.o"].faithful  # LLVM's heuristic decided
    first = pq.read_table(tmp_path / "t/observations", filters=[("module", "=", "b.o")]).slice(0, 1).to_pylist()[0]
    assert rows["b.o"].detail == (
        f"{rows['b.o'].unmet} decisions not in the policy's dataset, first the call of {first['callee']} in "
        f"{first['caller']}"
    )


def test_a_dataset_of_another_task_or_compiler_is_refused(corpus: Path, cache: Path, found: Found) -> None:
    dataset, _ = found
    with pytest.raises(UsageError, match="not a policy for regalloc-eviction"):
        trace_corpus(corpus, dataset.parent / "no", task="regalloc-eviction", policy=str(dataset), cache=cache)
    broken = dataset.parent / "broken"
    broken.mkdir()
    (broken / "dataset.json").write_text("{}")
    with pytest.raises(UsageError, match="broken"):
        trace_corpus(corpus, dataset.parent / "no", policy=str(broken), cache=cache)
    assert not (dataset.parent / "no").exists()
    with pytest.raises(UsageError, match=r"/dataset: made by a search, not by a trace; name another folder"):
        trace_corpus(corpus, dataset, policy="never", cache=cache)


def test_the_effects_are_those_of_each_flip_alone(
    llvm22: Llvm, corpus: Path, cache: Path, search: Callable[..., SearchReport], tmp_path: Path
) -> None:
    """A second and last compile tries several flips; each is compiled alone, and its object measured."""
    dataset = tmp_path / "dataset"
    search(dataset, budget=2)
    flips = pq.read_table(dataset / "flips.parquet").to_pylist()
    tried = [flip for flip in flips if flip["compile"] == 2 and flip["calls"] == 1]
    assert len(tried) >= 4

    class Other:
        features = ("inlining_default",)

        def __init__(self, flip: dict[str, Any]) -> None:
            self.flip = {name: flip[name] for name in names if name in flip}
            self.met = 0

        def advise(self, observation: np.void) -> int:
            is_it = all(observation[name] == value for name, value in self.flip.items())
            self.met += is_it
            return int(observation["inlining_default"]) ^ int(is_it)

    names = [name for name in pq.read_schema(dataset / "flips.parquet").names if name not in ("compile", "others")]
    names = names[names.index("kept") + 1 :]
    right = Counter[bool]()
    with Tracer(corpus, llvm22.clang, cache=cache) as tracer:
        for flip in tried:
            policy = Other(flip)
            row = tracer.trace(flip["module"], policy=policy).row
            if policy.met == 1:  # else other calls have the same features
                right[(row.text_size or 0) - (row.baseline_text_size or 0) == flip["text_effect"]] += 1
    assert right[True] >= 3
    assert right[True] >= 3 * right[False]


CLASS = """
int touch(int);
static int more(int a) { int s = 0; for (int i = 0; i < a; ++i) s += touch(i) * touch(a + i); return s + touch(a - 9); }
struct One { int a; One(int); ~One(); };
One::One(int x) { a = more(x) + more(x - 1) * 3; }
One::~One() { touch(more(a)); }
"""


@pytest.mark.parametrize("target", ["x86_64-linux-gnu", "arm64-apple-macosx12"])
def test_effects_on_functions_whose_symbols_have_other_names(
    llvm22: Llvm, cache: Path, target: str, tmp_path: Path
) -> None:
    """Constructors have two symbols at one place, and Mach-O puts a ``_`` before each: their bytes count, too."""
    (tmp_path / "objects").mkdir()
    (tmp_path / "a.cpp").write_text(CLASS)
    options = (f"--target={target}", "-Oz", *EMBED, "-c", "a.cpp", "-o", "objects/a.o")
    run_checked(llvm22.clangxx, *options, cwd=tmp_path)
    extract_corpus([tmp_path / "objects"], tmp_path / "corpus", jobs=1)
    usual = {"compiler": llvm22.clang, "cache": cache, "objective": "text", "also": ()}
    search_corpus(tmp_path / "corpus", tmp_path / "found", budget=12, start="never", **usual)
    effects: dict[str, list[float]] = {}
    for flip in pq.read_table(tmp_path / "found/flips.parquet").to_pylist():
        effects.setdefault(flip["caller"], []).append(flip["text_effect"])
    assert effects.keys() >= {"_ZN3OneC2Ei", "_ZN3OneD2Ev"}
    assert all(one != 0 for some in effects.values() for one in some)


def test_linked_weighs_what_several_objects_hold(
    found: Found, search: Callable[..., SearchReport], tmp_path: Path
) -> None:
    """The objective is the text with one copy of each function that both objects hold, and 8 bytes to find it by.

    Or it is the mean of this and of what a linker makes that folds: with one copy of each of those that are alike.
    """
    dataset, report = found
    folding = search(tmp_path / "plain", budget=1, objective="folded", keep_objects=dataset.parent / "plain")
    objects = [(dataset.parent / "plain" / name).read_bytes() for name in ("a.o", "b.o")]
    held: Counter[str] = Counter()
    alike: Counter[int] = Counter()
    for data in objects:
        weak = {one.name for one in parse_symbols(data) if one.is_code and one.binding == WEAK}
        held.update(weak & function_footprints(data).keys())
        alike.update(number for name, number in folding_classes(data).items() if name in weak)
    assert max(held.values()) == 2 < max(alike.values())
    linked = folded = 0.0
    for name, data in zip(("a.o", "b.o"), objects, strict=True):
        text = int(run_checked("llvm-size-22", dataset.parent / "plain" / name).splitlines()[1].split()[0])
        linked, folded = linked + text, folded + text
        classes = folding_classes(data)
        for function, size in function_footprints(data).items():
            others = held.get(function, 1)
            copies = alike[classes[function]] if function in held and function in classes else others
            linked += 8 / others - size * (1 - 1 / others)
            folded += 8 / copies - size * (1 - 1 / copies)
    assert report.start_objective == pytest.approx(linked)
    assert folding.start_objective == pytest.approx((linked + folded) / 2)


@pytest.mark.parametrize("exports", [True, False])
def test_what_a_library_exports_counts(llvm22: Llvm, cache: Path, tmp_path: Path, exports: bool) -> None:
    (tmp_path / "a.cpp").write_text(CLASS)
    (tmp_path / "unlinked.cpp").write_text("int unlinked() { return 1; }\n")
    (tmp_path / "lib.map").write_text("{ local: *; };")
    link = "c++ -shared a.o -o lib.so" + " -Wl,--version-script=lib.map" * (not exports)
    script = f"cd {tmp_path}; c++ -Oz -fPIC -c a.cpp unlinked.cpp && {link}"
    build_corpus(("sh", "-c", script), tmp_path / "corpus", compiler=llvm22.clang, build_dir=tmp_path, stdout=2)
    usual = {"compiler": llvm22.clang, "cache": cache, "budget": 1, "also": ()}
    how: dict[str, Any] = {"module_filter": "^a", "keep_objects": tmp_path / "objects"}
    report = search_corpus(tmp_path / "corpus", tmp_path / "found", **how, **usual)
    _, entries = linked_footprints(
        (tmp_path / "objects/a.o").read_bytes(), exports=Exports.CALLS if exports else Exports.NOTHING
    )
    assert report.objective == "linked"
    assert (max(entries.values()) > 8) == exports
    assert report.start_objective == report.baseline_text_size + sum(entries.values())
    shown: list[tuple[int, ...]] = []
    every = search_corpus(tmp_path / "corpus", tmp_path / "every", **usual, progress=lambda *now: shown.append(now))
    # The compiles that tell who has a function count, too; here, they are half of all.
    assert [(done, failed, total) for done, failed, _, total in shown] == [(0, 0, 2), (1, 0, 2), (1, 0, 2), (2, 0, 2)]
    assert (every.searched, report.searched, report.hints) == (2, 1, every.hints[:1])
    assert every.hints[1:] == (
        "1 of 2 modules are in no program or shared library of the build, such as unlinked.o, and count all the same: "
        "`module_filter` or `modules_file` leaves them out",
    )


def test_the_same_seed_finds_the_same(
    search: Callable[..., SearchReport], found: Found, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With any number of jobs, and where nothing native can be had."""
    dataset, _ = found
    with monkeypatch.context() as patch:
        patch.setattr(follow, "native_library", lambda: None)
        search(tmp_path / "one", jobs=1)
    assert stable(tmp_path / "one") == stable(dataset)
    search(tmp_path / "other", seed=1)
    assert stable(tmp_path / "other")["flips.parquet"] != stable(dataset)["flips.parquet"]


def test_a_search_goes_on_from_another(search: Callable[..., SearchReport], found: Found, tmp_path: Path) -> None:
    dataset, first = found
    report = search(tmp_path / "more", start=str(dataset), seed=7, budget=10)
    assert report.start_objective == pytest.approx(first.objective_size)
    assert report.objective_size <= first.objective_size
    assert report.text_size <= first.text_size + 64


def test_a_search_begins_with_a_learned_policy(search: Callable[..., SearchReport], tmp_path: Path) -> None:
    names = ("cost_estimate", "cookies")
    for name in names:
        LearnedPolicy(f"{name}-1.0", "inlining", (TensorSpec(name),), Rule(20.0, (-1.0,))).save(tmp_path / name)
    report = search(tmp_path / "out", start=str(tmp_path / names[0]), budget=3)
    assert report.failed == 0
    with pytest.raises(MlgoCorpusError, match="needs the feature 'cookies', which this compiler does not send"):
        search(tmp_path / "none", start=str(tmp_path / names[1]), budget=3)


def test_what_begins_elsewhere_is_compared_with_llvm_s_own(search: Callable[..., SearchReport], tmp_path: Path) -> None:
    search(tmp_path / "out", start="never", budget=3, objective="text")
    modules, rows = (
        pq.read_table(tmp_path / "out" / name).to_pylist() for name in ("modules.parquet", "search.parquet")
    )
    plain = {row["module"]: row["baseline_text_size"] for row in modules}
    found = {row["module"]: dict(point.split(":") for point in row["found_after"].split()) for row in rows}
    smaller = [module for module, sizes in found.items() if plain[module] < int(sizes["1"])]
    assert smaller
    assert [int(found[module]["2"]) for module in smaller] == [plain[module] for module in smaller]


def test_other_policies_are_tried_where_they_decide(
    search: Callable[..., SearchReport], corpus: Path, llvm22: Llvm, cache: Path, tmp_path: Path
) -> None:
    """Of three compiles, the second one follows the first policy that decides in the module's language."""

    def sizes_after(count: int, name: str, **options: Any) -> dict[str, int]:
        report = search(tmp_path / name, budget=3, objective="text", **options)
        assert report.also == tuple(Path(one).name for one in options["also"])
        rows = pq.read_table(tmp_path / name / "search.parquet").to_pylist()
        curves = {row["module"]: dict(point.split(":") for point in row["found_after"].split()) for row in rows}
        return {module: int(curve.get(str(count), curve["1"])) for module, curve in curves.items()}

    policies = {language: tmp_path / f"for-{language}" for language in ("C++", "C")}
    for language, place in policies.items():
        rule = Rule(40.0, (-1.0,))
        LearnedPolicy("short-1.0", "inlining", (TensorSpec("cost_estimate"),), rule, languages=(language,)).save(place)
    trace_corpus(corpus, tmp_path / "traced", policy=str(policies["C++"]), compiler=llvm22.clang, cache=cache)
    traced = {row.module: row.text_size for row in read_trace_rows(tmp_path / "traced" / "modules.parquet")}
    none = sizes_after(2, "none", also=())
    tried = sizes_after(2, "tried", also=(str(policies["C"]), str(policies["C++"])))
    plain = sizes_after(1, "plain", also=())
    assert tried == {module: min(size, traced[module]) for module, size in plain.items()}
    assert tried != none
    assert sizes_after(2, "elsewhere", also=(str(policies["C"]),)) == none
    report = search(tmp_path / "packaged", budget=3, start=str(policies["C++"]), also=("default", str(policies["C++"])))
    assert report.also == ("default",)
    with pytest.raises(UsageError, match="also"):
        search(tmp_path / "packaged", budget=3, start=str(policies["C++"]), also=())


def test_a_policy_decides_as_in_a_trace_where_llvm_overwrites_what_it_decides_by(llvm19: Llvm, tmp_path: Path) -> None:
    corpus, policy = corpus_of(llvm19, tmp_path), tmp_path / "policy"
    rule = Rule(1.5, (-1.0,))  # as if there were no block, it inlines all
    LearnedPolicy("short-1.0", "inlining", (TensorSpec("callee_basic_block_count"),), rule).save(policy)
    usual: dict[str, Any] = {"compiler": llvm19.clang, "cache": tmp_path / "cache"}

    def sizes(dataset: Path) -> dict[str, int | None]:
        return {row.module: row.text_size for row in read_trace_rows(dataset / "modules.parquet")}

    for name in ("default", "always", str(policy)):
        trace_corpus(corpus, tmp_path / Path(name).name / "traced", policy=name, **usual)
    plain, always, traced = (sizes(tmp_path / name / "traced") for name in ("default", "always", "policy"))
    assert plain != traced != always
    start = search_corpus(corpus, tmp_path / "start", start=policy, also="default", budget=1, objective="text", **usual)
    assert (sizes(tmp_path / "start"), start.kept) == (traced, 0)
    # A policy is asked in a compile of its own before one follows it: both count.
    search_corpus(corpus, tmp_path / "also", also=policy, budget=4, objective="text", **usual)
    rows = pq.read_table(tmp_path / "also" / "search.parquet").to_pylist()
    third = {row["module"]: dict(point.split(":") for point in row["found_after"].split()).get("3") for row in rows}
    smaller = {module: str(size) for module, size in traced.items() if size < plain[module]}
    assert {module: size for module, size in third.items() if size is not None} == smaller != {}
    assert max(row["compiles"] for row in rows) == 4


def test_a_policy_that_cannot_be_tried_is_told(
    search: Callable[..., SearchReport], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that fails takes a compile, one that the compiler does not send enough for takes none."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "boompol.py").write_text("def bad(observation): raise RuntimeError('boom')\n")
    LearnedPolicy("cookies-1.0", "inlining", (TensorSpec("cookies"),), Rule(20.0, (-1.0,))).save(tmp_path / "cookies")
    also = (str(tmp_path / "cookies"), "boompol:bad")
    why = (
        "cookies: the policy needs the feature 'cookies', which this compiler does not send",
        "boompol:bad: the policy failed: RuntimeError: boom (boompol.py, line 1)",
    )
    hints = (TELLS, *(f"in 1 module a policy could not be tried: {one}" for one in why))
    options: dict[str, Any] = {"module_filter": r"^a\.o$", "objective": "text", "also": also, "budget": 4}
    assert search(tmp_path / "found", **options).hints == hints
    (row,) = iter_search_rows(tmp_path / "found" / "search.parquet")
    assert (row.compiles, row.untried) == (4, "\n".join(why))
    # The third compile follows a rule: it would follow the second policy if the first one had been compiled.
    assert [point.partition(":")[0] for point in row.found_after.split()] == ["1", "3"]
    assert search(tmp_path / "found", **options).hints == hints
    begun = search(tmp_path / "begun", start="boompol:bad", module_filter="a|plain", budget=1)
    assert begun.counts == {"policy_error": 1, "ok": 1}
    assert begun.problems[0] == ("a.o", "policy_error", why[1].removeprefix("boompol:bad: "))


def test_text_is_searched_in_rounds(search: Callable[..., SearchReport], tmp_path: Path) -> None:
    report = search(tmp_path / "out", objective="text", budget=48)
    assert report.objective_size == report.text_size < report.baseline_text_size
    assert set(pq.read_table(tmp_path / "out" / "search.parquet")["compiles"].to_pylist()) == {48}
    tried = set(pq.read_table(tmp_path / "out" / "flips.parquet", columns=["compile"])["compile"].to_pylist())
    # Rounds of 12, 12 and 24 compiles; the first one begins with six guides, and the others have what is left of them.
    assert {12, 48} <= tried
    assert tried.intersection(range(19, 25))
    assert tried.isdisjoint(range(1, 8))


def test_a_guide_that_is_left_out_would_repeat_a_compile(
    search: Callable[..., SearchReport], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repeats, told = _ModuleSearch.repeats, tmp_path / "told"
    compiled: dict[Guide, Outcome] = {}

    def check(self: _ModuleSearch, guide: Guide, outcome: Outcome) -> bool:
        if guide not in compiled:
            compiled[guide] = self.weigh(self.compile((), guide))
        repeated = repeats(self, guide, outcome)
        with told.open("a") as file:
            print(repeated, compiled[guide] == outcome._replace(compiles=1), file=file)
        return repeated

    monkeypatch.setattr(_ModuleSearch, "repeats", check)
    search(tmp_path / "out", budget=25, jobs=1, module_filter=r"^b\.o$")
    assert set(told.read_text().splitlines()) == {"True True", "False False"}


def test_a_round_reads_what_one_before_compiled(
    search: Callable[..., SearchReport], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read counts as no compile, so that as many others are made."""
    compiled, outcome = _ModuleSearch.compile, SearchSettings.outcome

    def compile_aloud(self: _ModuleSearch, *asked: Any) -> Any:
        note(f"{self._name} compiles\n")
        return compiled(self, *asked)

    def read_outcome(self: SearchSettings, number: int, module: str, asked: str) -> Path | None:
        place = outcome(self, number, module, asked)
        note(f"{module} reads\n" * (place is not None))
        return place

    def note(line: str) -> None:
        with (tmp_path / "notes").open("a") as file:
            file.write(line)

    monkeypatch.setattr(_ModuleSearch, "compile", compile_aloud)
    monkeypatch.setattr(SearchSettings, "outcome", read_outcome)
    assert search(tmp_path / "reads", budget=25).counts == {"ok": 3}
    notes = Counter((tmp_path / "notes").read_text().splitlines())
    # The second round begins with the best of the first one, and those of its six guides that decide otherwise.
    assert all(1 < notes[f"{name} reads"] <= 7 for name in ("a.o", "b.o"))
    made = {row.module: row.compiles for row in iter_search_rows(tmp_path / "reads" / "search.parquet")}
    assert made == {name: notes[f"{name} compiles"] for name in ("a.o", "b.o")} == {"a.o": 25, "b.o": 25}

    # To compile anew what is read gives the same.
    ask = RoundJob._compile

    def ask_again(job: RoundJob, asked_of: _ModuleSearch, module: str, begin: Any, *asked: Any) -> Any:
        outcome = ask(job, asked_of, module, begin, *asked)
        return outcome if outcome.compiles else asked_of.weigh(asked_of.compile(*asked))._replace(compiles=0)

    monkeypatch.setattr(RoundJob, "_compile", ask_again)
    assert search(tmp_path / "compiles", budget=25).counts == {"ok": 3}
    assert stable(tmp_path / "compiles") == stable(tmp_path / "reads")


def test_a_learned_policy_is_tried_with_other_thresholds(search: Callable[..., SearchReport], tmp_path: Path) -> None:
    """A rule inlines what costs less than a limit; with its threshold moved, the limit is another one."""
    rule = LearnedPolicy("rule-1.0", "inlining", (TensorSpec("cost_estimate"),), Rule(40.0, (-1.0,)))
    rule.save(tmp_path / "rule")
    task = find_task("inlining")
    for by in (0.0, 25.0, -3.0):
        moved = make_policy(str(tmp_path / "rule"), task, moved=by)
        costs = np.arange(30, 50)
        records = np.array([(cost,) for cost in costs], [("cost_estimate", np.int64)])
        assert [moved.advise(record) for record in records] == [int(40 - cost > by) for cost in costs]
    guides = draw_guides(25, random.Random(1), ["p"], ["p", "q"])
    mixed = [guide for guide in guides if isinstance(guide, Mixed)][:5]
    moves = [guide for guide in guides if isinstance(guide, Moved)]
    assert guides[: 6 + len(moves)] == ["p", *mixed, *moves]
    assert [(guide.seed, {one.policy for one in guide.among}) for guide in mixed] == [
        *((0, {"p"}), (1, {"q"}), (2, {"p"}), (3, {"q"}), (4, {"p"}))
    ]
    assert {guide.policy for guide in moves} == {"p", "q"}
    assert all(Moved(guide.policy, -guide.by) in moves for guide in moves[:8])
    named = {name: is_learned(name) for name in (str(tmp_path / "rule"), "inlining-1.0", "default", str(tmp_path))}
    assert list(named.values()) == [True, True, False, False]
    report = search(tmp_path / "out", start=str(tmp_path / "rule"), also=("default",), budget=25)
    assert report.counts == {"ok": 3}


def test_a_part_of_the_modules_is_weighed_as_all_are(search: Callable[..., SearchReport], tmp_path: Path) -> None:
    found = {}
    for name, options in (("all", {}), ("one", {"module_filter": r"^b\.o$"})):
        search(tmp_path / name, budget=1, **options)
        rows = iter_search_rows(tmp_path / name / "search.parquet")
        found[name] = {row.module: row.baseline_objective for row in rows}
    assert found["one"] == {"b.o": found["all"]["b.o"]}


@pytest.mark.parametrize(("budget", "failed", "compiles"), [(25, 1, 13), (48, 1, 36)], ids=["last", "middle"])
def test_a_round_that_fails_keeps_what_was_found(
    search: Callable[..., SearchReport], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    budget: int, failed: int, compiles: int,
) -> None:  # fmt: skip
    search_round = RoundJob.search
    monkeypatch.setattr(RoundJob, "search", lambda job, item: None if job.number == failed else search_round(job, item))
    report = search(tmp_path / "out", budget=budget)
    assert report.counts == {"ok": 3}
    sizes = {row.module: row.text_size for row in read_trace_rows(tmp_path / "out" / "modules.parquet")}
    rows = list(iter_search_rows(tmp_path / "out" / "search.parquet"))
    assert [(row.module, row.compiles, row.text_size) for row in rows] == [
        (name, compiles, sizes[name]) for name in ("a.o", "b.o")
    ]
    # Together: by what counts in the first round, one may lose what the other one gains.
    assert sum(row.objective for row in rows) < sum(row.baseline_objective for row in rows)
    assert all(row.kept for row in rows)
    assert pq.read_table(tmp_path / "out" / "flips.parquet").num_rows == sum(row.flips for row in rows) > 0


@pytest.mark.parametrize("error", [
    OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "remarks"), ToolError(("clang",), 1, "No space left on device")
])  # fmt: skip
def test_a_full_disk_is_no_flip_that_did_not_help(
    search: Callable[..., SearchReport], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    compile_one, compiles = _ModuleSearch._compile, itertools.count()

    def full(module: _ModuleSearch, plan: Any, guide: Any) -> Any:
        if next(compiles) == 2:
            raise error
        return compile_one(module, plan, guide)

    monkeypatch.setattr(_ModuleSearch, "_compile", full)
    options: dict[str, Any] = {"budget": 3, "objective": "text", "jobs": 1}
    if isinstance(error, OSError):
        with pytest.raises(MlgoCorpusError, match=r"^cannot write remarks: No space left on device$"):
            search(tmp_path / "out", **options)
        compiles = itertools.count()  # and so in a round that is not the last one
        with pytest.raises(MlgoCorpusError, match=r"^cannot write remarks: No space left on device$"):
            search(tmp_path / "rounds", budget=16, objective="linked", jobs=1)
        return
    search(tmp_path / "out", **options)
    rows = iter_search_rows(tmp_path / "out" / "search.parquet")
    assert [(row.module, row.compiles) for row in rows] == [("b.o", 3)]


def test_what_knows_who_is_called_is_named_where_it_can_decide(
    llvm22: Llvm, cache: Path, search: Callable[..., SearchReport], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In C++ alone, and by a compiler that can be extended."""
    (tmp_path / "objects").mkdir()
    (tmp_path / "c.c").write_text("static int f(int n) { return n * 3; }\nint g(int n) { return f(n); }\n")
    run_checked(llvm22.clang, "-Oz", "-c", *EMBED, "c.c", "-o", "objects/c.o", cwd=tmp_path)
    extract_corpus([tmp_path / "objects"], tmp_path / "c", jobs=1)
    options: dict[str, Any] = {"budget": 1, "also": ()}
    in_c = search_corpus(tmp_path / "c", tmp_path / "found", compiler=llvm22.clang, cache=cache, **options)
    assert (in_c.decisions, in_c.hints) == (1, ())
    options["module_filter"] = "^a"
    also = ("never", "inlining-1.0")
    room = "a budget of 3 compiles of each module leaves no room to try inlining-1.0"
    assert search(tmp_path / "room", **{**options, "budget": 3, "also": also}).hints == (room, TELLS)
    assert search(tmp_path / "all", **{**options, "budget": 4, "also": also}).hints == (TELLS,)
    assert search(tmp_path / "more", **options).hints == (TELLS,)
    monkeypatch.setattr("mlgo_corpus.runs.search.corpus.headers_of", lambda *_: None)
    assert search(tmp_path / "more", **options).hints == ()


def test_nothing_is_searched_twice(search: Callable[..., SearchReport], found: Found, tmp_path: Path) -> None:
    dataset, report = found
    before = files(dataset)
    again = search(dataset)
    assert again.unchanged
    assert (again.objective_size, again.after, again.flips) == (report.objective_size, report.after, report.flips)
    assert files(dataset) == before
    tells, hint = search(dataset, keep_objects=tmp_path / "late").hints
    assert tells == TELLS
    assert hint.endswith("the dataset was there already; a trace with this dataset as its policy makes them")
    goes_on = "`force` starts over, and a search into another folder goes on from it with `start`"
    with pytest.raises(UsageError, match=f": made in another way: budget was 25, is 26; {goes_on}$"):
        search(dataset, budget=26)


def test_killed_at_random_moments(search: Callable[..., SearchReport], found: Found, tmp_path: Path) -> None:
    generator = random.Random(5)
    for _ in range(4):
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            search(tmp_path / "out", jobs=2)
            os._exit(0)
        time.sleep(generator.uniform(0.1, 2.0))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    search(tmp_path / "out", jobs=2)
    assert stable(tmp_path / "out") == stable(found[0])
    assert sorted(os.listdir(tmp_path / "out")) == [
        "README.md", "contexts.parquet", "dataset.json", "flips.parquet", "modules.parquet", "observations",
        "search.parquet",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 0}, "budget"),
        ({"budget": 10**20}, "budget"),
        ({"time_limit": 0.0}, "more than 0 seconds"),
        ({"objective": "size"}, "expected one of text, linked"),
        ({"start": "nobody"}, "^start nobody: not a policy for inlining"),
        ({"also": ("default", "nobody")}, "^also nobody: not a policy for inlining"),
        ({"output": "x.parquet"}, "name one without .parquet"),
    ],
)
def test_wrong_requests(
    search: Callable[..., SearchReport], tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        search(tmp_path / options.pop("output", "out"), **options)
    assert os.listdir(tmp_path) == []


def test_dataset_json_says_how_it_was_made(found: Found) -> None:
    about = json.loads((found[0] / "dataset.json").read_text())
    assert (about["policy"], about["start"], about["objective"], about["budget"]) == ("search", "default", "linked", 25)
    card = (found[0] / "README.md").read_text()
    configs = ("flips", "search")  # of Hugging Face's datasets
    assert all(f'- config_name: {name}\n  data_files: "{name}.parquet"\n' in card for name in configs)
    assert "`flips.parquet` has a row for each other decision that was tried" in card
    assert "| `text_effect` |" in card
    assert "| `found_after` |" in card
    assert "| `callee` | string |" in card
    # Later rounds may weigh otherwise, so that the same size comes again.
    curve = ((1, 7956615.5), (2, 56012.5 + 1e-9), (13, 56012.5), (14, 4093 / 3), (20, 56012.5))
    assert _found_after(curve) == "1:7956615.5 2:56012.5 14:1364.33333333 20:56012.5"
    # Where later rounds weigh otherwise, what was smaller before is not what the search has by then.
    sums = _Sums()
    sums.add(SearchRow("a", 20, 0, 0, 1, 1, 7956615.5, 56012.5, _found_after(curve), 1.0))
    assert dict(sums.after()) == {10: 56012.5, 20: 56012.5}


def test_a_report_names_what_is_decided_otherwise(found: Found, tmp_path: Path) -> None:
    dataset, _ = found
    report_page([dataset], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    rows = pq.read_table(dataset / "observations").to_pylist()
    other = Counter(row["callee"] for row in rows if row["inlining_decision"] != row["inlining_default"])
    assert "decided most often otherwise than by LLVM" in page
    assert other.most_common(1)[0][0] in page
