"""Ends a control plane whose tests can no longer do it: the leader of its process group, run as a script.

It holds the reading end of a pipe whose other end only the test process has. However that process ends, SIGKILL
included, the pipe closes, and the watchdog takes the whole group down, itself last. Unlike PR_SET_PDEATHSIG this does
not depend on which thread started a component, and needs no code between fork and exec.
"""

import os
import shutil
import signal
import sys
import time


def main(folder: str) -> None:
    """Wait for the tests' end, then end the group and remove what it kept in `folder`."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGTERM)
    time.sleep(0.5)
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1])
