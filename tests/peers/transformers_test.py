"""Torsor beside Hugging Face transformers: what one writes, the other reads as the same model.

    python transformers_test.py PROGRAM        PROGRAM is torsor

Needs torch, transformers and safetensors (requirements/peers.txt). Models are small, random and made afresh.
"""
import array
import json
import os
import subprocess
import sys
import tempfile
import unittest

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

PROGRAM = ""
LENGTH = 32  # tokens of a training text
VOCABULARY = 96
# Two programs in float32: what rounding leaves, relative to the largest logit. The worst that was seen is 6e-6.
ROUNDING = 2e-5

SIZES = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6, vocab_size=VOCABULARY,
             max_position_embeddings=LENGTH)
LLAMA = dict(SIZES, num_key_value_heads=2, pad_token_id=None)
NEOX = dict(SIZES, pad_token_id=None)
GPT2 = dict(n_embd=48, n_layer=3, n_head=6, n_positions=4 * LENGTH, vocab_size=VOCABULARY)
BLOOM = dict(hidden_size=48, n_layer=3, n_head=6, vocab_size=VOCABULARY)
MPT = dict(d_model=48, n_layers=3, n_heads=6, max_seq_len=4 * LENGTH, vocab_size=VOCABULARY, pad_token_id=None)
FALCON = dict(hidden_size=48, num_hidden_layers=3, num_attention_heads=6, vocab_size=VOCABULARY,
              max_position_embeddings=LENGTH, pad_token_id=None)


def rope(kind, **keys):
    return dict(rope_parameters=dict(rope_type=kind, rope_theta=10000.0, **keys))


# name: (family, keys)
MODELS = {
    "llama": ("Llama", dict(LLAMA, attention_bias=True, mlp_bias=True)),
    "llama-linear": ("Llama", dict(LLAMA, **rope("linear", factor=3.0))),
    "llama-dynamic": ("Llama", dict(LLAMA, **rope("dynamic", factor=2.0))),
    "llama-yarn": ("Llama", dict(LLAMA, **rope("yarn", factor=4.0, original_max_position_embeddings=LENGTH))),
    "llama31": ("Llama", dict(LLAMA, **rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                            original_max_position_embeddings=LENGTH))),
    "mistral": ("Mistral", dict(LLAMA, sliding_window=9)),
    "qwen2": ("Qwen2", dict(LLAMA)),
    "qwen2-window": ("Qwen2", dict(LLAMA, use_sliding_window=True, sliding_window=9, max_window_layers=1)),
    "qwen3": ("Qwen3", dict(LLAMA, head_dim=16)),
    "phi3": ("Phi3", dict(LLAMA, original_max_position_embeddings=LENGTH)),
    "phi3-long": ("Phi3", dict(LLAMA, max_position_embeddings=4 * LENGTH, original_max_position_embeddings=LENGTH,
                               rope_parameters=dict(rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.5,
                                                    short_factor=[1.0, 1.2], long_factor=[1.5, 4.0]))),
    "gpt2": ("GPT2", GPT2),
    "gpt_neox": ("GPTNeoX", dict(NEOX, rope_parameters=dict(rope_type="default", rope_theta=10000.0,
                                                            partial_rotary_factor=0.25))),
    "gpt_neox-serial": ("GPTNeoX", dict(NEOX, use_parallel_residual=False,
                                        rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=500.0,
                                                             partial_rotary_factor=1.0))),
    "bloom": ("Bloom", BLOOM),
    "mpt": ("Mpt", MPT),
    "falcon": ("Falcon", FALCON),
    "falcon-alibi": ("Falcon", dict(FALCON, alibi=True, multi_query=False, parallel_attn=False, bias=True)),
    "falcon-new": ("Falcon", dict(FALCON, new_decoder_architecture=True, num_kv_heads=2)),
    "falcon-one-norm": ("Falcon", dict(FALCON, new_decoder_architecture=True, num_kv_heads=3,
                                       num_ln_in_parallel_attn=1)),
}


def attention_of(name):
    # The eager path adds Falcon's ALiBi twice.
    return "sdpa" if name == "falcon-alibi" else "eager"


def torsor(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"torsor {' '.join(map(str, arguments))} ended with {done.returncode}: {done.stderr}")
    return done.stdout


class Folder:
    """Every model is made once and kept for all tests."""

    def __init__(self):
        self.root = tempfile.TemporaryDirectory(prefix="torsor-peers-")
        self.made = {}

    def path(self, *names):
        return os.path.join(self.root.name, *names)

    def model(self, name):
        """A folder that transformers wrote: random weights, shaken so that norms and biases matter."""
        if name not in self.made:
            family, keys = MODELS[name]
            torch.manual_seed(sorted(MODELS).index(name))
            config = getattr(transformers, family + "Config")(**keys)
            suffix = "LMHeadModel" if family == "GPT2" else "ForCausalLM"
            model = getattr(transformers, family + suffix)(config).float().eval()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(0.15 * torch.randn_like(parameter))
            model.save_pretrained(self.path(name))
            self.made[name] = self.path(name)
        return self.made[name]

    def tokens(self, count):
        torch.manual_seed(count)
        return torch.randint(0, VOCABULARY, (count,))


FOLDER = None


def their_logits(folder, tokens, attention="eager"):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention).eval()
    with torch.no_grad():
        return model(tokens[None]).logits[0]


def our_logits(folder, tokens):
    ids, out = FOLDER.path("tokens.bin"), FOLDER.path("logits.safetensors")
    with open(ids, "wb") as file:
        array.array("H", tokens.tolist()).tofile(file)
    torsor("eval", folder, "--tokens", ids, "--lengths", len(tokens), "--dump-logits", out, "--force", "--quiet")
    found = load_file(out)
    assert torch.equal(found["tokens"], tokens)
    return found["logits"]


class PeersTest(unittest.TestCase):
    worst = {}

    def check(self, ours, theirs, what):
        self.assertEqual(ours.shape, theirs.shape, what)
        difference = ((ours - theirs).abs().max() / theirs.abs().max()).item()
        group = type(self).__name__
        PeersTest.worst[group] = max(PeersTest.worst.get(group, (0, "")), (difference, what))
        self.assertLess(difference, ROUNDING, what)

    def check_folder(self, folder, lengths, attention="eager"):
        for length in lengths:
            tokens = FOLDER.tokens(length)
            self.check(our_logits(folder, tokens), their_logits(folder, tokens, attention), f"{folder} at {length}")


class Reading(PeersTest):
    """What transformers writes."""

    def test_every_family(self):
        for name in MODELS:
            with self.subTest(name):
                self.check_folder(FOLDER.model(name), [LENGTH, 3 * LENGTH], attention_of(name))

    def test_shards(self):
        model = AutoModelForCausalLM.from_pretrained(FOLDER.model("llama"))
        model.save_pretrained(FOLDER.path("shards"), max_shard_size="40KB")
        self.assertTrue(os.path.exists(FOLDER.path("shards", "model.safetensors.index.json")))
        self.assertFalse(os.path.exists(FOLDER.path("shards", "model.safetensors")))
        self.check_folder(FOLDER.path("shards"), [LENGTH])

    def test_older_keys(self):
        for name in ("llama", "llama-linear", "llama-dynamic", "llama-yarn", "llama31", "phi3-long", "gpt_neox"):
            with self.subTest(name):
                old = FOLDER.path(name + "-old")
                os.makedirs(old)
                os.link(os.path.join(FOLDER.model(name), "model.safetensors"), os.path.join(old, "model.safetensors"))
                with open(os.path.join(FOLDER.model(name), "config.json")) as file:
                    config = json.load(file)
                scaling = config.pop("rope_parameters")
                base, part = scaling.pop("rope_theta"), scaling.pop("partial_rotary_factor", None)
                scaling["type"] = scaling.pop("rope_type")
                config["rotary_emb_base" if name == "gpt_neox" else "rope_theta"] = base
                if part is not None:
                    config["rotary_pct" if name == "gpt_neox" else "partial_rotary_factor"] = part
                if scaling["type"] != "default":
                    config["rope_scaling"] = scaling
                with open(os.path.join(old, "config.json"), "w") as file:
                    json.dump(config, file)
                self.check_folder(old, [LENGTH, 3 * LENGTH])
                tokens = FOLDER.tokens(3 * LENGTH)
                self.assertTrue(torch.equal(our_logits(old, tokens), our_logits(FOLDER.model(name), tokens)))


class WithEncoders(PeersTest):
    """Models that have an encoder: T5 and its kin, BERT and its kin."""

    T5 = dict(vocab_size=VOCABULARY, d_model=48, d_kv=10, d_ff=80, num_layers=2, num_decoder_layers=3, num_heads=4,
              decoder_start_token_id=0)
    BERT = dict(SIZES, max_position_embeddings=130)
    ROBERTA = dict(BERT, type_vocab_size=1, pad_token_id=1)
    T5_KINDS = (("T5", {}), ("T5", dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False)), ("MT5", {}),
                ("UMT5", {}))
    BERT_KINDS = (
        ("Bert", "MaskedLM", BERT),
        ("Bert", "PreTraining", BERT),
        ("Bert", "SequenceClassification", dict(BERT, num_labels=5)),
        ("Roberta", "MaskedLM", ROBERTA),
        ("Roberta", "SequenceClassification", dict(ROBERTA, num_labels=5)),
        ("XLMRoberta", "MaskedLM", ROBERTA),
        ("Camembert", "MaskedLM", ROBERTA),
        ("RoFormer", "MaskedLM", BERT),
        ("DistilBert", "MaskedLM", dict(vocab_size=VOCABULARY, dim=48, n_layers=3, n_heads=6, hidden_dim=80,
                                        max_position_embeddings=130)),
    )

    def make(self, family, name, keys, shake=0.15):
        torch.manual_seed(7)
        model = getattr(transformers, name)(getattr(transformers, family + "Config")(**keys)).float().eval()
        with torch.no_grad():
            for parameter, tensor in model.named_parameters():
                if "embed_positions" not in parameter:  # RoFormer's sines are no weights
                    tensor.add_(shake * torch.randn_like(tensor))
        folder = FOLDER.path(name + str(len(os.listdir(FOLDER.path()))))
        model.save_pretrained(folder)
        return model, folder

    def write(self, name, tokens):
        with open(FOLDER.path(name), "wb") as file:
            array.array("H", tokens.tolist()).tofile(file)
        return FOLDER.path(name)

    def eval(self, folder, tokens, *more):
        out = FOLDER.path("logits.safetensors")
        torsor("eval", folder, "--tokens", self.write("tokens.bin", tokens), *more, "--dump-logits", out, "--force",
               "--quiet")
        return load_file(out)


class Encoders(WithEncoders):
    """What transformers writes of them."""

    def test_encoder_and_decoder(self):
        source, target = 2 + FOLDER.tokens(150) % 90, 2 + FOLDER.tokens(140) % 90
        for family, more in self.T5_KINDS:
            with self.subTest(family=family, more=more):
                # Scores are not divided by a root: with larger weights they saturate, and rounding grows a hundredfold.
                model, folder = self.make(family, family + "ForConditionalGeneration", dict(self.T5, **more), 0.05)
                with torch.no_grad():
                    read = torch.cat([torch.zeros(1, dtype=torch.long), target[:-1]])
                    theirs = model(input_ids=source[None], decoder_input_ids=read[None]).logits[0]
                ours = self.eval(folder, target, "--source-tokens", self.write("source.bin", source))["logits"]
                self.check(ours, theirs, f"{family} {more}")
                # What both write: the most probable token, again and again.
                with torch.no_grad():
                    wanted = model.generate(input_ids=source[None], max_new_tokens=20, do_sample=False,
                                            use_cache=False)[0, 1:]
                    wanted = wanted.tolist()
                said = json.loads(torsor("generate", folder, "--ids", "--prompt", " ".join(map(str, source.tolist())),
                                         "--max-tokens", 20, "--temperature", 0, "--json", "--quiet"))
                end = wanted.index(1) if 1 in wanted else len(wanted)
                self.assertEqual(said["rows"][0]["tokens"], wanted[:end])

    def test_encoders(self):
        tokens = 5 + FOLDER.tokens(120) % 90
        for family, head, keys in self.BERT_KINDS:
            with self.subTest(family=family, head=head):
                model, folder = self.make(family, family + "For" + head, keys)
                with torch.no_grad():
                    theirs = model(input_ids=tokens[None])
                ours = self.eval(folder, tokens)
                if head == "SequenceClassification":
                    self.check(ours["class_logits"], theirs.logits[0], family + head)
                    continue
                logits = theirs.prediction_logits if head == "PreTraining" else theirs.logits
                self.check(ours["logits"], logits[0], family + head)
                if head == "PreTraining":
                    self.check(ours["class_logits"], theirs.seq_relationship_logits[0], family + head)


class Exporting(PeersTest):
    """What `torsor convert --to hf` writes."""

    def check_export(self, folder, out, attention="eager", lengths=(LENGTH, 3 * LENGTH)):
        torsor("convert", folder, "--to", "hf", "--out", out)
        with open(os.path.join(out, "config.json")) as file:
            self.assertNotIn("encoding", json.load(file))
        self.check_folder(out, lengths, attention)

    def test_every_family_comes_back(self):
        for name in MODELS:
            with self.subTest(name):
                folder, out = FOLDER.model(name), FOLDER.path(name + "-export")
                self.check_export(folder, out, attention_of(name))
                before, after = (load_file(os.path.join(one, "model.safetensors")) for one in (folder, out))
                self.assertEqual(set(after), set(before))
                for tensor in before:
                    self.assertEqual(after[tensor].dtype, torch.float32)
                    self.assertTrue(torch.equal(after[tensor], before[tensor]), tensor)
                tokens = FOLDER.tokens(2 * LENGTH)
                self.assertTrue(torch.equal(their_logits(out, tokens, attention_of(name)),
                                            their_logits(folder, tokens, attention_of(name))))

    def test_narrow_types(self):
        out = FOLDER.path("narrow")
        torsor("convert", FOLDER.model("qwen3"), "--to", "hf", "--dtype", "bfloat16", "--out", out)
        model = AutoModelForCausalLM.from_pretrained(out)
        self.assertEqual(model.dtype, torch.bfloat16)
        before = load_file(os.path.join(FOLDER.model("qwen3"), "model.safetensors"))
        for name, tensor in load_file(os.path.join(out, "model.safetensors")).items():
            self.assertTrue(torch.equal(tensor, before[name].bfloat16()), name)

    def test_models_of_this_project(self):
        """Each trained for two steps, so that no tensor is as it was drawn."""
        layer = dict(norm="layer", mlp="gelu_tanh", qkv_bias=True, output_bias=True, mlp_bias=True)
        plain = dict(norm="layer", norm_bias=False, mlp="gelu", mlp_width=192)
        own = {
            "llama": ("rope(base=500)", {}),
            "llama ": ("rope(layout=interleaved)", dict(kv_heads=2)),
            "qwen3": ("yarn(rope, factor=2)", dict(qk_norm="before")),
            "mistral": ("rope", dict(window=9)),
            "gpt2": ("learned(length=128)", layer),
            "gpt_neox": ("rope(dim=4)", dict(layer, parallel="two_norms")),
            "bloom": ("alibi", dict(layer, embedding_norm=True, mlp_width=192)),
            "mpt": ("alibi", plain),
            "falcon": ("rope", dict(norm="layer", mlp="gelu", parallel="one_norm", kv_heads=1, mlp_width=96)),
        }
        text = FOLDER.path("text.txt")
        with open(text, "w") as file:
            file.write("".join(f"line {n} of a small text, written {n % 7} times\n" for n in range(400)))
        for number, (family, (encoding, keys)) in enumerate(own.items()):
            with self.subTest(family=family, encoding=encoding):
                run, file = FOLDER.path(f"own-{number}"), FOLDER.path("model.json")
                with open(file, "w") as out:
                    json.dump(dict(width=48, layers=2, heads=6, **keys), out)
                torsor("train", "--encoding", encoding, "--model", file, "--text", text, "--length", LENGTH, "--steps", 2,
                       "--batch", 2, "--out", run, "--quiet")
                exported = FOLDER.path(f"own-{number}-hf")
                # MPT there reads no text longer than max_seq_len.
                self.check_export(run, exported, lengths=[LENGTH] if family == "mpt" else [LENGTH, 3 * LENGTH])
                with open(os.path.join(exported, "config.json")) as out:
                    self.assertEqual(json.load(out)["model_type"], family.strip())


class ExportingEncoders(WithEncoders):
    """What `torsor convert --to hf` writes of them."""

    def load(self, folder, wanted):
        """The model that a folder's config.json names; nothing is missing, and nothing left over but `wanted`."""
        with open(os.path.join(folder, "config.json")) as file:
            name = json.load(file)["architectures"][0]
        model, told = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
        self.assertEqual(set(told["missing_keys"]) - {"roformer.encoder.embed_positions.weight"}, set())
        self.assertLessEqual(set(told["unexpected_keys"]), set(wanted))
        return model.eval()

    def round(self, folder, wanted=()):
        """A folder that comes out as it was, bit for bit, and through a folder of this project as the same function."""
        out, own, back = (FOLDER.path(os.path.basename(folder) + end) for end in ("-export", "-own", "-back"))
        torsor("convert", folder, "--to", "hf", "--out", out)
        before, after = (load_file(os.path.join(one, "model.safetensors")) for one in (folder, out))
        self.assertEqual(set(after), set(before))
        for name in before:
            self.assertTrue(torch.equal(after[name], before[name]), name)
        one, other = self.load(folder, wanted), self.load(out, wanted)
        self.assertEqual(type(other), type(one))
        self.assertEqual({**other.config.to_dict(), "_name_or_path": 0}, {**one.config.to_dict(), "_name_or_path": 0})
        loaded = other.state_dict()
        for name, tensor in one.state_dict().items():
            self.assertTrue(torch.equal(loaded[name], tensor), name)
        torsor("convert", folder, "--to", "torsor", "--out", own)
        torsor("convert", own, "--to", "hf", "--out", back)
        return other, back

    def test_encoders_come_back(self):
        tokens = 5 + FOLDER.tokens(120) % 90
        for family, head, keys in (*self.BERT_KINDS, ("Bert", "Model", self.BERT), ("Roberta", "Model", self.ROBERTA)):
            with self.subTest(family=family, head=head):
                folder = self.make(family, family + ("For" + head if head != "Model" else head), keys)[1]
                model, back = self.round(folder)
                if head == "PreTraining":
                    model = transformers.BertForMaskedLM.from_pretrained(folder).eval()
                with torch.no_grad():
                    theirs = model(input_ids=tokens[None])[0][0]
                ours = self.eval(back, tokens)
                self.check(ours[dict(SequenceClassification="class_logits", Model="hidden").get(head, "logits")], theirs,
                           family + head)
                # RoBERTa's kin and DistilBERT become BERTs there: the same function without their first rows.
                if head == "Model":
                    again = transformers.AutoModel.from_pretrained(back).eval()
                elif head == "PreTraining":
                    again = transformers.BertForMaskedLM.from_pretrained(back).eval()
                else:
                    again = self.load(back, ())
                with torch.no_grad():
                    self.check(again(input_ids=tokens[None])[0][0], theirs, family + head + " through our folder")

    def test_encoder_and_decoder_come_back(self):
        source, target = 2 + FOLDER.tokens(150) % 90, 2 + FOLDER.tokens(140) % 90
        for family, more in self.T5_KINDS:
            for own_head in (False, True):
                with self.subTest(family=family, more=more, own_head=own_head):
                    folder = self.make(family, family + "ForConditionalGeneration", dict(self.T5, **more), 0.05)[1]
                    if own_head:  # where a file has one, transformers reads it, though it ties all that it makes
                        path = os.path.join(folder, "model.safetensors")
                        tensors = load_file(path)
                        tensors["lm_head.weight"] = torch.randn(VOCABULARY, self.T5["d_model"])
                        save_file(tensors, path, {"format": "pt"})
                    model, back = self.round(folder)
                    self.assertEqual(model.lm_head.weight is model.shared.weight, not own_head)
                    read = torch.cat([torch.zeros(1, dtype=torch.long), target[:-1]])
                    with torch.no_grad():
                        theirs = model(input_ids=source[None], decoder_input_ids=read[None]).logits[0]
                        again = self.load(back, ())(input_ids=source[None], decoder_input_ids=read[None]).logits[0]
                    what = f"{family} {more} {own_head}"
                    self.check(again, theirs, what + " through our folder")
                    ours = self.eval(back, target, "--source-tokens", self.write("source.bin", source))["logits"]
                    self.check(ours, theirs, what)

    def test_narrow_types(self):
        folder, out = self.make("Roberta", "RobertaForMaskedLM", self.ROBERTA)[1], FOLDER.path("narrow-roberta")
        torsor("convert", folder, "--to", "hf", "--dtype", "bfloat16", "--out", out)
        self.assertEqual(self.load(out, ()).dtype, torch.bfloat16)
        before = load_file(os.path.join(folder, "model.safetensors"))
        for name, tensor in load_file(os.path.join(out, "model.safetensors")).items():
            self.assertTrue(torch.equal(tensor, before[name].bfloat16()), name)

    def test_encoders_of_this_project(self):
        """Trained for three steps, with biases of projections and without."""
        text = FOLDER.path("words.txt")
        with open(text, "w") as file:
            file.write("".join(f"line {n} of a small text, written {n % 7} times\n" for n in range(400)))
        for number, (encoding, more) in enumerate((
            ("learned", {}),
            ("learned(length=128)", dict(qkv_bias=True, output_bias=True, activation="gelu_tanh", segments=3)),
            ("rope(layout=interleaved)", {}),
            ("rope", {}),
        )):
            with self.subTest(encoding=encoding, more=more):
                run, out, file = FOLDER.path(f"encoder-{number}"), FOLDER.path(f"encoder-{number}-hf"), FOLDER.path("e.json")
                with open(file, "w") as target:
                    json.dump(dict(kind="encoder", width=48, layers=2, heads=6, **more), target)
                torsor("train", "--encoding", encoding, "--model", file, "--text", text, "--length", 128, "--steps", 3,
                       "--batch", 2, "--out", run, "--quiet")
                torsor("convert", run, "--to", "hf", "--out", out)
                tokenizer = transformers.AutoTokenizer.from_pretrained(out)
                self.assertEqual(tokenizer("a \u00e9", "b")["input_ids"], [256, 97, 32, 0xc3, 0xa9, 257, 98, 257])
                self.assertEqual(tokenizer("ab", "c", return_token_type_ids=True)["token_type_ids"], [0] * 4 + [1] * 2)
                self.assertEqual((tokenizer.mask_token_id, tokenizer.pad_token_id), (258, 259))
                tokens = torch.tensor(tokenizer("some bytes, one of them " + tokenizer.mask_token)["input_ids"])
                with torch.no_grad():
                    theirs = self.load(out, ())(input_ids=tokens[None]).logits[0]
                self.check(self.eval(run, tokens)["logits"], theirs, encoding)


class Extending(PeersTest):
    """What `torsor extend` writes, inside the training length and beyond."""

    LENGTHS = [LENGTH // 2, LENGTH, LENGTH + 1, 4 * LENGTH]

    def extend(self, folder, out, *request):
        said = json.loads(torsor("extend", folder, *request, "--out", out, "--json", "--quiet"))
        self.assertIsNotNone(said["hugging_face"])
        return said

    def test_every_method(self):
        for method in ("linear", "ntk", "dynamic", "yarn", "longrope", "llama3"):
            with self.subTest(method):
                out = FOLDER.path("extended-" + method)
                self.extend(FOLDER.model("llama"), out, "--method", method, "--length", 4 * LENGTH)
                self.check_folder(out, self.LENGTHS)
                with open(os.path.join(out, "config.json")) as file:
                    config = json.load(file)
                # Under dynamic this key is the training length, elsewhere how far texts may go.
                self.assertEqual(config["max_position_embeddings"], LENGTH if method == "dynamic" else 4 * LENGTH)
                if method in ("yarn", "longrope", "llama3"):
                    self.assertEqual(config["rope_parameters"]["original_max_position_embeddings"], LENGTH)
                # Not what it was, beyond the training length.
                tokens = FOLDER.tokens(4 * LENGTH)
                self.assertGreater((our_logits(out, tokens) - our_logits(FOLDER.model("llama"), tokens)).abs().max(),
                                   1e-2)

    def test_other_families(self):
        for name, request, family in (
            ("mistral", ["--encoding", "yarn(rope, factor=4)"], "mistral"),
            ("qwen2", ["--encoding", "yarn(rope, factor=4, truncate=false)"], "qwen2"),
            ("qwen3", ["--encoding", "dynamic(rope, factor=4)"], "qwen3"),
            ("phi3", ["--encoding", "longrope(rope, factor=4)"], "phi3"),
            ("phi3", ["--encoding", "yarn(rope, factor=4)"], "llama"),  # Phi-3 has no other scaling than longrope
            ("gpt_neox", ["--method", "yarn", "--length", 4 * LENGTH], "gpt_neox"),
            ("falcon-new", ["--method", "linear", "--length", 4 * LENGTH], "falcon"),
            ("llama-linear", ["--encoding", "yarn(rope, factor=4)"], "llama"),
        ):
            with self.subTest(name=name, request=request):
                out = FOLDER.path(f"extended-{name}-{family}")
                self.assertEqual(self.extend(FOLDER.model(name), out, *request)["hugging_face"], family)
                self.check_folder(out, self.LENGTHS)

    def test_keys_beside_ours(self):
        for method in ("linear", "dynamic", "yarn", "longrope", "llama3"):
            with self.subTest(method):
                out = FOLDER.path("beside-" + method)
                self.extend(FOLDER.model("llama"), out, "--method", method, "--length", 4 * LENGTH, "--to", "torsor")
                with open(os.path.join(out, "config.json")) as file:
                    self.assertIn("encoding", json.load(file))
                self.check_folder(out, [LENGTH, 4 * LENGTH])


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    FOLDER = Folder()
    program = unittest.main(exit=False, verbosity=2)
    for group, (difference, what) in PeersTest.worst.items():
        print(f"{group}: largest difference of a logit {difference:.2g} of the largest, {what}")
    FOLDER.root.cleanup()
    sys.exit(not program.result.wasSuccessful())
