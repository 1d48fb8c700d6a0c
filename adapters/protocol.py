"""The side of a parser in the protocol that `torsor syntax ... --parser process:COMMAND` speaks: JSON lines on standard
input and output. An adapter gives `serve` its hello and two functions; whatever they print goes to standard error, so
that a chatty library does not break the lines."""

import json
import os
import sys


def serve(hello, parse_text, parse_tokens):
    """Answers requests until the input ends.

    hello: name, version, model, scheme ("ud", "clear", "ptb-heads"), langs.
    parse_text(text): sentences of raw text; parse_tokens(sentences): one parse for each list of forms.
    Both return lists of sentences, each a list of words as dictionaries with the keys of `conllu`.
    """
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
    os.dup2(2, 1)  # prints of libraries
    sys.stdout = sys.stderr

    def say(message):
        out.write(json.dumps(message, ensure_ascii=False) + "\n")
        out.flush()

    say({"sipe": 1, "prefix_safe": False, **hello})
    for line in sys.stdin.buffer:
        request = json.loads(line.decode("utf-8"))
        answer = {"id": request["id"]}
        try:
            if request["op"] == "parse":
                sentences = parse_text(request["text"])
            elif request["op"] == "parse_tokens":
                sentences = parse_tokens(request["sentences"])
            else:
                raise ValueError("unknown operation " + request["op"])
            answer["conllu"] = "".join(conllu(sentence) for sentence in sentences)
        except Exception as error:  # one sentence that fails must not end the child
            answer["error"] = f"{type(error).__name__}: {error}"
        say(answer)


def clean(value):
    """A column: no tabs or line breaks, never empty."""
    return " ".join(str(value).split()) or "_"


def conllu(words):
    """The lines of a sentence. A word has form, head (from 1, 0 = the root) and deprel; lemma, upos, xpos, feats and
    space_after where they are known; `token` = (form, number of words) at the first word of a multiword token."""
    lines = []
    for number, word in enumerate(words, 1):
        misc = "_" if word.get("space_after", True) else "SpaceAfter=No"
        if "token" in word:
            form, count = word["token"]
            lines.append("\t".join([f"{number}-{number + count - 1}", clean(form)] + ["_"] * 7 + [misc]))
            misc = "_"
        lines.append("\t".join([
            str(number), clean(word["form"]), clean(word.get("lemma", "_")), clean(word.get("upos", "_")),
            clean(word.get("xpos", "_")), clean(word.get("feats", "_")), str(word["head"]), clean(word["deprel"]), "_",
            misc]))
    return "\n".join(lines) + "\n\n" if lines else ""
