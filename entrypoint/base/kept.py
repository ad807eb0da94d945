"""The forms in which the keeper (ranks/keeper.py) keeps the programs and ranks of a node: plain
values that the plan makes."""

from __future__ import annotations

from os.path import dirname, join, realpath

from entrypoint.base.values import frozen, replace

_PACKAGE = dirname(dirname(realpath(__file__)))
# folder whose sitecustomize has a rank's Python print its stack on a signal
OWN_STACKS = join(_PACKAGE, "ranks", "stall", "own_stacks")
KEEPER = join(_PACKAGE, "ranks", "keeper_main.py")
PASS_FD = join(_PACKAGE, "ranks", "pass_fd.py")
RANK = "{rank}"  # stands for a rank's number, where it is known once the rank starts
# variable of every program and rank: the number by which its keeper knows it
MARK = "ENTRYPOINT_KEPT"
# variable of every program and rank: the file in which it may say why it fails
VERDICT = "ENTRYPOINT_VERDICT"
# where `last-output` has the note whether the last lines have ended (output/stream.py), and its
# bytes
NOTE_AT = 21
NOTE_SIZE = 12


def verdict_file(folder: str, kind: str, number: int) -> str:
    """Return the file in which this program or rank may say why it fails."""
    return f"{folder}/verdict.{kind}.{number}"


@frozen
class OutputForm:
    """The treatment of the output of a program or rank.

    `lines`: "" passes on all bytes as they come, `whole` keeps lines whole, as others print into
    the same stream; `text` and `json` shape them (output/lines.py), by the fields that follow it.
    `tags`: how an MPI that passes the output on tags it (output/framing.py), "" for none.
    """

    lines: str = ""
    job: str = ""
    node: str = ""
    host: str = ""
    attempt: int = 1
    rank: str = ""  # its number where it is a rank; may be RANK
    prefix: str = ""
    timestamps: bool = False
    collapse: bool = False  # lines of ranks that are alike become one
    tags: str = ""
    # it is that of an MPI's launcher, with such tags, or of a rank next to it, with none
    is_of_launcher: bool = False
    label: str = ""  # begins every line, if `lines` asks for no other shape
    show: str = ""  # ranks whose output is printed, such as 0,8-15; "" for all
    log: str = ""  # file that gets the output too; RANK in it is the number
    max_size: int = 0  # bytes after which the next file is begun, 0 for no limit
    max_files: int = 1

    def of(self, number: int) -> OutputForm:
        """Return that of the rank of this number."""
        text = str(number)
        rank, log = (field.replace(RANK, text) for field in (self.rank, self.log))
        return replace(self, rank=rank, log=log)

    @property
    def is_shown(self) -> bool:
        """Return whether the output is printed."""
        if not self.show or not self.rank:
            return True
        ranges = [each.partition("-") for each in self.show.split(",")]
        return any(int(first) <= int(self.rank) <= int(last or first) for first, _, last in ranges)


@frozen
class KeptForm:
    """The form in which a program is kept, or each rank that a launcher starts."""

    output: OutputForm = OutputForm()
    grace: float = 0.0  # seconds between SIGTERM and SIGKILL for what it leaves running
    # it ends at once, whatever it leaves running or has open: that belongs to its launcher
    is_apart: bool = False
    # an MPI has started it: its launcher hears of a failure once the node has let go of it
    by_mpi: bool = False
    # it tells the processes that it starts of signals; of others, this node does
    is_launcher: bool = False
    # its number among all: if it is not 0, no launcher may start below it (ranks/nested.py); `node
    # N`: none for this node alone
    nested: str = ""
    steps: str = ""  # the text of lines that show progress (output/steps.py)

    def of(self, number: int, has_launcher: bool) -> KeptForm:
        """Return that of the rank of this number. `has_launcher`: that of the MPI is on this node,
        and would only bring back what the rank prints."""
        output = self.output.of(number)
        if has_launcher and output.tags:
            output = replace(output, tags="", is_of_launcher=True)
        return replace(self, output=output, nested=self.nested.replace(RANK, str(number)))


@frozen
class RanksForm:
    """The settings of all ranks that a launcher starts on this node."""

    form: KeptForm
    numbers: tuple[str, ...]  # variables, of which the first that is set has a rank's number
    cwd: str = ""  # "": the launcher's
    # NAME=VALUE of each variable that this node gives them; what the launcher sets by value wins
    env: tuple[bytes, ...] = ()
    # names of variables that each rank gets with the value of another one
    each: tuple[tuple[str, str], ...] = ()
    # a lone colon in its words has a backslash before it, since the launcher would take it itself
    colons: bool = False
