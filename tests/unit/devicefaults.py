"""What a device reports of itself when its rank has failed."""

from __future__ import annotations

from entrypoint.causes.evidence import DeviceFault, Evidence

OLD_ECC = Evidence(device_faults=(DeviceFault("GPU 2", "ecc", "3 uncorrected errors", 3),))


def fault(kind: str, number: int = 0) -> Evidence:
    return Evidence(device_faults=(DeviceFault("GPU 2", kind, "as reported", number),))  # type: ignore[arg-type]
