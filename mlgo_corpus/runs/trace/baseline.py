"""The plain compile of a module, which what its decisions lead to is compared with; it is remembered in the cache."""

from __future__ import annotations

import json
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from mlgo_corpus.compilers.compile import Compiled, ModuleCompiles
from mlgo_corpus.compilers.failures import RunFailure
from mlgo_corpus.errors import Usage
from mlgo_corpus.files.atomic import write_atomically
from mlgo_corpus.files.regular import MAX_MODULE_BYTES, MAX_NOTE_BYTES, read_regular
from mlgo_corpus.formats.commands.replay import required_files

BASELINES_FOLDER: Final = "baselines"
"""Where plain compiles are remembered, in the user's cache."""


class PlainCompile:
    """The plain compile of a module.

    Args:
        compiles: the module's.
        cc1: the words of the compiler to put before ``-cc1``.
        command: the module's own.
        bitcode_sha256: of the module.
        compiler_id: what tells the compiler from every other one.
        baselines: the folder of what is known of plain compiles.

    Attributes:
        argv: the whole command.
    """

    def __init__(
        self,
        compiles: ModuleCompiles,
        cc1: tuple[str, ...],
        command: tuple[str, ...],
        bitcode_sha256: str,
        compiler_id: str,
        baselines: Path,
    ) -> None:
        self.argv = (*cc1, *command)
        self._compiles = compiles
        index = compiles.module.thinlto_index_path
        identity = [
            compiler_id,
            self._command_without_paths(command),
            bitcode_sha256,
            None if index is None else sha256(read_regular(index, MAX_MODULE_BYTES)).hexdigest(),
            [_stamp(compiles.folder / path) for _, path in required_files(command)],
        ]
        key = sha256(json.dumps(identity).encode()).hexdigest()
        self._place = baselines / key[:2] / f"{key[2:]}.json"

    def remembered(self) -> tuple[Compiled, Usage] | None:
        """Return what came of it before, and what it cost; None if that is not known."""
        try:
            kept = json.loads(read_regular(self._place, MAX_NOTE_BYTES))
            text_size, code_size, object_sha256, (wall_s, cpu_s, peak) = kept
            usage = Usage(float(wall_s), float(cpu_s), None if peak is None else int(peak))
            return Compiled(int(text_size), int(code_size), str(object_sha256)), usage
        except (OSError, ValueError, TypeError, RecursionError):
            return None

    def run(self) -> tuple[Compiled, Usage]:
        """Compile, remember what came of it, and leave the object in the folder of the module's compiles.

        Raises:
            RunFailure: it failed.
        """
        compiles = self._compiles
        try:
            compiles.empty()
            usage = compiles.run(self.argv).usage
            compiled = compiles.measure(compiles.read_object())
        except RunFailure as failure:
            detail = f"the plain compile: {failure.detail}"
            raise RunFailure(failure.reason, detail, may_pass=failure.may_pass) from None
        with suppress(OSError):  # the next trace compiles it again
            self._place.parent.mkdir(parents=True, exist_ok=True)
            sizes = (compiled.text_size, compiled.code_size, compiled.sha256)
            kept = (*sizes, (usage.wall_s, usage.cpu_s, usage.max_rss_bytes))
            write_atomically(self._place, json.dumps(kept).encode())
        return compiled, usage

    def _command_without_paths(self, command: tuple[str, ...]) -> list[str]:
        own = {self._compiles.bitcode_path: "BITCODE"}
        if (index := self._compiles.module.thinlto_index_path) is not None:
            own[f"-fthinlto-index={index.absolute()}"] = "INDEX"
        return [own.get(word, word) for word in command]


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns
