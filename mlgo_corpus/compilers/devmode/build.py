"""Build a clang, an opt and an llc with LLVM's development mode, without building LLVM.

A stock LLVM lacks development mode because it was compiled without TFLite. Here the few files that depend on it are
compiled from the distribution's own sources, and linked with the distribution's static libraries and our own evaluator
(``model_evaluator.cpp``). Without a model, development mode logs the decisions of LLVM's own heuristics, so the objects
equal the stock clang's.

The output::

    OUT/bin/clang, clang++, opt, llc
    OUT/lib/clang         a link to the stock clang's headers (the parent of its resource directory)
    OUT/toolchain.json    a description, with what it was made from; it has `inputs` only if the rest is complete

Release mode is made in the same way, with a model instead of development mode: only the file of LLVM's that asks the
model is compiled with its header (`mlgo_corpus.compilers.devmode.record.Embedded`).

The tools are moved there when they are complete and have passed a probe. Intermediate files are in a cache, one folder
for each LLVM, and a build that was interrupted goes on from there.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlgo_corpus import __version__
from mlgo_corpus.compilers.devmode.compilation import (
    CLANG_MAIN,
    CLANG_MAIN_16,
    CONFIG_HEADER,
    EVALUATOR,
    LINK_FLAGS,
    OWN_FLAGS,
    TOOLS,
    ToolCompiler,
    disk_full,
    has_opt_library,
    list_units,
    write_generated,
)
from mlgo_corpus.compilers.devmode.installed import (
    Installed,
    Missing,
    install_packages,
    look,
    missing_error,
    package_names,
)
from mlgo_corpus.compilers.devmode.probe import probe_release, probe_tools
from mlgo_corpus.compilers.devmode.provision import Source, is_made_of, part_folder, provide_source
from mlgo_corpus.compilers.devmode.record import (
    ALREADY_THERE,
    PHASES,
    Embedded,
    Phase,
    Progress,
    Record,
    Request,
)
from mlgo_corpus.compilers.process import run_tool
from mlgo_corpus.errors import UsageError
from mlgo_corpus.files.atomic import write_atomically
from mlgo_corpus.files.lock import locked
from mlgo_corpus.files.scratch import scratch_folder
from mlgo_corpus.files.text import counted, is_disk_full, os_reason
from mlgo_corpus.formats.logs.tasks import TASKS

__all__ = ["PHASES", "DevmodeBuild", "Phase", "Released", "build_devmode", "read_released"]

_DESCRIPTION_NAME = "toolchain.json"
_FORMAT = "mlgo-corpus-devmode"

# Files in the output of a build that runs or was killed.
_LOCK_NAME = ".devmode.lock"
_PART_NAME = ".devmode.part"
# Our folders in a cache, which others may use as well.
_WORK_NAME = "devmode-build"
_TOOLCHAINS_NAME = "toolchains"


@dataclass(frozen=True, slots=True)
class DevmodeBuild:
    """The result of `build_devmode`; ``version`` is LLVM's, ``tools`` are clang, opt and llc."""

    output: Path
    version: str
    tools: tuple[Path, ...]
    phases: tuple[Phase, ...]
    seconds: float
    fetched_bytes: int


@dataclass(frozen=True, slots=True)
class Released:
    """A compiler with a policy linked in.

    Attributes:
        output: its folder.
        policy: the policy's name; ``task`` and ``policy_digest`` are the policy's, too.
        version: LLVM's version.
        default_on: whether clang uses the policy for -Os and -Oz without being told.
    """

    output: Path
    policy: str
    task: str
    policy_digest: str
    version: str
    default_on: bool

    @property
    def clang(self) -> Path:
        """The program."""
        return self.output / "bin" / "clang"


def build_devmode(
    output: Path | None,
    *,
    llvm_config: str | None = None,
    llvm_source: Path | None = None,
    cache: Path,
    install: bool = False,
    jobs: int,
    force: bool = False,
    progress: Progress,
    embedded: Embedded | None = None,
) -> DevmodeBuild:
    """Build the tools into ``output``, ``jobs`` processes at a time; tools that exist and fit are only probed.

    ``output`` is by default ``toolchains/devmode-N`` in the cache, where N is LLVM's major version. ``llvm_config``
    names the LLVM to build with (default: 19, then others). ``llvm_source`` is a tree of the same version's sources, or
    a tarball of one (default: apt fetches the package's). ``install`` lets apt install missing packages. ``force``
    builds anew, also into a folder with other files, which stay. ``progress`` is called with a phase
    (`mlgo_corpus.compilers.devmode.record.PHASES`), the amount done, and the total. ``embedded`` is a model for release
    mode, which then takes the place of development mode.

    While another build uses the same output or the same cache, this one waits (phase ``wait``).

    Raises:
        UsageError: something is missing, does not fit, or is in the way; the message says what to do.
        ToolError: a compiler or another program failed, or the tools failed the probe.
        FormatError: an archive of sources is damaged.
    """
    request = Request(
        llvm_config=llvm_config,
        llvm_source=llvm_source.absolute() if llvm_source is not None else None,
        cache=cache.absolute(),
        install=install,
        jobs=jobs,
        force=force,
        progress=progress,
        embedded=embedded,
    )
    record = Record()
    try:
        if output is not None:  # before anything is installed
            _check_output(output, force=force)
        installed = _look(request, record)
        if output is None and embedded is not None:
            raise UsageError("a compiler with a policy in it needs a folder of its own", option="output")
        output = (output or request.cache / _TOOLCHAINS_NAME / f"devmode-{installed.major}").absolute()
        _build(output, request, record, installed)
    except OSError as error:
        raise _unusable(error, request.cache) from error
    return DevmodeBuild(
        output=output,
        version=installed.version,
        tools=tuple(output / "bin" / tool for tool in TOOLS),
        phases=tuple(record.phases),
        seconds=time.monotonic() - record.begin,
        fetched_bytes=record.fetched_bytes,
    )


def _unusable(error: OSError, cache: Path) -> UsageError:
    path = Path(os.fsdecode(error.filename)) if error.filename else None
    if is_disk_full(error):
        return disk_full(path.parent if path else cache)
    return UsageError(f"{path or cache}: cannot be used: {os_reason(error)}")


def _build(output: Path, request: Request, record: Record, installed: Installed) -> None:
    if not request.force and _is_finished(output, request, installed):
        _probe(output / "bin", request, record, installed, ALREADY_THERE)
        return
    _check_output(output, force=request.force)
    # Always in this order, so that builds cannot wait for each other.
    with _claimed(output), _locked(output / _LOCK_NAME, request, record):
        if not request.force and _is_finished(output, request, installed):
            _probe(output / "bin", request, record, installed, ALREADY_THERE)
            return
        work = request.cache / _WORK_NAME / f"llvm-{installed.version}"
        with _locked(work / "lock", request, record):
            _make(output, request, record, installed, work)


def _check_output(output: Path, *, force: bool) -> None:
    """Refuse an output that is not a toolchain of ours, except with ``force``."""
    if not output.exists() or _read_description(output):
        return
    if not output.is_dir():
        raise UsageError(f"{output}: expected a folder, found a file: name another `output`")
    strangers = {path.name for path in output.iterdir()} - {_LOCK_NAME, _PART_NAME}
    strangers -= {name for name in strangers if name.startswith(f".{_DESCRIPTION_NAME}.")}
    # Another build may just have begun to move its tools into place, which a description precedes.
    if not force and strangers and not _read_description(output):
        raise UsageError(
            f"{output}: is not empty, and not a toolchain (it has no {_DESCRIPTION_NAME} of ours):"
            " name another `output`, or add `force` to build in it"
        )


def _look(request: Request, record: Record) -> Installed:
    """Find the LLVM to build with; install its missing packages if that was requested."""
    with record.phase("look") as detail:
        request.progress("look", 0, 1)
        installed, missing = look(request.llvm_config, release=request.embedded is not None)
        request.progress("look", 1, 1)
        detail.append(f"LLVM {installed.version}" if installed is not None else "no LLVM")
    if installed is None or missing:
        return _install(request, record, installed, missing)
    return installed


def _install(request: Request, record: Record, installed: Installed | None, missing: tuple[Missing, ...]) -> Installed:
    what = f"{installed.llvm_config.name} is LLVM {installed.version}" if installed else "no LLVM to build with"
    packages = package_names(missing)
    if not request.install or not all(item.package for item in missing):
        raise missing_error(what, missing)
    asked: list[str] = []
    with record.phase("packages") as detail:
        # The packages installed determine what else is needed, so a second round may follow.
        while missing and not set(packages) <= set(asked):
            request.progress("packages", len(asked), len(asked) + len(packages))
            install_packages(packages)
            asked += packages
            request.progress("packages", len(asked), len(asked))
            named = str(installed.llvm_config) if installed else missing[0].file
            installed, missing = look(named, release=request.embedded is not None)
            packages = package_names(missing)
        detail.append(counted(len(asked), "package"))
    if installed is None or missing:
        raise missing_error("after apt-get install", missing)
    return installed


@contextmanager
def _claimed(output: Path) -> Iterator[None]:
    """Make the output's folder; remove it in the end if it is empty."""
    output.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):  # it is not empty
            output.rmdir()


@contextmanager
def _locked(path: Path, request: Request, record: Record) -> Iterator[None]:
    begin = time.monotonic()
    waited = False

    def waiting() -> None:
        nonlocal waited
        waited = True
        request.progress("wait", 0, 1)

    with locked(path, str(path), waiting=waiting):
        if waited:
            request.progress("wait", 1, 1)
            record.phases.append(Phase("wait", time.monotonic() - begin, f"for another build in {path.parent}"))
        yield


def _read_description(output: Path) -> dict[str, Any]:
    """Return the output's description; empty if it has none of ours."""
    try:
        description = json.loads((output / _DESCRIPTION_NAME).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    is_ours = isinstance(description, dict) and description.get("format") == _FORMAT
    return description if is_ours else {}


def read_released(output: Path) -> Released | None:
    """Return the release-mode compiler in a folder; None if there is none."""
    description = _read_description(output)
    inputs, task = description.get("inputs"), description.get("task")
    if not isinstance(inputs, dict) or not (output / "bin" / "clang").is_file():
        return None
    texts = [inputs.get(key) for key in ("policy", "policy_digest", "llvm")]
    if task not in [one.name for one in TASKS] or not all(isinstance(text, str) for text in texts):
        return None
    name, digest, version = map(str, texts)
    return Released(output, name, task, digest, version, inputs.get("default_on") is True)


def _is_finished(output: Path, request: Request, installed: Installed) -> bool:
    """Return True if the output was made from the same inputs, and its tools have not been changed since."""
    description = _read_description(output)
    try:
        return (
            description.get("inputs") == _inputs(installed, request.embedded)
            and description["tools"] == _tool_sizes(output)
            and (output / "bin" / "clang++").exists()
            and (output / "lib" / "clang").is_dir()
            and is_made_of(description["sources"], request.llvm_source)
        )
    except (OSError, LookupError, AttributeError):
        return False


def _inputs(installed: Installed, embedded: Embedded | None) -> dict[str, Any]:
    """Return what determines the tools, besides LLVM's sources: versions and digests, no paths, no dates."""
    if embedded is not None:
        return {
            "llvm": installed.version,
            "packages": dict(installed.packages),
            "compile_flags": [*OWN_FLAGS],
            "link_flags": [*LINK_FLAGS],
            "policy": embedded.name,
            "policy_digest": embedded.digest,
            "header_sha256": hashlib.sha256(embedded.header.encode()).hexdigest(),
            "default_on": embedded.default_on,
        }
    own = EVALUATOR.read_bytes() + "".join((CLANG_MAIN, CLANG_MAIN_16, CONFIG_HEADER)).encode()
    return {
        "llvm": installed.version,
        "packages": dict(installed.packages),
        "compile_flags": [*OWN_FLAGS],
        "link_flags": [*LINK_FLAGS],
        "own_sources_sha256": hashlib.sha256(own).hexdigest(),
    }


def _tool_sizes(output: Path) -> dict[str, int]:
    return {tool: (output / "bin" / tool).stat().st_size for tool in TOOLS}


def _make(output: Path, request: Request, record: Record, installed: Installed, work: Path) -> None:
    """Build in the folder ``work`` and the output, with both locks held."""
    source = provide_source(request, record, installed, work)
    generated = work / "generated"
    embedded = request.embedded
    if embedded is not None:
        _check_features(embedded, installed, source.folder)
    write_generated(generated, source.folder, embedded)
    compiler = ToolCompiler(installed, generated, work / "objects")
    units = list_units(source.folder, generated, has_opt_library=has_opt_library(installed), embedded=embedded)
    objects = compiler.objects_of(units)
    with record.phase("compile") as detail:
        compiled = compiler.compile(objects, request.jobs, request.counter("compile"))
        detail.append(counted(compiled, "file") if compiled else ALREADY_THERE)
    with part_folder(output / _PART_NAME) as part:
        with record.phase("link") as detail:
            compiler.link(objects, part / "bin", request.jobs, request.counter("link"))
            detail.append(counted(len(TOOLS), "tool"))
        _complete(part, installed)
        _probe(part / "bin", request, record, installed)
        _move_into_place(part, output, _description(part, installed, source, embedded))


def _check_features(embedded: Embedded, installed: Installed, source: Path) -> None:
    """Refuse a model of features that this LLVM does not have: their numbers would stay 0."""
    files = (source / embedded.source, installed.headers / "llvm" / "Analysis" / "InlineModelFeatureMaps.h")
    words = {word for file in files for word in re.findall(r"\w+", file.read_text(encoding="utf-8", errors="replace"))}
    for name in embedded.features:
        if name not in words:
            raise UsageError(f"the policy needs the feature {name!r}, which LLVM {installed.version} does not have")


def _complete(part: Path, installed: Installed) -> None:
    """Add the links that the tools need."""
    (part / "bin" / "clang++").symlink_to("clang")
    answer = run_tool((str(installed.clang), "-print-resource-dir"), timeout=60).stdout.decode(errors="replace")
    (part / "lib").mkdir()
    (part / "lib" / "clang").symlink_to(Path(answer.strip()).parent)


def _probe(tools: Path, request: Request, record: Record, installed: Installed, *said: str) -> None:
    with record.phase("probe") as detail, scratch_folder() as scratch:
        request.progress("probe", 0, 1)
        if request.embedded is not None:
            probe_release(tools, request.embedded, version=installed.version, scratch=scratch)
            request.progress("probe", 1, 1)
            detail += [*said, "objects made with the policy"]
            return
        found = probe_tools(tools, version=installed.version, stock_clang=installed.clang, scratch=scratch)
        request.progress("probe", 1, 1)
        observations = sum(number for name, number in found.items() if not name.endswith("rows"))
        detail += [*said, counted(observations, "observation")]


def _description(part: Path, installed: Installed, source: Source, embedded: Embedded | None) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "mlgo_corpus": __version__,
        "llvm_config": str(installed.llvm_config),
        "inputs": _inputs(installed, embedded),
        "sources": dict(source.origin),
        "tools": _tool_sizes(part),
        **({} if embedded is None else {"task": embedded.task}),
    }


def _move_into_place(part: Path, output: Path, description: dict[str, Any]) -> None:
    """Replace the output file by file; a build that is killed meanwhile leaves a description without ``inputs``."""
    _write_description(output, {"format": _FORMAT})
    for name in ("lib/clang", "bin/clang++", *(f"bin/{tool}" for tool in TOOLS)):
        (output / name).parent.mkdir(exist_ok=True)
        (part / name).replace(output / name)
    _write_description(output, description)


def _write_description(output: Path, description: dict[str, Any]) -> None:
    write_atomically(output / _DESCRIPTION_NAME, (json.dumps(description, indent=1) + "\n").encode())
