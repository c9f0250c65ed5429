#!/usr/bin/env python3
"""jax_train.py NETWORK --batch B --steps N [--mode native|checkpoint] [--exact] [--cpu]: an ordinary training script in JAX.

Knows nothing of the library. Every block of the network is compiled by itself, forward and back, so that what lies between them are
arrays of JAX; `-whole` compiles the step as one, as most JAX programs do: all between is then one piece of memory of XLA's.
Prints one JSON object: losses with all their bits, seconds of the second half of the steps, what JAX says that it held.
--mode checkpoint is jax.checkpoint; --exact asks for deterministic kernels; --cpu tries the script itself. Ends with 3 when memory is
out, with 77 when JAX or a card is missing.
"""
import argparse, functools, json, math, os, struct, sys, time

DETERMINISTIC = "--xla_gpu_deterministic_ops=true"  # also keeps XLA from choosing kernels by how fast they were this time


def missing(why):
    print(why, file=sys.stderr)
    sys.exit(77)


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("network")
parser.add_argument("--batch", type=int)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--mode", choices=("native", "checkpoint"), default="native")
parser.add_argument("--exact", action="store_true")
parser.add_argument("--cpu", action="store_true")
options = parser.parse_args()
if options.exact and not options.cpu:  # read when JAX is imported
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {DETERMINISTIC}"
try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    missing(f"JAX is not here: {error}")


def norm(x):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def residual(p, x):
    return x + jax.nn.gelu(norm(x) @ p["w"] + p["b"])


def attention_block(heads, p, x):
    """A pre-norm transformer block, causal."""
    batch, length, width = x.shape
    q, k, v = ((norm(x) @ p[n]).reshape(batch, length, heads, width // heads) for n in ("q", "k", "v"))
    scores = jnp.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(width // heads)
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e30)
    x = x + jnp.einsum("bhij,bjhd->bihd", jax.nn.softmax(scores), v).reshape(x.shape) @ p["o"]
    return x + jax.nn.gelu(norm(x) @ p["up"]) @ p["down"]


def matrix(key, *shape):
    return jax.random.normal(key, shape) / math.sqrt(shape[-2])


def layered(depth, width, classes=10):
    """`depth` residual layers of `width`: blocks of parameters, the function of each, data and loss."""
    def make(keys):
        blocks = [{"w": matrix(keys[i], width, width), "b": jnp.zeros(width)} for i in range(depth)]
        return blocks + [{"head": matrix(keys[depth], width, classes)}]

    def loss(p, x, y):
        return -jnp.take_along_axis(jax.nn.log_softmax(x @ p["head"]), y[:, None], 1).mean()
    data = lambda keys, batch: (jax.random.normal(keys[0], (batch, width)), jax.random.randint(keys[1], (batch,), 0, classes))
    return depth + 1, make, None, residual, loss, data


def language(layers, width, heads, words, length):
    def make(keys):
        blocks = []
        for i in range(layers):
            k = jax.random.split(keys[i], 6)
            blocks.append({n: matrix(k[j], width, width) for j, n in enumerate("qkvo")} | {"up": matrix(k[4], width, 4 * width), "down": matrix(k[5], 4 * width, width)})
        places = jax.random.split(keys[layers], 3)
        embed = {"words": jax.random.normal(places[0], (words, width)) * 0.02, "places": jax.random.normal(places[1], (length, width)) * 0.02}
        return [embed, *blocks, {"head": matrix(places[2], width, words)}]

    def loss(p, x, ids):
        rows = jax.nn.log_softmax(norm(x) @ p["head"])
        return -jnp.take_along_axis(rows, jnp.roll(ids, -1, 1)[..., None], 2).mean()
    data = lambda keys, batch: (lambda ids: (ids, ids))(jax.random.randint(keys[0], (batch, length), 0, words))
    return layers + 1, make, lambda p, ids: p["words"][ids] + p["places"], functools.partial(attention_block, heads), loss, data


# network: (its parts, default batch)
NETWORKS = {
    "transformer": (lambda: language(12, 1024, 16, 32000, 512), 16),
    "mlp": (lambda: layered(96, 2048), 4096),
    "deep-2000": (lambda: layered(2000, 1024), 1024),
    "tiny": (lambda: layered(4, 64), 64),
    "tiny-transformer": (lambda: language(2, 32, 4, 100, 16), 4),
}


def momentum(p, m, g):
    m = jax.tree.map(lambda a, b: 0.9 * a + b, m, g)
    return jax.tree.map(lambda a, b: a - 1e-3 * b, p, m), m


def whole_step(embed, block, loss):
    """The whole step as one compiled function."""
    def total(parameters, x, y):
        blocks, head = parameters[:-1], parameters[-1]
        if embed:
            x, blocks = embed(blocks[0], x), blocks[1:]
        for p in blocks:
            x = block(p, x)
        return loss(head, x, y)

    def step(parameters, moments, x, y):
        value, gradients = jax.value_and_grad(total)(parameters, x, y)
        return *momentum(parameters, moments, gradients), value
    return jax.jit(step, donate_argnums=(0, 1))


def step_by_blocks(embed, block, loss):
    """The same in one compiled function a block and direction; what a block keeps for its way back is the result of its vjp."""
    forward = jax.jit(lambda p, x: jax.vjp(block, p, x))
    forward_embed = jax.jit(lambda p, x: jax.vjp(lambda p: embed(p, x), p))
    back = jax.jit(lambda kept, g: kept(g))
    last = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))
    update = jax.jit(momentum, donate_argnums=(0, 1, 2))

    def step(parameters, moments, x, y):
        kept = []
        for i, p in enumerate(parameters[:-1]):
            x, k = forward_embed(p, x) if embed and i == 0 else forward(p, x)
            kept.append(k)
        value, (head, g) = last(parameters[-1], x, y)
        parameters[-1], moments[-1] = update(parameters[-1], moments[-1], head)
        for i in reversed(range(len(kept))):
            own, *g = back(kept.pop(), g)
            g = g[0] if g else None
            parameters[i], moments[i] = update(parameters[i], moments[i], own)
        return parameters, moments, value
    return step


def main():
    try:
        device = jax.devices("cpu" if options.cpu else "gpu")[0]
    except RuntimeError as error:
        missing(f"no card: JAX finds none ({str(error).splitlines()[0][:120]})")
    name, whole = options.network.removesuffix("-whole"), options.network.endswith("-whole")
    if name not in NETWORKS:
        parser.error(f"{name}: expected one of {', '.join(NETWORKS)}, with or without -whole")
    parts, batch = NETWORKS[name]
    batch = options.batch or batch
    losses, marks = [], []
    with jax.default_device(device):
        try:
            count, make, embed, block, loss, data = parts()
            keys = jax.random.split(jax.random.key(1), count + 2)
            parameters = make(keys)
            moments = jax.tree.map(jnp.zeros_like, parameters)
            x, y = data(keys[-2:], batch)
            if options.mode == "checkpoint":
                block = jax.checkpoint(block)
            step = (whole_step if whole else step_by_blocks)(embed, block, loss)
            for _ in range(options.steps):
                parameters, moments, value = step(parameters, moments, x, y)
                losses.append(struct.pack("<f", float(value)).hex())  # waits for it
                jax.block_until_ready(parameters)
                marks.append(time.perf_counter())
        except RuntimeError as error:  # JaxRuntimeError is one
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            print(f"{options.network} batch {batch}: {str(error).splitlines()[0]}", file=sys.stderr)
            sys.exit(3)
    half = len(marks) // 2
    held = device.memory_stats() or {}
    print(json.dumps({"network": options.network, "batch": batch, "steps": options.steps, "mode": options.mode, "losses": losses, "seconds_per_step": (marks[-1] - marks[half - 1]) / (len(marks) - half) if half else None,
                      "peak_allocated": held.get("peak_bytes_in_use"), "parameters": sum(p.size for p in jax.tree.leaves(parameters)), "jax": jax.__version__, "device": device.device_kind}))


if __name__ == "__main__":
    main()
