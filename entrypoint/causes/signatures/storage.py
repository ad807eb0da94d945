"""Disks, quotas, file systems, checkpoints, compile caches."""

from __future__ import annotations

from entrypoint.causes.kinds import NAMED, PYTHON
from entrypoint.causes.signature import Signature

ROWS = (
    Signature("disk-full", "No space left on device"),
    Signature("disk-full", "no space left on device"),
    Signature("disk-full", "Errno 28]"),
    Signature("disk-full", "errno = 28"),
    Signature("disk-full", "os error 28"),
    Signature("disk-full", "isk quota exceeded", "a quota was used up"),
    Signature("disk-full", "Errno 122]", "a quota was used up"),
    Signature("disk-full", "OutOfDiskError"),
    Signature("disk-full", "ocal disk is full"),
    Signature("disk-full", "low on resource: ephemeral-storage"),
    Signature("disk-full", "Not enough disk space", certainty="high"),
    Signature("disk-full", "not enough disk space", certainty="high"),
    Signature(
        "disk-full",
        "PytorchStreamWriter failed writing file",
        "a file could not be written, which usually means a full disk or quota",
        certainty="low",
    ),
    Signature(
        "disk-full",
        "inline_container.cc",
        "a file could not be written, which usually means a full disk or quota",
        "unexpected pos",
        certainty="low",
        weight=NAMED + 1,
    ),
    Signature("disk-full", "ile write failed", certainty="low", weight=NAMED + 1),
    # file systems
    Signature("storage-io", "Input/output error"),
    Signature("storage-io", "Errno 5]"),
    Signature("storage-io", "os error 5)"),
    Signature("storage-io", "Remote I/O error"),
    Signature(
        "storage-io",
        "Stale file handle",
        "a file handle of a network file system was stale",
        retry="same",
        certainty="low",
    ),
    Signature(
        "storage-io",
        "tale NFS file handle",
        "a file handle of a network file system was stale",
        retry="same",
        certainty="low",
    ),
    Signature(
        "storage-io",
        "Errno 116]",
        "a file handle of a network file system was stale",
        retry="same",
        certainty="low",
    ),
    Signature(
        "storage-io",
        "ransport endpoint is not connected",
        "a mount was lost",
        pattern="/|(?i)mount",
        retry="elsewhere",
    ),
    Signature("storage-io", "Errno 107]", "a mount was lost", pattern="'/", retry="elsewhere"),
    Signature("storage-io", "transport endpoint shutdown", "a mount was lost", retry="elsewhere"),
    Signature("storage-io", "Errno 108]", "a mount was lost", retry="elsewhere"),
    Signature("storage-io", "Host is down", pattern="'/", retry="elsewhere", certainty="low"),
    Signature(
        "storage-io",
        "ead-only file system",
        "a file system was read-only",
        blame="program",
        retry="no",
        certainty="low",
    ),
    Signature(
        "storage-io",
        "Errno 30]",
        "a file system was read-only",
        blame="program",
        retry="no",
        certainty="low",
    ),
    Signature(
        "storage-io", "Errno 110]", "a file system did not answer", pattern="'/", certainty="low"
    ),
    Signature("storage-io", "tructure needs cleaning"),
    Signature("storage-io", "EXT4-fs error"),
    Signature("storage-io", "blk_update_request: I/O error"),
    Signature("storage-io", "nfs: server", pattern="not responding", weight=PYTHON),
    # checkpoints and weights
    Signature("ckpt-corrupt", "PytorchStreamReader failed"),
    Signature("ckpt-corrupt", "failed finding central directory"),
    Signature("ckpt-corrupt", "not a ZIP archive"),
    Signature("ckpt-corrupt", "rror while deserializing header"),
    Signature("ckpt-corrupt", "MetadataIncompleteBuffer"),
    Signature("ckpt-corrupt", "HeaderTooLarge"),
    Signature("ckpt-corrupt", "InvalidHeaderDeserialization"),
    Signature("ckpt-corrupt", "unexpected EOF, expected"),
    Signature("ckpt-corrupt", "The file might be corrupted"),
    Signature("ckpt-corrupt", "nvalid magic number; corrupt file"),
    Signature("ckpt-corrupt", "BadZipFile"),
    Signature("ckpt-corrupt", "pickle data was truncated"),
    Signature("ckpt-corrupt", "Ran out of input", certainty="low"),
    Signature("ckpt-corrupt", "UnpicklingError: invalid load key", certainty="low"),
    Signature(
        "ckpt-corrupt",
        "Data loss: ",
        pattern="(?i)not an sstable|checksum|truncated|corrupt|unable to open table",
    ),
    Signature("ckpt-corrupt", "DataLossError"),
    Signature("ckpt-corrupt", "truncated file: eof"),
    Signature("ckpt-corrupt", "hecksum does not match"),
    Signature(
        "ckpt-corrupt",
        "heckpoint",
        pattern=(
            "(?i)checkpoint.{0,80}(is|may be|seems|was|are|appears to be|might be) "
            "(corrupt|damaged|truncated|incomplete)|(corrupt|truncated|damaged)(ed)? "
            "checkpoint"
        ),
    ),
    Signature(
        "ckpt-corrupt",
        "deserialize",
        pattern="(?i)(out of bounds|file too short|not fully covered|incomplete).{0,20}$",
        certainty="low",
    ),
    Signature("ckpt-corrupt", "CRC check failed", certainty="low"),
    Signature("ckpt-corrupt", "size mismatch between", certainty="low", pattern="(?i)file|header"),
    # compile caches
    Signature("cache-race", "tmp.pid", pattern="triton|\\.tmp\\.pid_|tmp\\.pid_"),
    Signature(
        "cache-race",
        "triton/cache",
        pattern=r"(?:FileNotFoundError|FileExistsError|OSError).{0,400}\.triton/cache",
        weight=NAMED - 1,
    ),
    Signature(
        "cache-race",
        "torchinductor_",
        pattern=r"(?:FileNotFoundError|FileExistsError|EOFError|OSError).{0,300}torchinductor_",
        weight=NAMED - 1,
    ),
    Signature(
        "cache-race",
        "torch_extensions",
        pattern=(
            r"(?i)file too short|FileNotFoundError|FileExistsError|stale|No such file "
            r"or directory"
        ),
        weight=NAMED - 1,
    ),
    Signature(
        "cache-race",
        "transformers_modules",
        pattern="FileNotFoundError|FileExistsError",
        weight=NAMED - 1,
    ),
    Signature("cache-race", "neuron-compile-cache", pattern="(?i)error", weight=NAMED - 1),
)
