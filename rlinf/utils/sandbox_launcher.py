"""Runs one program in a sandbox; a script of its own, started by ``rlinf.utils.sandbox``.

Imports nothing but the standard library, because it starts anew for every program. Three processes take part: this one
enters new namespaces; its child is the first process of the new process namespace, builds the view of the file system
and supervises; its grandchild gives up all rights and becomes the program. When the second one ends, however it does,
the kernel ends everything that the program has started.

The program sees a file system of its own: the interpreter and the system's libraries, read-only, and a small private
``/tmp``. There is no network, no other process, no environment variable, no device but ``/dev/null`` and its like.

Limits of single processes are the kernel's (``setrlimit``). Those of a program, with all processes that it starts, are
the supervisor's: it adds up processor time, memory and threads every ``POLL_SECONDS``, and ends a program that exceeds
one. A seccomp filter refuses memory that belongs to no process (memfds, shared anonymous mappings, System V segments),
so that what the supervisor adds up is all there is. Control groups would do the same, but few containers may make any.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import resource
import signal
import struct
import sys
import time
from typing import Any

# <linux/sched.h>
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER = 0x00020000, 0x04000000, 0x08000000, 0x10000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
# <linux/mount.h>
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
# <linux/prctl.h>, <linux/seccomp.h>
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 22, 36, 38
SECCOMP_MODE_FILTER, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO = 2, 0x7FFF0000, 0x00050000
# <linux/filter.h>: load a word, compare with a constant, mask by a constant, return a constant
LOAD, IF_EQUAL, IF_AT_LEAST, MASK, RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
# <linux/audit.h>, <asm/unistd.h>: the architecture; mmap; memfd_create, memfd_secret, shmget, msgget, semget,
# io_uring_setup
SYSTEM_CALLS = {
    "x86_64": (0xC000003E, 9, (319, 447, 29, 68, 64, 425)),
    "aarch64": (0xC00000B7, 222, (279, 447, 194, 186, 190, 425)),
}
FIRST_X32_CALL = 0x40000000
"""System calls of x86_64 from here on are the same ones under further numbers."""
MAP_SHARED_ANONYMOUS, MAP_TYPE_AND_ANONYMOUS = 0x21, 0x2F

DEVICES = ("/dev/null", "/dev/random", "/dev/urandom")
"""Without ``/dev/zero``: a shared mapping of it is memory that belongs to no process."""
POLL_SECONDS = 0.02
"""Between two looks at what a program uses."""
POLL_SHARE = 20
"""A look that takes long is followed by a pause this many times as long: looking takes at most 5 % of a processor."""
INSIDE_UID = 65534
"""User that a program of an ordinary user runs as inside; outside it stays that user, who has no rights in there."""

libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int, action: str) -> None:
    """Raise what the C library noted, naming the action that failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{action}: {os.strerror(number)}")


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """Attach a file system, or change how one is attached; the system call of that name."""
    encoded = [text.encode() if text is not None else None for text in (source, target, kind, options)]
    checked(libc.mount(*encoded[:3], ctypes.c_ulong(flags), encoded[3]), f"mount of {source or kind or target}")


def main(plan: dict[str, Any]) -> None:
    """Carry out a plan; how it went is written to the file descriptor ``plan["status"]`` as JSON.

    Args:
        plan: What ``Sandbox.run`` wrote.
    """
    status = plan["status"]
    with open(plan["files"], "rb", closefd=True) as handed:
        plan["files"] = json.load(handed)
    os.set_inheritable(status, False)
    os.umask(0o022)  # the program, another user, must be able to look into the folders of its view
    plan["uid"] = plan["first_uid"] + os.getpid()
    try:
        machine_proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
        if plan["isolate"]:
            enter_namespaces(plan["user_namespace"])
        first = os.fork()
        if not first:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            report(status, supervise(plan, machine_proc))
            os._exit(0)
    except BaseException as error:  # noqa: BLE001 - a report is all that may leave any of the processes
        report(status, {"error": f"{type(error).__name__}: {error}"})
        os._exit(1)
    block_signals()
    os.waitpid(first, 0)
    os._exit(0)


def report(status: int, outcome: dict[str, Any]) -> None:
    """Report the outcome; the first report counts."""
    os.write(status, json.dumps(outcome).encode() + b"\n")


def enter_namespaces(with_users: bool) -> None:
    """Leave the network, the processes, the mounts and the shared memory of the machine behind.

    Args:
        with_users: Enter a user namespace too, which gives an ordinary user the rights to make the others.
    """
    user, group = os.geteuid(), os.getegid()
    flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS
    names = "mount, pid, network, ipc and uts"
    if with_users:
        flags |= CLONE_NEWUSER
        names += ", in a user namespace"
    checked(libc.unshare(flags), f"new namespaces ({names})")
    if with_users:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{INSIDE_UID} {user} 1"),
            ("gid_map", f"{INSIDE_UID} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)


def supervise(plan: dict[str, Any], machine_proc: int) -> dict[str, Any]:
    """Prepare the view, start the program and wait for its end; return what to report."""
    if plan["isolate"]:
        build_view(plan)
    else:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    write_files(plan)
    # That of the namespace lists few processes; where a container forbids to mount one, the machine's has them too.
    is_own = plan["isolate"] and os.path.exists("/proc/self")
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY) if is_own else machine_proc
    program = os.fork()
    if not program:
        become_program(plan)
    block_signals()
    try:
        return watch(program, plan, proc)
    finally:
        if not plan["isolate"]:
            kill_descendants(proc)


def block_signals() -> None:
    """Let signals wait unread, as a program may be able to send some to its supervisor."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def watch(program: int, plan: dict[str, Any], proc: int) -> dict[str, Any]:
    """Wait until the program ends, exceeds a limit, or is to be ended; return what to report."""
    deadline = time.monotonic() + plan["wall_seconds"]
    while True:
        # An end comes before any limit: a program that ended has ended, however late that is noticed.
        if (code := reap(program)) is not None:
            used = reaped_seconds()
            is_over = code == -signal.SIGKILL and used >= plan["cpu_seconds"]  # RLIMIT_CPU was faster
            return {"killed_for": "timeout"} if is_over else {"exit": code, "cpu_seconds": used}
        began = time.monotonic()
        if began >= deadline:
            return {"killed_for": "timeout"}
        if exceeded := exceeded_limit(plan, proc):
            return {"killed_for": exceeded}
        pause = max(POLL_SECONDS, POLL_SHARE * (time.monotonic() - began))
        signalled = signal.sigtimedwait({signal.SIGCHLD, signal.SIGTERM}, pause)
        if signalled is not None and signalled.si_signo == signal.SIGTERM:
            return {}


def reap(program: int) -> int | None:
    """Reap children that have ended; return the program's exit code once it is among them."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == program:
                return os.waitstatus_to_exitcode(ended[1])
    return None


def reaped_seconds() -> float:
    """Return the processor time of reaped children and of what they have reaped."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def exceeded_limit(plan: dict[str, Any], proc: int) -> str | None:
    """Return the limit that the program's processes exceed together, if any."""
    found = descendants(proc)
    ticks = sum(int(count) for stat in found.values() for count in stat[11:15])
    if reaped_seconds() + ticks / os.sysconf("SC_CLK_TCK") >= plan["cpu_seconds"]:
        return "timeout"
    if sum(int(stat[17]) for stat in found.values()) > plan["limits"]["RLIMIT_NPROC"]:
        return "processes"
    # Pages that a fork shares count for each of those that share them, until a slower count shows that it matters.
    for count in (resident_bytes, proportional_bytes):
        if sum(count(proc, pid) for pid in found) <= plan["memory_bytes"]:
            return None
    return "memory"


def descendants(proc: int) -> dict[str, list[bytes]]:
    """Return the fields of ``/proc/<pid>/stat`` from the state on, of all processes below this one."""
    below: dict[str, list[tuple[str, list[bytes]]]] = {}
    for pid in filter(str.isdigit, os.listdir(proc)):
        # "pid (name) state ppid ...": the name may hold anything, parentheses too.
        if stat := read(proc, f"{pid}/stat").rpartition(b")")[2].split():
            below.setdefault(stat[1].decode(), []).append((pid, stat))
    found: dict[str, list[bytes]] = {}
    parents = [os.readlink("self", dir_fd=proc)]
    while parents:
        for pid, stat in below.pop(parents.pop(), ()):
            found[pid] = stat
            parents.append(pid)
    return found


def read(proc: int, path: str) -> bytes:
    """Return the text of a file below ``/proc``; nothing where the process has ended or may not be looked at."""
    try:
        with open(os.open(path, os.O_RDONLY, dir_fd=proc), "rb") as file:
            return file.read()
    except OSError:
        return b""


def resident_bytes(proc: int, pid: str) -> int:
    """Return the memory of a process that is no file's."""
    pages = read(proc, f"{pid}/statm").split()
    return (int(pages[1]) - int(pages[2])) * resource.getpagesize() if pages else 0


def proportional_bytes(proc: int, pid: str) -> int:
    """Return the same with each page divided by the number of processes that share it, where that may be seen."""
    _, found, rest = read(proc, f"{pid}/smaps_rollup").partition(b"Pss_Anon:")
    return int(rest.split()[0]) << 10 if found else resident_bytes(proc, pid)


def kill_descendants(proc: int) -> None:
    """Kill what is left of the program where no namespace does it: all strays are children of this process."""
    while found := descendants(proc):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


def build_view(plan: dict[str, Any]) -> None:
    """Make the file system that the program sees, and leave the machine's own."""
    root = plan["root"]
    view = f"{root}/view"
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")
    os.mkdir(view)
    for path in plan["visible"]:
        show(path, view)
    make_read_only(view)
    for device in DEVICES:
        show(device, view)
    os.mkdir(f"{view}/tmp")
    options = f"size={plan['tmp_bytes']},nr_inodes=1024,mode=1777"
    mount("tmpfs", f"{view}/tmp", "tmpfs", MS_NOSUID | MS_NODEV, options)
    os.mkdir(f"{view}/proc")
    with contextlib.suppress(OSError):  # containers may forbid it, and programs rarely need it
        mount("proc", f"{view}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        mount(None, f"{view}/proc", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)
    os.chdir(root)
    checked(libc.pivot_root(b".", b"."), "pivot_root")
    checked(libc.umount2(b".", MNT_DETACH), "umount of the old root")
    mount(None, "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    # A process in a changed root may not make user namespaces: those would give rights back.
    os.chroot("/view")
    os.chdir("/")


def show(path: str, view: str) -> None:
    """Make a path of the machine visible at the same place; nothing happens where it does not exist."""
    target = view + path
    if os.path.lexists(target):
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(path):
        os.symlink(os.readlink(path), target)
    elif os.path.isdir(path):
        os.mkdir(target)
        mount(path, target, None, MS_BIND | MS_REC)
    elif os.path.exists(path):
        open(target, "wb").close()
        mount(path, target, None, MS_BIND)


def make_read_only(view: str) -> None:
    """Forbid writing to every mount below, those that came along with another included."""
    with open("/proc/self/mountinfo", "rb") as file:
        places = [line.split()[4].decode("unicode_escape") for line in file]
    for place in places:
        if place.startswith(f"{view}/"):
            kept = os.statvfs(place).f_flag & MS_NOEXEC  # what the machine forbids cannot be allowed in here
            mount(None, place, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | kept)


def write_files(plan: dict[str, Any]) -> None:
    """Write the program where it can read it."""
    for name, text in plan["files"].items():
        path = os.path.join(plan["work"], name)
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        os.chmod(path, 0o444)


def become_program(plan: dict[str, Any]) -> None:
    """Give up all rights and run the program; never returns."""
    try:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the parent process may block some
        os.setsid()
        os.chdir(plan["work"])
        for name, bound in plan["limits"].items():
            resource.setrlimit(getattr(resource, name), (bound, bound))
        if not plan["isolate"]:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        elif not plan["user_namespace"]:
            os.setgroups([])
            os.setresgid(plan["uid"], plan["uid"], plan["uid"])
            os.setresuid(plan["uid"], plan["uid"], plan["uid"])
        checked(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
        refuse_ownerless_memory()
        os.execve(plan["command"][0], plan["command"], {})
    except BaseException as error:  # noqa: BLE001 - must never go on as a second supervisor
        report(plan["status"], {"error": f"{type(error).__name__}: {error}"})
    os._exit(1)


def refuse_ownerless_memory() -> None:
    """Make system calls fail that give memory which no process's size shows, and no limit bounds."""
    machine = os.uname().machine
    if machine not in SYSTEM_CALLS:
        raise OSError(f"a seccomp filter for {machine}; there is one for {' and '.join(SYSTEM_CALLS)}")
    architecture, mmap, refused = SYSTEM_CALLS[machine]
    refusal = (RETURN, 0, 0, SECCOMP_RET_ERRNO | errno.EPERM)
    # A line is (code, lines to skip if so, lines to skip if not, constant). Offsets are those in struct seccomp_data: 0
    # the call, 4 the architecture, 16 + 8 n the lower half of argument n.
    tail = [
        (IF_EQUAL, 0, 3, mmap),
        (LOAD, 0, 0, 16 + 8 * 3),
        (MASK, 0, 0, MAP_TYPE_AND_ANONYMOUS),
        (IF_EQUAL, 1, 0, MAP_SHARED_ANONYMOUS),
        (RETURN, 0, 0, SECCOMP_RET_ALLOW),
        refusal,
    ]
    lines = [(LOAD, 0, 0, 4), (IF_EQUAL, 1, 0, architecture), refusal, (LOAD, 0, 0, 0)]
    guards = [(IF_AT_LEAST, FIRST_X32_CALL), *((IF_EQUAL, number) for number in refused)]
    for left, (code, constant) in zip(range(len(guards), 0, -1), guards, strict=True):
        lines.append((code, left + len(tail) - 2, 0, constant))
    lines += tail
    text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    program = struct.pack("HP", len(lines), ctypes.addressof(text))
    checked(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0), "seccomp filter")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
