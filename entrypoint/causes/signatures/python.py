"""Arguments, configuration and mistakes in the words of argparse, Hydra, torch and others."""

from __future__ import annotations

from entrypoint.causes.kinds import NAMED, PYTHON
from entrypoint.causes.signature import Signature

_CODE = PYTHON + 1

ROWS = (
    # command lines
    Signature("user-args", "error: unrecognized arguments"),
    Signature("user-args", "error: the following arguments are required"),
    Signature("user-args", "error: one of the arguments"),
    Signature("user-args", "error: argument "),
    Signature("user-args", "error: ambiguous option"),
    Signature(
        "user-args",
        "error: ",
        pattern=r"\.py: error: |^(?:torchrun|accelerate|deepspeed)\b[^:]{0,20}: error: ",
        weight=PYTHON + 2,
    ),
    Signature("user-args", "unrecognized option"),
    Signature("user-args", "No such option"),
    Signature("user-args", "no such option"),
    Signature("user-args", "Missing option"),
    Signature("user-args", "Missing argument"),
    Signature("user-args", "unexpected extra argument"),
    Signature("user-args", "Invalid value for", pattern="^Error|^Usage"),
    Signature("user-args", "FATAL Flags parsing error"),
    Signature("user-args", "nknown command line flag"),
    Signature("user-args", "are not used by the HfArgumentParser"),
    Signature("user-args", "ArgumentError"),
    Signature("user-args", "fire.core.FireExit"),
    Signature("user-args", "Could not consume arg"),
    # configuration
    Signature("user-args", "Could not override"),
    Signature("user-args", "is not in struct"),
    Signature("user-args", "ConfigAttributeError"),
    Signature("user-args", "ConfigKeyError"),
    Signature("user-args", "MissingMandatoryValue"),
    Signature("user-args", "MissingConfigException"),
    Signature("user-args", "ConfigCompositionException"),
    Signature("user-args", "OverrideParseException"),
    Signature("user-args", "InterpolationKeyError"),
    Signature("user-args", "InterpolationResolutionError"),
    Signature("user-args", "UnsupportedInterpolationType"),
    Signature("user-args", "omegaconf.errors", weight=PYTHON + 1),
    Signature("user-args", "In '", pattern="Could not find '"),
    Signature("user-args", "yaml.scanner.ScannerError"),
    Signature("user-args", "yaml.parser.ParserError"),
    Signature("user-args", "yaml.constructor.ConstructorError"),
    Signature("user-args", "TOMLDecodeError"),
    Signature("user-args", "toml.decoder"),
    Signature("user-args", "configparser.", pattern="Error"),
    Signature("user-args", "JSONDecodeError", certainty="low", weight=PYTHON + 2),
    Signature("user-args", "validation error", pattern=r"\d+ validation errors? for "),
    Signature("user-args", "pydantic", pattern="ValidationError", weight=PYTHON + 1),
    Signature("user-args", "MisconfigurationException"),
    Signature("user-args", "ConfigError", pattern=r"\b\w*ConfigError\b", weight=PYTHON + 2),
    Signature("user-args", "DeepSpeedConfigError"),
    Signature("user-args", "Check batch related parameters"),
    Signature("user-args", "unsupported configuration", certainty="low", weight=PYTHON + 2),
    Signature("user-args", "is not a valid model identifier"),
    Signature("user-args", "RepositoryNotFoundError"),
    Signature("user-args", "HFValidationError"),
    Signature("user-args", "nknown model", pattern="(?i)error|exception", certainty="low"),
    Signature("user-args", "BuilderConfig", pattern="(?i)not found"),
    # number of ranks and devices
    Signature("user-args", "invalid device ordinal", certainty="low", weight=NAMED + 4),
    Signature("user-args", "CUDA_ERROR_INVALID_DEVICE", certainty="low", weight=NAMED + 4),
    Signature(
        "user-args",
        "Duplicate GPU detected",
        "two ranks use the same GPU",
        fix="let each rank use the GPU of its LOCAL_RANK, and start one rank for each GPU",
    ),
    Signature("user-args", "But your machine only has", certainty="low"),
    Signature("user-args", "You requested GPUs", certainty="low"),
    Signature("user-args", "requires a GPU", pattern="(?i)error", certainty="low"),
    Signature("user-args", "requires a GPU", certainty="low", weight=PYTHON + 1),
    Signature("user-args", "setup doesn't support bf16/gpu", certainty="low"),
    Signature(
        "user-args", "world size", pattern=r"(?i)(?:error|assert|exception).{0,200}world[ _]size"
    ),
    Signature(
        "user-args",
        "world_size",
        pattern=(
            r"(?i)(?:error|assert|exception).{0,200}(must be|is not|divisible|should|"
            r"equal|mismatch|greater|smaller|less|only|but)"
        ),
    ),
    Signature(
        "user-args",
        "divisible by",
        pattern=(
            r"(?i)(?:error|assert|exception).{0,200}(not |must be |should be |has to "
            r"be |be )?(evenly )?divisible by"
        ),
    ),
    Signature("user-args", "expected to have", pattern=r"(?i)environment variable \w+ expected"),
    Signature(
        "user-args",
        "environment variable",
        pattern=r"(?i)environment variable \w+ expected, but not set",
    ),
    Signature("user-args", "backend", pattern="(?i)(?:invalid|unknown|unsupported) backend"),
    Signature("user-args", "num_samples should be a positive integer", certainty="low"),
    Signature("user-args", "Unsupported distributed", certainty="low"),
    Signature("user-args", "is out of bounds for", pattern="(?i)rank|local_rank", certainty="low"),
    Signature("user-args", "nproc_per_node", pattern="(?i)error|unsupported|invalid"),
    # mistakes in programs
    *(
        Signature("user-code", needle, says, weight=_CODE)
        for needle, says in (
            (
                "Cannot re-initialize CUDA in forked subprocess",
                "a forked process of the program used CUDA",
            ),
            (
                "Cannot re-initialize NPU in forked subprocess",
                "a forked process of the program used the NPU",
            ),
            (
                "Expected to have finished reduction in the prior iteration",
                "parameters of the model take no part in the loss",
            ),
            (
                "Expected to mark a variable ready only once",
                "a parameter of the model was reduced twice",
            ),
            ("Error(s) in loading state_dict", "the checkpoint does not fit the model"),
            ("shapes cannot be multiplied", "shapes of tensors do not fit"),
            ("must match the size of tensor", "shapes of tensors do not fit"),
            ("size mismatch", "shapes of tensors do not fit"),
            ("Expected all tensors to be on the same device", "tensors are on different devices"),
            ("should be the same", "types of tensors do not fit"),
            ("Trying to resize storage that is not resizable", "a batch could not be put together"),
            ("stack expects each tensor to be equal size", "a batch could not be put together"),
            ("default_collate", "a batch could not be put together"),
            ("modified by an inplace operation", "a tensor was changed in place"),
            ("does not require grad and does not have a grad_fn", "the loss has no gradient"),
            ("Trying to backward through the graph a second time", "the graph was used twice"),
            (
                "Collective ops must be configured at program startup",
                "the strategy was made too late",
            ),
            ("got an unexpected keyword argument", "a function was called with a wrong argument"),
            (
                "Default process group has not been initialized",
                "the process group was not initialised",
            ),
            (
                "trying to initialize the default process group twice",
                "the process group was initialised twice",
            ),
            ("freeze_support()", "processes were spawned while a module was imported"),
        )
    ),
    Signature("user-args", "ncorrect path_or_model_id"),
    Signature(
        "user-args",
        "gpus",
        pattern=(
            r"(?i)(requested|requires?|asked for|needs?|want) .{0,40}\bgpus?\b.{0,60}"
            r"\b(but|only)\b"
        ),
        certainty="low",
    ),
    Signature(
        "user-args",
        "GPUs",
        pattern=(
            r"(?i)(requested|requires?|asked for|needs?|want) .{0,40}\bgpus?\b.{0,60}"
            r"\b(but|only)\b"
        ),
        certainty="low",
    ),
    Signature("user-args", "unrecognized argument"),
    Signature("user-args", "unknown argument"),
    Signature("user-args", "Unknown option"),
    Signature("user-args", "unknown option"),
    Signature("user-args", "invalid choice"),
    Signature(
        "user-args",
        "ValidationError",
        pattern=r"(?i)(config|settings|arguments|pydantic)",
        certainty="low",
        weight=PYTHON + 2,
    ),
    Signature("user-args", "MPI", pattern=r"(?i)assertion failed: mpisize", certainty="low"),
)
