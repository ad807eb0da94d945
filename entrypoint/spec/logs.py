"""The spec's `logs`: the form of output lines, and a file for each rank."""

# Without `from __future__ import annotations`, as jobspec.py.
import re
from typing import Annotated, Any, Literal

from entrypoint.base.kept import OutputForm
from entrypoint.base.model import Topology
from entrypoint.base.values import frozen, replace
from entrypoint.spec.rules import Rule

NAMES = ("job", "node", "host", "rank", "stream")  # that a prefix may hold in braces
ALL = "all"
_NAME = re.compile(r"\{(\w*)\}")
_RANKS = r"\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*"


def _check_prefix(text: str) -> tuple[str, str] | None:
    if unknown := [name for name in _NAME.findall(text) if name not in NAMES]:
        return (
            f"there is no {{{unknown[0]}}} for a prefix",
            f"use {', '.join(f'{{{name}}}' for name in NAMES)}",
        )
    if re.search(r"[\x00-\x1f\x7f]", text.replace("\t", "").replace("\033", "")):
        return "a prefix is part of a line", "remove the line end, or what else is not printed"
    return None


def _check_show(text: str) -> tuple[str, str] | None:
    if text == ALL or re.fullmatch(_RANKS, text):
        return None
    return "these are no ranks", f"use {ALL}, or numbers and ranges such as 0,8-15"


@frozen
class LogsSpec:
    """Printing and copying of output. By default each line stays as it is.

    format:
      `json` turns each line of a rank or of the toolkit into one JSON object: time (RFC 3339, UTC),
      job, node, host, attempt, rank, stream, text; of the toolkit also level and id.
    prefix:
      Beginning of each line that a rank prints, such as `"[{node} {rank}] "`: text with {job},
      {node} (`worker-1`), {host}, {rank} (`-` if it is not a rank's line) and {stream} (stdout or
      stderr) in it.
    collapse: With `yes`, lines of several ranks that differ only by rank, pid or time become one.
    show: Ranks whose output is printed: `all`, or numbers and ranges such as `0,8-15`. The output
      of all others only goes into their `files`; the last lines of a rank that fails are printed in
      any case.
    level: Minimum level of the toolkit's own messages: `warning` leaves out the progress of the
      boot, and keeps warnings, errors and the last lines of a failed rank.
    timestamps: With `utc`, each line of a rank or of the toolkit begins with the time (RFC 3339,
      UTC). JSON always has the time.
    files: With `ranks`, each rank's output is also copied, byte for byte, into a file of its own:
      JOB-NODE-rank-RANK.log in `log_dir`, from the second attempt on (`restarts`)
      JOB-NODE-rank-RANK-attempt-N.log.
    max_size: Bytes after which such a file is renamed to FILE.1, the previous one to FILE.2 and so
      on, and a new file begins.
    max_files: Number of files kept for each rank, including the current one.
    """

    format: Annotated[Literal["text", "json"], "--log-format"] = "text"
    prefix: Annotated[
        str | None, Rule("text with {node} or {rank} in it", check=_check_prefix), "--log-prefix"
    ] = None
    timestamps: Annotated[Literal["none", "utc"], "--log-timestamps"] = "none"
    show: Annotated[
        str, Rule("`all`, or ranks such as 0,8-15", check=_check_show), "--log-show"
    ] = ALL
    collapse: Annotated[Literal["no", "yes"], "--log-collapse"] = "no"
    level: Annotated[Literal["info", "warning"], "--log-level"] = "info"
    files: Annotated[Literal["none", "ranks"], "--log-files"] = "none"
    max_size: Annotated[int, Rule(ge=4096), "--log-max-size"] = 10 << 20
    max_files: Annotated[int, Rule(ge=1, le=1000), "--log-max-files"] = 5

    @property
    def lines(self) -> bool:
        """Return whether the lines of ranks are changed."""
        asked = (self.format, self.prefix, self.timestamps, self.collapse)
        return asked != ("text", None, "none", "no")

    @property
    def any(self) -> bool:
        """Return whether a program's output must pass through the keeper."""
        return self.lines or self.files == "ranks" or self.show != ALL

    def output(
        self,
        topology: Topology,
        rank: str = "",
        log: str = "",
        is_one_of_several: bool = False,
    ) -> OutputForm:
        """Return the form of a program's or rank's output.

        `rank` is its number, or RANK; `log` a file that gets its output in any case.
        `is_one_of_several`: others print into the same stream.
        """
        form = OutputForm(log=log, rank=rank)
        if is_one_of_several:
            form = replace(form, lines="whole")
        if self.lines:
            this = topology.this
            names: dict[str, Any] = {"job": topology.job, "node": this.label, "host": this.host}
            prefix = _NAME.sub(lambda match: names.get(match[1], match[0]), self.prefix or "")
            form = replace(
                form,
                lines=self.format,
                **names,
                attempt=topology.history.number,
                prefix=prefix,
                timestamps=self.timestamps == "utc",
                collapse=self.collapse == "yes" and is_one_of_several,
            )
        if self.show != ALL:
            form = replace(form, show=self.show)
        return form

    def copied(self, topology: Topology, form: OutputForm) -> OutputForm:
        """Return the form with the file of `files`, if it asks for one."""
        if self.files == "none":
            return form
        number = f"-rank-{form.rank}" if form.rank else ""
        name = f"{topology.job}-{topology.this.label}{number}{topology.of_attempt}.log"
        log = form.log or f"{topology.log_dir}/{name}"
        return replace(form, log=log, max_size=self.max_size, max_files=self.max_files)
