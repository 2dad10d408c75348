"""Live sessions with a compiler that writes damaged messages, or good ones at the wrong time: an error, and an end."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from mlgo_corpus.compilers.session import InteractiveSession
from mlgo_corpus.errors import ProtocolError, ToolError
from tests import fake_compiler
from tests.fake_compiler import FLOAT_HEADER, HEADER, context, observation

from .mutations import check_one_line, mutate

Step = tuple[str, Any]

# The script gives up waiting for advice after half a second; only what sleeps on purpose takes so long.
TIMEOUT = 3.0
# Ending what does not want to end, on a machine that has much to do.
GRACE = 15.0
OTHERS = (
    HEADER,
    FLOAT_HEADER,
    context("f"),
    context("x" * 70_000),
    b'{"context":"\xff"}\n',
    b'{"outcome":0}\n',
    b'{"observation":99999999999999999999}\n',
    HEADER.replace(b"[3]", b"[100000000000]"),
    HEADER.replace(b'"advice"', b'"score"'),
    HEADER.replace(b'"advice":{"name":"a","type":"int64_t","port":0,"shape":[1]}', b'"advice":null'),
    b"\0" * 100,
    b"\n\n",
    b"",
)


def prepare(folder: Path) -> None:
    """Do nothing: the messages are in `fake_compiler`."""


def check(prepared: Path, rng: random.Random, folder: Path) -> None:
    count = rng.randint(1, 6)
    steps = _good(count)
    damaged = rng.random() < 0.95
    if damaged:
        for _ in range(rng.randint(1, 3)):
            _damage(steps, rng)
    script = folder / "script.json"
    script.write_text(json.dumps(steps))
    argv = (
        sys.executable,
        "-I",
        "-S",
        fake_compiler.__file__,
        str(folder / "ch"),
        str(folder / "pid"),
        "play",
        str(script),
    )
    descriptors = set(os.listdir("/dev/fd"))
    started = time.monotonic()
    seen = 0
    failure = None
    try:
        with InteractiveSession(argv, folder / "ch", timeout=TIMEOUT) as live:
            for item in live:
                assert item.record is not None
                assert live.header is not None
                assert live.header.advice is not None
                live.advise(bytes(live.header.advice.nbytes))
                seen += 1
    except (ProtocolError, ToolError) as error:
        failure = error
    assert time.monotonic() - started < TIMEOUT + GRACE
    assert set(os.listdir("/dev/fd")) == descriptors
    assert not [path for path in folder.iterdir() if path.is_fifo()]
    if failure is not None:
        check_one_line(failure)
    if not damaged:
        assert (seen, failure) == (count, None)


def _good(count: int) -> list[Step]:
    steps: list[Step] = [("open", "in"), ("open", "out"), ("put", HEADER.hex()), ("put", context("f").hex())]
    for number in range(count):
        steps += [("put", observation(number).hex()), ("take", 8)]
    return [*steps, ("exit", 0)]


def _damage(steps: list[Step], rng: random.Random) -> None:
    at = rng.randrange(len(steps))
    how = rng.random()
    what, value = steps[at]
    if how < 0.4 and what == "put":
        steps[at] = ("put", mutate(bytes.fromhex(value), OTHERS, rng).hex())
    elif how < 0.55:
        steps.insert(at, ("put", rng.choice(OTHERS).hex()))
    elif how < 0.65:
        del steps[at]
    elif how < 0.75:
        steps.insert(at, rng.choice(steps))
    elif how < 0.8:
        steps[at:at] = [("close", "out"), ("open", "out")]
    elif how < 0.85:
        steps.insert(at, ("say", rng.choice((1, 1000))))
    elif how < 0.9:
        steps.insert(at, ("close", rng.choice(("in", "out"))))
    elif how < 0.97:
        steps.insert(at, ("exit", rng.choice((0, 1, 3))))
    else:
        steps.insert(at, ("sleep", None))
