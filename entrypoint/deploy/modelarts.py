"""A training job of Huawei Cloud ModelArts: the body of its API's CreateTrainingJob, with the boot command in it.

Sources: ModelArts' API reference, "Creating a Training Job" (POST /v2/{project_id}/training-jobs) and "Using a Custom
Image to Create a Training Job"; "Code Directory" for where the platform puts the code in the containers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from entrypoint.deploy._options import Options, own_command, same_slots, settings
from entrypoint.errors import ConfigError, UsageError
from entrypoint.spec import JobSpec, written

__all__ = ["TAKES", "Options", "notes", "render"]

TAKES = ("image", "nodes", "flavor", "pool", "code", "logs")

_CODE = "/home/ma-user/modelarts/user-job-dir"  # MA_JOB_DIR, by absolute path: some boot commands get no shell
_BOOT = "entrypoint run"
# The platform says these of each node.
_PLATFORM = ("ENTRYPOINT_HOSTS", "ENTRYPOINT_NODE_RANK", "ENTRYPOINT_SPEC")


def render(spec: JobSpec, options: Options) -> str:
    """The body's text, JSON. What the spec says is in variables, so the containers need no file. It has no secret.

    Raises ConfigError when the number of nodes is unknown, nodes differ in their slots, or the spec holds secrets;
    UsageError without a flavor, for a path that is no OBS path, and for a flag that no container could take.
    """
    nodes = len(spec.hosts) or options.nodes
    if not nodes:
        raise ConfigError("EP800 how many instances should the job get?", "the spec has no hosts", "add --nodes 2")
    if spec.source("hosts").origin in ("flag", "env"):
        seen = f"{spec.source('hosts').where} {','.join(spec.hosts)}"
        raise UsageError("EP803 ModelArts names the hosts", seen, f"leave it out, and say --nodes {nodes}")
    if not options.flavor:
        do = "add --flavor ID, as the console or the API's ListTrainingJobFlavors names it"
        raise UsageError("EP805 which instances should the job get?", "no --flavor", do)
    said, names = written(spec)
    if names:
        do = "take them out, and give them as the job's environment variables in the console"
        raise ConfigError("EP802 a training job's body is no place for secrets", f"in the spec: {', '.join(names)}", do)
    resource = {"flavor_id": options.flavor, "node_count": nodes}
    body = {
        "kind": "job",
        "metadata": {"name": spec.name},
        "algorithm": {
            **({"code_dir": _obs(options.code, "--code")} if options.code else {}),
            "engine": {"image_url": options.image},
            "command": _BOOT,
            "environments": _environments(spec, said, options),
        },
        "spec": {
            "resource": {**resource, **({"pool_id": options.pool} if options.pool else {})},
            **({"log_export_path": {"obs_url": _obs(options.logs, "--logs")}} if options.logs else {}),
        },
    }
    return json.dumps(body, indent=2, ensure_ascii=False) + "\n"


def notes(spec: JobSpec, options: Options) -> list[str]:
    """What to say beside the body: the boot command for the console, and the secret that is not in the body."""
    lines = [f"boot command | {_BOOT} | paste it where the console asks for it; the body has it already"]
    if spec.calls(len(spec.hosts) or options.nodes or 1) and not spec.secret_file:
        lines.append("EP128 the body has no secret | several nodes | add the variable ENTRYPOINT_SECRET to the job")
    return lines


def _environments(spec: JobSpec, said: Mapping[str, str], options: Options) -> dict[str, str]:
    """Variables of every container: what the spec said, then what flags and variables said of the job here."""
    given = {**said, **settings(spec, {})}
    if command := own_command(spec):
        given["ENTRYPOINT_COMMAND"] = json.dumps(command)  # words as they are, whether or not a shell reads the command
    if options.code and not spec.workdir:
        given["ENTRYPOINT_WORKDIR"] = f"{_CODE}/{_obs(options.code, '--code').split('/')[-2]}"
    slots = same_slots(spec, "all instances of a training job are alike")
    if slots is not None:
        given["ENTRYPOINT_SLOTS"] = str(slots)
    return {name: value for name, value in given.items() if name not in _PLATFORM}


def _obs(path: str, flag: str) -> str:
    """A folder of OBS as the API writes it: /bucket/folder/."""
    found = re.fullmatch(r"(obs:/)?(/[^/\s]+(/[^/\s]+)*)/?", path)
    if not found:
        raise UsageError("EP806 this is no folder of OBS", f"{flag} {path}", f"write {flag} obs://bucket/folder/")
    return f"{found[2]}/"
