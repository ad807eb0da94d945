"""Reads from the words of a variable's name what its value is: FOO_NUM_WORKERS counts workers,
whoever FOO is.

The words are those of about 40 batch services and launchers. tests/tables/numbering.yaml has their
variables, and what looks like them on a single machine.
"""

from __future__ import annotations

import re

from entrypoint.base.values import frozen


def _nouns(text: str) -> frozenset[str]:
    return frozenset(text.split())


# A container is one of these; it may hold several of all others: a data loader has workers, too.
_NODES = _nouns("NODE HOST MACHINE REPLICA POD CONTAINER")
# The number of one of these is that of a container.
_PLACES = _NODES | _nouns("INSTANCE WORKER TASK TRAINER MEMBER PEER ROLE ALLOC COMPLETION GLOBAL")
_GROUPS = _nouns("GROUP GANG CLUSTER WORLD NAMESPACE ARRAY JOB")  # these have a SIZE
_UNITS = _PLACES | _GROUPS | _nouns("PROC PROCESS")
_LISTED = _PLACES - _nouns("HOST TASK")
_COUNTS = _nouns("NUM NUMBER COUNT TOTAL N")
_INDEXES = _nouns("RANK INDEX IDX ORDINAL")
_IDS = _nouns("ID NO")
_SURE_LEADERS = _nouns("LEADER RANK0")  # which services do not have
_LEADERS = _SURE_LEADERS | _nouns("MASTER HEAD CHIEF COORDINATOR PRIMARY MAIN")
_ADDRESSES = _nouns("HOST HOSTNAME ADDR ADDRESS IP FQDN ENDPOINT URI")
_LISTS = _nouns("HOSTS HOSTNAMES IPS ADDRS ADDRESSES ENDPOINTS LIST")
_BETWEEN = _nouns("OF IP IPV4 SLOT PRIVATE")  # as in NODE_IP_LIST
# Limits, shares, places on this node, and jobs of an array, which are jobs of their own.
_OTHERS = _nouns("MAX MIN PER LOCAL ARRAY")
_CAMEL = re.compile("(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[.-]")
_JOINED = re.compile("(N)((?:NODE|HOST|TASK|WORKER|PROC|POD)S)|(NODE|PROC)(ID|NUM|NO|LIST)")


# What words do not say: known names -> what they are.
_KNOWN = {
    "count": re.compile(
        "GROUP_WORLD_SIZE|LWS_GROUP_SIZE|HOROVOD_CROSS_SIZE|MEGASCALE_NUM_SLICES|(VC|MLP)_.+_NUM"
        "|DLS_TASK_NUMBER"
    ),
    "index": re.compile("(GROUP|HOROVOD_CROSS)_RANK|MEGASCALE_SLICE_ID|DMLC_NUM_SERVER"),
    "list": re.compile(
        "(VC|MLP)_.+_HOSTS?|(SM|LSB|LSB_MCPU)_HOSTS|AZ_BATCH_.+_LIST|PADDLE_TRAINERS"
    ),
    "leader": re.compile(
        "PET_(MASTER_ADDR|RDZV_ENDPOINT)|PADDLE_MASTER|DMLC_(PS_ROOT|TRACKER)_URI|MS_SCHED_HOST"
        "|HOROVOD_GLOO_RENDEZVOUS_ADDR|AZ_BATCH_MASTER_NODE|JAX_COORDINATOR_ADDRESS"
    ),
}


@frozen
class Form:
    """The form of a variable's name: what its words say."""

    kind: str  # "count", "index", "id", "leader" or "list"; "plural" is a count if it is a number
    of: tuple[str, ...]  # the words before, such as the platform's name
    unit: str = ""  # what is counted, numbered or listed
    number: str = ""  # of the one whose address it is, where each has a variable
    is_sure: bool = False  # it is of nodes; otherwise it may be another program's

    def numbers(self, other: Form) -> bool:
        """Return whether this is the number of one of what the other form counts or names."""
        if self.kind not in ("index", "id"):
            return False
        if not self.of:
            return self.kind == "index" and not other.of and self.unit == other.unit != ""
        if not self.unit:
            return self.of == other.of
        is_any = self.unit == other.unit or self.kind == "index" or other.kind != "count"
        return is_any and self.is_beside(other)

    def is_beside(self, other: Form) -> bool:
        """Return whether both are variables of one platform, by its name."""
        return bool(self.of) and self.of[:1] == other.of[:1]


def form_of(name: str) -> Form | None:
    """Return what the name of a variable says; None if it says nothing of nodes and processes."""
    words = _words(name)
    if kind := next((kind for kind, known in _KNOWN.items() if known.fullmatch(name)), ""):
        return Form(kind, tuple(words[:1]), "NODE", is_sure=True)
    last = words.pop() if words else ""
    if _OTHERS.intersection(words[:-1] if last == "SIZE" else words):
        return None
    while words and words[-1] in _BETWEEN:
        words.pop()
    if words and words[-1] in _COUNTS and _unit(last):
        words[-1], last = last, words[-1]  # NUM_NODES is NODES_NUM
    unit = _unit(words[-1]) if words else ""
    of = tuple(words[:-1] if unit else words)
    if unit and (last in _COUNTS or (last == "SIZE" and unit in _GROUPS)):
        return Form("count", of, unit, is_sure=unit in _NODES)
    if last in _INDEXES or (unit, last) == ("WORKER", "ID"):
        return Form("index", of, unit, is_sure=unit in _PLACES)
    if last in _IDS:
        return Form("id", of, unit)
    if last in _LISTS and (unit or last.startswith("HOST")):
        return Form("list", of, unit, is_sure=unit in _LISTED)
    if last in _ADDRESSES or last in _LEADERS:
        return _address(words, last, unit)
    unit = _unit(last)
    if unit in ("NODE", "MACHINE", "REPLICA") and unit != last:
        return Form("plural", tuple(words), unit, is_sure=True)
    return None


def _address(words: list[str], last: str, unit: str) -> Form | None:
    """Return the form of an address: of a leader, or of one of several that have a number each."""
    if len(words) > 1 and words[-1].isdecimal() and (of := _unit(words[-2])):
        return Form("list", tuple(words[:-2]), of, number=words[-1])
    if last in _LEADERS:
        return Form("leader", tuple(words))
    before = words[:-1] if unit else words
    leader = before.pop() if before else ""
    if leader not in _LEADERS:
        return None
    is_sure = bool(unit or not before or leader in _SURE_LEADERS)
    return Form("leader", tuple(before), unit, is_sure=is_sure)


def _words(name: str) -> list[str]:
    """Return the words of a name, in capitals; joined ones apart, as in NNODES and NODEID."""
    words: list[str] = []
    for word in filter(None, _CAMEL.sub("_", name).upper().split("_")):
        joined = _JOINED.fullmatch(word)
        words += filter(None, joined.groups()) if joined else [word]
        # PBS_NODENUM and SLURM_NODEID number a node, NODE_NUM counts them, and NODE_ID is any text.
        if joined and words[-1] in ("ID", "NUM", "NO"):
            words[-1] = "INDEX"
    return words


def _unit(word: str) -> str:
    """Return the unit that a word is, in the singular; "" if it is none."""
    singular = (word, word.removesuffix("S"), word.removesuffix("ES"))
    return next((unit for unit in singular if unit in _UNITS), "")
