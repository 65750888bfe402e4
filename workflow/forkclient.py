"""What Snakemake starts in place of `python SCRIPT` while a fork server runs: hands the script over, ends as its job does.

    python -I -S forkclient.py ADDRESS PYTHON SCRIPT

Every job starts this, so it imports as little as can be. What the server is for is in forkserver.py.
"""

import os
import signal
import socket
import sys

COLD = b"run it yourself"


def hand_over(address: str, script: str) -> bytes:
    """The exit status of the job as text; `COLD` where the server leaves it to us; nothing where it broke down."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        try:
            connection.connect(address)
            variables = [name + b"=" + value for name, value in os.environb.items()]
            connection.send(b"\0".join([os.fsencode(script), *variables]))
        except OSError:
            return COLD
        return connection.recv(64)


def main(address: str, *command: str) -> None:
    """End as `command` would."""
    reply = hand_over(address, command[1]) if len(command) == 2 else COLD
    if reply == COLD:
        os.execv(command[0], command)
    if not reply:
        print(
            "toposcale: what ran this job ended without a word; it may have been killed",
            file=sys.stderr,
            flush=True,
        )
    status = int(reply or 1)
    if status < 0:  # killed by a signal: so are we, that whoever waits sees the same
        signal.signal(-status, signal.SIG_DFL) if -status != signal.SIGKILL else None
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    main(*sys.argv[1:])
