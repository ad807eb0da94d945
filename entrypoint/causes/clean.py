"""Lines of output as the judge reads them: without prefixes, colours, and the hints that libraries
print under every error."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, cached_property
from itertools import accumulate, takewhile

from entrypoint.base.tables import rows

# Characters of a line that patterns look at, around a needle or from its begin: the rest is data.
LONGEST = 1000
_MOST_FIRST = 2_000  # lines that are judged from the begin of the output
_MOST_LAST = 18_000  # and from its end

# What launchers, containers and platforms put in front of a rank's line.
_PREFIXES = (
    r"\[\d{1,9},\d{1,9}\](?:\[[^\]\s]{0,80}\])?<std(?:err|out|diag)>: ?",  # Open MPI
    r"\[?(?:default|rank|Rank )\d{1,9}\]?: ?",  # torchrun
    r"\[(?:default|rank)\d{1,9}\]:? ?",
    r"\((?:[\w.:()-]{1,80} )?(?:rank=\d{1,9}, )?pid=\d{1,9}(?:, ip=[\d.:a-f]{1,45})?\) ?",  # Ray
    r"\[entrypoint[^\]]{0,200}\] (?:  \| )?",
    r"\[\d{1,9}\]<?(?:stdout|stderr)?>?:? (?=\S)",
    r"\[[\w.-]{0,40}(?:worker|node|pod|host|launcher|rank|master)[\w./ -]{0,80}\]:? ",  # kubectl
    r"[\w.-]{1,80} {1,80}\| ",  # compose
    r"(?:worker|node|host|rank|task|pod|chief|master|ps|launcher)[-_.\w]{0,80}: ",  # pdsh, srun
    r"\d{1,5}: (?=\S)",  # srun --label
    r"[\w./-]{1,120}\.(?:log|txt|out|err)[:-]\d{1,9}[:-] ?",  # grep -n
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?:?(?: -)? ",  # time
    r"\[\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\] ?",
)
_PREFIX = f"^(?:{'|'.join(_PREFIXES)}){{1,3}}"
_FRAME = r"^\s{0,20}File \".{1,400}, line \d"
_COLOURS = r"\x1b\[[0-9;?]{0,20}[A-Za-z]"
# From here on a line only lists what could be the reason, or what to do. torch prints `(gai error`
# also if the host has an address of the other family.
_HINTS = [
    hint
    for (hint,) in rows("""
        There are some potential root causes
        This can happen if
        This typically refers to
        Possible root causes
        ossible cause
        ommon causes include
        [Hint:
        Solution:
        Reason: 1.
        This may indicate
        This indicates that
        usually indicates
        CUDA kernel errors might be asynchronously reported
        For debugging consider passing CUDA_LAUNCH_BLOCKING
        ompile with `TORCH_USE_CUDA_DSA`
        error_file: <N/A>
        To enable traceback see
        ncclSystemError: System call (e.g. socket, malloc)
        ncclInternalError: Internal check failed
        If reserved memory is >>
        If reserved but unallocated memory is large
        (gai error
        To see node death information
        To see more information about
        destroy_process_group() was not called
        Setting OMP_NUM_THREADS environment variable
        If the shutdown was caused by an exception
        is deprecated
    """)
]
_WARNING = (
    r"^\W{0,3}(?:W\d{4}\b|W\d{3} \d|W [\w/]{1,120}\.(?:cpp|cc|py)|WARN(?:ING)?\b|[Ww]arning\b)"
    r"|\bWARNING\b|\[W\]|\[WARN(?:ING)?\]|\bUserWarning\b|\bFutureWarning\b"
    r"|(?i:\bretrying\b|\bwill retry\b|\bretry \d{1,6}(?:/| of )\d)"
)
_PROGRESS = (
    r"(?i)^\W{0,3}(?:(?:train|\[)[^:]{0,40})?\b(?:step|iter(?:ation)?|epoch|global_step)\b"
    r"\W{0,4}\d{1,9}\b(?:(?!(?i:error|fail|nan)).){0,400}$"
    r"|\d%\|[^|]{0,200}\|\s?\d{1,9}/\d"
)
# Counts that health checks print: they name errors that did not happen.
_COUNTED = ("errors", "events", "warnings", "failures", "faults", "kills", "timeouts", "count")
_NONE = rf"(?i)\b(?:0|no)(?: [\w.-]{{1,30}}){{0,3}} (?:{'|'.join(_COUNTED)})\b"
_ZERO = rf"(?i)(?:\b[\w.-]{{1,30}} ){{0,6}}\b(?:{'|'.join(_COUNTED)}) ?[:=] ?(?:0|none)(?![\w.])"
# How Ray names the node of a task: `ray::step() (pid=4, ip=10.0.0.3)`, whose exception follows.
_RAY_PLACE = r"\bpid=\d{1,9}, ip=([\d.:a-fA-F]{2,45})|\bWorker IP address: ([\d.:a-fA-F]{2,45})"
_RAY_TASK = "ray::"


# Only what is needed, and once: an output needs few of the patterns.
compiled = cache(re.compile)


def _ascii(line: str) -> str:
    """Return the line with `?` for each other character: the table needs none of them, and texts
    that have some take four times as long to search."""
    return line if line.isascii() else line.encode("ascii", "replace").decode("ascii")


def _without_zeros(line: str) -> str:
    """Return the line without counts such as `0 Xid errors` or `uncorrectable ECC errors: 0`."""
    return compiled(_ZERO).sub("", compiled(_NONE).sub("", line))


# How the line begins with which a program fails, or with which a device, the kernel, a scheduler or
# a library reports a failure. What stands elsewhere in a line is only mentioned there.
_REPORTS = (
    "ValueError: host not found: ",  # torch
    r"(?:\w{3} {1,2}\d{1,2} [\d:]{8} [\w.-]{1,64} )?(?:kernel: ?)?"  # the kernel
    r"(?:\[ {0,9}\d{1,9}\.\d{1,9}\] ?)?(?:NVRM|EDAC|mce|oom-kill|Memory cgroup|Out of memory)\b",
    r"(?:slurm\w{0,9}|srun|sbatch|salloc)(?:\[.{1,80}\])?: |submitit WARNING|start-worker ",
    r"(?:Job)?State(?:=|: )[A-Z_]{2}|Slurm Job_id=|=>> PBS:|MOAB_|TERM_",
    r"\s?The actor (?:is dead|died)|\s?the actor's |The node with |The worker died",  # Ray
    r"The leased worker|(?:\(raylet\) )?(?:A worker died|Some workers)",
    r"(?:[\d:, -]{8,30} )?ERROR \S{1,60}\.py:\d{1,6} -- ",
    r"\W?[EFW]\d{3,4} .{1,80}(?:\.(?:cc|cpp|cu|h)|torch/.{1,80}\.py):\d{1,6}\]",  # glog
    r"\[[EFW]\S{0,40} .{0,60}\.(?:cc|cpp|cu|h):\d{1,6}\]|(?:.{1,80} )?[EF] .{1,80}\.cc:\d",
    r"\[ERROR\] [A-Z_]{2,12}\(",  # CANN
    r" {0,4}what\(\):|terminate called|Fatal Python error",
    r"\S{1,80}:\d{1,9}:\d{1,9} \[\d{1,3}\] .{0,60}NCCL WARN",
    r"Unable to determine the device handle|(?:\[.{1,60}\] )?Failed to initialize NVML",
    r"Open MPI|(?:mpirun|mpiexec|prterun) |(?:ssh|fatal): ",
    r"[a-z][a-z_.-]{1,30}: (?:cannot|can't|could not|unable|failed|error|fatal)\b",  # tools
    r"(?P<exception>[\w.]{0,200}(?:\werror|Error|Exception|Failure|Exit|Timeout))\b",
)
_REPORT = f"^(?:{'|'.join(_REPORTS)})"
# Exceptions that may have any text: of a device it names it.
_ANY_TEXT = frozenset(("RuntimeError", "Exception", "OSError", "SystemError", "SystemExit"))
_OF_DEVICE = r"(?i)cuda|nccl|npu|acl|hccl|ascend"
# Words in front of what they report.
_LABELS = (
    r"(?i)[^a-z]{1,60}|\S{1,80}\.(?:cc|cpp|cu|h):\d{1,6}\W?|[0-9a-f:.]{7,20}\W{0,2}"
    r"|\W{0,9}(?:fatal|critical|errors?|err|exception|failure|cuda|cublas|cudnn|nvml|nvrm"
    r"|nccl|hccl|acl|driver|runtime|internal|kernel|last)\W{0,9}"
)
_MOST_LABELS = 6
# What follows: `...: 0`, or `: none` at the end of the line.
_DENIED = r"(?i)^[\w ]{0,30}[:=] {0,3}0\b(?!\.\d)|[:=] {0,3}(?:no|none|false|ok|never)\b\W{0,9}$"
_TRACEBACK = "Traceback (most recent call last)"
_MOST_BELOW = 7
MOST_FRAMES = 200  # lines of a traceback
# In front of a traceback that is not the program's end.
_PART = r"Exception (?:ignored in|in thread)|Process \S{1,80}:$"
_CHAINS = (
    "During handling of the above exception",
    "The above exception was the direct cause",
)
# Mistakes that need nothing but the program: with other types it may have been the surroundings.
PLAIN = frozenset(
    ("AssertionError", "AttributeError", "IndexError", "IndentationError", "KeyError", "NameError",
     "NotImplementedError", "RecursionError", "SyntaxError", "TypeError", "UnboundLocalError",
     "UnicodeDecodeError", "ValueError", "ZeroDivisionError")
)  # fmt: skip


def reports(line: str, needle: str, is_mistake: bool) -> bool:
    """Return whether a line reports what it names, rather than mentions it: as a report begins, or
    with nothing but labels before it, and not as what is not there. An exception that may have any
    text reports a device's failure if it names the device, and that of a plain mistake nothing
    else."""
    at = line.find(needle)
    if compiled(_DENIED).search(line[at + len(needle) :][:LONGEST]):
        return False
    before = line[:at]
    begin = compiled(_REPORT).match(line[:LONGEST])
    if begin:
        name = (begin["exception"] or "").rpartition(".")[2]
        if name not in _ANY_TEXT:
            return is_mistake or name not in PLAIN
        before = before[begin.end() :]
        if is_mistake or re.search(_OF_DEVICE, before):
            return True
    words = re.sub(r"\w{0,30}$", "", before[-LONGEST:]).split()
    labels = compiled(_LABELS)
    return len(words) <= _MOST_LABELS and all(
        not set(word) & set('"{|') and labels.fullmatch(word) for word in words
    )


_TIME = r"^\[?\d{4}-\d\d-\d\d[T ][\d:.,]{8,16}(?:Z|[+-][\d:]{4,5})?\]? "
_ORIGINS = (
    r"^\[\d{1,9},(?P<rank>\d{1,9})\]",
    r"^\W{0,2}(?i:default|rank) ?(?P<rank>\d{1,9})\W",
    r"^\([^)]{0,80}\brank=(?P<rank>\d{1,9})",
    r"^\([^)]{0,80}\bpid=\d{1,9}, ip=(?P<node>[\d.:a-f]{1,45})\)",
    r"^\[entrypoint (?P<node>[\w.-]{1,64})",
    r"^\W?(?P<node>(?:worker|node|pod|host|chief|master|task|ps)"
    r"(?:[-_.\w]{0,64}?\d(?=\.(?:log|txt|out|err)\b)|[-_.\w]{0,64}\d\b))",
)


def origin(line: str) -> tuple[str, str]:
    """Return the rank and the node that a line's prefix names; "" for what it does not name."""
    begin = re.sub(_TIME, "", line[:200])
    for pattern in _ORIGINS:
        found = re.match(pattern, begin)
        if found:
            names = found.groupdict()
            return names.get("rank", ""), names.get("node", "")
    return "", ""


class Output:
    """The lines of a failure, prepared for the judge.

    `raw` are the lines as they were printed, `lines` without what says nothing, `text` all of them.
    """

    def __init__(self, raw: Sequence[str]) -> None:
        if len(raw) > _MOST_FIRST + _MOST_LAST:
            raw = [*raw[:_MOST_FIRST], *raw[-_MOST_LAST:]]
        self.raw = [line.rstrip("\r\n") for line in raw]
        prefix = compiled(_PREFIX)
        everything = "\n".join(self.raw)
        coloured = "\x1b[" in everything
        hints = [hint for hint in _HINTS if hint in everything]
        nouns = [noun for noun in (word[1:] for word in _COUNTED) if noun in everything]
        lines: list[str] = []
        for line in self.raw:
            if coloured:
                line = compiled(_COLOURS).sub("", line)
            begin = prefix.match(line)
            if begin:
                line = line[begin.end() :]
            for hint in hints:
                at = line.find(hint)
                if at >= 0:
                    line = line[:at]
            if lines and line.startswith("    ") and compiled(_FRAME).match(lines[-1]):
                line = ""  # code is no evidence, whatever words it has
            if len(line) <= LONGEST and any(noun in line for noun in nouns):
                line = _without_zeros(line)
            lines.append(_ascii(line.replace("\n", " ")))
        self.lines = lines
        self.text = "\n".join(lines)
        self._warnings: dict[str, bool] = {}
        self.starts = list(accumulate((len(line) + 1 for line in lines[:-1]), initial=0))

    def statement(self, number: int, first: str = "") -> str:
        """Return a line, or `first` for it, with those below it if it ends with a colon: there an
        exception goes on."""
        line = first or self.lines[number]
        if not line.endswith(":") or line.startswith(_TRACEBACK):
            return line
        below = self.lines[number + 1 : number + _MOST_BELOW]
        return " ".join((line, *(text.strip() for text in takewhile(str.strip, below))))

    @cached_property
    def last_progress(self) -> int:
        """The number of the last line that shows progress of the training; -1 if there is none."""
        progress = compiled(_PROGRESS)
        numbers = range(len(self.lines) - 1, -1, -1)
        return next((n for n in numbers if progress.search(self.lines[n][:LONGEST])), -1)

    def is_warning(self, number: int) -> bool:
        """Return whether the line is marked as a warning, or says that it will be tried again."""
        line = self.lines[number][:LONGEST]
        if line not in self._warnings:
            self._warnings[line] = compiled(_WARNING).search(line) is not None
        return self._warnings[line]

    def is_of_a_part(self, number: int) -> bool:
        """Return whether the exception in this line ended only a thread or a process below the
        program, or was ignored by Python."""
        numbers = range(number - 1, max(number - MOST_FRAMES, 0), -1)
        begin = next((n for n in numbers if self.lines[n].startswith(_TRACEBACK)), 0)
        return begin > 0 and bool(compiled(_PART).match(self.lines[begin - 1][:LONGEST]))

    def is_chained(self, first: int, last: int) -> bool:
        """Return whether what the first line says has led to the exception in the last one, or
        another rank has printed it."""
        if origin(self.raw[first])[0] != origin(self.raw[last])[0]:
            return True
        return any(line.startswith(_CHAINS) for line in self.lines[first:last])

    def address(self, number: int) -> str:
        """Return the address of the node that the line is about, if Ray says it; "" if not."""
        tasks = (n for n in range(number - 1, -1, -1) if _RAY_TASK in self.raw[n])
        for line in (number, next(tasks, number)):
            found = re.search(_RAY_PLACE, self.raw[line][:LONGEST])
            if found:
                return found[1] or found[2]
        return ""
