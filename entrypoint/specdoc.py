"""The reference of all fields, docs/reference/spec.md: `python -m entrypoint.specdoc` prints it."""

from __future__ import annotations

from entrypoint.fields import RESERVED, FieldInfo, adapters, fields
from entrypoint.jobspec import JobSpec

_INTRODUCTION = """\
<!-- Generated from entrypoint/jobspec.py: do not edit, run `make golden`. -->
# The job spec

One YAML mapping; every field is optional. `entrypoint schema` prints a JSON Schema of it for your editor.

A value comes from the first of these that has one:

1. the flag,
2. the field's own variable, `ENTRYPOINT_<FIELD>`,
3. the variables of other tools listed after it, in that order,
4. the spec file,
5. the platform (hosts, node_rank and slots),
6. the default.

A variable that is empty counts as unset, and so does a field that is null. An `ENTRYPOINT_` variable that is not
listed here is an error. In a variable or a flag, `hosts` is separated by commas or white space; the other lists are
shell words, or a JSON or YAML list if they begin with `[`. `ENTRYPOINT_ENV` is a JSON object; its entries, like those
of the flag, are laid over the file's one by one.

A secret belongs neither in this file nor on the command line: mount a file and name it in `secret_file`, or set
`ENTRYPOINT_SECRET`. Of the two, the one with the higher origin counts; both as variables is an error.
"""


def _row(field: FieldInfo) -> str:
    default = "" if field.default in (None, (), {}) else f"`{field.default}`"
    variables, flags = (" ".join(f"`{name}`" for name in names) for names in ((field.env, *field.aliases), field.flags))
    names = ", ".join(f"`{name}`" for name in adapters(field))
    takes = f"one of {names}" if names else field.type
    cells = (f"`{field.path}`", takes, default, variables, flags, field.description.replace("|", "\\|"))
    return f"| {' | '.join(cells)} |"


def markdown() -> str:
    """The reference of all fields, docs/reference/spec.md."""
    groups: dict[str, list[FieldInfo]] = {}
    for field in fields():
        groups.setdefault(field.path.rpartition(".")[0], []).append(field)
    out = [_INTRODUCTION]
    for section, members in groups.items():
        model = JobSpec.model_fields[section].annotation if section else JobSpec
        out += [f"## {f'`{section}`' if section else 'Top level'}\n", f"{model.__doc__}\n"]
        out += ["| field | takes | default | variables | flag | meaning |", "|---|---|---|---|---|---|"]
        out += [_row(field) for field in members] + [""]
    out += ["## Variables that are no field\n", "| variable | meaning |", "|---|---|"]
    return "\n".join([*out, *(f"| `{name}` | {meaning} |" for name, meaning in RESERVED.items()), ""])


if __name__ == "__main__":
    print(markdown(), end="")
