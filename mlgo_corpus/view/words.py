"""Format numbers and names for people."""

from __future__ import annotations

import math
from typing import Final

from mlgo_corpus.files.text import human_bytes

_SPACE: Final = "\N{NARROW NO-BREAK SPACE}"
_MINUS: Final = "\N{MINUS SIGN}"
# The most characters of a name in a table, where it wraps; of longer ones the middle is left out.
_LONGEST: Final = 300
# The most characters and lines of the end of a compiler's messages.
_LONGEST_END: Final = 8192
_MOST_LINES: Final = 60


def shown(text: object, longest: int = _LONGEST) -> str:
    """Return any text as one line: unprintable characters are escaped, the middle of long text is left out."""
    whole = str(text)
    if len(whole) > 2 * longest:  # of which the middle goes in any case: a text may be very long
        whole = whole[:longest] + whole[-longest:]
    line = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in whole)
    if len(line) <= longest:
        return line
    head = longest // 3
    return f"{line[:head]}…{line[len(line) - (longest - head - 1) :]}"


def shown_lines(text: str) -> str:
    """Return the last lines of any text, each as `shown` returns it."""
    return "\n".join(shown(line.expandtabs(), 400) for line in text[-_LONGEST_END:].splitlines()[-_MOST_LINES:])


def plain(text: str) -> str:
    """Return text of this module with ordinary spaces, for a terminal."""
    return text.replace(_SPACE, " ")


def short(name: str, longest: int = 24) -> str:
    """Return the last part of a module's name, for an axis."""
    return shown(name.rstrip("/").rpartition("/")[2] or name, longest)


def count(number: float) -> str:
    """Return a whole number in groups of three digits: ``12 345``."""
    if not math.isfinite(number):
        return "–"
    return f"{round(number):,}".replace(",", _SPACE).replace("-", _MINUS)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 module``, ``2 modules``."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def be(number: int) -> str:
    """Return the verb for a number of things: ``is`` or ``are``."""
    return "is" if number == 1 else "are"


def size(number: float) -> str:
    """Return a number of bytes in powers of 1000: ``1.5 MB``."""
    return human_bytes(number).replace(" ", _SPACE).replace("-", _MINUS)


def signed(number: float) -> str:
    """Return a whole number with its sign."""
    return f"+{count(number)}" if number > 0 else count(number)


def percent(share: float) -> str:
    """Return a share of 1 in percent; only an exact 0 is 0 %, and only an exact 1 is 100 %."""
    if not math.isfinite(share):
        return "–"
    if 0 < share * 100 < 0.1:
        return f"<0.1{_SPACE}%"
    if 99.9 < share * 100 < 100:
        return f">99.9{_SPACE}%"
    return f"{share * 100:.1f}{_SPACE}%".replace("-", _MINUS)


def change(share: float) -> str:
    """Return a relative change in percent, with its sign."""
    if not math.isfinite(share):
        return "–"
    return f"{share * 100:+.2f}{_SPACE}%".replace("-", _MINUS)


def number(value: float, digits: int = 3) -> str:
    """Return any number in short: whole numbers below a billion as they are, others to ``digits`` digits."""
    if not math.isfinite(value):
        return "–" if math.isnan(value) else ("∞" if value > 0 else f"{_MINUS}∞")
    if abs(value) < 1e9 and (value == int(value) or abs(value) >= 10**digits):
        return count(value)
    return f"{value:.{digits}g}".replace("-", _MINUS)


def seconds(value: float) -> str:
    """Return a time with its unit."""
    if not math.isfinite(value):
        return "–"
    if value < 120:
        return f"{value:.3g}{_SPACE}s"
    return f"{value / 60:.1f}{_SPACE}min" if value < 7200 else f"{value / 3600:.1f}{_SPACE}h"
