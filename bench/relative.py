#!/usr/bin/env python3
"""Training speed under each encoding relative to none (or --base), here and now, as a table in Markdown.

    relative.py [--base EXPRESSION] [--short-run BIN] [--beside BIN] [--decode N [--prompt P]] [--rounds 5] [--steps 20] [--width 128 ...] [EXPRESSION ...]

Every encoding alternates with the base, so that a machine whose speed drifts costs both the same. A speed is that of the
middle step of a run; a ratio is taken within a round, and the median of the rounds is printed with the spread. With
--beside, another build of short_run trains the same in turn, and the speed over its speed is printed too. With --decode
the speed is that of generating N tokens one at a time behind a prompt of P, after two steps of training.
"""
import argparse, json, os, statistics, subprocess, sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ENCODINGS = ["sinusoidal", "learned", "rope", "rope(layout=interleaved)", "rope(learn=true)", "rope(dim=16)",
             "rope(base=[5000, 10000, 20000, 10000])", "xpos", "yarn(rope, factor=4)", "dynamic(rope, factor=4)",
             "alibi", "alibi(learn=true)", "t5", "t5(far=log)", "kerple", "kerple(kind=power)", "sandwich", "fire", "cope",
             "txl", "rope + logn", "rope + t5", "heads(rope * 2, alibi * 2)", "layers(rope * 3, none)", "fox", "grape-m",
             "grape-m(context=true)", "grape-m(rank=16)", "grape-m(basis=cayley)", "grape-a", "grape-a(gate=qk)",
             "grape-ap", "rope + grape-ap", "tape(rope)"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("expressions", nargs="*", metavar="EXPRESSION")
    parser.add_argument("--short-run", default=os.path.join(ROOT, "build/release/bin/short_run"))
    parser.add_argument("--base", default="none", metavar="EXPRESSION", help="whose speed is 1")
    parser.add_argument("--beside", help="another build of short_run, to compare with")
    parser.add_argument("--decode", type=int, default=0, help="tokens to generate")
    parser.add_argument("--prompt", type=int, default=2000, help="tokens before them")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    for name, value in (("width", 128), ("layers", 4), ("heads", 4), ("batch", 16), ("length", 128)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    shape = [word for name in ("width", "layers", "heads", "batch", "length", "steps")
             for word in (f"--{name}", str(getattr(given, name)))]
    if given.decode:
        shape += ["--steps", "2", "--decode", str(given.decode), "--prompt", str(given.prompt)]

    def speed(encoding, program=given.short_run):
        ran = subprocess.run([program, encoding, *shape], capture_output=True, text=True)
        if ran.returncode:
            sys.exit(f"relative.py: {encoding}: {ran.stderr.strip()}")
        return json.loads(ran.stdout)["decode_tokens_per_second" if given.decode else "tokens_per_second"]

    print(f"width {given.width}, {given.layers} layers, {f'{given.decode} tokens behind {given.prompt}' if given.decode else f'T = {given.length}, batch {given.batch}'}; median of {given.rounds} rounds\n")
    def shown(ratios):
        return f"{statistics.median(ratios):.2f} | {min(ratios):.2f} to {max(ratios):.2f} |"

    heads = ["encoding", f"speed, `{given.base}` = 1", "smallest to largest"]
    if given.beside:
        heads += ["over the other build", "smallest to largest"]
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads), flush=True)
    for encoding in given.expressions or ENCODINGS:
        ratios, gains = [], []
        for _ in range(given.rounds):
            base = speed(given.base)
            here = speed(encoding)
            ratios.append(here / base)
            if given.beside:
                gains.append(here / speed(encoding, given.beside))
        print(f"| `{encoding}` | {shown(ratios)}" + (f" {shown(gains)}" if gains else ""), flush=True)


if __name__ == "__main__":
    main()
