"""What a check finds: one line for each thing looked at, and the exit status of them all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from entrypoint.errors import ConfigError
from entrypoint.model import Finding
from entrypoint.text import count
from entrypoint.values import replace

ORDER = ("error", "warning", "ok")
_ALIKE = 8  # lines on one matter that the table shows


def sort(findings: Iterable[Finding]) -> list[Finding]:
    """Worst first, then as they were looked at; one line for the same on several nodes; no fix for
    what is well."""
    same: dict[Finding, list[str]] = {}
    for finding in findings:
        same.setdefault(
            replace(finding, nodes=(), fix=finding.fix if finding.level != "ok" else ""), []
        ).extend(finding.nodes)
    lines = [replace(finding, nodes=tuple(dict.fromkeys(nodes))) for finding, nodes in same.items()]
    return sorted(lines, key=lambda finding: ORDER.index(finding.level))


def together(lines: Sequence[Finding]) -> list[Finding]:
    """The same lines, but few: what is well on several nodes is one, and of many alike the first
    are shown."""
    alike: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in lines:
        what = finding.what if finding.level == "ok" else ""
        alike.setdefault((finding.level, finding.id, what), []).append(finding)
    shown = []
    for same in alike.values():
        well = same[0].level == "ok"
        most = 1 if well else _ALIKE
        shown += same[:most]
        if more := same[most:]:
            nodes = tuple(
                dict.fromkeys(
                    node for finding in (same if well else more) for node in finding.nodes
                )
            )
            if well:
                shown[-1] = replace(
                    same[0], seen=f"{same[0].seen}, and others like it ({len(more)})", nodes=nodes
                )
            else:
                rest = f"and {len(more)} more like these; --json has them all"
                shown.append(replace(more[0], seen=rest, needed="", fix="", nodes=nodes))
    return shown


def status(findings: Iterable[Finding], strict: bool = False) -> int:
    """0, or 78 where the job would fail; `strict`: also where there is a warning."""
    bad = ("error", "warning") if strict else ("error",)
    return ConfigError.status if any(finding.level in bad for finding in findings) else 0


def summary(findings: Iterable[Finding]) -> str:
    """Such as `2 errors, 1 warning`."""
    levels = [finding.level for finding in findings]
    return (
        ", ".join(count(levels.count(level), level) for level in ORDER[:2] if level in levels)
        or "nothing is wrong"
    )
