"""The keeper's state for all programs and ranks of an attempt: where their output goes, and the
pipe at which launchers ask for ranks."""

from __future__ import annotations

import os

from entrypoint.base.kept import MARK, VERDICT, verdict_file
from entrypoint.base.values import frozen, replace
from entrypoint.output import framing
from entrypoint.output.lines import Lines, shape
from entrypoint.output.stream import OF_LAUNCHER, Copies, LastOutput, Stream, Target
from entrypoint.ranks import orders, placeholder
from entrypoint.ranks.forked import pair
from entrypoint.ranks.kept import Launched, Streams

if False:  # only for type checkers: importing it is slow
    from collections.abc import Callable
    from typing import Any

    from entrypoint.base.kept import KeptForm, OutputForm
    from entrypoint.output.rotate import RotatingFile


@frozen
class Asked:
    """The placeholder and the launcher of a rank, if a launcher starts it."""

    place: placeholder.Takeover
    launched: Launched


class KeptAttempt:
    """An attempt on this node, from its `Begin`. Raises OSError if its pipes are not there."""

    def __init__(self, begun: orders.Begin) -> None:
        self.begun = begun
        self.has_ranks = False  # whether a launcher has started one
        self.waiting: set[int] = set()  # placeholders of ranks that run still for another one
        self.daemons: set[int] = set()  # an MPI's, which start ranks
        self.requests = placeholder.Requests(begun.run_dir) if begun.ranks else None
        self.last_output = LastOutput(f"{begun.run_dir}/last-output" if begun.run_dir else "")
        out = Target(1, 1, self.last_output)
        one = os.path.sameopenfile(1, 2)  # then the order of both is kept
        self.targets = {1: out, 2: out if one else Target(2, 2, self.last_output)}
        # what programs print into, and where that goes: ranks that a program starts have the same
        self._pipes: list[tuple[os.stat_result, Target]] = []
        if begun.collapse:
            from entrypoint.output.collapse import Collapser

            for target in dict.fromkeys(self.targets.values()):
                target.collapser = Collapser(begun.is_json)

    def mark(self, env: dict[bytes, bytes], name: tuple[str, int], mark: str) -> None:
        """Give a program or rank the variables of the keeper; its verdict is none of an earlier
        one."""
        verdict = verdict_file(self.begun.run_dir, *name)
        try:  # noqa: SIM105  contextlib is slow to import
            os.unlink(verdict)
        except OSError:
            pass
        env |= {MARK.encode(): mark.encode(), VERDICT.encode(): os.fsencode(verdict)}

    def streams(
        self,
        form: KeptForm,
        name: tuple[str, int],
        tail: bytearray,
        asked: Asked | None,
        tell: Callable[[Any], None],
    ) -> tuple[Streams, tuple[int, int, int]]:
        """Return a program's streams, and its stdin, stdout and stderr for `fork`; -1 is the
        keeper's own. Raises OSError."""
        kind, number = name
        if kind == orders.DAEMON:  # stdout is the job's
            return Streams([], tail), (os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), 2, -1)
        stdin = -1 if asked is None else _stdin(asked.place.stdin)
        targets = self.targets if asked is None else self._targets_of(asked.launched.pid)
        copies = Copies(
            tail,
            _log(form.output, lambda error: tell(orders.Report(kind, number, "copy", error))),
        )
        if form.steps:
            from entrypoint.output.steps import opened

            copies.steps = lambda: opened(form.steps, self.begun.run_dir, str(number))
        made: dict[Target, int] = {}
        streams = []
        for stream_number, target in targets.items():
            if target not in made:
                source, made[target] = pair(target.fd)
                to = self.targets[stream_number] if form.output.is_of_launcher else target
                streams.append(_stream(source, to, copies, form.output, stream_number))
                if asked is None:
                    self._pipes.append((os.fstat(made[target]), target))
        own = tuple(target for target in made if target not in self.targets.values())
        return Streams(streams, tail, own), (stdin, made[targets[1]], made[targets[2]])

    def _targets_of(self, pid: int) -> dict[int, Target]:
        """Return where stdout and stderr of a placeholder go: where its program's go, if they are
        the same, else what its launcher reads."""
        found: dict[int, Target] = {}
        for number in (1, 2):
            target = self._same_as_program(pid, number)
            if target is None and number == 2 and placeholder.is_same_stream(pid):
                target = found[1]
            if target is None and (fd := placeholder.stream(pid, number)) >= 0:
                target = Target(fd, 0, self.last_output)
            found[number] = target or self.targets[number]
        return found

    def _same_as_program(self, pid: int, number: int) -> Target | None:
        try:
            status = os.stat(placeholder.path_of(pid, number))
        except OSError:
            return None
        same = (target for pipe, target in self._pipes if os.path.samestat(pipe, status))
        return next(same, None)

    def close(self) -> None:
        """Close all that this has opened."""
        if self.requests is not None:
            self.requests.close()
        for target in dict.fromkeys(self.targets.values()):
            target.close()
        self.last_output.close()


def _stdin(path: str) -> int:
    how = os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK
    for place in (path, os.devnull):
        try:
            fd = os.open(place, how)
        except OSError:
            continue  # a socket cannot be opened again
        os.set_blocking(fd, True)
        return fd
    return -1


def _log(form: OutputForm, failed: Callable[[int], object]) -> RotatingFile | None:
    if not form.log:
        return None
    from entrypoint.output.rotate import RotatingFile

    return RotatingFile(form.log, form.max_size, form.max_files, failed)


def _stream(source: int, target: Target, copies: Copies, form: OutputForm, number: int) -> Stream:
    """Return a stream of this form; `number` is 1 for stdout, 2 for stderr."""
    label = b""
    if form.lines in ("", "whole"):
        label = form.label.encode("utf-8", "surrogateescape")
    lines = None if label or not form.lines else _framer(form, target, number)
    stream = Stream(source, target, copies, lines, label)
    stream.is_shown = form.is_shown
    if form.is_of_launcher:
        stream.ahead = OF_LAUNCHER
    return stream


def _framer(form: OutputForm, target: Target, number: int) -> framing.Framer:
    """Return what shapes the lines of a stream."""
    if form.collapse and target.collapser is None and not form.tags:
        form = replace(form, collapse=False)  # for example with torchrun --redirects
    lines = Lines(shape(form, "stdout" if number == 1 else "stderr"))
    if form.is_of_launcher and form.tags:
        return framing.TaggedInput(lines, framing.tag(form.tags))
    return framing.for_mpirun(lines) if form.tags else framing.Framer(lines)
