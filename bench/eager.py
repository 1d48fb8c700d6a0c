#!/usr/bin/env python3
"""The compare model in eager PyTorch, from the same weights on the same batches as Torsor.

    eager.py losses [--short-run BIN]    ten losses of every encoding below on both sides; exits 1 beyond 1e-4
    eager.py speed  [--short-run BIN]    training tokens per second on both sides, alternating in the same minutes

Needs a Python with torch and safetensors (scripts/setup.sh --full). Written from the model's description in
docs/architecture.md, not from the C++ code: pre-norm RMS norm, SwiGLU, tied head, AdamW, warm-up and cosine.
"""
import argparse, json, math, os, statistics, subprocess, sys, tempfile, time

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ENCODINGS = ("none", "rope", "alibi", "t5", "kerple", "sandwich", "fire")  # from the third on with a mask


def t5_bucket(n, buckets=32, max_distance=128):
    exact = buckets // 2
    far = exact + (torch.log(n.clamp(min=1).double() / exact) / math.log(max_distance / exact) * (buckets - exact)).floor().long()
    return torch.where(n < exact, n, far.clamp(max=buckets - 1))


class Eager:
    def __init__(self, weights, encoding, layers, heads, kv_heads):
        self.w = {name: tensor.clone().requires_grad_(True) for name, tensor in weights.items()}
        self.encoding, self.layers, self.heads, self.kv_heads = encoding, layers, heads, kv_heads
        self.width = weights["model.embed_tokens.weight"].shape[1]
        self.head_dim = weights["model.layers.0.self_attn.q_proj.weight"].shape[0] // heads
        self.tables = {}
        self.constants = {}

    def norm(self, x, name):
        return F.rms_norm(x, (x.shape[-1],), self.w[name], 1e-5)

    def rotation(self, length):
        if length not in self.tables:
            d = self.head_dim
            inverse = 10000.0 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
            angle = torch.arange(length, dtype=torch.float64)[:, None] * inverse
            angle = torch.cat((angle, angle), -1)
            self.tables[length] = (angle.cos().float(), angle.sin().float())
        return self.tables[length]

    def bias(self, length, layer):
        """The bias with its causal mask. What is constant is made once, as a careful user would."""
        if length not in self.constants:
            distance = torch.arange(length)[:, None] - torch.arange(length)[None, :]
            self.constants[length] = distance, distance < 0, self.constant(distance)
        distance, hidden, constant = self.constants[length]
        if self.encoding in ("alibi", "sandwich"):
            return constant
        prefix = f"model.layers.{layer}.self_attn.position.{self.encoding}."
        if self.encoding == "kerple":
            r1, r2 = (self.w[prefix + n].clamp(min=0.01)[:, None, None] for n in ("r1", "r2"))
            bias = -r1 * torch.log1p(r2 * distance.abs())
        elif self.encoding == "fire":
            w = {n: self.w[prefix + n] for n in ("w1", "b1", "w2", "b2", "c", "mu")}
            reach = torch.maximum(torch.arange(length).float(), (w["mu"] * 512).abs())
            u = torch.log1p((w["c"] * distance).abs()) / (torch.log1p((w["c"] * reach).abs()) + 1e-6)[:, None]
            units = F.relu(u[..., None] * w["w1"] + w["b1"])
            bias = F.linear(units, w["w2"], w["b2"]).permute(2, 0, 1)
        else:
            bias = self.w[prefix + "table"][constant].permute(2, 0, 1)
        return bias.masked_fill(hidden, float("-inf"))[None]

    def constant(self, distance):
        """What of a bias no training changes: alibi's and sandwich's mask, t5's rows of its table."""
        if self.encoding == "t5":
            return t5_bucket(distance.clamp(min=0))
        if self.encoding == "alibi":
            slopes = torch.tensor([2.0 ** (-8 * (h + 1) / self.heads) for h in range(self.heads)])
            bias = -slopes[:, None, None] * distance.abs()
        elif self.encoding == "sandwich":
            waves = sum(torch.cos(distance / 10000.0 ** (c / 128)) for c in range(0, 128, 2))
            bias = torch.stack([waves * self.heads / (8 * (h + 1)) for h in range(self.heads)]).float()
        else:
            return None
        return bias.masked_fill(distance < 0, float("-inf"))[None]

    def loss(self, windows):
        inputs, targets = windows[:, :-1], windows[:, 1:]
        b, t = inputs.shape
        h = F.embedding(inputs, self.w["model.embed_tokens.weight"])
        for i in range(self.layers):
            p = f"model.layers.{i}."
            x = self.norm(h, p + "input_layernorm.weight")
            q, k, v = (F.linear(x, self.w[p + f"self_attn.{n}_proj.weight"]).view(b, t, -1, self.head_dim).transpose(1, 2) for n in "qkv")
            if self.encoding == "rope":
                cos, sin = self.rotation(t)
                turn = lambda y: y * cos + torch.cat((-y[..., self.head_dim // 2:], y[..., :self.head_dim // 2]), -1) * sin
                q, k = turn(q), turn(k)
            mask = None if self.encoding in ("none", "rope") else self.bias(t, i)
            a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=self.kv_heads != self.heads)
            h = h + F.linear(a.transpose(1, 2).reshape(b, t, -1), self.w[p + "self_attn.o_proj.weight"])
            u = self.norm(h, p + "post_attention_layernorm.weight")
            h = h + F.linear(F.silu(F.linear(u, self.w[p + "mlp.gate_proj.weight"])) * F.linear(u, self.w[p + "mlp.up_proj.weight"]), self.w[p + "mlp.down_proj.weight"])
        logits = F.linear(self.norm(h, "model.norm.weight"), self.w["model.embed_tokens.weight"])
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def rate_at(done, steps, peak=3e-3, warmup=30, final=0.1):
    warmup = min(warmup, steps)
    if done < warmup:
        return peak * (done + 1) / warmup
    progress = (done - warmup + 1) / max(1, steps - warmup)
    return peak * (final + (1 - final) * 0.5 * (1 + math.cos(math.pi * progress)))


def train(start, encoding, layers, heads, kv_heads):
    """Losses of every batch, and tokens per second of the middle step of all but the first."""
    batches = start["batches"]
    model = Eager({n: t for n, t in start.items() if n != "batches"}, encoding, layers, heads, kv_heads)
    exempt = lambda n: "norm" in n or ".position." in n
    groups = [{"params": [t for n, t in model.w.items() if not exempt(n)], "weight_decay": 0.1},
              {"params": [t for n, t in model.w.items() if exempt(n)], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95), eps=1e-8, fused=True)
    losses, taken = [], []
    for step, windows in enumerate(batches):
        begin = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, len(batches))
        optimizer.zero_grad(set_to_none=True)
        loss = model.loss(windows)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.w.values(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        taken.append(time.perf_counter() - begin)
    tokens = batches.shape[1] * (batches.shape[2] - 1)
    return losses, tokens / statistics.median(taken[1:]) if len(batches) > 1 else None


def ours(binary, encoding, *options):
    return json.loads(subprocess.run([binary, encoding, *map(str, options)], check=True, capture_output=True, text=True).stdout)


def losses(binary):
    worst = 0.0
    for encoding in ENCODINGS:
        with tempfile.TemporaryDirectory() as folder:
            dump = os.path.join(folder, "start.safetensors")
            shape = ["--width", 64, "--layers", 2, "--heads", 4, "--kv-heads", 2, "--batch", 4, "--length", 64, "--steps", 10]
            here = ours(binary, encoding, *shape, "--dump", dump)["losses"]
            there, _ = train(load_file(dump), encoding, 2, 4, 2)
        error = max(abs(a - b) for a, b in zip(here, there))
        worst = max(worst, error)
        print(f"{encoding:8s} largest difference {error:.2e}  PyTorch's losses {[round(x, 6) for x in there]}")
    return 0 if worst < 1e-4 else 1


SHAPES = {  # label: options of short_run
    128: ("width 128, 4 layers, T = 128, batch 16", {"width": 128, "layers": 4, "heads": 4, "batch": 16, "length": 128}),
    256: ("width 256, 6 layers, T = 256, batch 8", {"width": 256, "layers": 6, "heads": 8, "batch": 8, "length": 256}),
    2048: ("width 256, 6 layers, T = 2048, batch 1", {"width": 256, "layers": 6, "heads": 8, "batch": 1, "length": 2048}),
}


def speed(binary, rounds, steps, lengths, encodings):
    print(f"training tokens per second, median of {rounds} rounds [smallest, largest], {torch.get_num_threads()} threads, torch {torch.__version__}")
    for length in lengths:
        label, options = SHAPES[length]
        shape = [word for name, value in options.items() for word in (f"--{name}", value)]
        dims = (options["layers"], options["heads"], options["heads"])
        print(label)
        for encoding in encodings:
            mine, theirs = [], []
            with tempfile.TemporaryDirectory() as folder:
                dump = os.path.join(folder, "start.safetensors")
                for _ in range(rounds):
                    mine.append(ours(binary, encoding, *shape, "--steps", steps, "--dump", dump)["tokens_per_second"])
                    theirs.append(train(load_file(dump), encoding, *dims)[1])
            ratios = [a / b for a, b in zip(mine, theirs)]
            show = lambda v: f"{statistics.median(v):8.0f} [{min(v):.0f}, {max(v):.0f}]"
            print(f"  {encoding:8s} Torsor {show(mine)}  PyTorch {show(theirs)}  ratio {statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]", flush=True)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("losses", "speed"))
    parser.add_argument("--short-run", default=os.path.join(ROOT, "build/release/bin/short_run"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--lengths", type=int, nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--encodings", nargs="+", choices=ENCODINGS, default=list(ENCODINGS))
    given = parser.parse_args()
    sys.exit(losses(given.short_run) if given.what == "losses" else speed(given.short_run, given.rounds, given.steps, given.lengths, given.encodings))


if __name__ == "__main__":
    main()
