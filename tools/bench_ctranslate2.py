"""CTranslate2 in a process of its own, where its threads disturb nobody: started by `bench_rows`.

It converts the Marian model that has our weights, prints its greedy outputs as one line of JSON,
then times as many calls as each line of standard input says.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict

import ctranslate2  # type: ignore[import-untyped]
import peers
import torch
from bench_clock import timer
from bench_rows import Setting, ceiling_case
from ctranslate2.converters.transformers import BartLoader  # type: ignore[import-untyped]

from transformer.tokens import BOS, EOS, UNK


def main() -> None:
    """Serve."""
    order = json.loads(sys.argv[1])
    setting = Setting(torch.device("cpu"), quick=order["quick"])
    model, source, limit = ceiling_case(setting, order["rows"])
    theirs = peers.marian(model)
    theirs.config.normalize_before = theirs.config.normalize_embedding = False
    spec = BartLoader().get_model_spec(theirs)
    words = [str(i) for i in range(model.config.vocab_size)]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.bos_token = spec.config.decoder_start_token = words[BOS]
    spec.config.eos_token, spec.config.unk_token = words[EOS], words[UNK]
    spec.validate()
    spec.optimize(quantization=None)
    sentences = [[words[i] for i in row] for row in source.tolist()]
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        translator = ctranslate2.Translator(
            folder, compute_type="float32", inter_threads=1, intra_threads=1
        )

    def translate() -> list[list[int]]:
        found = translator.translate_batch(sentences, beam_size=1, max_decoding_length=limit)
        return [[int(word) for word in each.hypotheses[0]] for each in found]

    print(json.dumps(translate()), flush=True)
    for line in sys.stdin:
        print(json.dumps(asdict(timer(translate)(int(line)))), flush=True)


if __name__ == "__main__":
    main()
