"""The whole chain on programs of which the best decisions are known: search, train, evaluate on others."""

from __future__ import annotations

import json
import random
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from mlgo_corpus import (
    build_corpus,
    evaluate_corpus,
    extract_corpus,
    load_policy,
    pack_corpus,
    search_corpus,
    trace_corpus,
    train_policy,
)
from mlgo_corpus.cli.main import app
from mlgo_corpus.corpus.select import ModuleChoice
from mlgo_corpus.dataset.tracetable import iter_trace_rows
from mlgo_corpus.errors import CorpusError, MlgoCorpusError, UsageError
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.learn.boosting import BoostingOptions, fit_trees
from mlgo_corpus.learn.examples import DataFacts, Examples, read_examples
from mlgo_corpus.learn.tuning import Tried, best_of
from mlgo_corpus.policies.learned import LearnedPolicy
from mlgo_corpus.policies.models import Rule
from mlgo_corpus.policies.seen import Seen
from mlgo_corpus.runs.evaluate.sums import EvaluationReport
from mlgo_corpus.train import TrainReport, _hints
from tests.conftest import EMBED, Llvm, run_checked
from tests.handmade import files, put

pytestmark = pytest.mark.llvm
pytest.importorskip("lightgbm", reason="training needs LightGBM")


def program(seed: int) -> str:
    """Return functions that are called once, which to inline saves the call, and others that are called often."""
    generator = random.Random(seed)

    def terms(count: int) -> str:
        return "; ".join(f"x = (x {generator.choice('*+^')} {generator.randrange(3, 9999)}) - y" for _ in range(count))

    lines, uses = ["extern int sink(int, int);"], []
    for number in range(10):
        lines.append(f"inline int once{seed}_{number}(int x, int y) {{ {terms(4)}; return sink(x, y); }}")
        uses.append(f"v += once{seed}_{number}(v, {number});")
    for number in range(3):
        lines.append(f"inline int often{seed}_{number}(int x, int y) {{ {terms(9)}; return sink(x, y) + sink(y, x); }}")
        uses += [f"v ^= often{seed}_{number}(v, {5 * number + use});" for use in range(5)]
    generator.shuffle(uses)
    return "\n".join((*lines, f"int run{seed}(int v) {{ {' '.join(uses)} return v; }}", ""))


def build(folder: Path, seeds: Sequence[int], llvm: Llvm, flags: str = "") -> Path:
    """Build a library of some programs, and return its corpus."""
    folder.mkdir()
    for seed in seeds:
        (folder / f"p{seed}.cpp").write_text(program(seed))
    names = " ".join(f"p{seed}" for seed in seeds)
    script = f"cd {folder}; for p in {names}; do c++ -Oz -fPIC {flags} -c $p.cpp; done; c++ -shared -o lib.so *.o"
    build_corpus(("sh", "-c", script), folder / "corpus", compiler=llvm.clang, stdout=2)
    return folder / "corpus"


class Chain:
    """What the steps left."""

    def __init__(self, folder: Path, llvm: Llvm) -> None:
        self.folder, self.compiler, self.cache = folder, llvm.clang, folder / "cache"
        self.known = build(folder / "known", range(3), llvm)
        self.others = build(folder / "others", range(10, 12), llvm)
        self.found = folder / "found"
        usual = {"compiler": self.compiler, "cache": self.cache}
        self.search = search_corpus(self.known, self.found, budget=12, also=(), **usual)
        self.trained = self.train("policy")

    def train(self, name: str, **options: object) -> TrainReport:
        """Train."""
        return train_policy([self.found], self.folder / name, cache=self.cache, **options)  # type: ignore[arg-type]

    def evaluate(self, corpus: Path, name: str, *policies: str, **options: object) -> EvaluationReport:
        """Evaluate."""
        usual = {"compiler": self.compiler, "cache": self.cache, "policies": policies}
        return evaluate_corpus(corpus, self.folder / name, **{**usual, **options})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory, llvm22: Llvm) -> Iterator[Chain]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CC", raising=False)
        patch.delenv("CXX", raising=False)
        yield Chain(tmp_path_factory.mktemp("chain"), llvm22)


def test_a_policy_makes_programs_smaller_that_it_has_never_seen(chain: Chain) -> None:
    policy = str(chain.folder / "policy")
    report = chain.evaluate(chain.others, "evaluation", "default", policy, "never")
    default, learned, never = report.policies
    assert (report.exit_code, report.modules) == (0, 2)
    assert [one.policy for one in report.policies] == ["default", "policy", "never"]
    assert (default.objects.size, default.grew, default.objects.interval) == (default.objects.baseline, 0, (0.0, 0.0))
    assert (learned.objects.modules, learned.grew, learned.trained) == (2, 0, None)
    assert learned.objects.size < 0.95 * learned.objects.baseline
    rows = pq.read_table(chain.folder / "evaluation/evaluation.parquet").to_pylist()
    traced = trace_corpus(
        chain.others, chain.folder / "again", policy=policy, compiler=chain.compiler, cache=chain.cache
    )
    assert sum(row["text_size"] for row in rows if row["policy"] == "policy") == traced.text_size
    assert learned.objects.size == traced.text_size < never.objects.size
    # It is as good as a search of these programs themselves.
    own = search_corpus(
        chain.others, chain.folder / "own", budget=12, also=(), compiler=chain.compiler, cache=chain.cache, jobs=2
    )
    assert learned.objects.size == own.text_size
    products = pq.read_table(chain.folder / "evaluation/products.parquet").to_pylist()
    assert [(row["policy"], row["link"], Path(row["product"]).name) for row in products] == [
        (policy, link, "lib.so") for policy in ("default", "policy", "never") for link in ("linked", "folded")
    ]
    linked = {row["policy"]: (row["text_size"], row["baseline_text_size"]) for row in products[::2]}
    assert linked["default"][0] == linked["default"][1] == linked["policy"][1]
    assert linked["policy"][0] < linked["policy"][1]
    assert [one.sizes.size for one in learned.products][:1] == [linked["policy"][0]]

    again = chain.evaluate(chain.others, "evaluation", "default", policy, "never")
    assert again.unchanged
    assert again.policies == report.policies
    with pytest.raises(UsageError, match=r"policies was default, policy \(\w{8}\), never, is default; `force`"):
        chain.evaluate(chain.others, "evaluation", "default")


def test_a_link_in_place_of_the_work_folder_is_refused(chain: Chain) -> None:
    put(chain.folder / "precious/file", b"kept")
    (chain.folder / "linked").mkdir()
    (chain.folder / "linked/.mlgo-corpus").symlink_to("../precious")
    with pytest.raises(UsageError, match=r"/linked/\.mlgo-corpus: cannot write there: a symbolic link"):
        chain.evaluate(chain.others, "linked", "never")
    assert files(chain.folder / "precious") == {"file": b"kept"}


def test_a_policy_that_fails_everywhere_leaves_the_others_their_sizes(chain: Chain) -> None:
    needs = LearnedPolicy("cookies-1.0", "inlining", (TensorSpec("cookies"),), Rule(1.0, (1.0,)))
    needs.save(chain.folder / "cookies")
    place = str(chain.folder / "cookies")
    report = chain.evaluate(chain.others, "one-fails", place, "never", link=False)
    failing, never = report.policies
    assert (report.exit_code, failing.failed, failing.objects.modules) == (1, 2, 0)
    assert (never.failed, never.objects.modules) == (0, 2)
    rows = pq.read_table(chain.folder / "one-fails/evaluation.parquet").to_pylist()
    assert [(row["policy"], Path(row["module"]).name, row["reason"]) for row in rows[:2]] == [
        ("cookies", "p10.o", "policy_error"), ("cookies", "p11.o", "policy_error"),
    ]  # fmt: skip
    assert "needs the feature 'cookies', which this compiler does not send" in rows[0]["detail"]
    assert chain.evaluate(chain.others, "one-fails", place, "never", link=False).policies == report.policies
    needs.save(chain.folder / "biscuits")
    with pytest.raises(MlgoCorpusError, match=r"^cookies: not one of 2 modules could be traced \(policy_error 2\)"):
        chain.evaluate(chain.others, "both-fail", place, str(chain.folder / "biscuits"), link=False)


def test_products_are_compared_with_those_of_plain_objects(chain: Chain, llvm22: Llvm, tmp_path: Path) -> None:
    corpus = build(tmp_path / "build", range(20, 22), llvm22)
    (by_build,) = chain.evaluate(corpus, "whole", "always").policies
    (tmp_path / "build/p20.o").write_bytes(b"another one")  # its product cannot be linked with flags again
    report = chain.evaluate(corpus, "lone", "always")
    assert (report.exit_code, report.problems, report.policies[0].products) == (0, (), by_build.products)
    assert all(row.sizes.size != row.sizes.baseline for row in by_build.products)
    # A driver that compiles and links in one step leaves no object.
    (tmp_path / "build/whole").mkdir()
    command = ("c++", "-Oz", "-fPIC", "-shared", *(str(tmp_path / f"build/p{number}.cpp") for number in (20, 21)))
    build_corpus((*command, "-o", str(tmp_path / "lib.so")), tmp_path / "corpus", compiler=llvm22.clang, stdout=2)
    report = chain.evaluate(tmp_path / "corpus", "one-step", "always")
    (by_step,) = report.policies
    assert (report.exit_code, report.problems) == (0, ())
    assert [(row.link, row.sizes) for row in by_step.products] == [(row.link, row.sizes) for row in by_build.products]


def test_products_are_compared_with_those_that_are_compiled_alike(chain: Chain) -> None:
    """The build's own objects are others if options are changed, and so they are if its clang was another one."""
    report = chain.evaluate(chain.others, "edited", "default", add_flags=["-ffunction-sections"])
    (edited,) = report.policies
    (built,) = chain.evaluate(chain.others, "as-built", "default").policies
    assert [one.sizes.change for one in (*edited.products, *built.products)] == [0.0] * 4
    assert edited.products[1].sizes.size != built.products[1].sizes.size  # aligned otherwise
    assert report.hints == ()


def test_a_tree_that_is_mended_is_linked_again(chain: Chain, llvm22: Llvm, tmp_path: Path) -> None:
    (tmp_path / "p.cpp").write_text(program(30))
    (tmp_path / "x.s").write_text(".data\nx: .long 1\n")
    script = f"cd {tmp_path}; c++ -Oz -fPIC -c p.cpp; cc -c x.s; c++ -shared -o lib.so p.o x.o"
    build_corpus(("sh", "-c", script), tmp_path / "corpus", compiler=llvm22.clang, stdout=2)
    evaluate = partial(chain.evaluate, tmp_path / "corpus", "mended", "always")
    for break_it in (Path.unlink, partial(Path.write_bytes, data=b"another one")):
        assembled = (tmp_path / "x.o").read_bytes()
        break_it(tmp_path / "x.o")
        for _ in range(2):  # what was found before is not the last word
            report = evaluate()
            assert (report.exit_code, report.unchanged) == (1, False)
            assert [(one.link, one.failed) for one in report.policies[0].products] == [("linked", 1), ("folded", 1)]
            assert report.hints == (
                "the build's tree is not as the build left it: build it again (mlgo-corpus build), then repeat this",
            )
        (tmp_path / "x.o").write_bytes(assembled)
        report = evaluate()
        assert (report.exit_code, report.unchanged, report.hints) == (0, False, ())
        assert [(one.link, one.failed) for one in report.policies[0].products] == [("linked", 0), ("folded", 0)]
        again = evaluate()
        assert (again.unchanged, again.hints) == (True, report.hints)
        shutil.rmtree(chain.folder / "mended")


def test_one_policy_and_one_dataset_need_no_list(chain: Chain) -> None:
    report = train_policy(str(chain.found), chain.folder / "alone", cache=chain.cache, languages="C++")
    assert load_policy(report.output).digest == chain.trained.digest
    numbers: Any = {"trees": np.int64(5), "seed": np.int32(0), "threshold": np.float32(0.5), "leaves": np.int8(7)}
    train_policy(chain.found, chain.folder / "few", cache=chain.cache, **numbers)
    how: dict[str, Any] = {"compiler": chain.compiler, "cache": chain.cache, "link": False}
    (found,) = evaluate_corpus(chain.others, chain.folder / "alone-sizes", policies=report.output, **how).policies
    assert (found.policy, found.objects.modules) == ("alone", 2)
    wrong: Any
    for wrong in ([print], print):
        with pytest.raises(
            UsageError, match=r"policy: expected a name, such as module:attribute, found print; a Tracer"
        ):
            evaluate_corpus(chain.others, chain.folder / "no", policies=wrong, **how)


def in_c(dataset: Path, copy: Path) -> Path:
    """Return a copy of a dataset that says that its modules are of C."""
    shutil.copytree(dataset, copy)
    table = pq.read_table(copy / "modules.parquet")
    argv = [[re.sub(r"\.cpp$", ".c", word) for word in words] for words in table["argv"].to_pylist()]
    at = table.column_names.index("argv")
    pq.write_table(table.set_column(at, table.field(at), [argv]), copy / "modules.parquet")
    return copy


def test_datasets_of_other_languages_are_left_out(chain: Chain) -> None:
    c_only = in_c(chain.found, chain.folder / "found-c")
    report = train_policy([c_only, chain.found], chain.folder / "no-c", cache=chain.cache, languages="C++")
    assert load_policy(report.output).digest == chain.trained.digest
    assert files(report.output)["metrics.json"] == files(chain.folder / "policy")["metrics.json"]
    # With both, their functions are of one project still.
    one, both = (read_examples(data, jobs=1).seen for data in ([chain.found], [c_only, chain.found]))
    assert len(one.bodies) == 3 * 14
    assert both.bodies.tolist() == one.bodies.tolist()


def test_hints_name_the_policy_that_they_are_of(chain: Chain) -> None:
    only_c = replace(load_policy(chain.folder / "policy"), languages=("C",))
    only_c.save(chain.folder / "only-c")
    said = "the policy decides in C only: modules of other languages are compiled as without it"
    for names, hint in (((), said), (("never",), f"only-c: {said}")):
        report = chain.evaluate(chain.others, f"hints-{len(names)}", str(chain.folder / "only-c"), *names, link=False)
        assert report.hints == (hint,)


def test_a_policy_of_the_language_is_not_said_to_be_of_another(chain: Chain, llvm22: Llvm, tmp_path: Path) -> None:
    """Where nothing is called, either."""
    (tmp_path / "leaf.cpp").write_text("int leaf(int n) { return n * 3; }\n")
    run_checked(llvm22.clang, "-Oz", *EMBED, "-c", "leaf.cpp", cwd=tmp_path)
    extract_corpus([tmp_path], tmp_path / "corpus", jobs=1)
    for language, hints in (("C++", 0), ("C", 1)):
        replace(load_policy(chain.folder / "policy"), languages=(language,)).save(tmp_path / language)
        how: dict[str, Any] = {"policy": str(tmp_path / language), "compiler": chain.compiler, "cache": chain.cache}
        traced = trace_corpus(tmp_path / "corpus", tmp_path / f"traced-{hints}", **how)
        assert (traced.undecided, len(traced.hints)) == (1, hints)


def test_a_damaged_evaluation_is_made_again(chain: Chain) -> None:
    (first,) = chain.evaluate(chain.others, "damaged", "never").policies
    for name in ("evaluation.parquet", "products.parquet"):
        table = chain.folder / "damaged" / name
        whole = table.read_bytes()
        table.write_bytes(whole[: len(whole) // 2])
        again = chain.evaluate(chain.others, "damaged", "never")
        (sizes,) = again.policies
        assert (again.unchanged, sizes.objects, sizes.products) == (False, first.objects, first.products)
        assert chain.evaluate(chain.others, "damaged", "never").unchanged


def test_products_with_the_build_s_own_objects_are_told_and_not_compared(chain: Chain) -> None:
    some = chain.evaluate(chain.others, "some", "never", choice=ModuleChoice(module_filter="p11"))
    assert some.hints == (
        "1 of 1 product not compared, as objects in them are the build's own: their modules were not chosen, not "
        "compiled, are not in this corpus, or were joined unseen",
    )
    told = [(one.failed, one.partial, one.sizes.modules) for one in some.policies[0].products]
    assert (some.exit_code, told) == (0, [(0, 1, 0)] * 2)
    products = pq.read_table(chain.folder / "some" / "products.parquet", filters=[("link", "=", "linked")])
    assert sum(products["missing"].to_pylist()) == 1


def test_a_product_of_objects_that_were_joined_unseen_is_not_compared(
    chain: Chain, llvm22: Llvm, tmp_path: Path
) -> None:
    for seed in (1, 2):
        (tmp_path / f"p{seed}.cpp").write_text(program(seed))
    join = f"{shutil.which('ld')} -r -o both.o p1.o p2.o"
    script = f"cd {tmp_path}; c++ -Oz -fPIC -c p1.cpp p2.cpp; {join}; c++ -shared -o lib.so both.o"
    build_corpus(("sh", "-c", script), tmp_path / "corpus", compiler=llvm22.clang, stdout=2)
    report = chain.evaluate(tmp_path / "corpus", "joined", "never")
    assert [(one.failed, one.partial, one.sizes.modules) for one in report.policies[0].products] == [(0, 1, 0)] * 2
    products = pq.read_table(chain.folder / "joined" / "products.parquet", filters=[("link", "=", "linked")])
    assert products["missing"].to_pylist() == [2]


def test_a_module_that_cannot_be_compiled_leaves_its_product_compared(chain: Chain) -> None:
    """The product has the build's object of it, whoever decides about the others."""
    corpus = shutil.copytree(chain.others, chain.folder / "with-a-damaged-module")
    module = min(corpus.rglob("*.bc"))
    module.write_bytes(module.read_bytes()[:1000])
    report = chain.evaluate(corpus, "with-a-damaged-module-sizes", "never")
    told = [(one.failed, one.partial, one.sizes.modules) for one in report.policies[0].products]
    assert (report.policies[0].failed, told) == (1, [(0, 0, 1)] * 2)


def test_modules_that_not_all_policies_were_measured_on_are_told(chain: Chain) -> None:
    some = Path(shutil.copytree(chain.others, chain.folder / "others-lacking"))
    next(some.rglob("p11.o.bc")).unlink()
    report = chain.evaluate(some, "in-no-sum", "default", "never", link=False)
    assert report.hints == ("1 module in no sum of objects, as not all policies were measured there",)
    assert [(one.failed, one.objects.modules) for one in report.policies] == [(1, 1)] * 2


def test_a_policy_is_evaluated_once_however_it_is_named(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(chain.folder)
    names = (str(chain.folder / "policy"), "./policy", "policy/")
    (learned,) = chain.evaluate(chain.others, "once", *names, link=False).policies
    assert learned.objects.modules == 2


def test_what_was_trained_on_is_not_in_the_headline(chain: Chain) -> None:
    report = chain.evaluate(chain.known, "seen", str(chain.folder / "policy"), link=False)
    (learned,) = report.policies
    assert (learned.objects.modules, learned.median, learned.products) == (0, None, ())
    assert report.hints == ("a policy was trained on all of these modules: evaluate a project that it has not seen",)
    assert learned.trained is not None
    assert learned.trained.modules == 3
    assert learned.trained.size < learned.trained.baseline
    lacking = Path(shutil.copytree(chain.known, chain.folder / "lacking"))
    next(lacking.rglob("p1.o.bc")).unlink()
    report = chain.evaluate(lacking, "seen-lacking", str(chain.folder / "policy"), link=False)
    assert (report.exit_code, [reason for _, reason, _ in report.problems], report.hints) == (1, ["missing_file"], ())
    # By their functions alone, and by the modules' digests alone.
    policy = load_policy(chain.folder / "policy")
    for missing in ("modules", "bodies"):
        one = type(policy)(
            **{name: getattr(policy, name) for name in ("name", "task", "features", "model", "threshold")},
            training={"seen": {**policy.training["seen"], missing: ""}},
        )
        one.save(chain.folder / f"without-{missing}")
        place = str(chain.folder / f"without-{missing}")
        (learned,) = chain.evaluate(chain.known, f"seen-without-{missing}", place, link=False).policies
        assert (learned.objects.modules, learned.trained and learned.trained.modules) == (0, 3)


def test_bitcode_that_was_moved_is_known_by_its_digest(chain: Chain) -> None:
    rows = [row for row in iter_trace_rows(chain.found / "modules.parquet") if row.bitcode_sha256]
    there = read_examples([chain.found], jobs=1)
    away = chain.known.rename(chain.folder / "moved")
    try:
        examples = read_examples([chain.found], jobs=1)
        pack_corpus(away, chain.known)  # as if it had been searched there: the commands are the same
        packed = read_examples([chain.found], jobs=1)
    finally:
        shutil.rmtree(chain.known)
        away.rename(chain.known)
    assert (packed.data[0].bodies_known, packed.linkages) == (3, there.linkages)
    assert packed.seen.as_json() == there.seen.as_json()
    none = np.zeros(0, np.uint64), np.zeros(0, np.int32)
    assert (examples.data[0].bodies_known, len(rows)) == (0, 3)
    assert [examples.seen.share(*none, row.bitcode_sha256) for row in rows] == [1, 1, 1]


def test_modules_that_can_hardly_be_recognised_are_told() -> None:
    nothing = np.zeros(0)
    for modules, more in ((65_535, ""), (70_000, ", and of 65536 modules at most")):
        facts = DataFacts("c", "", modules, modules, 1, 0.0, 0.0, 0, ("C",))
        seen = Seen.of([], [], 8, (f"{number:012x}" for number in range(modules)))
        hint, _ = _hints(Examples((), nothing, nothing.astype(np.int64), nothing, (facts,), seen), ())
        assert hint == (
            f"the bitcode of {modules} modules is not where the dataset says that it was: an evaluation can recognise "
            f"only exact copies of it{more}"
        )


def test_the_same_data_give_the_same_bytes(chain: Chain) -> None:
    first = files(chain.folder / "policy")
    assert sorted(first) == ["README.md", "metrics.json", "model.npz", "policy.json"]
    assert sum(map(len, first.values())) == chain.trained.bytes < 300_000
    chain.train("same", jobs=2)
    assert files(chain.folder / "same") == first
    assert chain.train("other-1.2", seed=1).name == "other-1.2"
    assert chain.trained.name == "inlining-0.1"
    assert files(chain.folder / "other-1.2")["model.npz"] != first["model.npz"]
    told = json.loads(first["policy.json"])["training"]
    assert json.loads(first["policy.json"])["languages"] == ["C++"] == list(chain.trained.languages)
    assert [(one["modules"], one["decisions"]) for one in told["data"]] == [(3, chain.trained.decisions)]
    assert not {"node_count", "edge_count", "inlining_default"} & set(chain.trained.features)
    (linkage,) = json.loads(first["metrics.json"])["differences"]["by"]["callee_linkage"]
    assert (linkage["value"], linkage["decisions"]) == ("linkonce_odr", chain.trained.decisions)
    assert (chain.trained.data[0].flips, chain.trained.data[0].bodies_known) == (chain.search.flips, 3)


@pytest.mark.parametrize(
    ("column", "kind", "said"),
    [
        ("effect", None, "expected a column 'effect', found none"),
        ("cost_estimate", None, "expected a column 'cost_estimate', found none"),
        ("effect", pa.string(), "column effect: expected numbers, found string"),
        ("calls", pa.string(), "column calls: "),
        ("calls", pa.dictionary(pa.int32(), pa.string()), "found/flips.parquet: cannot be read: "),
    ],
)
def test_flips_of_anybody_s_are_checked(
    chain: Chain, tmp_path: Path, column: str, kind: pa.DataType | None, said: str
) -> None:
    dataset = shutil.copytree(chain.found, tmp_path / "found")
    flips = pq.read_table(dataset / "flips.parquet")
    place = flips.schema.get_field_index(column)
    other = flips.remove_column(place)
    if kind is not None:
        other = flips.set_column(place, column, flips[column].cast(pa.string()).cast(kind))
    pq.write_table(other, dataset / "flips.parquet")
    with pytest.raises(CorpusError, match=re.escape(said)):
        train_policy([dataset], tmp_path / "policy")


def test_flips_whose_effect_is_not_known_say_nothing(chain: Chain, tmp_path: Path) -> None:
    dataset = shutil.copytree(chain.found, tmp_path / "found")
    flips = pq.read_table(dataset / "flips.parquet")
    place = flips.schema.get_field_index("effect")
    effects = pa.array([float("nan"), float("inf")] * len(flips))[: len(flips)]
    pq.write_table(flips.set_column(place, "effect", effects), dataset / "flips.parquet")
    hints = train_policy(dataset, tmp_path / "policy", trees=2).hints
    assert any(hint.startswith("no dataset has flips") for hint in hints), hints


def test_a_decision_is_to_inline_or_not(chain: Chain, tmp_path: Path) -> None:
    dataset = shutil.copytree(chain.found, tmp_path / "found")
    (part,) = (dataset / "observations").iterdir()
    table = pq.read_table(part)
    place = table.schema.get_field_index("inlining_decision")
    decided = pa.chunked_array([[*table["inlining_decision"].to_pylist()[:-1], 7]], table.schema.field(place).type)
    pq.write_table(table.set_column(place, table.schema.field(place), decided), part)
    with pytest.raises(CorpusError, match=r"/found: column inlining_decision: expected 0 or 1, found 7$"):
        train_policy(dataset, tmp_path / "policy")


def test_many_trees_learn_no_more_than_some() -> None:
    rates = {trees: BoostingOptions.of(trees, 23, 0).rate for trees in (1, 120, 160, 180, 300, 900)}
    assert rates == {1: 0.05, 120: 0.05, 160: 0.05, 180: 0.05, 300: 0.03, 900: 0.01}


def test_few_examples_teach_too() -> None:
    """Four tenths of two examples are none."""
    features = (TensorSpec("cost_estimate", "int64_t", port=0, shape=(1,)),)
    for count in (2, 3, 10):
        inputs, decisions = np.arange(count, dtype=np.float64)[:, None], np.arange(count) % 2
        examples = Examples(features, inputs, decisions, np.ones(count), (), Seen.of([], [], 1, []))
        assert fit_trees(examples, BoostingOptions(5, 2)).trees.scores(inputs).shape == (count,)


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ({0.65: -0.05, 0.5: -0.1, 0.35: -0.1005, 0.25: -0.1009}, 0.5),
        ({0.65: -0.05, 0.5: -0.1, 0.35: -0.1005, 0.25: -0.1011}, 0.35),
        ({0.65: 0.02, 0.5: 0.01, 0.35: 0.03}, 0.5),
        ({0.65: 0.0, 0.5: 0.0, 0.35: 0.01}, 0.5),
        ({0.65: -0.1, 0.5: -0.05, 0.35: -0.1, 0.25: -0.1}, 0.65),
    ],
)
def test_of_thresholds_that_are_alike_that_next_to_one_half_is_taken(scores: dict[float, float], best: float) -> None:
    tried = [Tried(probability, (score if score < 0 else score / 4,)) for probability, score in scores.items()]
    assert best_of(tried).probability == best


def test_a_threshold_is_tuned_on_real_sizes(chain: Chain) -> None:
    said: list[str] = []
    how = {"compiler": chain.compiler, "jobs": 2, "announce": said.append}
    report = chain.train("tuned", validation=[chain.others], **how)
    assert len(said) == 1
    assert re.fullmatch(r"up to 10 compiles after fitting: about \d+ s, 2 at a time", said[0])
    best = best_of(report.validation)
    assert report.probability == best.probability
    assert best.changes[0] < 0
    (learned,) = chain.evaluate(chain.others, "tuned-sizes", str(chain.folder / "tuned")).policies
    changes = [learned.objects.change, *(product.sizes.change for product in learned.products)]
    assert len(changes) == 3
    assert best.changes == (sum(changes) / 3,)
    assert not any("in the data" in hint for hint in report.hints)


def test_tuning_on_what_was_learned_is_told(chain: Chain, llvm22: Llvm) -> None:
    mixed = build(chain.folder / "mixed", (0, 10), llvm22)
    only_c = in_c(chain.found, chain.folder / "found-in-c")
    how: dict[str, Any] = {"cache": chain.cache, "compiler": chain.compiler, "validation": [chain.known, mixed]}
    report = train_policy(only_c, chain.folder / "tuned-on-known", **how)
    other = "the policy decides in C only: modules of other languages are compiled as without it"
    assert report.hints == (
        f"{chain.known}: all that it has is in the data: tune on a project that the policy does not know",
        f"{chain.known}: {other}",
        f"{mixed}: 1 of 2 modules are in the data, and are left out of tuning",
        f"{mixed}: {other}",
        *(f"{one}: the policy changes nothing in it, and it tells nothing of a threshold" for one in how["validation"]),
    )


def test_corpora_of_one_name_are_told_apart(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(chain.others)
    how: dict[str, Any] = {"compiler": chain.compiler, "cache": chain.cache}
    report = train_policy(chain.found, chain.folder / "two", validation=[chain.known, "."], **how)
    names = json.loads((report.output / "metrics.json").read_text())["validation"]["corpora"]
    assert names == ["known/corpus", "others/corpus"]
    assert "| threshold | `known/corpus` | `others/corpus` |" in (report.output / "README.md").read_text()
    search_corpus(".", chain.folder / "here", budget=1, also=(), **how)
    assert json.loads((chain.folder / "here/dataset.json").read_text())["corpus"] == "corpus"


def test_a_round_searches_from_the_policy_s_own_decisions(chain: Chain) -> None:
    said: list[str] = []
    how = {"compiler": chain.compiler, "announce": said.append}
    idle = chain.folder / "idle/corpus"
    put(chain.folder / "idle/a.cpp", b"int only(int x) { return x; }")
    script = f"cd {idle.parent} && c++ -Oz -c a.cpp"
    build_corpus(("sh", "-c", script), idle, compiler=chain.compiler, stdout=2)
    report = chain.train("round", corpora=[chain.known, idle], budget=4, **how)
    assert [line.partition(" after")[0] for line in said] == ["up to 16 compiles"]
    assert f"{idle}: LLVM had nothing to decide in it" in report.hints
    place = chain.folder / "round.searches/round-1"
    assert files(place / "policy")["model.npz"] == files(chain.folder / "policy")["model.npz"]
    dataset = place / "1-corpus"
    # The dataset of a project in which there was nothing to decide stops nobody.
    empty = place / "2-corpus"
    both = train_policy([chain.found, empty], chain.folder / "with-idle", cache=chain.cache)
    assert (both.digest, both.hints[-1]) == (chain.trained.digest, f"{empty}: LLVM had nothing to decide in it")
    with pytest.raises(UsageError, match=r"^data: the datasets have no decisions$"):
        train_policy(empty, chain.folder / "of-idle", cache=chain.cache)
    found = ("search", str(idle), "--output", str(chain.folder / "idle/found"), "--start", str(empty), "--budget", "1")
    done = CliRunner().invoke(app, [*found, "--compiler", chain.compiler])
    assert (done.exit_code, "learn a policy from it" in done.stdout) == (0, False)
    # The search of the round takes the place of the one before.
    assert [one.decisions for one in report.data] == [pq.read_table(dataset / "observations").num_rows]
    # The policy had nothing left to learn here: its decisions are where the search began, and where it ended.
    searches = pq.read_table(dataset / "search.parquet")
    assert searches["baseline_text_size"].to_pylist() == searches["text_size"].to_pylist()
    assert sum(searches["text_size"].to_pylist()) == chain.search.text_size
    made = (dataset / "search.parquet").stat().st_mtime_ns
    chain.train("round", corpora=[chain.known, idle], budget=4, force=True, **how)
    assert (dataset / "search.parquet").stat().st_mtime_ns == made
    shutil.copytree(chain.folder / "round.searches", chain.folder / "shorter.searches")
    shorter = partial(chain.train, "shorter", corpora=[chain.known], budget=1, **how)
    with pytest.raises(UsageError, match="budget was 4, is 1"):
        shorter()
    shorter(force=True)
    table = chain.folder / "shorter.searches/round-1/1-corpus/search.parquet"
    assert pq.read_table(table)["compiles"].to_pylist() == [1, 1, 1]
    pq.write_table(pq.read_table(table).select(["module"]), table)
    shorter(force=True)
    assert pq.read_table(table)["compiles"].to_pylist() == [1, 1, 1]
    (learned,) = chain.evaluate(chain.others, "round-sizes", str(chain.folder / "round"), link=False).policies
    (before,) = chain.evaluate(chain.others, "before-sizes", str(chain.folder / "policy"), link=False).policies
    assert learned.objects == before.objects


def test_force_keeps_an_interrupted_search(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    forced: list[bool] = []

    def lost(*_: object, force: bool = False, **__: object) -> None:
        forced.append(force)
        raise UsageError("no Ray cluster answers there")

    monkeypatch.setattr("mlgo_corpus.train.run_search", lost)
    with pytest.raises(UsageError, match=r"^no Ray cluster answers there$"):
        chain.train("lost", corpora=[chain.known], budget=1, compiler=chain.compiler, force=True)
    assert forced == [False]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--output", "{policy}"], "policy: is there already; --force replaces it"),
        (["--output", "{found}"], "found: is not empty, and has no policy.json; name another folder"),
        (["{found}", "--output", "{new}"], "DATA: a dataset is named twice, and would count twice"),
        (["--output", "{new}", "--name", "a/b"], "--name: expected letters, digits and ._+-, found 'a/b'"),
        (["--output", "{new}", "--budget", "9"], "--budget 9: expected a corpus to compile, too"),
        (["--output", "{new}", "--corpus", "{known}", "--compiler", "gcc"], "gcc: not a clang"),
        (["--output", "{new}", "--threshold", "1"], "--threshold"),
        (["--output", "{new}", "--language", "C"], "the datasets have no decisions in these languages"),
        (["--output", "{new}", "--language", "Cobol"], "--language Cobol: expected one of C, C++, "),
        (["--output", "{new}", "--validation", "{new}"], "new"),
        (["--output", "{new}", "--rounds", "2"], "--rounds: requires --corpus"),
        (["--output", "{new}", "--neurons", "3"], "--neurons: imitation has none"),
        (
            ["--output", "{new}", "--compiler", "clang"],
            "--compiler: requires --corpus or --validation: nothing else is",
        ),
        (["--output", "{new}", "--timeout", "5"], "--timeout: requires --corpus or --validation"),
        (["--output", "{new}", "--ray-address", "here:1"], "--ray-address: requires --corpus or --validation"),
        (["--output", "{new}", "--algorithm", "pg", "--trees", "9"], "--trees: pg has none"),
        (["--output", "{new}", "--corpus", "{known}", "--corpus", "{known}/"], "--corpus: a corpus is named twice"),
    ],
)
def test_errors_are_one_line(chain: Chain, words: list[str], said: str) -> None:
    places = {name: chain.folder / name for name in ("policy", "new")} | {"found": chain.found, "known": chain.known}
    done = CliRunner().invoke(app, ["train", str(chain.found), *(word.format(**places) for word in words)])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr
    assert not list(chain.folder.glob("new*"))


_BEGINS_AGAIN = "nothing is kept, and the same command begins again"
_CONTINUES = "finished work is kept, and the same command continues from there"
_STARTS_OVER = "finished work is kept: without --force the command continues, unless another result is there"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([], _BEGINS_AGAIN),
        (["--force"], _BEGINS_AGAIN),
        (["--corpus", "{known}"], _CONTINUES),
        (["--corpus", "{known}", "--force"], _STARTS_OVER),
    ],
)
def test_an_interruption_says_what_is_kept(
    chain: Chain, monkeypatch: pytest.MonkeyPatch, more: list[str], said: str
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mlgo_corpus.train.train_policy", interrupted)
    words = ["train", str(chain.found), "--output", str(chain.folder / "new"), *more]
    done = CliRunner().invoke(app, [word.format(known=chain.known) for word in words])
    assert (done.exit_code, done.stderr) == (130, f"mlgo-corpus: interrupted; {said}\n")


def test_a_missing_library_is_named(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    done = CliRunner().invoke(app, ["train", str(chain.found), "--output", str(chain.folder / "new")])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "pip install 'mlgo-corpus[learn]'" in done.stderr


@pytest.mark.usefixtures("plain_terminal")
def test_what_the_verbs_show(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLGO_CORPUS_CACHE", str(chain.cache))
    done = CliRunner().invoke(app, ["train", str(chain.found), "--output", str(chain.folder / "shown")])
    assert done.exit_code == 0
    assert "inlines what is better inlined with a probability of more than 0.5" in done.stdout
    words = ["evaluate", str(chain.others), "--policy", str(chain.folder / "shown"), "--compiler", chain.compiler]
    done = CliRunner().invoke(app, [*words, "--output", str(chain.folder / "shown-sizes"), "--no-link"])
    assert done.exit_code == 0
    (row,) = [line.split() for line in done.stdout.splitlines() if line.startswith("shown ")]
    assert row[:3] == ["shown", "objects", "2"]
    again = CliRunner().invoke(app, [*words, "--output", str(chain.folder / "shown-sizes"), "--no-link", "--json"])
    objects = json.loads(again.stdout)["policies"][0]["objects"]
    assert [str(objects[name]) for name in ("size", "baseline")] == row[3:5]
