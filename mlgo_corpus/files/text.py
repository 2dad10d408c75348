"""Text for people: numbers with their nouns, sizes, and arbitrary names."""

from __future__ import annotations

import errno
import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from mlgo_corpus.errors import UsageError

Text = TypeVar("Text", bound=str | Path)


def printable(text: str) -> str:
    """Return text that can be encoded: bytes that are not UTF-8 (surrogates) become ``%XX``."""
    if text.isascii():
        return text
    return "".join(
        f"%{ord(character) & 0xFF:02X}" if "\ud800" <= character <= "\udfff" else character for character in text
    )


def unescaped(text: str) -> str:
    """Return the name of a file that became text by `printable`: ``%XX`` of what is not ASCII is a byte again."""
    return re.sub("%([89A-F][0-9A-F])", lambda match: chr(0xDC00 + int(match[1], 16)), text)


def name_hash(name: str) -> int:
    """Return the FNV-1a of a name's bytes, of 64 bits, as the C and C++ programs compute it."""
    found = 0xCBF29CE484222325
    for byte in os.fsencode(name):
        found = (found ^ byte) * 0x100000001B3 % (1 << 64)
    return found


def several(values: Iterable[Text] | Text) -> list[Text]:
    """Return a list; a single value, such as a string or a path, becomes a list of one, not of its characters."""
    return [values] if isinstance(values, str | Path) or not isinstance(values, Iterable) else list(values)


def command_words(command: Iterable[str] | str, option: str) -> tuple[str, ...]:
    """Return the words of a command, the value of a parameter; a single string is split as a shell would.

    Raises:
        UsageError: it cannot be split, or there are no words.
    """
    try:
        words = tuple(shlex.split(command) if isinstance(command, str) else command)
    except ValueError as error:
        raise UsageError(f"cannot be split as a shell would: {error}", option=option) from error
    if not words:
        raise UsageError("expected a command, found nothing", option=option)
    return words


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 module``, ``2 modules``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def human_seconds(seconds: float) -> str:
    """Return a time that is not exact: ``45 s``, ``12 min``, ``2 h 5 min``."""
    hours, minutes = divmod(round(seconds / 60), 60)
    if round(seconds) < 60:
        return f"{seconds:.0f} s"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def option_key(parameter: str) -> str:
    """Return a parameter as the command line and the options in tables' metadata spell it: ``--input-type``."""
    return f"--{parameter.replace('_', '-')}"


def is_disk_full(error: OSError) -> bool:
    """Return True if the disk, or what the user may have of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def os_reason(error: Exception) -> str:
    """Return the operating system's reason without the path: ``No such file or directory``."""
    return getattr(error, "strerror", None) or str(error)


def human_bytes(size: float) -> str:
    """Return a number of bytes for a person: ``1.5 MB``, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        digits = 0 if unit == "B" else 1
        if round(abs(size), digits) < 1000:
            return f"{size:.{digits}f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def visible(text: str) -> str:
    """Return text on one line: what does not print, such as a newline or a byte that is not UTF-8, is escaped."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


# Control characters, and characters that end a line for some readers.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def storable(value: Any) -> Any:
    """Return a row's value with text made `printable`, also in a tuple, which becomes a list."""
    if isinstance(value, str):
        return printable(value)
    return [printable(item) for item in value] if isinstance(value, tuple) else value


def escaped(text: str) -> str:
    """Return text with control characters, and those that end a line for some readers, as escapes."""
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
