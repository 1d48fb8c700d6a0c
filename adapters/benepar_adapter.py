"""benepar as a parser for torsor: constituents, turned into dependencies by ptb_heads.py.

    torsor syntax parse --parser 'process:python3 adapters/benepar_adapter.py benepar_en3' --tokenized words.txt

The heads are function heads with the label `dep` (scheme "ptb-heads"): no Universal Dependencies. The model must be on
the machine (benepar.download), and spaCy with a pipeline that splits text where raw text is to be parsed (--spacy)."""

import argparse

from protocol import serve
from ptb_heads import dependencies, read_tree, strip_traces


def words_of(brackets, forms):
    """The words of a bracketed tree; forms are the text's own, since brackets are escaped in trees."""
    tree = strip_traces(read_tree(brackets))
    if tree is None:
        raise ValueError("the tree holds no words")
    words, tags, heads = dependencies(tree)
    if len(words) != len(forms):
        raise ValueError(f"expected {len(forms)} words in the tree, found {len(words)}")
    return [{"form": form, "xpos": tag, "head": head, "deprel": "root" if head == 0 else "dep"}
            for form, tag, head in zip(forms, tags, heads)]


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("model")
    arguments.add_argument("--spacy", default="en_core_web_sm", help="pipeline that cuts raw text")
    options = arguments.parse_args()
    import benepar
    parser = benepar.Parser(options.model)
    cutter = None

    def parse_tokens(sentences):
        return [words_of(parser.parse(benepar.InputSentence(words=forms)).pformat(margin=10 ** 9), forms)
                for forms in sentences]

    def parse_text(text):
        nonlocal cutter
        if cutter is None:
            import spacy
            cutter = spacy.load(options.spacy, exclude=["ner", "lemmatizer"])
        results = []
        for sentence in cutter(text).sents:
            tokens = [token for token in sentence if not token.is_space]
            if not tokens:
                continue
            words = parse_tokens([[token.text for token in tokens]])[0]
            for word, token in zip(words, tokens):
                after = token.nbor(1) if token.i + 1 < len(token.doc) else None
                word["space_after"] = bool(token.whitespace_) or after is None or after.is_space
            results.append(words)
        return results

    serve({"name": "benepar", "version": getattr(benepar, "__version__", ""), "model": options.model,
           "scheme": "ptb-heads", "langs": ["en"]}, parse_text, parse_tokens)


if __name__ == "__main__":
    main()
