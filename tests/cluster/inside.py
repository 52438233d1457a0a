"""Process 1 of the namespaces: runs one command, reaps whatever is left to it, and ends with the command.

With process 1 the kernel ends all others, so that nothing of a cluster outlives it, however it ends.
"""

import os
import signal
import subprocess
import sys

from tests.cluster import cgroups


def main(command: list[str]) -> int:
    """The exit code of the command; Ctrl-C is the command's business."""
    cgroups.become_root()
    child = subprocess.Popen(command)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    while True:
        ended, status = os.wait()
        if ended == child.pid:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
