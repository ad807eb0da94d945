"""Ascend NPUs: CANN, HCCL, torch_npu, MindSpore."""

from __future__ import annotations

from entrypoint.causes.kinds import CONSEQUENCE, LAST_EXCEPTION, LIKELY, NAMED, WAITED
from entrypoint.causes.signature import Signature


def _codes(*numbers: int) -> str:
    """Return a pattern for the ways in which CANN prints an error code of its runtime."""
    listed = "|".join(map(str, numbers))
    return rf"(?i)(?:error code|result|ret|code|errno|retcode)[^0-9\n]{{0,12}}(?:{listed})\b"


ROWS = (
    # device and links; error codes: rt_error_codes.h of CANN
    Signature("gpu-ecc", "5070", pattern=_codes(507053, 507054)),
    Signature("gpu-ecc", "HBM MULTI BIT ECC"),
    Signature("gpu-ecc", "UCE ERROR"),
    Signature("gpu-ecc", "5070", pattern=_codes(507055), certainty="low"),
    Signature("gpu-ecc", "SUSPECT MEM ERROR", certainty="low"),
    Signature("gpu-ecc", "ulti-bit ECC"),
    Signature("gpu-lost", "5070", pattern=_codes(507010)),
    Signature(
        "gpu-lost",
        "lost heartbeat",
        pattern="(?i)(ts|device|task scheduler|npu).{0,20}lost heartbeat",
    ),
    Signature("gpu-lost", "LOST_HEARTBEAT"),
    Signature("gpu-lost", "5079", pattern=_codes(507901), certainty="low"),
    Signature("gpu-lost", "DEVICE LOST", pattern="NPU|npu"),
    Signature("nvlink", "HCCS LINK ERROR"),
    Signature("nvlink", "5070", pattern=_codes(507056)),
    Signature("gpu-init", "5070", pattern=_codes(507033), certainty="low"),
    Signature(
        "gpu-init",
        "drv",
        pattern="(?i)drvRet|drv.{0,40}(device open|open device).{0,20}fail",
        retry="unknown",
        certainty="low",
        weight=LAST_EXCEPTION + 3,
    ),
    Signature("gpu-init", "dcmi model initialized failed", retry="unknown", certainty="low"),
    Signature(
        "gpu-init",
        "No NPUs are available",
        role="unclear",
        blame="unknown",
        retry="unknown",
        certainty="low",
    ),
    # held by others
    Signature(
        "gpu-busy",
        "EJ0001",
        "an NPU process of an earlier run still holds {device}",
        retry="same",
        certainty="low",
    ),
    Signature("gpu-busy", "Maybe the last training process is running", retry="same"),
    # memory
    Signature("gpu-oom", "NPU out of memory"),
    Signature("gpu-oom", "EL0004", pattern="EL0004.{0,60}(?i:alloc|memory)", certainty="low"),
    Signature("gpu-oom", "EI0011"),
    Signature("gpu-oom", "207001", pattern=_codes(207001), certainty="low"),
    Signature("gpu-oom", "Device(", pattern="Memory not enough", certainty="high"),
    Signature("gpu-oom", "Out of Memory!!!", certainty="high"),
    Signature("gpu-oom", "Malloc device memory failed", certainty="low"),
    # cores
    Signature("npu-exception", "EZ9999", pattern="(?i)exception|error code = 0x|abnormal"),
    Signature(
        "npu-exception",
        "5070",
        pattern=_codes(507015, 507016, 507017, 507018, 507035, 507036, 507049, 507050),
    ),
    Signature("npu-exception", "5070", pattern=_codes(507014, 507034), weight=LIKELY + 2),
    Signature("npu-exception", "vector core execution is abnormal", blame="unknown"),
    Signature("npu-exception", "core execution is abnormal"),
    Signature("npu-exception", "aicore exception"),
    Signature("npu-exception", "ai core error"),
    Signature("npu-exception", "aivec error"),
    Signature("npu-exception", "icore kernel execute failed"),
    Signature("npu-exception", "icpu kernel execute failed"),
    Signature("npu-exception", "fftsplus ai", pattern="(?i)fftsplus ai(core|vector|cpu)"),
    Signature("npu-exception", "sdma error"),
    Signature("npu-exception", "EI0012"),
    Signature("npu-exception", "mte error"),
    Signature("npu-exception", "address of the MTE instruction is out of range"),
    Signature("npu-exception", "emory async copy failed", weight=LIKELY + 2),
    Signature("npu-exception", "device task abort", weight=LIKELY + 2),
    Signature(
        "npu-exception",
        "5070",
        pattern=_codes(507000, 507001, 507011),
        blame="unknown",
        weight=LIKELY + 4,
    ),
    Signature("npu-exception", "E39999", blame="unknown", weight=LAST_EXCEPTION + 2),
    # torch_npu's own words, around the error of CANN
    *(
        Signature("npu-exception", needle, blame="unknown", role="unclear", weight=CONSEQUENCE + 3)
        for needle in (
            "NPU function error",
            "OPS function error",
            "ACL stream synchronize failed",
            "call acl api failed",
            "Ascend Error Message",
            "EE9999",
            "EI9999",
        )
    ),
    # collective communication: error codes of HCCL
    Signature("collective-timeout", "EI0002"),
    Signature("collective-timeout", "wait execution of the Notify register times out"),
    Signature("collective-timeout", "Notify register waits for execution"),
    Signature("collective-timeout", "fftsplus task timeout"),
    Signature(
        "collective-timeout",
        "5070",
        pattern=_codes(507012, 507046, 507047, 507048),
        weight=WAITED + 1,
    ),
    Signature("collective-timeout", "execution of the internal task times out", weight=WAITED + 1),
    Signature("collective-mismatch", "EI0005"),
    Signature("collective-mismatch", "are inconsistent between ranks"),
    Signature("rendezvous-timeout", "EI0006"),
    Signature("rendezvous-timeout", "etting socket times out"),
    Signature("rendezvous-timeout", "wait socket establish timeout"),
    Signature("rendezvous-timeout", "LINK_ERROR_INFO", weight=WAITED),
    Signature("rendezvous-timeout", "EI0015"),
    Signature("rendezvous-timeout", "topo exchange", pattern="(?i)time ?out"),
    Signature("peer-lost", "EI0009", weight=CONSEQUENCE),
    Signature("peer-lost", "5070", pattern=_codes(507057), certainty="low"),
    Signature("peer-lost", "SUSPECT REMOTE ERROR", certainty="low"),
    Signature("rdma-error", "EI0013"),
    Signature("rdma-error", "EI0018"),
    Signature("rdma-error", "error cqe", pattern="(?i)error cqe"),
    Signature("rdma-error", "5079", pattern=_codes(507904)),
    Signature("rdma-error", "HCCL OP RETRY FAILED"),
    Signature("addr-in-use", "EI0019", retry="unknown", certainty="high"),
    Signature("addr-in-use", "EI0020", retry="unknown", certainty="high"),
    Signature("addr-in-use", "EJ0003", retry="unknown", certainty="high"),
    Signature(
        "addr-in-use",
        "listen on ip",
        pattern=r"port\[?(?P<port>\d+)?\]? ?fail",
        retry="unknown",
        certainty="high",
        weight=NAMED - 1,
    ),
    Signature(
        "addr-in-use", "heck whether the port is been using", retry="unknown", certainty="high"
    ),
    Signature("net-unreachable", "EJ0002"),
    Signature("net-unreachable", "network port is down"),
    Signature("net-unreachable", "EI0010"),
    Signature("setup", "EJ0004"),
    Signature("lib-mismatch", "EI0008"),
    Signature("lib-mismatch", "package version", pattern="(?i)driver.{0,80}not (match|compatible)"),
    *(
        Signature("user-args", needle, "the configuration of HCCL is not valid", certainty="high")
        for needle in ("EI0001", "EI0003", "EI0004", "EI0014", "EI0016", "EI0017")
    ),
    Signature("gpu-oom", "emory isn't enough", certainty="high"),
    Signature("gpu-oom", "emory is not enough", pattern="(?i)device|npu|ascend", certainty="high"),
    Signature("gpu-init", "dcmi module initialize failed", retry="unknown", certainty="low"),
    Signature(
        "user-args",
        "RANK_TABLE_FILE",
        pattern="(?i)invalid|not exist|not set|fail|error",
        certainty="low",
    ),
    Signature(
        "user-args",
        "ranktable",
        pattern=(
            "(?i)(parse|check|load|invalid).{0,60}(fail|error|invalid)|"
            "rank ?table.{0,60}(invalid|not exist|error|fail)"
        ),
        certainty="low",
        weight=LAST_EXCEPTION + 2,
    ),
    Signature("gpu-init", "driver error:internal error", retry="unknown", certainty="low"),
    Signature("gpu-init", "tsd client wait response fail", retry="unknown", certainty="low"),
    Signature("gpu-init", "5078", pattern=_codes(507899), retry="unknown", certainty="low"),
)
