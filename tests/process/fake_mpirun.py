"""mpirun, for tests: writes down how it was called, then does what the environment says.

FAKE_RECORD   file to write argv and environment into, as JSON
FAKE_VERSION  what --version says; 4.1.4 where not given
FAKE_EXIT     exit with this status and start nothing
FAKE_KILL     be ended by this signal and start nothing
FAKE_NP       start so many ranks, whatever -np says
FAKE_HANG     `before`: start no rank and stay; `after`: stay when all ranks are gone. SIGTERM is ignored while staying.
              `talk`: when all ranks are gone, print a number a second, four in all
Otherwise it starts np ranks as Open MPI does, each in its own process group, ends the others when one fails, and exits
with the first failure's status.
"""

import itertools
import json
import os
import signal
import subprocess
import sys


def stay() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        signal.pause()


def main() -> int:
    words, env = sys.argv[1:], dict(os.environ)
    if words == ["--version"]:
        print(f"mpirun (Open MPI) {env.get('FAKE_VERSION', '4.1.4')}")
        return 0
    with open(env["FAKE_RECORD"] + ".new", "w") as file:
        json.dump({"argv": words, "env": env}, file)
    os.rename(file.name, env["FAKE_RECORD"])
    if "FAKE_EXIT" in env:
        return int(env["FAKE_EXIT"])
    if "FAKE_KILL" in env:
        os.kill(os.getpid(), int(env["FAKE_KILL"]))
    if env.get("FAKE_HANG") == "before":
        stay()
    size = env.get("FAKE_NP") or words[words.index("-np") + 1]
    command = words[words.index("sh") :]
    for option, word in itertools.pairwise(words):
        if option == "-x" and "=" in word:
            env.update([word.split("=", 1)])
    ranks = {}
    for rank in range(int(size)):
        own = {**env, "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": size}
        own |= {"OMPI_COMM_WORLD_LOCAL_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_SIZE": size}
        child = subprocess.Popen(command, env=own, preexec_fn=os.setpgrp)
        ranks[child.pid] = child
    first = 0
    while ranks:
        pid, status = os.wait()
        child = ranks.pop(pid, None)
        if child is not None and status != 0 and first == 0:
            code = os.waitstatus_to_exitcode(status)
            first = code if code > 0 else 128 - code
            for other in ranks:
                os.killpg(other, signal.SIGTERM)
    if env.get("FAKE_HANG") == "after":
        stay()
    if env.get("FAKE_HANG") == "talk":
        for number in range(4):
            print(number, flush=True)
            signal.sigtimedwait([signal.SIGUSR1], 1)
    return first


if __name__ == "__main__":
    sys.exit(main())
