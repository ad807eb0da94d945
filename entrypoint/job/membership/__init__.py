"""With whom an attempt starts, and with whom it goes on. Pure: the leader asks here, and acts.

`Roster` has what is known of each node, `Quorum` decides before the start, `Participants` after it.
What happens is told by verbs: nothing outside this package writes their state.

Who works
    The team: the nodes that have a place in the job. Place 0 is always the leader's, since the
    other nodes are called from there. Without spares every node has a place; an elastic job
    (`nodes: 2:4`) runs with those that are there, if they are enough. With spares the first nodes
    work at first, and the others wait.

Who decides, and when
    The leader alone, by what these classes answer. Before the start it asks `Quorum.decide` after
    each answer and loss, and at the time that the last answer has named:

    Refuse   after a stop, once the nodes that were there at the end of the last attempt have heard
             of it or had their time; or if the time is over and too few nodes are there.
    Wait     for a node that is missing, for the result of a gate, or for the end of what a lost
             node may still run. Gates have limits of their own, beyond that of the roll call.
    Go       if all nodes are there; or enough, and the others had their time. `Quorum.choose` then
             fills the places.

    After the start it asks `Participants` for each event; `End` is an outcome, by which the attempt
    ends:

                            Fixed               Spares                    Elastic
    a node is lost          End                 End; a spare replaces it  GoOn if enough are left,
                                                in the next attempt       else End
    a spare is lost, fails  -                   GoOn                      -
    a node comes late       -                   TakeIn: it waits          TakeIn: it joins
    a node is not healthy   End                 a spare works instead     End
    a node is to blame      -                   after FAULTS times it     -
                                                never works again

    If `check` or `netcheck` asks the nodes first, a loss counts for each node that is asked.

Who comes back
    A node that was replaced waits as a spare, and works again only if no other node is left. So a
    job with spares goes on wherever the same job without them would. The next attempt starts when
    nothing of an earlier one can run any more: see `earlier.py`.

Whose end counts
    That of every node that works. A node of an elastic job counts once its launcher has met the
    others; worker-0, where they meet, always does. Until enough have met, every node counts:
    whatever fails before the job runs is the job's failure. If one of these is lost, and worker-0's
    programs have ended well, nobody can be met any more.
"""

from __future__ import annotations

from entrypoint.base.values import frozen
from entrypoint.job.membership.participants import (
    ElasticParticipants,
    Participants,
    SpareParticipants,
)
from entrypoint.job.membership.quorum import Quorum, SpareQuorum
from entrypoint.job.membership.roster import Roster
from entrypoint.job.membership.team import Team
from entrypoint.job.state import JobState


@frozen
class Membership:
    """The nodes of one attempt, as its leader knows them, by the policy of the job."""

    roster: Roster
    quorum: Quorum
    participants: Participants


def of_job(state: JobState, team: Team | None = None) -> Membership:
    """Return the membership of an attempt of this job. `team`: as the last attempt left it."""
    quorum, participants = Quorum, Participants
    if state.topology.spares:
        quorum, participants = SpareQuorum, SpareParticipants
    elif state.plan.launch.min_nodes is not None:
        participants = ElasticParticipants
    roster = Roster(state, team)
    return Membership(roster, quorum(state, roster), participants(state, roster))
