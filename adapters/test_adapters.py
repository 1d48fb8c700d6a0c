"""Tests of the adapters that need no parser: python3 -m unittest discover adapters"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import protocol  # noqa: E402
import ptb_heads  # noqa: E402


def heads_of(brackets):
    return ptb_heads.dependencies(ptb_heads.strip_traces(ptb_heads.read_tree(brackets)))[2]


class HeadRules(unittest.TestCase):
    def test_clause(self):
        # The old man sat on the mat .
        self.assertEqual(
            heads_of("(S (NP (DT The) (JJ old) (NN man)) (VP (VBD sat) (PP (IN on) (NP (DT the) (NN mat)))) (. .))"),
            [3, 3, 4, 0, 4, 7, 5, 4])

    def test_possessive_coordination_and_numbers(self):
        self.assertEqual(heads_of("(NP (NP (NNP John) (POS 's)) (NN dog))"), [2, 3, 0])
        self.assertEqual(heads_of("(NP (NN bread) (CC and) (NN butter))"), [3, 3, 0])
        self.assertEqual(heads_of("(NP (QP ($ $) (CD 5) (CD million)))"), [0, 1, 1])

    def test_traces_and_functions(self):
        # What (he) saw *T*: the trace is no word, and functions do not hide a label from the rules.
        self.assertEqual(
            heads_of("(SBAR (WHNP-1 (WP What)) (S (NP-SBJ (PRP he)) (VP (VBD saw) (NP (-NONE- *T*-1)))))"), [0, 3, 1])
        self.assertEqual(heads_of("(PRN (-LRB- -LRB-) (NN x) (-RRB- -RRB-))"), [0, 1, 1])

    def test_question_and_infinitive(self):
        self.assertEqual(heads_of("(SQ (VBD Did) (NP (PRP he)) (VP (VB go)) (. ?))"), [0, 1, 1, 1])
        self.assertEqual(heads_of("(S (VP (TO to) (VP (VB go))))"), [0, 1])

    def test_every_rule_scans_from_its_side(self):
        for label, (direction, priority) in ptb_heads.RULES.items():
            first = priority.split()[0]
            node = ptb_heads.Node(label, [ptb_heads.Node(first, word="a"), ptb_heads.Node(first, word="b")])
            self.assertEqual(ptb_heads.head_child(node), 0 if direction == "left" else 1, label)

    def test_no_trees(self):
        for bad in ("", "x", "(S", "(S (NP x)))", "(S (NP x)) (S y)"):
            with self.assertRaises(ValueError):
                ptb_heads.read_tree(bad)


class Conllu(unittest.TestCase):
    def test_lines(self):
        text = protocol.conllu([
            {"form": "do", "head": 0, "deprel": "root", "token": ("don't", 2), "space_after": False},
            {"form": "n't", "head": 1, "deprel": "advmod"}, {"form": "a\tb", "head": 1, "deprel": ""}])
        self.assertEqual(text.split("\n"), [
            "1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No", "1\tdo\t_\t_\t_\t_\t0\troot\t_\t_",
            "2\tn't\t_\t_\t_\t_\t1\tadvmod\t_\t_", "3\ta b\t_\t_\t_\t_\t1\t_\t_\t_", "", ""])


class Serve(unittest.TestCase):
    def test_protocol(self):
        program = (
            "import sys; sys.path.insert(0, sys.argv[1])\n"
            "from protocol import serve\n"
            "def chain(words): return [{'form': w, 'head': i, 'deprel': 'root' if i == 0 else 'dep'}"
            " for i, w in enumerate(words)]\n"
            "def text(t):\n"
            "    print('chatter')\n"
            "    if t == 'bad': raise RuntimeError('no')\n"
            "    return [chain(t.split())]\n"
            "serve({'name': 'x', 'version': '1', 'model': '', 'scheme': 'ud', 'langs': []}, text,"
            " lambda s: [chain(w) for w in s])\n")
        requests = [{"id": 1, "op": "parse", "text": "caf\u00e9 au lait"}, {"id": 2, "op": "parse", "text": "bad"},
                    {"id": 3, "op": "parse_tokens", "sentences": [["a", "b"]]}, {"id": 4, "op": "sing"}]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "adapter.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(program)
            done = subprocess.run([sys.executable, path, HERE], capture_output=True, timeout=60, check=True,
                                  input="".join(json.dumps(r) + "\n" for r in requests).encode())
        lines = [json.loads(line) for line in done.stdout.decode().splitlines()]
        self.assertEqual(lines[0]["sipe"], 1)
        self.assertIn("1\tcaf\u00e9\t", lines[1]["conllu"])
        self.assertEqual(lines[2], {"id": 2, "error": "RuntimeError: no"})
        self.assertEqual(lines[3]["conllu"].count("\n"), 3)
        self.assertIn("unknown operation", lines[4]["error"])
        self.assertIn(b"chatter", done.stderr)


if __name__ == "__main__":
    unittest.main()
