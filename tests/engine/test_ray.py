"""The engine on a Ray cluster of three machines, which are this one: what it gives is what this machine gives.

Ray listens on every address of a machine, so a cluster lives in a network namespace that has the loopback device only;
the tests stay outside, and look at what `ray_scenarios` saw.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from mlgo_corpus import extract_corpus, pack_corpus
from mlgo_corpus.cli.main import app
from mlgo_corpus.engine import cluster as raycluster
from mlgo_corpus.engine import ray as rayengine
from mlgo_corpus.engine.choice import EngineChoice
from mlgo_corpus.engine.map import parallel_map
from mlgo_corpus.errors import UsageError
from tests.conftest import DATA, PACKAGE_ROOT, ROOT, Llvm, unpack
from tests.processes import every_process, told_of
from tests.runs.trace.test_trace import files

NAMESPACE = ("unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "-")
TIMES = {
    "trace": ("wall_s", "cpu_s", "max_rss_bytes", "baseline_wall_s", "baseline_cpu_s", "baseline_max_rss_bytes"),
    "ir2native": ("cpu_s", "replay_cpu_s"),
}
SMALL = """
class Small:
    features = ("cost_estimate",)

    def reset(self, header, module):
        pass

    def advise(self, observation):
        return observation["cost_estimate"] < 0
"""
HELD = """
import time
from pathlib import Path
from mlgo_corpus.policies.policy import DefaultPolicy

class Held(DefaultPolicy):
    def reset(self, header, module):
        while module.endswith("/ltm.o") and not Path(__file__).with_name("go").exists():
            time.sleep(0.02)
"""
# Of Lua: more than are done before the driver is killed twice. They are enough for two workers.
MODULES = 16
SOME = r"/(lapi|lctype|linit|ltable|lzio|lfunc)\.o$"


@pytest.fixture(scope="module")
def ray_here() -> None:
    """Ray, and a namespace to run it in."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed (pip install 'mlgo-corpus[ray]')")
    try:
        done = subprocess.run((*NAMESPACE, "true"), capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("unshare is not installed (util-linux)")
    if done.returncode:
        pytest.skip(f"no network namespace can be made here: {done.stderr.strip()}")


# In this order: the peak memory of a process says something while it has done nothing else, and killed machines are new
# ones afterwards.
SCENARIOS = {
    "memory": "test_the_drivers_memory_does_not_grow",
    "basics": "test_what_comes_is_what_this_machine_gives",
    "no_compiler_is_left": "test_no_compiler_outlives_its_worker",
    "bad_machine": "test_a_bad_machine_does_not_swallow_the_queue",
    "verbs": "test_every_verb_makes_the_same_files",
    "driver_killed": "test_a_driver_that_is_killed_goes_on",
    "kills": "test_nothing_is_lost_or_doubled_whatever_is_killed",
}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that has one for each scenario."""
    return tmp_path_factory.mktemp("scenarios")


def prepare(request: pytest.FixtureRequest, work: Path) -> list[str]:
    """Make a folder for each scenario whose test is asked for, with what it needs, and return their names."""
    asked = {item.name for item in request.session.items}
    llvm = Llvm(22)
    chosen = [name for name, test in SCENARIOS.items() if test in asked]
    if llvm.missing():
        chosen = [name for name in chosen if name not in ("verbs", "driver_killed")]
    for name in chosen:
        (work / name).mkdir()
    if "verbs" in chosen:
        prepare_verbs(request.getfixturevalue("lua"), work / "verbs", llvm)
    if "driver_killed" in chosen:
        prepare_driver(request.getfixturevalue("lua"), work / "driver_killed", llvm)
    shutil.copytree(request.getfixturevalue("probed"), work / "cache")
    return chosen


def run_scenarios(work: Path, chosen: list[str]) -> subprocess.CompletedProcess[str]:
    """Run scenarios in their folders, all of them on one cluster."""
    return subprocess.run(
        (
            *NAMESPACE,
            sys.executable,
            str(ROOT / "tests" / "engine" / "ray_scenarios.py"),
            *(str(work / name) for name in chosen),
        ),
        cwd=work,
        env={
            **os.environ,
            "PYTHONPATH": PACKAGE_ROOT,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_prestart_worker_first_driver": "0",
            "NO_COLOR": "1",
            "MLGO_CORPUS_CACHE": str(work / "cache"),
        },
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )


@pytest.fixture(scope="module")
def seen(request: pytest.FixtureRequest, ray_here: None, work: Path) -> dict[str, Any]:
    """What was seen in the scenarios of the tests that are asked for."""
    chosen = prepare(request, work)
    done = run_scenarios(work, chosen)
    if done.returncode == -signal.SIGABRT:
        # Ray itself gives up once in some hundred runs (a mutex of its own is gone): what it started is ended, and all
        # is done again.
        mine = f"MLGO_CORPUS_CACHE={work / 'cache'}".encode()
        for pid in every_process():
            with suppress(OSError):
                if mine in told_of(pid, "environ").split(b"\0"):
                    os.kill(pid, signal.SIGKILL)
        shutil.rmtree(work)
        work.mkdir()
        done = run_scenarios(work, prepare(request, work))
    assert done.returncode == 0, done.stderr[-5000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture
def saw(seen: dict[str, Any]) -> Callable[[str], dict[str, Any]]:
    """Give what was seen in a scenario; it may have failed."""

    def of(name: str) -> dict[str, Any]:
        assert isinstance(seen[name], dict), seen[name]
        return seen[name]

    return of


def test_what_comes_is_what_this_machine_gives(saw: Callable[[str], dict[str, Any]]) -> None:
    found = saw("basics")
    crashed = [*range(7), ["lost", False, "the worker process ended by SIGSEGV"]]
    expected = {
        "order": [2 * item for item in range(1000)],
        "one_by_one": [2 * item for item in range(50)],
        "crash": [*crashed, *range(8, 40)],
        "crash_alone": [*crashed, *range(8, 12)],
        "hang": [0, 1, 2, ["lost", True, "not done after 5 seconds"], 4, 5],
        "large": [3_000_000] * 6,
        "none": [],
    }
    assert {name: found[name] for name in expected} == {name: [one, one] for name, one in expected.items()}
    assert found["by_value"] == list(range(1, 41))
    assert found["refused"] == ["ValueError", "five"]
    host = socket.gethostname()
    assert sum(items for _, items in found["figures"]) > 0
    assert {name for name, _ in found["figures"]} == {host}
    assert found["needs"] == [
        "UsageError",
        f"engine ray: no machine of the cluster can do the work; {host}: /is/not/there does not exist there: "
        "all machines of a cluster have to share the storage",
    ]
    assert (found["first"], found["asked"], found["running"], found["left"]) == (0, [signal.SIGTERM], True, [])


def test_nothing_is_lost_or_doubled_whatever_is_killed(saw: Callable[[str], dict[str, Any]]) -> None:
    rounds = saw("kills")["rounds"]
    assert len(rounds) >= 3
    assert [kind for kind, *_ in rounds] == ["actor", "process", "machine"] * (len(rounds) // 3)
    assert [found for _, *found in rounds] == [[True, True, []]] * len(rounds)


def test_no_compiler_outlives_its_worker(saw: Callable[[str], dict[str, Any]]) -> None:
    found = saw("no_compiler_is_left")
    assert found == {"actor": [0, 1], "actor_left": False, "process": [0, 1], "process_left": False}


def test_a_bad_machine_does_not_swallow_the_queue(saw: Callable[[str], dict[str, Any]]) -> None:
    found = saw("bad_machine")
    assert found["same"]
    assert min(found["figures"]) == 0
    assert sum(found["figures"]) == 40


def test_the_drivers_memory_does_not_grow(saw: Callable[[str], dict[str, Any]]) -> None:
    kilobytes = saw("memory")["kilobytes"]
    assert len(kilobytes) == 10
    assert kilobytes[-1] < kilobytes[0] + 4096


@pytest.fixture(scope="module")
def lua(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the smaller objects, a corpus of them, the same one packed, and training logs."""
    folder = tmp_path_factory.mktemp("lua")
    unpack("lua-clang22", folder)
    for path in sorted((folder / "lua").glob("*.o"), key=lambda path: path.stat().st_size)[MODULES - 1 :]:
        if path.name != "lapi.o":
            path.unlink()
    extract_corpus([folder], folder / "corpus")
    pack_corpus(folder / "corpus", folder / "packed")
    shutil.copytree(DATA / "training-logs", folder / "logs")
    return folder


def verb_commands(llvm: Llvm) -> tuple[tuple[str, ...], ...]:
    compiler = ("--compiler", llvm.clang)
    return (
        ("extract", "lua", "-o", "@-corpus"),
        ("trace", "corpus", "-o", "@-trace", "--via", "interactive", "--module-filter", SOME, *compiler),
        ("trace", "packed", "-o", "@-policy", "--policy", "small:Small", "--module-filter", SOME, *compiler),
        ("ir2native", "corpus", "-o", "@-sizes", "--module-filter", SOME, *compiler),
        ("logs-to-parquet", "logs", "-o", "@-logs", "--group-by-header"),
        ("verify", "corpus", "--rebuild", "-o", "@-rebuild.parquet", "--build-dir", ".", *compiler),
    )


def prepare_verbs(lua: Path, folder: Path, llvm: Llvm) -> None:
    shutil.copytree(lua, folder, dirs_exist_ok=True)
    for number in range(1200):  # more than one task's worth
        os.link(folder / "logs/inlining.lvm.log", folder / "logs" / f"again-{number:04d}.log")
    (folder / "commands.json").write_text(json.dumps(verb_commands(llvm)))
    (folder / "small.py").write_text(SMALL)


def test_every_verb_makes_the_same_files(saw: Callable[[str], dict[str, Any]], work: Path, llvm22: Llvm) -> None:
    done = saw("verbs")["done"]
    commands, lua = verb_commands(llvm22), work / "verbs"
    for number, (verb, *_) in enumerate(commands):
        local, ray = done[2 * number : 2 * number + 2]
        assert local[0] == ray[0] == 0, (verb, local[2], ray[2])
        reports = [json.loads(one[1]) for one in (local, ray)]
        workers = reports[1].pop("workers")
        assert sum(one["items"] for one in workers) > 0, verb
        assert {one["host"] for one in workers} <= {socket.gethostname()}
        assert without_times(reports[0]) == without_times(json.loads(json.dumps(reports[1]).replace("ray-", "local-")))
    for verb, name in (("trace", "trace"), ("trace", "policy"), ("ir2native", "sizes")):
        ours, theirs = files(lua / f"local-{name}"), files(lua / f"ray-{name}")
        for found in (ours, theirs):
            del found["modules.parquet"]
        assert ours == theirs, name
        tables = [
            pq.read_table(lua / f"{engine}-{name}" / "modules.parquet").drop_columns(list(TIMES[verb]))
            for engine in ("local", "ray")
        ]
        assert tables[0].equals(tables[1], check_metadata=True)
    for name in ("corpus", "logs"):
        ours, theirs = files(lua / f"local-{name}"), files(lua / f"ray-{name}")
        for found in (ours, theirs):
            for state in [path for path in found if path.startswith(".mlgo-corpus")]:
                del found[state]
        assert ours == theirs, name
    certificates = [pq.read_table(lua / f"{engine}-rebuild.parquet") for engine in ("local", "ray")]
    times = [name for name in certificates[0].column_names if name.endswith(("_s", "rss_bytes"))]
    assert certificates[0].drop_columns(times).equals(certificates[1].drop_columns(times))


def without_times(report: Any) -> Any:
    """Give a report without what the clock tells, at any depth."""
    if isinstance(report, dict):
        told = ("seconds", "slowest", "cpu_s", "replay_cpu_s")
        return {name: without_times(value) for name, value in report.items() if name not in told}
    return [without_times(value) for value in report] if isinstance(report, list) else report


def prepare_driver(lua: Path, folder: Path, llvm: Llvm) -> None:
    shutil.copytree(lua, folder, dirs_exist_ok=True)
    policy = ("--policy", "held:Held", "--timeout", "600")
    command = ("trace", "corpus", "-o", "@-killed", "--via", "interactive", "--compiler", llvm.clang, *policy)
    (folder / "commands.json").write_text(json.dumps([command]))
    (folder / "held.py").write_text(HELD)


def test_a_driver_that_is_killed_goes_on(saw: Callable[[str], dict[str, Any]], work: Path, llvm22: Llvm) -> None:
    found, lua = saw("driver_killed"), work / "driver_killed"
    assert "failed" not in found, found["failed"]
    assert found["killed"] >= 2
    assert found["left"] == []
    code, said, errors = found["last"]
    assert code == 0, errors
    report = json.loads(said)
    assert (report["modules"], report["traced"], report["faithful"]) == (MODULES, MODULES, MODULES)
    rows = pq.read_table(lua / "ray-killed" / "modules.parquet", columns=["module"])["module"].to_pylist()
    assert rows == json.loads((lua / "corpus" / "corpus_description.json").read_text())["modules"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--ray-address", "here"), "--ray-address here: belongs to --engine ray"),
        (("--engine", "ray", "--ray-address", "here"), "--ray-address here: expected HOST:PORT, as 'ray start --head'"),
        (("--engine", "ray", "--ray-address", "127.0.0.1:1"), "no Ray cluster answers there: Connection refused"),
        (("--engine", "ray"), "no Ray cluster runs here; 'ray start --head' starts one"),
        (("--engine", "ray", "--retries", "101"), "--retries 101: expected at most 100"),
    ],
)
def test_what_is_asked_for_wrongly_is_one_line(
    ray_here: None, plain_terminal: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: Any, said: str
) -> None:
    import ray._private.services as services

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    # Whatever runs beside this test is not its cluster.
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr(services, "find_bootstrap_address", lambda _: None)
    monkeypatch.setattr(services, "find_gcs_addresses", set)
    unpack("lua-clang22", tmp_path)
    done = CliRunner().invoke(app, ["extract", str(tmp_path), "-o", str(tmp_path / "c"), *options])
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert said in line
    assert not (tmp_path / "c" / "corpus_description.json").exists()


@pytest.mark.parametrize(("greeting", "said"), [(b"", "timed out"), (b"SSH-2.0-OpenSSH_9\r\n", "something else does")])
def test_who_listens_and_is_no_cluster_is_left_in_time(
    ray_here: None, monkeypatch: pytest.MonkeyPatch, greeting: bytes, said: str
) -> None:
    monkeypatch.setattr(raycluster, "_CONNECT_S", 300 if greeting else 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

        def greet() -> None:
            connection, _ = server.accept()
            kept.append(connection)
            connection.sendall(greeting)

        kept: list[socket.socket] = []
        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(UsageError, match=f"^ray_address {address}: no Ray cluster answers there: {said}$"):
            list(parallel_map(abs, [1], jobs=1, limit=60, engine=EngineChoice("ray", address)))
        thread.join()
        for connection in kept:
            connection.close()


def test_a_cluster_that_is_no_more_is_not_waited_for(
    ray_here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray/ray_current_cluster").write_text("127.0.0.1:1")
    with pytest.raises(UsageError, match=r"^engine ray: no Ray cluster runs here; 'ray start --head' starts one"):
        list(parallel_map(abs, [1], jobs=1, limit=60, engine=EngineChoice("ray")))


@pytest.mark.parametrize(("workers", "sizes"), [(3, [1] * 10), (255, [1] * 10), (512, [4, 4, 2]), (100_000, [10])])
def test_many_workers_are_handed_several_items(workers: int, sizes: list[int]) -> None:
    groups = list(rayengine.in_groups(([item] for item in range(10)), lambda: workers))
    assert [len(group) for group in groups] == sizes
    assert [item for group in groups for item in group] == list(range(10))


def test_without_ray_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"^engine ray: Ray is not installed; pip install 'mlgo-corpus\[ray\]'"):
        list(parallel_map(abs, [1], jobs=1, limit=60, engine=EngineChoice("ray")))


def test_an_engine_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^engine slurm: expected one of local, ray$"):
        EngineChoice("slurm")
    with pytest.raises(UsageError, match=r"^retries -1: expected at least 0$"):
        EngineChoice(retries=-1)
