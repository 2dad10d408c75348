"""The doctor stage: what is installed, what each verb lacks, and what to do about it.

Nothing is inferred from a version or a file name: required packages are imported, folders are written to, and
compilers are tried (`mlgo_corpus.compilers.probe`). Extras are only looked up, not imported: importing ray takes
seconds.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mlgo_corpus import __version__
from mlgo_corpus.corpus.links import cache_folder
from mlgo_corpus.engine.choice import available_cpus
from mlgo_corpus.files.scratch import scratch_folder
from mlgo_corpus.files.text import option_key, os_reason
from mlgo_corpus.formats.objects.objfile import load_lief
from mlgo_corpus.runs.report import Report

if TYPE_CHECKING:  # trying compilers needs numpy, which may itself be broken
    from mlgo_corpus.compilers.probe import Toolchain

_EXTEND: Final = "toolchain extend, inlining-3.0"
_LOGS: Final = "trace (LLVM's register allocation)"
_NO_COMPILER: Final = f"install clang, or pip install 'mlgo-corpus[zig]', or name one with {option_key('compiler')}"

# Required packages: the module, the package.
_NEEDED: Final = (
    ("numpy", "numpy"),
    ("pyarrow", "pyarrow"),
    ("lief", "lief"),
    ("google_crc32c", "google-crc32c"),
    ("rich", "rich"),
    ("typer", "typer"),
)
_ON_RAY: Final = f"{option_key('engine')} ray"
# Extras: the extra, its module, its package, its purpose.
_EXTRAS: Final = (
    ("zig", "ziglang", "ziglang", "a clang from pip, which the demo runs"),
    ("ray", "ray", "ray", f"{_ON_RAY}, SharedWorkers"),
    ("rl", "gymnasium", "gymnasium", "environments for reinforcement learning"),
    ("report", "vl_convert", "vl-convert-python", "the charts of report"),
    ("report", "jinja2", "jinja2", "the pages of report"),
    ("learn", "lightgbm", "lightgbm", "train"),
    ("learn", "cma", "cma", "train by evolution"),
)
# Compilers write temporary files, and datasets are staged: with less space than this, runs end in disk_full.
_LITTLE_SPACE: Final = 1 << 30
# An engine with many workers has three pipes and a compiler's files open for each.
_FEW_FILES: Final = 512


_TEMPORARY: Final = "temporary files"
_NO_WALLS: Final = "run corpora of others in a container or a virtual machine"


class State(StrEnum):
    """The state of one thing; only `BROKEN` is an error."""

    READY = "ready"
    LIMITED = "limited"
    MISSING = "missing"
    BROKEN = "broken"


class Group(StrEnum):
    """The kind of thing that a finding is about."""

    MACHINE = "machine"
    PACKAGE = "package"
    VERB = "verb"


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of one thing.

    Attributes:
        group: the kind of thing.
        name: the thing: a folder, a package, verbs.
        state: its state.
        found: what was found, or what is missing.
        remedy: what to do; empty if nothing has to be done.
    """

    group: Group
    name: str
    state: State
    found: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis(Report):
    """The result of `diagnose`.

    Attributes:
        findings: machine, packages, verbs, in this order.
        toolchains: the compilers, including those that cannot be used.
    """

    findings: tuple[Finding, ...]
    toolchains: tuple[Toolchain, ...]

    @property
    def exit_code(self) -> int:
        """1 if something is broken, else 0; an extra that is not installed is not an error."""
        return int(any(finding.state == State.BROKEN for finding in self.findings))

    def as_json(self) -> dict[str, Any]:
        """Return the version of this package, the exit code and the findings as plain values."""
        return {"version": __version__, "exit_code": self.exit_code, **Report.as_json(self)}


def diagnose(compiler: str | None = None, *, cache: Path | str | None = None) -> Diagnosis:
    """Examine this machine, the packages and the compilers, and find out which verbs work.

    Args:
        compiler: a compiler to examine first, as for `list_toolchains`.
        cache: the folder that keeps what is known about compilers; the user's `cache_folder` by default.

    Raises:
        UsageError: ``compiler``, or the one that ``MLGO_CORPUS_COMPILER`` names, does not exist.
    """
    folder = cache_folder(cache)
    machine, packages = _machine(folder), _packages()
    broken = [finding.name for finding in packages if finding.state == State.BROKEN]
    toolchains: tuple[Toolchain, ...] = ()
    if broken:
        verbs: tuple[Finding, ...] = (Finding(Group.VERB, "all verbs", State.BROKEN, f"without {', '.join(broken)}"),)
    elif any(finding.name == _TEMPORARY and finding.state == State.BROKEN for finding in machine):
        verbs = (Finding(Group.VERB, "all that run compilers", State.BROKEN, f"without {_TEMPORARY}"),)
    else:
        from mlgo_corpus.compilers.probe import probe_toolchains

        toolchains = probe_toolchains(compiler, cache=folder, jobs=available_cpus())
        verbs = _verbs(toolchains, packages)
    return Diagnosis((*machine, *packages, *verbs), toolchains)


def _machine(cache: Path) -> tuple[Finding, ...]:
    usable, there = available_cpus(), os.cpu_count() or 1
    cpus = f"{usable} CPUs" + (f" of {there} may be used" if usable != there else "")
    system = f"{platform.system()} {platform.machine()}, {cpus}{_memory()}"
    found = [
        Finding(Group.MACHINE, "Python", State.READY, f"{platform.python_version()} ({sys.executable})"),
        _tested(system),
        _temporary(),
        _folder("cache", cache, "MLGO_CORPUS_CACHE"),
    ]
    found.append(_walls())
    if (limit := _open_files()) is not None and limit < _FEW_FILES:
        remedy = f"ulimit -n {2 * _FEW_FILES}, or fewer {option_key('jobs')}"
        found.append(Finding(Group.MACHINE, "open files", State.LIMITED, f"at most {limit}", remedy))
    return tuple(found)


def _tested(system: str) -> Finding:
    """Return what the machine is; on another system than Linux, that nothing was ever run there."""
    if platform.system() == "Linux":
        return Finding(Group.MACHINE, "system", State.READY, system)
    remedy = "expect surprises, or use Linux, also in a container or a virtual machine"
    return Finding(Group.MACHINE, "system", State.LIMITED, f"{system}; tested on Linux only", remedy)


def _walls() -> Finding:
    """Find out which walls confine compilers that run on untrusted corpora."""
    from mlgo_corpus.compilers.launcher import SINCE_TCP
    from mlgo_corpus.compilers.walls import can_launch, standing

    name = "walls around compilers"
    if not can_launch():
        return Finding(Group.MACHINE, name, State.LIMITED, "none: they need Linux 5.13", _NO_WALLS)
    walls = standing()
    stand = [f"files (Landlock {walls.landlock})"] if walls.landlock else []
    stand += ["network (seccomp)"] if walls.seccomp else ["TCP (Landlock)"] if walls.landlock >= SINCE_TCP else []
    if walls.landlock and walls.seccomp:
        return Finding(Group.MACHINE, name, State.READY, ", ".join(stand))
    lacking = [] if walls.landlock else ["none around files: Landlock is missing or switched off"]
    lacking += [] if walls.seccomp else ["none around the network: seccomp is missing"]
    return Finding(Group.MACHINE, name, State.LIMITED, "; ".join([*stand, *lacking]), _NO_WALLS)


def _memory() -> str:
    try:
        size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return ""
    return f", {size / 1e9:.0f} GB of memory"


def _open_files() -> int | None:
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if limit == resource.RLIM_INFINITY else limit


def _temporary() -> Finding:
    try:
        folder = Path(tempfile.gettempdir())
    except OSError as error:
        return Finding(Group.MACHINE, _TEMPORARY, State.BROKEN, os_reason(error), _writable("TMPDIR"))
    return _folder(_TEMPORARY, folder, "TMPDIR", needs_fifo=True)


def _writable(variable: str) -> str:
    return f"set {variable} to a folder that can be written to"


def _folder(name: str, folder: Path, variable: str, *, needs_fifo: bool = False) -> Finding:
    """Test a folder, or its nearest existing parent, by writing a file and a FIFO; live sessions use two FIFOs."""
    remedy = _writable(variable)
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        with scratch_folder(place) as scratch:
            (scratch / "file").write_bytes(b"\0")
            if needs_fifo:
                os.mkfifo(scratch / "fifo")
        free = shutil.disk_usage(place).free
    except OSError as error:
        return Finding(Group.MACHINE, name, State.BROKEN, f"{folder}: {os_reason(error)}", remedy)
    found = f"{folder}, {free / 1e9:.1f} GB free"
    if free < _LITTLE_SPACE:
        return Finding(Group.MACHINE, name, State.LIMITED, found, f"make room, or {remedy}")
    return Finding(Group.MACHINE, name, State.READY, found)


def _packages() -> tuple[Finding, ...]:
    found = []
    for module, name in _NEEDED:
        try:
            if module == "lief":
                load_lief()
            else:
                importlib.import_module(module)
        except Exception as error:
            said = " ".join(str(error).split()) or type(error).__name__
            found.append(Finding(Group.PACKAGE, name, State.BROKEN, said, f"pip install --force-reinstall {name}"))
        else:
            found.append(Finding(Group.PACKAGE, name, State.READY, _version(name)))
    for extra, module, package, purpose in _EXTRAS:
        if importlib.util.find_spec(module) is None:
            remedy = f"pip install 'mlgo-corpus[{extra}]'"
            found.append(Finding(Group.PACKAGE, package, State.MISSING, f"for {purpose}", remedy))
        else:
            found.append(Finding(Group.PACKAGE, package, State.READY, _version(package)))
    return tuple(found)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "a version of its own"


def _verbs(toolchains: Sequence[Toolchain], packages: Sequence[Finding]) -> tuple[Finding, ...]:
    state_of = {finding.name: finding for finding in packages}

    def with_packages(verb: str, *names: str) -> Finding:
        needed = [state_of[name] for name in names]
        worst = next((one for one in needed if one.state != State.READY), needed[0])
        return Finding(Group.VERB, verb, worst.state, _needs(worst), worst.remedy)

    data = (
        "extract, explain, stats, combine, make, split, dedup, verify, pack, unpack, logs-to-parquet, parquet-to-logs, "
        "dump, export, vocab"
    )
    return (
        Finding(Group.VERB, data, State.READY, "no compiler needed"),
        *_compiler_verbs([one for one in toolchains if one.problem is None]),
        with_packages("demo", "ziglang"),
        with_packages("train", "lightgbm"),
        with_packages("report", "vl-convert-python", "jinja2"),
        with_packages(_ON_RAY, "ray"),
        _object_storage(),
    )


def _needs(package: Finding) -> str:
    return f"{package.name} {package.found}" if package.state == State.READY else f"no {package.name}"


def _compiler_verbs(working: Sequence[Toolchain]) -> tuple[Finding, ...]:
    """Return a finding for each verb that runs a compiler: the compilers it can use, or the ability they all lack."""
    from mlgo_corpus.compilers.choose import USUAL_MAJOR, build_with, reads_corpora_of
    from mlgo_corpus.compilers.devmode.installed import DEVMODE_MAJOR
    from mlgo_corpus.compilers.native.extended import OLDEST_EXTENDED, headers_of, headers_package
    from mlgo_corpus.formats.logs.tasks import EVICTION, INLINING, PRIORITY

    sessions = [one for one in working if INLINING in one.interactive]
    extensible = [one for one in sessions if one.origin != "ziglang" and (one.major or 0) >= OLDEST_EXTENDED]
    headed = [one for one in extensible if headers_of(one) is not None]
    logging = [one for one in working if {EVICTION, PRIORITY} <= set(one.training_logs)]
    newest = max((one.major or 0 for one in working), default=0)  # the one that a build takes
    # By verb: what it cannot do for the newest clang, whose corpora a build makes; and the remedy.
    limits: dict[str, tuple[str, str]] = {}
    headers = f"apt-get install {headers_package(max((one.major or 0 for one in extensible), default=USUAL_MAJOR))}"
    if newest in {one.major for one in extensible} - {one.major for one in headed}:
        limits[_EXTEND] = f", not for LLVM {newest}", headers
    if logging and not any(reads_corpora_of(one, newest) for one in logging):
        limits[_LOGS] = f", which reads no corpus of LLVM {newest}", build_with(max(one.major or 0 for one in logging))
    wants: tuple[tuple[str, str, list[Toolchain], str], ...] = (
        ("build", "embeds bitcode", [one for one in working if one.embeds_bitcode], _NO_COMPILER),
        (f"verify {option_key('rebuild')}", "works", list(working), _NO_COMPILER),
        (
            "trace (inlining, own policies), search, evaluate",
            "holds live sessions",
            sessions,
            "install clang 17 or newer, or pip install 'mlgo-corpus[zig]'",
        ),
        (
            "toolchain wrap",
            "holds live sessions without a cache of objects",
            [one for one in sessions if one.origin != "ziglang"],
            "install clang 17 or newer",
        ),
        (
            _EXTEND,
            "has LLVM's headers of its version",
            headed,
            headers,
        ),
        (
            _LOGS,
            "writes training logs",
            logging,
            f"mlgo-corpus toolchain build (about a minute, once), and {build_with(DEVMODE_MAJOR)}",
        ),
        (
            "ir2native",
            "has an opt of its version beside it",
            [one for one in working if one.opt is not None],
            "install the llvm package of a clang's version, such as llvm-22 for clang-22",
        ),
    )
    found = []
    for verb, ability, able, remedy in wants:
        if able:
            shown = ", ".join(dict.fromkeys(map(_shown, able)))
            if verb in limits:
                but, remedy = limits[verb]
                found.append(Finding(Group.VERB, verb, State.LIMITED, f"{shown}{but}", remedy))
            else:
                found.append(Finding(Group.VERB, verb, State.READY, shown))
        else:
            lacking = f"no compiler here {ability}" if working else "no compiler"
            found.append(Finding(Group.VERB, verb, State.MISSING, lacking, remedy if working else _NO_COMPILER))
    return tuple(found)


def _shown(toolchain: Toolchain) -> str:
    return f"{'ziglang' if toolchain.origin == 'ziglang' else 'clang'} {toolchain.version}"


def _object_storage() -> Finding:
    """Return a finding about object storage, which some builds of pyarrow lack."""
    name = "s3:// and gs://"
    lacking = []
    from pyarrow import fs

    for scheme, kind in (("s3", "S3FileSystem"), ("gs", "GcsFileSystem")):
        if not hasattr(fs, kind):
            lacking.append(f"{scheme}://")
    if lacking:
        return Finding(
            Group.VERB, name, State.MISSING, f"this pyarrow is without {' and '.join(lacking)}", "pip install pyarrow"
        )
    return Finding(Group.VERB, name, State.READY, "pyarrow has both")
