"""Renders docs/how-to/why-did-my-job-stop.md from the tables of causes, for `make golden`."""

from __future__ import annotations

from entrypoint.causes.table import KINDS, CauseKind, signatures
from tests.markdown import markdown_table

_MOST_WORDS = 8  # of what programs print, for each cause
_HEAD = """# Why did my job stop?

<!-- Generated from entrypoint/causes by `make golden`: change kinds.tsv or signatures.tsv. -->

If a program of a job fails, every node prints the cause before its last line:

```
[entrypoint worker-0] last 1 line of rank 13 on worker-3 (node-3):
[entrypoint worker-0]   | RuntimeError: CUDA error: uncorrectable ECC error encountered
[entrypoint worker-0] cause: GPU 2 of worker-3 (node-3) reported an uncorrectable ECC error, in \
rank 13 (device; retry elsewhere)
[entrypoint worker-0] EP600 rank 13 on worker-3 (node-3) exited with 1; exit 1
```

The [result](../reference/exit-codes.md#as-json), `/dev/termination-log` and
[JSON log lines](logs.md#json) contain the same as fields. Two settings use it:
[`restarts`](stalls-and-restarts.md#restart-in-place) boots the job again after causes that are
certainly the infrastructure's, and [`failures.status: class`](../reference/exit-codes.md) makes
schedulers retry the same ones. A single program that replaces the entrypoint process (one node,
launcher `plain`) is not judged: use `entrypoint explain` on its log.

For the log of any job, whatever started it:

```sh
entrypoint explain job.log
kubectl logs worker-3 | entrypoint explain -
entrypoint explain --json --status 137 job.log
```

If it is the log of a job of this toolkit, the answer is what its own `cause:` line says, with the
rank and the node that it names. The answer names the cause, the lines that show it, whose it is,
and whether a retry helps.
`--status` and `--signal` tell how the job ended, if the log does not. `--json` prints one object
with `cause`, `text`, `role`, `blame`, `retry`, `certainty`, `lines` and `fix`. Of a long log, the
first and the last megabytes are read.

"""
_FIELDS = (
    ("field", "values"),
    (
        "`role`",
        "`root`: these lines show the first failure; `cascade`: a consequence, the cause is in the"
        " output of another rank or node; `unclear`: either",
    ),
    (
        "`blame`",
        "`program` with its image and configuration, `node`, `device`, `network`, `storage`,"
        " `platform` (scheduler, limits, a person), `peer` (another rank), `unknown`",
    ),
    (
        "`retry`",
        "`no`; `same`: also on the same nodes; `elsewhere`: on other nodes; `unknown`: these lines"
        " do not tell",
    ),
    (
        "`certainty`",
        "`high`: the lines or a measurement prove it; `low`: likely, other causes print the same",
    ),
)
_RULES = """
How it is decided:

- A root wins over a consequence, in one log and across ranks and nodes. A lost connection, a
  time-out or the launcher's report never hides the error that came first.
- A report of the device, the kernel or the scheduler wins over the error of a library, and that
  over an exception of the program.
- Who says it counts: a device, the kernel or a scheduler is believed only in the form in which it
  prints a report (`NVRM: Xid (PCI:...): 79`, `slurmstepd: error: ...`). A line that only mentions
  such words (`last run failed with: ...`, a history in JSON) starts no job again and excludes no
  node, and weighs less than a mistake of the program that follows. A report weighs less, too, than
  a plain exception (`ValueError`, `KeyError`, ...) with which the program ends later: it has gone
  on, or has quoted the report.
- Hints that libraries print under every error, lists of possible reasons, and warnings that were
  followed by progress are no evidence.
- What is not known is the program's own failure, with low certainty. A signal alone proves no
  cause: SIGKILL without a witness is `killed-unknown`, not memory.

To find the rank that failed first, see [logs.md](logs.md); for the toolkit's own messages,
[troubleshooting.md](troubleshooting.md); for what a scheduler should do about an exit status,
[exit-codes.md](../reference/exit-codes.md).

## All causes

This is what is usual for each. Lines that say more, such as the number of an Xid, may differ.
"""


def markdown() -> str:
    """Return the page."""
    rows = [
        (f"[`{kind.slug}`](#{kind.slug})", kind.meaning, kind.blame, kind.retry)
        for kind in KINDS.values()
    ]
    out = [_HEAD + "\n".join(markdown_table(_FIELDS)), _RULES]
    out += [*markdown_table([("cause", "meaning", "blame", "retry"), *rows]), ""]
    for kind in KINDS.values():
        out += [*_section(kind), ""]
    return "\n".join(out).rstrip("\n") + "\n"


def _section(kind: CauseKind) -> list[str]:
    lines = [
        f"## {kind.slug}\n",
        f"{kind.meaning[0].upper()}{kind.meaning[1:]}.\n",
        f"- Blame: {kind.blame}. Retry: {kind.retry}.",
        f"- Fix: {kind.fix}.",
    ]
    if words := _words(kind.slug):
        lines.append(f"- Seen as: {', '.join(f'`{word}`' for word in words)}")
    return lines


def _words(slug: str) -> list[str]:
    """Return some of what programs print. A needle without its first letter, which may be a capital
    or not, gets an ellipsis."""
    rows = [row for row in signatures() if row.slug == slug and not row.also]
    plain = [row for row in rows if not row.pattern and len(row.needle) > 5]
    needles = dict.fromkeys(row.needle.strip(" (:`[") for row in plain or rows)
    whole = [needle for needle in needles if not needle[0].islower() and not needle.isdigit()]
    part = [f"…{needle}" for needle in needles if needle[0].islower()]
    return [word for word in [*whole, *part] if "`" not in word][:_MOST_WORDS]


if __name__ == "__main__":
    print(markdown(), end="")
