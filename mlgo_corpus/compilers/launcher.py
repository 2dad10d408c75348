"""A small process that starts compilers behind walls: restrictions that hold whatever the compilers are told to do.

It runs on its own (``python -I -S launcher.py DESCRIPTOR PARENT RULES``), with Python's standard library only, so that
it is small and has one thread: only such a process may run code between ``fork`` and ``exec``. Programs that it starts
have its restrictions:

- **files** (Landlock, Linux 5.13): read and execute the files that RULES name, and nothing else. A started program may
  write regular files and folders in the folder that it runs in, and nowhere else;
- **network** (seccomp, on x86-64 and AArch64): no sockets. Elsewhere Landlock forbids TCP (Linux 6.7);
- **processes**: Landlock forbids signalling (Linux 6.12) and tracing other processes. Processes that a program leaves
  behind, even in another process group, become children of this process (PR_SET_CHILD_SUBREAPER) and are killed.

Each program has its own process group, is killed by the kernel if this process ends (PR_SET_PDEATHSIG), and has limits.
A wall that the kernel does not support is left out; `landlock_version` and `has_seccomp` show which it has. No wall
needs a privilege.

Restrictions that hold for all programs are set up once, since each system call in a new child costs some microseconds
for the memory that it shares until ``exec``.

Protocol
--------
Messages are marshalled tuples behind their length (4 bytes, native) on a stream socket, one program at a time:

==========  ===========================================================  =============================================
message     holds                                                        answer
==========  ===========================================================  =============================================
start       argv, folder, environment, limits; as descriptors            pid and this process's peak memory in kB, or 0,
            (SCM_RIGHTS) its stdout and stderr                           errno and the path that it concerns
reap        nothing                                                      status, CPU seconds, ru_maxrss
==========  ===========================================================  =============================================

Until the message ``reap``, a dead program keeps its process id, so that the other side can signal its group without
hitting another's. When the process on the other side ends, this one ends, and its program with it.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import marshal
import os
import resource
import select
import signal
import socket
import stat
import struct
import sys
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes longer than everything else here
    from typing import Any, NoReturn

_LENGTH = struct.Struct("=I")
_MSG_CMSG_CLOEXEC = 0x40000000

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

# include/uapi/linux/landlock.h; the system calls have these numbers on every architecture but Alpha.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (1 << bit for bit in range(6))
_MAKE_DIR, _MAKE_REG = 1 << 7, 1 << 8
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
# The rights that each version of Landlock can withhold: in the file system, in the network (TCP), to other processes.
_KNOWN = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
_NET = 0b11
_SCOPED = 0b11
SINCE_TCP, _SINCE_SCOPED = 4, 6

READ = _READ_FILE | _READ_DIR
RUN = _EXECUTE | _READ_FILE
_READING = READ | _EXECUTE | _IOCTL_DEV
_WRITING = ~_READING
# Neither links nor devices, so that a program leaves only regular files and folders.
_WRITE = _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _TRUNCATE
_NOTHING = os.fsencode(os.devnull)

# By machine: the audit number of the architecture, then the system calls seccomp, socket and io_uring_setup, which can
# make sockets, too (include/uapi/linux/audit.h, asm/unistd.h).
_SECCOMP = {"x86_64": (0xC000003E, 317, 41, 425), "aarch64": (0xC00000B7, 277, 198, 425)}
_X32 = 0x40000000
_SET_MODE_FILTER = 1
# Without this flag, Linux before 5.16 slows the program down by mitigations of Spectre.
_SPEC_ALLOW = 1 << 2
_ALLOW, _KILL, _DENY = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EACCES

_libc = ctypes.CDLL(None, use_errno=True)


@functools.cache
def landlock_version() -> int:
    """Return the version of Landlock's interface, 0 if there is none, or it is switched off."""
    if sys.platform != "linux":
        return 0
    return max(int(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _CREATE_RULESET_VERSION)), 0)


def has_seccomp() -> bool:
    """Return whether sockets can be forbidden here."""
    if sys.platform != "linux" or os.uname().machine not in _SECCOMP:
        return False
    _, seccomp, _, _ = _SECCOMP[os.uname().machine]
    # Without a filter's address, a kernel that has the mode returns EFAULT.
    _libc.syscall(seccomp, _SET_MODE_FILTER, _SPEC_ALLOW, None)
    return ctypes.get_errno() == errno.EFAULT


def restrict_files(rights: int, rules: list[tuple[int, bytes]]) -> None:
    """Restrict this thread, and what it starts, to these rights only where a rule grants them; skip missing paths.

    Raises:
        OSError: the kernel refuses.
    """
    version = landlock_version()
    handled = rights & _KNOWN[min(version, max(_KNOWN))]
    net = _NET if version >= SINCE_TCP else 0
    scoped = _SCOPED if version >= _SINCE_SCOPED else 0
    size = 24 if version >= _SINCE_SCOPED else 16 if version >= SINCE_TCP else 8
    ruleset = _call(_CREATE_RULESET, struct.pack("=QQQ", handled, net, scoped)[:size], ctypes.c_size_t(size), 0)
    for access, path in rules:
        _add_rule(ruleset, access & handled, path)
    _call(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _add_rule(ruleset: int, access: int, path: bytes) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
        access &= _OF_FILES
    if access:
        _call(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, struct.pack("=Qi", access, descriptor), 0)
    os.close(descriptor)


def _forbid_sockets() -> None:
    """Forbid this thread, and what it starts, to make sockets.

    Raises:
        OSError: the kernel refuses.
    """
    architecture, seccomp, made, ring = _SECCOMP[os.uname().machine]
    load, equal, above, answer = 0x20, 0x15, 0x35, 0x06  # BPF_LD | BPF_ABS, BPF_JMP | BPF_JEQ, _JGE, BPF_RET
    program = (
        (load, 0, 0, 4),  # seccomp_data.arch
        (equal, 1, 0, architecture),
        (answer, 0, 0, _KILL),
        (load, 0, 0, 0),  # seccomp_data.nr
        (above, 3, 0, _X32),
        (equal, 2, 0, made),
        (equal, 1, 0, ring),
        (answer, 0, 0, _ALLOW),
        (answer, 0, 0, _DENY),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
    head = struct.pack("@HP", len(program), ctypes.addressof(code))
    _call(seccomp, _SET_MODE_FILTER, _SPEC_ALLOW, head)


def _call(number: int, *arguments: object) -> int:
    answer = int(_libc.syscall(number, *arguments))
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer


def _serve(connection: socket.socket, parent: int, rules: list[tuple[int, bytes]]) -> None:
    """Start programs, one after the other, until the process that requests them ends."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and programs would inherit that
        signal.signal(number, signal.SIG_DFL)
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    asking = os.pidfd_open(parent)
    children = _open_children()
    if os.getppid() != parent:
        return
    landlock = landlock_version() > 0
    if landlock:
        restrict_files(_READING, [*rules, (READ, _NOTHING)])
    if has_seccomp():
        _forbid_sockets()
    while True:
        message, descriptors = _await(connection, asking, children)
        pid, failed, name = _start(message, descriptors, landlock)
        for descriptor in descriptors:
            os.close(descriptor)
        if failed:
            os.waitpid(pid, 0)
            send(connection, (0, failed, name))
            continue
        send(connection, (pid, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, b""))
        _await(connection, asking, children)
        send(connection, _reap(pid, children))


def _await(connection: socket.socket, asking: int, children: int) -> tuple[Any, list[int]]:
    """Return the next message. If there will be none, end this process; the kernel then ends its program."""
    poller = select.poll()
    poller.register(connection, select.POLLIN)
    poller.register(asking, select.POLLIN)
    if any(descriptor == asking for descriptor, _ in poller.poll()):
        _leave(children)
    try:
        return receive(connection)
    except (EOFError, OSError):
        _leave(children)


def _leave(children: int) -> NoReturn:
    _end_descendants(children)
    os._exit(0)


def _start(message: Any, descriptors: list[int], landlock: bool) -> tuple[int, int, bytes]:
    """Return a program's process id, and if it could not be started the errno and the path that it concerns."""
    argv, folder, environment, limits = message
    no_memory = struct.pack("=i", errno.ENOMEM) + argv[0]
    ours = os.getpid()
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        name = folder
        try:
            _libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)
            if os.getppid() != ours:
                os._exit(127)
            os.setsid()
            os.dup2(descriptors[0], 1)
            os.dup2(descriptors[1], 2)
            os.chdir(folder)
            name = argv[0]
            if landlock:
                restrict_files(_WRITING, [(_WRITE, folder), (_WRITE_FILE, _NOTHING)])
            for limit in limits:  # last: this process may be larger than the program may become
                resource.setrlimit(*limit)
            os.execve(argv[0], argv, environment)  # noqa: S606 - no shell, on purpose
        except OSError as error:
            os.write(tell, struct.pack("=i", error.errno or errno.EIO) + name)
        except MemoryError:
            os.write(tell, no_memory)
        finally:
            os._exit(127)
    os.close(tell)
    said = b""
    while piece := os.read(told, 1 << 16):
        said += piece
    os.close(told)
    return (pid, struct.unpack_from("=i", said)[0], said[4:]) if said else (pid, 0, b"")


def _reap(pid: int, children: int) -> tuple[int, float, int]:
    """Kill a program's group, reap it and whatever it left, and return its status, CPU seconds and ru_maxrss."""
    # Until it is reaped, its group's id cannot be reused.
    with suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    _, status, used = os.wait4(pid, 0)
    _end_descendants(children)
    return status, used.ru_utime + used.ru_stime, used.ru_maxrss


def _open_children() -> int:
    """Open the list of this process's children, while that is allowed; return -1 if the kernel has no such list."""
    try:
        return os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY)
    except OSError:
        return -1


def _end_descendants(children: int) -> None:
    """Kill and reap what programs left, repeatedly until none is left: children of a killed process become ours."""
    while True:
        left = os.pread(children, 1 << 16, 0).split() if children >= 0 else []
        for pid in left:
            with suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)
        try:
            # The list may lack a process that is forked while the list is read.
            reaped, _ = os.waitpid(-1, 0 if left else os.WNOHANG)
        except ChildProcessError:
            return
        if children < 0 and not reaped:  # their ids are unknown
            return


def send(connection: socket.socket, message: tuple[Any, ...], descriptors: tuple[int, ...] = ()) -> None:
    """Send one message, with descriptors.

    Raises:
        OSError: the other side has ended.
    """
    body = marshal.dumps(message)
    socket.send_fds(connection, [_LENGTH.pack(len(body))], descriptors)
    connection.sendall(body)


def receive(connection: socket.socket) -> tuple[Any, list[int]]:
    """Receive one message, and the descriptors that came with it.

    Raises:
        EOFError: the other side has ended.
        OSError: the other side has ended.
    """
    head, descriptors, _, _ = socket.recv_fds(connection, _LENGTH.size, 2, _MSG_CMSG_CLOEXEC)
    size = _LENGTH.size - len(head)
    body = b""
    if size == 0:
        (size,) = _LENGTH.unpack(head)
        body = connection.recv(size, socket.MSG_WAITALL)
        if len(body) == size:
            return marshal.loads(body), descriptors  # noqa: S302 - from our own parent or child, over a socket
    for descriptor in descriptors:
        os.close(descriptor)
    raise EOFError


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), marshal.loads(bytes.fromhex(sys.argv[3])))  # noqa: S302
