"""Ascend rank tables: every form in, one form out. Pure: no file is read here.

    text --parse--> RankTable --for_hccl--> the text that HCCL reads: v1.0, or v2.0 as it is
                        |
                        +--own--> Server: this node's devices and their ranks

The forms, with their sources and every message, are in docs/reference/ranktables.md.
"""

from entrypoint.ranktable.make import from_addresses, from_hccn_conf, merge
from entrypoint.ranktable.node import find, logical_ids, names, nodes, own, path_from
from entrypoint.ranktable.read import parse
from entrypoint.ranktable.table import NotReady, RankTable
from entrypoint.ranktable.write import WRITERS, describe, for_hccl, to_v0, to_v1
