"""All probes, in the order of their findings. Those of a node run each in a thread of its own, all
of them within one time limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from entrypoint.base.model import Finding
from entrypoint.base.text import from_json
from entrypoint.base.values import replace
from entrypoint.base.wire import read, to_json
from entrypoint.features.health.probe import Fields, Inputs, NodeView, Probe
from entrypoint.features.health.probes import accelerators, container, image, network
from entrypoint.features.health.reading import Named
from entrypoint.system.threads import in_thread

PROBES = tuple(
    kind
    for module in (image, accelerators, container, network)
    for kind in Probe.__subclasses__()
    if kind.__module__ == module.__name__
)
Results = Mapping[type[Probe], Probe]

# seconds of a probe without a program; and after a program's own limit, to be done with it
_MARGIN = 2.0


async def observe(inputs: Inputs, kinds: Iterable[type[Probe]] = PROBES) -> Fields:
    """Return the fields of these probes on this node, as JSON has them, within the limit and a
    little more; lists of several readings become one. Starts no program of the job, and writes
    nothing.

    A reading that fails, or has no end by then (a file system that is gone holds every process that
    asks for it), is named in `unseen`.
    """
    begun, limit = time.monotonic(), inputs.limit + _MARGIN

    async def result(name: str, reading: Callable[[], Fields]) -> Fields:
        try:
            return await asyncio.wait_for(in_thread(reading), limit)
        except asyncio.TimeoutError:
            why = f"no end within {limit:g}s"
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        return {"unseen": (Named(name, why),)}

    readings = (item for kind in kinds for item in kind.readings(inputs).items())
    fields: Fields = {}
    for part in await asyncio.gather(*(result(*item) for item in readings)):
        for key, value in part.items():
            fields[key] = fields.get(key, ()) + value if isinstance(value, tuple) else value
    fields["seconds"] = round(time.monotonic() - begun, 1)
    return dict(from_json(to_json(fields)))


def results(fields: Mapping[str, Any]) -> Results:
    """Return what the probes of a node have found. Raises Invalid if these are not their fields."""
    return {kind: read(kind, fields, "reply.body") for kind in PROBES}


def lacking(inputs: Inputs) -> list[Finding]:
    """Return what this node lacks, of what can be seen without starting a program or asking the
    network, within some milliseconds."""
    topology = inputs.plan.topology
    cheap = [kind for kind in PROBES if kind.is_cheap]
    found = asyncio.run(observe(inputs, cheap)) | {"devices": topology.device.count}
    view = NodeView(inputs.plan, topology.this, None, results(found))
    findings = (finding for kind in cheap for finding in view.of(kind).judge(view))
    return [finding for finding in findings if finding.level != "ok"]


def findings(views: Sequence[NodeView]) -> list[Finding]:
    """Return the findings on each node, then those on what differs between nodes."""
    return [
        *(
            replace(finding, nodes=(view.node.label,))
            for view in views
            for result in view.results.values()
            for finding in result.judge(view)
        ),
        *(finding for kind in PROBES for finding in kind.compare(views)),
    ]
