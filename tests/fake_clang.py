"""A clang that misbehaves as its modules tell it: ``fake_clang.py -cc1 ... -x ir MODULE.bc ... -o OBJECT``.

It needs nothing but Python's standard library, is run with ``-I -S``, and a thousand times: it imports nothing that
imports ``re`` or ``enum``, which would take longer than all the rest. It answers ``-###`` and ``--version``,
compiles anything to a real small object, writes a training log for ``-training-log=``, and asks for advice for
``-inliner-interactive-channel-base=``; other tasks' options it does not know. A module is the magic of bitcode and then
JSON: what to do in the ``plain`` compile and in the ``traced`` one, by the names of the functions below and their
arguments, how the ``remarks`` name the decisions, and how many ``decisions`` there are. The folder FAKE_CLANG_STATE
gets a line for each compile.
"""

# ruff: noqa: T201 - a program of its own, which prints

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # what signal is made of
import os
import struct
import sys
import time

MAGIC = b"BC\xc0\xde"
JSON = {"true": True, "false": False, "null": None}


def spec(name: str, kind: str = "int64_t") -> dict[str, object]:
    return {"name": name, "type": kind, "port": 0, "shape": [1]}


FEATURES = [spec("caller_users"), spec("callee_users"), spec("inlining_default")]
ADVICE = spec("inlining_decision")
OTHER = [spec("caller_users"), spec("inlining_default")]


def header(features: list[dict[str, object]], advice: dict[str, object] | None) -> bytes:
    values = {"features": features} if advice is None else {"features": features, "advice": advice}
    return repr(values).replace("'", '"').replace(" ", "").encode() + b"\n"  # as JSON


LIVE = header(FEATURES, ADVICE)
LOGGED = header([*FEATURES, ADVICE], None)


def observation(number: int, *values: int) -> bytes:
    return b'{"observation":%d}\n' % number + struct.pack(f"={len(values)}q", *values) + b"\n"


def values(number: int) -> tuple[int, int, int]:
    return 10 + number, 20 + number, number % 2


def elf(text: int) -> bytes:
    """Make a relocatable object with so many bytes of code, and eight of data that is not written to."""
    names = b"\0.text\0.rodata\0.shstrtab\0"
    code = b"\x90" * text
    at = 64 + len(code) + 8 + len(names)
    start = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 1, 62, 1, 0, 0, at, 0, 64, 0, 0, 64, 4, 3)
    sections = [
        (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        (1, 1, 6, 0, 64, len(code), 0, 0, 1, 0),
        (7, 1, 2, 0, 64 + len(code), 8, 0, 0, 1, 0),
        (15, 3, 0, 0, 64 + len(code) + 8, len(names), 0, 0, 1, 0),
    ]
    return start + code + bytes(8) + names + b"".join(struct.pack("<IIQQQQIIQQ", *item) for item in sections)


class Compile:
    """One compile: what is asked for, and what it should do about it."""

    def __init__(self, words: list[str]) -> None:
        self.output = words[words.index("-o") + 1]
        source = words[words.index("-x") + 2] if "-x" in words else ""
        with open(source or os.devnull, "rb") as file:
            data = file.read()
        told = eval(data[4:], dict(JSON)) if data[4:5] == b"{" else {}  # noqa: S307 - what the tests have written
        options = dict(word.partition("=")[::2] for word in words if word.startswith("-"))
        self.base = options.get("-inliner-interactive-channel-base")
        self.log = options.get("-training-log")
        self.remarks = words[words.index("-opt-record-file") + 1] if "-opt-record-file" in words else None
        self.decided: list[bool] = []
        self.stage = "plain" if self.base is None and self.log is None else "traced"
        self.decisions = told.get("decisions", 3)
        self.text = 64
        self.channel: list[int] = []
        self.tasks = told.get(self.stage, {})
        if state := os.environ.get("FAKE_CLANG_STATE"):
            name = source.rpartition("/")[2]
            path = os.path.join(state, "compiles")
            with open(path, "a") as file:
                file.write(f"{self.stage} {name}\n")
            with open(path) as file:
                if "only_first" in self.tasks and file.read().count(f"{self.stage} {name}\n") > 1:
                    self.tasks = {}

    def run(self) -> None:
        """Do what the module tells, and what it does not tell as a compiler would."""
        tasks = dict(self.tasks)
        tasks.pop("only_first", None)
        object_made = tasks.pop("object", "elf")
        remarks = tasks.pop("remarks", "right")
        last = {name: tasks.pop(name) for name in ("exit", "signal") if name in tasks}
        for name, argument in tasks.items():
            globals()[name](self, argument)
        if not {"live", "write_log", "never_open", "no_log", "daemon"} & tasks.keys():
            self.decide()
        if self.remarks is not None and self.stage == "traced":
            self.write_remarks(remarks)
        if object_made == "elf":
            self.write_object(elf(self.text))
        elif object_made != "none":
            self.write_object(bytes.fromhex(object_made))
        for name, argument in last.items():
            globals()[name + "_"](self, argument)

    def write_object(self, data: bytes) -> None:
        with open(self.output, "wb") as file:
            file.write(data)

    def write_remarks(self, how: str) -> None:
        """Name the call of each decision: as LLVM does, or so that it cannot be right."""
        decided = {"fewer": self.decided[1:], "wrong": [not one for one in self.decided]}.get(how, self.decided)
        documents = [
            f"--- !{'Passed' if inlined else 'Missed'}\nPass:            inline-ml\nName:            InliningSuccess\n"
            f"Function:        f{number % 2}\nArgs:\n  - Callee:          g{number}\n"
            f"  - ShouldInline:    '{str(inlined).lower()}'\n...\n"
            for number, inlined in enumerate(decided)
        ]
        if how != "none":
            with open(self.remarks, "w") as file:
                file.write("".join(documents)[: -5 if how == "cut" else None])

    def decide(self) -> None:
        if self.log is not None:
            with open(self.log, "wb") as file:
                file.write(LOGGED)
                for number in range(self.decisions):
                    file.write(observation(number, *values(number), number % 2))
                    self.decided.append(bool(number % 2))
        if self.base is not None:
            self.open()
            self.put(LIVE)
            for number in range(self.decisions):
                self.ask(number)

    def open(self) -> None:
        self.channel = [os.open(self.base + ".in", os.O_RDONLY), os.open(self.base + ".out", os.O_WRONLY)]

    def put(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.channel[1], data) :]

    def ask(self, number: int, *others: int) -> None:
        self.put(observation(number, *(others or values(number))))
        advice = b""
        while len(advice) < 8:
            advice += os.read(self.channel[0], 8 - len(advice))
        self.decided.append(struct.unpack("=q", advice)[0] != 0)
        # What was not decided as expected makes the object larger.
        if struct.unpack("=q", advice)[0] != (others or values(number))[-1]:
            self.text += 16


def exit_(job: Compile, code: int) -> None:
    print(f"error: gives up with {code}", file=sys.stderr, flush=True)
    os._exit(code)


def signal_(job: Compile, number: int) -> None:
    print("PLEASE submit a bug report", file=sys.stderr, flush=True)
    if number != _signal.SIGKILL:
        _signal.signal(number, _signal.SIG_DFL)
    os.kill(os.getpid(), number)
    time.sleep(600)


def say(job: Compile, text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def hang(job: Compile, how: str) -> None:
    if how == "stubborn":
        _signal.signal(_signal.SIGTERM, _signal.SIG_IGN)
    time.sleep(600)


def pause(job: Compile, seconds: float) -> None:
    time.sleep(seconds)


def wait(job: Compile, path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.01)


def flood(job: Compile, descriptor: int) -> None:
    for _ in range(3 << 10):
        os.write(descriptor, b"x" * 1023 + b"\n")


def only_open(job: Compile, how: str) -> None:
    job.open()


def daemon(job: Compile, how: str) -> None:
    """Leave a process behind that holds the pipes and the FIFOs open."""
    job.open()
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)
    job.put(LIVE)
    job.ask(0)


def hungry(job: Compile, size: int) -> None:
    """Take so much memory."""
    try:
        block = bytearray(size)
    except MemoryError:
        print("LLVM ERROR: out of memory", file=sys.stderr, flush=True)
        os.abort()
    block[::4096] = b"x" * len(block[::4096])


def never_open(job: Compile, how: str) -> None:
    pass


def no_log(job: Compile, how: str) -> None:
    pass


def write_log(job: Compile, how: str) -> None:
    """Write another log: these bytes, a part of the right one, or one of a known kind."""
    rows = [observation(number, *values(number), 0) for number in range(2)]
    logs = {
        "other": header([*OTHER, ADVICE], None) + observation(0, 1, 2, 3),
        "second": LOGGED + rows[0] + LOGGED + rows[0],
        "headerless": rows[0],
        "only_header": LOGGED,
        "eviction": header([spec("mask"), spec("index_to_evict")], None) + observation(0, 1, 0),
        "cut": (LOGGED + rows[0] + rows[1])[:-9],
    }
    job.decided = [True] if how == "other" else []
    with open(job.log, "wb") as file:
        file.write(logs[how] if how in logs else bytes.fromhex(how))


def live(job: Compile, how: str) -> None:
    """Talk in another way over the channel."""
    job.open()
    if how == "second":
        job.put(LIVE)
        job.ask(0)
        job.ask(1)
        os.close(job.channel[0])
        os.close(job.channel[1])
        job.open()
        job.put(LIVE)
        job.ask(0)
    elif how == "second_other":
        job.put(LIVE)
        job.ask(0)
        job.put(header(OTHER, ADVICE))
        job.ask(0, 1, 0)
    elif how == "other":
        job.put(header(OTHER, ADVICE))
        job.ask(0, 1, 0)
    elif how == "headerless":
        job.put(observation(0, 1, 2, 0))
    elif how == "no_advice":
        job.put(LOGGED)
        job.put(observation(0, 1, 2, 0, 0))
    elif how == "deaf":  # go on without having read the advice
        job.put(LIVE + observation(0, *values(0)))
        time.sleep(0.3)
    elif how == "impatient":
        job.put(LIVE + observation(0, *values(0)) + observation(1, *values(1)))
        time.sleep(600)
    elif how == "only_header":
        job.put(LIVE)
    elif how == "contexts":  # named without observations
        job.put(LIVE)
        for number in range(3):
            job.put(b'{"context":"f%d"}\n' % number)
            job.ask(0)
        job.put(b'{"context":"g"}\n{"context":"f0"}\n')
        job.ask(1)
    elif how.isdigit():
        job.put((LIVE + observation(0, *values(0)))[: int(how)])
    else:
        job.put(bytes.fromhex(how))


def main() -> None:
    words = sys.argv[2:]
    compiler = sys.argv[1]
    print_version = "fake clang version 22.1.8\nTarget: x86_64-unknown-linux-gnu"
    if "-###" in words:
        source = next(word for word in words if word.endswith(".c"))
        print(print_version, file=sys.stderr)
        print(f' "{compiler}" "-cc1" "-emit-obj" "-O2" "-o" "probe.o" "-x" "c" "{source}"', file=sys.stderr)
    elif "--version" in words:
        print(print_version)
    elif "-cc1" in words:
        for word in words:
            if word.startswith(("-regalloc", "-unknown")):
                sys.exit(f"fake clang: Unknown command line argument '{word}'.")
        Compile(words).run()
    else:
        sys.exit("fake clang: error: no -cc1")


if __name__ == "__main__":
    main()
