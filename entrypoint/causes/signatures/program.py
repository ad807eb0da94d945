"""The program's own: licences, libraries, NaN, arguments, rights, files."""

from __future__ import annotations

from entrypoint.causes.kinds import LAST_EXCEPTION, NAMED, PYTHON
from entrypoint.causes.signature import Signature

ROWS = (
    # licences
    Signature(
        "licence",
        "icens",
        pattern=(
            r"(?i)(unable|cannot|could not|failed|can't) .{0,40}"
            r"(connect|reach|contact|check ?out|obtain|acquire|get).{0,40}licen[cs]e"
            r"|licen[cs]e .{0,40}not available|connection to the licen[cs]e server could not"
            r"|licen[cs]e (server|manager).{0,60}(down|unreachable|not respond|unavailable)"
            r"|licen[cs]e (server|manager).{0,60}(error|not running|refused|cannot)"
            r"|licen[cs]e checkout failed|licensing error"
            r"|no (free |available )licen[cs]es?\b|licensed number of users already reached"
            r"|all licen[cs]es .{0,20}in use|waiting for licen[cs]e"
        ),
    ),
    Signature(
        "licence",
        "icense",
        "the licence is missing or expired",
        pattern=(
            r"(?i)licen[cs]e (has |is |file )?(expired|not found|missing|invalid|does "
            r"not exist)|invalid licen[cs]e|no valid licen[cs]e"
        ),
        retry="no",
        weight=NAMED + 1,
    ),
    # libraries
    Signature("lib-mismatch", "undefined symbol"),
    Signature("lib-mismatch", "symbol lookup error"),
    Signature("lib-mismatch", "version `", pattern=r"version `[\w.]+' not found"),
    Signature("lib-mismatch", "GLIBC", pattern=r"GLIBC(XX)?_[\d.]+' not found"),
    Signature("lib-mismatch", "module compiled against A"),
    Signature("lib-mismatch", "size changed, may indicate binary incompatibility"),
    Signature(
        "lib-mismatch",
        "A module that was compiled using NumPy",
        certainty="low",
        weight=LAST_EXCEPTION + 4,
    ),
    Signature("lib-mismatch", "mismatches the version that was used to compile"),
    Signature("lib-mismatch", "uDNN version incompatibility"),
    Signature("lib-mismatch", "but source was compiled with"),
    Signature("lib-mismatch", "different CUDA versions"),
    Signature("lib-mismatch", "NCCL version mismatch"),
    Signature("lib-mismatch", "DSO missing from command line"),
    Signature(
        "lib-mismatch", "CUBLAS_STATUS_INVALID_VALUE", certainty="low", weight=LAST_EXCEPTION - 1
    ),
    Signature("lib-mismatch", "wrong ELF class"),
    Signature("lib-mismatch", "invalid ELF header"),
    Signature(
        "lib-mismatch", "TensorFlow", pattern="(?i)(cudnn|cuda) .{0,60}(mismatch|incompatib)"
    ),
    Signature(
        "lib-mismatch", "is required for a normal functioning of this module", certainty="low"
    ),
    Signature("lib-mismatch", "VersionConflict", certainty="low"),
    Signature("user-import", "ModuleNotFoundError"),
    Signature("user-import", "No module named", pattern=r"No module named '?\w"),
    Signature("user-import", "annot open shared object file", weight=NAMED),
    Signature("user-import", "ould not load library"),
    Signature(
        "user-import", "ImportError", pattern=r"(?:^|\b[\w.]+\.)ImportError: ", weight=PYTHON + 1
    ),
    Signature("user-import", "requires the following packages"),
    Signature(
        "user-import", "Torch not compiled with CUDA enabled", "this build of torch has no CUDA"
    ),
    Signature(
        "user-import", "Distributed package doesn't have", "this build of torch lacks the backend"
    ),
    # numbers
    Signature(
        "nan-loss",
        "oss",
        pattern=(
            r"(?i)\bloss\b.{0,40}\b(is|became|becomes|was|are|got|turned|returned)"
            r"\b.{0,30}\b(nan|inf|infinite|not finite)\b"
        ),
    ),
    Signature(
        "nan-loss",
        "NaN",
        pattern=(
            r"(?i)nans? (detected|found|encountered|loss|in (the )?(loss|grad))|"
            r"(detected|found|encountered|got|contains?|has|had|hit|produced|with|has|"
            r"is) (a |an |some |any )?nans?\b|loss.{0,20}\bnan\b.{0,40}(abort|stop|"
            r"terminat|exit|kill)"
        ),
    ),
    Signature(
        "nan-loss",
        "nan",
        pattern=(
            r"(?i)(abort|stop|terminat|exit|diverg|invalid|unexpected).{0,40}\bnan\b|"
            r"\bnan\b.{0,60}(abort|stopp|terminat|exiting|skipping)|"
            r"returned nan values|found nan"
        ),
    ),
    Signature(
        "nan-loss",
        "nfinite",
        pattern=(
            r"(?i)loss (is |became |was )?(infinite|non-?finite)|(infinite|"
            r"non-?finite) (loss|grad)|infinite or nan"
        ),
    ),
    Signature(
        "nan-loss",
        "inf",
        pattern=r"(?i)(detected|found|encountered|contains either|contains) .{0,20}\binfs?\b",
    ),
    Signature("nan-loss", "urrent loss scale already at minimum"),
    Signature("nan-loss", "inimum loss scale reached"),
    Signature("nan-loss", "loss is probably exploding"),
    Signature("nan-loss", "FloatingPointError"),
    Signature("nan-loss", "Tensor had NaN"),
    Signature("nan-loss", "Tensor had Inf"),
    Signature("nan-loss", "contains either `inf`, `nan`"),
    Signature("nan-loss", "nvalid loss, terminating training"),
    Signature(
        "nan-loss",
        "rerun_state_machine",
        "the framework found NaN, and cannot tell a bug from a bad GPU",
        "(?i)unexpected result",
        blame="unknown",
        retry="unknown",
        weight=PYTHON - 1,
    ),
    Signature("nan-loss", "nan", pattern=r"found invalid values:.{0,120}nan"),
    # rights
    Signature("permission", "PermissionError"),
    Signature("permission", "Permission denied", weight=LAST_EXCEPTION + 1),
    Signature("permission", "Errno 13]"),
    Signature("permission", "Errno 1]"),
    Signature("permission", "Operation not permitted", pattern="(?i)error|fail"),
    Signature("permission", "gated repo"),
    Signature("permission", "GatedRepoError"),
    Signature("permission", "Client Error", pattern=r"\b(401|403) Client Error"),
    Signature("permission", "Unauthorized", pattern="(?i)401|error"),
    Signature("permission", "Forbidden", pattern="(?i)403|error"),
    Signature("permission", "AccessDenied"),
    Signature("permission", "Access Denied"),
    Signature("permission", "InvalidAccessKeyId"),
    Signature("permission", "SignatureDoesNotMatch"),
    Signature("permission", "ExpiredToken"),
    Signature("permission", "NoCredentialsError"),
    Signature("permission", "nable to locate credentials"),
    Signature("permission", "api_key not configured"),
    Signature("permission", "nvalid API key"),
    Signature(
        "permission",
        "ermission",
        pattern=("(?i)does not have .{0,60}(access|permission)|PERMISSION_DENIED"),
    ),
    Signature("permission", "detected dubious ownership", certainty="low"),
    # files
    Signature("file-missing", "FileNotFoundError", pattern=r"^(?!.{1,250}\w://)"),
    # a library's word for a wrong name and also for a service that did not answer
    Signature(
        "file-missing",
        "FileNotFoundError",
        "a remote file could not be opened",
        r"FileNotFoundError.{1,250}\w://",
        retry="unknown",
        certainty="low",
    ),
    Signature("file-missing", "Errno 2]"),
    Signature("file-missing", "No such file or directory", weight=LAST_EXCEPTION + 1),
    Signature(
        "file-missing", "an't open file", pattern="(?i)no such file|errno 2", weight=PYTHON - 1
    ),
    Signature("file-missing", "NotADirectoryError"),
    Signature("file-missing", "IsADirectoryError"),
    Signature("file-missing", "command not found", weight=LAST_EXCEPTION + 1),
    Signature("file-missing", "executable file not found"),
    Signature("file-missing", "NoSuchKey"),
    Signature("file-missing", "NoSuchBucket"),
    Signature("file-missing", "An error occurred (404)"),
    Signature("file-missing", "Error no file named"),
    Signature("file-missing", "EntryNotFoundError", pattern="(?<!Local)EntryNotFoundError"),
    Signature(
        "file-missing",
        "does not exist",
        pattern=(
            r"(?i)(file|path|directory|folder|checkpoint|dataset).{0,120}does not "
            r"exist|Error: .{0,160}does not exist"
        ),
        weight=PYTHON + 2,
    ),
    Signature(
        "file-missing",
        "not found",
        pattern=(
            r"(?i)(?:error|exception).{0,80}\b(file|path|directory|checkpoint)"
            r"\b.{0,100}not found"
        ),
        weight=PYTHON + 2,
    ),
    Signature(
        "nan-loss",
        "nan",
        pattern=r"(?i)\bloss\b ?[=:] ?nan\b",
        weight=LAST_EXCEPTION + 2,
        always=True,
    ),
    Signature("nan-loss", "NanLossDuringTraining"),
    Signature("nan-loss", "iverged with loss"),
    Signature("lib-mismatch", "torchvision::nms does not exist"),
    Signature("lib-mismatch", "torchvision versions are incompatible"),
    Signature("lib-mismatch", "ot be created directly", pattern="Descriptors"),
    Signature("lib-mismatch", "Numpy is not available"),
    Signature(
        "lib-mismatch",
        "is incompatible with",
        pattern="(?i)version|torch|numpy|cuda",
        certainty="low",
        weight=PYTHON,
    ),
    Signature(
        "lib-mismatch", "ABI", pattern="(?i)abi (version )?(mismatch|incompatib)", certainty="low"
    ),
    Signature(
        "lib-mismatch",
        "requires ",
        pattern=r"ImportError: [\w.-]+[<>=!]=.{0,40} is required",
        weight=NAMED,
    ),
    Signature("user-import", "PackageNotFoundError"),
    Signature("user-import", "No package metadata was found"),
    Signature("user-import", "DistributionNotFound"),
    Signature("user-import", "rror while loading shared libraries", weight=NAMED),
    Signature("file-missing", "NewRandomAccessFile failed to Open"),
    Signature("file-missing", "does not appear to have a file named"),
    Signature("file-missing", "nable to find hostfile", weight=PYTHON - 1),
    Signature("permission", "Invalid user token"),
    Signature("permission", "user is not logged in"),
    Signature("permission", "CommError: permission denied", weight=PYTHON - 1),
    Signature("permission", "HTTP Error 401"),
    Signature("permission", "HTTP Error 403"),
    Signature("permission", "401 Unauthorized", weight=PYTHON - 1),
    Signature("permission", "403 Forbidden", weight=PYTHON - 1),
)
