"""UDPipe 1 through its Python package ufal.udpipe, for builds without TORSOR_WITH_UDPIPE:

    torsor syntax parse --parser 'process:python3 adapters/udpipe_adapter.py english.udpipe' book.txt
"""

import argparse
import os

from protocol import serve


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("model", help="model file")
    options = arguments.parse_args()
    from ufal import udpipe
    model = udpipe.Model.load(options.model)
    if model is None:
        raise SystemExit(f"{options.model} is no model of UDPipe")

    def words_of(sentence):
        error = udpipe.ProcessingError()
        for step in (model.tag, model.parse):
            if not step(sentence, model.DEFAULT, error):
                raise RuntimeError(error.message)
        words = []
        for word in list(sentence.words)[1:]:  # the first is the artificial root
            words.append({"form": word.form, "lemma": word.lemma, "upos": word.upostag, "xpos": word.xpostag,
                          "feats": word.feats, "head": word.head, "deprel": word.deprel,
                          "space_after": word.getSpaceAfter()})
        for token in sentence.multiwordTokens:
            words[token.idFirst - 1]["token"] = (token.form, token.idLast - token.idFirst + 1)
            words[token.idFirst - 1]["space_after"] = token.getSpaceAfter()
        return words

    def parse_text(text):
        tokenizer = model.newTokenizer(model.DEFAULT)
        if not tokenizer:
            raise RuntimeError("this model has no tokenizer; give it tokens")
        tokenizer.setText(text)
        error = udpipe.ProcessingError()
        results = []
        while True:
            sentence = udpipe.Sentence()
            if not tokenizer.nextSentence(sentence, error):
                break
            results.append(words_of(sentence))
        if error.occurred():
            raise RuntimeError(error.message)
        return results

    def parse_tokens(sentences):
        results = []
        for forms in sentences:
            sentence = udpipe.Sentence()
            for form in forms:
                sentence.addWord(form)
            results.append(words_of(sentence))
        return results

    version = udpipe.Version.current()
    serve({"name": "udpipe", "version": f"{version.major}.{version.minor}.{version.patch}",
           "model": os.path.basename(options.model), "scheme": "ud", "langs": []}, parse_text, parse_tokens)


if __name__ == "__main__":
    main()
