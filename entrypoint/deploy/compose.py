"""A compose file: one container for each host of the spec, to try a multi-node job on one machine."""

from __future__ import annotations

from entrypoint.deploy._options import Options
from entrypoint.errors import ConfigError
from entrypoint.jobspec import JobSpec
from entrypoint.render import render as render_template

__all__ = ["Options", "render"]


def render(spec: JobSpec, options: Options) -> str:
    """The compose file's text. Works with compose v1 and v2; the secret is a mounted file, not a variable.

    Raises ConfigError when the spec names no hosts.
    """
    hosts = [host.partition("=")[0] for host in spec.hosts]
    hosts = hosts or [f"worker-{rank}" for rank in range(options.nodes or 0)]
    if not hosts:
        raise ConfigError(
            "a compose file needs the names of the nodes", "the spec has no hosts", "add: hosts: [worker-0, worker-1]"
        )
    return render_template(
        "compose/compose.yaml.j2",
        {
            "origin": f"{options.spec_name}",
            "nodes": [{"rank": rank, "host": host} for rank, host in enumerate(hosts)],
            "hosts": ",".join(hosts),
            "image": options.image,
            "folder": options.folder,
            "spec_name": options.spec_name,
            # Arguments after -- replace the spec's command; without them the containers find it in the spec.
            "command": list(spec.command) if spec.source("command").origin == "flag" else [],
            "shm_size": "1gb",
            "stop_grace": f"{round(spec.timeouts.grace) + 10}s",
        },
    )
