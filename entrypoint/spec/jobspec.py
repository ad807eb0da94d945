"""The job spec: each field with its rule, its other names and its meaning."""

# Without `from __future__ import annotations`: table.py reads the annotations as values. They
# contain a field's Rule, its flags, and the variables of other tools that set it if
# `ENTRYPOINT_<FIELD>` does not.
import contextlib
import functools
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from entrypoint.base.model import DEFAULT, SSH_PORT, Source
from entrypoint.base.secret import Secret
from entrypoint.base.values import field, frozen
from entrypoint.spec.logs import LogsSpec
from entrypoint.spec.rules import (
    ADDRESS,
    CALL_IN,
    INTERFACE,
    JOB_NAME,
    MAX_NODES,
    MAX_SLOTS,
    PATH,
    PORTS,
    RUN_DIR,
    HostEntry,
    Rule,
    adapter,
)

PREFIX = "ENTRYPOINT_"
Port = Annotated[int, Rule(ge=1, le=65535)]
_PORT_OR_AUTO = Rule(ge=1, le=65535, word="auto")
Count = Annotated[int, Rule(ge=0)]
NonNegative = Annotated[float, Rule(ge=0)]
Positive = Annotated[float, Rule(gt=0)]
Path = Annotated[str, PATH]
_NODES = r"^[1-9]\d{0,4}(:[1-9]\d{0,4})?$"
_LONGEST_LINE = 200  # characters of `stall.line`


@frozen
class SshSpec:
    """Settings of ssh, by which the nodes of one job reach each other. Not used by a one-node job.

    port:
      TCP port of sshd on every node; above 1023 unless the entrypoint runs as root. On a parameter
      server it is one more. `auto` is a port of `network.ports` that follows from the job's keys
      and the scheduler's number of the job, so that two jobs on one host seldom have the same one;
      it is the default under Slurm, PBS and LSF.
    client_key: Path of a mounted private key that the leader logs in with; needs `ssh.host_key`
      too.
    host_key: Path of a mounted private host key for this node's sshd; needs `ssh.client_key` too.
    known_hosts:
      Path of a known_hosts file with every node's host key; if not given, all nodes have the same
      `ssh.host_key`.
    client:
      `files` writes the files that an ssh client needs into the run directory of worker-0, with a
      private key. A job can then log in to its own nodes with `sh $ENTRYPOINT_RUN_DIR/ssh
      worker-1`. The toolkit itself does not need them.
    compat:
      `baked-keys` uses the private key of an old image, named by `ssh.client_key`, as the job's
      secret. Everybody who has the image can then log in, and every start warns. Host keys are
      pinned nevertheless.
    """

    port: Annotated[
        int | Literal["auto"], _PORT_OR_AUTO, "--ssh-port", "MY_SSHD_PORT", "SSHD_PORT"
    ] = SSH_PORT
    client_key: Path | None = None
    host_key: Path | None = None
    known_hosts: Path | None = None
    client: Literal["none", "files"] = "none"
    compat: Literal["none", "baked-keys"] = "none"


@frozen
class NetworkSpec:
    """The network that training uses, under every launcher.

    interface:
      The network interface for Open MPI (btl and daemons), NCCL, Gloo and HCCL: its name, the
      beginning of its name (`ib`), or its network (`10.0.0.0/24`) if its name differs between
      nodes. A node without it is an error. With `auto`, a node with several interfaces uses the one
      that the roll call came over. Libraries' own variables win.
    ports:
      Range of TCP ports from which the nodes choose another one, the same on all nodes, if the
      default of `port` is taken, and the range of `ssh.port: auto`. A port that you set is kept.
    """

    interface: Annotated[str, INTERFACE, "--network-interface"] = "auto"
    ports: Annotated[str, PORTS] = "20000-20999"

    @property
    def asked(self) -> str:
        """Return the interface that is asked for; "" if the roll call decides."""
        return "" if self.interface == "auto" else self.interface


@frozen
class MpiSpec:
    """The parts of the mpirun line. Each field has the documented ModelArts variable as a second
    name. OPENMPI_BIND_ARGS, OPENMPI_X_ARGS, OPENMPI_MCA_ARGS and TUNE_ENV_FILE are variables alone,
    of the container or in `env`.

    np: Number of all ranks; the sum of all nodes' slots if not given.
    hostfile: Path of your own hostfile; if not given, the one that the toolkit writes after the
      roll call.
    interface:
      Network interfaces, comma-separated, for the TCP traffic of Open MPI, NCCL and Gloo under
      every launcher, passed as written. `network.interface` looks for one on each node; if both are
      given, they must have the same value. If neither is given, a node with several interfaces uses
      the one that the roll call came over; otherwise only NCCL gets a setting, under mpirun, and
      only ib0,bond0,eth0.
    """

    np: Annotated[int | None, Rule(ge=1, le=MAX_NODES * MAX_SLOTS), "OPENMPI_NP"] = None
    hostfile: Annotated[Path | None, "OPENMPI_HOST_FILE_PATH"] = None
    interface: Annotated[str | None, "MY_MPI_BTL_TCP_IF"] = None


@frozen
class TorchSpec:
    """Settings of torchrun, torch.distributed.launch and PyTorch's mp.spawn.

    rdzv_backend:
      Rendezvous backend of torchrun; `auto` is static, which starts sooner and keeps the order of
      `hosts`, but c10d for elastic jobs, with `torch.max_restarts`, and on one node.
    max_restarts: torchrun's own --max-restarts.
    rank_args:
      When the launcher `pytorch` adds --rank and --world_size, which count nodes: `auto` only on
      more than one node, `always` also on one.
    """

    rdzv_backend: Annotated[Literal["auto", "c10d", "static"], "RDZV_BACKEND"] = "auto"
    max_restarts: Annotated[Count, "MAX_RESTARTS", "PET_MAX_RESTARTS"] = 0
    rank_args: Literal["auto", "always"] = "auto"


@frozen
class TensorflowSpec:
    """TensorFlow's parameter servers and workers, as the launcher `tensorflow` starts them.

    ps: Number of parameter servers, which are the last of `hosts`.
    chief: The coordinator (the chief in TF_CONFIG): with `worker-0` the job ends when worker-0
      ends, and the other workers only serve it, as under ParameterServerStrategy.
    """

    ps: Count = 0
    chief: Literal["none", "worker-0"] = "none"


@frozen
class RaySpec:
    """Settings of Ray: its head is on worker-0, and the other nodes join.

    dashboard: Whether worker-0 serves Ray's dashboard: `local` serves it only at its own 127.0.0.1,
      port 8265.
    """

    dashboard: Literal["none", "local"] = "none"


@frozen
class AscendSpec:
    """Ascend NPUs: the launcher `ascend` starts one process for each.

    rank_table:
      Whether to wait for a rank table of the platform (RANK_TABLE_FILE, else
      /user/config/jobstart_hccl.json); with `none` ranks are counted from `hosts` and `slots`.
    """

    rank_table: Literal["wait", "none"] = "wait"


def _check_line(text: str) -> tuple[str, str] | None:
    """Return what is wrong with the text of a line that shows progress, and a hint."""
    if text.count("{step}") == 1 and text.strip() != "{step}" and len(text) <= _LONGEST_LINE:
        return None
    new = re.sub(r"\(?(\\d|\[0-9\])\+\)?", "{step}", text)
    is_example = new != text and new.count("{step}") == 1 and not set(new) & set("\\()[]*+?|^$")
    hint = f"write {{step}} where the number is, such as `{new if is_example else 'step {step}/'}`"
    return "not a text with {step} in it: a regular expression is not allowed", hint


@frozen
class StallSpec:
    """Detection of a job that no longer makes progress, and the reaction to it.

    minutes: Minutes without output from any rank, or without a line that `line` matches from some
      rank, after which the Python stacks of all ranks are read and compared; 0 means never.
    first:
      Minutes from the start of the programs in which nothing counts as a stall, for the first step,
      which may have to compile: until a rank prints a line that `line` matches.
    action: Whether the job then continues (`warn`) or ends with 75 (`stop`) if a rank differs from
      the others, or after five times `minutes`.
    line:
      Text of a line that a rank prints as it makes progress, with `{step}` in place of the number,
      such as `step {step}/`. A rank that has printed such a line, and then prints none for
      `minutes`, has stalled even if it prints other things.
    """

    minutes: NonNegative = 0.0
    first: NonNegative = 0.0
    action: Literal["warn", "stop"] = "warn"
    line: Annotated[str | None, Rule("text such as step {step}/", check=_check_line)] = None

    @property
    def any(self) -> bool:
        """Return whether a program's output must be watched."""
        return self.minutes > 0 or self.line is not None


@frozen
class MetricsSpec:
    """Prometheus metrics of each node's entrypoint; off unless a port is given.

    port: TCP port that serves /metrics on every node, to everybody who can connect to it.
    address: IP address that the port listens at, such as 0.0.0.0 for a Prometheus outside of the
      container.
    """

    port: Port | None = None
    address: Annotated[str, ADDRESS] = "127.0.0.1"


@frozen
class NetcheckSpec:
    """Requirements of `entrypoint netcheck` on the network between the nodes. With `when: before`,
    `run` measures it, too.

    when:
      With `before`, `run` measures before it first starts the program; with `asked`, only
      `entrypoint netcheck` measures. In an elastic job (`nodes`), the nodes that are there at the
      start measure.
    max_latency_ms: Maximum milliseconds of an all-reduce of 8 bytes between two nodes; above it the
      job ends with 75. 0 means no limit.
    min_bandwidth_gbps: Minimum Gbit/s of a large all-reduce between two nodes; below it the job
      ends with 75. 0 means no limit.
    action: What happens if a node is slow compared with the others: `warn` reports it, `stop` ends
      the job with 75.
    seconds: Seconds that each pair spends on large all-reduces. After 600 times as long, the
      pairs that are left are counted, not measured.
    """

    when: Literal["asked", "before"] = "asked"
    max_latency_ms: NonNegative = 0.0
    min_bandwidth_gbps: NonNegative = 0.0
    action: Literal["warn", "stop"] = "warn"
    seconds: Annotated[float, Rule(gt=0, le=60)] = 0.5

    @property
    def limit(self) -> float:
        """Seconds for all pairs."""
        return 600 * self.seconds


_URL = "URL such as https://collector/jobs"


def _check_url(text: str) -> tuple[str, str] | None:
    from urllib.parse import urlsplit  # slow to import, and most jobs have none

    with contextlib.suppress(ValueError):  # of the host, or the port
        parts = urlsplit(text)
        if parts.hostname and parts.port != 0:
            return None
    return f"a {_URL} is needed", 'write for example "https://collector/jobs"'


@frozen
class NotifySpec:
    """Notification at the end of the job.

    url:
      Where worker-0 sends the job's result, by POST as JSON, once the job has ended. It takes 5 s
      at most and never changes the exit status. The URL counts as a secret.
    """

    url: Annotated[
        str | None, Rule(_URL, check=_check_url, pattern="[hH][tT][tT][pP][sS]?://[!-~]+")
    ] = field(default=None, repr=False)


@frozen
class TimeoutSpec:
    """Time limits, in seconds.

    peers: Seconds until every peer must have answered the roll call.
    join: Seconds that the roll call waits for the other nodes after the minimum number of `nodes`,
      or all but the `spares`, have answered.
    launch: Seconds in which mpirun must have started every rank, once all nodes are there.
    heartbeat: Seconds of silence after which a peer counts as lost.
    grace: Seconds between SIGTERM and SIGKILL when the job is stopped.
    job:
      Seconds from the start of the first node's entrypoint until the job is stopped, restarts
      included: SIGTERM, the grace, and 72 on every node. With `scheduler`, early enough that the
      grace is over before the time limit that Slurm gives the job (SLURM_JOB_END_TIME).
    """

    peers: Annotated[float, Rule(gt=0), "--timeout"] = 600.0
    join: NonNegative = 30.0
    launch: Positive = 120.0
    heartbeat: Annotated[float, Rule(ge=1)] = 10.0
    grace: NonNegative = 30.0
    job: Annotated[float | Literal["scheduler"] | None, Rule(gt=0, word="scheduler")] = None


@frozen
class RestartsSpec:
    """Restarts of the job after a failure. `restarts: 3` is the same as `restarts: {most: 3}`.

    most: Number of times that the job boots again after the infrastructure failed (75), on every
      node, once all are back.
    without_progress: Number of attempts in a row without progress after which the job ends with 79,
      which no scheduler should retry; 0 means never. If neither `restarts.progress` nor
      `stall.line` is given, ranks that run for 10 minutes are progress.
    progress:
      Path of a file or folder whose change counts as progress, such as the folder of checkpoints: a
      file in it that is new, or has another time or size, and is finished. A node that sees such a
      change during an attempt reports it. Any change there is a sign of life for `stall`. The end
      of an attempt that was stopped says what was saved there after SIGTERM.
    leaves: Number of attempts that may end since a worker left: it was told to stop (SIGTERM, or
      `entrypoint leave`) in a job with `restarts`, or in an elastic one. They are no failures, and
      do not count in `most`. After so many, such a signal stops the job.
    on:
      What the job boots again after. `infrastructure`: a node was lost or stalled, or a program
      failed for a cause that is certainly not its own and that a retry may cure, such as an ECC
      error of a GPU. `lost-nodes`: only the first. `any`: every failure of a program, too.
    """

    most: Annotated[Count, "--restarts"] = 0
    without_progress: Count = 0
    progress: Path | None = None
    leaves: Count = 100
    on: Literal["infrastructure", "any", "lost-nodes"] = "infrastructure"


@frozen
class GateSpec:
    """Checks of each node by itself before each attempt. A node that is not healthy never gets a
    rank: a spare takes its place, or the job ends with 71.

    cards:
      Whether the node's cards are checked with nvidia-smi or npu-smi, if installed: `auto` does so
      if the job may start again or has spare nodes (`restarts`, `spares`).
    folder: Directory of executables that check a node, one after the other by name: 0 means
      healthy; otherwise the last line is the reason.
    seconds: Seconds for the cards, and again for all executables. A check that takes longer is
      ended and has no result. Twice as long the node waits until nothing else uses the memory of
      the cards.
    """

    cards: Literal["auto", "always", "never"] = "auto"
    folder: Path = "/etc/entrypoint/health.d"
    seconds: Annotated[float, Rule(gt=0, le=3600)] = 30.0

    @property
    def memory_wait(self) -> float:
        """Seconds to wait until the memory of the cards is free."""
        return 2 * self.seconds

    @property
    def limit(self) -> float:
        """Seconds that all of it may take on one node."""
        return 2 * self.seconds + self.memory_wait


@frozen
class FailuresSpec:
    """Effect of a program's failure on the exit status.

    status:
      `own` exits with the program's own status. `class` exits with 75 instead if the cause is
      certainly the infrastructure and a retry may help, and with 71 if only a retry on other nodes
      may, so that every scheduler that retries these statuses retries the right failures.
    """

    status: Literal["own", "class"] = "own"


SHORT = {"restarts": "most"}
"""Sections that may be written as one value -> the field that it sets. The path of this field is
that of its section."""


def leaf_path(section: str, name: str) -> str:
    """Return the path of a field of the section at a path; "" is the whole spec."""
    if SHORT.get(section) == name:
        return section
    return f"{section}.{name}" if section else name


def variable(path: str) -> str:
    """Return the variable that sets the field at this path, or that is at `env.NAME`."""
    section, _, name = path.partition(".")
    return name if section == "env" and name else PREFIX + path.replace(".", "_").upper()


@frozen
class JobSpec:
    """One training job. Every field is optional: a command alone is a one-node job.

    name: Name of the job, a DNS label; it also separates the keys of two jobs that share a secret.
    command: The training program and its arguments, one list entry each; arguments after `--`
      replace it.
    launcher: How ranks are started; if not given, mpirun for more than one rank, otherwise plain.
    launcher_args: More options for the launcher, each passed as it is: mpirun, mpiexec.hydra,
      torchrun, torch.distributed.launch, `accelerate launch`, DeepSpeed's launcher, msrun, or `ray
      start` on every node. The other launchers have none.
    port:
      TCP port on worker-0 where the launcher's processes meet: MASTER_PORT and the rendezvous of
      torch, JAX's coordinator, MindSpore's scheduler, Ray's head, whose other servers have the six
      ports after it on every node; or the port of TensorFlow's server on every node, one more on a
      parameter server. If not given, 6060, but 6070 for jax, 8118 for msrun, 6379 for ray and 2222
      for tensorflow.
    workdir: Working directory of the program; the current directory if not given.
    env: Variables for the program on every node, in addition to each node's own.
    platform: The platform that started the containers; recognised by its variables if not given.
    device: The device that the ranks compute on; recognised by its files in /dev if not given.
    hosts: Host names of all nodes in rank order, worker-0 first; `NAME=ADDRESS` if DNS does not
      know the name, `NAME:SLOTS` or `NAME:SLOTS=ADDRESS` if a node has other slots than the rest.
      `call-in`: worker-0 learns them as they log in to it, at MASTER_ADDR or `call-in=ADDRESS`.
    nodes:
      Minimum and maximum number of nodes of an elastic job under torchrun, such as `2:4`; `hosts`
      names the maximum. The job starts with the minimum, continues while as many are left, and
      accepts nodes that start later. `1` says that this node trains alone, whatever variables of
      an unknown platform say. Another number counts the nodes that call in, without `spares`.
    spares: Number of standby nodes, taken from the end of `hosts`. One takes the place of a node
      that is lost or keeps failing when the job boots again (`restarts`).
    node_rank: Index of this node in `hosts`; found by this container's host name if not given.
    slots: Processes (ranks) on each node; the number of accelerators, or 1, if not given. An entry
      of `hosts` may have its own number.
    secret_file: Path of a file with the job's secret, the same on all nodes, at least 16 bytes.
    roll_call:
      Whether the nodes of a job call each other before anything starts, which needs a secret.
      `none` allows several nodes without a secret: no node then notices that another is missing,
      fails or is lost, each node exits with a status of its own, and every start warns. `mpirun`,
      `hydra` and `ray` on several nodes need the roll call.
    success:
      Whose end is the job's success. `all`: every rank has exited with 0. `first`: rank 0 has; all
      others then get SIGTERM and the grace, however they end. A rank that fails before ends the job
      either way.
    run_dir: Private directory for the toolkit's files; /tmp/entrypoint-UID-PORT if not given.
    log_dir: Directory for logs that outlive the job; the platform's, else the run directory's name
      with `-log`.
    pre_start:
      Whether to run the script that the platform's own boot would run on each node before the
      program, and that users put next to their code: on ModelArts ma-pre-start.sh. Variables that
      it exports are for the ranks of its node.
    prefix:
      How the toolkit's lines begin: `[entrypoint worker-1]`, or with `job` also with the job's name
      and the host, for logs that contain several jobs: `[entrypoint demo worker-1 HOST]`.
    """

    name: Annotated[
        str, Rule("DNS label (a-z, 0-9 and -, up to 63)", pattern=JOB_NAME), "--name"
    ] = "job"
    command: tuple[str, ...] = ()
    launcher: Annotated[str | None, adapter("launchers"), "-l", "--launcher"] = None
    launcher_args: tuple[str, ...] = ()
    port: Port | None = None
    workdir: Annotated[Path | None, "--workdir"] = None
    env: Mapping[str, str] = field(default_factory=dict)
    platform: Annotated[str | None, adapter("platforms"), "--platform"] = None
    device: Annotated[str | None, adapter("devices"), "--device"] = None
    hosts: Annotated[tuple[str, ...], Rule(word=CALL_IN), "--hosts"] = ()
    nodes: Annotated[str | None, Rule("number, or pair of numbers such as 2:4", pattern=_NODES)] = (
        None
    )
    spares: Annotated[Count, "--spares"] = 0
    node_rank: Annotated[Count | None, "--node-rank", "MY_TASK_INDEX"] = None
    slots: Annotated[int | None, Rule(ge=1, le=MAX_SLOTS), "--slots", "MY_MPI_SLOTS"] = None
    secret_file: Annotated[Path | None, "--secret-file"] = None
    roll_call: Literal["required", "none"] = "required"
    restarts: RestartsSpec = RestartsSpec()
    failures: FailuresSpec = FailuresSpec()
    success: Literal["all", "first"] = "all"
    gate: GateSpec = GateSpec()
    run_dir: Annotated[str | None, RUN_DIR, "--run-dir"] = None
    log_dir: Annotated[str | None, Rule(is_path=True), "--log-dir"] = None
    pre_start: Literal["run", "skip"] = "run"
    prefix: Literal["node", "job"] = "node"
    ssh: SshSpec = SshSpec()
    network: NetworkSpec = NetworkSpec()
    mpi: MpiSpec = MpiSpec()
    torch: TorchSpec = TorchSpec()
    tensorflow: TensorflowSpec = TensorflowSpec()
    ray: RaySpec = RaySpec()
    ascend: AscendSpec = AscendSpec()
    stall: StallSpec = StallSpec()
    metrics: MetricsSpec = MetricsSpec()
    netcheck: NetcheckSpec = NetcheckSpec()
    notify: NotifySpec = NotifySpec()
    logs: LogsSpec = LogsSpec()
    timeouts: TimeoutSpec = TimeoutSpec()

    _sources: Mapping[str, Source] = field(default_factory=dict, repr=False)
    _secret: Secret | None = field(default=None, repr=False)
    # values of former settings by their paths, and of the variables that replace some by `env.NAME`
    _more: Mapping[str, Any] = field(default_factory=dict, repr=False)
    _renamed: tuple[str, ...] = ()

    def source(self, path: str) -> Source:
        """Return the source of the value at `path` (such as `ssh.port`)."""
        return self._sources.get(path, DEFAULT)

    def setting(self, path: str) -> str:
        """Return what sets the value at `path`, for a hint: the flag or variable that the user
        gave, its place in the file, else the variable that would."""
        source = self.source(path)
        if source.origin == "spec":
            return f"{path} ({source.where})"
        return source.where or variable(path)

    @property
    def renamed(self) -> list[str]:
        """Return a warning if the user gave former names of settings."""
        names = ", ".join(self._renamed)
        return [f"EP131 settings have other names | {names} | rename them"] if names else []

    def option(self, name: str) -> str:
        """Return the value of a variable with options of mpirun; "" if it is not set."""
        value: str = self._more.get(f"env.{name}") or self.env.get(name, "")
        return value

    def value(self, path: str) -> Any:
        """Return the value at `path`."""
        if path in self._more:
            return self._more[path]
        value = functools.reduce(getattr, path.split("."), self)
        return getattr(value, SHORT[path]) if path in SHORT else value

    @property
    def elastic(self) -> str | None:
        """Minimum and maximum number of nodes, as MIN:MAX; None if the job is not elastic."""
        return self.nodes if ":" in (self.nodes or "") else None

    @property
    def count(self) -> int:
        """The number of nodes, if `nodes` is one number; otherwise 0."""
        return 0 if self.elastic else int(self.nodes or 0)

    def calls(self, nodes: int) -> bool:
        """Return whether so many nodes call each other, for which they need a secret."""
        return nodes > 1 and self.roll_call == "required"

    def slots_of(self, rank: int) -> int | None:
        """Return the slots of a node from its entry of `hosts`, or from `slots`; None if neither is
        set."""
        slots = HostEntry.of(self.hosts[rank]).slots if rank < len(self.hosts) else None
        return self.slots if slots is None else int(slots)

    @property
    def secret(self) -> Secret | None:
        """`ENTRYPOINT_SECRET`; not a field, so that it can be neither in a file nor in printed
        values."""
        return self._secret
