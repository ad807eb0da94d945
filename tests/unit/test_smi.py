"""What nvidia-smi and npu-smi print, in the form of outputs that users published -> cards, and what
is wrong."""

from __future__ import annotations

import time
from types import SimpleNamespace as Values

import pytest

from entrypoint.devices import _smi as smi
from entrypoint.devices._smi import Card
from entrypoint.ranks import evidence
from entrypoint.ranks.evidence import NodeProbe
from entrypoint.system.cgroups import Memory, Processes

NVIDIA = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <driver_version>550.54.15</driver_version>
  <cuda_version>12.4</cuda_version>
  <attached_gpus>2</attached_gpus>
  <gpu id="00000000:18:00.0">
    <product_name>NVIDIA H100 80GB HBM3</product_name>
    <clocks_event_reasons><clocks_event_reason_hw_thermal_slowdown>Not Active</clocks_event_reason_hw_thermal_slowdown>
    </clocks_event_reasons>
    <fb_memory_usage><total>81559 MiB</total><used>4 MiB</used></fb_memory_usage>
    <ecc_errors><volatile><sram_uncorrectable_parity>0</sram_uncorrectable_parity>
      <dram_uncorrectable>0</dram_uncorrectable></volatile></ecc_errors>
    <remapped_rows><remapped_row_pending>No</remapped_row_pending><remapped_row_failure>No</remapped_row_failure>
    </remapped_rows>
    <processes><process_info><pid>9</pid><type>G</type><process_name>/usr/lib/xorg/Xorg</process_name></process_info>
    </processes>
  </gpu>
  <gpu id="00000000:2A:00.0">
    <product_name>NVIDIA H100 80GB HBM3</product_name>
    <fb_memory_usage><total>81559 MiB</total><used>20000 MiB</used></fb_memory_usage>
    <ecc_errors><volatile><dram_uncorrectable>3</dram_uncorrectable></volatile>
      <aggregate><dram_uncorrectable>9</dram_uncorrectable></aggregate></ecc_errors>
    <remapped_rows><remapped_row_pending>Yes</remapped_row_pending></remapped_rows>
    <processes><process_info><pid>4711</pid><process_name>/usr/bin/python3</process_name></process_info></processes>
  </gpu>
</nvidia_smi_log>
"""
NPU = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 23.0.6                   Version: 23.0.6                                               |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B3               | OK            | 93.6        44                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          3348 / 65536         |
+===========================+===============+====================================================+
| 1     910B3               | Alarm         | 90.1        43                0    / 0             |
| 0                         | 0000:01:00.0  | 0           0    / 0          3348 / 65536         |
+===========================+===============+====================================================+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| No running processes found in NPU 0                                                            |
| 1       0                 | 4711          | python3                  | 2048                    |
+===========================+===============+====================================================+
"""


def test_nvidia_smi() -> None:
    seen = smi.nvidia(NVIDIA)
    name, bad = "NVIDIA H100 80GB HBM3", "3 uncorrectable memory errors since the driver was loaded"
    bad += "; a row of its memory is to be remapped at the next reset"
    assert seen["cards"] == (Card(0, name, "", 4), Card(1, name, bad, 20000, ("pid 4711 python3",)))
    assert (seen["driver"], seen["driver_cuda"]) == ("550.54.15", "12.4")
    with pytest.raises(ValueError, match="prints no XML"):
        smi.nvidia("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")


# What other drivers print otherwise, in the form of outputs that users published: the fields alone
# that differ.
CARD = "<gpu id='00000000:B3:00.0'><product_name>X</product_name>{}</gpu>"
OF_DRIVERS = {
    # 390: no CUDA version, memory errors by how many bits they have
    "<ecc_errors><volatile><single_bit><total>4</total></single_bit><double_bit><total>2</total></double_bit></volatile></ecc_errors><retired_pages><pending_retirement>Yes</pending_retirement></retired_pages>": (
        "2 uncorrectable memory errors since the driver was loaded; "
        "a page of its memory is to be retired at the next reset"
    ),
    "<ecc_errors><volatile><double_bit><total>N/A</total></double_bit></volatile></ecc_errors><retired_pages><pending_retirement>N/A</pending_retirement></retired_pages>": (
        ""
    ),
    # 535, with MIG: its instances count errors, too
    "<mig_devices><mig_device><ecc_error_count><volatile_count><sram_uncorrectable>0</sram_uncorrectable></volatile_count></ecc_error_count></mig_device></mig_devices><remapped_rows>N/A</remapped_rows><gpu_reset_status><reset_required>No</reset_required></gpu_reset_status><fabric><state>N/A</state><status>N/A</status></fabric>": (
        ""
    ),
    "<gpu_reset_status><reset_required>Yes</reset_required></gpu_reset_status>": (
        "the driver asks for: Reset"
    ),
    # 550
    "<ecc_errors><volatile><sram_uncorrectable_secded>1</sram_uncorrectable_secded></volatile><aggregate><sram_threshold_exceeded>Yes</sram_threshold_exceeded></aggregate></ecc_errors>": (
        "1 uncorrectable memory errors since the driver was loaded; "
        "more errors of its on-chip memory than are allowed in its life"
    ),
    # 570: other names for what the driver asks for
    "<gpu_reset_status><reset_required>Requested functionality has been deprecated</reset_required></gpu_reset_status><gpu_recovery_action>None</gpu_recovery_action>": (
        ""
    ),
    "<gpu_recovery_action>Drain and Reset</gpu_recovery_action>": (
        "the driver asks for: Drain and Reset"
    ),
    # 580
    "<ecc_errors><unrepairable_memory>Yes</unrepairable_memory><tpc_repair_pending>No</tpc_repair_pending></ecc_errors>": (
        "memory that cannot be repaired"
    ),
    "<clocks_event_reasons><clocks_event_reason_hw_power_brake_slowdown>Active</clocks_event_reason_hw_power_brake_slowdown></clocks_event_reasons>": (
        "slowed down by its power supply"
    ),
    "<fabric><state>Completed</state><status>Success</status></fabric>": "",
    "<fabric><state>In Progress</state><status>N/A</status></fabric>": (
        "not part of its NVSwitch fabric: In Progress, N/A (see the machine's Fabric Manager)"
    ),
}


@pytest.mark.parametrize("fields", OF_DRIVERS)
def test_what_other_drivers_print(fields: str) -> None:
    seen = smi.nvidia(
        f"<nvidia_smi_log><driver_version>1</driver_version>{CARD.format(fields)}</nvidia_smi_log>"
    )
    assert seen["cards"] == (Card(0, "X", OF_DRIVERS[fields], None, ()),)


@pytest.mark.parametrize("where", ["after", "before"])
def test_a_warning_beside_the_xml(where: str) -> None:
    whole = (
        f"<nvidia_smi_log>{CARD.format('')}{CARD.format('').replace('B3', '18')}</nvidia_smi_log>"
    )
    words = "WARNING: infoROM is corrupted at gpu 0000:B3:00.0"
    seen = smi.nvidia(
        f"{whole}\n{words}\n" if where == "after" else f"{words}\n<?xml version='1.0' ?>\n{whole}\n"
    )
    assert [each.problem for each in seen["cards"]] == ["its infoROM is corrupted", ""]


# npu-smi 24.1 on 910C: two chips in each NPU, and all are counted in the second row.
NPU_910C = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 24.1.rc3.7               Version: 24.1.rc3.7                                           |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 4     Ascend910           | Critical      | 171.0       49                0    / 0             |
| 0     8                   | 0000:8D:00.0  | 0           0    / 0          51000/ 65536         |
+------------------------------------------------------------------------------------------------+
| 4     Ascend910           | OK            | -           51                0    / 0             |
| 1     9                   | 0000:8F:00.0  | 0           0    / 0          3000 / 65536         |
+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 4       1                 | 4711          | python3                  | 2000                    |
+===========================+===============+====================================================+
"""
# npu-smi 23.0 on 310B, whose chip is no PCI device, then 310P in slot 5.
NPU_310 = """\
| npu-smi 23.0.rc3                                 Version: 23.0.rc3                                     |
+-------------------------------+-----------------+------------------------------------------------------+
| NPU     Name                  | Health          | Power(W)     Temp(C)           Hugepages-Usage(page) |
| Chip    Device                | Bus-Id          | AICore(%)    Memory-Usage(MB)                        |
+===============================+=================+======================================================+
| 0       310B1                 | OK              | 9.2          53                15    / 15            |
| 0       0                     | NA              | 0            3841 / 11577                            |
+===============================+=================+======================================================+
| 5       310P3                 | Alarm           | NA           40                0     / 0             |
| 0       1                     | 0000:85:00.0    | 0            1849 / 21525                            |
+===============================+=================+======================================================+
"""
# npu-smi 26.0: wider, and one more column for processes.
NPU_26 = """\
| npu-smi 26.0.rc2                            Version: 26.0.rc2                                                    |
| NPU   Name                | Health        | Power(W)             Temp(C)                 Hugepages-Usage(page)   |
| Chip                      | Bus-Id        | AICore(%)            Memory-Usage(MB)        HBM-Usage(MB)           |
+===========================+===============+======================================================================+
| 0     910B2               | Warning       | 90.0                 44                      0    / 0                |
| 0                         | 0000:C1:00.0  | 0                    0    / 0                41842/ 65536            |
+===========================+===============+======================================================================+
| NPU     Chip              | Process id    | Process name       | Process memory(MB)    | Process id in container |
+===========================+===============+======================================================================+
| 0       0                 | 485946        | pytest             | 5175                  | NA                      |
"""
# npu-smi on Ascend 950: the number has a column of its own.
NPU_950 = """\
| npu-smi 25.7.rc1    Version: 25.7.rc1 |
| NPU ID | Name        | Health | Power(W) Temp(C) Hugepages-Usage(page)             |
|        |             | Bus-Id | NPU Util(%) Memory-Usage(MB) HBM-Usage(MB)         |
| 0      | Ascend950DT | OK     | 100.0 40 0 / 0                                     |
|        |             | NA     | 20 0 / 0 1024 / 8192                               |
| 3      | Ascend950DT | Alarm  | 120.0 45 0 / 0                                     |
|        |             | NA     | 0 0 / 0 2048 / 8192                                |
| NPU ID | Process id | Process name | Process memory(MB) | Process id in container  |
| 0      | 1001       | python       | 256                | NA                       |
| No running processes found in NPU 3 |
"""


@pytest.mark.parametrize(
    ("text", "cards"),
    [
        (
            NPU_910C,
            (
                Card(8, "Ascend910", "npu-smi says Critical"),
                Card(9, "Ascend910", "", None, ("pid 4711 python3",)),
            ),
        ),
        (NPU_310, (Card(0, "310B1"), Card(1, "310P3", "npu-smi says Alarm"))),
        (NPU_26, (Card(0, "910B2", "npu-smi says Warning", None, ("pid 485946 pytest",)),)),
        (
            NPU_950,
            (
                Card(0, "Ascend950DT", "", None, ("pid 1001 python",)),
                Card(3, "Ascend950DT", "npu-smi says Alarm"),
            ),
        ),
    ],
    ids=["910C", "310", "26.0", "950"],
)
def test_what_other_npu_smis_print(text: str, cards: tuple[Card, ...]) -> None:
    assert smi.npu(text)["cards"] == cards


def test_npu_smi() -> None:
    seen = smi.npu(NPU)
    assert seen["driver"] == "23.0.6"
    expected = (
        Card(0, "910B3"),
        Card(1, "910B3", "npu-smi says Alarm", None, ("pid 4711 python3",)),
    )
    assert seen["cards"] == expected
    with pytest.raises(ValueError, match="no table"):
        smi.npu("dcmi module initialize failed")


@pytest.mark.parametrize(
    ("number", "seconds_ago", "counts"),
    [
        (43, -1, True),  # a kernel of this program failed
        (43, 20, False),  # of another program, or of the attempt before
        (31, 20, False),
        (79, 20, True),  # the GPU itself is lost, and stays so
        (79, 90, False),
    ],
)
def test_xids_from_before_the_start(
    number: int, seconds_ago: float, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen on an H200: after a program's Xid 43, the next program's own exception was blamed on
    that Xid."""
    topology = Values(device=Values(count=0))
    probe = NodeProbe(Values(env={"PATH": "/none"}), topology, Memory(), Processes())  # type: ignore[arg-type]
    logged = int((time.monotonic() - seconds_ago) * 1e6)
    record = f"4,1,{logged},-;NVRM: Xid (PCI:0000:2a:00): {number}, pid=77, name=python3\n"
    monkeypatch.setattr(evidence, "_records", lambda: [record.encode()])
    monkeypatch.setattr(smi, "TOOLS", {})
    assert [fault.number for fault in probe.device_faults()] == [number] * counts
