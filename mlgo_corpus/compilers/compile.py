"""One module compiled in a folder of its own: its files, its command, what became of it.

Every stage that runs a compiler over a corpus does it with a `ModuleCompiles`. What goes wrong with the module is a
`RunFailure`, which the stage makes a row of.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from mlgo_corpus.compilers.command import CommandEdits, module_command, module_options
from mlgo_corpus.compilers.confinement import Confinement, confine
from mlgo_corpus.compilers.failures import RunFailure, classify, without_quotes
from mlgo_corpus.compilers.limits import Limits
from mlgo_corpus.compilers.process import ToolResult, run_tool
from mlgo_corpus.corpus.folder import Module
from mlgo_corpus.dataset.reasons import RunReason
from mlgo_corpus.dataset.tracetable import stderr_tail
from mlgo_corpus.errors import CorpusError, FormatError, ProtocolError, ToolError, Usage
from mlgo_corpus.files.regular import open_regular, read_file
from mlgo_corpus.files.text import os_reason
from mlgo_corpus.formats.bitcode.headers import is_bitcode
from mlgo_corpus.formats.buffer import Buffer
from mlgo_corpus.formats.commands.replay import required_files
from mlgo_corpus.formats.objects.objfile import measure_object

OBJECT_NAME: Final = "module.o"
"""The name of a module's object in the folder of its run."""

RUN_PREFIX: Final = "tmp-"
"""The prefix of runs' folders; the next run removes those of killed ones."""

# Where the files of a packed corpus's module are put for the compiler.
_CORPUS_FOLDER = "corpus"
# Enough to recognise bitcode.
_HEAD_BYTES = 64
_LONGEST_DETAIL = 500

_Done = TypeVar("_Done")


@dataclass(frozen=True, slots=True)
class Compiled:
    """An object: bytes of its text as llvm-size prints it, of its executable sections, and its SHA-256."""

    text_size: int
    code_size: int
    sha256: str


@contextmanager
def run_folder(work: Path | None) -> Iterator[Path]:
    """Make a folder for one module's run, in the folder for work under way, and remove it in the end.

    Raises:
        OSError: it cannot be made.
    """
    folder = Path(tempfile.mkdtemp(prefix=RUN_PREFIX, dir=work))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def row_detail(detail: str) -> str:
    """Return what is said of a run as a row holds it: one line that prints, and not too long.

    What a compiler says may be meant for a terminal, and a path in it may have a megabyte.
    """
    return stderr_tail(" ".join(detail.split())[:_LONGEST_DETAIL].encode("utf-8", "surrogateescape"))


class ModuleCompiles:
    """The compiles of one module, in a folder of their own.

    Args:
        module: of any corpus; that of a packed one gets its files in the folder, see `place`.
        folder: empty, and the run's own.
        edits: how the command is changed, and whether it may be any command.
        limits: what each compile may take.
        stop: ends compiles when another thread sets it.

    Attributes:
        module: the module, with its files on disk once `place` was called.
        ended: how the last compile ended and what it cost: ``exit_code``, ``signal``, ``stderr_tail``, ``wall_s``,
            ``cpu_s``, ``max_rss_bytes``, as rows hold them; empty before the first one, and where it did not start.
        cpu_s: seconds of processor time of all compiles so far.
    """

    def __init__(
        self,
        module: Module,
        folder: Path,
        edits: CommandEdits,
        limits: Limits,
        *,
        stop: threading.Event | None = None,
    ) -> None:
        self.module = module
        self.folder = folder
        self.edits = edits
        self.limits = limits
        self.ended: dict[str, Any] = {}
        self.cpu_s = 0.0
        self._stop = stop
        self._confinement = Confinement(None, None, None)
        self._shown: Callable[[str], str] = str

    def place(self) -> None:
        """Put the files of a packed corpus's module into the folder; any other module has its files.

        Raises:
            RunFailure: they cannot be read.
        """
        try:
            made = self.module.on_disk(self.folder / _CORPUS_FOLDER)
        except CorpusError as error:
            raise RunFailure(RunReason.MISSING_FILE, error.message) from None
        if made is not self.module:
            here, there = f"{made.root}{os.sep}", f"{self.module.location}/"
            self._shown = lambda text: text.replace(here, there)
            self.module = made

    def shown(self, text: str) -> str:
        """Return text with the module's paths as they are in the corpus, wherever its files are."""
        return self._shown(text)

    @property
    def bitcode_path(self) -> str:
        """The path of the module's bitcode, for a command that runs elsewhere."""
        return str(self.module.bitcode_path.absolute())

    def read_bitcode(self) -> bytes:
        """Read the module's bitcode, whatever is in its file.

        Raises:
            RunFailure: it cannot be read.
        """
        try:
            return self.module.bitcode()
        except CorpusError as error:
            raise RunFailure(RunReason.MISSING_FILE, error.message) from None

    def check_bitcode(self) -> None:
        """Check that the module's file begins as bitcode does.

        Raises:
            RunFailure: it does not, or cannot be read.
        """
        try:
            with open_regular(self.module.bitcode_path) as file:
                head = file.read(_HEAD_BYTES)
        except OSError as error:
            detail = f"cannot read {self.module.bitcode_path.name}: {os_reason(error)}"
            raise RunFailure(RunReason.MISSING_FILE, detail) from None
        check_bitcode(head)

    def options(self, cc1: tuple[str, ...], *others: str) -> tuple[str, ...]:
        """Return the module's edited cc1 line, and confine programs to what a run of it needs.

        Args:
            cc1: the words of the compiler that are put before ``-cc1``.
            others: other programs that the run starts.

        Raises:
            RunFailure: there is no command, it must not be run, or a file that it reads is not there.
        """
        options = module_options(self.module, cc1, self.edits, self.folder)
        # The folder around this one, which all modules share, as they share the corpus: so they share their walls.
        work, root = self.folder.absolute().parent, self.module.root.absolute()
        readable = [work] if root.is_relative_to(work) else [work, root]
        readable += [self.folder / path for _, path in required_files(options)]
        self._confinement = confine(
            (cc1[0], *others), readable, memory_limit=self.limits.memory_limit, trusted=self.edits.trusted
        )
        return options

    def command(
        self,
        options: Sequence[str],
        *extra: str,
        bitcode: str | None = None,
        output: str = OBJECT_NAME,
        trusted: bool | None = None,
    ) -> tuple[str, ...]:
        """Return the cc1 command that compiles the module: by default its own bitcode to `OBJECT_NAME`.

        Raises:
            RunFailure: it must not be run, or the module's ThinLTO index is not there.
        """
        return module_command(
            self.module,
            options,
            bitcode=self.bitcode_path if bitcode is None else bitcode,
            output=output,
            extra=extra,
            trusted=self.edits.trusted if trusted is None else trusted,
        )

    def keywords(self) -> dict[str, Any]:
        """Return the arguments that `run_tool` and `InteractiveSession` share: where and how far a compiler runs."""
        # One that crashes would look for a symbolizer on PATH, and leave files in the temporary folder.
        env = {**os.environ, "TMPDIR": str(self.folder), "LLVM_DISABLE_SYMBOLIZATION": "1"}
        return {
            "cwd": self.folder,
            "env": env,
            "timeout": self.limits.timeout,
            "stop": self._stop,
            **self._confinement.keywords(),
        }

    def run(self, argv: tuple[str, ...], *, stderr: str | None = None) -> ToolResult:
        """Run a program.

        Args:
            argv: its words.
            stderr: a file of the folder for what it writes to stderr, instead of memory.

        Raises:
            RunFailure: it failed.
            OSError: the disk is full, so that its stderr is not whole.
        """
        path = None if stderr is None else self.folder / stderr
        try:
            done = run_tool(argv, **self.keywords(), stderr=path)
        except ToolError as error:
            if path is not None:  # where its last line did not fit, neither does one more
                with path.open("ab") as file:
                    file.write(b"\n")
            self.fail(error)
        self.succeed(done, argv)
        return done

    def fail(self, error: ToolError | ProtocolError) -> NoReturn:
        """Raise the failure of a compile that ended with this error.

        Raises:
            RunFailure: always.
        """
        kept = self._quotable(error.argv, error.stderr)
        self._note_end(getattr(error, "returncode", None), kept, error.usage)
        limited = self._confinement.memory_limit is not None
        reason, detail = classify(error, limited=limited, timeout=self.limits.timeout, kept=kept)
        # The folder has another name each time.
        raise RunFailure(reason, self.shown(detail).replace(f"{self.folder}{os.sep}", "")) from None

    def succeed(self, done: ToolResult, argv: Sequence[str]) -> None:
        """Note the end of a compile that went well; `run` does so itself."""
        self._note_end(0, self._quotable(argv, done.stderr), done.usage)

    def _note_end(self, code: int | None, stderr: str, usage: Usage | None) -> None:
        """Note how a compile ended and what it cost; without a usage it could not be started."""
        self.ended = {}
        if usage is None:
            return
        self.cpu_s += usage.cpu_s
        self.ended = {
            "exit_code": code if code is not None and code >= 0 else None,
            "signal": -code if code is not None and code < 0 else None,
            "stderr_tail": stderr_tail(self.shown(stderr).encode()),
            "wall_s": usage.wall_s,
            "cpu_s": usage.cpu_s,
            "max_rss_bytes": usage.max_rss_bytes,
        }

    def _quotable(self, argv: Sequence[str], stderr: str) -> str:
        command = argv[argv.index("-cc1") :] if "-cc1" in argv else ()  # opt and llvm-cxxfilt read our files alone
        return without_quotes(stderr, command, trusted=self.edits.trusted)

    def tried(self, compile_it: Callable[[], _Done]) -> _Done:
        """Compile, and again if that may help, as often as the limits allow."""
        for _ in range(self.limits.retries):
            try:
                return compile_it()
            except RunFailure as failure:
                if not failure.may_pass:
                    raise
        return compile_it()

    def empty(self) -> None:
        """Remove what an earlier compile left, so that nothing of it is taken for the next one's."""
        for entry in os.scandir(self.folder):
            if entry.is_dir(follow_symlinks=False):
                if entry.name != _CORPUS_FOLDER:
                    shutil.rmtree(entry, ignore_errors=True)
            else:
                os.unlink(entry)

    def read_object(self, name: str = OBJECT_NAME) -> Buffer:
        """Read an object that a compile left.

        Raises:
            RunFailure: there is none.
        """
        try:
            return read_file(str(self.folder / name))
        except OSError as error:
            raise RunFailure(RunReason.NO_OBJECT, f"the compiler left no object: {os_reason(error)}") from None

    def measure(self, data: Buffer) -> Compiled:
        """Measure an object.

        Raises:
            RunFailure: it is none.
        """
        try:
            sizes = measure_object(data)
        except FormatError as error:
            raise RunFailure(RunReason.NO_OBJECT, f"the compiler left no object: {error}") from None
        return Compiled(sizes.text_size, sizes.code_size, sha256(data).hexdigest())


def check_bitcode(data: Buffer) -> None:
    """Check that bytes are bitcode.

    Raises:
        RunFailure: they are not.
    """
    if not is_bitcode(data):
        raise RunFailure(RunReason.UNREADABLE_BITCODE, "expected bitcode, found other data")
