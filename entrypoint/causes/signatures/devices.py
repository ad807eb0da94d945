"""GPUs: Xid numbers, CUDA errors, NVML, NVLink, cuBLAS and cuDNN, code for other hardware."""

from __future__ import annotations

from entrypoint.causes.kinds import CONSEQUENCE, LAST_EXCEPTION, LIKELY, NAMED, PYTHON
from entrypoint.causes.signature import Signature

# Xid numbers: https://docs.nvidia.com/deploy/xid-errors
XIDS = {
    "gpu-ecc": (48, 63, 64, 94, 95, 140),
    "gpu-lost": (62, 79, 119, 120, 143, 151),
    "nvlink": (74, 121, 144, 145, 146, 147, 148, 149, 150),
    "cuda-kernel-fault": (13, 31, 32, 43, 45, 69, 109),
}
_XID_SAYS = {
    "gpu-ecc": "{device} reported a memory error (Xid {xid})",
    "gpu-lost": "{device} stopped answering (Xid {xid})",
    "nvlink": "{device} reported an NVLink fault (Xid {xid})",
    "cuda-kernel-fault": "a kernel failed on {device} (Xid {xid})",
}


def _xids(slug: str) -> Signature:
    numbers = "|".join(map(str, XIDS[slug]))
    return Signature(
        slug,
        "Xid",
        _XID_SAYS[slug],
        rf"\bXid\b(?: \([^)]{{0,60}}\))?:? ?(?P<xid>{numbers})\b",
        always=True,
    )


ROWS = (
    *map(_xids, XIDS),
    # memory of the device is damaged
    Signature("gpu-ecc", "uncorrectable ECC error"),
    Signature("gpu-ecc", "CUDA_ERROR_ECC_UNCORRECTABLE"),
    Signature("gpu-ecc", "cudaErrorECCUncorrectable"),
    Signature("gpu-ecc", "ouble Bit ECC Error"),
    Signature("gpu-ecc", "ncontained ECC error"),
    Signature("gpu-ecc", "ncontained memory error"),
    Signature("gpu-ecc", "ow remapp", pattern="(?i)row remapp(er|ing) (failure|failed)"),
    Signature("gpu-ecc", "DBE (double bit error)"),
    # it no longer answers
    Signature("gpu-lost", "fallen off the bus"),
    Signature("gpu-lost", "GPU is lost"),
    Signature("gpu-lost", "GPU_IS_LOST"),
    Signature("gpu-lost", "GPU requires reset"),
    Signature("gpu-lost", "GPU requires a reset"),
    Signature("gpu-lost", "GPU is not accessible"),
    Signature(
        "gpu-lost", "NVRM", pattern=r"(?i)heartbeat timed out|GSP timeout|RmInitAdapter failed"
    ),
    Signature("gpu-lost", "Unable to determine the device handle for GPU"),
    Signature("gpu-lost", "GSP RPC", pattern="(?i)timeout"),
    # links between devices
    Signature("nvlink", "uncorrectable NVLink error", certainty="low"),
    Signature("nvlink", "cudaErrorNvlinkUncorrectable", certainty="low"),
    Signature("nvlink", "CUDA_ERROR_NVLINK_UNCORRECTABLE", certainty="low"),
    Signature("nvlink", "NVLink", pattern="(?i)NVLink.{0,40}fatal error"),
    # driver and fabric of the node
    Signature("gpu-init", "system not yet initialized"),
    Signature("gpu-init", "cudaErrorSystemNotReady"),
    Signature("gpu-init", "CUDA_ERROR_SYSTEM_NOT_READY"),
    Signature("gpu-init", "Driver/library version mismatch", weight=NAMED - 1),
    Signature("gpu-init", "LIB_RM_VERSION_MISMATCH"),
    Signature("gpu-init", "Failed to initialize NVML", pattern="NVML: [A-Z]", weight=NAMED),
    Signature(
        "gpu-init", "abric manager", pattern="(?i)fabric manager (is )?not (running|started)"
    ),
    Signature(
        "gpu-init",
        "display driver / cuda driver combination",
        "the GPU driver and the CUDA driver of the node do not fit",
        certainty="low",
    ),
    Signature("gpu-init", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", certainty="low"),
    Signature("gpu-init", "CUDA unknown error", retry="unknown", certainty="low"),
    Signature(
        "gpu-init",
        "CUDA_ERROR_UNKNOWN",
        pattern="cuInit",
        retry="unknown",
        certainty="low",
    ),
    Signature(
        "gpu-init",
        "cuInit",
        "no usable GPU was found",
        pattern="failed call to cuInit|cuInit.{0,20}failed",
        role="unclear",
        blame="unknown",
        retry="unknown",
        certainty="low",
        weight=LAST_EXCEPTION + 2,
    ),
    Signature(
        "gpu-init",
        "forward compatibility was attempted",
        retry="unknown",
        certainty="low",
    ),
    *(
        Signature(
            "gpu-init",
            needle,
            "the GPU driver of the node is too old for this image",
            blame="node",
            retry="unknown",
            certainty="low",
        )
        for needle in (
            "CUDA driver version is insufficient",
            "NVIDIA driver on your system is too old",
            "cudaErrorInsufficientDriver",
            "was compiled with an unsupported toolchain",
        )
    ),
    *(
        Signature(
            "gpu-init",
            needle,
            "no GPU is visible",
            pattern,
            role="unclear",
            blame="unknown",
            retry="unknown",
            certainty="low",
            weight=PYTHON - 1,
        )
        for needle, pattern in (
            ("No CUDA GPUs are available", ""),
            ("no CUDA-capable device is detected", "^(?!.{0,200}call to cuInit)"),
            ("cudaErrorNoDevice", ""),
            ("Found no NVIDIA driver", ""),
            ("o supported gpu backend found", ""),
            ("No GPU devices found", ""),
            ("No GPUs were found", ""),
            ("No devices were found", ""),
            ("no NVIDIA GPU", "(?i)error|exception"),
            ("No visible GPU devices", ""),
            ("Unable to initialize backend 'cuda'", ""),
            ("Unable to initialize backend 'gpu'", ""),
            ("nvidia-container-cli: initialization error", ""),
            ("only supported with GPUs, no GPUs found", ""),
            ("No GPU found", ""),
            ("no GPU found", ""),
            ("No CUDA runtime is found", "Error"),
            ("CUDA is not available", "Error|assert"),
            ("GPU is not available", "Error"),
        )
    ),
    # held by others
    Signature("gpu-busy", "busy or unavailable"),
    Signature("gpu-busy", "CUDA_ERROR_DEVICE_UNAVAILABLE"),
    Signature("gpu-busy", "cudaErrorDevicesUnavailable"),
    Signature("gpu-busy", "exclusive-thread device already in use"),
    Signature("gpu-busy", "The TPU is already in use by process"),
    # memory
    Signature("gpu-oom", "CUDA out of memory"),
    Signature("gpu-oom", "HIP out of memory"),
    Signature("gpu-oom", "XPU out of memory"),
    Signature("gpu-oom", "CUDA error: out of memory", certainty="low"),
    Signature("gpu-oom", "CUDA_ERROR_OUT_OF_MEMORY", certainty="low", weight=NAMED + 2),
    Signature("gpu-oom", "cudaErrorMemoryAllocation", certainty="low"),
    Signature("gpu-oom", "out of memory", pattern=r"(?i)cuda\w*[^.]{0,60}: ?'?out of memory"),
    Signature("gpu-oom", "Cuda failure", pattern="out of memory", certainty="low"),
    Signature("gpu-oom", "torch.OutOfMemoryError", weight=NAMED + 1),
    Signature("gpu-oom", "torch.cuda.OutOfMemoryError", weight=NAMED + 1),
    Signature("gpu-oom", "OOM when allocating tensor", pattern=r"(?i)gpu"),
    Signature(
        "gpu-oom", "RESOURCE_EXHAUSTED", pattern="(?i)out of memory|allocat|attempting to reserve"
    ),
    Signature("gpu-oom", "Resource exhausted: ", pattern="(?i)out of memory"),
    Signature("gpu-oom", "ResourceExhaustedError", weight=NAMED + 1, certainty="low"),
    Signature("gpu-oom", "ran out of memory trying to allocate", weight=NAMED + 2, certainty="low"),
    Signature("gpu-oom", "CUBLAS_STATUS_ALLOC_FAILED", certainty="low", weight=NAMED + 4),
    Signature("gpu-oom", "CUDNN_STATUS_ALLOC_FAILED", certainty="low", weight=NAMED + 4),
    Signature("gpu-oom", "Out of memory error on GPU", certainty="high"),
    # the program's kernels
    Signature("device-assert", "device-side assert triggered"),
    Signature("device-assert", "CUDA_ERROR_ASSERT"),
    Signature("device-assert", "cudaErrorAssert"),
    Signature(
        "device-assert", "Assertion `", pattern=r"\.(?:cuh?|hip)\b.{0,200}Assertion `.{1,300}failed"
    ),
    Signature("cuda-kernel-fault", "illegal memory access"),
    Signature("cuda-kernel-fault", "CUDA_ERROR_ILLEGAL_ADDRESS"),
    Signature("cuda-kernel-fault", "cudaErrorIllegalAddress"),
    Signature("cuda-kernel-fault", "unspecified launch failure", blame="unknown"),
    Signature("cuda-kernel-fault", "CUDA_ERROR_LAUNCH_FAILED", blame="unknown"),
    Signature("cuda-kernel-fault", "cudaErrorLaunchFailure", blame="unknown"),
    Signature("cuda-kernel-fault", "misaligned address"),
    Signature("cuda-kernel-fault", "CUDA_ERROR_MISALIGNED_ADDRESS"),
    Signature("cuda-kernel-fault", "CUDA error: an illegal instruction was encountered"),
    Signature("cuda-kernel-fault", "CUDA_ERROR_ILLEGAL_INSTRUCTION"),
    Signature("cuda-kernel-fault", "invalid program counter"),
    Signature("cuda-kernel-fault", "hardware stack error"),
    Signature("cuda-kernel-fault", "operation not supported on global/shared address space"),
    Signature("cuda-kernel-fault", "the launch timed out and was terminated"),
    Signature("cuda-kernel-fault", "Memory access fault by GPU", certainty="low"),
    *(
        Signature("cuda-kernel-fault", needle, blame="unknown", weight=LIKELY + 3)
        for needle in (
            "CUBLAS_STATUS_EXECUTION_FAILED",
            "CUBLAS_STATUS_INTERNAL_ERROR",
            "CUBLAS_STATUS_MAPPING_ERROR",
            "CUBLAS_STATUS_NOT_INITIALIZED",
            "CUDNN_STATUS_EXECUTION_FAILED",
            "CUDNN_STATUS_INTERNAL_ERROR",
            "CUDNN_STATUS_MAPPING_ERROR",
            "CUDNN_STATUS_NOT_INITIALIZED",
            "CUSOLVER_STATUS_INTERNAL_ERROR",
            "CUDA error: unknown error",
            "CUDA error: initialization error",
        )
    ),
    # code for other hardware
    Signature("arch-mismatch", "no kernel image is available"),
    Signature("arch-mismatch", "CUDA_ERROR_NO_BINARY_FOR_GPU"),
    Signature("arch-mismatch", "cudaErrorNoKernelImageForDevice"),
    Signature("arch-mismatch", "device kernel image is invalid"),
    Signature("arch-mismatch", "invalid device function"),
    Signature(
        "arch-mismatch", "not compatible with the current PyTorch installation", weight=NAMED + 9
    ),
    Signature("arch-mismatch", "ptxas", pattern=r"Value 'sm_\w+' is not defined"),
    Signature("arch-mismatch", "nsupported gpu architecture"),
    Signature("arch-mismatch", "FlashAttention only supports"),
    Signature("arch-mismatch", "GPUs with compute capability of at least"),
    Signature("arch-mismatch", "requires device with capability"),
    Signature(
        "arch-mismatch", "was compiled to use", pattern="instructions, but these aren't available"
    ),
    Signature("arch-mismatch", "xec format error"),
    Signature(
        "arch-mismatch", "Fatal Python error: Illegal instruction", retry="unknown", certainty="low"
    ),
    Signature(
        "arch-mismatch",
        "llegal instruction",
        pattern=(
            r"(^|: ?)Illegal instruction *(\(core|$)|\(Illegal instruction\)|signal "
            r"4\b|Illegal instruction \(4\)"
        ),
        retry="unknown",
        certainty="low",
    ),
    # the libraries' own summary: what failed stands elsewhere
    Signature(
        "peer-lost",
        "unhandled cuda error",
        "NCCL reported an error of CUDA that it does not name",
        role="unclear",
        blame="unknown",
        certainty="low",
        weight=CONSEQUENCE + 2,
    ),
    Signature(
        "peer-lost",
        "ncclUnhandledCudaError",
        "NCCL reported an error of CUDA that it does not name",
        role="unclear",
        blame="unknown",
        certainty="low",
        weight=CONSEQUENCE + 2,
    ),
    Signature("gpu-init", "couldn't communicate with the NVIDIA driver"),
    Signature("gpu-init", "could not select device driver"),
    Signature("gpu-init", "OS call failed or operation not supported on this OS"),
    Signature(
        "gpu-init",
        "No HIP GPUs are available",
        "no GPU is visible",
        role="unclear",
        blame="unknown",
        retry="unknown",
        certainty="low",
    ),
    Signature(
        "gpu-init",
        "no ROCm-capable device is detected",
        "no GPU is visible",
        role="unclear",
        blame="unknown",
        retry="unknown",
        certainty="low",
    ),
    Signature(
        "gpu-init",
        "Torch is not able to use GPU",
        "no GPU is visible",
        role="unclear",
        blame="unknown",
        retry="unknown",
        certainty="low",
    ),
    Signature(
        "gpu-init",
        "NVML",
        pattern="(?i)nvml.{0,40}(not found|library not found|driver not loaded)",
        certainty="low",
        weight=LAST_EXCEPTION + 2,
    ),
    Signature("gpu-lost", "GPU lost from the bus"),
    Signature("gpu-lost", "uvm encountered global fatal error"),
    Signature("nvlink", "SXid", pattern=r"SXid \(.{0,60}\): ?\d+"),
    Signature("nvlink", "NVSwitch", pattern="(?i)nvswitch.{0,60}fatal"),
    Signature("gpu-ecc", "uncorrectable hardware errors detected"),
    Signature(
        "gpu-ecc",
        "ncorrectable",
        pattern=r"(?i)uncorrectable.{0,20}(ecc|memory|dram|hbm)(?!.{0,40}[:=] {0,20}0\b)",
    ),
    Signature("cuda-kernel-fault", "GPU Hang", blame="unknown"),
    Signature("gpu-oom", "hipErrorOutOfMemory"),
    Signature("gpu-oom", "Ran out of memory in memory space"),
    Signature(
        "gpu-oom",
        "was unable to find an engine to execute this computation",
        certainty="low",
        weight=NAMED + 4,
    ),
    Signature(
        "gpu-oom", "Unable to find a valid cuDNN algorithm", certainty="low", weight=NAMED + 4
    ),
    Signature("arch-mismatch", "no longer supports this GPU", weight=NAMED + 9),
    Signature("arch-mismatch", "FATAL: kernel `", pattern="but was built for"),
    Signature("arch-mismatch", "invalid value for --gpu-architecture"),
    Signature("arch-mismatch", "wrong architecture"),
    Signature("arch-mismatch", "cudaErrorInvalidDeviceFunction"),
    Signature("arch-mismatch", "hipErrorNoBinaryForGpu"),
    Signature(
        "user-args",
        "ncclInvalidUsage",
        "NCCL was called in a way that it does not allow",
        certainty="low",
        weight=LAST_EXCEPTION + 2,
    ),
    Signature(
        "user-args",
        "NCCL error in",
        "NCCL was called in a way that it does not allow",
        "invalid (argument|usage)",
        certainty="low",
        weight=LAST_EXCEPTION + 2,
    ),
    Signature(
        "gpu-init",
        "CUDA_ERROR_NO_DEVICE",
        "no GPU is visible",
        role="unclear",
        blame="unknown",
        retry="unknown",
        certainty="low",
        weight=LAST_EXCEPTION + 1,
    ),
)
