"""A compiler that asks for advice over two FIFOs and misbehaves: ``fake_compiler.py BASE PID_FILE MODE [ARGUMENT]``.

It needs nothing but Python's standard library, and is run with ``-I -S``. Each function of the name of a mode is one
way to behave; all of them write the process's id into PID_FILE first.
"""

# ruff: noqa: T201 - a program of its own, which prints

from __future__ import annotations

import json
import os
import select
import signal
import struct
import sys
import time

HEADER = (
    b'{"features":[{"name":"x","type":"int64_t","port":0,"shape":[1]},{"name":"v","type":"float","port":0,"shape":[3]}],'
    b'"advice":{"name":"a","type":"int64_t","port":0,"shape":[1]}}\n'
)
FLOAT_HEADER = (
    b'{"features": [{"name": "w", "type": "float", "port": 0, "shape": [1]}], '
    b'"advice": {"name": "a", "type": "float", "port": 0, "shape": [1]}}\n'
)


def observation(number: int, separator: bytes = b":") -> bytes:
    """Give the message of one observation under HEADER."""
    return b'{"observation"%b%d}\n' % (separator, number) + struct.pack("=q3f", 10 * number, 1, 2, 3) + b"\n"


def context(name: str) -> bytes:
    return b'{"context":"%b"}\n' % name.encode()


class Channel:
    """The compiler's ends of the FIFOs."""

    def __init__(self, base: str, header: bytes = HEADER) -> None:
        self.inbound = os.open(base + ".in", os.O_RDONLY)
        self.outbound = os.open(base + ".out", os.O_WRONLY)
        self.put(header)

    def put(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.outbound, data) :]

    def advice(self, kind: str = "q") -> int | float:
        data = b""
        size = struct.calcsize("=" + kind)
        while len(data) < size:
            data += os.read(self.inbound, size - len(data))
        return struct.unpack("=" + kind, data)[0]

    def ask(self, number: int) -> int | float:
        self.put(observation(number))
        return self.advice()

    def close(self) -> None:
        os.close(self.inbound)
        os.close(self.outbound)


def silent(base: str, argument: str) -> None:
    """Never open the channel."""
    print("compiled", flush=True)
    if int(argument):
        sys.exit("error: no such thing")


def only_in(base: str, argument: str) -> None:
    os.open(base + ".in", os.O_RDONLY)


def proper(base: str, argument: str) -> None:
    """Ask as often as told, and print the advice."""
    channel = Channel(base)
    print(*(channel.ask(number) for number in range(int(argument))))


def failing(base: str, argument: str) -> None:
    proper(base, argument)
    print("error: after all", file=sys.stderr)
    sys.exit(3)


def signalled(base: str, argument: str) -> None:
    proper(base, argument)
    os.kill(os.getpid(), signal.SIGKILL)


def spaced(base: str, argument: str) -> None:
    """Write the other spelling of events."""
    channel = Channel(base)
    for number in range(3):
        channel.put(observation(number, b": "))
        channel.advice()


def contexts(base: str, argument: str) -> None:
    """Name many contexts without observations, and come back to one."""
    channel = Channel(base)
    names = ("f", "g", *(f"h{index}" for index in range(200)), "f", "g", "end")
    numbers = dict.fromkeys(names, 0)
    for name in names:
        channel.put(context(name))
        if name in "fg":
            channel.ask(numbers[name])
            numbers[name] += 1
            channel.ask(numbers[name])
            numbers[name] += 1


def pieces(base: str, argument: str) -> None:
    """Write byte by byte."""
    channel = Channel(base, b"")
    for byte in HEADER:
        channel.put(bytes((byte,)))
    for number in range(3):
        for byte in observation(number):
            channel.put(bytes((byte,)))
        channel.advice()


def cut(base: str, argument: str) -> None:
    """Write so many bytes of a header, a context and two observations, and end: with exit code 0, or with another."""
    size, code = map(int, argument.split(","))
    channel = Channel(base, b"")
    first = HEADER + context("f") + observation(0)
    if size <= len(first):
        channel.put(first[:size])
    else:
        channel.put(first)
        channel.advice()
        channel.put(observation(1)[: size - len(first)])
    os._exit(code)


def raw(base: str, argument: str) -> None:
    """Write these bytes, and wait."""
    channel = Channel(base, b"")
    channel.put(bytes.fromhex(argument))
    time.sleep(600)


def hang(base: str, argument: str) -> None:
    """Write so many bytes, and wait for ever."""
    channel = Channel(base, b"")
    channel.put((HEADER + observation(0))[: int(argument)])
    print("stuck", file=sys.stderr, flush=True)
    time.sleep(600)


def hang_unopened(base: str, argument: str) -> None:
    print("stuck", file=sys.stderr, flush=True)
    time.sleep(600)


def deaf(base: str, argument: str) -> None:
    """Ask, and go on without reading the advice: ``exit``, ``ask`` again or ``reopen`` the channel."""
    channel = Channel(base)
    channel.put(observation(0))
    select.select([channel.inbound], [], [])
    if argument == "ask":
        channel.put(observation(1))
        channel.advice()
        time.sleep(600)
    if argument == "reopen":
        Channel(base)
        time.sleep(600)


def impatient(base: str, argument: str) -> None:
    """Ask twice at once."""
    channel = Channel(base)
    channel.put(observation(0) + observation(1))
    time.sleep(600)


def after_the_last(base: str, argument: str) -> None:
    """Ask and end at once."""
    channel = Channel(base)
    channel.ask(0)
    channel.put(observation(1))


def numbers(base: str, argument: str) -> None:
    """Count as told."""
    channel = Channel(base)
    for number in map(int, argument.split(",")):
        channel.ask(number)


def flood(base: str, argument: str) -> None:
    """Write megabytes to stderr or stdout between the decisions."""
    channel = Channel(base)
    descriptor = {"stdout": 1, "stderr": 2}[argument]
    for number in range(4):
        for _ in range(1024):
            os.write(descriptor, b"x" * 1023 + b"\n")
        channel.ask(number)
    os.write(descriptor, b"the end\n")


def twice(base: str, argument: str) -> None:
    """Open the channel again, with the ``same`` header or ``another``."""
    channel = Channel(base)
    channel.put(context("f"))
    print(channel.ask(0), channel.ask(1))
    channel.close()
    if argument == "same":
        channel = Channel(base)
        print(channel.ask(0), channel.ask(1))
        return
    channel = Channel(base, FLOAT_HEADER)
    for number in range(2):
        channel.put(b'{"observation":%d}\n' % number + struct.pack("=f", 0.5) + b"\n")
        print(channel.advice("f"))


def reopen(base: str, argument: str) -> None:
    """Close BASE.out and open it again, without another header."""
    channel = Channel(base)
    channel.ask(0)
    os.close(channel.outbound)
    channel.outbound = os.open(base + ".out", os.O_WRONLY)
    channel.ask(1)


def stubborn(base: str, argument: str) -> None:
    """Do not end on SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    channel = Channel(base)
    channel.ask(0)
    channel.put(b"{")
    while True:
        time.sleep(600)


def grandchild(base: str, argument: str) -> None:
    """Leave a process that holds the pipes and the FIFOs open, and writes into them when it ``writes``."""
    channel = Channel(base)
    channel.ask(0)
    if os.fork() == 0:
        with open(argument + ".new", "w") as file:
            print(os.getpid(), file=file)
        os.rename(argument + ".new", argument)
        time.sleep(600)
        os._exit(0)
    while not os.path.exists(argument):
        time.sleep(0.01)


def long_line(base: str, argument: str) -> None:
    channel = Channel(base)
    for _ in range(20):
        channel.put(b"x" * (1 << 20))
    time.sleep(600)


def big_advice(base: str, argument: str) -> None:
    """Want more advice than a FIFO holds; read it slowly, or not at all."""
    count = 100_000
    header = (
        b'{"features":[{"name":"x","type":"int8_t","port":0,"shape":[1]}],'
        b'"advice":{"name":"a","type":"int64_t","port":0,"shape":[%d]}}\n' % count
    )
    channel = Channel(base, header)
    channel.put(b'{"observation":0}\n\x07\n')
    if argument == "never":
        time.sleep(600)
    if argument == "die":
        time.sleep(0.2)
        sys.exit("error: enough")
    total = 0
    while total < 8 * count:
        total += len(os.read(channel.inbound, 8192))
    print(total)


def hungry(base: str, argument: str) -> None:
    """Take so many bytes of memory, and tell whether they could be had."""
    channel = Channel(base)
    channel.ask(0)
    try:
        block = bytearray(int(argument))
    except MemoryError:
        sys.exit("error: out of memory")
    block[::4096] = b"x" * len(block[::4096])


def play(base: str, argument: str) -> None:
    """Do what a file lists as JSON: ``put`` bytes, ``take`` advice if it comes, ``open`` and ``close`` again, ...

    ``say`` so many lines on stderr, ``sleep`` for ever, ``exit`` with a code.
    """
    ends = {}
    with open(argument) as file:
        steps = json.load(file)
    for what, value in steps:
        if what == "open":
            ends[value] = os.open(f"{base}.{value}", os.O_RDONLY if value == "in" else os.O_WRONLY)
        elif what == "close":
            os.close(ends.pop(value))
        elif what == "put":
            data = bytes.fromhex(value)
            while data:
                data = data[os.write(ends["out"], data) :]
        elif what == "take":
            while value and select.select([ends["in"]], [], [], 0.5)[0]:
                value -= len(os.read(ends["in"], value))
        elif what == "say":
            os.write(2, (b"x" * 99 + b"\n") * value)
        elif what == "sleep":
            time.sleep(600)
        else:
            os._exit(value)


def main() -> None:
    base, pid_file, mode, argument = (*sys.argv[1:], "")[:4]
    with open(pid_file + ".new", "w") as file:
        print(os.getpid(), file=file)
    os.rename(pid_file + ".new", pid_file)
    globals()[mode](base, argument)


if __name__ == "__main__":
    main()
