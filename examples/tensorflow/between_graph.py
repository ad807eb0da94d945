"""Between-graph training with a parameter server, as ModelArts boots it, which checks itself
against one process.

Each worker trains on its own share of the batch; the parameter server holds the weights and
averages the workers' gradients. The workers keep in step, so that the result is what one process
with the whole batch gets, up to rounding.
"""

import argparse
import os
import socket
import sys

import numpy as np
import tensorflow.compat.v1 as tf
from train import LEARNING_RATE, batch, say


def weights() -> list:
    random = np.random.default_rng(1)
    return [
        tf.get_variable("first", initializer=random.normal(size=(16, 32)) / 4),
        tf.get_variable("second", initializer=random.normal(size=(32, 1)) / 6),
    ]


def loss_of(layers: list, inputs: np.ndarray, targets: np.ndarray) -> tf.Tensor:
    return tf.reduce_mean((tf.tanh(inputs @ layers[0]) @ layers[1] - targets) ** 2)


def one_process(inputs: np.ndarray, targets: np.ndarray, steps: int) -> tuple[list, float, float]:
    """The weights and losses of one process that has the whole batch."""
    with tf.Graph().as_default():
        layers = weights()
        loss = loss_of(layers, inputs, targets)
        gradients = tf.gradients(loss, layers)
        with tf.control_dependencies(gradients):  # no layer changes before all gradients are there
            pairs = zip(layers, gradients, strict=True)
            train = [layer.assign_sub(LEARNING_RATE * gradient) for layer, gradient in pairs]
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            first = session.run(loss)
            for _ in range(steps):
                session.run(train)
            return session.run(layers), first, session.run(loss)


def work(args: argparse.Namespace, cluster: tf.train.ClusterSpec, server: tf.train.Server) -> int:
    me, workers = args.task_index, cluster.num_tasks("worker")
    inputs, targets = batch(args.share * workers)
    mine = slice(me * args.share, (me + 1) * args.share)

    here = f"/job:worker/task:{me}"
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=here)):
        layers = weights()
        loss = loss_of(layers, inputs[mine], targets[mine])
        gradients = tf.gradients(loss, layers)
    with tf.device("/job:ps/task:0"):
        sums = [
            tf.ConditionalAccumulator(tf.float64, layer.shape, shared_name=layer.op.name)
            for layer in layers
        ]
        # worker 0 lets each other one go on by a token in that one's queue
        turns = [
            tf.FIFOQueue(1, tf.int64, [[]], shared_name=f"turn{index}") for index in range(workers)
        ]
        step = tf.placeholder(tf.int64, [])
        give = [
            each.apply_grad(gradient, step) for each, gradient in zip(sums, gradients, strict=True)
        ]
        update = [
            layer.assign_sub(LEARNING_RATE * each.take_grad(workers))
            for layer, each in zip(layers, sums, strict=True)
        ]
        go_on = [turn.enqueue(step) for turn in turns[1:]]
        wait = turns[me].dequeue()

    # Only the parameter server and this worker have to be there: nobody waits for workers that
    # ended already.
    config = tf.ConfigProto(device_filters=["/job:ps", here])
    with tf.Session(server.target, config=config) as session:
        if me == 0:
            session.run(tf.global_variables_initializer())
        for number in range(args.steps):
            if me == 0:
                session.run(go_on, {step: number})
            elif (turn := session.run(wait)) != number:
                say(f"worker {me} is at step {number}, worker 0 at {turn}")
                return 1
            if args.fail and me == args.fail_rank and number == args.steps // 2:
                say(f"worker {me} fails with {args.fail}")
                return args.fail
            now, _ = session.run([loss, give], {step: number})
            if me == 0:
                session.run(update)
                if number % 5 == 0:
                    say(f"step {number} loss of worker 0's share {now:.6f}")
        if me != 0:
            return 0
        ended = session.run(layers)
    alone, first, last = one_process(inputs, targets, args.steps)
    difference = max(
        float(np.abs(ours - other).max()) for ours, other in zip(ended, alone, strict=True)
    )
    say(f"loss {first:.6f} -> {last:.6f}")
    say(f"difference to one process: {difference:.1e} (allowed {args.tolerance:.0e})")
    return 0 if difference <= args.tolerance and last < first else 1


def main() -> int:
    parser = argparse.ArgumentParser()
    # What the launcher adds.
    parser.add_argument("--task_index", type=int, required=True)
    parser.add_argument("--ps_hosts", required=True)
    parser.add_argument("--worker_hosts", required=True)
    parser.add_argument("--job_name", required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--share", type=int, default=8, help="samples of a step on each worker")
    parser.add_argument("--tolerance", type=float, default=1e-10)
    parser.add_argument(
        "--fail", type=int, default=0, help="exit status of one worker after half the steps"
    )
    parser.add_argument("--fail-rank", type=int, default=0, help="which worker that is")
    args = parser.parse_args()

    tf.disable_v2_behavior()
    cluster = tf.train.ClusterSpec(
        {"ps": args.ps_hosts.split(","), "worker": args.worker_hosts.split(",")}
    )
    count = cluster.num_tasks(args.job_name)
    say(
        f"{args.job_name} {args.task_index} of {count} on {socket.gethostname()}, pid {os.getpid()}"
    )
    server = tf.train.Server(cluster, job_name=args.job_name, task_index=args.task_index)
    if args.job_name == "ps":
        server.join()  # for ever: it is ended when the workers are done
    return work(args, cluster, server)


if __name__ == "__main__":
    sys.exit(main())
