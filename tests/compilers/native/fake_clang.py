"""A clang that is asked to use a channel, and misbehaves: ``fake_clang.py MODE ARGUMENTS``.

Each function of the name of a mode is one way to behave.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
import time

CHANNEL = "-inliner-interactive-channel-base="
SPEC = b'{"name":"%b","type":"%b","port":0,"shape":[1]}'
COST = SPEC % (b"cost_estimate", b"int64_t")
ADVICE = SPEC % (b"inlining_decision", b"int64_t")
HEADER = b'{"features":[%b],"advice":%b}\n'


def send(data: bytes, out: int) -> None:
    while data:
        data = data[os.write(out, data) :]


def no_header(out: int, _in: int) -> None:
    send(b"hello\n", out)


def observation_first(out: int, _in: int) -> None:
    send(b'{"observation":0}\n' + bytes(8) + b"\n", out)


def no_advice(out: int, _in: int) -> None:
    send(b'{"features":[%b]}\n' % COST, out)


def other_advice(out: int, _in: int) -> None:
    send(HEADER % (COST, SPEC % (b"inlining_decision", b"float")), out)


def other_type(out: int, _in: int) -> None:
    send(HEADER % (SPEC % (b"cost_estimate", b"float"), ADVICE), out)


def other_shape(out: int, _in: int) -> None:
    send(HEADER % (COST.replace(b"[1]", b"[3]"), ADVICE), out)


def huge_shape(out: int, _in: int) -> None:
    send(HEADER % (COST.replace(b"[1]", b"[1048576,1048576]"), ADVICE), out)


def deep(out: int, _in: int) -> None:
    send(b'{"x":' + b"[" * 100_000 + b"\n", out)


def cut_off(out: int, _in: int) -> None:
    send((HEADER % (COST, ADVICE))[:-20] + b"\n", out)


def endless(out: int, _in: int) -> None:
    for _ in range(20):
        send(b"x" * (1 << 20), out)


def other_size(out: int, _in: int) -> None:
    send(HEADER % (COST, ADVICE) + b'{"observation":0}\n' + bytes(9) + b"\n", out)


def does_not_read(out: int, _in: int) -> None:
    send(HEADER % (COST, ADVICE), out)
    for number in range(100_000):
        send(b'{"observation":%d}\n' % number + bytes(8) + b"\n", out)


def fails(out: int, inside: int) -> None:
    """After a decision, which may be why."""
    send(HEADER % (COST, ADVICE) + b'{"context":"f"}\n{"observation":0}\n' + struct.pack("=q", 5) + b"\n", out)
    assert struct.unpack("=q", os.read(inside, 8)) == (1,)
    sys.stderr.write("error: what is new\n")
    sys.exit(70)


def crashes(out: int, inside: int) -> None:
    send(HEADER % (COST, ADVICE) + b'{"observation":0}\n' + struct.pack("=q", 50) + b"\n", out)
    assert struct.unpack("=q", os.read(inside, 8)) == (0,)
    os.kill(os.getpid(), signal.SIGSEGV)


def loses_its_channel(out: int, inside: int) -> None:
    """As if another process had taken it for abandoned before it could be opened."""
    for descriptor in (out, inside):
        os.unlink(os.readlink(f"/proc/self/fd/{descriptor}"))
    sys.exit(70)


def main() -> None:
    mode, *arguments = sys.argv[1:]
    base = next(word.removeprefix(CHANNEL) for word in arguments if word.startswith(CHANNEL))
    inside = os.open(f"{base}.in", os.O_RDONLY)
    out = os.open(f"{base}.out", os.O_WRONLY)
    globals()[mode](out, inside)
    time.sleep(60)  # until it is ended


if __name__ == "__main__":
    main()
