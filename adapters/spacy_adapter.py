"""spaCy as a parser for torsor:

    torsor syntax parse --parser 'process:python3 adapters/spacy_adapter.py en_core_web_sm' book.txt

spaCy's own English models follow ClearNLP's labels and heads (a preposition is the head of its object), which are not
Universal Dependencies: the hello says scheme "clear", and a gate against UD trees fails it rightly. For a pipeline that
was trained on a UD treebank add --scheme ud."""

import argparse

from protocol import serve


def words_of(sentence):
    """The words of a spaCy span; white-space tokens, which spaCy keeps, are left out."""
    kept = [token for token in sentence if not token.is_space]
    number = {token.i: at for at, token in enumerate(kept, 1)}

    def head_of(token):
        # Up past what was left out.
        while token.head.i != token.i:
            token = token.head
            if token.i in number:
                return number[token.i]
        return 0

    words = []
    for token in kept:
        head = head_of(token)
        after = token.nbor(1) if token.i + 1 < len(token.doc) else None
        words.append({
            "form": token.text, "lemma": token.lemma_, "upos": token.pos_, "xpos": token.tag_, "feats": str(token.morph),
            "head": head, "deprel": "root" if head == 0 else token.dep_.lower() or "dep",
            "space_after": bool(token.whitespace_) or after is None or after.is_space})
    return words


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("model", help="name or folder of the pipeline")
    arguments.add_argument("--scheme", default="clear", choices=["clear", "ud"])
    options = arguments.parse_args()
    import spacy
    from spacy.tokens import Doc
    pipeline = spacy.load(options.model, exclude=["ner"])

    def parse_text(text):
        return [words for sentence in pipeline(text).sents if (words := words_of(sentence))]

    def parse_tokens(sentences):
        results = []
        for forms in sentences:
            # The sentence is given: spaCy must not split it.
            doc = Doc(pipeline.vocab, words=forms, sent_starts=[True] + [False] * (len(forms) - 1))
            results.append([word for sentence in pipeline(doc).sents for word in words_of(sentence)])
        return results

    serve({"name": "spacy", "version": spacy.__version__,
           "model": f"{pipeline.meta['lang']}_{pipeline.meta['name']} {pipeline.meta['version']}",
           "scheme": options.scheme, "langs": [pipeline.meta["lang"]]}, parse_text, parse_tokens)


if __name__ == "__main__":
    main()
