#!/usr/bin/env python3
"""Training speed under each encoding relative to none, here and now, as a table in Markdown.

    relative.py [--short-run BIN] [--rounds 5] [--steps 20] [--width 128 ...] [EXPRESSION ...]

Every encoding alternates with `none`, so that a machine whose speed drifts costs both the same. A speed is that of the
middle step of a run; a ratio is taken within a round, and the median of the rounds is printed with the spread.
"""
import argparse, json, os, statistics, subprocess, sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ENCODINGS = ["sinusoidal", "learned", "rope", "rope(layout=interleaved)", "rope(learn=true)", "rope(dim=16)",
             "rope(base=[5000, 10000, 20000, 10000])", "xpos", "yarn(rope, factor=4)", "dynamic(rope, factor=4)",
             "alibi", "alibi(learn=true)", "t5", "t5(far=log)", "kerple", "kerple(kind=power)", "sandwich", "fire", "cope",
             "txl", "rope + logn", "rope + t5", "heads(rope * 2, alibi * 2)", "layers(rope * 3, none)"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("expressions", nargs="*", metavar="EXPRESSION")
    parser.add_argument("--short-run", default=os.path.join(ROOT, "build/release/bin/short_run"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    for name, value in (("width", 128), ("layers", 4), ("heads", 4), ("batch", 16), ("length", 128)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    shape = [word for name in ("width", "layers", "heads", "batch", "length", "steps")
             for word in (f"--{name}", str(getattr(given, name)))]

    def speed(encoding):
        ran = subprocess.run([given.short_run, encoding, *shape], capture_output=True, text=True)
        if ran.returncode:
            sys.exit(f"relative.py: {encoding}: {ran.stderr.strip()}")
        return json.loads(ran.stdout)["tokens_per_second"]

    print(f"width {given.width}, {given.layers} layers, T = {given.length}, batch {given.batch}; median of {given.rounds} rounds\n")
    print("| encoding | speed, `none` = 1 | smallest to largest |\n|---|---|---|", flush=True)
    for encoding in given.expressions or ENCODINGS:
        ratios = []
        for _ in range(given.rounds):
            base = speed("none")
            ratios.append(speed(encoding) / base)
        print(f"| `{encoding}` | {statistics.median(ratios):.2f} | {min(ratios):.2f} to {max(ratios):.2f} |", flush=True)


if __name__ == "__main__":
    main()
