"""What a policy raised: where in its own code, without the frames that called it."""

from __future__ import annotations

import importlib
import traceback
from pathlib import Path
from types import TracebackType

from mlgo_corpus.errors import UsageError
from mlgo_corpus.files.text import printable

# The files of the frames that call a policy, or import its module.
_CALLERS = (f"{Path(__file__).parents[2]}/", str(importlib.__file__), "<frozen importlib")
_LONGEST_MESSAGE = 300
_LONGEST_TRACEBACK = 8000


def policy_error(
    error: BaseException, said: str = "", *, option: str | None = None, value: str | None = None
) -> UsageError:
    """Return the error for what a policy raised; `traceback_of` finds the policy's part of the traceback in it.

    Its message is one line, with the last line of the policy's own file: ``KeyError: 'x' (small.py, line 9)``.

    Args:
        error: what it raised.
        said: the beginning of the message.
        option: the parameter at fault.
        value: the value of that parameter.
    """
    own = _own_frames(error)
    frames = traceback.extract_tb(own)
    message = printable(f"{said}{type(error).__name__}: {_text_of(error)}").splitlines()[0][:_LONGEST_MESSAGE]
    if frames:
        number = [frame.lineno for frame in frames if frame.filename == frames[0].filename][-1]
        message += printable(f" ({Path(frames[0].filename).name}, line {number})")
    failure = UsageError(message, option=option, value=value)
    if frames:
        text = printable("".join(traceback.format_exception(type(error), error, own)).rstrip())
        failure.add_note(text[-_LONGEST_TRACEBACK:])
    return failure


def traceback_of(failure: BaseException) -> str:
    """Return the policy's part of the traceback in a `policy_error`; empty if there is none."""
    return "\n".join(getattr(failure, "__notes__", ()))


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # it may raise anything
        return "<exception str() failed>"  # as in Python's own tracebacks


def _own_frames(error: BaseException) -> TracebackType | None:
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_CALLERS):
        frames = frames.tb_next
    return frames
