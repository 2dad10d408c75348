"""Make a clang with a policy inside: a C program, compiled together with the policy's C source, around a stock clang.

``wrap.c`` says what the program does. The output::

    OUT/bin/clang      the program, with the path of the stock clang in it
    OUT/bin/clang++    a link to it, which is a C++ compiler by its name
    OUT/advisor.so     the plugin of `extended`, if the policy needs it; only compiles that ask load it
    OUT/copies.bin     what the plugin reads of the project, if the policy asks for that
    OUT/decisions.bin  what a search decided, if that is the policy
    OUT/wrapped.json   a description, see `Wrapped`
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from mlgo_corpus import __version__
from mlgo_corpus.compilers.failures import says_disk_full
from mlgo_corpus.compilers.find import PLUGIN_OPTION, Compiler, one_line
from mlgo_corpus.compilers.native.extended import COPIES_NAME, PLUGIN_NAME
from mlgo_corpus.compilers.probe import PROBE_DATA
from mlgo_corpus.compilers.process import run_tool
from mlgo_corpus.errors import ToolError, UsageError
from mlgo_corpus.files.folder import read_note, replaces_own, whole_folder
from mlgo_corpus.files.scratch import SCRATCH_PREFIX, scratch_folder
from mlgo_corpus.files.text import is_disk_full
from mlgo_corpus.formats.commands.driverline import TAKES_NEXT
from mlgo_corpus.formats.commands.languages import ENDINGS, clang_names
from mlgo_corpus.formats.logs.tasks import GROWTH_LIMIT, find_task, lacking

_DESCRIPTION_NAME: Final = "wrapped.json"
_FOUND_NAME: Final = "decisions.bin"
_FILES = (_DESCRIPTION_NAME, _FOUND_NAME, PLUGIN_NAME, COPIES_NAME, "bin/clang", "bin/clang++")

_MADE_BY: Final = "toolchain wrap"
_SOURCES: Final = Path(__file__).parent
# A policy of some hundred trees is compiled in a second.
_TIMEOUT_S: Final = 120.0
# -ffp-contract: a policy decides alike on every machine. The program is small, and starts in half the time if it needs
# no dynamic linker.
_FLAGS: Final = ("-std=c99", "-O2", "-ffp-contract=off", "-D_GNU_SOURCE")
_STATIC: Final = "-static"
_LACKING: Final = re.compile(r"needs the feature '(\w+)', which this compiler does not send")


@dataclass(frozen=True, slots=True)
class FoundDecisions:
    """Decisions of a dataset, which are made again where a module is compiled that it knows.

    Attributes:
        features: that they are keyed by.
        digest: what the table begins with.
        table: the bytes that `found.c` reads.
        growth: the options of those compiles that let a module grow.
    """

    features: tuple[str, ...]
    digest: str
    table: bytes
    growth: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PolicyCode:
    """A policy as C.

    Attributes:
        name: its name.
        task: the task whose decisions it makes.
        digest: a digest of what it decides by.
        source: the text of ``policy.c``.
        header: the text of ``policy.h``.
        languages: in whose sources it decides; in all if empty, in none if None.
        found: what it does not decide, for it was decided before.
    """

    name: str
    task: str
    digest: str
    source: str
    header: str
    languages: tuple[str, ...] | None = ()
    found: FoundDecisions | None = None


@dataclass(frozen=True, slots=True)
class StockClang:
    """The clang that does the work.

    Attributes:
        c: the words of the command that compiles C; cxx: C++.
        version: LLVM's version.
        misplaced_default: whether its LLVM tells its own decision in another feature's place.
        make_plugin: returns the files of the plugin that tells more of each call; None if the policy needs none.
    """

    c: tuple[str, ...]
    cxx: tuple[str, ...]
    version: str
    misplaced_default: bool
    make_plugin: Callable[[], Mapping[str, bytes]] | None = None


@dataclass(frozen=True, slots=True)
class Asking:
    """When a wrapped clang asks its policy, and what it does with the answers.

    Attributes:
        always: ask at every level of optimisation, not only where code is optimised for size.
        keep_smaller: compile each object plainly, too, and keep the smaller one.
        with_default: have the compiler send its own decision among the features.
        growth: the options that let a module grow as far as the policy decides.
    """

    always: bool = False
    keep_smaller: bool = False
    with_default: bool = True
    growth: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A clang with a policy inside.

    Attributes:
        output: its folder.
        policy: the policy's name; ``task`` and ``policy_digest`` are the policy's, too.
        compiler: the words of the command that runs the stock clang.
        version: LLVM's version.
        always: whether it asks at every level of optimisation.
        keep_smaller: whether it keeps the smaller of the plain object and the policy's.
    """

    output: Path
    policy: str
    task: str
    policy_digest: str
    compiler: tuple[str, ...]
    version: str
    always: bool
    keep_smaller: bool

    @property
    def clang(self) -> Path:
        """The program."""
        return self.output / "bin" / "clang"

    @property
    def has_found(self) -> bool:
        """Whether it makes a dataset's decisions again where it knows a module."""
        return (self.output / _FOUND_NAME).is_file()


def wrap_clang(output: Path, policy: PolicyCode, clang: StockClang, asking: Asking, *, force: bool) -> Wrapped:
    """Make a clang with a policy inside, and try it.

    Args:
        output: the folder to make.
        policy: who decides.
        clang: the clang that does the work; it compiles the program, too.
        asking: when to ask.
        force: replace another wrapped clang.

    Raises:
        UsageError: something else is in the output's place, or the policy cannot decide in this clang.
        ToolError: the program cannot be compiled.
    """
    wrapped = Wrapped(
        output=Path(os.path.abspath(output)),
        policy=policy.name,
        task=policy.task,
        policy_digest=policy.digest,
        compiler=clang.c,
        version=clang.version,
        always=asking.always,
        keep_smaller=asking.keep_smaller,
    )
    with whole_folder(output, replace=replaces_own(output, _FILES, _MADE_BY, force=force)) as folder:
        (folder / "bin").mkdir()
        program = folder / "bin" / "clang"
        beside = {} if clang.make_plugin is None else dict(clang.make_plugin())
        if policy.found is not None:
            beside[_FOUND_NAME] = policy.found.table
        with _room_in(folder.parent):
            for name, data in beside.items():
                (folder / name).write_bytes(data)
        _compile(program, policy, clang, asking)
        program.with_name("clang++").symlink_to("clang")
        _try(program, clang_names(policy.languages or ())[0])
        (folder / _DESCRIPTION_NAME).write_text(json.dumps(_described(wrapped), indent=1) + "\n")
    return wrapped


def read_wrapped(folder: Path) -> Wrapped | None:
    """Return the wrapped clang in a folder; None if there is none."""
    said = read_note(folder / _DESCRIPTION_NAME)
    if not isinstance(said, dict) or said.get("made_by") != _MADE_BY or not (folder / "bin" / "clang").is_file():
        return None
    texts = [said.get(key) for key in ("policy", "task", "policy_digest", "version")]
    words = said.get("compiler")
    if not isinstance(words, list) or not all(isinstance(text, str) for text in (*texts, *words)):
        return None
    name, task, digest, version = map(str, texts)
    is_always, keeps = said.get("always") is True, said.get("keep_smaller") is True
    return Wrapped(folder, name, task, digest, tuple(words), version, is_always, keeps)


def refuse_wrapped(compiler: Compiler) -> None:
    """Refuse a clang that has a policy inside already.

    Raises:
        UsageError: it is one.
    """
    program = compiler.driver[0]
    if (wrapped := read_wrapped(Path(os.path.realpath(program)).parent.parent)) is not None:
        message = f"has a policy inside already; name the clang behind it, {shlex.join(wrapped.compiler)}"
        raise UsageError(message, option="compiler", value=program)


def _described(wrapped: Wrapped) -> dict[str, Any]:
    return {
        "tool": "mlgo-corpus",
        "tool_version": __version__,
        "made_by": _MADE_BY,
        "policy": wrapped.policy,
        "task": wrapped.task,
        "policy_digest": wrapped.policy_digest,
        "compiler": list(wrapped.compiler),
        "version": wrapped.version,
        "always": wrapped.always,
        "keep_smaller": wrapped.keep_smaller,
    }


def _compile(program: Path, policy: PolicyCode, clang: StockClang, asking: Asking) -> None:
    copies = program.parents[1] / COPIES_NAME
    read = sha256(copies.read_bytes()).hexdigest() if copies.is_file() else ""
    with scratch_folder() as scratch, _room_in(scratch.parent, program.parents[2]):
        texts = {"policy.c": policy.source, "policy.h": policy.header, "config.h": _config(policy, clang, asking, read)}
        for name, text in texts.items():
            (scratch / name).write_text(text)
        sources = (*sorted(map(str, _SOURCES.glob("*.c"))), str(scratch / "policy.c"))
        command = (*clang.c, *_FLAGS, f"-I{scratch}", *sources, "-o", str(program))
        env = {**os.environ, "TMPDIR": str(scratch)}
        try:
            run_tool((*command, _STATIC), timeout=_TIMEOUT_S, env=env)
        except ToolError:  # no static libc is installed, or there is none
            run_tool(command, timeout=_TIMEOUT_S, env=env)


def _try(program: Path, language: str) -> None:
    """Compile a dozen lines; the program says if it could not ask the policy.

    Raises:
        UsageError: it could not.
    """
    with scratch_folder() as scratch, _room_in(scratch.parent):
        source = ("-x", language, str(PROBE_DATA / "probe.c"))
        argv = (str(program), "-Oz", "-w", "-c", *source, "-o", str(scratch / "probe.o"))
        try:
            said = run_tool(argv, timeout=_TIMEOUT_S).stderr.strip()
        except ToolError as error:
            if says_disk_full(error.stderr, links=True):
                raise
            raise UsageError(f"the wrapped clang does not work: {one_line(error)}") from None
    if said:
        told = said.splitlines()[-1].removeprefix("mlgo-corpus: ").partition("; compiled without it")[0]
        raise UsageError(_LACKING.sub(lambda found: lacking(found[1]), told))


@contextmanager
def _room_in(*folders: Path) -> Iterator[None]:
    """Replace the error of a write that failed because a disk is full by one that names the folder on that disk.

    Raises:
        UsageError: a disk is full.
    """
    try:
        yield
    except (ToolError, OSError) as error:
        if not (says_disk_full(error.stderr, links=True) if isinstance(error, ToolError) else is_disk_full(error)):
            raise
        where = min(folders, key=lambda folder: shutil.disk_usage(folder).free)
        raise UsageError(f"{where}: no space left on the disk; a wrapped clang takes a megabyte") from None


def _config(policy: PolicyCode, clang: StockClang, asking: Asking, read: str) -> str:
    """Return the text of the header that tells the program what it wraps.

    ``read`` is a digest of what the plugin reads: caches know a compiler by its program, so this is to differ by it.
    """
    task, found = find_task(policy.task), policy.found
    advisor = [
        option for option in task.channel_options("", default=asking.with_default) if option != f"{task.channel}="
    ]
    own = (task.advisor, task.channel, *filter(None, (task.with_default,)))
    arrays = {
        "C_DRIVER": clang.c,
        "CXX_DRIVER": clang.cxx,
        "ADVISOR_OPTIONS": advisor,
        "OWN_OPTIONS": own,
        "TAKES_NEXT": sorted(TAKES_NEXT),
        "DECIDED_LANGUAGES": () if policy.languages is None else clang_names(policy.languages),
        "DECIDED_ENDINGS": [ending for ending, language in ENDINGS.items() if language in (policy.languages or ())],
        "KEY_FEATURES": () if found is None else found.features,
    }
    texts = {"CHANNEL_OPTION": task.channel, "GROWTH_OPTION": GROWTH_LIMIT, "SCRATCH_PREFIX": SCRATCH_PREFIX}
    texts |= {"GROWTH": "".join(asking.growth), "FOUND_GROWTH": "" if found is None else "".join(found.growth)}
    texts |= {"FOUND": "" if found is None else _FOUND_NAME, "FOUND_DIGEST": "" if found is None else found.digest}
    texts |= {"POLICY_NAME": policy.name, "DEFAULT_OPTION": task.with_default or ""}
    texts |= {"PLUGIN_OPTION": PLUGIN_OPTION, "PLUGIN": "" if clang.make_plugin is None else PLUGIN_NAME}
    texts["COPIES"] = COPIES_NAME if read else ""
    switches = {
        "SENDS_DEFAULT": asking.with_default,
        "DECIDES_IN_ALL": policy.languages == (),
        "ASK_ALWAYS": asking.always,
        "KEEP_SMALLER": asking.keep_smaller,
        "MISPLACED_DEFAULT": clang.misplaced_default,
    }
    driver = os.stat(clang.c[0])
    numbers = {"CLANG_BYTES": driver.st_size, "CLANG_CHANGED": driver.st_mtime_ns // 10**9, **switches}
    return "".join(
        (
            *(
                f"__attribute__((unused)) static const char *const {name}[] = {_array(words)};\n"
                for name, words in arrays.items()
            ),
            *(f"#define {name} {_quoted(text)}\n" for name, text in texts.items()),
            *(f"#define {name} {int(value)}\n" for name, value in numbers.items()),
            f"__attribute__((used)) static const char plugin_reads[] = {_quoted(read)};\n",
        )
    )


def _array(words: Sequence[str]) -> str:
    return f"{{{', '.join((*map(_quoted, words), '0'))}}}"


def _quoted(text: str) -> str:
    """Return a string of C; bytes other than letters, digits and a few signs are octal escapes."""
    return f'"{"".join(_letters(os.fsencode(text)))}"'


def _letters(data: bytes) -> Iterable[str]:
    for byte in data:
        letter = chr(byte)
        yield letter if byte < 128 and (letter.isalnum() or letter in "-_./=+:,") else f"\\{byte:03o}"
