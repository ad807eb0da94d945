"""Training with TensorFlow in one process; or, if there is a TF_CONFIG, by ParameterServerStrategy
with a training loop of its own, which checks itself against one process.

The chief hands out the shares of each batch; whichever worker is free computes a share's gradient.
The chief applies their mean, so the result is what one process with the whole batch gets, up to
rounding. The other workers and the parameter servers serve the chief for ever: they are ended when
it is done.
"""

import argparse
import collections
import json
import os
import socket
import sys

import numpy as np
import tensorflow as tf

LEARNING_RATE = 0.05


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def weights() -> list[tf.Variable]:
    random = np.random.default_rng(1)
    return [
        tf.Variable(random.normal(size=(16, 32)) / 4),
        tf.Variable(random.normal(size=(32, 1)) / 6),
    ]


def batch(samples: int) -> tuple[np.ndarray, np.ndarray]:
    inputs = np.random.default_rng(2).normal(size=(samples, 16))
    return inputs, np.sin(inputs.sum(axis=1, keepdims=True))


def gradients_of(
    layers: list[tf.Variable], inputs: tf.Tensor, targets: tf.Tensor
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.tanh(inputs @ layers[0]) @ layers[1] - targets) ** 2)
    return loss, tape.gradient(loss, layers)


def one_process(args: argparse.Namespace) -> tuple[list[tf.Variable], list[float]]:
    """The weights of one process that has the whole batch, and its losses."""
    layers = weights()
    inputs, targets = map(tf.constant, batch(args.share * args.shares))
    losses = []
    for _ in range(args.steps):
        loss, gradients = gradients_of(layers, inputs, targets)
        for layer, gradient in zip(layers, gradients, strict=True):
            layer.assign_sub(LEARNING_RATE * gradient)
        losses.append(float(loss))
    return layers, losses


def coordinate(
    args: argparse.Namespace, resolver: tf.distribute.cluster_resolver.ClusterResolver
) -> int:
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        layers = weights()
    inputs, targets = batch(args.share * args.shares)

    @tf.function
    def share(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
        """On a worker: its name, and the loss and gradients of one share."""
        begin = number * args.share
        mine = [
            tf.convert_to_tensor(each)[begin : begin + args.share] for each in (inputs, targets)
        ]
        return tf.io.read_file("/etc/hostname"), *gradients_of(layers, *mine)

    did: collections.Counter[str] = collections.Counter()
    first = last = 0.0
    for step in range(args.steps):
        if args.fail and step == args.steps // 2:
            say(f"the chief fails with {args.fail}")
            return args.fail
        answers = [
            coordinator.schedule(share, args=(tf.constant(number),))
            for number in range(args.shares)
        ]
        coordinator.join()
        names, losses, gradients = zip(*(answer.fetch() for answer in answers), strict=True)
        did.update(name.decode().strip() for name in names)
        last = float(np.mean(losses))
        first = last if step == 0 else first
        for layer, each in zip(layers, zip(*gradients, strict=True), strict=True):
            layer.assign_sub(LEARNING_RATE * np.mean(each, axis=0))
        if step % 5 == 0:
            say(f"step {step} loss {last:.6f}")

    for name in sorted(did):
        say(f"{name} computed {did[name]} of {args.steps * args.shares} shares")
    alone, _ = one_process(args)
    pairs = zip(layers, alone, strict=True)
    difference = max(float(np.abs(ours.numpy() - other.numpy()).max()) for ours, other in pairs)
    say(f"loss {first:.6f} -> {last:.6f}")
    say(f"difference to one process: {difference:.1e} (allowed {args.tolerance:.0e})")
    return 0 if difference <= args.tolerance and last < first else 1


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument(
        "--shares", type=int, default=8, help="parts of a batch, handed out to the workers"
    )
    parser.add_argument("--share", type=int, default=4, help="samples of each")
    parser.add_argument("--tolerance", type=float, default=1e-10)
    parser.add_argument(
        "--fail", type=int, default=0, help="exit status of the chief after half the steps"
    )
    args = parser.parse_args()

    if "TF_CONFIG" not in os.environ:
        say(f"arguments {sys.argv[1:]} in {os.getcwd()} by {sys.executable}")
        _, losses = one_process(args)
        say(f"loss {losses[0]:.6f} -> {losses[-1]:.6f}")
        return 0 if losses[-1] < losses[0] else 1

    task = json.loads(os.environ["TF_CONFIG"])["task"]
    say(f"{task['type']} {task['index']} on {socket.gethostname()}, pid {os.getpid()}")
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if task["type"] in ("worker", "ps"):
        server = tf.distribute.Server(
            resolver.cluster_spec(),
            job_name=task["type"],
            task_index=task["index"],
            protocol="grpc",
        )
        server.join()  # for ever
    return coordinate(args, resolver)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # the coordinator's threads would keep looking for workers that are ended
