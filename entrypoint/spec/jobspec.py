"""What the user asked for: the job spec, each field with what it takes, its other names and its meaning."""

# Without `from __future__ import annotations`: table.py reads the annotations as the values that they are. In them are
# a field's Rule, its flags, and the variables of other tools that set it when `ENTRYPOINT_<FIELD>` does not.
import functools
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from entrypoint.model import DEFAULT, Source
from entrypoint.secret import Secret, is_secret
from entrypoint.spec.logs import LogsSpec
from entrypoint.spec.rules import (
    ADDRESS,
    INTERFACE,
    JOB_NAME,
    MAX_NODES,
    MAX_SLOTS,
    PATH,
    RUN_DIR,
    HostEntry,
    Rule,
    adapter,
)
from entrypoint.values import dataclass, field

Port = Annotated[int, Rule(ge=1, le=65535)]
Count = Annotated[int, Rule(ge=0)]
Path = Annotated[str, PATH]
_NODES = r"^[1-9]\d{0,4}:[1-9]\d{0,4}$"
_TORCH_VERSION = r"^\d+\.\d+(\.\d+)?([.+a-z][0-9A-Za-z.+-]*)?$"


@dataclass(frozen=True)
class SshSpec:
    """How the nodes of one job reach each other. Not used by a one-node job.

    port: TCP port of sshd on every node; over 1023 where we do not run as root. On a parameter server it is one more.
    client_key: Path of a mounted private key that the leader logs in with; needs `ssh.host_key` too.
    host_key: Path of a mounted private host key for this node's sshd; needs `ssh.client_key` too.
    known_hosts:
      Path of a known_hosts file with every node's host key; all nodes have the same `ssh.host_key` where not given.
    client:
      `files` writes what an ssh client needs into the run directory of worker-0, with a private key: a job can then log
      in to its own nodes with `sh $ENTRYPOINT_RUN_DIR/ssh worker-1`. The toolkit itself needs none of it.
    compat:
      `baked-keys` takes the private key that an old image brings, named by `ssh.client_key`, for the job's secret:
      whoever has the image can then log in, and every start warns of it. Host keys are pinned all the same.
    """

    port: Annotated[Port, "--ssh-port", "MY_SSHD_PORT", "SSHD_PORT"] = 36666
    client_key: Path | None = None
    host_key: Path | None = None
    known_hosts: Path | None = None
    client: Literal["none", "files"] = "none"
    compat: Literal["none", "baked-keys"] = "none"


@dataclass(frozen=True)
class NetworkSpec:
    """The network that training uses, under every launcher.

    interface:
      The network interface for Open MPI (btl and daemons), NCCL, Gloo and HCCL: its name, the beginning of its name
      (`ib`), or its network (`10.0.0.0/24`), by which nodes may have other names for it. A node without it is an error.
      `auto` is, where a node has several, the one that the roll call came over. Libraries' own variables win over it.
    """

    interface: Annotated[str, INTERFACE, "--network-interface"] = "auto"


@dataclass(frozen=True)
class MpiSpec:
    """What the mpirun line is made of. Each field has the documented ModelArts variable as a second name.

    np: Ranks in all; slots summed over the nodes where not given.
    hostfile: Path of your own hostfile; ours, written after the roll call, where not given.
    interface:
      Network interfaces, comma-separated, for the TCP traffic of Open MPI, NCCL and Gloo under every launcher, passed
      as written. `network.interface` looks for one on each node, and must say the same where both are given.
      Where neither is, and a node has several, the one that the roll call came over; else only NCCL is told, under
      mpirun, and only ib0,bond0,eth0.
    tune_file:
      Path of an Open MPI -tune file to add. Not needed for variables: every rank gets its own node's environment.
    bind_args: mpirun's binding options; `--bind-to none --map-by slot` where not given.
    x_args: mpirun's -x options; the documented NCCL and Horovod ones where not given.
    mca_args: mpirun's -mca options; the documented ones where not given.
    extra_args: More options for mpirun, split at white space.
    """

    np: Annotated[int | None, Rule(ge=1, le=MAX_NODES * MAX_SLOTS), "OPENMPI_NP"] = None
    hostfile: Annotated[Path | None, "OPENMPI_HOST_FILE_PATH"] = None
    interface: Annotated[str | None, "MY_MPI_BTL_TCP_IF"] = None
    tune_file: Annotated[Path | None, "TUNE_ENV_FILE"] = None
    bind_args: Annotated[str | None, "OPENMPI_BIND_ARGS"] = None
    x_args: Annotated[str | None, "OPENMPI_X_ARGS"] = None
    mca_args: Annotated[str | None, "OPENMPI_MCA_ARGS"] = None
    extra_args: Annotated[str | None, "OPENMPI_EXTRA_ARGS"] = None


@dataclass(frozen=True)
class TorchSpec:
    """How torchrun, torch.distributed.launch and PyTorch's mp.spawn are started.

    version: torch version to render for, such as "2.1"; the installed one, found when the script runs, where not given.
    port: TCP port on worker-0 where the nodes meet (the rendezvous, MASTER_PORT, --init_method).
    rdzv_backend:
      Rendezvous backend of torchrun; `auto` is static for torch 2.1, as ModelArts documents, and where c10d would
      number the nodes in another order than `hosts`; else c10d.
    max_restarts: torchrun's own --max-restarts.
    extra_args: More options for the launcher, each passed as it is.
    rank_args:
      When the launcher `pytorch` adds --rank and --world_size, which count nodes: `auto` on more than one node,
      `always` on one too.
    """

    version: Annotated[str | None, Rule("version such as 2.1", pattern=_TORCH_VERSION), "TORCH_VERSION"] = None
    port: Annotated[Port, "MASTER_PORT"] = 6060
    rdzv_backend: Annotated[Literal["auto", "c10d", "static"], "RDZV_BACKEND"] = "auto"
    max_restarts: Annotated[Count, "MAX_RESTARTS", "PET_MAX_RESTARTS"] = 0
    extra_args: tuple[str, ...] = ()
    rank_args: Literal["auto", "always"] = "auto"


@dataclass(frozen=True)
class AccelerateSpec:
    """How `accelerate launch` is started, as the launcher `accelerate` does it. Its nodes meet at `torch.port`.

    extra_args: More options for it, each passed as it is: `--config_file`, `--mixed_precision`, `--use_fsdp`, ...
    """

    extra_args: tuple[str, ...] = ()


@dataclass(frozen=True)
class DeepspeedSpec:
    """How DeepSpeed's launcher is started, as the launcher `deepspeed` does it. Its processes meet at `torch.port`.

    extra_args: More options for it, each passed as it is.
    """

    extra_args: tuple[str, ...] = ()


@dataclass(frozen=True)
class JaxSpec:
    """JAX's processes, as the launcher `jax` starts them.

    port: TCP port of JAX's coordinator, which is the job's first process, on worker-0.
    """

    port: Annotated[Port, "JAX_COORDINATOR_PORT"] = 6070


@dataclass(frozen=True)
class TensorflowSpec:
    """TensorFlow's parameter servers and workers, as the launcher `tensorflow` starts them.

    ps: How many of `hosts` are parameter servers: the last ones.
    port: TCP port of TensorFlow's server on every node, where the platform gives none; one more on a parameter server.
    chief: Who coordinates (TF_CONFIG calls it chief): with `worker-0` the job ends when it does, and the other workers
      only serve it, as under ParameterServerStrategy.
    """

    ps: Count = 0
    port: Port = 2222
    chief: Literal["none", "worker-0"] = "none"


@dataclass(frozen=True)
class MindsporeSpec:
    """How msrun starts MindSpore.

    port: TCP port of MindSpore's scheduler on worker-0.
    extra_args: More options for msrun, each passed as it is.
    """

    port: Port = 8118
    extra_args: tuple[str, ...] = ()


@dataclass(frozen=True)
class RaySpec:
    """How Ray is started: its head on worker-0, the others join.

    port:
      TCP port of Ray's head (GCS) on worker-0; the six ports after it are those of Ray's other servers, on every node.
    dashboard: Whether worker-0 serves Ray's dashboard: `local` does, on its own 127.0.0.1 alone, port 8265.
    extra_args: More options for `ray start` on every node, each passed as it is.
    """

    port: Annotated[int, Rule(ge=1024, le=65529)] = 6379
    dashboard: Literal["none", "local"] = "none"
    extra_args: tuple[str, ...] = ()


@dataclass(frozen=True)
class AscendSpec:
    """Ascend NPUs, one process each, as the launcher `ascend` starts them.

    rank_table:
      Whether the platform writes a rank table (RANK_TABLE_FILE, else /user/config/jobstart_hccl.json), which is waited
      for; with `none` ranks are counted from `hosts` and `slots`.
    """

    rank_table: Literal["wait", "none"] = "wait"


@dataclass(frozen=True)
class StallSpec:
    """What to do about a job that says nothing any more.

    minutes: Minutes without output from any rank after which every rank's Python stack is shown; 0 never.
    action: Whether the job then goes on, or ends with 75.
    """

    minutes: Annotated[float, Rule(ge=0)] = 0.0
    action: Literal["warn", "stop"] = "warn"


@dataclass(frozen=True)
class MetricsSpec:
    """Prometheus metrics of each node's entrypoint; none if no port is given.

    port: TCP port that serves /metrics on every node, to anybody who reaches it.
    address: IP address that it listens at, such as 0.0.0.0 for a Prometheus outside of the container.
    """

    port: Port | None = None
    address: Annotated[str, ADDRESS] = "127.0.0.1"


@dataclass(frozen=True)
class NetcheckSpec:
    """What `entrypoint netcheck` asks of the network between the nodes, and whether `run` asks it too.

    when:
      `before` has `run` measure before it first starts the program, `asked` only `entrypoint netcheck`. Of an elastic
      job (`nodes`) those nodes measure that are there at the start.
    max_latency_ms: Milliseconds that a small round trip between two nodes may take; over it the job ends with 75. 0 has
      no limit.
    min_bandwidth_gbps: Gbit/s that one TCP stream must reach between two nodes, each way; below it the job ends with
      75. 0 has no limit.
    action: What happens if a node is slow compared with the others: `warn` reports it, `stop` ends the job with 75.
    seconds: Seconds for which each pair sends each way.
    limit: Seconds for all pairs; those that are left then are not measured, and counted.
    """

    when: Literal["asked", "before"] = "asked"
    max_latency_ms: Annotated[float, Rule(ge=0)] = 0.0
    min_bandwidth_gbps: Annotated[float, Rule(ge=0)] = 0.0
    action: Literal["warn", "stop"] = "warn"
    seconds: Annotated[float, Rule(gt=0, le=60)] = 0.5
    limit: Annotated[float, Rule(gt=0)] = 300.0


@dataclass(frozen=True)
class TimeoutSpec:
    """How long, in seconds, we wait for what.

    peers: Seconds until every peer must have answered the roll call.
    join: Seconds that the roll call waits for the other nodes once as many are there as `nodes` asks for at least.
    launch: Seconds in which mpirun must have started every rank, once all nodes are there.
    heartbeat: Seconds of silence after which a peer counts as lost.
    grace: Seconds between SIGTERM and SIGKILL when the job is stopped.
    """

    peers: Annotated[float, Rule(gt=0), "--timeout"] = 600.0
    join: Annotated[float, Rule(ge=0)] = 30.0
    launch: Annotated[float, Rule(gt=0)] = 120.0
    heartbeat: Annotated[float, Rule(ge=1)] = 15.0
    grace: Annotated[float, Rule(ge=0)] = 30.0


@dataclass(frozen=True)
class JobSpec:
    """One training job. Every field is optional: a command alone is a one-node job.

    name: Name of the job, a DNS label; it also separates the keys of two jobs that share a secret.
    command: The training program and its arguments, one list entry each; arguments after `--` replace it.
    launcher: How ranks are started; mpirun for more than one rank, else plain, where not given.
    workdir: Working directory of the program; the current one where not given.
    env: Variables for the program on every node, on top of each node's own.
    platform: Who started the containers; recognised by its variables where not given.
    device: What the ranks compute on; recognised by its files in /dev where not given.
    hosts: Host names of all nodes in rank order, worker-0 first; `NAME=ADDRESS` where no DNS knows the name,
      `NAME:SLOTS` or `NAME:SLOTS=ADDRESS` where a node has other slots than the rest.
    nodes:
      The least and the most nodes of an elastic job under torchrun, such as `2:4`; `hosts` names the most. It starts
      with the least, goes on while as many are left, and takes in those that come later.
    node_rank: Index of this node in `hosts`; found by this container's host name where not given.
    slots: Processes (ranks) on each node, but for those whose entry in `hosts` has its own; the number of accelerators,
      or 1, where not given.
    secret_file: Path of a file with the job's secret, the same on all nodes, at least 16 bytes.
    roll_call:
      Whether the nodes of a job call each other before anything starts, which needs a secret. `none` allows several
      nodes without one: none of them then notices that another is missing, fails or is lost, each ends with a status of
      its own, and every start warns of it. `mpirun`, `hydra` and `ray` on several nodes cannot do without.
    restarts: How many times the job boots again after the infrastructure failed (75): on every node, once all are back.
    run_dir: Private directory for everything we write; /tmp/entrypoint-UID-PORT where not given.
    log_dir: Directory for logs that outlive the job; the platform's, else the run directory's name with `-log`.
    pre_start:
      Whether the script runs that the platform's own boot would run on each node before the program, and that users put
      beside their code: on ModelArts ma-pre-start.sh. What it exports is for the ranks of its node.
    prefix:
      What our lines begin with: `[entrypoint worker-1]`, or with `job` the job's name and the host as well, for logs
      that hold several jobs: `[entrypoint demo worker-1 HOST]`.
    """

    name: Annotated[str, Rule("DNS label (a-z, 0-9 and -, up to 63)", pattern=JOB_NAME), "--name"] = "job"
    command: tuple[str, ...] = ()
    launcher: Annotated[str | None, adapter("launchers"), "-l", "--launcher"] = None
    workdir: Annotated[Path | None, "--workdir"] = None
    env: Mapping[str, str] = field(default_factory=dict)
    platform: Annotated[str | None, adapter("platforms"), "--platform"] = None
    device: Annotated[str | None, adapter("devices"), "--device"] = None
    hosts: Annotated[tuple[str, ...], "--hosts"] = ()
    nodes: Annotated[str | None, Rule("pair of numbers such as 2:4", pattern=_NODES)] = None
    node_rank: Annotated[Count | None, "--node-rank", "MY_TASK_INDEX"] = None
    slots: Annotated[int | None, Rule(ge=1, le=MAX_SLOTS), "--slots", "MY_MPI_SLOTS"] = None
    secret_file: Annotated[Path | None, "--secret-file"] = None
    roll_call: Literal["required", "none"] = "required"
    restarts: Annotated[Count, "--restarts"] = 0
    run_dir: Annotated[str | None, RUN_DIR, "--run-dir"] = None
    log_dir: Annotated[str | None, Rule(is_path=True), "--log-dir"] = None
    pre_start: Literal["run", "skip"] = "run"
    prefix: Literal["node", "job"] = "node"
    ssh: SshSpec = SshSpec()
    network: NetworkSpec = NetworkSpec()
    mpi: MpiSpec = MpiSpec()
    torch: TorchSpec = TorchSpec()
    accelerate: AccelerateSpec = AccelerateSpec()
    deepspeed: DeepspeedSpec = DeepspeedSpec()
    jax: JaxSpec = JaxSpec()
    tensorflow: TensorflowSpec = TensorflowSpec()
    mindspore: MindsporeSpec = MindsporeSpec()
    ray: RaySpec = RaySpec()
    ascend: AscendSpec = AscendSpec()
    stall: StallSpec = StallSpec()
    metrics: MetricsSpec = MetricsSpec()
    netcheck: NetcheckSpec = NetcheckSpec()
    logs: LogsSpec = LogsSpec()
    timeouts: TimeoutSpec = TimeoutSpec()

    _sources: Mapping[str, Source] = field(default_factory=dict, repr=False)
    _secret: Secret | None = field(default=None, repr=False)

    def source(self, path: str) -> Source:
        """Where the value at `path` (such as `ssh.port`) came from."""
        return self._sources.get(path, DEFAULT)

    def value(self, path: str) -> Any:
        """The value at `path`."""
        return functools.reduce(getattr, path.split("."), self)

    def calls(self, nodes: int) -> bool:
        """Return whether so many nodes call each other, for which they need a secret."""
        return nodes > 1 and self.roll_call == "required"

    def slots_of(self, rank: int) -> int | None:
        """Slots of a node where its entry of `hosts`, or `slots`, says them."""
        own = HostEntry.of(self.hosts[rank]).slots if self.hosts else None
        return self.slots if own is None else int(own)

    def written_secrets(self) -> list[str]:
        """Variables in the spec file whose values may be secrets, by name: whoever reads the file has them."""
        return [name for name in self.env if is_secret(name) and self.source(f"env.{name}").origin == "spec"]

    @property
    def secret(self) -> Secret | None:
        """`ENTRYPOINT_SECRET`; never a field, so that it can be neither in a file nor in what is printed."""
        return self._secret
