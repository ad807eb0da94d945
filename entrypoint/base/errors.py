"""Every error we raise, and the exit status each one becomes.

Exit statuses of `entrypoint` (the job's own status always wins once the job has started):

     0..63   the job's own
    64       USAGE        a flag is wrong
    65       SPEC         the job spec (or an override of it) is wrong
    66       NO_INPUT     an input file is missing or not readable
    69       UNAVAILABLE  peers did not answer before the deadline
    70       SOFTWARE     an internal error
    71       OS           the host refused something (sshd did not start, too few file handles)
    72       DEADLINE     the job's deadline has passed (timeouts.job)
    73       CANT_CREATE  a file could not be written
    75       RETRY        a peer or the infrastructure failed; a retry may help
    77       REFUSED      a peer rejected the leader's key, or its host key is not this job's
    78       CONFIG       the configuration does not describe a valid job (no secret, no index, ...)
    79       NO_PROGRESS  restarts made no progress; another restart would not help
    126/127  the program cannot be executed / does not exist
    128+n    the job was ended by signal n

The tree:

    EntrypointError            .status, and the message's three parts: summary | detail | hint
    |- UsageError        64
    |- SpecError         65    carries every problem of the spec, not the first only
    |- NoInputError      66
    |- UnavailableError  69
    |- HostError           71
    |- DeadlineError     72
    |- CantCreateError   73
    |- RetryError        75
    |- RefusedError      77
    |- ConfigError       78
    `- NoProgressError   79
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from entrypoint.base.model import Outcome
from entrypoint.base.values import frozen

EXIT_SOFTWARE = 70
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127


def _joined(summary: str, detail: str, hint: str) -> str:
    return " | ".join(filter(None, (summary, detail, hint)))


def message_parts(message: str) -> list[str]:
    """Return summary, detail and hint of a message; "" for what it has not."""
    return [*message.split(" | ", 2), "", ""][:3]


class EntrypointError(Exception):
    """A failure that a person can act on: a statement of what failed, the actual values, an
    instruction."""

    status: ClassVar[int] = EXIT_SOFTWARE

    def __init__(self, summary: str, detail: str = "", hint: str = "") -> None:
        self.summary = summary
        self.detail = detail
        self.hint = hint
        super().__init__(_joined(summary, detail, hint))

    @property
    def outcome(self) -> Outcome:
        """Return how a node ends because of it."""
        return Outcome(self.status, str(self))

    def lines(self) -> list[str]:
        """The message as the lines a person reads, one problem a line."""
        return [str(self)]


def internal(error: Exception) -> Outcome:
    """Return the outcome of a defect of the toolkit."""
    reason = f"EP900 internal error: {type(error).__name__}: {error} | please report it"
    return Outcome(EXIT_SOFTWARE, reason)


def outcome_of(error: Exception) -> Outcome:
    """Return the outcome with which an error ends the job."""
    return error.outcome if isinstance(error, EntrypointError) else internal(error)


class UsageError(EntrypointError):
    status = 64


@frozen
class Problem:
    """One thing wrong with the spec. `where` is `file:line:column`, an environment variable or a
    flag."""

    where: str
    path: str
    summary: str
    detail: str
    hint: str

    def __str__(self) -> str:
        place = ": ".join(filter(None, (self.where, self.path)))
        return f"{place}: {_joined(self.summary, self.detail, self.hint)}"


class SpecError(EntrypointError):
    """Every problem of the job spec at once."""

    status = 65

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))

    def lines(self) -> list[str]:
        return [str(problem) for problem in self.problems]


class NoInputError(EntrypointError):
    status = 66


class UnavailableError(EntrypointError):
    status = 69


class HostError(EntrypointError):
    status = 71


class DeadlineError(EntrypointError):
    status = 72


class CantCreateError(EntrypointError):
    status = 73


class RetryError(EntrypointError):
    status = 75


class RefusedError(EntrypointError):
    status = 77


class ConfigError(EntrypointError):
    status = 78


class NoProgressError(EntrypointError):
    status = 79


_CONFIG = (UsageError, SpecError, NoInputError, CantCreateError, RefusedError, ConfigError)
_INFRASTRUCTURE = (UnavailableError, HostError, RetryError)

RETRIED = tuple(kind.status for kind in _INFRASTRUCTURE)
"""Statuses after which a retry may help; all that we write for schedulers retries these, and only
these."""

CLASSES = {EXIT_SOFTWARE: "defect"}
CLASSES |= {NoProgressError.status: "job", DeadlineError.status: "stopped"}
CLASSES |= {kind.status: "config" for kind in _CONFIG} | dict.fromkeys(RETRIED, "infrastructure")
"""Status of ours -> its class: who can fix the failure."""
