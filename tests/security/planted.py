"""Secrets that a test plants wherever one may be given, and the search for them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping

from tests.cluster import clean_environment

NAMES = (
    "S3_SECRET_ACCESS_KEY", "S3_ACCESS_KEY_ID", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
    "HF_TOKEN", "MY_PASSWORD", "DB_PASSWD", "CRED_ROBOT", "MY_CREDENTIALS", "WANDB_API_KEY", "ENTRYPOINT_SECRET",
    "DB_PASS", "OPENAI_KEY", "SSHPASS", "GH_PAT", "CI_JWT", "OBS_SK", "HTTP_AUTH",
)  # fmt: skip
PLANTED = {name: f"plant{number}{secrets.token_hex(16)}" for number, name in enumerate(NAMES)}
BY_SPEC, BY_FLAG, BY_VARIABLE, BY_WORD, BY_OPTION, BY_URL, BY_ARGUMENT = (
    f"plant{key}{secrets.token_hex(16)}" for key in "abcdefg"
)
SPEC = f"""\
name: demo
hosts: [node-0=127.0.0.2, node-1=127.0.0.3]
node_rank: 0
slots: 2
env: {{HF_SPEC_TOKEN: {BY_SPEC}, NCCL_DEBUG: INFO}}
mpi: {{x_args: "-x OTHER_TOKEN={BY_OPTION} -x NCCL_DEBUG"}}
launcher_args: [-x, "ARGS_TOKEN={BY_ARGUMENT}"]
command: [python3, train.py]
"""


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    given = {
        "ENTRYPOINT_ENV": json.dumps({"GIVEN_PASSWORD": BY_VARIABLE, "SHOWN": "yes"}),
        "ENTRYPOINT_TRACE": "1",
    }
    return {**clean_environment(), **PLANTED, **given, **(extra or {})}


def leaks(*texts: str) -> list[str]:
    """Which planted values are in any of the texts, whole or in a half."""
    values = {
        **PLANTED,
        "env of the spec": BY_SPEC,
        "--env": BY_FLAG,
        "ENTRYPOINT_ENV": BY_VARIABLE,
    }
    values |= {
        "--password": BY_WORD,
        "x_args": BY_OPTION,
        "URL": BY_URL,
        "launcher_args": BY_ARGUMENT,
    }
    halves = {name: (value[:24], value[-24:]) for name, value in values.items()}
    return [
        name
        for name, pair in halves.items()
        if any(half in text for text in texts for half in pair)
    ]


FLAG = ("--env", f"FLAG_TOKEN={BY_FLAG}")
