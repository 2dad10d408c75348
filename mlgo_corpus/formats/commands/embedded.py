"""cc1 command lines as clang embeds them: options separated by NUL bytes.

Contents of ``.llvmcmd`` (measured on LLVM 19 and 22): each option followed by one NUL, the first option ``-cc1``, no
input file, no ``-o``, no ``-x``. Other tools write a NUL between options only, so a reader accepts both. An option's
bytes are arbitrary: spaces, quotes, newlines and non-UTF-8 bytes come from ``-D`` and from file names. As text they
are decoded with ``surrogateescape``, which loses nothing.

A linker concatenates the sections of its inputs. A command then begins wherever an option is ``-cc1``.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mlgo_corpus.formats.buffer import Buffer

_CC1 = b"-cc1"
_MADE_OF_ANOTHER = (".i", ".ii", ".mi", ".mii", ".ll", ".bc")


@dataclass(frozen=True, slots=True)
class CommandFacts:
    """The facts about a module in its cc1 command; a field is None if the command does not have it.

    ``opt_level`` is ``0``, ``1``, ``2``, ``3``, ``s`` or ``z``. It is 0 for a cc1 command without ``-O``: that is what
    ``-O0`` means, and clang's driver passes it so.
    """

    main_file_name: str | None
    target_triple: str | None
    opt_level: str | None
    thinlto_index: str | None
    embeds_post_opt: bool


def split_options(command: Buffer) -> tuple[bytes, ...]:
    """Split one embedded command into its options, with or without a trailing NUL."""
    data = bytes(command)
    if not data:
        return ()
    return tuple((data[:-1] if data.endswith(b"\0") else data).split(b"\0"))


def decode_options(options: Iterable[bytes]) -> tuple[str, ...]:
    """Decode options to text that `os.fsencode` encodes to the same bytes."""
    return tuple(option.decode("utf-8", "surrogateescape") for option in options)


def split_commands(section: Buffer) -> tuple[tuple[int, int], ...]:
    """Find the commands in a section that may hold several: their (start, stop) offsets.

    Bytes before the first ``-cc1`` (commands of another frontend, padding) belong to no command; without any ``-cc1``
    the whole section is one command. A section of NUL bytes, or an empty one, has no command.
    """
    data = bytes(section)
    stop = len(data)
    starts = []
    if data.startswith(_CC1 + b"\0") or data == _CC1:
        starts.append(0)
    at = data.find(b"\0" + _CC1 + b"\0")
    while at >= 0:
        starts.append(at + 1)
        at = data.find(b"\0" + _CC1 + b"\0", at + 1)
    if not starts:
        return ((0, stop),) if data.strip(b"\0") else ()
    return tuple(zip(starts, [*starts[1:], stop], strict=True))


def read_facts(options: tuple[bytes, ...]) -> CommandFacts:
    """Read the facts about a module in its command. If an option is given twice the last one is used, as in clang.

    ``embeds_post_opt`` is the driver's ``-fembed-bitcode`` (without ``-Xclang … =all``): it compiles in two steps and
    the second, whose command is the one embedded, begins from optimised bitcode: it has ``-disable-llvm-passes`` but no
    ``-main-file-name``. A command with a user's own ``-Xclang -disable-llvm-passes`` has the main file name.
    """
    main_file = triple = index = None
    level = "0" if options[:1] == (_CC1,) else None
    no_passes = False
    skip_value = False
    for position, option in enumerate(options):
        if skip_value:
            skip_value = False
            continue
        if option[:1] != b"-":
            continue
        if option in _OPTIONS_WITH_VALUE:
            skip_value = True
            value = options[position + 1] if position + 1 < len(options) else None
            if option == b"-main-file-name":
                main_file = value
            elif option == b"-triple":
                triple = value
        elif option[:2] == b"-O":
            level = _LEVELS.get(option[2:], level)
        elif option == b"-disable-llvm-passes":
            no_passes = True
        elif option.startswith(b"-fthinlto-index="):
            index = option[len(b"-fthinlto-index=") :]
    return CommandFacts(
        main_file_name=_text(main_file),
        target_triple=_text(triple),
        opt_level=level,
        thinlto_index=_text(index),
        embeds_post_opt=no_passes and main_file is None,
    )


def facts_of_words(options: Sequence[str]) -> CommandFacts:
    """Read the facts about a module as `read_facts` does, in a command of text; what is not UTF-8 becomes ``?``."""
    return read_facts(tuple(option.encode(errors="replace") for option in options))


# The levels by what is behind -O: other names and higher numbers mean one of them (getOptimizationLevel in clang's
# CompilerInvocation.cpp).
_LEVELS = {
    **{level.encode(): level for level in ("0", "1", "2", "3", "s", "z")},
    **dict.fromkeys((b"", b"g"), "1"),
    **dict.fromkeys((b"fast", b"4", b"5", b"6", b"7", b"8", b"9"), "3"),
}

# The options whose value is the next word and may look like one of the options read above. The word after any other
# option is either an option itself or does not begin with a dash.
_OPTIONS_WITH_VALUE = frozenset(
    {
        b"-main-file-name",
        b"-triple",
        b"-mllvm",
        b"-D",
        b"-U",
        b"-include",
        b"-dwarf-debug-flags",
        b"-MT",
        b"-I",
    }
)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "surrogateescape")


def same_main_file(main_file_name: str | None, source_filename: str | None) -> bool:
    """Return True if a command's ``-main-file-name`` fits a module's ``source_filename``; unknown fits anything.

    Of a preprocessed source, or of LLVM's IR, the command names that file, and the module the source it was made of.
    """
    if main_file_name is None or source_filename is None or main_file_name.endswith(_MADE_OF_ANOTHER):
        return True
    return os.path.basename(source_filename) == main_file_name
