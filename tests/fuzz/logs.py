"""Training logs, damaged: both readers give the same, and what is accepted comes back byte for byte from Parquet."""

from __future__ import annotations

import functools
import gzip
import json
import random
import re
import zlib
from collections.abc import Sequence
from pathlib import Path

from mlgo_corpus.dataset.loaded import read_log
from mlgo_corpus.errors import MlgoCorpusError
from mlgo_corpus.logs import convert_logs, restore_logs
from tests.conftest import DATA
from tests.fake_clang import LIVE, LOGGED, observation, values
from tests.formats.logs.test_blocks import expected_events, fast_events

from .mutations import check_one_line, mutate

# Larger ones take longer, and have nothing that these do not have.
LARGEST = 32 << 10
# Converting takes longer than all reading.
LOGS_PER_INPUT = 8
WINDOWS = (64, 512, 1 << 16)

NUMBERS = (b"0", b"1", b"00", b"-1", b"1e3", b"9223372036854775807", b"9223372036854775808", b'"0"', b"null", b"[1]")
PIECES = (*NUMBERS, b'"x"', b'"observation"', b'"module"', b'""', b'"int8_t"', b"", b"[0]", b"[1,33]", b"{}")
LINES = (
    b'{"context":"f"}\n',
    b'{"context": "a\\u0000b"}\n',
    b'{"context":"\xff"}\n',
    b'{"context":"\\ud800"}\n',
    b'{"context":1}\n',
    b'{"observation": 3}\n',
    b'{"outcome":0}\n',
    b"\n",
    LIVE,
    LOGGED,
)


def prepare(folder: Path) -> None:
    scored = json.loads(LOGGED)
    scored["score"] = {"name": "reward", "type": "float", "port": 0, "shape": [1]}
    outcomes = b"".join(
        observation(number, *values(number), number % 2) + b'{"outcome":%d}\n\0\0\x80\x3f\n' % number
        for number in range(120)
    )
    (folder / "scored.log").write_bytes(json.dumps(scored).encode() + b"\n" + b'{"context":"f"}\n' + outcomes)
    for path in (DATA / "training-logs").glob("*.log"):
        data = path.read_bytes()
        if len(data) <= LARGEST:
            (folder / path.name).write_bytes(data)


@functools.cache
def _seeds(prepared: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(prepared.iterdir())]


def check(prepared: Path, rng: random.Random, folder: Path) -> None:
    seeds = _seeds(prepared)
    (folder / "in").mkdir()
    for number in range(LOGS_PER_INPUT):
        data = _damaged(rng.choice(seeds), seeds, rng)
        expected = expected_events(data)
        for window in WINDOWS:
            assert fast_events(data, window) == expected
        path = folder / "in" / f"{number}.log"
        path.write_bytes(data)
        try:
            loaded = read_log(path)
            assert expected.failure is None
            assert len(loaded) == sum(hasattr(event, "number") for event in expected.events)
        except MlgoCorpusError as error:
            check_one_line(error)
        if rng.random() < 0.1:
            path.rename(path.with_name(f"{number}.log.gz"))
            path = path.with_name(f"{number}.log.gz")
            packed = gzip.compress(data)
            path.write_bytes(mutate(packed, [], rng) if rng.random() < 0.5 else packed)
    _check_conversion(folder)


def _check_conversion(folder: Path) -> None:
    """Convert each log on its own, for one alone decides what the features are, and all of them together."""
    inputs = sorted((folder / "in").iterdir())
    for number, chosen in enumerate([*([path] for path in inputs[:2]), inputs]):
        output, restored = folder / f"out{number}", folder / f"restored{number}"
        try:
            report = convert_logs(chosen, output, jobs=1)
        except MlgoCorpusError as error:
            check_one_line(error)
            assert not output.exists()
            continue
        assert report.failed <= len(chosen)
        if report.failed == len(chosen):
            continue
        restore_logs(output, restored)
        found = {path.read_bytes() for path in restored.rglob("*.log")}
        written = {_content(path) for path in chosen}
        assert found <= written, "a log came back otherwise"


def _content(path: Path) -> bytes | None:
    data = path.read_bytes()
    try:
        return gzip.decompress(data) if path.suffix == ".gz" else data
    except (OSError, EOFError, zlib.error):
        return None


def _damaged(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    if rng.random() < 0.1:
        return data
    how = rng.random()
    if how < 0.4:
        return mutate(data, seeds, rng)
    lines = data.split(b"\n")
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(lines))
        change = rng.randrange(5)
        if change == 0:
            del lines[at]
        elif change == 1:
            lines.insert(at, rng.choice(lines))
        elif change == 2:
            lines[at:at] = rng.choice(LINES).rstrip(b"\n").split(b"\n")
        elif change == 3:
            lines[at] = re.sub(rb"\d+", lambda _: rng.choice(NUMBERS), lines[at], count=1)
        else:
            lines[0] = _other_header(lines[0], rng)
        lines = lines or [b""]
    return b"\n".join(lines)


def _other_header(line: bytes, rng: random.Random) -> bytes:
    """Change a number, a word or a punctuation mark of a header."""
    pieces = list(re.finditer(rb'\d+|"[^"]*"|[\[\]{},:]', line))
    if not pieces:
        return line
    match = rng.choice(pieces)
    return line[: match.start()] + rng.choice(PIECES) + line[match.end() :]
