"""What accelerate.sh has Python do before `accelerate launch` begins; accelerate.sh carries this
text.

Alone, accelerate starts the processes that it is asked for only where it sees several GPUs, or is
told of them, of FSDP or of DeepSpeed; else it starts one on each node, which trains alone and does
not say so. On CPUs its processes train together only with ACCELERATE_USE_CPU. Here it starts them
by torch's launcher in all cases.
"""

import os

import torch
from accelerate.commands import launch

by_torch = launch.multi_gpu_launcher


def together(args):
    there = torch.accelerator if hasattr(torch, "accelerator") else torch.cuda  # since torch 2.6
    if args.cpu or getattr(args, "use_cpu", False) or not there.is_available():
        os.environ.setdefault("ACCELERATE_USE_CPU", "true")
    by_torch(args)


launch.multi_gpu_launcher = launch.simple_launcher = together
