"""Environments: what a trace of the same decisions has, for Gymnasium; and no compiler outlives one."""

from __future__ import annotations

import gc
import importlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from mlgo_corpus import (
    EvictionEnv,
    InliningEnv,
    ModuleChoice,
    PriorityEnv,
    Tracer,
    extract_corpus,
    load_policy,
    trace_corpus,
)
from mlgo_corpus.compilers.failures import RunFailure
from mlgo_corpus.dataset.reasons import RunReason
from mlgo_corpus.errors import CorpusError, MlgoCorpusError, UsageError
from mlgo_corpus.runs.trace.baseline import PlainCompile
from tests.conftest import EMBED, PACKAGE_ROOT, Llvm, run_checked
from tests.processes import alive, every_process, told_of

pytestmark = pytest.mark.llvm

SHARED = """
extern int sink(int, int);
inline int shared(int x, int y) { x = x * 5 ^ y; x += y * 3; for (int i = 0; i < y; i++) x ^= sink(x, i); return x; }
inline int mine(int x) { return sink(x, x * 3) + sink(x ^ 7, 2) + sink(x, x); }
static int twice(int x) { return x * 2 + (x >> 3); }
"""
LOADS = "".join(f"int a{n} = p[{n}];" for n in range(24))
STORES = "".join(f"q[{n}] = a{n} * a{(n + 7) % 24} + a{(n * 5) % 24};" for n in range(24))
SOURCES = {
    "one": f"int one(int x) {{ return shared(x, 3) + shared(twice(x), x) + twice(x + 1); }}"
    f"void press(const int *p, int *q) {{ {LOADS} for (int i = 0; i < 9; i++) {{ {STORES} }} }}",
    "two": "int two(int x) { return shared(x, 9) * twice(x) + twice(mine(x) ^ x) + mine(twice(x)); }",
    "plain": "int nothing;",
}
FLAGS = ("-Oz", "-fno-exceptions", "-fno-asynchronous-unwind-tables", *EMBED)
KINDS = {"inlining": InliningEnv, "regalloc-eviction": EvictionEnv, "regalloc-priority": PriorityEnv}


@pytest.fixture(scope="module")
def corpus(llvm22: Llvm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environments")
    (folder / "objects").mkdir()
    for name, text in SOURCES.items():
        (folder / f"{name}.cpp").write_text(SHARED + text)
        run_checked(llvm22.clangxx, *FLAGS, "-c", f"{name}.cpp", "-o", f"objects/{name}.o", cwd=folder)
    extract_corpus([folder / "objects"], folder / "corpus", jobs=1)
    return folder / "corpus"


@pytest.fixture(scope="module")
def make(known: Callable[..., Path], corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    cache = known(tmp_path_factory.mktemp("cache"), Llvm(22).clang)
    return partial(make_one, str(corpus), Llvm(22).clang, str(cache))


def make_one(corpus: str, compiler: str, cache: str, kind: Any = InliningEnv, **options: Any) -> Any:
    return kind(corpus, compiler, cache=cache, **options)


@pytest.fixture
def env(make: Callable[..., Any]) -> Iterator[InliningEnv]:
    with closing(make()) as made:
        yield made


Step = tuple[np.ndarray, Any, dict[str, Any]]


def episode(
    env: Any, module: str, decide: Callable[[np.ndarray, dict[str, Any]], Any]
) -> tuple[list[Step], float, Any]:
    """Run an episode; return its steps, its reward, and the last info."""
    observation, info = env.reset(options={"module": module})
    steps: list[Step] = []
    while True:
        action = decide(observation, info)
        steps.append((observation, action, info))
        observation, reward, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            assert not observation.any()
            return steps, reward, info
        assert reward == 0


def compilers(corpus: Path) -> list[int]:
    """List the compilers that read a corpus."""
    words = {pid: told_of(pid, "cmdline") for pid in every_process()}
    folder = os.fsencode(f"{corpus}/")
    return [pid for pid, told in words.items() if b"-cc1" in told and folder in told and alive(pid)]


def ends(corpus: Path) -> bool:
    """Wait until no compiler is left."""
    end = time.monotonic() + 30
    while compilers(corpus) and time.monotonic() < end:
        time.sleep(0.01)
    return not compilers(corpus)


@pytest.mark.parametrize("kind", KINDS)
def test_gymnasium_finds_nothing_wrong(kind: str, make: Callable[..., Any]) -> None:
    name = KINDS[kind].__name__.removesuffix("Env")
    arguments = dict(zip(("corpus", "compiler", "cache"), make.args, strict=True))
    where = "" if kind == "inlining" else "mlgo_corpus.environments:"
    made = gymnasium.make(f"{where}mlgo-corpus/{name}-v0", **arguments, choice=ModuleChoice(module_filter="one"))
    assert type(made.unwrapped) is KINDS[kind]
    check_env(made.unwrapped)  # a warning is an error here
    made.close()
    made.close()


@pytest.mark.parametrize("kind", KINDS)
def test_an_episode_is_a_trace_of_the_same_decisions(
    kind: str, llvm22: Llvm, corpus: Path, make: Callable[..., Any], known: Callable[..., Path], tmp_path: Path
) -> None:
    generator = random.Random(3)
    decided: list[Any] = []

    def decide(observation: np.ndarray, info: dict[str, Any]) -> Any:
        if kind == "inlining":
            decided.append(generator.randrange(2))
            return decided[-1]
        if kind == "regalloc-eviction":
            mask = observation[made.places["mask"]]
            assert (mask == info["action_mask"]).all()
            decided.append(generator.choice(np.flatnonzero(mask).tolist()))
            return decided[-1]
        decided.append(generator.randrange(1 << 24))
        return np.array([decided[-1] / (1 << 24)], np.float32)

    with closing(make(KINDS[kind])) as made:
        steps, reward, last = episode(made, "one.o", decide)
        assert len(steps) == len(decided) > 2
        names = [spec.name for spec in made.features]
    cache = known(tmp_path / "cache", llvm22.clang)  # one that does not know the environment's plain compile
    with Tracer(corpus, llvm22.clang, task=kind, policy=lambda _: 1 // 0, cache=cache) as tracer:
        answers = iter(decided)
        traced = tracer.trace("one.o", policy=lambda _: next(answers), log=True)
    row, batch = traced.row, traced.observations
    assert (row.reward, row.observations) == (reward, len(decided))
    assert (last["text_size"], last["baseline_text_size"]) == (row.text_size, row.baseline_text_size)
    assert last["object_sha256"] == row.object_sha256
    assert batch is not None
    assert names == [name for name in batch.schema.names if name in names]
    rows = zip(*(batch[name].to_pylist() for name in names), strict=True)
    expected = np.array([np.concatenate([np.ravel(values) for values in row]) for row in rows], np.float64)
    expected[np.isnan(expected)] = 0
    expected[np.isinf(expected)] = np.finfo(np.float32).max
    assert np.array_equal(expected, np.array([seen for seen, _, _ in steps]))
    if kind == "inlining":
        columns = [batch[name].to_pylist() for name in ("caller", "callee", "line", "column")]
        assert last["calls"] == tuple(zip(*columns, strict=True))
        assert {key for _, _, info in steps for key in info} == {"module"}
        assert len(set(last["calls"])) > 1
    else:
        assert [info["function"] for _, _, info in steps] == batch["context"].to_pylist()
        assert "press" in steps[0][2]["function"] or kind == "regalloc-priority"


def test_features_can_be_chosen(llvm22: Llvm, env: InliningEnv, make: Callable[..., Any]) -> None:
    names = ("callee_users", "cost_estimate", "caller_users")
    with closing(make(features=names, names=False)) as made:
        assert [spec.name for spec in made.features] == list(names) == list(made.places)
        assert made.observation_space.shape == (3,)
        few, reward, last = episode(made, "two.o", lambda *_: 1)
        assert "calls" not in last
    every, same_reward, same = episode(env, "two.o", lambda *_: 1)
    assert [step[0].tolist() for step in few] == [
        [step[0][env.places[name]].item() for name in names] for step in every
    ]
    assert (reward, last["object_sha256"]) == (same_reward, same["object_sha256"])
    default, no_reward, plain = episode(env, "two.o", lambda seen, _: int(seen[env.places["inlining_default"]].item()))
    assert (no_reward, plain["text_size"]) == (0.0, plain["baseline_text_size"])
    assert {action for _, action, _ in default} == {0, 1}


def sizes_by_nm(llvm: Llvm, path: Path) -> tuple[int, dict[str, int]]:
    """Give an object's text, and the size of each function that other objects may hold, too, as LLVM's tools do."""
    text = int(run_checked(llvm.size, path).splitlines()[1].split()[0])
    lines = [line.split() for line in run_checked(llvm.nm, "-S", path).splitlines()]
    return text, {words[3]: int(words[1], 16) for words in lines if len(words) == 4 and words[2] in "WV"}


def test_linked_bytes_are_shared(llvm22: Llvm, corpus: Path, make: Callable[..., Any], tmp_path: Path) -> None:
    others = sizes_by_nm(llvm22, corpus.parent / "objects" / "one.o")[1]
    text, weak = sizes_by_nm(llvm22, corpus.parent / "objects" / "two.o")
    assert weak.keys() & others
    assert weak.keys() - others
    baseline = text - sum(weak[name] / 2 for name in weak.keys() & others)
    kept = {"keep_objects": tmp_path / "objects", "policy": "never", "cache": Path(make.args[2])}
    trace_corpus(corpus, tmp_path / "never", compiler=llvm22.clang, module_filter="two", jobs=1, **kept)
    text, weak = sizes_by_nm(llvm22, tmp_path / "objects" / "two.o")
    size = text - sum(weak[name] / 2 for name in weak.keys() & others)
    expected = pytest.approx(1 - (size + 0.01) / (baseline + 0.01), abs=1e-12)
    for _ in range(2):  # the second one finds in the cache which objects hold a function
        with closing(make(reward="linked")) as made:
            for _ in range(2):  # the second time the plain object's bytes are known
                _, reward, last = episode(made, "two.o", lambda *_: 0)
                assert (last["baseline_linked_size"], last["linked_size"], reward) == (baseline, size, expected)
                assert last["text_size"] == text


def test_what_could_not_be_counted_is_tried_again(
    make: Callable[..., Any], known: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(self: PlainCompile) -> Any:
        if self._compiles.module.name == "one.o":
            raise RunFailure(RunReason.TIMEOUT, "a busy machine")
        return compiled(self)

    compiled = PlainCompile.run
    monkeypatch.setattr(PlainCompile, "run", run)
    options = {"cache": str(known(tmp_path, make.args[1])), "reward": "linked"}
    with closing(make_one(*make.args[:2], **options)) as made:
        last = episode(made, "two.o", lambda *_: 0)[2]
        assert last["baseline_linked_size"] == last["baseline_text_size"]
    monkeypatch.undo()
    with closing(make(reward="linked")) as right, closing(make_one(*make.args[:2], **options)) as made:
        expected = episode(right, "two.o", lambda *_: 0)[2]
        assert expected["baseline_linked_size"] < expected["baseline_text_size"]
        assert episode(made, "two.o", lambda *_: 0)[2] == expected


def test_modules_are_drawn_by_the_seed(corpus: Path, env: InliningEnv) -> None:
    drawn = [env.reset(seed=5)[1]["module"], *(env.reset()[1]["module"] for _ in range(5))]
    assert set(drawn) == {"one.o", "two.o"}  # in the third, there is nothing to decide
    assert drawn == [env.reset(seed=5)[1]["module"], *(env.reset()[1]["module"] for _ in range(5))]
    with pytest.raises(UsageError, match=r"^module plain\.o: there is nothing to decide in it$"):
        env.reset(options={"module": "plain.o"})
    with pytest.raises(CorpusError, match=r"^x: there is no such module"):
        env.reset(options={"module": "x"})
    with pytest.raises(UsageError, match=r"^options: expected 'module', found 'modul'$"):
        env.reset(options={"modul": "one.o"})
    with pytest.raises(UsageError, match=r"^options one\.o: expected a dictionary$"):
        env.reset(options="one.o")  # type: ignore[arg-type]


def test_only_chosen_modules_are_drawn(corpus: Path, make: Callable[..., Any], tmp_path: Path) -> None:
    copy = shutil.copytree(corpus, tmp_path / "corpus")
    with closing(make_one(str(copy), *make.args[1:], choice=ModuleChoice(module_filter="two"))) as made:
        assert made.reset(options={"module": "one.o"})[1]["module"] == "one.o"
        (copy / "two.o.bc").unlink()
        with pytest.raises(MlgoCorpusError, match=r"there is nothing to decide in 0 of 1 module, and 1 cannot be"):
            made.reset(seed=1)


def test_actions_are_checked(env: InliningEnv, make: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match="call reset first"):
        env.step(1)
    env.reset(options={"module": "two.o"})
    for wrong in (2, -1, 0.5, "one", None, np.array([1, 1])):
        with pytest.raises(UsageError, match=r"^action: expected a"):
            env.step(wrong)
    for fine in (1, np.int64(0), True, np.array(1), np.array([0]), 1.0):
        assert not env.step(fine)[3]
    with closing(make(EvictionEnv)) as made:
        _, info = made.reset(options={"module": "one.o"})
        allowed = np.flatnonzero(info["action_mask"])
        refused = next(one for one in range(int(allowed[-1])) if one not in allowed)
        following = made._decision(refused, made._asked.tensors)
        assert following == min(one for one in allowed if one > refused)
        assert made._decision(33 - 1, made._asked.tensors) == (32 if 32 in allowed else allowed[0])
        assert not made.step(refused)[3]
    with closing(make(PriorityEnv)) as made:
        made.reset(options={"module": "one.o"})
        for wrong in (-0.1, 1.1, np.nan):
            with pytest.raises(UsageError, match=r"^action: expected a number from 0 to 1"):
                made.step(np.array([wrong]))


def test_what_cannot_be_is_refused(make: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match=r"^reward size: expected one of text, linked, delta_size$"):
        make(reward="size")
    with pytest.raises(UsageError, match=r"^features: this compiler sends no 'cost', but sroa_savings"):
        make(features="cost")
    with pytest.raises(MlgoCorpusError, match=r"there is nothing to decide in 1 of 1 module$"):
        make(choice=ModuleChoice(module_filter="plain"))
    made = make()
    made.close()
    for use in (made.reset, partial(made.step, 1)):
        with pytest.raises(UsageError, match="the environment is closed"):
            use()


def test_a_compiler_that_dies_truncates_the_episode(corpus: Path, env: InliningEnv) -> None:
    env.reset(options={"module": "one.o"})
    (pid,) = compilers(corpus)
    os.kill(pid, signal.SIGKILL)
    _, reward, terminated, truncated, info = env.step(1)
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info == {"module": "one.o", "reason": "signal", "detail": "ended by signal 9"}
    assert len(episode(env, "one.o", lambda *_: 1)[0]) > 2


def test_only_the_compilers_time_counts(corpus: Path, make: Callable[..., Any]) -> None:
    with closing(make(timeout=300)) as env:
        env.reset(options={"module": "one.o"})
        env._running.episode._asked -= 100  # as if it had asked so long ago
        _, _, _, truncated, _ = env.step(1)
        assert not truncated
        assert 99 < env._running.episode._session._stream.deadline - time.monotonic() < 401


def test_no_compiler_outlives_an_environment(corpus: Path, make: Callable[..., Any]) -> None:
    def begun() -> Any:
        made = make()
        made.reset(options={"module": "two.o"})
        assert len(compilers(corpus)) == 1
        return made

    closed = begun()
    work = closed._settings.work
    closed.reset(options={"module": "one.o"})
    assert len(compilers(corpus)) == 1
    closed.close()
    assert not compilers(corpus)
    assert not work.exists()
    lost = begun()
    work = lost._settings.work
    del lost
    gc.collect()
    assert not compilers(corpus)
    assert not work.exists()


@pytest.mark.parametrize("how", ["ends", signal.SIGKILL])
def test_no_compiler_outlives_its_process(how: Any, corpus: Path, make: Callable[..., Any]) -> None:
    code = (
        "import os, sys\nfrom mlgo_corpus import InliningEnv\n"
        "corpus, compiler, cache = os.environ['ARGUMENTS'].split(':')\n"
        "env = InliningEnv(corpus, compiler, cache=cache)\nenv.reset(options={'module': 'two.o'})\n"
        "print('begun', flush=True)\nsys.stdin.read()\n"
    )
    environment = {**os.environ, "PYTHONPATH": PACKAGE_ROOT, "ARGUMENTS": ":".join(make.args)}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        assert len(compilers(corpus)) == 1
        if how == "ends":
            process.communicate("")
        else:
            process.send_signal(how)
    assert process.returncode == (0 if how == "ends" else -how)
    assert ends(corpus)


@pytest.mark.parametrize("vector", [SyncVectorEnv, AsyncVectorEnv])
def test_several_at_a_time(vector: Any, corpus: Path, env: InliningEnv, make: Callable[..., Any]) -> None:
    expected = [[env.reset(seed=seed)[0]] for seed in (1, 2)]
    rewards = [[], []]
    for seed, seen in zip((1, 2), expected, strict=True):
        env.reset(seed=seed)
        while len(seen) < 12:
            observation, reward, ended, _, _ = env.step(1)
            seen.append(observation)
            rewards[seed - 1].append(reward)
            if ended:
                seen.append(env.reset()[0])
                rewards[seed - 1].append(0.0)
    envs = vector([make, make])
    try:
        observations, _ = envs.reset(seed=1)
        for step in range(11):
            assert np.array_equal(observations, [seen[step] for seen in expected])
            observations, found, _, _, _ = envs.step(np.array([1, 1]))
            assert found.tolist() == [one[step] for one in rewards]
    finally:
        envs.close()
        env.close()
    assert ends(corpus)


def test_gymnasium_is_imported_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys, mlgo_corpus\nmlgo_corpus.Tracer\nfrom mlgo_corpus.cli.main import app\n"
    code += "assert 'gymnasium' not in sys.modules\nmlgo_corpus.InliningEnv\nassert 'gymnasium' in sys.modules\n"
    run_checked(sys.executable, "-c", code)
    monkeypatch.delitem(sys.modules, "mlgo_corpus.environments")
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    without = importlib.import_module("mlgo_corpus.environments")
    with pytest.raises(UsageError, match=r"^environments need Gymnasium: pip install 'mlgo-corpus\[rl\]'$"):
        without.InliningEnv("corpus")


def test_the_example_learns_a_policy(corpus: Path, make: Callable[..., Any], tmp_path: Path) -> None:
    example = Path(PACKAGE_ROOT) / "examples" / "evolve_policy.py"
    words = ("--generations", "1", "--population", "4", "--modules", "2", "--compiler", make.args[1])
    environment = {**os.environ, "PYTHONPATH": PACKAGE_ROOT, "MLGO_CORPUS_CACHE": make.args[2]}
    argv = [sys.executable, str(example), str(corpus), "--output", str(tmp_path / "policy"), *words]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    policy = load_policy(tmp_path / "policy")
    assert (policy.task, policy.training["modules"]) == ("inlining", ["one.o", "two.o"])
    assert policy.training["compiles"] == 2 * (1 + 4)
    with closing(make(features=[spec.name for spec in policy.features])) as env:
        sizes = [0, 0]
        for module in ("one.o", "two.o"):
            last = episode(env, module, lambda seen, _: int(policy.model.scores(seen[None])[0] > 0))[2]
            sizes[0] += last["text_size"]
            sizes[1] += last["baseline_text_size"]
    assert policy.training["text"] == pytest.approx(sizes[0] / sizes[1])
    change = f"{100 * (sizes[0] / sizes[1] - 1):+.2f} % of {sizes[1]} bytes in 3 modules"
    assert done.stdout.splitlines()[-1] == f"{corpus}: {change}"
