"""The cause of a rank's or program's failure, and what was saved: values that nodes exchange, and
that the job's result holds."""

# Without `from __future__ import annotations`: wire.py reads the annotations as values.
from typing import Annotated, Literal, get_args

from entrypoint.base.values import frozen
from entrypoint.base.wire import Length, Range

Role = Literal["root", "cascade", "unclear"]
Blame = Literal["program", "node", "device", "platform", "peer", "network", "storage", "unknown"]
Retry = Literal["no", "same", "elsewhere", "unknown"]
Certainty = Literal["high", "low"]
ROLES = get_args(Role)
BLAMES = get_args(Blame)
RETRIES = get_args(Retry)
CERTAINTIES = get_args(Certainty)
LINES, LINE = 3, 300  # lines of the output that show the cause, characters in each
_Name = Annotated[str, Length(200)]
REASON = 400  # characters of a reason, or of an instruction
_Sentence = Annotated[str, Length(REASON)]


@frozen
class Cause:
    """The cause of a rank's or program's failure, by its output and its node's measurements."""

    # The kind of cause, such as `gpu-ecc`: entrypoint/causes lists all.
    slug: Annotated[str, Length(40)]
    # The first failure itself, or only a consequence of another one.
    role: Role
    blame: Blame
    # Whether the same job may succeed: on the same nodes, or only on others.
    retry: Retry
    certainty: Certainty
    # The cause in words, with `{device}` for the device: `{device} reported an ECC error`.
    says: _Sentence
    fix: _Sentence = ""  # an instruction
    # Such as `GPU 2`; "" if it is unknown or has nothing to do with it.
    device: _Name = ""
    # Of the output, that show it.
    lines: Annotated[tuple[Annotated[str, Length(LINE)], ...], Length(LINES)] = ()
    rank: _Name = ""  # or the program that failed: `rank 3`
    # Where that ran: `worker-3 (node-3)`, or its address before the leader has the cause.
    node: _Name = ""

    @property
    def is_infrastructure(self) -> bool:
        """Return whether it is certain that not the program failed, and that a retry may help."""
        return self.certainty == "high" and self.retry in ("same", "elsewhere")


@frozen
class Exclusion:
    """A node that a job has replaced by a spare, and why."""

    node: _Name  # its label: `worker-2`
    host: _Name
    why: _Sentence


@frozen
class Saved:
    """The last save of a node whose ranks were told to stop, as `restarts.progress` shows it.

    name: What was finished after SIGTERM, such as `step_70`; "" for nothing.
    seconds: From SIGTERM to the last change of that; for nothing, to the one before it, which is
      not above 0. None: there is none.
    """

    name: Annotated[str, Length(100)]
    seconds: Annotated[float, Range(-1e9, 1e9)] | None
