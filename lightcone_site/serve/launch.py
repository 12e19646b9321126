"""Become a command that dies with its parent: `launch.py <parent pid> <signal> <command> ...`.

It is a plain script, as code between fork and exec is unsafe in a process with threads. On Linux the kernel sends the
signal when the parent is gone (prctl(2), PR_SET_PDEATHSIG). Elsewhere the command starts as it is.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, death_signal, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() != parent:
            sys.exit(1)
    os.execv(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main()
