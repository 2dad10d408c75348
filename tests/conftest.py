"""Fixtures that several test modules share: LLVM's tools, tiny compiles, and a terminal of known width.

A test that uses one of the LLVM fixtures carries the marker ``llvm``. Where that LLVM is missing it is
skipped with the reason, and with ``CI=true`` in the environment such a skip is a failure.
"""

from __future__ import annotations

import fcntl
import functools
import gc
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

# One thread for numpy's linear algebra, which nothing here uses, in all processes that tests start: starting more at
# each import and each fork costs a fifth of an import of numpy. It is read when numpy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import hypothesis
import pytest
import typer.main
import typer.testing
from hypothesis.internal import charmap

from mlgo_corpus.compilers.probe import CACHE_NAME, probe_compiler
from mlgo_corpus.compilers.walls import close_launchers
from mlgo_corpus.engine.signals import ASKING_TO_END
from tests.forked import join_pages

ROOT = Path(__file__).parents[1]
PACKAGE_ROOT = str(ROOT)
DATA = ROOT / "tests" / "data"

# What makes a stock clang embed the bitcode and the command in the object.
EMBED = ("-Xclang", "-fembed-bitcode=all")


def ignoring(signals: str, *argv: str | Path) -> tuple[str | Path, ...]:
    """Give the command that runs a program which ignores some signals, as one under ``nohup`` does."""
    return ("sh", "-c", f"trap '' {signals}; exec \"$@\"", "sh", *argv)


# What a test with this marker needs.
_NEEDED = {"llvm": "LLVM", "ray": "Ray in a network namespace", "chromium": "Chromium and its driver"}

LLVM_VERSIONS = (19, 22)
# How tests are given to several processes. A Ray cluster wants the machine: those that start one do so in turn.
_TOGETHER = dict.fromkeys(("tests/engine/test_ray.py", "tests/engine/shared/test_workers.py"), "ray")
# Their tests share nothing that is dear to make, and some take long.
_APART = re.compile(r"/cli/test_build\.py::|/test_docs\.py::test_what_a_page_shows_runs")
# These take longest, so that none of them is begun last.
_FIRST = (
    "tests/engine/test_ray.py",
    "tests/engine/shared/test_workers.py",
    "tests/test_docs.py",
    "tests/cli/test_build.py",
    "tests/runs/sizes/test_ir2native.py",
    "tests/runs/trace/test_trace.py",
    "tests/runs/search/test_search.py",
    "tests/compilers/native/test_found.py",
    "tests/runs/test_interrupted.py",
    "tests/learn/test_practice.py",
    "tests/learn/test_learning.py",
)

LLVM_FIXTURES = frozenset({"llvm", "gcc", "devmode", "clang22", *(f"llvm{version}" for version in LLVM_VERSIONS)})


@dataclass(frozen=True, slots=True)
class Llvm:
    """The tools of one LLVM version; a path is empty where there is no such program."""

    version: int

    def tool(self, name: str) -> str:
        """Give the path of, for example, ``llvm-objcopy-22``."""
        return shutil.which(f"{name}-{self.version}") or ""

    @property
    def clang(self) -> str:
        return self.tool("clang")

    @property
    def clangxx(self) -> str:
        return self.tool("clang++")

    @property
    def objcopy(self) -> str:
        return self.tool("llvm-objcopy")

    @property
    def dis(self) -> str:
        return self.tool("llvm-dis")

    @property
    def ar(self) -> str:
        return self.tool("llvm-ar")

    @property
    def nm(self) -> str:
        return self.tool("llvm-nm")

    @property
    def size(self) -> str:
        return self.tool("llvm-size")

    @property
    def readelf(self) -> str:
        return self.tool("llvm-readelf")

    @property
    def lipo(self) -> str:
        return self.tool("llvm-lipo")

    @property
    def ld_lld(self) -> str:
        return self.tool("ld.lld")

    @property
    def lld_folder(self) -> Path:
        """The folder that holds ``ld.lld`` without a version in its name, for clang's ``-B``."""
        return Path(self.ld_lld).resolve().parent

    def missing(self) -> tuple[str, ...]:
        names = ("clang", "clang++", "ld.lld", *(f"llvm-{name}" for name in self._llvm_names()))
        return tuple(f"{name}-{self.version}" for name in names if not self.tool(name))

    @staticmethod
    def _llvm_names() -> tuple[str, ...]:
        return ("objcopy", "dis", "ar", "nm", "size", "readelf", "lipo")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """End what starts compilers in this process, before fixtures look for processes that were left."""
    close_launchers()


def _llvm(version: int) -> Llvm:
    llvm = Llvm(version)
    if missing := llvm.missing():
        pytest.skip(f"LLVM {version} is not installed (make test installs it): no {', '.join(missing)}")
    return llvm


@pytest.fixture(scope="session")
def llvm19() -> Llvm:
    return _llvm(19)


@pytest.fixture(scope="session")
def llvm22() -> Llvm:
    return _llvm(22)


@pytest.fixture(scope="session", params=LLVM_VERSIONS, ids=lambda version: f"llvm{version}")
def llvm(request: pytest.FixtureRequest) -> Llvm:
    return _llvm(request.param)


@pytest.fixture(scope="session")
def devmode() -> Path:
    """The folder of the development-mode toolchain that ``make devmode`` builds, once for all checkouts."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mlgo-corpus-tests"
    folder = Path(os.environ.get("MLGO_CORPUS_TEST_TOOLCHAIN") or usual) / "devmode-19"
    if not (folder / "bin" / "clang").exists():
        pytest.skip(f"there is no development-mode compiler in {folder} (make devmode builds it)")
    return folder


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A temporary folder that all processes of a run have in common."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def known(shared_folder: Path) -> Callable[..., Path]:
    """Fill a cache with what is found out about compilers, which takes a second of each: once for all processes.

    ``known(folder, llvm22.clang)`` gives the folder, which is made; an empty name is no compiler.
    """
    shared = shared_folder / "probed"
    shared.mkdir(exist_ok=True)

    def fill(folder: Path, *compilers: str | Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        with (shared / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for compiler in filter(None, compilers):
                probe_compiler(str(compiler), cache=shared, timeout=300)
            if (shared / CACHE_NAME).exists():
                shutil.copy(shared / CACHE_NAME, folder)
        return folder

    return fill


@pytest.fixture(scope="session")
def probed(known: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that holds what was found out about clang-22, for tests that copy it."""
    return known(tmp_path_factory.mktemp("probed"), Llvm(22).clang)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(("mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)), capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("cannot mount a file system here")
    yield place
    subprocess.run(("umount", str(place)), check=True)


@pytest.fixture
def compile_c(tmp_path: Path) -> Callable[..., Path]:
    """Compile C (or, by the name's suffix, C++) to an object whose path is returned.

    ``compile_c(llvm22, "int f(void) { return 1; }", "-Oz", *EMBED, name="sub/f.c")`` gives
    ``tmp_path/sub/f.o``. The compiler runs in ``tmp_path``, and is given relative paths.
    """

    def compile_text(llvm: Llvm, text: str, *flags: str, name: str = "a.c", output: str = "") -> Path:
        source = tmp_path / name
        target = tmp_path / (output or Path(name).with_suffix(".o"))
        for path in (source, target):
            path.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text)
        compiler = llvm.clang if source.suffix == ".c" else llvm.clangxx
        run_checked(compiler, *flags, "-c", name, "-o", str(target.relative_to(tmp_path)), cwd=tmp_path)
        return target

    return compile_text


def unpack(name: str, folder: Path) -> None:
    """Unpack one of the archives of ``tests/data`` into a folder."""
    with tarfile.open(DATA / f"{name}.tar.gz") as tar:
        # Python 3.11.3 and older do not know the filter; 3.14 and newer want to be told.
        options: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        tar.extractall(folder, **options)  # noqa: S202 - the project's own archives


@pytest.fixture(scope="session")
def gcc() -> str:
    """GCC, whose objects hold no bitcode."""
    return shutil.which("gcc") or pytest.skip("gcc is not installed (make test installs it)")


def run_checked(*argv: str | Path, cwd: Path | None = None, timeout: float = 120) -> str:
    """Run a program that has to succeed, and return its stdout."""
    done = subprocess.run(
        argv, cwd=cwd, timeout=timeout, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{argv}: exit code {done.returncode}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make what the CLI prints the same everywhere: 120 columns, no colour, no terminal guessed."""
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("LINES", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    for name in ("FORCE_COLOR", "PY_COLORS", "CLICOLOR_FORCE", "GITHUB_ACTIONS", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


def _pass(_number: int, _frame: FrameType | None) -> None:
    """Handle a signal by doing nothing."""


def pytest_configure() -> None:
    """Set what all tests share."""
    # Ctrl-C is what it is in a terminal: a shell that starts us in the background has us ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # What nohup ignores is default in the programs that tests start (they inherit no handler), but does not end us.
    for number in ASKING_TO_END:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _pass)
    # How long an example takes says something about the machine only. The rest is as it was, also what CI sets.
    hypothesis.settings.register_profile("patient", parent=hypothesis.settings.default, deadline=None)
    hypothesis.settings.load_profile("patient")
    # Thousands of tests call verbs, whose commands are the same each time; and what tests hold is not worth a search
    # for cycles after each 700 objects.
    typer.main.get_command = functools.cache(typer.main.get_command)
    typer.testing._get_command = typer.main.get_command
    gc.set_threshold(50_000)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Make the files that all processes need before they begin: the tests with rewritten asserts, Unicode's tables."""
    if config.args_source is not pytest.Config.ArgsSource.TESTPATHS or sys.dont_write_bytecode:
        return
    children = []
    for half in (0, 1):
        if pid := os.fork():
            children.append(pid)
            continue
        try:  # whatever goes wrong, or is not there in another pytest: it is done later
            if half:
                charmap.intervals_from_codec("utf-8")  # of all texts that Hypothesis makes: two seconds
            _rewrite(sorted((ROOT / "tests").rglob("test_*.py"))[half::2], config)
        finally:
            os._exit(0)
    for pid in children:
        os.waitpid(pid, 0)


def _rewrite(paths: list[Path], config: pytest.Config) -> None:
    from _pytest.assertion import AssertionState, rewrite

    for path in paths:
        kept = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
        if not kept.exists():
            stat, code = rewrite._rewrite_test(path, config)
            kept.parent.mkdir(exist_ok=True)
            rewrite._write_pyc(AssertionState(config, "rewrite"), code, stat, kept)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep a file's tests in one process, which makes what they share once; see `_TOGETHER` and `_APART`."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc] # xdist is only there where tests run
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            return nodeid if _APART.search(nodeid) else _TOGETHER.get(path, path)

    config.option.loadscopereorder = False
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(_FIRST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))
    for item in items:
        if LLVM_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("llvm")
        if "ray_here" in getattr(item, "fixturenames", ()):
            item.add_marker("ray")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Search for no cycles in what stays to the end: it would be copied, too, in each process that a test forks."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        join_pages()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    skipped = report.skipped and not hasattr(report, "wasxfail")
    needed = next((what for marker, what in _NEEDED.items() if item.get_closest_marker(marker) is not None), None)
    if skipped and os.environ.get("CI") == "true" and needed is not None:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: in CI, a test that needs {needed} may not be skipped: {reason}"
    return report
