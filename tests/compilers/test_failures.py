"""Reasons for failures: from what LLVM 17 to 22 say, word for word."""

from __future__ import annotations

import errno

import pytest

from mlgo_corpus.compilers.failures import RunFailure, classify, without_quotes
from mlgo_corpus.dataset.reasons import RunReason
from mlgo_corpus.errors import ProtocolError, ToolError, Usage

VERSIONS = "(Producer: 'LLVM{}' Reader: 'LLVM {}')"


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        (f"error: Unknown attribute kind (102) {VERSIONS.format('22.1.8', '19.1.7')}", "newer_bitcode"),
        (f"error: Invalid record {VERSIONS.format('22.1.8', '19.1.7')}", "newer_bitcode"),
        (f"error: Invalid record {VERSIONS.format('19.1.7', '19.1.7')}", "unreadable_bitcode"),
        (f"error: Invalid record {VERSIONS.format('17.0.6-rust-1.77.0-stable', '22.1.8')}", "unreadable_bitcode"),
        (f"error: Invalid attribute group entry {VERSIONS.format('22.1.8', '22.1.8')}", "unreadable_bitcode"),
        (f"error: Never resolved value found in function {VERSIONS.format('19.1.7', '19.1.7')}", "unreadable_bitcode"),
        (
            "error: Unknown attribute kind (102) (Producer: 'APPLE_1_1500.3.9.4_0' Reader: 'LLVM 19.1.7')",
            "newer_bitcode",
        ),
        ("error: Invalid record (Producer: 'odd' Reader: 'LLVM 19.1.7')", "unreadable_bitcode"),
        ("error: Invalid bitcode signature", "unreadable_bitcode"),
        ("error: Expected a single module", "unreadable_bitcode"),
        ("error: can't skip to bit 12608 from 3072", "unreadable_bitcode"),
        ("error: can't skip block: already at end of stream", "unreadable_bitcode"),
        ("error: can't enter sub-block: current code size is 0", "unreadable_bitcode"),
        ("error: Unexpected end of file reading 8 of 8 bytes", "unreadable_bitcode"),
        ("error: Invalid abbrev number", "unreadable_bitcode"),
        ("error: Invalid encoding", "unreadable_bitcode"),
        ("error: Invalid metadata attachment", "unreadable_bitcode"),
        ("error: Abbrev record with no operands", "unreadable_bitcode"),
        ("error: Malformed block", "unreadable_bitcode"),
        ("x.bc:1:1: error: expected top-level entity", "unreadable_bitcode"),
        ("error: invalid LLVM IR input: Basic Block in function 'f' does not have terminator!", "unreadable_bitcode"),
        ("fatal error: error in backend: Broken module found, compilation aborted!", "unreadable_bitcode"),
        ("error: unknown argument: '-fdwarf2-cfi-asm'", "unknown_option"),
        ("error: unknown target CPU 'moon'", "unknown_option"),
        (
            "clang (LLVM option parsing): Unknown command line argument '-training-log=x'.  Try: 'clang --help'",
            "unknown_option",
        ),
        ("error: unable to open output file 'm.o': 'No space left on device'", "disk_full"),
        ("LLVM ERROR: IO failure on output stream: No space left on device", "disk_full"),
        ("error: Could not read profile a.profdata: malformed instrumentation profile data", "compiler_error"),
        ("error: Error in reading profile a.afdo: truncated profile data", "compiler_error"),
        ("error: couldn't allocate output register for constraint 'a'", "compiler_error"),
        ("", "compiler_error"),
    ],
)
def test_what_compilers_say(stderr: str, reason: str) -> None:
    text = f"warning: overriding the module target triple\n{stderr}\n1 warning and 1 error generated.\n"
    error = ToolError(("clang",), 1, text if stderr else "", Usage(1, 1, 1))
    found, detail = classify(error)
    assert found == reason
    assert detail == (stderr or "exit code 1")


def test_what_a_command_may_hold_does_not_count() -> None:
    said = "1. Program arguments: clang -DX='No space left on device'\nerror: unsupported inline asm"
    assert classify(ToolError(("clang",), 1, said)) == (RunReason.COMPILER_ERROR, "error: unsupported inline asm")


def test_ends() -> None:
    assert classify(ToolError(("clang",), None, "slow"), timeout=7) == (RunReason.TIMEOUT, "not done after 7 seconds")
    assert classify(ToolError(("clang",), None, "slow")) == (RunReason.TIMEOUT, "not done")
    assert classify(ToolError(("clang",), -11, "Stack dump:\n0. a")) == (RunReason.SIGNAL, "ended by signal 11: 0. a")
    assert classify(ToolError(("clang",), -9)) == (RunReason.SIGNAL, "ended by signal 9")
    said = "a\nLLVM ERROR: out of memory\nAllocation failed"
    for code in (1, -6):
        assert classify(ToolError(("c",), code, said), limited=True)[0] == RunReason.MEMORY_LIMIT
    assert classify(ToolError(("c",), -6, said)) == (RunReason.SIGNAL, "ended by signal 6: LLVM ERROR: out of memory")
    assert classify(ProtocolError("odd", ("c",), "x")) == (RunReason.PROTOCOL_ERROR, "odd")
    assert classify(ToolError(("c",), 70, "error: " + 1000 * "x"))[1] == "error: " + 293 * "x"


@pytest.mark.parametrize(
    ("code", "said", "reason"),
    [
        (-6, "terminate called after throwing an instance of 'std::bad_alloc'\nStack dump:\n0.\tx", "memory_limit"),
        (-11, "Stack dump:\n2.\tRunning pass 'a' on function '@_ZSt17__throw_bad_allocv'", "signal"),
        (-11, "Stack dump:\n2.\tRunning pass 'a' on function '@out of memory'", "signal"),
        (-11, '@a = constant [14 x i8] c"out of memory\\00"\nStack dump:', "signal"),
        (1, "call void @_ZSt17__throw_bad_allocv()\nLLVM ERROR: No space left on device", "disk_full"),
        (-6, "LLVM ERROR: No space left on device\nout of memory", "disk_full"),
        (1, "x.ll:1:1: error: Cannot allocate unsized type", "compiler_error"),
    ],
)
def test_text_of_a_module_is_no_lack_of_memory(code: int, said: str, reason: str) -> None:
    assert classify(ToolError(("clang",), code, said), limited=True)[0] == reason


def test_the_system() -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "/d/f")
    assert classify(full) == (RunReason.DISK_FULL, "/d/f: No space left on device")
    assert classify(OSError(errno.EDQUOT, "Disk quota exceeded")) == (RunReason.DISK_FULL, "Disk quota exceeded")
    gone = FileNotFoundError(errno.ENOENT, "No such file or directory", "/d/f")
    assert classify(gone) == (RunReason.MISSING_FILE, "/d/f: No such file or directory")


def test_what_may_pass() -> None:
    passing = {reason for reason in RunReason if RunFailure(reason, "x").may_pass}
    assert passing == {RunReason.SIGNAL, RunReason.TIMEOUT, RunReason.PROTOCOL_ERROR}
    assert not RunFailure(RunReason.SIGNAL, "x", may_pass=False).may_pass
    assert RunFailure(RunReason.SIGNAL, " a\n b ").detail == "a b"


# What glibc's loader says of a limit on memory that does not hold the program.
LOADER = (
    "libLLVM.so.22.1: failed to map segment from shared object",
    "libz3.so.4: cannot map zero-fill pages",
    "libz3.so.4: cannot change memory protections",
    "libc.so.6: cannot allocate memory in static TLS block",
    "clang: cannot create TLS data structures: Cannot allocate memory",
    "libm.so.6: cannot create shared object descriptor: Cannot allocate memory",
)


@pytest.mark.parametrize("said", LOADER)
def test_a_program_that_cannot_be_loaded_within_its_limit(said: str) -> None:
    error = ToolError(("clang",), 127, f"clang: error while loading shared libraries: {said}\n")
    assert classify(error, limited=True)[0] == RunReason.MEMORY_LIMIT
    assert classify(error)[0] == RunReason.COMPILER_ERROR


def test_a_library_that_is_not_there_is_no_limit_of_memory() -> None:
    why = "cannot open shared object file: No such file or directory"
    missing = f"clang: error while loading shared libraries: libz3.so.4: {why}"
    assert classify(ToolError(("clang",), 127, missing), limited=True)[0] == RunReason.COMPILER_ERROR


QUOTED = "root:x:0:0"
NOT_KEPT = "error: (the message quotes a file of this machine and is not kept; `trust_corpus` keeps it)"


@pytest.mark.parametrize(
    "stderr",
    [
        f"Included from <inline asm>:1:\n/etc/passwd:1:9: error: unexpected token at start\n{QUOTED}\n   ^\n",
        f"/etc/passwd:1:9: error: invalid instruction mnemonic '{QUOTED}'\n",
        f"/etc/passwd(1,9): error: {QUOTED}\n",
        f"/etc/passwd(1) : warning: {QUOTED}\n",
        f"/etc/passwd +1:9: error: {QUOTED}\n",
        f"/etc/passwd:1: note: {QUOTED}\n",
        f"/etc/passwd:1:9:{{1:1-1:4}}: fatal error: {QUOTED}\n",
        f"\x1b[1m/etc/passwd:1:9: \x1b[0m\x1b[0;1;31merror: \x1b[0m{QUOTED}\n",
        f"<instantiation>:1:1: warning: {QUOTED}\n",  # a macro's argument, perhaps a line of what was included
    ],
)
def test_what_is_quoted_of_a_file_is_left_out(stderr: str) -> None:
    before = "warning: overriding the module target triple\n<inline asm>:1:2: warning: mine\nblabla\n"
    assert without_quotes(before + stderr, ["-cc1", "-O2"], trusted=False) == before + NOT_KEPT
    assert without_quotes(before + stderr, ["-cc1", "-O2"], trusted=True) == before + stderr
    hidden = ["-cc1", "-fno-show-source-location"]
    assert without_quotes(QUOTED, hidden, trusted=False) == without_quotes("x" * 65536, [], trusted=False) == NOT_KEPT
    error = ToolError(("clang",), 1, stderr, Usage(1, 1, 1))
    assert classify(error, kept=NOT_KEPT) == (RunReason.COMPILER_ERROR, NOT_KEPT)


@pytest.mark.parametrize(
    "stderr",
    [
        "error: Unknown attribute kind (102) (Producer: 'LLVM22.1.8' Reader: 'LLVM 19.1.7')\n",
        "<inline asm>:1:1: error: invalid instruction mnemonic 'blabla'\nblabla foo\n^~~~~~\n1 error generated.\n",
        "clang (LLVM option parsing): Unknown command line argument '-training-log=x'.  Try: 'clang --help'\n",
        "fatal error: error in backend: Broken module found, compilation aborted!\n",
        "",
    ],
)
def test_what_quotes_no_file_is_kept(stderr: str) -> None:
    assert without_quotes(stderr, ["-cc1", "-fthinlto-index=/corpus/a.thinlto.bc"], trusted=False) == stderr
    assert without_quotes(stderr, ["-cc1", "-fprofile-sample-use=/etc/passwd"], trusted=False) == (stderr and NOT_KEPT)
