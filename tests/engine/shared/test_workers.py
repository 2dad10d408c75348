"""Shared workers: a host by itself in this process, and on clusters of up to three nodes on this machine."""

from __future__ import annotations

import gc
import json
import pickle
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mlgo_corpus import SharedWorkers, extract_corpus
from mlgo_corpus.engine.shared import workers
from mlgo_corpus.engine.shared.host import CANCELLED, RAISED, RESULT, TOLD, UNKNOWN, Host, Reply
from mlgo_corpus.errors import ConstructorError, HostDiedError, UnknownWorkerError, UsageError, WorkerError
from tests.conftest import ROOT, Llvm, unpack
from tests.engine.loopback_only import require_namespaces, run_alone

EXAMPLES = ROOT / "examples"
LIMIT = 60

MADE: list[weakref.ref[Thing]] = []
GATE = threading.Event()
LOG: list[str] = []


class Thing:
    def __init__(self, name: str = "thing") -> None:
        if name == "raise":
            raise ValueError("no such thing")
        self.name = name
        self.itself = self
        MADE.append(weakref.ref(self))

    def get(self) -> str:
        return self.name

    def wait(self) -> bool:
        return GATE.wait(LIMIT)

    def note(self, text: str) -> None:
        LOG.append(text)

    def fail(self, error: BaseException) -> None:
        raise error

    def generator(self) -> Iterator[int]:
        return iter(lambda: 1, 2)

    def stop(self) -> None:
        LOG.append(f"stop {self.name}")

    def close(self) -> None:
        LOG.append(f"close {self.name}")


class HardError(Exception):
    """Can be pickled, but not made again."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")


@pytest.fixture
def host() -> Iterator[Host]:
    MADE.clear()
    LOG.clear()
    GATE.clear()
    made = Host("the host", 1, 600.0)
    yield made
    GATE.set()
    made.close()


def create(host: Host, session: str = "a", name: str = "x", *args: Any) -> Reply:
    return host.create(session, name, pickle.dumps((Thing, args, {})), 1.0).result(LIMIT)


def call(
    host: Host, method: str, *args: Any, session: str = "a", name: str = "x", number: int = 1, since: float = 0
) -> Any:
    return host.call(session, name, number, pickle.dumps((method, args, {})), since)


def answer(host: Host, method: str, *args: Any, **where: Any) -> Reply:
    reply: Reply = call(host, method, *args, **where).result(LIMIT)
    return reply


def wait_until(condition: Callable[[], bool]) -> None:
    stop = threading.Event()
    for _ in range(LIMIT * 100):
        if condition():
            return
        stop.wait(0.01)
    raise AssertionError("in vain")


# --- a host by itself


def test_create_call_release(host: Host) -> None:
    assert create(host, "a", "x", "one").kind == RESULT
    assert create(host, "a", "y", "two").kind == RESULT
    assert [pickle.loads(answer(host, "get", name=name).body) for name in "xy"] == ["one", "two"]
    assert host.release("a", "x").kind == RESULT
    assert pickle.loads(answer(host, "get", name="y").body) == "two"


def test_an_id_that_is_not_there_is_told(host: Host) -> None:
    create(host)
    other = Host("the other host", 1, 600.0)
    create(other, "a", "z")
    host.renew("b")
    for reply in (
        answer(host, "get", name="nothing"),
        answer(host, "get", name="z"),  # is on the other host
        answer(host, "get", session="b"),  # is another driver's
        host.release("b", "x"),
    ):
        assert reply.kind == UNKNOWN
        assert "the host: there is no worker" in reply.text
    assert host.release("a", "x").kind == RESULT
    assert host.release("a", "x").kind == UNKNOWN
    assert answer(host, "get").kind == UNKNOWN
    other.close()


def test_what_is_raised_comes_back_with_its_traceback(host: Host) -> None:
    create(host)
    reply = answer(host, "fail", ValueError("a\nb"))
    error = pickle.loads(reply.body)
    assert (reply.kind, type(error), error.args) == (RAISED, ValueError, ("a\nb",))
    assert "in fail\n    raise error\nValueError: a\nb\n" in reply.text
    assert "sharedhost.py" not in reply.text
    told = answer(host, "fail", SystemExit(3))
    assert (told.kind, told.body) == (TOLD, b"the host: SystemExit: 3")
    assert pickle.loads(answer(host, "get").body) == "thing"


def test_what_cannot_be_pickled_is_told(host: Host) -> None:
    create(host)
    reply = answer(host, "generator")
    assert reply.kind == TOLD
    assert reply.body.startswith(b"the host: the result, a callable_iterator, cannot be pickled: ")


def test_an_exception_that_cannot_be_made_again_is_told(host: Host) -> None:
    make = pickle.dumps(
        (exec, ("raise __import__('tests.engine.shared.test_workers', fromlist=['x']).HardError(1, 2)",), {})
    )
    reply = host.create("a", "x", make, 1.0).result(LIMIT)
    assert (reply.kind, reply.body) == (TOLD, b"the host: HardError: 1 and 2")


def test_a_constructor_that_raises_leaves_nothing(host: Host) -> None:
    reply = create(host, "a", "x", "raise")
    assert (reply.kind, repr(pickle.loads(reply.body))) == (RAISED, "ValueError('no such thing')")
    assert "no such thing" in reply.text
    assert answer(host, "get").kind == UNKNOWN
    assert host.state().objects == 0


def test_a_constructor_needs_no_slot(host: Host) -> None:
    create(host)
    waiting = call(host, "wait")
    assert create(host, "b", "y").kind == RESULT
    GATE.set()
    assert pickle.loads(waiting.result(LIMIT).body) is True


def test_released_objects_are_freed(host: Host) -> None:
    gc.disable()  # nothing but the release collects the cycle
    try:
        create(host)
        answer(host, "fail", ValueError("a traceback holds frames, and these hold the object"))
        host.release("a", "x")
        assert [made() for made in MADE] == [None]
    finally:
        gc.enable()
    assert LOG == ["close thing"]


def test_an_object_is_freed_when_its_running_call_is_over(host: Host) -> None:
    create(host)
    running = call(host, "wait", number=1)
    wait_until(lambda: host.state().running == 1)
    waiting = call(host, "get", number=2)
    assert host.release("a", "x").kind == RESULT
    assert waiting.result(LIMIT).kind == UNKNOWN
    assert "released before" in waiting.result().text
    assert MADE[0]() is not None
    GATE.set()
    assert pickle.loads(running.result(LIMIT).body) is True
    wait_until(lambda: MADE[0]() is None)
    assert LOG == ["close thing"]


def test_a_waiting_call_can_be_taken_back_and_a_running_one_cannot(host: Host) -> None:
    create(host)
    host.renew("b")
    running, waiting = call(host, "wait", number=1), call(host, "note", "never", number=2)
    wait_until(lambda: host.state().running == 1)
    assert not host.cancel("a", 1)
    assert not host.cancel("c", 2)
    assert host.cancel("b", 2)  # b's own second call, which is on its way
    assert host.state().waiting == 1
    assert host.cancel("a", 2)
    assert not host.cancel("a", 2)
    assert host.cancel("a", 3)  # it is on its way
    assert answer(host, "note", "never", number=3).kind == CANCELLED
    assert host.state().waiting == 0
    assert waiting.result(LIMIT).kind == CANCELLED
    GATE.set()
    assert running.result(LIMIT).kind == RESULT
    assert LOG == []


def test_who_waits_longest_is_served_first(host: Host) -> None:
    create(host, "a")
    create(host, "b", "y")
    blocked = call(host, "wait")
    wait_until(lambda: host.state().running == 1)
    calls = [call(host, "note", f"b{i}", session="b", name="y", number=i, since=20.0) for i in range(3)]
    calls += [call(host, "note", f"a{i}", number=i, since=10.0) for i in range(3)]
    calls += [call(host, "note", "b3", session="b", name="y", number=3, since=5.0)]  # behind b's others all the same
    assert host.state().waiting == 7
    GATE.set()
    for one in (blocked, *calls):
        assert one.result(LIMIT).kind == RESULT
    assert LOG == ["a0", "a1", "a2", "b0", "b1", "b2", "b3"]


def test_a_priority_call_does_not_wait(host: Host) -> None:
    create(host)
    blocked = call(host, "wait", number=1)
    wait_until(lambda: host.state().running == 1)
    waiting = call(host, "note", "in its turn", number=2)
    urgent = host.call_now("a", "x", pickle.dumps(("note", ("at once",), {})))
    assert urgent.result(LIMIT).kind == RESULT
    assert (LOG, blocked.done(), waiting.done()) == (["at once"], False, False)
    assert (host.state().running, host.state().waiting) == (1, 1)
    reply = host.call_now("a", "x", pickle.dumps(("fail", (ValueError("no"),), {}))).result(LIMIT)
    assert (reply.kind, "in fail\n    raise error\nValueError: no\n" in reply.text) == (RAISED, True)
    assert host.call_now("a", "y", b"").result(LIMIT).kind == UNKNOWN
    GATE.set()
    assert waiting.result(LIMIT).kind == RESULT
    assert LOG == ["at once", "in its turn"]


def test_an_object_is_freed_after_its_priority_calls(host: Host) -> None:
    create(host)
    urgent = host.call_now("a", "x", pickle.dumps(("wait", (), {})))
    assert host.renew("b") == 1.0  # it weighs as much as any other
    assert host.release("a", "x").kind == RESULT
    assert MADE[0]() is not None
    GATE.set()
    assert pickle.loads(urgent.result(LIMIT).body) is True
    wait_until(lambda: MADE[0]() is None)
    assert LOG == ["close thing"]
    assert host.renew("b") == 0.0


def test_replies_tell_what_the_host_does_for_others(host: Host) -> None:
    create(host, "a")
    create(host, "b", "y")
    running = call(host, "wait", session="b", name="y")
    wait_until(lambda: host.state().running == 1)
    assert (host.renew("a"), host.renew("b")) == (1.0, 0.0)
    GATE.set()
    running.result(LIMIT)
    assert host.renew("a") == 0.0
    state = host.state()
    assert (state.drivers, state.objects, state.running, state.waiting) == (2, 2, 0, 0)
    assert 0 < state.busy_s <= state.up_s


def test_a_driver_that_leaves_takes_its_objects_along(host: Host) -> None:
    create(host, "a", "x", "mine")
    create(host, "b", "y", "yours")
    running = call(host, "wait")
    wait_until(lambda: host.state().running == 1)
    waiting = call(host, "get", number=2)
    assert host.close_session("a") == 1
    assert LOG == ["stop mine"]  # nobody waits for what runs
    assert waiting.result(LIMIT).kind == CANCELLED
    GATE.set()
    running.result(LIMIT)
    wait_until(lambda: MADE[0]() is None)
    assert LOG == ["stop mine", "close mine"]
    assert pickle.loads(answer(host, "get", session="b", name="y").body) == "yours"
    assert host.close_session("b") == 0
    assert MADE[1]() is None


def test_a_driver_that_is_silent_is_dead_and_a_host_without_drivers_ends() -> None:
    ended = threading.Event()
    host = Host("the host", 1, 0.2, end=ended.set)
    MADE.clear()
    create(host)
    wait_until(lambda: MADE[0]() is None)
    assert "silent for 0.2 seconds" in answer(host, "get").text
    host.renew("a")  # it was only frozen: it goes on, without its objects
    assert "silent for 0.2 seconds" in answer(host, "get").text
    assert ended.wait(LIMIT)
    host.close()


# --- on a cluster


class FakeActor:
    """A host of this process, asked as one of Ray's."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def __getattr__(self, method: str) -> Any:
        def remote(*arguments: Any) -> Any:
            known = {"begin": lambda: (self.host.slots, self.host.lease, "here")}
            found = (known.get(method) or getattr(self.host, method))(*arguments)
            if not isinstance(found, Future):
                found, done = Future(), found
                found.set_result(done)
            return SimpleNamespace(future=lambda: found)

        made = SimpleNamespace(remote=remote, options=lambda **_: made)
        return made


def fake_get(refs: Any, timeout: float = LIMIT) -> Any:
    return [fake_get(ref, timeout) for ref in refs] if isinstance(refs, list) else refs.future().result(timeout)


def test_a_call_that_found_no_room_is_sent_after_priority_calls(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = SimpleNamespace(
        get=fake_get,
        wait=lambda refs, **_: (refs, []),
        kill=lambda _: None,
        is_initialized=lambda: True,
        cloudpickle=pickle,
        exceptions=SimpleNamespace(RayError=ConnectionError),
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(workers, "connect", lambda _: False)
    monkeypatch.setattr(workers, "leave", lambda _: None)
    monkeypatch.setattr(workers, "start_actors", lambda *_, **__: {"host 0": FakeActor(host)})
    with SharedWorkers(hosts=1, threads_per_host=1) as shared:
        worker = shared.create(Thing)
        urgent = [worker.call_now("wait") for _ in range(2)]
        call = worker.call("get")
        GATE.set()
        assert [one.result(LIMIT) for one in (*urgent, call)] == [True, True, "thing"]


def test_without_ray_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError) as error:
        SharedWorkers(1)
    assert str(error.value) == "this needs Ray: pip install 'mlgo-corpus[ray]'"
    with pytest.raises(UsageError, match=r"^hosts 0: expected more than 0$"):
        SharedWorkers(0)


def test_errors_survive_pickling() -> None:
    for error in (ConstructorError("a"), HostDiedError("its process died", "host 1"), UnknownWorkerError("b")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (type(error), str(error))
        assert isinstance(again, WorkerError)


# What is seen on one cluster: in this order, for the last one takes machines of it away.
SCENARIOS = {
    "calls": "test_calls",
    "weights": "test_loads_are_weighed_and_memory_comes_back",
    "drivers": "test_drivers",
    "shared_cluster": "test_the_example_of_a_shared_cluster",
    "served_policy": "test_the_example_of_a_served_policy",
    "deaths": "test_deaths",
}


@pytest.fixture(scope="module")
def saw(request: pytest.FixtureRequest) -> Callable[[str], Any]:
    """Give what was seen in a scenario; those of the tests that are asked for are run."""
    require_namespaces()
    asked = {item.name for item in request.session.items}
    chosen: dict[str, list[str]] = {name: [] for name, test in SCENARIOS.items() if test in asked}
    llvm = Llvm(22)
    words = {
        "shared_cluster": ("--modules", "2", "--rounds", "2"),
        "served_policy": ("--modules", "6", "--compilers", "1", "4"),
    }
    for name, options in words.items():
        if name in chosen and llvm.missing():
            del chosen[name]
        elif name in chosen:
            corpus = request.getfixturevalue("corpus")
            chosen[name] = [str(EXAMPLES / f"{name}.py"), str(corpus), "--compiler", llvm.clang, *options]
    found = run_alone(ROOT / "tests" / "engine" / "on_cluster.py", json.dumps(chosen), timeout=1200)

    def seen(name: str) -> Any:
        assert not isinstance(found[name], str), found[name]
        return found[name]

    return seen


@pytest.mark.ray
def test_calls(saw: Callable[[str], Any]) -> None:
    found = saw("calls")
    assert found["get"] == {"a": [1, 2]}
    assert found["meet"] == [0, 1]
    kind, text, notes, _ = found["fail"]
    assert (kind, text) == ("KeyError", r"'a\nb'")
    assert notes.startswith("on host ")
    assert "in fail\n    raise KeyError(text)\n" in notes
    assert found["generator"][0] == "WorkerError"
    assert "the result, a generator, cannot be pickled" in found["generator"][1]
    assert found["no method"][:2] == ["AttributeError", "'Echo' object has no attribute 'nothing'"]
    assert found["unpicklable argument"][0] == "WorkerError"
    assert found["unpicklable argument"][1].startswith("Echo.get: its arguments cannot be pickled: ")
    assert found["timeout"][0] == "TimeoutError"
    assert found["constructor"][0] == "ConstructorError"
    assert found["constructor"][1].endswith(": Echo: ValueError: no such value")
    assert found["constructor"][3] == "ValueError('no such value')"
    assert found["unpicklable worker"][0] == "ConstructorError"
    assert found["weight"][:2] == ["UsageError", "weight 0: expected more than 0"]
    assert found["released"][0] == found["released twice"][0] == "UnknownWorkerError"
    assert found["released twice"][1].endswith("the worker was released already")
    # While a host has calls, all new objects go to the other one.
    (busy,) = found["busy host"]
    assert [busy] not in found["placed"]
    assert len(found["placed"]) == 3
    assert found["states"] == [[2, 0, 0], [2, 2, 2]]
    assert found["cancelled"] == found["cancelled again"]
    assert sorted(found["cancelled"]) == [False] * 2 + [True] * 7  # Ray promises no order in which two of them began
    assert found["at once"] == {"b": 1}
    assert found["at once, released"][:1] == ["UnknownWorkerError"]
    assert found["running when released"] == [False, False]
    assert [kind for kind, _ in found["closed"]] == ["UnknownWorkerError"] * 2
    assert found["create after close"][:2] == ["UsageError", "the shared workers are closed"]


@pytest.mark.ray
def test_loads_are_weighed_and_memory_comes_back(saw: Callable[[str], Any]) -> None:
    found = saw("weights")
    (heavy,), *light = found["idle"]
    assert [heavy] not in light  # three objects of weight 1 beside none of weight 5
    assert found["loaded"] == light[0]  # two calls of weight 1 there, one of weight 5 here
    assert found["released while it ran"] == [True] * 3
    assert found["everywhere"] == ["host 0", "host 1"]
    assert sorted(found["objects"]) == [2, 4]
    assert found["pids"] is True
    assert all(150 < megabytes < 250 for megabytes in found["freed"])  # of 200 on each host


@pytest.mark.ray
def test_deaths(saw: Callable[[str], Any]) -> None:
    found = saw("deaths")
    assert found["hosts"] == [["host 0"], ["host 1"], ["host 2"]]
    died = found["died"]
    assert found["compiler began"] is True
    assert found["under way"][:2] == ["HostDiedError", f"{died}: its process died, while a call of Echo was under way"]
    assert found["compiler left"] is False
    assert set(found["waiting"]) == {"HostDiedError"}
    assert found["afterwards"][1].startswith(f"{died}: its process died, and with it Echo ")
    assert found["recreated"] == ["lasting", True]
    assert found["others"] == [number for number in range(3) if f"host {number}" != died]
    assert found["alive"] == [[False, True], [True, False], [True, False]]
    assert found["released dead"][0] == "nothing"
    assert found["killed"][1].startswith(f"{found['second']}: its process died")
    assert found["elsewhere"] == "all"
    assert found["poison"] == found["none left for all"] == "HostDiedError"
    assert found["none left"][1].endswith("and no other host is left")
    assert found["nodes"] == [False, True, True]
    assert found["after a node"] == ["all"] * 4
    assert found["no room"][0] == "UsageError"
    assert found["no room"][1].startswith("the Ray cluster has no room for 9 hosts of 1 CPUs each: ")
    assert found["no address"][:2] == ["UsageError", "no Ray cluster at 127.0.0.1:9: Connection refused"]


@pytest.mark.ray
def test_drivers(saw: Callable[[str], Any]) -> None:
    found = saw("drivers")
    assert found["nobody"][:2] == ["UsageError", "there are no shared workers 'ours' on this cluster"]
    assert found["taken"][:2] == ["UsageError", "shared workers 'ours' are there already: attach to them"]
    assert found["other"] == [["theirs"] * 4, [2, 2]]
    assert sorted(found["together"]) == [[2, 2], [2, 3]]
    # Killed, it leaves nothing: neither objects, nor a compiler that has our slot.
    assert found["freed"] is True
    assert found["objects"] == [0, 1]
    assert found["ours"] == "ours"
    assert found["again"] is True
    assert found["drivers"] == [2, 2]
    assert found["left to the other"] == [True, True]
    assert found["ended"] is True
    assert found["compilers left"] is False
    assert found["gone"][0] == "UsageError"
    assert found["frozen"][0] == "UnknownWorkerError"
    assert "was freed, because its driver was silent for 10 seconds" in found["frozen"][1]
    assert found["last left"] is True


@pytest.mark.ray
def test_a_cluster_of_ours_listens_on_loopback_alone() -> None:
    found = run_alone(ROOT / "tests" / "engine" / "on_cluster.py", "alone")
    assert found["get"] == ["here"] * 4
    assert len(found["listening"]) > 3
    assert set(found["listening"]) <= {"0100007F", "0000000000000000FFFF00000100007F", "0" * 24 + "01000000"}
    assert found["environment"] == []  # a cluster of several machines may come next


# --- the examples


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lua")
    unpack("lua-clang22", folder / "objects")
    small = r"/(lapi|lctype|linit|ltable|lzio|lfunc)\.o$"
    extract_corpus([folder / "objects"], folder / "corpus", module_filter=small, jobs=1)
    return folder / "corpus"


@pytest.mark.ray
def test_the_example_of_a_shared_cluster(saw: Callable[[str], Any], llvm22: Llvm) -> None:
    found = saw("shared_cluster")
    apart = [found["apart: never"], found["apart: random:0.5"]]
    assert [row["modules"] for row in (*apart, found["together"])] == [4, 4, 8]
    assert [row["hosts"] for row in (*apart, found["together"])] == [2, 2, 2]
    # The same modules under the same policies: the same decisions, wherever they are made.
    assert found["together"]["decisions"] == sum(row["decisions"] for row in apart) > 0
    assert all(0 < row["busy"] <= 1 for row in (*apart, found["together"]))
    assert found["gain"] > 0


@pytest.mark.ray
def test_the_example_of_a_served_policy(saw: Callable[[str], Any], llvm22: Llvm) -> None:
    one, four = saw("served_policy")
    assert (one["compilers"], four["compilers"]) == (1, 4)
    assert one["decisions"] == one["observations"] == four["decisions"] == four["observations"] > 0
    assert one["text_size"] == four["text_size"]
    assert one["batch"] == 1
    assert 1 <= four["batch"] <= 4
