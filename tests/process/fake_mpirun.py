"""mpirun, for tests: writes down how it was called, then does what the environment says.

FAKE_RECORD   file to write argv and environment into, as JSON FAKE_VERSION  what --version says;
4.1.4 where not given FAKE_EXIT     exit with this status and start nothing FAKE_KILL     be ended
by this signal and start nothing FAKE_NP       start so many ranks, whatever -np says FAKE_HANG
`before`: start no rank and stay; `after`: stay when all ranks are gone. SIGTERM is ignored while
staying.
              `talk`: when all ranks are gone, print a number a second, four in all
Otherwise it starts np ranks as Open MPI does, each in its own process group, ends the others when
one fails, and exits with the first failure's status. With --tag-output it says of each piece of
output which rank's it is.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading

LAST = b"\0the last piece\0"


class Tagged:
    """The two streams of one rank, as `--tag-output` shows them. What a rank leaves running may
    hold them longer."""

    def __init__(self, rank: int) -> None:
        self.ends: list[int] = []
        self._threads: list[threading.Thread] = []
        for target, name in ((1, "stdout"), (2, "stderr")):
            source, end = os.pipe()
            tag = f"[1,{rank}]<{name}>:".encode()
            thread = threading.Thread(target=self._pass_on, args=(source, target, tag), daemon=True)
            thread.start()
            self._threads.append(thread)
            self.ends.append(end)

    @staticmethod
    def _pass_on(source: int, target: int, tag: bytes) -> None:
        while not (piece := os.read(source, 4096)).endswith(LAST):
            os.write(target, tag + piece)
        if piece := piece.removesuffix(LAST):
            os.write(target, tag + piece)

    def finish(self) -> None:
        """Pass on all that the rank has printed."""
        for end, thread in zip(self.ends, self._threads, strict=True):
            os.write(end, LAST)
            thread.join()


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
    outputs = [Tagged(rank) for rank in range(int(size))] if "--tag-output" in words else []
    for rank in range(int(size)):
        own = {**env, "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": size}
        own |= {"OMPI_COMM_WORLD_LOCAL_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_SIZE": size}
        streams = (
            dict(zip(("stdout", "stderr"), outputs[rank].ends, strict=True)) if outputs else {}
        )
        child = subprocess.Popen(command, env=own, preexec_fn=os.setpgrp, **streams)
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
    for output in outputs:
        output.finish()
    if env.get("FAKE_HANG") == "after":
        stay()
    if env.get("FAKE_HANG") == "talk":
        for number in range(4):
            print(number, flush=True)
            signal.sigtimedwait([signal.SIGUSR1], 1)
    return first


if __name__ == "__main__":
    sys.exit(main())
