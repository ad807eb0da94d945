"""The recipes of docs/how-to/kustomize.md."""

from __future__ import annotations

import re
from pathlib import Path

from tests import TREE

PAGE = Path(f"{TREE}/docs/how-to/kustomize.md").read_text(encoding="utf-8")
POD = "/spec/template"


def recipes() -> dict[str, dict[str, str]]:
    """Return the files of each recipe by name; each kustomization.yaml begins a recipe."""
    found: dict[str, dict[str, str]] = {}
    for section in re.split(r"(?m)^## ", PAGE)[1:]:
        for file, text in re.findall(r"(?ms)^```yaml\n# (\S+)\n(.*?)^```$", section):
            if file == "kustomization.yaml":
                title = section.partition("\n")[0]
                found[f"{title}, another way" if title in found else title] = files = {}
            files[file] = text
    return found


def pod_paths(kind: str) -> list[str]:
    """Return the paths of the kind's Pod templates, as the page's table has them."""
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{kind}` |"))
    return re.findall(r"`(/spec/\S*?template)`", row)


def for_kind(kind: str, pod: str) -> str:
    """Return `pod.yaml` as a reader of the page changes it for that kind."""
    if kind == "trainjob":
        pod = pod.replace(f"{POD}/spec/containers/0/env/-", "/spec/trainer/env/-")
    return "".join(pod.replace(POD, path) for path in pod_paths(kind))
