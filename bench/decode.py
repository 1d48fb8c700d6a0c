#!/usr/bin/env python3
"""Decode speed here and in llama.cpp, on the same GGUF file, as a table in Markdown.

    decode.py [--model FILE.gguf] [--torsor BIN] [--rounds 5] [--tokens 48] [--filled 2000] [--threads 2]

Without --model a file of about 125 M random parameters in float16 is made (width 768, 12 layers, 12 heads, vocabulary
50304, tied) and kept in the folder of temporary files. The two alternate, so that a machine whose speed drifts costs both
the same: each round times --tokens steps behind a prompt of one token, and behind one of --filled. Beside tokens a
second stands the share of the copy bandwidth that they are: bytes of the matrices and of the keys and values, a token,
over what copying a large block reads and writes in the same round. Needs numpy and the packages gguf and llama-cpp-python.
"""
import argparse, json, os, statistics, subprocess, sys, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WIDTH, LAYERS, HEADS, INNER, VOCABULARY, LENGTH = 768, 12, 12, 2048, 50304, 4096


def make_model(path):
    import gguf
    import numpy

    random = numpy.random.default_rng(1)
    writer = gguf.GGUFWriter(path + ".part", "llama")
    writer.add_context_length(LENGTH)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    # Pieces that are never read: both sides are given ids.
    writer.add_tokenizer_model("llama")
    pieces = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    pieces += [f"piece{i}" for i in range(VOCABULARY - len(pieces))]
    kinds = [2, 3, 3] + [6] * 256 + [1] * (VOCABULARY - 259)
    writer.add_token_list(pieces)
    writer.add_token_scores([0.0] * VOCABULARY)
    writer.add_token_types(kinds)

    def matrix(name, rows, columns):
        numbers = random.standard_normal((rows, columns), dtype=numpy.float32) * (0.5 / columns ** 0.5)
        writer.add_tensor(name, numbers.astype(numpy.float16))

    def norm(name):
        writer.add_tensor(name, numpy.ones(WIDTH, dtype=numpy.float32))

    matrix("token_embd.weight", VOCABULARY, WIDTH)
    for layer in range(LAYERS):
        own = f"blk.{layer}."
        norm(own + "attn_norm.weight")
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            matrix(f"{own}{part}.weight", WIDTH, WIDTH)
        norm(own + "ffn_norm.weight")
        matrix(own + "ffn_gate.weight", INNER, WIDTH)
        matrix(own + "ffn_up.weight", INNER, WIDTH)
        matrix(own + "ffn_down.weight", WIDTH, INNER)
    norm("output_norm.weight")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(path + ".part", path)


def bytes_a_token(path, filled, cache_bytes):
    """Of all tensors (a tied embedding is read as the output projection), and of keys and values behind `filled` tokens."""
    import gguf

    reader = gguf.GGUFReader(path)

    def number(name):
        return int(reader.fields[f"llama.{name}"].parts[-1][0])

    weights = sum(int(tensor.n_bytes) for tensor in reader.tensors)
    if "output.weight" in {tensor.name for tensor in reader.tensors}:
        weights -= next(int(tensor.n_bytes) for tensor in reader.tensors if tensor.name == "token_embd.weight")
    width = number("embedding_length") // number("attention.head_count") * number("attention.head_count_kv")
    return weights + 2 * number("block_count") * width * filled * cache_bytes


def copy_bandwidth(threads):
    """Bytes read and written a second by copies of 256 MB, each thread its own part."""
    import concurrent.futures
    import numpy

    size = 1 << 28
    source, target = numpy.ones(size, numpy.uint8), numpy.zeros(size, numpy.uint8)
    cuts = [(i * size // threads, (i + 1) * size // threads) for i in range(threads)]

    def copy(cut):
        numpy.copyto(target[cut[0]:cut[1]], source[cut[0]:cut[1]])

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        times = []
        for _ in range(7):
            begin = time.perf_counter()
            list(pool.map(copy, cuts))
            times.append(time.perf_counter() - begin)
    return 2 * size / statistics.median(times)


def ours(given, filled):
    prompt = " ".join(str(3 + i * 7919 % 20000) for i in range(max(filled, 1)))
    ran = subprocess.run([given.torsor, "generate", given.model, "--ids", "--prompt", prompt, "--temperature", "0", "--json",
                          "--max-tokens", str(given.tokens), "--threads", str(given.threads), "--cache-dtype", "bf16"],
                         capture_output=True, text=True)
    if ran.returncode:
        sys.exit(f"decode.py: {ran.stderr.strip()}")
    return json.loads(ran.stdout)["tokens_per_second"]


class Llama:
    """llama.cpp behind its own interface, a token at a time, without sampling."""

    def __init__(self, given):
        import llama_cpp

        self.lib, self.given = llama_cpp, given
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(given.model.encode(), llama_cpp.llama_model_default_params())

    def speed(self, filled):
        lib, given = self.lib, self.given
        settings = lib.llama_context_default_params()
        settings.n_ctx = max(filled, 1) + given.tokens + 8
        settings.n_batch = 512
        settings.n_threads = settings.n_threads_batch = given.threads
        context = lib.llama_init_from_model(self.model, settings)
        ids = [3 + i * 7919 % 20000 for i in range(max(filled, 1))]
        for first in range(0, len(ids), 512):
            self.read(context, ids[first:first + 512])
        begin = time.perf_counter()
        for step in range(given.tokens):
            self.read(context, [3 + step])
        seconds = time.perf_counter() - begin
        lib.llama_free(context)
        return given.tokens / seconds

    def read(self, context, ids):
        array = (self.lib.llama_token * len(ids))(*ids)
        if self.lib.llama_decode(context, self.lib.llama_batch_get_one(array, len(ids))) != 0:
            sys.exit("decode.py: llama.cpp could not decode")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a GGUF file in float16")
    parser.add_argument("--torsor", default=os.path.join(ROOT, "build/release/bin/torsor"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--filled", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--alone", action="store_true", help="leave llama.cpp out")
    given = parser.parse_args()
    if not given.model:
        given.model = os.path.join(tempfile.gettempdir(), "torsor-decode-125m.gguf")
        if not os.path.exists(given.model):
            make_model(given.model)
    llama = None if given.alone else Llama(given)
    rows = {filled: {"ours": [], "theirs": [], "ratio": [], "copy": []} for filled in (0, given.filled)}
    for _ in range(given.rounds):
        for filled, row in rows.items():
            row["copy"].append(copy_bandwidth(given.threads))
            row["ours"].append(ours(given, filled))
            if llama:
                row["theirs"].append(llama.speed(filled))
                row["ratio"].append(row["ours"][-1] / row["theirs"][-1])
    print(f"{given.threads} threads, {given.tokens} tokens a round, medians of {given.rounds} rounds, both caches at two bytes a number\n")
    print("| tokens in the cache | ours, tokens/s | share of copying | llama.cpp | share | ours over llama.cpp |\n|" + "---|" * 6)
    for filled, row in rows.items():
        # The cache grows while it is timed: its middle is what counts.
        need = bytes_a_token(given.model, filled + given.tokens / 2, 2)
        copy = statistics.median(row["copy"])
        mine = statistics.median(row["ours"])
        line = f"| {filled} | {mine:.1f} | {mine * need / copy:.2f} |"
        if llama:
            theirs = statistics.median(row["theirs"])
            line += f" {theirs:.1f} | {theirs * need / copy:.2f} | {statistics.median(row['ratio']):.2f} ({min(row['ratio']):.2f} to {max(row['ratio']):.2f}) |"
        else:
            line += " not measured | not measured | not measured |"
        print(line, flush=True)


if __name__ == "__main__":
    main()
