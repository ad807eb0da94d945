"""Everything about input: YAML text, variables and flags -> JobSpec; and what the fields are, for help and documents.

yamlfile, texts --> Items --checks--> values --loading--> JobSpec
                      table, read off jobspec.py: its fields, each with its rule
"""

from entrypoint.model import DEFAULT, Origin, Source
from entrypoint.spec.jobspec import JobSpec, SshSpec
from entrypoint.spec.loading import Override, load
from entrypoint.spec.rules import JOB_NAME, MAX_NODES, MAX_SLOTS, HostEntry, check_host, plain_path
from entrypoint.spec.shared import Given, given, kept_back, left_out
from entrypoint.spec.table import NO_JOB, PREFIX, RESERVED, FieldInfo, adapters, fields, is_service

__all__ = [
    "DEFAULT", "JOB_NAME", "MAX_NODES", "MAX_SLOTS", "NO_JOB", "PREFIX", "RESERVED", "FieldInfo", "Given", "HostEntry",
    "JobSpec", "Origin", "Override", "Source", "SshSpec", "adapters", "check_host", "fields", "given", "is_service",
    "kept_back", "left_out", "load", "plain_path",
]  # fmt: skip
