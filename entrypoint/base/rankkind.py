"""The three kinds of ranks, by what starts them and what reports them. A launcher chooses one; all
others ask its attributes, and never which one it is."""

from entrypoint.base.values import frozen


@frozen
class RankKind:
    """A kind of ranks: what starts them and what reports them."""

    # The launcher's daemons start them, on all nodes. No signal goes to the launcher itself: it
    # would kill its ranks before the grace period is over.
    by_daemons: bool = False
    # A program of the node starts them, and may restart them: which rank failed is why it did.
    in_programs: bool = False
    by_launcher: bool = False  # a launcher starts each, by rank.sh; otherwise they are programs
    report_ends: bool = False  # each rank its start and its end; otherwise each program its end


# Programs of the node are ranks, or start some that nothing reports.
AS_PROGRAMS = RankKind()
UNDER_PROGRAMS = RankKind(in_programs=True, by_launcher=True)
UNDER_DAEMONS = RankKind(by_daemons=True, by_launcher=True, report_ends=True)
