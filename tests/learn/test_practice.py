"""Training on real compiles: evolution and gradients make programs smaller, and come to the same again."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from mlgo_corpus import TensorSpec, build_corpus, load_policy, trace_corpus, train_policy
from mlgo_corpus.cli.main import app
from mlgo_corpus.engine.choice import HERE
from mlgo_corpus.errors import UsageError
from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.formats.objects.footprints import function_footprints
from mlgo_corpus.learn.portrait import LINKAGE_TEXT, differences_of, importance_of
from mlgo_corpus.learn.shapes import clone, probabilities, shape_for
from mlgo_corpus.policies.learned import LearnedPolicy
from mlgo_corpus.policies.models import Network, Quantiles, Rule, Scaling
from mlgo_corpus.policies.seen import Seen
from mlgo_corpus.runs.rollouts.decide import Candidate
from mlgo_corpus.runs.rollouts.run import RolloutRequest, Rollouts
from mlgo_corpus.train import TrainReport
from tests.conftest import Llvm
from tests.handmade import files, put
from tests.learn.test_learning import build

FEATURES = (TensorSpec("a"), TensorSpec("b"), TensorSpec("c", "float"))
EDGES = Quantiles(np.array([0.0, 1.0, 1.0, 7.0]))
LAYERS = (
    (np.array([[0.1, -2.0], [0.7, 0.3], [1e-3, 5.0], [-1.0, 1.0]]), np.array([0.5, -0.25])),
    (np.array([[3.0], [-0.7]]), np.array([0.1])),
)


@pytest.mark.parametrize(
    "model",
    [
        Rule(0.1, (0.3, -0.7, 1.1)),
        Network((EDGES, None, Scaling(2.0, 0.3)), ((LAYERS[0][0][:3], LAYERS[0][1]), LAYERS[1])),
        Network((EDGES,), ((LAYERS[0][0][:2], LAYERS[0][1]), LAYERS[1]), squares=True),
    ],
)
def test_a_candidate_decides_as_the_policy_does(model: Rule | Network) -> None:
    features = FEATURES[: 1 if isinstance(model, Network) and model.squares else 3]
    generator = random.Random(1)
    # Other features are between its own, and in another order.
    header = LogHeader((TensorSpec("x", "float", (3,)), *reversed(FEATURES)), advice=TensorSpec("inlining_decision"))
    dtype = np.dtype(
        [(spec.name, spec.dtype, spec.shape if spec.element_count > 1 else ()) for spec in header.features]
    )
    records = np.zeros(300, dtype)
    records["a"], records["b"] = ([generator.randrange(-9, 40) for _ in records] for _ in "ab")
    records["c"] = [generator.uniform(-5, 5) for _ in records]
    scores = model.scores(np.column_stack([records[spec.name].astype(np.float64) for spec in features]))
    # A threshold that is one of the scores: one that is off by the last bit would decide otherwise.
    policy = LearnedPolicy(
        "t-1.0", "inlining", features, model, threshold=float(np.unique(scores)[len(set(scores)) // 2 - 1])
    )
    candidate = Candidate(policy)
    candidate.reset(header, "module")
    decided = [candidate.advise(record) for record in records]
    assert decided == policy.decide(records).tolist()
    assert 0 < sum(decided) < len(records)
    # Drawn decisions have the model's probabilities, and depend on the seed alone.
    drawn = {name: Candidate(policy, seed) for name, seed in (("first", "1"), ("again", "1"), ("other", "2"))}
    found = {}
    for name, one in drawn.items():
        one.reset(header, "module")
        found[name] = [one.advise(record) for record in records]
    assert found["first"] == found["again"] != found["other"]
    expected = probabilities(scores - policy.threshold)
    assert abs(sum(found["first"]) - expected.sum()) < 4 * np.sqrt((expected * (1 - expected)).sum())


@pytest.mark.parametrize("neurons", [0, 3])
def test_a_gradient_is_that_of_the_scores(neurons: int) -> None:
    generator = np.random.default_rng(neurons)
    inputs = generator.normal(size=(50, 4)) * [1.0, 10.0, 100.0, 1e4]
    shape = shape_for(inputs, neurons)
    prepared = shape.prepared(inputs)
    numbers, slopes = generator.normal(size=shape.size), generator.normal(size=50)
    gradient = shape.gradient(numbers, prepared, slopes)
    for place in range(shape.size):
        step = np.zeros(shape.size)
        step[place] = 1e-6
        ends = [shape.scores(numbers + sign * step, prepared) @ slopes for sign in (1, -1)]
        assert gradient[place] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4, abs=1e-6)
    # The model that is written has the same scores.
    assert shape.model(numbers).scores(inputs) == pytest.approx(shape.scores(numbers, prepared), rel=1e-9)


@pytest.mark.parametrize("neurons", [0, 4])
def test_the_first_model_decides_as_was_decided(neurons: int) -> None:
    inputs = np.random.default_rng(0).integers(-40, 60, (500, 3)).astype(np.float64)
    decisions = (inputs[:, 0] + inputs[:, 1] < 20).astype(np.int64)
    shape = shape_for(inputs, neurons)
    numbers = clone(shape, inputs, decisions, np.ones(500), 0.1, seed=0)
    decided = shape.scores(numbers, shape.prepared(inputs)) > 0
    assert (decided == decisions).mean() > 0.95
    # It leaves about as much open as it was asked to.
    likely = probabilities(shape.scores(numbers, shape.prepared(inputs)))
    assert np.abs(likely - 0.5).max() < 0.5
    assert 0.03 < np.minimum(likely, 1 - likely).mean() < 0.25


def test_what_two_trainings_have_seen_is_joined() -> None:
    first = Seen.of([1 << 40, 2 << 40], [np.array([4, 5], np.uint64)], 8)
    second = Seen.of([2 << 40, 3 << 40], [np.array([6], np.uint64)], 8)
    both = first.joined(second)
    assert both.bodies.tolist() == [1 << 24, 2 << 24, 3 << 24]
    assert both.modules.tolist() == sorted([*first.modules.tolist(), *second.modules.tolist()])
    assert len(both.modules) == 2
    many = Seen.of(range(0, 5000 << 20, 1 << 20), [], 8)
    assert len(many.joined(first).bodies) == len(many.bodies)
    assert many.joined(first).below <= many.below


class _StopError(Exception):
    """What ends training in the middle."""


class Ground:
    """Programs to train on, and their corpora."""

    def __init__(self, folder: Path, llvm: Llvm) -> None:
        self.folder, self.compiler, self.cache = folder, llvm.clang, folder / "cache"
        self.corpus = build(folder / "known", range(10, 12), llvm, "-fvisibility=hidden")
        self.others = build(folder / "others", range(1), llvm, "-fvisibility=hidden")

    def train(self, name: str, algorithm: str, *, data: object = (), **options: object) -> TrainReport:
        """Train."""
        usual = {"corpora": [self.corpus], "compiler": self.compiler, "cache": self.cache, "algorithm": algorithm}
        return train_policy(data, self.folder / name, **{**usual, **options})  # type: ignore[arg-type]

    def change(self, policy: str, corpus: Path) -> float:
        """Return what a policy makes of what a corpus adds to what is linked."""
        return self.linked(str(self.folder / policy), corpus) / self.linked("default", corpus) - 1

    def linked(self, policy: str, corpus: Path) -> int:
        """Return the bytes of text of a corpus's objects by a policy, and 8 to find each function by."""
        output = self.folder / f"trace-{Path(policy).name}-{corpus.parent.name}"
        objects = output.with_name(f"objects-{output.name}")
        usual = {"compiler": self.compiler, "cache": self.cache, "names": False}
        report = trace_corpus(corpus, output, policy=policy, keep_objects=objects, force=True, **usual)
        made = [path.read_bytes() for path in objects.rglob("*.o")]
        return report.text_size + 8 * sum(len(function_footprints(data)) for data in made)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory, llvm22: Llvm) -> Ground:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CC", raising=False)
        patch.delenv("CXX", raising=False)
        return Ground(tmp_path_factory.mktemp("ground"), llvm22)


def test_evolution_makes_programs_smaller(ground: Ground) -> None:
    report = ground.train("es", "es", neurons=0, budget=28, jobs=2)
    first, best = report.curve[0], min(report.curve, key=lambda point: point.score)
    assert (first.compiles, first.changes) == (0, (0.0,))
    assert best.changes[0] < -0.1
    # The curve tells what any compile by the policy gives; these objects have no functions in common.
    assert ground.change("es", ground.corpus) == pytest.approx(best.changes[0], abs=1e-9)
    assert ground.change("es", ground.others) < -0.1


def test_gradients_make_programs_smaller(ground: Ground) -> None:
    told: list[str] = []
    report = ground.train("pg", "pg", neurons=4, budget=60, seed=1, jobs=2, announce=told.append)
    best = min(report.curve, key=lambda point: point.score)
    assert best.changes[0] < -0.02
    assert ground.change("pg", ground.corpus) == pytest.approx(best.changes[0], abs=1e-9)
    assert told[0].startswith("up to 120 compiles of 2 modules, ")
    points = [line.partition(":")[0] for line in told[1:]]
    assert points == [f"after {point.compiles} compiles" for point in report.curve]
    metrics = json.loads((ground.folder / "pg/metrics.json").read_text())
    kept = [tuple(point["changes"]) for point in metrics["curve"]["points"]]
    assert kept == [point.changes for point in report.curve]
    assert metrics["curve"]["measure"] == report.measure == "weighed objects"
    assert "\n\nText of the weighed objects of the training corpora," in (ground.folder / "pg/README.md").read_text()
    assert metrics["differences"]["decisions"] == report.decisions


def test_a_link_in_place_of_the_work_folder_is_refused(ground: Ground) -> None:
    put(ground.folder / "precious/file", b"kept")
    (ground.folder / "linked.searches").mkdir()
    (ground.folder / "linked.searches/pg").symlink_to("../precious")
    with pytest.raises(UsageError, match=r"/linked\.searches/pg: cannot write there: a symbolic link"):
        ground.train("linked", "pg", budget=2)
    assert files(ground.folder / "precious") == {"file": b"kept"}


def test_training_goes_on_after_an_interruption_and_comes_to_the_same_bytes(ground: Ground) -> None:
    data = ground.folder / "data"
    trace_corpus(ground.others, data, policy="random:0.5", compiler=ground.compiler, cache=ground.cache)
    usual: dict[str, object] = {"neurons": 2, "budget": 12, "data": [data], "validation": [ground.others]}
    report = ground.train("whole", "pg", jobs=2, **usual)
    assert [one.modules for one in report.data] == [1]
    known = "all that it has is what it learns from: watch a project that the policy does not know"
    assert f"{ground.others}: {known}" in report.hints

    def interrupt(what: str, done: int, total: int, note: str) -> None:
        if (what, done) == ("pg", 18):
            raise _StopError

    with pytest.raises(_StopError):
        ground.train("again", "pg", jobs=1, progress=interrupt, **usual)
    assert not (ground.folder / "again").exists()
    work = ground.folder / "again.searches/pg"
    assert [path.name for path in work.glob("step-*.json")] == ["step-00001.json"]
    ground.train("again", "pg", jobs=1, **usual)
    assert files(ground.folder / "again") == files(ground.folder / "whole")
    steps = {path: path.stat().st_mtime_ns for path in work.glob("*.json") if path.name != "key.json"}
    ground.train("again", "pg", jobs=1, force=True, **usual)
    assert {path: path.stat().st_mtime_ns for path in steps} == steps


def test_evolution_learns_eviction(llvm22: Llvm, tmp_path: Path) -> None:
    # Much is alive at once, so that registers have to be taken from others.
    generator, values = random.Random(0), range(16)
    body = "".join(f"long v{n} = p[{generator.randrange(40)}] * q[{n}];" for n in values) + "use();"
    for number in values:
        first, second = generator.sample(values, 2)
        body += f"p[{number}] = v{first} ^ (v{second} << {number % 5 + 1});" + "use();" * (number % 5 == 0)
    text = f"void use(void);\nvoid f(long *p, long *q, int n) {{ for (int i = 0; i < n; i++) {{ {body} }} }}\n"
    (tmp_path / "a.c").write_text(text)
    clang = ("sh", "-c", f"cd {tmp_path} && cc -Oz -c a.c")
    build_corpus(clang, tmp_path / "corpus", compiler=llvm22.clang, stdout=2)
    report = train_policy(
        (),
        tmp_path / "policy",
        task="regalloc-eviction",
        algorithm="es",
        corpora=[tmp_path / "corpus"],
        budget=24,
        compiler=llvm22.clang,
        cache=tmp_path / "cache",
    )
    best = min(report.curve, key=lambda point: point.score)
    assert (report.name, report.task) == ("regalloc-eviction-0.1", "regalloc-eviction")
    assert best.changes < report.curve[0].changes
    traced = trace_corpus(
        tmp_path / "corpus",
        tmp_path / "traced",
        task="regalloc-eviction",
        policy=str(tmp_path / "policy"),
        compiler=llvm22.clang,
        cache=tmp_path / "cache",
    )
    assert traced.text_size / traced.baseline_text_size - 1 == pytest.approx(best.changes[0], abs=1e-9)


def test_what_a_validation_corpus_does_not_tell_is_told(ground: Ground) -> None:
    """A policy that has learned C++ leaves modules of C to LLVM, in training as in use."""
    source = ground.folder / "a.c"
    inlined = "static int f{0}(int x) {{ return g(x, {0}) * 77 + g(x * 5, x) - {0}; }}"
    lines = ["int g(int, int);", *map(inlined.format, range(6))]
    source.write_text("\n".join((*lines, *(f"int h{n}(int x) {{ return f{n}(x) + f{n}(x + 3); }}" for n in range(6)))))
    (ground.folder / "b.c").write_text("int only(int x) { return x; }\n")
    (ground.folder / "c.c").write_text(
        "int g(int);\nstatic int f(int x) { return g(x); }\nint h(int x) { return f(x); }"
    )
    for name in "abc":
        script = f"cd {ground.folder} && cc -Oz -c {name}.c"
        build_corpus(("sh", "-c", script), ground.folder / f"in-{name}", compiler=ground.compiler, stdout=2)
    report = ground.train("watched", "es", neurons=0, budget=16, validation=[ground.folder / "in-a"])
    assert {point.changes for point in report.curve} == {(0.0,)}
    assert report.measure == "objects"
    assert report.hints == (
        "no step did better than the policy that training began with, which is the result: raise `budget`",
        f"{ground.folder / 'in-a'}: the policy changes nothing in it: watch a project in C++",
    )
    assert load_policy(ground.folder / "watched").languages == ("C++",)
    for budget in (1, 5):
        said = rf"^budget {budget}: is less than one step takes: expected at least 6$"
        with pytest.raises(UsageError, match=said):
            ground.train("nothing", "pg", neurons=2, budget=budget)
    with pytest.raises(UsageError, match=r"^corpus: all that is decided in it is alike: there is nothing to learn$"):
        ground.train("nothing", "es", corpora=[ground.folder / "in-c"])
    with pytest.raises(UsageError, match=r"in-b: there is nothing to decide in it$"):
        ground.train("nothing", "es", neurons=0, budget=16, validation=[ground.others, ground.folder / "in-b"])
    assert [path.name for path in ground.folder.glob("nothing*")] == []


@pytest.mark.usefixtures("plain_terminal")
def test_what_is_missing_is_named(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["train", "--output", str(ground.folder / "new"), "--algorithm", "es"]
    for more, said in ((["--corpus", str(ground.corpus)], "pip install 'mlgo-corpus[learn]'"), ([], "--corpus")):
        monkeypatch.setitem(sys.modules, "cma", None)
        done = CliRunner().invoke(app, [*words, *more])
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
        assert said in done.stderr
    assert not (ground.folder / "new").exists()
    assert load_policy(ground.folder / "es").kind == "rule"


def test_what_a_policy_goes_by_and_where_it_differs_are_counted() -> None:
    states = {
        "cost_estimate": np.array([-10, 5, 20, 40, 60, 80]),
        "callee_users": np.array([1, 1, 1, 9, 9, 9]),
        "constant": np.zeros(6, np.int64),
        "inlining_default": np.array([1, 1, 0, 0, 0, 1]),
    }
    features = tuple(TensorSpec(name) for name in ("cost_estimate", "constant"))
    policy = LearnedPolicy("t-1.0", "inlining", features, Rule(30.0, (-1.0, 5.0)))
    assert importance_of(policy, states) == {"cost_estimate": 1.0}
    found = differences_of(policy, states)
    # It inlines the first three; LLVM also does so with the last, and not with the third.
    assert (found["decisions"], found["llvm"], found["policy"], found["differ"]) == (6, 0.5, 0.5, 0.3333)
    assert found["by"]["callee_users"] == [
        {"low": 1.0, "high": 1.0, "decisions": 3, "llvm": 0.6667, "policy": 1.0, "differ": 0.3333},
        {"low": 9.0, "high": 9.0, "decisions": 3, "llvm": 0.3333, "policy": 0.0, "differ": 0.3333},
    ]
    assert sum(one["decisions"] for one in found["by"]["cost_estimate"]) == 6
    assert differences_of(policy, {name: states[name] for name in ("cost_estimate", "constant")}) == {}
    linkages = np.array(["internal", "internal", "", "linkonce_odr", "linkonce_odr", "linkonce_odr"])
    assert differences_of(policy, {**states, LINKAGE_TEXT: linkages})["by"]["callee_linkage"] == [
        {"value": "internal", "decisions": 2, "llvm": 1.0, "policy": 1.0, "differ": 0.0},
        {"value": "linkonce_odr", "decisions": 3, "llvm": 0.3333, "policy": 0.0, "differ": 0.3333},
    ]


@pytest.mark.llvm
def test_modules_of_one_name_in_two_corpora_are_weighed_apart(llvm22: Llvm, tmp_path: Path) -> None:
    common = "__attribute__((noinline)) inline int common(int x) { return x * x * 7 + x / 3; }\n"
    corpora = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        for one in "ab":
            (folder / f"{one}.cpp").write_text(f"{common}int {one}() {{ return common({name == 'one':d}); }}")
        compiled = "for p in a b; do c++ -Oz -fPIC -fvisibility=hidden -c $p.cpp; done"
        script = f"cd {folder}; {compiled}; c++ -shared -o lib.so a.o b.o"
        build_corpus(("sh", "-c", script), folder / "corpus", compiler=llvm22.clang, build_dir=folder, stdout=2)
        corpora.append(folder / "corpus")
    surveys = []
    for number, chosen in enumerate((corpora[:1], corpora[1:], corpora)):
        work = tmp_path / f"work-{number}"
        request = RolloutRequest(compiler=llvm22.clang)
        rollouts = Rollouts(chosen, request, work, linked=True, jobs=1, cache=tmp_path / "cache", engine=HERE)
        outcomes = rollouts.survey()
        surveys.append([one.objective for one in outcomes])
        assert all(one.objective < one.text_size for one in outcomes)  # half of `common` is each one's
    assert surveys[2] == surveys[0] + surveys[1]
    assert surveys[0] != surveys[1]
