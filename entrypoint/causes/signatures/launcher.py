"""Launchers, schedulers and signals: who ended what, and what they could not start."""

from __future__ import annotations

from entrypoint.causes.kinds import (
    CONSEQUENCE,
    HARDWARE,
    KILLED,
    LAST_EXCEPTION,
    LIKELY,
    PYTHON,
    REPORTED,
)
from entrypoint.causes.signature import Signature

# What launchers print of a rank that a signal has ended: `{}` is the number of the signal.
_ENDS = (
    ("exitcode", r"exitcode ?: ?-{}\b"),
    ("return code", r"return code = -{}\b"),
    ("exited on signal", r"exited on signal {}\b"),
    ("EXIT CODE", r"EXIT CODE: (?:{}|{shell})\b"),
    ("EXIT STRING", r"EXIT STRING: [^(]{{0,40}}\(signal {}\)"),
    ("Signal ", r"Signal {} \(SIG"),
    ("Signals.", r"died with <Signals\.{name}: {}>"),
    ("erminated with signal", r"terminated with signal {name}\b"),
    ("killed by signal", r"killed by signal:? {}\b"),
    ("killed by the signal", r"killed by the signal {name}\b"),
    ("exit code", r"(?i)exit(?:ed with)? (?:exit )?code:? (?:-{}|{shell})\b"),
    ("exitcode", r"exitcode=-{}\b|exitcode {shell}\b"),
)


def _ended(
    slug: str, number: int, name: str, says: str = "", **about: object
) -> tuple[Signature, ...]:
    return tuple(
        Signature(
            slug,
            needle,
            says,
            pattern.format(number, shell=128 + number, name=name),
            **about,  # type: ignore[arg-type]
        )
        for needle, pattern in _ENDS
    )


ROWS = (
    # the scheduler
    Signature("preempted", "DUE TO PREEMPTION"),
    Signature("preempted", "DUE TO JOB REQUEUE"),
    Signature("preempted", "node was preempted"),
    Signature("preempted", "preemption notice", pattern="(?i)preemption notice"),
    Signature("preempted", "this job is preempted"),
    Signature(
        "preempted",
        "reempt",
        pattern=r"(?i)\b(job|instance|node|vm|pod|task|machine|worker|allocation)\b.{0,60}\b(was|is|been|being|gets|got|will be|were) preempted|preempted by|received preemption|preemption signal",
        certainty="low",
    ),
    Signature("preempted", "TERM_PREEMPT"),
    Signature(
        "preempted",
        "pot ",
        pattern=r"(?i)spot (instance|vm|node).{0,40}(interrupt|terminat|reclaim|evict)",
    ),
    Signature("preempted", "TerminationByKubelet", certainty="low"),
    Signature(
        "preempted", "maintenance event", pattern="(?i)terminat|migrat|host", certainty="low"
    ),
    Signature("time-limit", "DUE TO TIME LIMIT"),
    Signature("time-limit", "job killed: walltime"),
    Signature("time-limit", "walltime", pattern="(?i)exceeded"),
    Signature("time-limit", "TERM_RUNLIMIT"),
    Signature("time-limit", "DeadlineExceeded", pattern="(?i)job|pod|active"),
    Signature("time-limit", "MaxRuntimeExceeded"),
    Signature(
        "time-limit",
        "time limit",
        pattern="(?i)(job|allocation|reservation).{0,40}(exceeded|reached|hit) .{0,20}time limit",
        certainty="low",
    ),
    Signature("node-lost", "DUE TO NODE FAILURE"),
    Signature("node-lost", "Node failure on"),
    Signature("node-lost", "node failure", pattern="(?i)slurm|srun|job", certainty="high"),
    Signature("node-lost", "NODE_FAIL"),
    Signature("node-lost", "commlib error: got read error"),
    Signature("node-lost", "its node has died", certainty="low"),
    Signature("node-lost", "NodeDiedError", role="cascade", certainty="low", weight=HARDWARE + 3),
    Signature(
        "node-lost",
        "node it was running on is dead",
        role="cascade",
        certainty="low",
        weight=HARDWARE + 3,
    ),
    Signature("node-lost", "missed too many heartbeats"),
    Signature("node-lost", "missing too many heartbeats"),
    Signature("node-lost", "NodeNotReady", pattern="(?i)node", certainty="low"),
    *(
        Signature(
            "node-lost",
            needle,
            "the launcher lost its daemon on a node",
            pattern,
            role="unclear",
            blame="unknown",
            retry="unknown",
            certainty="low",
            weight=CONSEQUENCE - 3,
        )
        for needle, pattern in (
            ("has lost communication with", "(?i)(orte|prte|daemon)"),
            ("onnection to ", r"(?i)connection to \S+ closed by remote host"),
            ("lient_loop: send disconnect", ""),
            ("emote host closed connection", "(?i)ssh|connection"),
            ("ORTE daemon has unexpectedly failed", ""),
            ("PRTE daemon has unexpectedly failed", ""),
        )
    ),
    # somebody from outside
    Signature(
        "stopped-outside",
        "KeyboardInterrupt",
        "the job was stopped by Ctrl-C or SIGINT",
        retry="no",
        certainty="high",
        weight=LIKELY,
    ),
    Signature(
        "stopped-outside",
        "Received 2 death signal",
        "the job was stopped by Ctrl-C or SIGINT",
        retry="no",
        certainty="high",
        weight=LIKELY,
        always=True,
    ),
    Signature(
        "stopped-outside",
        "closing signal SIGINT",
        "the job was stopped by Ctrl-C or SIGINT",
        retry="no",
        certainty="high",
        weight=LIKELY,
        always=True,
    ),
    Signature(
        "stopped-outside",
        "got signal: 2",
        "the job was stopped by Ctrl-C or SIGINT",
        r"signal: 2\b",
        retry="no",
        certainty="high",
        weight=LIKELY,
    ),
    Signature(
        "stopped-outside",
        "ending Ctrl-C to processes as requested",
        "the job was stopped by Ctrl-C or SIGINT",
        retry="no",
        certainty="high",
        weight=LIKELY,
    ),
    Signature(
        "stopped-outside",
        "it ctrl-c again",
        "the job was stopped by Ctrl-C or SIGINT",
        retry="no",
        certainty="high",
        weight=LIKELY,
    ),
    Signature(
        "stopped-outside",
        "Received 1 death signal",
        "its terminal or session went away (SIGHUP)",
        retry="same",
        certainty="high",
        weight=LIKELY,
        always=True,
    ),
    Signature(
        "stopped-outside",
        "got signal: 1",
        "its terminal or session went away (SIGHUP)",
        r"signal: 1\b",
        retry="same",
        certainty="high",
        weight=LIKELY,
    ),
    Signature(
        "stopped-outside",
        "closing signal SIGHUP",
        "its terminal or session went away (SIGHUP)",
        retry="same",
        certainty="high",
        weight=LIKELY,
        always=True,
    ),
    *(
        Signature(
            "stopped-outside",
            needle,
            "the job got a SIGTERM",
            pattern,
            role="unclear",
            weight=KILLED + 1,
            always=True,
        )
        for needle, pattern in (
            ("Received 15 death signal", ""),
            ("got signal: 15", ""),
            ("eceived SIGTERM", ""),
            ("SIGTERMException", ""),
            ("eceived signal 15", ""),
            ("SIGTERM signal", "(?i)received|caught"),
            ("aught signal SIGTERM", ""),
            ("CANCELLED AT", r"CANCELLED AT \S+ *\*\*\*"),
            ("TERM_OWNER", ""),
            ("CANCELLED by", ""),
        )
    ),
    # ends by a signal, as launchers report them
    *_ended("killed-unknown", 9, "SIGKILL"),
    *_ended("native-crash", 11, "SIGSEGV", "native code crashed (SIGSEGV)"),
    *_ended("native-crash", 6, "SIGABRT", "native code crashed (SIGABRT)", weight=CONSEQUENCE + 5),
    *_ended("native-crash", 8, "SIGFPE", "native code crashed (SIGFPE)"),
    *_ended(
        "shm-full",
        7,
        "SIGBUS",
        "a rank ended with SIGBUS, which in a container usually means that /dev/shm is too small",
        certainty="low",
        weight=LIKELY,
    ),
    *_ended(
        "arch-mismatch",
        4,
        "SIGILL",
        "a rank ended with SIGILL: the code was built for another CPU",
        retry="unknown",
        certainty="low",
        weight=LIKELY,
    ),
    *_ended("launcher-stop", 15, "SIGTERM", certainty="low"),
    Signature(
        "killed-unknown",
        "Killed",
        pattern=r"(?:^|: +|\d +)Killed *(?:$|/|[a-z]\w*)|tasks? [\d,-]+: Killed",
    ),
    Signature("killed-unknown", "received signal 9"),
    Signature(
        "killed-unknown",
        "process died unexpectedly",
        pattern="(?i)worker|subprocess|child",
        weight=KILLED + 2,
    ),
    Signature("killed-unknown", "exited unexpectedly", role="unclear", weight=KILLED + 2),
    Signature(
        "killed-unknown",
        "background workers are no longer alive",
        role="unclear",
        weight=KILLED + 2,
    ),
    Signature("killed-unknown", "BrokenProcessPool", role="unclear", weight=KILLED + 2),
    Signature("killed-unknown", "terminated abruptly", role="unclear", weight=KILLED + 2),
    Signature("killed-unknown", "worker process has died", role="unclear", weight=KILLED + 2),
    Signature("killed-unknown", "orker unexpectedly exits", role="unclear", weight=KILLED + 2),
    Signature("killed-unknown", "WorkerCrashedError", role="unclear", weight=KILLED + 3),
    Signature("killed-unknown", "actor died unexpectedly", role="unclear", weight=CONSEQUENCE + 4),
    Signature("killed-unknown", "ActorDiedError", role="unclear", weight=CONSEQUENCE + 5),
    # crashes
    Signature("native-crash", "egmentation fault", pattern=r"(?i)segmentation fault"),
    Signature(
        "native-crash",
        "SIGSEGV",
        pattern=r"(?i)received signal|signal|fatal|terminated",
        weight=LAST_EXCEPTION + 1,
    ),
    Signature("native-crash", "segfault at"),
    Signature("native-crash", "free(): "),
    Signature("native-crash", "malloc(): "),
    Signature("native-crash", "malloc_consolidate()"),
    Signature("native-crash", "realloc(): invalid"),
    Signature("native-crash", "double free or corruption"),
    Signature("native-crash", "munmap_chunk()"),
    Signature("native-crash", "corrupted size vs. prev_size"),
    Signature("native-crash", "corrupted double-linked list"),
    Signature("native-crash", "stack smashing detected"),
    Signature(
        "native-crash",
        "loating point exception",
        pattern=r"(?i)floating point exception( \(core|$|\))",
    ),
    Signature("native-crash", "pure virtual method called", weight=LAST_EXCEPTION + 2),
    Signature("native-crash", "Fatal Python error", weight=LAST_EXCEPTION + 3),
    Signature(
        "native-crash",
        "Assertion `",
        pattern=r"\.(?:c|cc|cpp|h|hpp)\b.{0,200}Assertion `.{1,300}failed",
        weight=LAST_EXCEPTION,
    ),
    Signature("native-crash", "terminate called", weight=CONSEQUENCE + 4),
    Signature(
        "native-crash",
        "Aborted",
        pattern=r"(?:^|: ?|\d +)Aborted *(?:\(core|$)|Aborted \(6\)|\(Aborted\)|tasks? [\d,-]+: Aborted",
        weight=CONSEQUENCE + 6,
    ),
    # what the launcher needs
    Signature("setup", "ost key verification failed", certainty="high"),
    Signature("setup", "REMOTE HOST IDENTIFICATION HAS CHANGED", certainty="high"),
    Signature(
        "setup",
        "Permission denied (publickey",
        "the ssh server accepts none of our keys",
        certainty="high",
    ),
    Signature(
        "setup",
        "Permission denied, please try again",
        "the ssh server accepts none of our keys",
        weight=LIKELY,
    ),
    Signature("setup", "not reachable via ssh"),
    Signature("setup", "ssh: command not found", certainty="high"),
    Signature(
        "setup", "pdsh", pattern="(?i)not (found|installed)", blame="program", certainty="high"
    ),
    Signature("setup", "launcher '", pattern="not installed", blame="program", certainty="high"),
    Signature(
        "setup",
        "orted",
        pattern="(?i)orted:? ?(command not found|No such file)|orted.{0,30}not found",
        certainty="high",
    ),
    Signature(
        "setup", "prted", pattern="(?i)prted.{0,30}(not found|No such file)", certainty="high"
    ),
    Signature("setup", "hydra_pmi_proxy", pattern="(?i)not found|no such file", certainty="high"),
    Signature("setup", "unable to reliably start one or more daemons"),
    Signature("setup", "nable to launch", pattern="(?i)plm|rsh|agent"),
    Signature("setup", "plm_rsh_agent"),
    Signature("setup", "OMPI was not built with SLURM", certainty="high"),
    Signature(
        "setup", "ompi_init failed", pattern="(?i)looks like|failed", weight=LAST_EXCEPTION + 4
    ),
    Signature("setup", "opal_init failed", weight=LAST_EXCEPTION + 4),
    Signature("setup", "ould not find real path of /sys"),
    Signature("setup", "/sys/class", pattern="NCCL WARN"),
    Signature("setup", "o socket interface found", certainty="high"),
    Signature("setup", "No network interface", pattern="(?i)error|found"),
    Signature("setup", "nable to find interface", certainty="low"),
    Signature("setup", "nable to allocate resources", certainty="low"),
    Signature(
        "setup",
        "nvcc",
        pattern="(?i)nvcc.{0,20}(not found|No such file)",
        blame="program",
        certainty="high",
    ),
    Signature(
        "setup", "CUDA_HOME environment variable is not set", blame="program", certainty="high"
    ),
    Signature("setup", "Ninja is required", blame="program", certainty="high"),
    Signature("setup", "ould not find compiler", blame="program"),
    Signature("setup", "ailed to find C compiler", blame="program", certainty="high"),
    # only that something failed elsewhere
    Signature("launcher-stop", "ChildFailedError"),
    Signature("launcher-stop", "exitcode", pattern=r"exitcode ?: ?[1-9]\d* ?\)?", blame="unknown"),
    Signature("launcher-stop", "Worker group failed", blame="unknown", weight=REPORTED + 1),
    Signature("launcher-stop", "exits with return code =", pattern=r"= [1-9]", blame="unknown"),
    Signature("launcher-stop", "closing signal SIGTERM", weight=REPORTED + 2, always=True),
    Signature("launcher-stop", "via signal SIGTERM", weight=REPORTED + 2, always=True),
    Signature("launcher-stop", "Killing subprocess", weight=REPORTED + 2),
    Signature(
        "launcher-stop",
        "with exception",
        pattern=r"Worker process \d+ exit with exception",
        blame="unknown",
    ),
    Signature(
        "launcher-stop",
        "exit with exception",
        pattern=r"(?i)worker|process",
        blame="unknown",
        weight=REPORTED + 1,
    ),
    Signature("launcher-stop", "Container failed", pattern="LAUNCH", blame="unknown"),
    Signature(
        "launcher-stop", "Pod failed", pattern="LAUNCH", blame="unknown", weight=REPORTED + 1
    ),
    Signature("launcher-stop", "ABORT!!! Out of all", blame="unknown"),
    Signature("launcher-stop", "processes exited with non-zero status", blame="unknown"),
    Signature("launcher-stop", "Per user-direction, the job has been aborted", blame="unknown"),
    Signature("launcher-stop", "mpirun.real has exited due to process", blame="unknown"),
    Signature("launcher-stop", "has exited due to process rank", blame="unknown"),
    Signature(
        "launcher-stop", "exited without calling", pattern='"?(?i:finalize)', blame="unknown"
    ),
    Signature(
        "launcher-stop",
        "EXIT CODE",
        pattern=r"EXIT CODE: [1-9]",
        blame="unknown",
        weight=REPORTED + 1,
    ),
    Signature(
        "launcher-stop",
        "CalledProcessError",
        pattern=r"returned non-zero exit status",
        blame="unknown",
        weight=REPORTED - 2,
    ),
    Signature("launcher-stop", "Exited with exit code", pattern=r"tasks? ", blame="unknown"),
    Signature(
        "launcher-stop",
        "task",
        pattern=r"srun: error: .{0,80}tasks? [\d,-]+: Terminated",
        weight=REPORTED + 1,
    ),
    Signature("launcher-stop", "Terminating StepId", weight=REPORTED + 2),
    Signature("launcher-stop", "Job step aborted", weight=REPORTED + 2),
    Signature(
        "launcher-stop",
        "ProcessExitedException",
        pattern="(?i)exit code",
        blame="unknown",
        weight=REPORTED - 2,
    ),
    Signature("launcher-stop", "WorkersFailed", weight=REPORTED),
    Signature(
        "launcher-stop", "Terminated", pattern=r"(?:^|: ?|\d +)Terminated *$", weight=REPORTED + 2
    ),
    Signature("launcher-stop", "SignalException", weight=REPORTED),
    Signature(
        "user-code",
        "MPI_ABORT was invoked",
        "a rank called MPI_Abort",
        retry="unknown",
        certainty="low",
        weight=KILLED,
    ),
    Signature(
        "user-code",
        "application called MPI_Abort",
        "a rank called MPI_Abort",
        retry="unknown",
        certainty="low",
        weight=KILLED,
    ),
    # the command line of launchers
    Signature(
        "user-args",
        "not enough slots available",
        "fewer slots are available than processes were requested",
        certainty="high",
    ),
    Signature(
        "user-args", "are already filled", pattern="(?i)nodes which are allocated", certainty="high"
    ),
    Signature("user-args", "attempt to run as root", certainty="high"),
    Signature(
        "file-missing",
        "as it could not",
        pattern="(?i)access or execute an executable|find an executable",
        certainty="high",
        weight=PYTHON - 1,
    ),
    Signature(
        "file-missing",
        "unable to find the specified executable",
        certainty="high",
        weight=PYTHON - 1,
    ),
    Signature("file-missing", "execve", pattern="(?i)no such file"),
    Signature("file-missing", "HYDU_create_process", pattern="(?i)no such file"),
)
