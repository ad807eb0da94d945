"""The three kinds of ranks, by what starts them and what reports them. A launcher chooses one; all
others ask its attributes, and never which one it is."""

from entrypoint.base.values import dataclass


@dataclass(frozen=True)
class RankKind:
    """What starts ranks and what reports them."""

    # The launcher's daemons start them, on all nodes. The launcher itself has no supervisor, and no
    # signal goes to it: it would kill its ranks before the grace period is over.
    by_daemons: bool = False
    # A program of the node starts them, and may restart them: which rank failed is why it did.
    in_programs: bool = False
    have_supervisors: bool = False  # each rank its own, by rank.sh; otherwise each program
    report_ends: bool = False  # each rank its start and its end; otherwise each program its end


# Programs of the node are ranks, or start some that nothing reports.
AS_PROGRAMS = RankKind()
UNDER_PROGRAMS = RankKind(in_programs=True, have_supervisors=True)
UNDER_DAEMONS = RankKind(by_daemons=True, have_supervisors=True, report_ends=True)
