"""Data-parallel training over all processes of a JAX job, which checks itself against one process
doing it all.

The batch is sharded over all devices of the job, so the gradient that XLA computes is the whole
batch's. A second copy of the parameters trains on the whole batch in each process alone. The two
must stay the same, up to rounding.
"""

import argparse
import os
import socket
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

STOPPED = 143  # by SIGTERM, as a shell says it

jax.config.update("jax_enable_x64", True)


def join() -> None:
    """Meet the other processes; of these variables JAX reads the address by itself, and has to be
    given the others."""
    jax.distributed.initialize(
        num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
        process_id=int(os.environ["JAX_PROCESS_ID"]),
    )


def loss_of(parameters: dict[str, jax.Array], inputs: jax.Array, targets: jax.Array) -> jax.Array:
    hidden = jnp.tanh(inputs @ parameters["w1"])
    return jnp.mean((hidden @ parameters["w2"] - targets) ** 2)


def step(
    parameters: dict[str, jax.Array], inputs: jax.Array, targets: jax.Array
) -> tuple[dict[str, jax.Array], jax.Array]:
    loss, gradients = jax.value_and_grad(loss_of)(parameters, inputs, targets)
    return jax.tree.map(lambda value, slope: value - 0.05 * slope, parameters, gradients), loss


def stay(rank: int) -> int:
    """Wait for SIGTERM, of which JAX tells at the steps of a job."""
    print(f"rank {rank} is up", flush=True)
    number = 0
    while not multihost_utils.reached_preemption_sync_point(number):
        number += 1
        time.sleep(0.1)
    print(f"rank {rank} told", flush=True)
    return STOPPED


def train(args: argparse.Namespace) -> int:
    rank, size = jax.process_index(), jax.process_count()
    here, every = jax.local_device_count(), jax.device_count()
    where = f"{socket.gethostname()}, pid {os.getpid()}, with {here} of {every} devices"
    print(f"rank {rank} of {size} on {where}", flush=True)
    if args.stay:
        return stay(rank)

    random = np.random.default_rng(1)
    start = {"w1": random.normal(size=(16, 32)) / 4, "w2": random.normal(size=(32, 1)) / 6}
    inputs = random.normal(size=(every * args.share, 16))
    targets = np.sin(inputs.sum(axis=1, keepdims=True))

    mesh = Mesh(np.array(jax.devices()), ("batch",))
    sharded = NamedSharding(mesh, PartitionSpec("batch"))
    copied = NamedSharding(mesh, PartitionSpec())

    def spread(whole: np.ndarray, sharding: NamedSharding) -> jax.Array:
        return jax.make_array_from_callback(whole.shape, sharding, whole.__getitem__)

    ours = {name: spread(value, copied) for name, value in start.items()}
    batch = spread(inputs, sharded), spread(targets, sharded)
    together, by_itself = jax.jit(step, out_shardings=copied), jax.jit(step)
    alone = {name: jnp.asarray(value) for name, value in start.items()}

    first = last = 0.0
    for number in range(args.steps):
        if args.fail and rank == args.fail_rank and number == args.steps // 2:
            print(f"rank {rank} fails with {args.fail}", flush=True)
            return args.fail
        # SIGTERM is no end: JAX notes it, and every process stops at the same step.
        if multihost_utils.reached_preemption_sync_point(number):
            print(f"rank {rank} stops before step {number}, and could save", flush=True)
            return STOPPED
        ours, loss = together(ours, *batch)
        alone, one_process = by_itself(alone, inputs, targets)
        last, worst = float(loss), abs(float(loss) - float(one_process))
        first = last if number == 0 else first
        if rank == 0 and number % 5 == 0:
            print(f"step {number} loss {last:.6f}", flush=True)

    for name, value in alone.items():
        worst = max(
            worst,
            float(np.abs(np.asarray(ours[name].addressable_data(0)) - np.asarray(value)).max()),
        )
    worst = float(np.max(multihost_utils.process_allgather(np.float64(worst))))
    if rank == 0:
        print(f"loss {first:.6f} -> {last:.6f}", flush=True)
        print(f"difference to one process: {worst:.1e} (allowed {args.tolerance:.0e})", flush=True)
    return 0 if worst <= args.tolerance and last < first else 1


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--share", type=int, default=8, help="samples of a step on each device")
    parser.add_argument("--tolerance", type=float, default=1e-10)
    parser.add_argument(
        "--fail", type=int, default=0, help="exit status of one process after half the steps"
    )
    parser.add_argument("--fail-rank", type=int, default=0, help="which process that is")
    parser.add_argument("--stay", action="store_true", help="wait for SIGTERM")
    args = parser.parse_args()

    join()
    status = train(args)
    if status in (0, STOPPED):
        jax.distributed.shutdown()  # which waits for the others; they need process 0 until then
    return status


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # at once: after a failure JAX would wait for the others at exit
