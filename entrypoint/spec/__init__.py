"""The job spec: YAML text, variables and flags -> JobSpec; and its fields, for help and documents.

yamlfile, loading --> Items --rules--> values --loading--> JobSpec  (table: its fields, their rules)
"""

from entrypoint.spec.former import for_launcher
from entrypoint.spec.jobspec import JobSpec
from entrypoint.spec.loading import Override, letters_of, load, removed
from entrypoint.spec.rules import (
    CALL_IN,
    JOB_NAME,
    MAX_NODES,
    MAX_SLOTS,
    HostEntry,
    check_host,
    expanded,
    plain_path,
)
from entrypoint.spec.table import (
    carried,
    fields,
    for_script,
    given,
    left_out,
    names_of,
    paths_in_file,
    set_fields,
    settings_in,
    written,
)
