"""Find out what a compiler can do, by trying it on a dozen lines of C.

A version number does not tell. Whether a clang writes training logs depends on how it was built; whether it embeds
bitcode, on the driver in front; which bitcode it reads, on the content. So each ability is tried: logs and live
sessions must hold at least one decision of the task, and an object its module and command.

Reading bitcode is tried with the same lines compiled by each LLVM from 17 to 22, before any optimisation
(``data/probe/llvm-N.bc``: the clang of the ziglang releases 0.12.1, 0.13.0, 0.14.1, 0.15.2 and 0.16.0, and Debian's
clang 22, each with ``-target x86_64-linux-musl -O2 -Xclang -disable-llvm-passes -emit-llvm``). LLVM reads bitcode of
older versions, and bitcode of newer versions that has no features unknown to it.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from mlgo_corpus import __version__
from mlgo_corpus.builds.objects import Reason, SectionNames, Tally, read_object
from mlgo_corpus.compilers.find import (
    Candidate,
    Compiler,
    built_toolchains,
    find_beside,
    find_compilers,
    identify,
    named_compiler,
    one_line,
)
from mlgo_corpus.compilers.process import ToolResult, run_tool
from mlgo_corpus.compilers.session import InteractiveSession
from mlgo_corpus.engine.threads import results_in_threads
from mlgo_corpus.errors import FormatError, MlgoCorpusError, ToolError, UsageError
from mlgo_corpus.files.atomic import write_atomically
from mlgo_corpus.files.regular import MAX_NOTE_BYTES, read_regular
from mlgo_corpus.files.scratch import scratch_folder
from mlgo_corpus.files.text import os_reason
from mlgo_corpus.formats.logs.events import LogReader, Observation
from mlgo_corpus.formats.logs.tasks import INLINING_DEFAULT, TASKS, Task, for_clang

PROBE_DATA: Final = Path(__file__).parents[1] / "data" / "probe"
"""The folder of the dozen lines of C and of the bitcode that each LLVM makes from them."""

CACHE_NAME: Final = "probes.json"

# Each try takes some 50 ms.
_PROBE_TIMEOUT_S: Final = 20.0
# All tries of a compiler together write half of this.
_SCRATCH_BYTES: Final = 1 << 20

_SAMPLE_OPTIONS: Final = ("-triple", "x86_64-unknown-linux-musl", "-emit-obj", "-O2", "-w")


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A compiler and what it can do.

    Attributes:
        driver: the words of the command that runs it as a build does; ``python -m ziglang cc`` for zig's.
        origin: how it was found: ``option``, ``environment``, ``built``, ``PATH`` or ``ziglang``.
        binary: the file that compiles, behind wrappers; None if unknown.
        cc1: the words to put before ``-cc1``.
        version: LLVM's, such as ``19.1.7``.
        vendor: its version line.
        embeds_bitcode: whether ``-Xclang -fembed-bitcode=all`` puts module and command into an object.
        training_logs: the names of the tasks whose training logs it writes.
        interactive: the names of the tasks whose decisions a live session makes.
        reads_bitcode: the major versions of LLVM whose bitcode it reads.
        opt: the ``opt`` of the same version, if there is one; ``llc`` and ``llvm_config`` likewise.
        identity: a digest that is the same wherever the compiler is: of its version line, and of its bytes.
        lacks: the error for each ability that it lacks.
        problem: why it cannot be used at all, or None.
    """

    driver: tuple[str, ...]
    origin: str
    binary: Path | None = None
    cc1: tuple[str, ...] = ()
    version: str | None = None
    vendor: str | None = None
    embeds_bitcode: bool = False
    training_logs: tuple[str, ...] = ()
    interactive: tuple[str, ...] = ()
    reads_bitcode: tuple[int, ...] = ()
    opt: Path | None = None
    llc: Path | None = None
    llvm_config: Path | None = None
    identity: str = ""
    lacks: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None

    @property
    def major(self) -> int | None:
        """The first number of the version."""
        return None if self.version is None else int(self.version.partition(".")[0])

    def as_json(self) -> dict[str, Any]:
        """Return the values that ``--json`` prints."""
        return {item.name: _plain(getattr(self, item.name)) for item in fields(self)}


def probe_toolchains(
    named: str | None = None,
    *,
    cache: Path | None = None,
    jobs: int = 1,
    timeout: float = _PROBE_TIMEOUT_S,
) -> tuple[Toolchain, ...]:
    """Find compilers and what each can do, in the order of `find_compilers`, each binary once.

    Args:
        named: a compiler to probe first.
        cache: the folder that keeps results, and knows the toolchains that this package built; None to probe anew.
        jobs: how many compilers to probe at a time.
        timeout: seconds for each try; after one that takes longer, the compiler is not tried further.

    Raises:
        UsageError: a compiler that is named does not exist.
    """
    candidates = find_compilers(named, built=built_toolchains(cache) if cache else ())
    with scratch_folder() as scratch:
        prober = _Prober(scratch, _ProbeCache.load(cache), timeout)
        how: dict[str, Any] = {"jobs": jobs, "stop": prober.stop}
        found = results_in_threads(prober.identified, candidates, **how)
        unique: dict[tuple[str, ...], Compiler | Toolchain] = {}
        for one in found:
            unique.setdefault((os.path.realpath(one.binary), *one.cc1[1:]) if one.binary else one.driver, one)
        probed = results_in_threads(lambda each: prober.probed(*each), tuple(enumerate(unique.values())), **how)
    prober.cache.save(cache)
    return tuple(probed)


def probe_compiler(named: str, *, cache: Path | None = None, timeout: float = _PROBE_TIMEOUT_S) -> Toolchain:
    """Find out what one compiler can do.

    Raises:
        UsageError: it does not exist, or cannot be used.
    """
    first = named_compiler(named, "option")
    with scratch_folder() as scratch:
        prober = _Prober(scratch, _ProbeCache.load(cache), timeout)
        toolchain = prober.probed(0, prober.identified(first))
    prober.cache.save(cache)
    if toolchain.problem is not None:
        raise UsageError(f"{named}: {toolchain.problem}")
    return toolchain


class _Prober:
    """Probes compilers, each in a folder of its own beside ``probe.c``."""

    def __init__(self, scratch: Path, cache: _ProbeCache, timeout: float) -> None:
        self.scratch = scratch
        self.cache = cache
        self.timeout = timeout
        self.stop = threading.Event()
        shutil.copy(PROBE_DATA / "probe.c", scratch / "probe.c")

    def identified(self, candidate: Candidate) -> Compiler | Toolchain:
        try:
            return identify(candidate, timeout=self.timeout, stop=self.stop)
        except MlgoCorpusError as error:
            return Toolchain(candidate.words, candidate.origin, problem=one_line(error))

    def probed(self, index: int, compiler: Compiler | Toolchain) -> Toolchain:
        if isinstance(compiler, Toolchain):
            return compiler
        folder = self.scratch / f"probe-{index}"
        folder.mkdir()
        toolchain = Toolchain(
            driver=compiler.driver,
            origin=compiler.origin,
            binary=compiler.binary,
            cc1=compiler.cc1,
            version=compiler.version,
            vendor=compiler.vendor,
        )
        key = _cache_key(compiler)
        known = self.cache.get(key)
        if known is None:
            try:
                known = _Abilities(compiler, folder, self.timeout, self.stop).all()
            except MlgoCorpusError as error:
                return replace(toolchain, problem=one_line(error))
            self.cache.put(key, known)
        return replace(
            toolchain,
            embeds_bitcode=known["embeds_bitcode"],
            training_logs=tuple(known["training_logs"]),
            interactive=tuple(known["interactive"]),
            reads_bitcode=tuple(known["reads_bitcode"]),
            lacks=known["lacks"],
            opt=_path(known["opt"]),
            llc=_path(known["llc"]),
            llvm_config=_path(known["llvm_config"]),
            identity=known["identity"],
        )


class _Abilities:
    """Tries what one compiler can do: a try that hangs or is killed raises; one that fails is noted in ``lacks``.

    If another thread sets ``stop``, the running try is ended and raises, too.
    """

    def __init__(self, compiler: Compiler, folder: Path, timeout: float, stop: threading.Event) -> None:
        self.compiler = compiler
        self.folder = folder
        self.timeout = timeout
        self.stop = stop
        self.lacks: dict[str, str] = {}

    def all(self) -> dict[str, Any]:
        # If the compiler cannot compile a dozen lines of C, its error is the toolchain's problem; try no more.
        self._compile()
        abilities = {
            "embeds_bitcode": self._try("embedding", self._embed),
            "training_logs": [task.name for task in TASKS if self._try(f"{task.name} log", self._log, task)],
            "interactive": [task.name for task in TASKS if self._try(f"{task.name} session", self._converse, task)],
            "reads_bitcode": [
                version for version, path in _samples() if self._try(f"LLVM {version} bitcode", self._read, path)
            ],
            **{name.replace("-", "_"): _plain(self._beside(name)) for name in ("opt", "llc", "llvm-config")},
            "identity": _identity(self.compiler),
            "lacks": self.lacks,
        }
        if self.lacks:
            self._check_space()
        return abilities

    def _check_space(self) -> None:
        """Raise if the disk is full: abilities may only seem to be lacking, and the result would be kept."""
        try:
            (self.folder / "space").write_bytes(bytes(_SCRATCH_BYTES))
        except OSError as error:
            raise UsageError(f"{self.folder.parents[1]}: {os_reason(error)}") from error
        finally:
            (self.folder / "space").unlink(missing_ok=True)

    def _try(self, what: str, ability: Any, *arguments: Any) -> bool:
        try:
            ability(*arguments)
        except ToolError as error:
            # A compiler that hung, was stopped, or was killed (perhaps for lack of memory) may have the ability.
            if error.returncode in (None, -signal.SIGTERM, -signal.SIGKILL):
                raise
            self.lacks[what] = one_line(error)
        except (FormatError, MlgoCorpusError, OSError) as error:
            self.lacks[what] = one_line(error)
        else:
            return True
        return False

    def _compile(self, *options: str, words: Sequence[str] | None = None) -> None:
        argv = (*self.compiler.cc1, *(self.compiler.compile_words if words is None else words), *options)
        self._run(*argv)

    def _run(self, *argv: str) -> ToolResult:
        return run_tool(argv, cwd=self.folder, timeout=self.timeout, stop=self.stop)

    def _embed(self) -> None:
        """Build as a user would, through the driver and any wrapper."""
        flags = ("-O2", "-c", "-Xclang", "-fembed-bitcode=all", "../probe.c", "-o", "embedded.o")
        self._run(*self.compiler.driver, *flags)
        data = (self.folder / "embedded.o").read_bytes()
        found = list(read_object(data, Tally(), names=SectionNames()))
        if len(found) != 1 or found[0].reason is not Reason.OK or not found[0].bitcode or not found[0].command:
            raise FormatError(found[0].detail or f"no bitcode in the object ({found[0].reason})")

    def _log(self, task: Task) -> None:
        log = self.folder / f"{task.name}.log"
        self._compile(*for_clang(task.log_options(log.name)))
        with log.open("rb") as file:
            if not any(isinstance(event, Observation) for event in LogReader(file)):
                raise FormatError("a log without observations")

    def _converse(self, task: Task) -> None:
        session_features(self.compiler, task, self.folder, timeout=self.timeout, stop=self.stop)

    def _read(self, sample: Path) -> None:
        """Compile a module to an object: an LLVM may parse another's bitcode, and fail on it later."""
        self._compile(words=("-cc1", *_SAMPLE_OPTIONS, "-o", "sample.o", "-x", "ir", str(sample)))

    def _beside(self, name: str) -> Path | None:
        path = find_beside(self.compiler, name)
        if path is None:
            return None
        with suppress(ToolError):
            if self.compiler.version in self._run(str(path), "--version").stdout.decode(errors="replace"):
                return path
        return None


def session_features(
    compiler: Compiler,
    task: Task,
    folder: Path,
    *options: str,
    timeout: float = _PROBE_TIMEOUT_S,
    stop: threading.Event | None = None,
) -> tuple[str, ...]:
    """Hold a live session over ``probe.c``, which is beside a folder, and return the features that it told of.

    Args:
        compiler: who asks.
        task: about what.
        folder: where it runs.
        options: further ones.
        timeout: seconds until the session is ended.
        stop: ends it from another thread.

    Raises:
        ToolError: the compiler fails.
        FormatError: it asks for no decision, or says what is no session.
    """
    base = folder / f"{task.name}.channel"
    argv = (*compiler.cc1, *compiler.compile_words, *options, *for_clang(task.channel_options(str(base))))
    decisions = 0
    with InteractiveSession(argv, base, timeout=timeout, cwd=folder, stop=stop) as session:
        for observation in session:
            session.advise(_any_advice(observation.record))
            decisions += 1
        if not decisions or session.header is None:
            raise FormatError("it asked for no decision")
        return tuple(spec.name for spec in session.header.features)


def _any_advice(record: Any) -> int:
    """Return advice that is always allowed: the default, else the first choice that the mask allows, else 0."""
    names = record.dtype.names
    if INLINING_DEFAULT in names:
        return int(any(record[INLINING_DEFAULT].ravel().tolist()))
    if "mask" in names:
        mask = record["mask"].ravel().tolist()
        return next((index for index, allowed in enumerate(mask) if allowed), 0)
    return 0


def _samples() -> list[tuple[int, Path]]:
    return sorted((int(path.stem.partition("-")[2]), path) for path in PROBE_DATA.glob("llvm-*.bc"))


class _ProbeCache:
    """Probe results by the identity of binary, driver and this package, in one JSON file."""

    def __init__(self, known: dict[str, Any]) -> None:
        self._known = known
        self._changed = False

    @classmethod
    def load(cls, folder: Path | None) -> _ProbeCache:
        """Read the file, or begin with no results if it cannot be read."""
        known: Any = None
        if folder is not None:
            with suppress(OSError, ValueError, RecursionError):
                known = json.loads(read_regular(folder / CACHE_NAME, MAX_NOTE_BYTES))
        return cls(known if isinstance(known, dict) else {})

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the known result, or None."""
        found = self._known.get(key)
        return found if _is_whole(found) else None

    def put(self, key: str, abilities: dict[str, Any]) -> None:
        """Add a result."""
        self._known[key] = abilities
        self._changed = True

    def save(self, folder: Path | None) -> None:
        """Write the file. If that fails, the next call probes again."""
        if folder is not None and self._changed:
            with suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                write_atomically(folder / CACHE_NAME, json.dumps(self._known, indent=1).encode())


_PROGRAMS: Final = ("opt", "llc", "llvm_config")


def _is_whole(found: Any) -> bool:
    """Return True if a value read from JSON has the form of a result of `_Abilities`."""
    return (
        isinstance(found, dict)
        and isinstance(found.get("embeds_bitcode"), bool)
        and all(_are(str, found.get(name)) for name in ("training_logs", "interactive"))
        and _are(int, found.get("reads_bitcode"))
        and isinstance(found.get("identity"), str)
        and isinstance(found.get("lacks"), dict)
        and all(isinstance(found.get(name, 0), str | None) for name in _PROGRAMS)
    )


def _are(kind: type, items: Any) -> bool:
    return isinstance(items, list) and all(isinstance(item, kind) for item in items)


def _identity(compiler: Compiler) -> str:
    digest = sha256(compiler.vendor.encode("utf-8", "replace"))
    with compiler.binary.open("rb") as file:  # it takes a third of a second where all of LLVM is in it
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _cache_key(compiler: Compiler) -> str:
    """Return a digest of what was probed: the binary, its driver, the programs beside it, and this package."""
    parts: list[Any] = [__version__, platform.machine(), compiler.driver, compiler.cc1]
    beside = (find_beside(compiler, name) for name in ("opt", "llc", "llvm-config"))
    for path in (Path(compiler.driver[0]), compiler.binary, *beside):
        with suppress(OSError):
            status = os.stat(path) if path is not None else None
            parts.append(None if status is None else (str(path), status.st_size, status.st_mtime_ns))
    for _, sample in _samples():
        parts.append(sample.stat().st_size)
    return sha256(repr(parts).encode()).hexdigest()[:24]


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
