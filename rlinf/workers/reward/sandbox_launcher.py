"""Runs one program in a sandbox; a script of its own, started by ``rlinf.workers.reward.sandbox``.

Imports nothing but the standard library, because it starts anew for every program. Three processes take part: this one
enters new namespaces; its child is the first process of the new process namespace, builds the view of the file system
and supervises; its grandchild gives up all rights and becomes the program. When the second one ends, however it does,
the kernel ends everything that the program has started.

The program sees a file system of its own: the interpreter and the system's libraries, read-only, and a small private
``/tmp``. There is no network, no other process, no environment variable, no device but ``/dev/null`` and its like.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from typing import Any

# <linux/sched.h>
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER = 0x00020000, 0x04000000, 0x08000000, 0x10000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
# <linux/mount.h>
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
# <linux/prctl.h>
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 36, 38

DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
INSIDE_UID = 65534
"""User that a program of an ordinary user runs as inside; outside it stays that user, who has no rights in there."""

libc = ctypes.CDLL(None, use_errno=True)


class Overtime(Exception):  # noqa: N818 - a signal, not an error
    """The program did not end in time."""


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
    plan["uid"] = plan["first_uid"] + os.getpid()
    try:
        if plan["isolate"]:
            enter_namespaces()
        first = os.fork()
        if not first:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            report(status, supervise(plan))
            os._exit(0)
    except BaseException as error:  # noqa: BLE001 - a report is all that may leave any of the processes
        report(status, {"error": f"{type(error).__name__}: {error}"})
        os._exit(1)
    os.waitpid(first, 0)
    os._exit(0)


def report(status: int, outcome: dict[str, Any]) -> None:
    """Tell how it went; the first that is told counts."""
    os.write(status, json.dumps(outcome).encode() + b"\n")


def enter_namespaces() -> None:
    """Leave the network, the processes, the mounts and the shared memory of the machine behind."""
    user, group = os.geteuid(), os.getegid()
    flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS
    names = "mount, pid, network, ipc and uts"
    if user != 0:
        flags |= CLONE_NEWUSER
        names += ", in a user namespace"
    checked(libc.unshare(flags), f"new namespaces ({names})")
    if user != 0:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{INSIDE_UID} {user} 1"),
            ("gid_map", f"{INSIDE_UID} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)


def supervise(plan: dict[str, Any]) -> dict[str, Any]:
    """Prepare the view, start the program and wait for its end; return what to report."""
    if plan["isolate"]:
        build_view(plan)
    else:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    write_files(plan)
    program = os.fork()
    if not program:
        become_program(plan)
    signal.signal(signal.SIGALRM, overtime)
    signal.setitimer(signal.ITIMER_REAL, plan["timeout_seconds"])
    try:
        while True:
            ended, how = os.wait()
            if ended == program:
                return {"exit": os.waitstatus_to_exitcode(how)}
    except Overtime:
        return {"timeout": True}
    finally:
        if not plan["isolate"]:
            kill_descendants()


def overtime(*_: object) -> None:
    """Interrupt the wait."""
    raise Overtime


def kill_descendants() -> None:
    """Kill what is left of the program where no namespace does it: all orphans are children of this process."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    while children := list(own_children()):
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)


def own_children() -> Iterator[int]:
    """Yield the children of this process."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            # "pid (name) state ppid ...": the name may hold anything, parentheses too.
            if int(file.read().rpartition(b")")[2].split()[1]) == os.getpid():
                yield int(name)


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
        forbid_shared_memory(f"{view}/proc")
        mount(None, f"{view}/proc", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)
    os.chdir(root)
    checked(libc.pivot_root(b".", b"."), "pivot_root")
    checked(libc.umount2(b".", MNT_DETACH), "umount of the old root")
    mount(None, "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    # Whoever lives in a changed root may not make user namespaces: those would give rights back.
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


def forbid_shared_memory(proc: str) -> None:
    """Forbid System V shared memory, which no limit of a process bounds."""
    with contextlib.suppress(OSError), open(f"{proc}/sys/kernel/shmmni", "w") as file:
        file.write("0")


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
        os.setsid()
        os.chdir(plan["work"])
        for name, bound in plan["limits"].items():
            resource.setrlimit(getattr(resource, name), (bound, bound))
        if not plan["isolate"]:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        elif os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(plan["uid"], plan["uid"], plan["uid"])
            os.setresuid(plan["uid"], plan["uid"], plan["uid"])
        checked(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
        os.execve(plan["command"][0], plan["command"], {})
    except BaseException as error:  # noqa: BLE001 - must never go on as a second supervisor
        report(plan["status"], {"error": f"{type(error).__name__}: {error}"})
    os._exit(1)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
