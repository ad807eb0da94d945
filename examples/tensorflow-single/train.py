"""Training with TensorFlow in one container; the loss must fall."""

import argparse
import os
import sys

import tensorflow as tf


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument(
        "--fail", type=int, default=0, help="exit status to end with after half the steps"
    )
    args = parser.parse_args()
    say(
        f"arguments {sys.argv[1:]} in {os.getcwd()} by {sys.executable}, TensorFlow"
        f" {tf.__version__}"
    )

    tf.random.set_seed(1)
    first_layer = tf.Variable(tf.random.normal([16, 32], stddev=0.25))
    second_layer = tf.Variable(tf.random.normal([32, 1], stddev=0.2))
    inputs = tf.random.normal([args.samples, 16])
    targets = tf.sin(tf.reduce_sum(inputs, axis=1, keepdims=True))

    @tf.function
    def train() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.tanh(inputs @ first_layer) @ second_layer - targets) ** 2)
        for layer, gradient in zip(
            (first_layer, second_layer),
            tape.gradient(loss, (first_layer, second_layer)),
            strict=True,
        ):
            layer.assign_sub(0.05 * gradient)
        return loss

    losses = []
    for step in range(args.steps):
        if args.fail and step == args.steps // 2:
            return args.fail
        losses.append(float(train()))
        if step % 5 == 0:
            say(f"step {step} loss {losses[-1]:.6f}")
    say(f"loss {losses[0]:.6f} -> {losses[-1]:.6f}")
    return 0 if losses[-1] < losses[0] else 1


if __name__ == "__main__":
    sys.exit(main())
