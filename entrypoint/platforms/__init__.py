"""The platforms that start the containers: Facts -> Site. One module per platform, with
`read(clues)`.

`MARKS` identifies the platform before any of these modules is loaded. If that is not sufficient, a
module also has `matches(facts)`, which is called if its marks are present. A module without marks,
such as one that a user has added, is always called, and ranks with those of the first line.
"""

from __future__ import annotations

# For each platform, alternatives of variables, one of which is set and not empty. Platforms of an
# earlier line run on those of a later one, and win: SkyPilot and dstack start containers through
# Kubernetes and Slurm, Kubeflow through Indexed Jobs. Two of one line are an error.
MARKS: tuple[dict[str, tuple[str, ...]], ...] = (
    {
        "azureml": ("AZUREML_NODE_COUNT", "AZUREML_RUN_ID"),
        "dstack": ("DSTACK_NODE_RANK", "DSTACK_RUN_ID"),
        "modelarts": ("MA_JOB_DIR", "MA_VJ_NAME", "MA_NUM_HOSTS", "DLS_TASK_NUMBER"),
        "sagemaker": ("TRAINING_JOB_NAME", "SM_HOSTS"),
        "skypilot": ("SKYPILOT_NODE_RANK", "SKYPILOT_TASK_ID"),
        "vertex": ("CLUSTER_SPEC",),
        "volcengine": ("MLP_ROLE",),
    },
    {"mpijob": ("K_MPI_JOB_ROLE",)},
    {
        "pytorchjob": ("PET_NNODES", "PET_RDZV_ENDPOINT"),
        "trainer": (
            "PET_NODE_RANK",
            "JAX_COORDINATOR_ADDRESS",
            "DMLC_TRACKER_URI",
            "JOB_COMPLETION_INDEX",
        ),
    },
    {"tfjob": ("TF_CONFIG",)},
    {"volcano": ("VC_TASK_INDEX", "VK_TASK_INDEX", "KUBERNETES_SERVICE_HOST")},
    {"slurm": ("SLURM_JOB_ID",)},
    {"jobset": ("JOB_COMPLETION_INDEX",), "kubernetes": ("JOB_COMPLETION_INDEX",)},
)
# How users pass a secret to all nodes of a platform, for the message that there is none.
_POD = "mount a Kubernetes Secret into every Pod, and name its file by ENTRYPOINT_SECRET_FILE"
SECRETS = {
    "azureml": "give ENTRYPOINT_SECRET in the job's environment_variables",
    "dstack": "give ENTRYPOINT_SECRET in the task's env, from a secret of the project",
    "modelarts": "add ENTRYPOINT_SECRET to the job's variables",
    "sagemaker": "give ENTRYPOINT_SECRET in the job's environment",
    "skypilot": "name ENTRYPOINT_SECRET under the task's secrets",
    "slurm": "export ENTRYPOINT_SECRET in the batch script, before srun",
    "vertex": "give ENTRYPOINT_SECRET in the env of each worker pool",
    "volcengine": "give ENTRYPOINT_SECRET in the task's Envs",
    **dict.fromkeys(
        ("jobset", "kubernetes", "mpijob", "pytorchjob", "tfjob", "trainer", "volcano"), _POD
    ),
}
# Platforms that start programs of every kind: one is part of a job only if a setting of ours is
# present.
ANY_PROGRAM = ("local", "kubernetes", "jobset")
# Platforms that read why a job failed from a file, which is written at its end.
READ_REASONS = ("sagemaker",)
# Files that a platform creates in its containers. A name that ends with / is a folder of files.
FILES = ("/opt/ml/input/config/resourceconfig.json", "/etc/mpi/hostfile", "/etc/volcano/")
# Scripts of users that a platform's own boot would run first: the variable with the parent folder
# of the users' code folders -> the script's name in one of these.
SCRIPTS = {"MA_JOB_DIR": "ma-pre-start.sh"}
