"""Renders docs/reference/spec.md from the fields of the spec, for `make golden`."""

from __future__ import annotations

from entrypoint.spec.jobspec import JobSpec
from entrypoint.spec.rules import FieldInfo
from entrypoint.spec.table import RESERVED, about, fields
from tests.markdown import markdown_table

_INTRODUCTION = """\
<!-- Generated from entrypoint/spec/jobspec.py: do not edit, run `make golden`. -->
# The job spec

One YAML mapping; every field is optional. `entrypoint schema` prints a JSON Schema of it for your
editor.

A value comes from the first of these that has one:

1. the flag,
2. the field's own variable, `ENTRYPOINT_<FIELD>`,
3. the variables of other tools listed after it, in that order,
4. the spec file,
5. the platform (hosts, node_rank and slots),
6. the default.

A value in the file is used as it is written, with or without quotes: in `env`, `no` is the text
`no` and `1.10` the text `1.10`. Numbers are decimal. Without quotes, an empty value, `~` and
`null` mean that there is no value: a field keeps its default, and an entry of `env` or of a list
is an error (`""` is empty text).

An empty variable counts as unset. An `ENTRYPOINT_` variable that is not listed here is an error.
In a variable or a flag, the entries of `hosts` are separated by commas or white space; the other
lists are shell words, or a JSON or YAML list if they begin with `[`. `ENTRYPOINT_ENV` is a JSON
object. Its entries, like those of the flag, override those of the file one by one.

A relative path in the file starts at the file's folder, one in a variable or a flag at the current
folder. On Kubernetes and ModelArts, `entrypoint deploy` passes the file's paths as variables.

A secret belongs neither in this file nor on the command line: mount a file and name it in
`secret_file`, or set `ENTRYPOINT_SECRET`. If both are set, the one with the higher origin wins;
if both are variables, this is an error.
"""


def markdown() -> str:
    """Return the reference of all fields, docs/reference/spec.md."""
    groups: dict[str, list[FieldInfo]] = {}
    for field in fields():
        groups.setdefault(field.path.rpartition(".")[0], []).append(field)
    whole = JobSpec()
    out = [_INTRODUCTION]
    for section, members in groups.items():
        description, _ = about(getattr(whole, section) if section else whole)
        out += [f"## {f'`{section}`' if section else 'Top level'}\n", f"{description}\n"]
        head = ("field", "takes", "default", "variables", "flag", "meaning")
        out += [*markdown_table([head, *map(_row, members)]), ""]
    out.append("## Variables that are not fields\n")
    reserved = [(f"`{name}`", meaning) for name, meaning in RESERVED.items()]
    return "\n".join([*out, *markdown_table([("variable", "meaning"), *reserved]), ""])


def _row(field: FieldInfo) -> tuple[str, ...]:
    default = "" if field.default in (None, (), {}) else f"`{field.default}`"
    variables, flags = (
        " ".join(f"`{name}`" for name in names)
        for names in ((field.env, *field.aliases), field.flags)
    )
    names = ", ".join(f"`{name}`" for name in field.adapters)
    takes = f"one of {names}" if names else field.type
    return f"`{field.path}`", takes, default, variables, flags, field.description


if __name__ == "__main__":
    print(markdown(), end="")
