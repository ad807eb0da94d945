"""The frozen values the whole run is made of; no logic beyond their invariants.

Facts -> Site, Device -+
                       +-> Topology -> (roll call) -> Roster -> Plan -> Outcome
YAML + env -> JobSpec -+
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr

# ---------------------------------------------------------------------------------------------------------------
# What this container is


@dataclass(frozen=True)
class Facts:
    """What this container is, read once by `run/facts.py` before anything is decided."""

    env: Mapping[str, str]
    hostname: str
    cwd: str
    uid: int
    user: str  # name of `uid` in the passwd file, "" where it has no entry
    home: str
    device_files: tuple[str, ...] = ()  # entries of /dev that name an accelerator, such as nvidia0
    programs: Mapping[str, str] = field(default_factory=dict)  # name -> absolute path, of those we may start
    mpi: str = ""  # version of Open MPI, "" where there is none
    python: str = "python3"  # the interpreter we run in


@dataclass(frozen=True)
class Site:
    """Who started us: the hosts, which of them is this one, and how each was known.

    `hosts` is empty and `index`, `slots` are None where the platform does not say.
    """

    platform: str
    hosts: tuple[str, ...] = ()
    index: int | None = None
    slots: int | None = None
    job: str | None = None
    hostname: str = ""
    origins: Mapping[str, str] = field(default_factory=dict)  # field of JobSpec -> variable it came from
    # Field of JobSpec that the platform should say and does not -> what failed, what was seen, what to do. An error
    # only where the spec does not say it either: what the error asks the user to set must cure it.
    unknown: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Device:
    """What hardware the ranks of this node use."""

    kind: str
    count: int  # accelerators in this container; 0 on a CPU node
    origin: str
    env: Mapping[str, str] = field(default_factory=dict)  # defaults for the ranks; anything the user set wins


# ---------------------------------------------------------------------------------------------------------------
# What the user asked for

Origin = Literal["flag", "env", "spec", "platform", "default"]


@dataclass(frozen=True)
class Source:
    """Where a value came from: its origin, and the flag, variable or file position itself."""

    origin: Origin
    where: str = ""

    def __str__(self) -> str:
        return f"{self.origin} {self.where}".strip()


DEFAULT = Source("default")


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


def _alias(*names: str) -> dict[str, Any]:
    """Documented variables of other tools that set this field when `ENTRYPOINT_<FIELD>` does not."""
    return {"x-env": list(names)}


def _flag(name: str, short: str = "") -> dict[str, Any]:
    return {"x-flag": [short, name] if short else [name]}


class SshSpec(_Section):
    """How the nodes of one job reach each other. Not used by a one-node job."""

    port: int = Field(
        36666, ge=1, le=65535, json_schema_extra={**_flag("--ssh-port"), **_alias("MY_SSHD_PORT", "SSHD_PORT")}
    )
    """TCP port of sshd on every node; over 1023 where we do not run as root."""
    client_key: str | None = Field(None)
    """Path of a mounted private key that the leader logs in with; needs `ssh.host_key` too."""
    host_key: str | None = Field(None)
    """Path of a mounted private host key for this node's sshd; needs `ssh.client_key` too."""
    known_hosts: str | None = Field(None)
    """Path of a known_hosts file with every node's host key; all nodes have the same `ssh.host_key` where not given."""


class MpiSpec(_Section):
    """What the mpirun line is made of. Each field has the documented ModelArts variable as a second name."""

    np: int | None = Field(None, ge=1, json_schema_extra=_alias("OPENMPI_NP"))
    """Ranks in all; slots summed over the nodes where not given."""
    hostfile: str | None = Field(None, json_schema_extra=_alias("OPENMPI_HOST_FILE_PATH"))
    """Path of your own hostfile; ours, written after the roll call, where not given."""
    interface: str | None = Field(None, json_schema_extra=_alias("MY_MPI_BTL_TCP_IF"))
    """Network interfaces, comma-separated, for MPI's and NCCL's TCP traffic. Only NCCL is told, and only eth0,bond0,
    where not given."""
    tune_file: str | None = Field(None, json_schema_extra=_alias("TUNE_ENV_FILE"))
    """Path of an Open MPI -tune file to add. Not needed for variables: every rank gets its own node's environment."""
    bind_args: str | None = Field(None, json_schema_extra=_alias("OPENMPI_BIND_ARGS"))
    """mpirun's binding options; `-bind-to none -map-by slot` where not given."""
    x_args: str | None = Field(None, json_schema_extra=_alias("OPENMPI_X_ARGS"))
    """mpirun's -x options; the documented NCCL and Horovod ones where not given."""
    mca_args: str | None = Field(None, json_schema_extra=_alias("OPENMPI_MCA_ARGS"))
    """mpirun's -mca options; the documented ones where not given."""
    extra_args: str | None = Field(None, json_schema_extra=_alias("OPENMPI_EXTRA_ARGS"))
    """More options for mpirun, split at white space."""


class TorchSpec(_Section):
    """How torchrun, torch.distributed.launch and PyTorch's mp.spawn are started."""

    version: str | None = Field(None, pattern=r"^\d+\.\d+(\.\d+)?$")
    """torch version to render for, such as "2.1"; the installed one, found when the script runs, where not given."""
    port: int = Field(6060, ge=1, le=65535)
    """TCP port on worker-0 where the nodes meet (the rendezvous, MASTER_PORT, --init_method)."""
    rdzv_backend: Literal["auto", "c10d", "static"] = Field("auto")
    """Rendezvous backend of torchrun; `auto` is static for torch 2.1, as ModelArts documents, else c10d."""
    max_restarts: int = Field(0, ge=0)
    """torchrun's own --max-restarts."""
    extra_args: tuple[str, ...] = Field(())
    """More options for the launcher, each passed as it is."""
    rank_args: Literal["auto", "always"] = Field("auto")
    """When the launcher `pytorch` adds --rank and --world_size, which count nodes: `auto` on more than one node,
    `always` on one too."""


class TimeoutSpec(_Section):
    """How long, in seconds, we wait for what."""

    peers: float = Field(600.0, gt=0, json_schema_extra=_flag("--timeout"))
    """Seconds until every peer must have answered the roll call."""
    lease: float = Field(15.0, ge=1)
    """Seconds of silence after which a peer counts as lost."""
    grace: float = Field(30.0, ge=0)
    """Seconds between SIGTERM and SIGKILL when the job is stopped."""


class JobSpec(_Section):
    """One training job. Every field is optional: a command alone is a one-node job."""

    name: str = Field("job", pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", json_schema_extra=_flag("--name"))
    """Name of the job, a DNS label; it also separates the keys of two jobs that share a secret."""
    command: tuple[str, ...] = Field(())
    """The training program and its arguments, one list entry each; arguments after `--` replace it."""
    launcher: str | None = Field(None, json_schema_extra=_flag("--launcher", "-l"))
    """How ranks are started; mpirun for more than one rank, else plain, where not given."""
    workdir: str | None = Field(None, json_schema_extra=_flag("--workdir"))
    """Working directory of the program; the current one where not given."""
    env: Mapping[str, str] = Field(default_factory=dict)
    """Variables for the program on every node, on top of each node's own."""
    platform: str | None = Field(None, json_schema_extra=_flag("--platform"))
    """Who started the containers; recognised by its variables where not given."""
    device: str | None = Field(None, json_schema_extra=_flag("--device"))
    """What the ranks compute on; recognised by its files in /dev where not given."""
    hosts: tuple[str, ...] = Field((), json_schema_extra=_flag("--hosts"))
    """Host names of all nodes in rank order, worker-0 first; `NAME=ADDRESS` where no DNS knows the name."""
    node_rank: int | None = Field(None, ge=0, json_schema_extra={**_flag("--node-rank"), **_alias("MY_TASK_INDEX")})
    """Index of this node in `hosts`; found by this container's host name where not given."""
    slots: int | None = Field(None, ge=1, json_schema_extra={**_flag("--slots"), **_alias("MY_MPI_SLOTS")})
    """Processes (ranks) on each node; the number of accelerators, or 1, where not given."""
    secret_file: str | None = Field(None, json_schema_extra=_flag("--secret-file"))
    """Path of a file with the job's secret, the same on all nodes, at least 16 bytes."""
    run_dir: str | None = Field(None, json_schema_extra=_flag("--run-dir"))
    """Private directory for everything we write; /tmp/entrypoint-UID-PORT where not given."""
    ssh: SshSpec = SshSpec()
    mpi: MpiSpec = MpiSpec()
    torch: TorchSpec = TorchSpec()
    timeouts: TimeoutSpec = TimeoutSpec()

    _sources: Mapping[str, Source] = PrivateAttr(default_factory=dict)
    _secret: SecretStr | None = PrivateAttr(default=None)

    def source(self, path: str) -> Source:
        """Where the value at `path` (such as `ssh.port`) came from."""
        return self._sources.get(path, DEFAULT)

    @property
    def secret(self) -> SecretStr | None:
        """`ENTRYPOINT_SECRET`; never a field, so that it can be neither in a file nor in what is printed."""
        return self._secret


# ---------------------------------------------------------------------------------------------------------------
# What follows from both


@dataclass(frozen=True)
class Node:
    """One container of the job."""

    rank: int
    host: str  # name in the hostfile, and in what people read
    slots: int
    address: str | None = None  # fixed address where the user gave one; else DNS says


@dataclass(frozen=True)
class Topology:
    """Where every process of the job runs, seen from node `me`."""

    job: str
    nodes: tuple[Node, ...]
    me: int
    platform: str
    device: Device
    run_dir: str  # this node's own; another node's may lie elsewhere
    user: str  # who ssh logs in as
    origins: Mapping[str, Source] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert [node.rank for node in self.nodes] == list(range(len(self.nodes)))
        assert 0 <= self.me < len(self.nodes)

    @property
    def leader(self) -> Node:
        return self.nodes[0]

    @property
    def this(self) -> Node:
        return self.nodes[self.me]

    @property
    def is_leader(self) -> bool:
        return self.me == 0

    @property
    def peers(self) -> tuple[Node, ...]:
        """Every node but this one."""
        return tuple(node for node in self.nodes if node.rank != self.me)

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return sum(node.slots for node in self.nodes)


@dataclass(frozen=True)
class Attendance:
    """What one node said of itself at the roll call."""

    rank: int
    slots: int
    toolkit: str  # version of this package there
    mpi: str = ""  # version of Open MPI there, "" where there is none
    address: str = ""  # where the leader reached it
    clock: float = 0.0  # its wall clock minus the leader's, seconds


@dataclass(frozen=True)
class Roster:
    """Everyone's answer, in rank order. `assumed` where it was made up for a dry run."""

    attendances: tuple[Attendance, ...]
    assumed: bool = False


@dataclass(frozen=True)
class File:
    """A file that the run writes into its run directory. The text of a secret one is never printed."""

    name: str
    text: str
    origin: str  # the template it was rendered from
    mode: int = 0o644
    secret: bool = False


@dataclass(frozen=True)
class EnvVar:
    """A variable the program gets beside what its container was given; a user's own value wins over a `default` one."""

    name: str
    value: str
    origin: str
    default: bool = False


@dataclass(frozen=True)
class Launch:
    """What a launcher answers: how ranks start on this node."""

    argv: tuple[str, ...] | None  # None: ranks are started from elsewhere, this node waits until released
    files: tuple[File, ...] = ()
    env: tuple[EnvVar, ...] = ()  # for argv alone, not for ranks on other nodes
    rank_env: tuple[EnvVar, ...] = ()  # for the ranks of every node
    needs_ssh: bool = False  # cannot work on many nodes without sshd and keys
    wraps_ranks: bool = False  # every rank starts through rank.sh, which tells of its start and end
    ranks: int | None = None  # how many of them there will be, on all nodes
    # Whose exit status is the job's: the leader's command, or the first command of any node that fails.
    verdict: Literal["leader", "first-failure"] = "leader"


@dataclass(frozen=True)
class Plan:
    """What this node will do, before it does any of it."""

    topology: Topology
    launcher: str
    launch: Launch
    workdir: str
    env: tuple[EnvVar, ...]  # what the ranks of this node get beside the container's own
    files: tuple[File, ...]  # everything written into the run directory
    roll_call: Literal["none", "wanted", "required"]
    roster: Roster


@dataclass(frozen=True)
class Outcome:
    """How the job ended: an exit status and the reason in one sentence."""

    status: int
    reason: str
