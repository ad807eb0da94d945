"""The platforms that start the containers: Facts -> Site. One module per platform has all that is
known of it, of which `read(clues)` is needed:

`MARKS`         variables, one of which is set and not empty on this platform
`matches`       whether the facts are of this platform, if these are not sufficient
`LAYER`         a platform of a lower one runs on those of a higher one, and wins: SkyPilot and
                dstack start containers through Kubernetes and Slurm, Kubeflow through Indexed Jobs.
                Two of one layer that match are an error
`FILES`         files that it creates in its containers; of a name that ends with /, all in it
`SCRIPT`        the variable with the parent folder of the users' code folders, and the name of a
                script in one of these that its own boot would run first
`SECRET`        how its users pass a secret to all nodes, for the message that there is none
`STARTS_ANY_PROGRAM`  it starts programs of every kind: one is part of a job only if a setting of
                ours is present
`READS_REASONS` it reads why a job failed from a file, which is written at its end
`ROWS`          its rows in the table of docs/reference/platforms.md; an indented line goes on with
                one

A platform whose nodes are told all by variables is a row of variables.tsv, with these names.

A start loads the module of its own platform alone. What it needs of the others before that is in
index.tsv, which `make golden` makes of the modules. A module that is not in there, such as one that
a user has added, is always loaded, and ranks with those of the first line.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType

with open(f"{__path__[0]}/index.tsv", encoding="utf-8") as _file:
    _ROWS = [line.strip("\n").split("\t") for line in _file if not line.startswith("#")]
# Platforms by layer, with their marks.
MARKS: dict[str, dict[str, list[str]]] = {}
for _name, _layer, _marks, *_ in _ROWS:
    MARKS.setdefault(_layer, {})[_name] = _marks.split()
FILES = tuple(dict.fromkeys(file for row in _ROWS for file in row[3].split()))
SCRIPTS = dict(row[4].split() for row in _ROWS if row[4])


@cache
def rows() -> dict[str, ModuleType]:
    """Return the platforms of variables.tsv, each as the module that it could be."""
    with open(f"{__path__[0]}/variables.tsv", encoding="utf-8") as file:
        head, *lines = [line.strip("\n").split("\t") for line in file if line[0] != "#"]
    made = {}
    for name, *variables, secret, row in lines:
        module = made[name] = ModuleType(f"{__name__}.{name}")
        values = zip(head[1:], map(str.split, variables), strict=False)
        vars(module).update(values, SECRET=secret, ROWS=row, LAYER=0)
    return made
