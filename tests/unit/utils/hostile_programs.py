"""Programs that try to get out of the sandbox, or to use it up; each is bounded in what it attempts, should it succeed.

A program prints ESCAPED where it got what it should not. ``{mark}`` is a path outside, ``{port}`` one that somebody
listens at, ``{pid}`` the process that runs the tests; ``filled`` puts them in.
"""

from __future__ import annotations

_ATTEMPT = """
try:
    {action}
    print("ESCAPED")
except (Exception, SystemExit):
    pass
"""

_ACTIONS = {
    # files
    "writes where the tests run": "open({mark!r}, 'w').write('x')",
    "writes to the root": "open('/rlinf-mark', 'w')",
    "writes to the system": "open('/usr/rlinf-mark', 'w')",
    "writes beside the interpreter": "open(__import__('sys').base_prefix + '/rlinf-mark', 'w')",
    "finds a mount to write to": (
        "assert [m for m in map(str.split, open('/proc/self/mountinfo'))"
        " if m[5].startswith('rw') and m[4] != '/tmp' and not m[4].startswith('/dev/')]"
    ),
    "makes a folder in the root": "__import__('os').mkdir('/rlinf-mark')",
    "makes a device": "__import__('os').mknod('/tmp/disk', 0o60666, 0x0800); open('/tmp/disk', 'rb')",
    "reads passwords": "open('/etc/shadow').read()",
    "reads users": "open('/etc/passwd').read()",
    "changes kernel settings": "open('/proc/sys/kernel/core_pattern', 'w').write('x')",
    "reads the supervisor's memory": "open('/proc/1/mem', 'rb').read(1)",
    "reads the supervisor's environment": "open('/proc/1/environ', 'rb').read()",
    "looks through the supervisor's root": "__import__('os').listdir('/proc/1/root/')",
    "climbs out of the root": "open('../../../../../..{mark}')",
    "follows a link out": "__import__('os').symlink({mark!r}, '/tmp/l'); open('/tmp/l', 'w')",
    "leaves through the old root": "__import__('os').chroot('..')",
    "makes a program that runs as its owner": "__import__('os').chown('/tmp/main.py', 0, 0)",
    # network
    "connects to the tests": "__import__('socket').create_connection(('127.0.0.1', {port}), 2)",
    "connects far away": "__import__('socket').create_connection(('192.0.2.1', 80), 2)",
    "asks for a name": "__import__('socket').getaddrinfo('example.org', 80)",
    "sends a datagram": "s = __import__('socket').socket(2, 2); s.sendto(b'x', ('127.0.0.1', {port}))",
    "makes a raw socket": "__import__('socket').socket(2, 3, 1)",
    # processes and rights
    "kills the tests": "assert {pid} > 2; __import__('os').kill({pid}, 0)",
    "becomes root": "__import__('os').setuid(0)",
    "changes priorities": "__import__('os').nice(-5)",
    "raises its limits": "r = __import__('resource'); r.setrlimit(r.RLIMIT_NPROC, (999, 999))",
    "traces the supervisor": "assert __import__('ctypes').CDLL(None).ptrace(16, 1, 0, 0) == 0",
    "makes a user namespace": "assert __import__('ctypes').CDLL(None).unshare(0x10000000) == 0",
    "makes a mount": "assert __import__('ctypes').CDLL(None).mount(b'x', b'/tmp', b'tmpfs', 0, None) == 0",
    "sets the name of the machine": "__import__('socket').sethostname('mine')",
    "sets the clock": "__import__('time').clock_settime(0, 0)",
    "loads a module": "assert __import__('ctypes').CDLL(None).syscall(175, 0, 0, 0) == 0",
    "has an environment": "assert set(__import__('os').environ) - {'LC_CTYPE'}",
    "runs a privileged program": "assert __import__('subprocess').run(['su', '-c', 'true']).returncode == 0",
    "has other files open": "assert set(__import__('os').listdir('/proc/self/fd')) - set('0123')",
}

ATTEMPTS = {name: _ATTEMPT.replace("{action}", action) for name, action in _ACTIONS.items()}
"""Each must print nothing."""

GREEDY = {
    "spins": "while True: pass",
    "sleeps": "import time\ntime.sleep(600)",
    "allocates": "held = bytearray(2 << 30)",
    "allocates in small parts": "held = []\nwhile len(held) < 4096: held.append(bytearray(1 << 20))",
    "computes a huge number": "print(9 ** 9 ** 9)",
    "fills its folder": "for i in range(64):\n    open(f'/tmp/{i}', 'wb').write(bytes(1 << 20))",
    "makes many files": "for i in range(4096):\n    open(f'/tmp/{i}', 'wb').close()",
    "opens many files": "held = [open('/dev/null') for _ in range(4096)]",
    "floods the output": "for _ in range(4096): print('x' * 4096)",
    "forks": "import os, time\nfor _ in range(64): os.fork() or time.sleep(600)",
    "starts threads": (
        "import threading, time\n"
        "for _ in range(200): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    ),
    "recurses": "def f(): f()\nimport sys\nsys.setrecursionlimit(10**6)\nf()",
    "crashes": "import ctypes\nctypes.string_at(0)",
    "kills itself": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "kills everything": "import os, signal\nassert os.getpid() < 9\nos.kill(-1, signal.SIGKILL)",
    "ignores signals": "import signal, time\nfor n in (1, 2, 3, 15): signal.signal(n, signal.SIG_IGN)\ntime.sleep(600)",
}
"""Each must fail: be ended, or end by itself with an error."""

LINGERING = {
    "leaves a child behind": "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\n",
    "leaves a grandchild with the output": (
        "import os, time\nif os.fork() == 0:\n    if os.fork() == 0:\n        os.setsid()\n        time.sleep(600)\n"
    ),
    "closes its output and goes on": "import os, time\nos.close(1)\nif os.fork() == 0:\n    time.sleep(600)\n",
}
"""Each ends well at once, but leaves something behind that must be ended with it."""


def filled(text: str, *, mark: str, port: int, pid: int) -> str:
    """Put what only a test knows in its place; other braces stay as they are."""
    text = text.replace("{mark!r}", repr(mark)).replace("{mark}", mark)
    return text.replace("{port}", str(port)).replace("{pid}", str(pid))
