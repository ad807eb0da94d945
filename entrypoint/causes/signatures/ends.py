"""Ends by a signal, as launchers, shells and libraries report them; crashes of native code."""

from __future__ import annotations

from entrypoint.causes.kinds import CONSEQUENCE, KILLED, LAST_EXCEPTION, LIKELY
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
    # Ray's own line, which alone says on which node it was.
    Signature(
        "killed-unknown",
        "worker died or was killed while executing",
        role="unclear",
        weight=KILLED + 2,
    ),
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
    Signature(
        "native-crash",
        "Fatal Python error",
        pattern="error: (?!Aborted)",
        weight=LAST_EXCEPTION + 3,
    ),
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
        pattern=(
            r"(?:^|: ?|\d +)Aborted *(?:\(core|$)|Aborted \(6\)|\(Aborted\)|tasks? "
            r"[\d,-]+: Aborted"
        ),
        weight=CONSEQUENCE + 6,
    ),
)
