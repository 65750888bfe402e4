"""Loaded by every Python of a run under test: kills, or holds up, at the moment that `TOPOSCALE_FAULT` describes.

The moment is the first one at which a file is opened for writing (`event` open) or gets its name as every output does
(os.rename) whose path `path` matches, in Snakemake itself (`where` snakemake) or in one of its jobs (`where` job). `victim`
is what is killed: the process itself ("self"), Snakemake ("snakemake") or both ("both"). With "hold" nobody is killed:
the process waits until somebody writes to the named pipe `hold`, after it wrote to the named pipe `reached`. With "memory"
it takes so many `bytes` for the rest of its life, and gives the cluster, which looks each second, `seconds` to see them.
"""

import json
import os
import re
import signal
import sys
import time

taken = []


def plant(fault):
    main = int(os.environ.setdefault("TOPOSCALE_TEST_MAIN", str(os.getpid())))
    place = "snakemake" if main == os.getpid() else "job"
    if place != fault["where"]:
        return
    pattern = re.compile(fault["path"])
    waiting = [True]

    def hook(event, arguments):
        if event != fault["event"] or not waiting:
            return
        path = arguments[1] if event == "os.rename" else arguments[0]
        if event == "open" and "r" in (arguments[1] or "r"):
            return
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if not pattern.search(str(path)):
            return
        waiting.clear()
        strike(main, fault)

    sys.addaudithook(hook)


def strike(main, fault):
    if fault["victim"] == "hold":
        with open(fault["reached"], "w") as pipe:
            pipe.write("reached")
        with open(fault["hold"]) as pipe:
            pipe.read()
        return
    if fault["victim"] == "memory":
        taken.append(b"1" * fault["bytes"])
        time.sleep(fault["seconds"])
        return
    if fault["victim"] in ("snakemake", "both"):
        os.kill(main, signal.SIGKILL)
    if fault["victim"] in ("self", "both"):
        os.kill(os.getpid(), signal.SIGKILL)


if "TOPOSCALE_FAULT" in os.environ:
    plant(json.loads(os.environ["TOPOSCALE_FAULT"]))
