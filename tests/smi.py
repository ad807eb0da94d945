"""A simulated nvidia-smi, which prints one or more cards as the driver's own tool does."""

from __future__ import annotations

from pathlib import Path

HOLDER = "<process_info><pid>77</pid><type>C</type><process_name>/opt/python</process_name></process_info>"
_CARD = """<gpu id="00000000:1{number}:00.0"><product_name>NVIDIA H100</product_name>
<fb_memory_usage><used>$used MiB</used></fb_memory_usage>
<ecc_errors><volatile><dram_uncorrectable>{ecc}</dram_uncorrectable></volatile></ecc_errors>
<processes>$holder</processes></gpu>"""
_TOOL = """#!/bin/bash
echo asked >>{folder}/asked
{before}
used=4 holder=
now=${{EPOCHREALTIME/[.,]/}}
[ -f {folder}/begun ] || echo $now >{folder}/begun
if (( now < $(cat {folder}/begun) + {held} )); then used=20480 holder='{holder}'; fi
cat <<END
<?xml version="1.0" ?>
<nvidia_smi_log><driver_version>550.54.15</driver_version>
{cards}
</nvidia_smi_log>
END
"""


def simulated_smi(
    folder: Path, *, ecc: tuple[int, ...] = (0, 0), held: float = 0.0, before: str = ""
) -> Path:
    """Write the tool into the folder, and return that, for PATH.

    `ecc`: uncorrectable errors of each card; `held`: seconds from its first call for which a process
    uses its memory; `before`: shell that runs first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    cards = "\n".join(_CARD.format(number=number, ecc=count) for number, count in enumerate(ecc))
    file = folder / "nvidia-smi"
    file.write_text(
        _TOOL.format(folder=folder, before=before, held=int(held * 1e6), holder=HOLDER, cards=cards)
    )
    file.chmod(0o755)
    return folder


def calls(folder: Path) -> int:
    """Return how often the tool was called."""
    file = folder / "asked"
    return len(file.read_text().splitlines()) if file.exists() else 0
