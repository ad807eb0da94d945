"""A training job of Huawei Cloud ModelArts: the body of its API's CreateTrainingJob, with the boot
command.

Sources: ModelArts' API reference, "Creating a Training Job" (POST /v2/{project_id}/training-jobs)
and "Using a Custom Image to Create a Training Job"; "Code Directory" for the place of the code in
the containers.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from entrypoint.base.errors import ConfigError, UsageError
from entrypoint.spec import JobSpec, written
from entrypoint.tools.deploy._options import (
    Mount,
    Options,
    number_of_nodes,
    own_command,
    same_slots,
    settings,
    unmountable,
)

TAKES = ("image", "nodes", "flavor", "pool", "code", "logs", "mount", "inject", "start")

# MA_JOB_DIR as an absolute path, since some boot commands get no shell
_CODE = "/home/ma-user/modelarts/user-job-dir"
_UNPACKED = "/tmp/entrypoint-toolkit"  # where an injected toolkit is unpacked
# Set by the platform for each node.
_PLATFORM = ("ENTRYPOINT_HOSTS", "ENTRYPOINT_NODE_RANK", "ENTRYPOINT_SPEC")


def render(spec: JobSpec, options: Options) -> str:
    """Return the body as JSON, without secrets. The spec is passed by variables, so the containers
    need no file.

    Raises ConfigError if the number of nodes is unknown, nodes differ in their slots, or the spec
    holds secrets; UsageError without a flavor, for a path that is no OBS path, and for a flag that
    cannot apply to all containers.
    """
    nodes = number_of_nodes(spec, options, "ModelArts")
    if not options.flavor:
        hint = "add --flavor ID, as the console or the API's ListTrainingJobFlavors names it"
        raise UsageError("EP805 instance type unknown", "no --flavor", hint)
    variables, secrets = written(spec)
    if secrets:
        hint = "take them out, and give them as the job's environment variables in the console"
        detail = f"in the spec: {', '.join(secrets)}"
        raise ConfigError("EP802 a training job's body must not contain secrets", detail, hint)
    resource = {"flavor_id": options.flavor, "node_count": nodes}
    body = {
        "kind": "job",
        "metadata": {"name": spec.name},
        "algorithm": {
            **({"code_dir": _obs(options.code, "--code")} if options.code else {}),
            "engine": {"image_url": options.image},
            "command": _boot(options),
            "environments": _environments(spec, variables, options),
        },
        "spec": {
            "resource": {**resource, **({"pool_id": options.pool} if options.pool else {})},
            **(
                {"log_export_path": {"obs_url": _obs(options.logs, "--logs")}}
                if options.logs
                else {}
            ),
            **({"volumes": list(map(_volume, options.mount))} if options.mount else {}),
        },
    }
    return json.dumps(body, indent=2, ensure_ascii=False) + "\n"


def notes(spec: JobSpec, options: Options) -> list[str]:
    """Return the messages next to the body: the boot command for the console, and the secret that
    is missing in it."""
    hint = "paste it where the console asks for it; the body has it already"
    lines = [f"boot command | {_boot(options)} | {hint}"]
    if spec.calls(len(spec.hosts) or options.nodes or 1) and not _has_secret_file(spec):
        lines.append(
            "EP128 the body has no secret | several nodes | add the variable ENTRYPOINT_SECRET to"
            " the job"
        )
    return lines


def _boot(options: Options) -> str:
    """Return the boot command, which begins with a shell of its own where it needs one: the
    platform may give it none.

    Raises UsageError if an injected toolkit is not in the code directory.
    """
    if not options.inject:
        return "entrypoint run"
    archive = _obs(options.inject, "--inject").rstrip("/")
    code = options.code and _obs(options.code, "--code")
    if not code or not archive.startswith(code):
        detail = f"--inject {options.inject}, --code {options.code or 'not given'}"
        hint = "put the toolkit's archive into the folder of --code, which each container gets"
        raise UsageError("EP806 not in the code directory", detail, hint)
    file = shlex.quote(f"{_code_directory(code)}/{archive.removeprefix(code)}")
    gzipped = "z" * archive.endswith("gz")  # busybox wants to be told
    unpack = f"mkdir -p {_UNPACKED} && tar -x{gzipped}f {file} -C {_UNPACKED} --strip-components=1"
    return f"sh -c {shlex.quote(f'{unpack} && exec {_UNPACKED}/bin/entrypoint run')}"


def _code_directory(code: str) -> str:
    """Return where each container has the code directory of OBS."""
    return f"{_CODE}/{code.split('/')[-2]}"


def _environments(spec: JobSpec, from_spec: Mapping[str, str], options: Options) -> dict[str, str]:
    """Return the variables of every container: from the spec, then from flags and variables of this
    command."""
    variables = {**from_spec, **settings(spec, options, {})}
    if command := own_command(spec):
        # exact arguments, with or without a shell
        variables["ENTRYPOINT_COMMAND"] = json.dumps(command)
    if options.code and not spec.workdir:
        variables["ENTRYPOINT_WORKDIR"] = _code_directory(_obs(options.code, "--code"))
    slots = same_slots(spec, "all instances of a training job are alike")
    if slots is not None:
        variables["ENTRYPOINT_SLOTS"] = str(slots)
    if not _has_secret_file(spec):
        variables.pop("ENTRYPOINT_SECRET_FILE", None)
    return {name: value for name, value in variables.items() if name not in _PLATFORM}


def _has_secret_file(spec: JobSpec) -> bool:
    """Return whether the containers have the secret's file: the spec's own is on this machine."""
    return bool(spec.secret_file) and spec.source("secret_file").origin != "spec"


def _volume(mount: Mount) -> dict[str, dict[str, Any]]:
    """Return a volume of the job: a folder of NFS, of OBS or of a parallel file system of OBS."""
    obs = re.fullmatch(r"(obs|pfs):/((/[^/\s]+)+/?)", mount.source)
    if obs and not mount.read_only:
        return {obs[1]: {f"{obs[1]}_path": obs[2], "local_path": mount.path}}
    if obs or not re.fullmatch(r"[^:/\s]+:/[^/\s]\S*", mount.source):
        hint = "write SERVER:/folder:/out, with or without :ro, obs://bucket/folder:/out or pfs://"
        raise unmountable([mount], hint)
    nfs = {"nfs_server_path": mount.source, "local_path": mount.path}
    return {"nfs": {**nfs, "read_only": mount.read_only}}


def _obs(path: str, flag: str) -> str:
    """Return a folder of OBS in the API's form: /bucket/folder/."""
    match = re.fullmatch(r"(obs:/)?(/[^/\s]+(/[^/\s]+)*)/?", path)
    if not match:
        raise UsageError(
            "EP806 not an OBS path", f"{flag} {path}", f"write {flag} obs://bucket/folder/"
        )
    return f"{match[2]}/"
