"""Stanza as a parser for torsor:

    torsor syntax parse --parser 'process:python3 adapters/stanza_adapter.py en' book.txt

The models must be on the machine (stanza.download('en'), or --models FOLDER): the adapter fetches nothing."""

import argparse

from protocol import serve


def words_of(sentence):
    """The words of a Stanza sentence, with its multiword tokens."""
    words = []
    for token in sentence.tokens:
        for at, word in enumerate(token.words):
            words.append({"form": word.text, "lemma": word.lemma or "_", "upos": word.upos or "_",
                          "xpos": word.xpos or "_", "feats": word.feats or "_", "head": word.head,
                          "deprel": word.deprel})
            if at == 0:
                words[-1]["space_after"] = getattr(token, "spaces_after", " ") != ""
                if len(token.words) > 1:
                    words[-1]["token"] = (token.text, len(token.words))
    return words


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("language")
    arguments.add_argument("--package", default="default")
    arguments.add_argument("--models", help="folder of the models")
    options = arguments.parse_args()
    import stanza

    def pipeline(**keys):
        if options.models:
            keys["dir"] = options.models
        return stanza.Pipeline(options.language, package=options.package, download_method=None, verbose=False, **keys)

    text_pipeline = pipeline(processors="tokenize,mwt,pos,lemma,depparse")
    token_pipeline = None

    def parse_text(text):
        return [words_of(sentence) for sentence in text_pipeline(text).sentences]

    def parse_tokens(sentences):
        nonlocal token_pipeline
        if token_pipeline is None:  # multiword tokens are not looked for in words that are given
            token_pipeline = pipeline(processors="tokenize,pos,lemma,depparse", tokenize_pretokenized=True)
        return [words_of(sentence) for sentence in token_pipeline(sentences).sentences]

    serve({"name": "stanza", "version": stanza.__version__, "model": f"{options.language} {options.package}",
           "scheme": "ud", "langs": [options.language]}, parse_text, parse_tokens)


if __name__ == "__main__":
    main()
