"""Names, ports, reachability, RDMA, rendezvous, collectives, lost peers, hubs and object stores."""

from __future__ import annotations

from entrypoint.causes.kinds import CONSEQUENCE, LAST_EXCEPTION, LIKELY, NAMED, PYTHON, WAITED
from entrypoint.causes.signature import Signature

_STALE = NAMED + 3  # below the message that names why the connection failed

# Linux takes them for port 0: another start gets another one.
_EPHEMERAL = r"3[3-9]\d{3}|[45]\d{4}|6[0-5]\d{3}"

ROWS = (
    # names
    Signature("dns", "emporary failure in name resolution", retry="same"),
    Signature("dns", "Name or service not known"),
    Signature(
        "dns", "No address associated with hostname", retry="unknown", certainty="low", always=True
    ),
    Signature(
        "dns",
        "cannot be retrieved (gai error",
        retry="unknown",
        certainty="low",
        always=True,
        weight=NAMED + 4,
    ),
    Signature("dns", "nodename nor servname provided"),
    Signature("dns", "NameResolutionError", certainty="low"),
    Signature("dns", "ould not resolve host"),
    Signature("dns", "getaddrinfo", pattern="(?i)fail|error|not known", certainty="low"),
    Signature(
        "dns",
        "nable to find address for",
        "a host's own name has no address on the chosen interface",
        retry="no",
        certainty="low",
    ),
    Signature("dns", "unsupported gloo device", retry="unknown", certainty="low"),
    Signature("dns", "DNS resolution failed"),
    Signature("dns", "gethostbyname", pattern="(?i)fail|error", certainty="low"),
    Signature("dns", "no such host"),
    # ports
    Signature(
        "addr-in-use",
        "ddress already in use",
        "a port that was chosen at random ({port}) was already in use",
        rf"(?:\]:|\.\d+:|\bport: )(?P<port>{_EPHEMERAL})[ ,]",
        retry="same",
        certainty="low",
        weight=NAMED - 1,
    ),
    Signature("addr-in-use", "ddress already in use"),
    Signature("addr-in-use", "EADDRINUSE"),
    Signature("addr-in-use", "Errno 98]"),
    Signature("addr-in-use", "errno: 98"),
    Signature(
        "addr-in-use",
        "port",
        pattern=(
            r"(?i)\bport\b.{0,40}\b(is )?(already (in use|used|occupied|allocated|"
            r"bound)|occupied|not available)|but another process is utilizing it"
        ),
    ),
    Signature("addr-in-use", "Only one usage of each socket address"),
    Signature("addr-in-use", "Failed to add port to server"),
    # reachability
    Signature(
        "net-unreachable", "No route to host", "there is no route to another node", certainty="high"
    ),
    Signature(
        "net-unreachable",
        "etwork is unreachable",
        "a network of another node is not reachable",
        retry="no",
    ),
    Signature("net-unreachable", "connectFullMesh failed"),
    Signature("net-unreachable", "ssh: connect to host", weight=NAMED + 5),
    Signature(
        "net-unreachable",
        "failed to connect to all addresses",
        role="cascade",
        blame="peer",
        weight=WAITED + 2,
    ),
    Signature(
        "net-unreachable",
        "onnection refused",
        pattern=r"(?i)(socket|connect|errno 111|errno: 111|c10d|nccl|tcp|grpc|ipv4)",
        role="unclear",
        blame="peer",
        weight=WAITED + 2,
    ),
    Signature(
        "net-unreachable",
        "Connection timed out",
        pattern="(?i)connect|socket|nccl",
        weight=LAST_EXCEPTION + 2,
    ),
    Signature(
        "net-unreachable",
        "failed to connect to any network address",
        role="unclear",
        weight=WAITED + 1,
    ),
    Signature(
        "net-unreachable",
        "unable to connect to",
        pattern="(?i)peer|rank|tcp",
        weight=LAST_EXCEPTION + 3,
    ),
    Signature("net-unreachable", "failed to call connect", weight=LAST_EXCEPTION + 2),
    Signature(
        "net-unreachable",
        "TCP connection",
        pattern="(?i)fail|could not|unable",
        weight=LAST_EXCEPTION + 3,
    ),
    # RDMA; completions: enum ibv_wc_status
    Signature("rdma-error", "Got completion from peer", pattern=r"(?:status=|error )(?:12|13)\b"),
    Signature(
        "rdma-error",
        "Got completion from peer",
        "an RDMA transfer failed, probably because of this node's set-up",
        r"(?:status=|error )(?:1|2|3|4|6|7|8|9|10|11)\b",
        blame="node",
    ),
    Signature(
        "rdma-error",
        "Got completion with error",
        pattern=r"(?i)(?:status=|error )(?:12|13|4|9|10|11)\b",
    ),
    Signature("peer-lost", "Got completion", pattern=r"(?:status=|error )(?:5)\b", certainty="low"),
    Signature("rdma-error", "ransport retry count exceeded"),
    Signature("rdma-error", "retry counter exceeded"),
    Signature("rdma-error", "RETRY EXCEEDED ERROR"),
    Signature("rdma-error", "RETRY_EXC_ERR"),
    Signature("rdma-error", "RNR_RETRY_EXC"),
    Signature("rdma-error", "ocal QP operation err"),
    Signature("rdma-error", "Remote access error", pattern="(?i)mlx|ib|rdma"),
    Signature("rdma-error", "Unresponsive receiver"),
    Signature("rdma-error", "IBV_WC_", pattern=r"IBV_WC_(?!SUCCESS|WR_FLUSH)"),
    Signature(
        "rdma-error",
        "ibv_",
        pattern=(
            r"(?i)ibv_(modify_qp|create_qp|reg_mr\w*|poll_cq|post_send|create_cq|"
            r"open_device|alloc_pd)[^.]{0,40}fail"
        ),
        weight=LIKELY + 1,
    ),
    Signature("rdma-error", "ibv_modify_qp failed", weight=LIKELY + 1),
    Signature(
        "setup",
        "Cannot allocate memory",
        "an RDMA call may not lock memory",
        pattern="(?i)ibv_|NET/IB|mlx5|hca",
        fix="raise the limit of locked memory: --ulimit memlock=-1",
        weight=NAMED,
    ),
    Signature(
        "rdma-error",
        "OFI",
        pattern=r"(?i)NET/OFI.{0,80}(fail|error|completion with error)",
        weight=LIKELY + 2,
    ),
    Signature(
        "rdma-error", "got async event", pattern="(?i)port error|fatal|GID", weight=LIKELY + 2
    ),
    Signature("rdma-error", "async fatal event"),
    Signature("peer-lost", "efa", pattern="(?i)invalid address", role="unclear", certainty="low"),
    # others did not come
    Signature("rendezvous-timeout", "client socket has timed out"),
    Signature("rendezvous-timeout", "waiting for clients", pattern=r"(?i)timed out"),
    Signature("rendezvous-timeout", "RendezvousTimeoutError"),
    Signature("rendezvous-timeout", "RendezvousConnectionError"),
    Signature("rendezvous-timeout", "connection to the C10d store has failed"),
    Signature("rendezvous-timeout", "RendezvousClosedError", role="cascade", weight=CONSEQUENCE),
    Signature("rendezvous-timeout", "wait timeout after"),
    Signature("rendezvous-timeout", "Socket Timeout", pattern="(?i)error: ?socket timeout"),
    Signature("rendezvous-timeout", "DistStoreError", pattern="(?i)time"),
    Signature("rendezvous-timeout", "Timeout waiting for key"),
    Signature("rendezvous-timeout", "Barrier timed out"),
    Signature(
        "rendezvous-timeout",
        "Timed out waiting for",
        pattern="(?i)(clients|ranks|workers|nodes|peers|placement|members)",
    ),
    Signature(
        "rendezvous-timeout", "DEADLINE_EXCEEDED", pattern="(?i)barrier|register|coordinat|connect"
    ),
    Signature(
        "collective-timeout", "monitoredBarrier", pattern="(?i)did not|timeout|timed out|failed"
    ),
    Signature("rendezvous-timeout", "Timed out initializing process group in store based barrier"),
    Signature(
        "rendezvous-timeout",
        "cluster",
        pattern=(
            "(?i)(timed? ?out|timeout).{0,60}(build|building|form|join).{0,20}(the "
            ")?cluster|failed to (register|connect) to .{0,30}scheduler"
        ),
    ),
    Signature("rendezvous-timeout", "TimeoutError", pattern="(?i)(rendezvous|store|barrier|key)"),
    # collectives
    Signature("collective-mismatch", "etected mismatch between collectives"),
    Signature(
        "collective-mismatch",
        "ismatched",
        pattern="(?i)mismatched (all\\w+|broadcast|reduce\\w*|collective|data type|tensor|shape)",
        weight=NAMED + 1,
    ),
    Signature("collective-mismatch", "DDP expects same model across all ranks"),
    Signature(
        "collective-mismatch",
        "essage truncated",
        pattern="(?i)MPI|bytes instead of|nccl",
        certainty="low",
    ),
    Signature("collective-mismatch", "MPI_ERR_TRUNCATE", certainty="low"),
    Signature("collective-mismatch", "op.preamble.length <= op.nbytes", certainty="low"),
    Signature("collective-mismatch", "ollectives differ in the following aspects"),
    Signature(
        "collective-timeout", "Watchdog caught collective operation timeout", weight=WAITED - 2
    ),
    Signature("collective-timeout", "collective operation timeout"),
    Signature("collective-timeout", "Timeout waiting for NCCL"),
    Signature(
        "collective-timeout", "timed out in", pattern="(?i)collective|allreduce|NCCL", weight=WAITED
    ),
    Signature(
        "collective-timeout", "Timed out waiting", pattern=r"(?i)waiting \d+ ?ms for (recv|send)"
    ),
    Signature("collective-timeout", "Application timeout caused pair closure"),
    Signature(
        "collective-timeout", "operations have been stuck", pattern="(?i)collective|subset|NCCL"
    ),
    Signature(
        "collective-timeout", "Some NCCL operations have failed or timed out", weight=WAITED + 2
    ),
    Signature(
        "collective-timeout",
        "ermination timeout of",
        pattern="(?i)rendezvous|collective",
        weight=WAITED + 3,
    ),
    Signature("collective-timeout", "NCCL's watchdog", weight=WAITED + 2),
    Signature(
        "collective-timeout", "One or more tensors were submitted to be reduced", weight=WAITED + 4
    ),
    Signature(
        "collective-timeout",
        "heartbeat monitor",
        pattern="(?i)timed? ?out|terminat|stuck",
        weight=WAITED + 1,
    ),
    Signature("collective-timeout", "Heartbeat monitor timed out", weight=WAITED + 1),
    Signature("collective-timeout", "This thread has been waiting for", weight=WAITED + 3),
    # the other end is gone
    Signature("peer-lost", "onnection closed by peer", certainty="low"),
    Signature("peer-lost", "onnection reset by peer", certainty="low"),
    Signature("peer-lost", "ConnectionResetError", certainty="low"),
    Signature("peer-lost", "onnection reset by remote peer", certainty="low"),
    Signature("peer-lost", "onnection closed by remote peer", certainty="low"),
    Signature(
        "peer-lost", "connection closed by remote", pattern="(?i)peer|rank|nccl", certainty="low"
    ),
    Signature("peer-lost", "onnection was likely closed"),
    Signature(
        "peer-lost",
        "onnection closed",
        pattern="(?i)gloo|pair\\.cc|mpi|ucx",
        certainty="low",
        weight=CONSEQUENCE + 1,
    ),
    Signature(
        "peer-lost", "roken pipe", pattern="(?i)TCPStore|c10d|socket", weight=CONSEQUENCE + 1
    ),
    Signature("peer-lost", "BrokenPipeError", certainty="low", weight=CONSEQUENCE + 2),
    Signature("peer-lost", "TCPStore server has shut down too early"),
    Signature("peer-lost", "ncclRemoteError", certainty="low"),
    Signature("peer-lost", "remote process exited or there was a network error", certainty="low"),
    Signature("peer-lost", "Horovod has been shut down"),
    Signature("peer-lost", "HorovodInternalError", weight=CONSEQUENCE + 2),
    Signature("peer-lost", "communication peer process has unexpectedly disconnected"),
    Signature("peer-lost", "failed to recv, got 0 bytes"),
    Signature("peer-lost", "recvValue failed"),
    Signature("peer-lost", "sendBytes failed", weight=CONSEQUENCE + 1),
    Signature("peer-lost", "recvBytes", pattern="(?i)fail|connection", weight=CONSEQUENCE + 1),
    Signature("peer-lost", "Stop_waiting response is expected"),
    Signature(
        "peer-lost",
        "communicator was aborted on rank",
        role="unclear",
        blame="unknown",
        certainty="low",
    ),
    Signature(
        "peer-lost", "ncclCommAbort", role="unclear", certainty="low", weight=CONSEQUENCE + 4
    ),
    Signature("peer-lost", "MPI_ERR_PROC_FAILED"),
    Signature("peer-lost", "caused collective abort of all ranks", certainty="low"),
    Signature("peer-lost", "ransport closed", pattern="(?i)peer|ucx", certainty="low"),
    Signature(
        "peer-lost",
        "ndpoint is not connected",
        pattern="(?i)socket|send|recv",
        certainty="low",
        weight=CONSEQUENCE + 1,
    ),
    # JAX and TensorFlow
    Signature("peer-lost", "with a different incarnation"),
    Signature("peer-lost", "another task died", weight=CONSEQUENCE + 1),
    Signature("peer-lost", "Polled an error from coordination service", weight=CONSEQUENCE + 1),
    Signature("peer-lost", "WatchTasksAsync failed", weight=CONSEQUENCE + 1),
    Signature("peer-lost", "Failed to send RPC to coordination service", weight=CONSEQUENCE + 1),
    Signature(
        "peer-lost",
        "Stopping coordination service as",
        pattern="heartbeat has timed out|encountered an error",
        weight=CONSEQUENCE + 1,
    ),
    Signature("rendezvous-timeout", "coordination service as cluster registration failed"),
    # a completion with an error of libfabric inside of MPICH and its derivatives
    Signature(
        "peer-lost", "OFI poll failed", role="unclear", certainty="low", weight=CONSEQUENCE - 1
    ),
    # this toolkit's own log
    Signature(
        "peer-lost",
        "EP602",
        "the connection to {peer} was lost",
        r"EP602 (?P<peer>[\w.-]{1,64}) .{0,100}is lost: ",
        weight=CONSEQUENCE,
    ),
    Signature("proc-limit", "EP609", pattern="EP609 .{1,200} cannot start its ranks"),
    Signature("rendezvous-timeout", "EP605", pattern="EP605 .{1,200} within"),
    Signature(
        "peer-lost",
        "Socket closed",
        pattern="(?i)unavailable|grpc|ncc?l",
        certainty="low",
        weight=CONSEQUENCE + 1,
    ),
    Signature("peer-lost", "Collective ops is aborted by", certainty="low"),
    Signature("peer-lost", "The following tasks are unhealthy", certainty="low"),
    Signature(
        "node-lost",
        "heartbeat timeout",
        "another task stopped answering",
        "(?i)task|coordination",
        role="cascade",
        blame="peer",
        retry="unknown",
        certainty="low",
        weight=CONSEQUENCE - 2,
    ),
    # generic words of NCCL
    Signature(
        "peer-lost",
        "unhandled system error",
        "NCCL reported a system error that it does not name",
        role="unclear",
        blame="unknown",
        certainty="low",
        weight=CONSEQUENCE + 2,
    ),
    Signature(
        "peer-lost",
        "DistBackendError",
        "the communication library reported an error that it does not name",
        role="unclear",
        blame="unknown",
        certainty="low",
        weight=CONSEQUENCE + 3,
    ),
    Signature(
        "peer-lost",
        "HcclAllreduce, error code is",
        role="unclear",
        blame="unknown",
        certainty="low",
        weight=CONSEQUENCE + 3,
    ),
    # hubs and object stores
    Signature("download", "Server Error", pattern=r"\b5\d\d Server Error"),
    Signature(
        "download",
        "rror",
        pattern=(
            r"(?i)(?:status|error|code|http)[^0-9\n]{0,16}\b(?:500|502|503|504|520|"
            r"522|524)\b.{0,80}(?:gateway|server|service|unavailable|internal|timeout)"
        ),
    ),
    Signature("download", "503 Service Unavailable"),
    Signature("download", "502 Bad Gateway"),
    Signature("download", "504 Gateway"),
    Signature("download", "Too Many Requests"),
    Signature("download", "SlowDown"),
    Signature("download", "reduce your request rate"),
    Signature("download", "ThrottlingException"),
    Signature("download", "RequestLimitExceeded"),
    Signature("download", "ServiceUnavailable"),
    Signature("download", "InternalError", pattern="(?i)S3|operation|bucket|blob|obs"),
    Signature("download", "Connect timeout on endpoint URL"),
    Signature("download", "Read timeout on endpoint URL"),
    Signature("download", "onnection was closed before we received a valid response"),
    Signature(
        "download", "Could not connect to the endpoint URL", retry="unknown", certainty="low"
    ),
    Signature("download", "RequestTimeout", certainty="low"),
    Signature("download", "IncompleteRead", certainty="high"),
    Signature("download", "ChunkedEncodingError", certainty="high"),
    Signature("download", "Connection broken", certainty="high"),
    Signature("download", "RemoteDisconnected", certainty="high"),
    Signature("download", "onsistency check failed", certainty="high"),
    Signature("download", "ConnectTimeoutError", retry="unknown", certainty="low"),
    Signature(
        "download", "Max retries exceeded with url", retry="unknown", certainty="low", weight=_STALE
    ),
    Signature("download", "ReadTimeoutError", certainty="low"),
    Signature("download", "Read timed out", certainty="low"),
    Signature("download", "FSTimeoutError", certainty="low"),
    Signature(
        "download",
        "FileNotFoundError",
        "a remote file could not be opened, after timeouts of its service",
        r"FileNotFoundError.{1,250}(?:hf|s3|gs|gcs|https?)://",
        certainty="low",
        also="timed out",
        weight=PYTHON - 2,
    ),
    Signature(
        "download",
        "urlopen error",
        pattern="(?i)timed out|reset|unreachable|refused",
        retry="unknown",
        certainty="low",
    ),
    Signature(
        "download", "couldn't connect to 'https://", retry="unknown", certainty="low", weight=_STALE
    ),
    Signature(
        "download", "LocalEntryNotFoundError", retry="unknown", certainty="low", weight=_STALE
    ),
    Signature(
        "download",
        "Couldn't reach",
        pattern="(?i)hub|http|connection",
        retry="unknown",
        certainty="low",
        weight=_STALE,
    ),
    Signature(
        "download", "socket.timeout: timed out", retry="unknown", certainty="low", weight=PYTHON
    ),
    Signature("download", "UNEXPECTED_EOF_WHILE_READING", certainty="low"),
    Signature("download", "ObsClient", pattern="(?i)5\\d\\d|timeout|time out", certainty="low"),
    Signature(
        "download",
        "ailed to download",
        pattern="(?i)error|timed out|connection",
        retry="unknown",
        certainty="low",
        weight=PYTHON + 2,
    ),
    Signature("dns", "ame does not resolve"),
    Signature(
        "dns", "an't resolve", pattern="(?i)host|nslookup|name|address|resolve '", certainty="low"
    ),
    Signature("dns", "ailed to resolve", pattern="(?i)host|name|address|dns|'", certainty="low"),
    Signature("dns", "ould not be resolved", pattern="(?i)host|name|address", certainty="low"),
    Signature("dns", "nable to resolve host"),
    Signature("dns", "nknown host"),
    Signature("dns", "UnknownHost"),
    Signature("dns", "host not found"),
    Signature("dns", "nable to get host address"),
    Signature("dns", "EAI_AGAIN", retry="same"),
    Signature("dns", "gaierror", certainty="low"),
    Signature("addr-in-use", "port is already allocated"),
    Signature("net-unreachable", "nable to complete a TCP connection", weight=LIKELY - 4),
    Signature("net-unreachable", "onnect timeout [", weight=LAST_EXCEPTION - 2),
    Signature("net-unreachable", "annot assign requested address", weight=LIKELY + 4),
    Signature("net-unreachable", "unable to connect to server", pattern="(?i)firewall|port"),
    Signature(
        "net-unreachable",
        "ailed to connect to remote host",
        role="cascade",
        blame="peer",
        weight=WAITED + 2,
    ),
    Signature("rdma-error", "unhandled timeout error"),
    Signature("rdma-error", "got completion with error"),
    Signature(
        "rdma-error",
        "NET/IB",
        pattern="(?i)async (fatal )?event|port .{0,20}(down|error)|link.{0,10}down",
        weight=LIKELY + 2,
    ),
    Signature("rdma-error", "ocal protection error", pattern="(?i)mlx|ib|rdma|qp", blame="node"),
    Signature("rdma-error", "ompleted with error", pattern=r"NET/OFI", weight=LIKELY),
    Signature("rdma-error", "UNDELIVERABLE", weight=LIKELY),
    Signature("rdma-error", "ndpoint timeout", pattern="(?i)ucx|ucp|ib|mlx"),
    Signature("rendezvous-timeout", "connect() timed out"),
    Signature("rendezvous-timeout", "Original timeout was"),
    Signature(
        "rendezvous-timeout",
        "failed to send a keep-alive heartbeat",
        role="cascade",
        weight=CONSEQUENCE,
    ),
    Signature("rendezvous-timeout", "ready ranks", pattern="(?i)timed? ?out", weight=WAITED + 3),
    Signature("peer-lost", "RayletClient", role="cascade", certainty="low", weight=CONSEQUENCE + 2),
    Signature("peer-lost", "OwnerDiedError", certainty="low"),
    Signature("peer-lost", "onnection to GCS", certainty="low"),
    Signature("peer-lost", "Failed to connect to GCS", certainty="low"),
    Signature("peer-lost", "socketProgress", pattern="(?i)closed|reset|fail", certainty="low"),
    Signature("peer-lost", "Call to write failed", certainty="low"),
    Signature("peer-lost", "Call to recv", pattern="(?i)fail", certainty="low"),
    Signature("peer-lost", "Call to send", pattern="(?i)fail", certainty="low"),
    Signature("peer-lost", "preemption_sync_manager", pattern="Socket closed"),
    Signature(
        "peer-lost", "the JAX distributed service detected fatal errors", weight=CONSEQUENCE + 1
    ),
    Signature(
        "peer-lost", "EOFError", pattern=r"^EOFError$", weight=LAST_EXCEPTION + 2, certainty="low"
    ),
    Signature("download", "Connection aborted"),
    Signature("download", "ServerDisconnectedError"),
    Signature("download", "ClientPayloadError"),
    Signature("download", "ClientConnectorError", retry="unknown", certainty="low"),
    Signature(
        "download", "annot connect to host", pattern=":443|ssl", retry="unknown", certainty="low"
    ),
    Signature("download", "SSLEOFError", certainty="low"),
    Signature("download", "ProtocolError", certainty="low"),
    Signature(
        "download",
        "CommError",
        pattern="(?i)wandb|timed out|time-?out|network",
        certainty="low",
        weight=PYTHON,
    ),
    Signature("download", "ServerBusy"),
    Signature("download", "OperationTimedOut", certainty="low"),
    Signature("download", "ServiceResponseError", certainty="low"),
    Signature("download", "ServiceRequestError", certainty="low"),
    Signature("download", "ate limit exceeded", pattern="(?i)http|api|hub|lfs|download|request"),
    Signature("download", "onsistency check", pattern="file should be of size"),
    Signature("download", "xception: 503", pattern="503"),
    Signature("download", "ReadTimeout:", certainty="low"),
    Signature("download", "ConnectTimeout:", retry="unknown", certainty="low"),
    Signature(
        "download",
        "ConnectionError",
        pattern="(?i)https?://|HTTPS?ConnectionPool|hub",
        retry="unknown",
        certainty="low",
        weight=PYTHON,
    ),
    Signature("peer-lost", "UnavailableError", certainty="low"),
    Signature("peer-lost", "errors.AbortedError", certainty="low", weight=CONSEQUENCE + 2),
    Signature("peer-lost", "errors.CancelledError", certainty="low", weight=CONSEQUENCE + 2),
    Signature("net-unreachable", "Software caused connection abort"),
)
