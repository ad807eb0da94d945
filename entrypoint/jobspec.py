"""What the user asked for: the job spec, each field with its meaning, and where each value came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr

from entrypoint.secret import is_secret

Origin = Literal["flag", "env", "spec", "platform", "default"]


@dataclass(frozen=True)
class Source:
    """Where a value came from: its origin, and the flag, variable or file position itself."""

    origin: Origin
    where: str = ""

    def __str__(self) -> str:
        return f"{self.origin} {self.where}".strip()


DEFAULT = Source("default")

JOB_NAME = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
# Far beyond what we were ever tried with; what is over them is a slip of the pen.
MAX_NODES, MAX_SLOTS = 16384, 4096


@dataclass(frozen=True)
class HostEntry:
    """An entry of `hosts`, `NAME[:SLOTS][=ADDRESS]`, taken apart and not checked; None for what it leaves out."""

    name: str
    slots: str | None = None
    address: str | None = None

    @classmethod
    def of(cls, text: str) -> HostEntry:
        """The entry's parts. Only one `:` can be that of slots: an IPv6 address in the name's place stays whole."""
        name, given, address = text.partition("=")
        name, colon, slots = name.partition(":") if name.count(":") == 1 else (name, "", "")
        return cls(name, slots if colon else None, address if given else None)


class _Section(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, hide_input_in_errors=True
    )


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
    """TCP port of sshd on every node; over 1023 where we do not run as root. On a parameter server it is one more."""
    client_key: str | None = Field(None)
    """Path of a mounted private key that the leader logs in with; needs `ssh.host_key` too."""
    host_key: str | None = Field(None)
    """Path of a mounted private host key for this node's sshd; needs `ssh.client_key` too."""
    known_hosts: str | None = Field(None)
    """Path of a known_hosts file with every node's host key; all nodes have the same `ssh.host_key` where not given."""
    compat: Literal["none", "baked-keys"] = Field("none")
    """`baked-keys` takes the private key that an old image brings, named by `ssh.client_key`, for the job's secret:
    whoever has the image can then log in, and every start warns of it. Host keys are pinned all the same."""


class MpiSpec(_Section):
    """What the mpirun line is made of. Each field has the documented ModelArts variable as a second name."""

    np: int | None = Field(None, ge=1, le=MAX_NODES * MAX_SLOTS, json_schema_extra=_alias("OPENMPI_NP"))
    """Ranks in all; slots summed over the nodes where not given."""
    hostfile: str | None = Field(None, json_schema_extra=_alias("OPENMPI_HOST_FILE_PATH"))
    """Path of your own hostfile; ours, written after the roll call, where not given."""
    interface: str | None = Field(None, json_schema_extra=_alias("MY_MPI_BTL_TCP_IF"))
    """Network interfaces, comma-separated, for the TCP traffic of Open MPI, NCCL and Gloo under every launcher. Where
    not given, and a node has several, the one that the roll call came over; else only NCCL is told, under mpirun, and
    only ib0,bond0,eth0."""
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

    version: str | None = Field(
        None, pattern=r"^\d+\.\d+(\.\d+)?([.+a-z][0-9A-Za-z.+-]*)?$", json_schema_extra=_alias("TORCH_VERSION")
    )
    """torch version to render for, such as "2.1"; the installed one, found when the script runs, where not given."""
    port: int = Field(6060, ge=1, le=65535, json_schema_extra=_alias("MASTER_PORT"))
    """TCP port on worker-0 where the nodes meet (the rendezvous, MASTER_PORT, --init_method)."""
    rdzv_backend: Literal["auto", "c10d", "static"] = Field("auto", json_schema_extra=_alias("RDZV_BACKEND"))
    """Rendezvous backend of torchrun; `auto` is static for torch 2.1, as ModelArts documents, else c10d."""
    max_restarts: int = Field(0, ge=0, json_schema_extra=_alias("MAX_RESTARTS", "PET_MAX_RESTARTS"))
    """torchrun's own --max-restarts."""
    extra_args: tuple[str, ...] = Field(())
    """More options for the launcher, each passed as it is."""
    rank_args: Literal["auto", "always"] = Field("auto")
    """When the launcher `pytorch` adds --rank and --world_size, which count nodes: `auto` on more than one node,
    `always` on one too."""


class TensorflowSpec(_Section):
    """TensorFlow's parameter servers and workers, as the launcher `tensorflow` starts them."""

    ps: int = Field(0, ge=0)
    """How many of `hosts` are parameter servers: the last ones."""
    port: int = Field(2222, ge=1, le=65535)
    """TCP port of TensorFlow's server on every node, where the platform gives none."""
    chief: Literal["none", "worker-0"] = Field("none")
    """Who coordinates (TF_CONFIG calls it chief): with `worker-0` the job ends when it does, and the other workers
    only serve it, as under ParameterServerStrategy."""


class MindsporeSpec(_Section):
    """How msrun starts MindSpore."""

    port: int = Field(8118, ge=1, le=65535)
    """TCP port of MindSpore's scheduler on worker-0."""
    extra_args: tuple[str, ...] = Field(())
    """More options for msrun, each passed as it is."""


class AscendSpec(_Section):
    """Ascend NPUs, one process each, as the launcher `ascend` starts them."""

    rank_table: Literal["wait", "none"] = Field("wait")
    """Whether the platform writes a rank table (RANK_TABLE_FILE, else /user/config/jobstart_hccl.json), which is waited
    for; with `none` ranks are counted from `hosts` and `slots`."""


class StallSpec(_Section):
    """What to do about a job that says nothing any more."""

    minutes: float = Field(0.0, ge=0)
    """Minutes without output from any rank after which every rank's Python stack is shown; 0 never."""
    action: Literal["warn", "stop"] = Field("warn")
    """Whether the job then goes on, or ends with 75."""


class TimeoutSpec(_Section):
    """How long, in seconds, we wait for what."""

    peers: float = Field(600.0, gt=0, json_schema_extra=_flag("--timeout"))
    """Seconds until every peer must have answered the roll call."""
    launch: float = Field(120.0, gt=0)
    """Seconds in which mpirun must have started every rank, once all nodes are there."""
    lease: float = Field(15.0, ge=1)
    """Seconds of silence after which a peer counts as lost."""
    grace: float = Field(30.0, ge=0)
    """Seconds between SIGTERM and SIGKILL when the job is stopped."""


class JobSpec(_Section):
    """One training job. Every field is optional: a command alone is a one-node job."""

    name: str = Field("job", pattern=JOB_NAME, json_schema_extra=_flag("--name"))
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
    """Host names of all nodes in rank order, worker-0 first; `NAME=ADDRESS` where no DNS knows the name,
    `NAME:SLOTS` or `NAME:SLOTS=ADDRESS` where a node has other slots than the rest."""
    node_rank: int | None = Field(None, ge=0, json_schema_extra={**_flag("--node-rank"), **_alias("MY_TASK_INDEX")})
    """Index of this node in `hosts`; found by this container's host name where not given."""
    slots: int | None = Field(
        None, ge=1, le=MAX_SLOTS, json_schema_extra={**_flag("--slots"), **_alias("MY_MPI_SLOTS")}
    )
    """Processes (ranks) on each node, but for those whose entry in `hosts` has its own; the number of accelerators,
    or 1, where not given."""
    secret_file: str | None = Field(None, json_schema_extra=_flag("--secret-file"))
    """Path of a file with the job's secret, the same on all nodes, at least 16 bytes."""
    restarts: int = Field(0, ge=0, json_schema_extra=_flag("--restarts"))
    """How many times the job boots again after the infrastructure failed (75): on every node, once all are back."""
    run_dir: str | None = Field(None, json_schema_extra=_flag("--run-dir"))
    """Private directory for everything we write; /tmp/entrypoint-UID-PORT where not given."""
    log_dir: str | None = Field(None, json_schema_extra=_flag("--log-dir"))
    """Directory for logs that outlive the job; the platform's, else the run directory's name with `-log`."""
    prefix: Literal["node", "job"] = Field("node")
    """What our lines begin with: `[entrypoint worker-1]`, or with `job` the job's name and the host as well, for logs
    that hold several jobs: `[entrypoint demo worker-1 HOST]`."""
    ssh: SshSpec = SshSpec()
    mpi: MpiSpec = MpiSpec()
    torch: TorchSpec = TorchSpec()
    tensorflow: TensorflowSpec = TensorflowSpec()
    mindspore: MindsporeSpec = MindsporeSpec()
    ascend: AscendSpec = AscendSpec()
    stall: StallSpec = StallSpec()
    timeouts: TimeoutSpec = TimeoutSpec()

    _sources: Mapping[str, Source] = PrivateAttr(default_factory=dict)
    _secret: SecretStr | None = PrivateAttr(default=None)

    def source(self, path: str) -> Source:
        """Where the value at `path` (such as `ssh.port`) came from."""
        return self._sources.get(path, DEFAULT)

    def slots_of(self, rank: int) -> int | None:
        """Slots of a node where its entry of `hosts`, or `slots`, says them."""
        own = HostEntry.of(self.hosts[rank]).slots if self.hosts else None
        return self.slots if own is None else int(own)

    def written_secrets(self) -> list[str]:
        """Variables in the spec file whose values may be secrets, by name: whoever reads the file has them."""
        return [name for name in self.env if is_secret(name) and self.source(f"env.{name}").origin == "spec"]

    @property
    def secret(self) -> SecretStr | None:
        """`ENTRYPOINT_SECRET`; never a field, so that it can be neither in a file nor in what is printed."""
        return self._secret
